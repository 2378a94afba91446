/* The layout of a ring file: what a training process records, and the collector reads.
 *
 * One file a process, mapped by both. All numbers are little-endian as the machine writes them;
 * a reader of another layout version refuses the file by `magic` and `layout_version`.
 *
 *   header (4096 bytes)
 *   communicators  [communicator_slots]  boards: written in place, always current
 *   transfers      [transfer_slots]      boards: proxy operations in flight, step by step
 *   records        [record_slots]        the ring: what happened, in order of reservation
 *
 * The boards are what keeps a hang visible when the ring is full or the process dead: they say
 * where every communicator and every transfer stands without a single record.
 *
 * A record is whole when its `stamp` equals its position + 1. Producers reserve a position in
 * `head` by compare-and-swap while head - tail < record_slots, else they count `dropped`; they
 * fill the record and store `stamp` last (release). The one consumer reads `stamp` (acquire),
 * copies, and moves `tail` on. A stamp that lags behind `head` marks a record that is being
 * written, or was when its process died. Boards carry a `version`, odd while being written.
 *
 * The file appears under its name with the header filled in, and its process holds a POSIX write
 * lock on the whole of it while it lives: what tells a living process across PID namespaces.
 */
#ifndef ONCALL_RING_H
#define ONCALL_RING_H

#include <stdint.h>

#define ONCALL_RING_MAGIC 0x314c4c41434e4f00ull /* "\0ONCALL1" */
#define ONCALL_RING_LAYOUT 1u
#define ONCALL_HEADER_BYTES 4096u
#define ONCALL_NAME_BYTES 64u

enum oncall_record_kind {
  ONCALL_RECORD_ENTERED = 1,   /* the host called an operation */
  ONCALL_RECORD_ENQUEUED = 2,  /* the call returned; `result` says with what */
  ONCALL_RECORD_DESCRIBED = 3, /* NCCL chose algorithm, protocol, channels */
  ONCALL_RECORD_STARTED = 4,   /* its first kernel channel runs */
  ONCALL_RECORD_ENDED = 5,     /* its last kernel channel and transfer are over */
  ONCALL_RECORD_TRANSFER = 6,  /* a proxy operation is over */
  ONCALL_RECORD_GROUP = 7,     /* an explicit ncclGroupStart .. ncclGroupEnd is over */
};

enum oncall_operation {
  ONCALL_ALL_REDUCE = 1,
  ONCALL_ALL_GATHER = 2,
  ONCALL_REDUCE_SCATTER = 3,
  ONCALL_BROADCAST = 4,
  ONCALL_REDUCE = 5,
  ONCALL_ALL_TO_ALL = 6,
  ONCALL_GATHER = 7,
  ONCALL_SCATTER = 8,
  ONCALL_SEND = 9,
  ONCALL_RECV = 10,
  ONCALL_PUT_SIGNAL = 11,
  ONCALL_WAIT_SIGNAL = 12,
  ONCALL_SIGNAL = 13,
};

/* Where a communicator's life stands. */
enum oncall_communicator_state {
  ONCALL_COMMUNICATOR_UNUSED = 0,
  ONCALL_COMMUNICATOR_INITIALISING = 1,
  ONCALL_COMMUNICATOR_RUNNING = 2,
  ONCALL_COMMUNICATOR_FINALISED = 3,
  ONCALL_COMMUNICATOR_DESTROYED = 4,
  ONCALL_COMMUNICATOR_ABORTED = 5,
  ONCALL_COMMUNICATOR_FAILED = 6, /* its initialisation returned an error */
};

/* What a transfer waits for; the order is that of NCCL's proxy step. */
enum oncall_wait {
  ONCALL_WAIT_NONE = 0,       /* not begun, or between two steps */
  ONCALL_WAIT_SEND_GPU = 1,   /* SendGPUWait: our GPU has not filled the buffer */
  ONCALL_WAIT_SEND_PEER = 2,  /* SendPeerWait: the receiver gave no credit */
  ONCALL_WAIT_SEND_WIRE = 3,  /* SendWait: posted, not completed */
  ONCALL_WAIT_RECV_WIRE = 4,  /* RecvWait: data has not come */
  ONCALL_WAIT_RECV_FLUSH = 5, /* RecvFlushWait */
  ONCALL_WAIT_RECV_GPU = 6,   /* RecvGPUWait: our GPU does not consume */
};

struct oncall_header { /* 4096 bytes */
  uint64_t magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint32_t communicator_slots, communicator_bytes; /* count and size of each */
  uint32_t transfer_slots, transfer_bytes;
  uint32_t record_slots, record_bytes;                 /* record_slots is a power of two */
  uint64_t records_at, transfers_at, communicators_at; /* offsets in the file */
  int64_t anchor_monotonic_ns, anchor_realtime_ns;     /* one instant on both clocks */
  int64_t process_started_ns;  /* realtime; with `pid` it tells a process from its successor */
  int64_t process_start_ticks; /* the same as /proc/PID/stat says it, since boot */
  int64_t pid, parent_pid;     /* as the process sees them: a container's own numbers */
  int32_t rank, world_size, local_rank, gpu; /* -1: unknown */
  char job[128], node[128], pci_bus[32], nic[32];
  char framework[32], nccl_version[32], hook_version[32];
  char configuration[256]; /* "tp=2 pp=2 dp=2 micro_batches=8", from ONCALL_JOB_CONFIG */
  uint32_t closed;         /* 1: the process ended in order */
  uint32_t reserved;
  uint64_t communicators_made; /* how many there were so far; the last one's `number` */
  /* Each on a cache line of its own, for producers and the consumer write them. */
  uint64_t head __attribute__((aligned(128)));    /* next position to reserve */
  uint64_t dropped __attribute__((aligned(128))); /* records lost to a full ring */
  uint64_t lost_operations; /* operations not tracked, for want of a slot in the process */
  uint64_t lost_communicators, lost_transfers;          /* likewise, for want of a board */
  uint64_t tail __attribute__((aligned(128)));          /* next position to read; the consumer's */
  uint32_t reserved_mask __attribute__((aligned(128))); /* 0 */
  uint32_t event_mask_now;                              /* profiler events that the plugin wants */
} __attribute__((aligned(4096)));

/* How far one kind of operation has come on a communicator. */
struct oncall_progress { /* 64 bytes */
  uint64_t entered;      /* operations entered; the last one has this sequence number */
  uint64_t enqueued;     /* calls that returned */
  uint64_t ended;        /* operations known to be over */
  int64_t entered_ns;    /* monotonic, of the last one entered */
  uint64_t operation;    /* its process-wide number */
  uint64_t count;
  int32_t peer; /* or root; -1: none */
  uint8_t op, dtype;
  uint16_t reserved;
  uint32_t version; /* odd: what describes the last one entered is being written */
  uint32_t reserved_too;
};

struct oncall_communicator { /* 512 bytes */
  uint32_t version;          /* odd: being written */
  uint32_t state;
  uint64_t identity; /* commHash if the plugin reported it, else the shim's; same on all members */
  uint64_t pointer;  /* ncclComm_t */
  uint64_t parent;   /* identity of the communicator it was split from; 0: none */
  int64_t created_ns, closed_ns; /* monotonic */
  int32_t rank, size;            /* within the communicator */
  int32_t device;                /* CUDA device ordinal; -1: unknown */
  int32_t async_error;           /* last ncclResult_t other than success */
  uint32_t nodes, identity_is_hash;
  char name[ONCALL_NAME_BYTES];
  uint64_t number;    /* in this process, from 1: tells a board's communicators apart */
  uint64_t closed_at; /* `head` when it ended: the board is not used again before that is read */
  char reserved[64];
  struct oncall_progress collectives __attribute__((aligned(64)));
  struct oncall_progress point_to_point;
} __attribute__((aligned(512)));

struct oncall_transfer { /* 128 bytes: a proxy operation in flight */
  uint32_t version;      /* odd: being written; 0: never used */
  uint16_t communicator; /* slot */
  uint8_t channel, is_send;
  uint64_t operation; /* process-wide number; 0: the slot is free */
  int32_t peer;       /* rank within the communicator */
  uint32_t steps, steps_done;
  uint32_t wait;    /* enum oncall_wait of the oldest step under way */
  int64_t since_ns; /* monotonic: when it began to wait for that */
  int64_t started_ns;
  uint64_t bytes;       /* moved so far */
  int64_t waited_ns[7]; /* by enum oncall_wait, finished waits only */
  int64_t last_step_ns; /* when the last step ended; 0: none has */
} __attribute__((aligned(128)));

struct oncall_record { /* 64 bytes, one cache line */
  uint64_t stamp;      /* position + 1 once whole */
  int64_t time_ns;     /* CLOCK_MONOTONIC */
  uint64_t operation;  /* process-wide number, from 1; 0: none */
  uint16_t kind;       /* enum oncall_record_kind */
  uint16_t communicator;
  uint32_t group; /* explicit group call it belongs to; 0: none */
  union {
    struct {             /* ENTERED */
      uint64_t sequence; /* on its communicator, collectives and Send/Recv each from 1 */
      uint64_t count;    /* elements the caller passed; bytes = count * size of dtype */
      uint64_t stream;
      int32_t peer; /* rank in the communicator: other side, or root; -1: none */
      uint8_t op, dtype;
      uint16_t captured; /* 1: into a CUDA graph */
    } entered;
    struct {          /* ENQUEUED */
      int32_t result; /* ncclResult_t */
    } enqueued;
    struct { /* DESCRIBED */
      char algorithm[12], protocol[8];
      uint16_t channels, warps;
      uint64_t plan_count;
    } described;
    struct {                   /* STARTED, ENDED */
      int64_t gpu_duration_ns; /* by the GPU's own clock, over all channels; 0: unknown */
      uint32_t sends, recvs;   /* steps done, all channels */
      uint64_t bytes;          /* sent over the network */
      uint32_t channels;       /* kernel channels seen */
      uint32_t reserved;
    } ended;
    struct { /* TRANSFER; its `group` is its number of steps */
      uint64_t bytes;
      int32_t peer; /* rank in the communicator */
      uint8_t channel, is_send;
      uint16_t reserved;
      uint32_t first_wait_us; /* SendGPUWait or RecvWait */
      uint32_t peer_wait_us;  /* SendPeerWait or RecvFlushWait */
      uint32_t last_wait_us;  /* SendWait or RecvGPUWait */
      uint32_t span_us;       /* from its start to its end */
    } transfer;
    struct { /* GROUP */
      uint32_t operations;
      uint32_t reserved;
      int64_t started_ns; /* monotonic */
    } group_call;
    char payload[32];
  };
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct oncall_header) == ONCALL_HEADER_BYTES, "header");
_Static_assert(sizeof(struct oncall_progress) == 64, "progress");
_Static_assert(sizeof(struct oncall_communicator) == 512, "communicator");
_Static_assert(sizeof(struct oncall_transfer) == 128, "transfer");
_Static_assert(sizeof(struct oncall_record) == 64, "record");

#endif
