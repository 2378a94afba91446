/* What every queue pair sent, by epochs of 32 us (Pulse 4.2): the part that knows no NIC.
 *
 * Freestanding C11: no libc, no floating point, no allocation, no read-modify-write. All state is
 * one object of zeros. The NIC's threads record events; one reader (the mailbox) takes pages.
 *
 *   table    [2^24] u16     queue pair number -> flow, 0 for none
 *   flows    [8192]         whose it is; those of one number on several functions are chained
 *   shards   [16]           a thread's own: a ring of batches, flow numbers to give out, counters
 *
 * A batch is 32 epochs, about a millisecond, of one flow. Its thread opens it at the ring's head
 * when the flow first sends in that millisecond; the reader takes closed ones from the tail.
 */
#ifndef ONCALL_DPA_MEASUREMENT_H
#define ONCALL_DPA_MEASUREMENT_H

#include <stdint.h>

#ifndef EPOCH_NS
#define EPOCH_NS 32000u
#endif
#define UNIT_BYTES 32u      /* what the NIC counts in, and a counter holds */
#define COUNTER_MAX 65535u  /* 2 MB an epoch: 524 Gb/s at 32 us */
#define BATCH_EPOCHS 32u    /* 1.024 ms */
#define SPREAD_EPOCHS 1024u /* a longer event is taken to have been sent at its end */
#define GUARD_NS 2000000u   /* after its end, until a batch counts as closed: events come late */
#ifndef AGE_EPOCHS
#define AGE_EPOCHS 31250u /* 1 s without bytes: the flow's record is taken back */
#endif
#ifndef SHARDS
#define SHARDS 16u /* threads that record (Pulse 4.3) */
#endif
#ifndef SHARD_FLOWS
#define SHARD_FLOWS 511u /* flows that one thread may open */
#endif
#ifndef SHARD_BATCHES
#define SHARD_BATCHES 131072u /* a power of two */
#endif
#ifndef TABLE_BITS
#define TABLE_BITS 24
#endif
#define FLOWS (SHARDS * SHARD_FLOWS) /* numbered from 1 */
#define CHAIN_MOST 8u                /* functions of one NIC with the same number; ends any cycle */
_Static_assert(EPOCH_NS > 1u << 13 && EPOCH_NS < 1u << 17, "epoch_of is exact for 36 years");
_Static_assert(FLOWS < 65536, "a flow's number is 16 bits");
_Static_assert((SHARD_BATCHES & (SHARD_BATCHES - 1)) == 0, "positions wrap at 2^32");

/* The NIC says: a burst of a queue pair was sent. */
struct tx_event {
  uint32_t qpn;               /* 24 bits, unique within a PCI function */
  uint32_t vhca;              /* that function, 16 bits */
  uint32_t first_ns, last_ns; /* of its packets; the NIC's clock, which wraps each 4.29 s */
  uint32_t units;             /* of UNIT_BYTES, in this burst alone */
  uint32_t packets;
  uint32_t sn, next_sn; /* serial numbers of it and of its flow's next, or events were lost */
};

enum batch_flag {
  BATCH_UNDERCOUNT = 1, /* events were lost: counts are lower bounds */
  BATCH_CLIPPED = 2,    /* a counter is full */
  BATCH_ESTIMATED = 4,  /* bytes by the packets of bursts that the NIC's own counter cannot hold */
};

struct batch {
  uint32_t window; /* epoch / BATCH_EPOCHS, its lower 32 bits: 50 days */
  uint16_t flow;
  uint16_t flags;
  union {
    uint16_t units[BATCH_EPOCHS];
    uint64_t words[BATCH_EPOCHS / 4]; /* the same, to be cleared */
  };
};

enum flow_state { FLOW_FREE = 0, FLOW_OPEN = 1, FLOW_RETIRED = 2 };

struct flow {
  uint32_t qpn;
  uint16_t vhca;
  uint16_t next; /* the flow of the same number on another function, 0 for none */
  uint32_t state;
  uint32_t retired_epoch, retired_drain; /* the reader's */
  uint32_t last_epoch;                   /* that had bytes, lower 32 bits */
  uint32_t next_sn;
  uint32_t learned_units, learned_packets; /* of bursts that were counted right */
  uint32_t has_missed;                     /* bytes since its last batch could not be kept */
};

struct counts {
  uint64_t events;
  uint64_t without_flow;  /* events not counted: too many flows */
  uint64_t without_batch; /* parts of events not counted: the ring of batches is full */
  uint64_t gaps;          /* in serial numbers */
  uint64_t clipped;       /* full counters met */
  uint64_t estimated;     /* bursts */
};

struct shard {
  uint32_t head;   /* batches opened */
  uint32_t sealed; /* batches that the reader has begun to read: nothing is added to them */
  uint32_t tail;   /* batches released, by the reader: the host has them */
  uint64_t newest_ns;
  struct counts counts;
  uint32_t flows_used;             /* flows never opened before begin here */
  uint32_t given_back, taken_back; /* the reader's, the thread's position among returned flows */
  uint16_t returned[SHARD_FLOWS + 1];
  uint32_t current[FLOWS + 1]; /* each flow's newest batch, if its flow and window agree */
  struct batch batches[SHARD_BATCHES];
};

struct measurement {
  uint16_t table[1u << TABLE_BITS];
  struct flow flows[FLOWS + 1];
  struct shard shards[SHARDS];
  uint64_t reference_ns; /* a recent time, for threads that have not seen an event for long */
  uint64_t strays;       /* events of threads that have no shard */
  /* The reader's own. */
  uint64_t now_ns;   /* the NIC's time has surely come so far; 0: nothing was sent yet */
  uint64_t timer_us; /* when that was so */
  uint64_t boot;     /* tells one run of this program from another */
  uint32_t page;     /* its number: not known yet to have arrived */
  uint32_t drains;   /* how often all that was closed had been read */
  uint32_t aged;     /* that number when flows were aged last */
  uint32_t flows_open;
};

/* ns / EPOCH_NS as a product: a division takes the NIC's cores tens of cycles, and gcc makes one
 * even of a constant. */
static inline uint64_t epoch_of(uint64_t ns) {
  const uint64_t reciprocal = (uint64_t)(((unsigned __int128)1 << 77) / EPOCH_NS) + 1;
  return (uint64_t)((unsigned __int128)ns * reciprocal >> 64) >> 13;
}

/* Count one event, in a thread's own shard. Any number of threads at once, one a shard. */
void measurement_record(struct measurement *all, uint32_t thread, const struct tx_event *event);

/* Answer a request of the host (mailbox.h) into `reply`; returns its bytes, 0 if the request is
 * none or `room` is too small. `timer_us`: a clock that never wraps. One caller at a time. */
uint32_t measurement_answer(struct measurement *all, const void *request, uint32_t request_bytes,
                            uint64_t timer_us, void *reply, uint32_t room);

#endif
