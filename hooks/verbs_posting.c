/* Counting what one call posts. */
#include <string.h>

#include "verbs_queue_pairs.h"

enum { MOST_RUNS = sizeof((struct posting *)0)->run / sizeof(struct run) };

void posting_begin(struct posting *posting, int64_t now_ns) {
  memset(posting, 0, offsetof(struct posting, run));
  posting->posted_ns = now_ns;
}

static void count(struct posting *posting, int opcode, uint64_t bytes) {
  switch (opcode) {
  case IBV_WR_RDMA_WRITE:
  case IBV_WR_RDMA_WRITE_WITH_IMM:
    posting->writes++;
    break;
  case IBV_WR_SEND:
  case IBV_WR_SEND_WITH_IMM:
  case IBV_WR_SEND_WITH_INV:
    posting->sends++;
    break;
  case IBV_WR_RDMA_READ:
    posting->reads++;
    posting->read_bytes += bytes;
    break;
  }
}

/* What goes out of the NIC as payload. */
static bool is_sent(int opcode) {
  return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
         opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && opcode != IBV_WR_LOCAL_INV &&
         opcode != IBV_WR_BIND_MW;
}

/* The tail is a run now. More of them than there is room for become one. */
static void end_run(struct posting *posting) {
  struct run *tail = &posting->tail;
  if (posting->runs < MOST_RUNS) {
    posting->run[posting->runs] = *tail;
    posting->run[posting->runs++].owed = 1;
  } else {
    struct run *last = &posting->run[MOST_RUNS - 1];
    last->requests += tail->requests;
    last->bytes += tail->bytes;
    last->wr_id = tail->wr_id;
    last->opcode = tail->opcode;
    last->owed++;
  }
  memset(tail, 0, sizeof *tail);
}

void posting_add(struct posting *posting, int opcode, bool is_signaled, uint64_t bytes,
                 uint64_t wr_id) {
  struct run *tail = &posting->tail;
  uint64_t sent = is_sent(opcode) ? bytes : 0;
  count(posting, opcode, bytes);
  posting->requests++;
  posting->bytes += sent;
  tail->posted_ns = tail->last_posted_ns = posting->posted_ns;
  tail->requests++;
  tail->bytes += sent;
  tail->wr_id = wr_id;
  tail->opcode = (uint8_t)opcode;
  if (is_signaled) {
    posting->signaled++;
    end_run(posting);
  }
}
