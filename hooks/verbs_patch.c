#define _GNU_SOURCE
#include "verbs_patch.h"

#include <stdbool.h>

#include "verbs_queue_pairs.h"

enum { SLOTS = 256 };

/* What the provider had put there, by context. Written under `changing`, never removed: a context
 * that is closed and opened anew at the same address overwrites its own. */
static struct original {
  struct ibv_context *context;
  int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
  int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
  int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
} originals[SLOTS];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

/* The slot that is the context's; a free one if it has none; NULL if there is no free one. */
static struct original *original_of(const struct ibv_context *context) {
  uintptr_t first = (uintptr_t)context >> 8;
  for (uintptr_t probe = 0; probe < SLOTS; probe++) {
    struct original *original = &originals[(first + probe) % SLOTS];
    struct ibv_context *found = __atomic_load_n(&original->context, __ATOMIC_ACQUIRE);
    if (found == context || !found)
      return original;
  }
  return NULL;
}

static uint64_t bytes_of(const struct ibv_send_wr *request) {
  uint64_t bytes = 0;
  for (int piece = 0; piece < request->num_sge; piece++)
    bytes += request->sg_list[piece].length;
  return bytes;
}

/* Counts the list in up to `end`, which was not posted. */
static void count(struct posting *posting, const struct queue_pair *pair,
                  const struct ibv_send_wr *request, const struct ibv_send_wr *end) {
  bool all = queue_pair_all_signaled(pair);
  for (; request && request != end; request = request->next)
    posting_add(posting, request->opcode, all || request->send_flags & IBV_SEND_SIGNALED,
                bytes_of(request), request->wr_id);
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
  const struct original *original = original_of(pair->context);
  struct queue_pair *known = queue_pair_find(pair->context, pair->qp_num);
  if (!known)
    return original->post_send(pair, request, bad);
  struct posting posting;
  posting_begin(&posting, oncall_now_ns());
  count(&posting, known, request, NULL);
  int failed = original->post_send(pair, request, bad);
  if (failed) { /* all before the bad one are posted */
    posting_begin(&posting, posting.posted_ns);
    if (bad && *bad)
      count(&posting, known, request, *bad);
  }
  if (posting.requests)
    queue_pair_posted(known, &posting);
  return failed;
}

static int post_recv(struct ibv_qp *pair, struct ibv_recv_wr *request, struct ibv_recv_wr **bad) {
  const struct original *original = original_of(pair->context);
  struct queue_pair *known = queue_pair_find(pair->context, pair->qp_num);
  uint32_t receives = 0;
  for (struct ibv_recv_wr *each = known ? request : NULL; each; each = each->next)
    receives++;
  int failed = original->post_recv(pair, request, bad);
  if (known && !failed)
    queue_pair_received_posts(known, receives);
  return failed;
}

static int poll_cq(struct ibv_cq *queue, int most, struct ibv_wc *completions) {
  int found = original_of(queue->context)->poll_cq(queue, most, completions);
  if (found <= 0 || !oncall_verbs())
    return found;
  int64_t now_ns = oncall_now_ns();
  for (int number = 0; number < found; number++) {
    struct queue_pair *known = queue_pair_find(queue->context, completions[number].qp_num);
    if (known)
      queue_pair_completed(known, &completions[number], now_ns);
  }
  return found;
}

void verbs_patch_in_child(void) { pthread_mutex_init(&changing, NULL); }

void verbs_patch(struct ibv_context *context) {
  struct ibv_context_ops *ops = &context->ops;
  pthread_mutex_lock(&changing);
  struct original *original = original_of(context);
  if (original && ops->post_send != post_send && ops->post_send && ops->post_recv && ops->poll_cq) {
    original->poll_cq = ops->poll_cq;
    original->post_send = ops->post_send;
    original->post_recv = ops->post_recv;
    __atomic_store_n(&original->context, context, __ATOMIC_RELEASE);
    ops->poll_cq = poll_cq;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
  }
  pthread_mutex_unlock(&changing);
}
