/* What is known of each queue pair: its board, and the requests posted to it that are not over.
 *
 * Requests are kept as runs: a signaled one with the unsignaled ones posted before it. A queue
 * pair works through its requests in order, so a run's one completion retires all of it (InfiniBand
 * specification, 10.8.6), and one run becomes one record.
 */
#ifndef ONCALL_HOOKS_VERBS_QUEUE_PAIRS_H
#define ONCALL_HOOKS_VERBS_QUEUE_PAIRS_H

#include "verbs_api.h"
#include "verbs_file.h"

struct queue_pair;

/* A signaled request and the unsignaled ones before it; or the latter, while none follows. */
struct run {
  int64_t posted_ns, last_posted_ns;
  uint64_t bytes; /* sent: those of reads and atomics are not counted */
  uint64_t wr_id; /* of the last */
  uint32_t requests;
  uint32_t owed; /* completions until it is over: more than 1 where runs were put together */
  uint8_t opcode;
};

/* What one call posts: counted before the device takes it, for its memory is the caller's again as
 * soon as it is posted, and registered after that. */
struct posting {
  int64_t posted_ns;
  uint64_t bytes, read_bytes; /* sent, and asked for by reads */
  uint32_t requests, signaled, writes, sends, reads;
  uint32_t runs;
  struct run tail; /* unsignaled ones after the last signaled */
  struct run run[8];
};

void posting_begin(struct posting *posting, int64_t now_ns);

/* Counts one request in. */
void posting_add(struct posting *posting, int opcode, bool is_signaled, uint64_t bytes,
                 uint64_t wr_id);

/* It was connected: from now on it is recorded, as a new one if it was before. Takes system
 * calls; does nothing without a file, or a free board. */
void queue_pair_ready(struct ibv_qp *pair, const struct ibv_qp_attr *peer, int mask, uint32_t room,
                      bool all_signaled);

/* Its retry settings, which come with ready-to-send. */
void queue_pair_settings(struct ibv_qp *pair, const struct ibv_qp_attr *wanted, int mask);

void queue_pair_failed(struct ibv_qp *pair);

/* Its life is over: it is forgotten. What it had outstanding stays on its board. */
void queue_pair_gone(struct ibv_qp *pair);

/* NULL: not recorded. Never waits. */
struct queue_pair *queue_pair_find(const struct ibv_context *context, uint32_t number);

bool queue_pair_all_signaled(const struct queue_pair *pair);

/* The posting was taken by the device. */
void queue_pair_posted(struct queue_pair *pair, const struct posting *posting);

void queue_pair_received_posts(struct queue_pair *pair, uint32_t receives);

/* A completion was polled at `now_ns`. */
void queue_pair_completed(struct queue_pair *pair, const struct ibv_wc *completion, int64_t now_ns);

/* In a forked child. */
void queue_pairs_forget_all(void);

#endif
