/* The layout of a verbs file: what a training process posts to its RDMA NICs.
 *
 * One file a process beside its ring, `<pid>-<anchor_realtime_ns>.verbs`, written by the verbs
 * shim and read by the collector. It stands apart from the ring so that a flood of work requests
 * pushes out no operation. Rules of the ring hold here too (oncall_ring.h): little-endian, a
 * reader of another layout refuses it, a POSIX write lock tells the living.
 *
 *   header (4096 bytes)
 *   queue pairs [queue_pair_slots]  boards: written in place, always current
 *   requests    [request_slots]     the ring: work requests that completed
 *
 * One record stands for one work request, or for a run of them that one completion retired. The
 * reader spreads its bytes from post to completion (epochs), and counts windows of them
 * (wr_windows); the shim only stamps and counts.
 */
#ifndef ONCALL_VERBS_H
#define ONCALL_VERBS_H

#include <stdint.h>

#define ONCALL_VERBS_MAGIC 0x315342524556304full /* "O0VERBS1" */
#define ONCALL_VERBS_LAYOUT 1u

enum oncall_queue_pair_state {
  ONCALL_QUEUE_PAIR_UNUSED = 0,
  ONCALL_QUEUE_PAIR_READY = 1, /* ready to receive or to send: its peer is known */
  ONCALL_QUEUE_PAIR_ERROR = 2,
  ONCALL_QUEUE_PAIR_DESTROYED = 3,
};

struct oncall_verbs_header { /* 4096 bytes */
  uint64_t magic;
  uint32_t layout_version, header_bytes;
  uint32_t queue_pair_slots, queue_pair_bytes;
  uint32_t request_slots, request_bytes; /* request_slots is a power of two */
  uint64_t queue_pairs_at, requests_at;  /* offsets in the file */
  int64_t anchor_monotonic_ns, anchor_realtime_ns;
  int64_t process_started_ns, process_start_ticks;
  int64_t pid, parent_pid;
  int32_t rank, world_size, local_rank, reserved;
  char job[128], node[128], hook_version[32];
  uint32_t closed;           /* 1: the process ended in order */
  uint32_t loaded_by;        /* 1 preloaded, 2 in libibverbs' place */
  uint64_t queue_pairs_made; /* how many there were so far; the last one's `number` */
  uint64_t head __attribute__((aligned(128)));
  uint64_t dropped __attribute__((aligned(128))); /* records lost to a full ring */
  uint64_t lost_queue_pairs;                      /* not tracked, for want of a board */
  uint64_t tail __attribute__((aligned(128)));    /* the consumer's */
} __attribute__((aligned(4096)));

struct oncall_queue_pair { /* 256 bytes */
  uint32_t version;        /* odd: what describes it is being written */
  uint32_t state;
  uint32_t qpn, peer_qpn;
  uint8_t peer_gid[16]; /* network order; all zero: unknown (UD) */
  char nic[32];         /* RDMA device name */
  uint8_t port, type, timeout, retry;
  uint16_t peer_lid, reserved;
  int64_t ready_ns, closed_ns; /* monotonic */
  uint64_t number;             /* in this process, from 1: tells a board's queue pairs apart */
  uint64_t closed_at;          /* `head` when it ended: used again once that is read */
  uint32_t most_outstanding;   /* send requests that fit in its queue; 0: unknown */
  uint32_t reserved_too;
  /* Counters, by whoever posts and polls; each monotone. */
  uint64_t posted __attribute__((aligned(64)));    /* send work requests */
  uint64_t posted_bytes;                           /* of all but reads and atomics */
  uint64_t writes, sends, reads, other;            /* by opcode */
  uint64_t signaled;                               /* send requests that ask for a completion */
  uint64_t receives;                               /* receive requests posted */
  uint64_t completed __attribute__((aligned(64))); /* send requests known to be over */
  uint64_t completed_bytes;
  uint64_t errors;          /* completions with an error */
  uint64_t last_status;     /* enum ibv_wc_status of the last error */
  int64_t oldest_posted_ns; /* monotonic, of the oldest not known to be over; 0: none */
  int64_t last_completed_ns;
  uint64_t read_bytes; /* asked for by reads */
  uint64_t received;   /* receives completed */
} __attribute__((aligned(256)));

struct oncall_request { /* 64 bytes, one cache line */
  uint64_t stamp;       /* position + 1 once whole */
  int64_t posted_ns;    /* monotonic, of the first of the run */
  int64_t last_posted_ns;
  int64_t completed_ns;
  uint64_t bytes;         /* sent: those of reads and atomics are not counted */
  uint32_t queue_pair;    /* board */
  uint32_t requests;      /* work requests that this completion retired */
  uint32_t number;        /* low half of the board's `number` */
  uint8_t opcode, status; /* of the last of the run: enum ibv_wr_opcode, enum ibv_wc_status */
  uint16_t reserved;
  uint32_t outstanding; /* requests still posted then */
  uint32_t reserved_too;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct oncall_verbs_header) == 4096, "header");
_Static_assert(sizeof(struct oncall_queue_pair) == 256, "queue pair");
_Static_assert(sizeof(struct oncall_request) == 64, "request");

#endif
