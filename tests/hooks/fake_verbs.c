#include "fake_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WAITING = 1 << 12, MOST_COMPLETIONS = 1 << 18, WR_FLUSH_ERR = 5 };

#define EXPORTED __attribute__((visibility("default")))

struct waiting {
  uint64_t wr_id;
  int opcode;
  bool is_signaled;
};

struct fake_cq {
  struct ibv_cq base;
  pthread_mutex_t lock;
  struct ibv_wc *completions;
  uint64_t first, next;
};

struct fake_qp {
  struct ibv_qp_ex extended; /* first: libibverbs hands out its address as struct ibv_qp * */
  pthread_mutex_t lock;
  struct waiting *waiting;
  uint64_t first, next;
  uint32_t room;
  bool all_signaled, at_once;
  struct fake_qp *older; /* of those that there are: so that what a test leaves is no leak */
};

static struct fake_qp *newest;
static struct fake_cq *kept_queue;
static struct ibv_context *kept_contexts[8];
static uint64_t refused = UINT64_MAX;
static void (*meanwhile)(void);

static struct fake_qp *fake(struct ibv_qp *pair) { return (struct fake_qp *)pair; }

static void complete_with(struct ibv_cq *queue, struct ibv_wc completion) {
  struct fake_cq *of = (struct fake_cq *)queue;
  pthread_mutex_lock(&of->lock);
  of->completions[of->next++ % MOST_COMPLETIONS] = completion;
  pthread_mutex_unlock(&of->lock);
}

/* With an error only identity and status are set: the rest is garbage. */
static void end_oldest(struct fake_qp *pair, int status) {
  struct waiting *oldest = &pair->waiting[pair->first++ % MOST_WAITING];
  int garbage = status ? -1 : 0;
  struct ibv_wc completion = {.wr_id = oldest->wr_id,
                              .status = status,
                              .opcode = garbage,
                              .qp_num = pair->extended.qp_base.qp_num};
  if (status || oldest->is_signaled)
    complete_with(pair->extended.qp_base.send_cq, completion);
}

static void take(struct fake_qp *pair, uint64_t wr_id, int opcode, unsigned int flags) {
  pair->waiting[pair->next++ % MOST_WAITING] =
      (struct waiting){wr_id, opcode, pair->all_signaled || flags & IBV_SEND_SIGNALED};
}

static void progress(struct fake_qp *pair) {
  while (pair->at_once && pair->first < pair->next)
    end_oldest(pair, 0);
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
  struct fake_qp *pair = fake(base);
  int error = 0;
  pthread_mutex_lock(&pair->lock);
  for (; request && !error; request = error ? request : request->next) {
    if (request->wr_id == refused) {
      *bad = request;
      error = EINVAL;
    } else {
      take(pair, request->wr_id, request->opcode, request->send_flags);
    }
  }
  progress(pair);
  pthread_mutex_unlock(&pair->lock);
  if (meanwhile)
    meanwhile();
  return error;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *request, struct ibv_recv_wr **bad) {
  (void)base, (void)request, (void)bad;
  return 0;
}

static int poll_cq(struct ibv_cq *queue, int most, struct ibv_wc *completions) {
  struct fake_cq *of = (struct fake_cq *)queue;
  int found = 0;
  pthread_mutex_lock(&of->lock);
  for (; found < most && of->first < of->next; found++)
    completions[found] = of->completions[of->first++ % MOST_COMPLETIONS];
  pthread_mutex_unlock(&of->lock);
  return found;
}

/* ------------------------------------------------------------------ posting by calls */

static void wr_start(struct ibv_qp_ex *pair) { pthread_mutex_lock(&fake(&pair->qp_base)->lock); }

static int wr_complete(struct ibv_qp_ex *pair) {
  struct fake_qp *of = fake(&pair->qp_base);
  progress(of);
  pthread_mutex_unlock(&of->lock);
  return 0;
}

static void wr_abort(struct ibv_qp_ex *pair) {
  struct fake_qp *of = fake(&pair->qp_base);
  of->next = of->first;
  pthread_mutex_unlock(&of->lock);
}

static void wr_rdma_write(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at) {
  (void)rkey, (void)at;
  take(fake(&pair->qp_base), pair->wr_id, IBV_WR_RDMA_WRITE, pair->wr_flags);
}

static void wr_send(struct ibv_qp_ex *pair) {
  take(fake(&pair->qp_base), pair->wr_id, IBV_WR_SEND, pair->wr_flags);
}

static void wr_set_sge(struct ibv_qp_ex *pair, uint32_t key, uint64_t at, uint32_t length) {
  (void)pair, (void)key, (void)at, (void)length;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *pair, size_t count,
                                    const struct ibv_data_buf *pieces) {
  (void)pair, (void)count, (void)pieces;
}

/* ------------------------------------------------------------------ libibverbs' functions */

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device) {
  struct ibv_context *context = calloc(1, 512);
  static unsigned opened;
  kept_contexts[opened++ % 8] = context;
  context->device = device;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  return context;
}

EXPORTED struct ibv_context *ibv_import_device(int cmd_fd) {
  (void)cmd_fd;
  return ibv_open_device(fake_device());
}

EXPORTED int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *wanted, int mask) {
  if (mask & IBV_QP_STATE)
    pair->state = wanted->qp_state;
  return 0;
}

EXPORTED int ibv_query_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask,
                          struct ibv_qp_init_attr *made) {
  (void)attributes, (void)mask;
  made->cap.max_send_wr = fake(pair)->room;
  made->sq_sig_all = fake(pair)->all_signaled;
  return 0;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *pair) {
  struct fake_qp **link = &newest;
  while (*link != fake(pair))
    link = &(*link)->older;
  *link = fake(pair)->older;
  free(fake(pair)->waiting);
  free(pair);
  return 0;
}

EXPORTED struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *pair) { return &fake(pair)->extended; }

/* ------------------------------------------------------------------ what a test says */

EXPORTED struct ibv_device *fake_device(void) {
  static struct ibv_device device = {.name = "fake_0"};
  return &device;
}

EXPORTED struct ibv_cq *fake_create_cq(struct ibv_context *context) {
  struct fake_cq *queue = calloc(1, sizeof *queue);
  kept_queue = queue;
  queue->base.context = context;
  queue->completions = calloc(MOST_COMPLETIONS, sizeof *queue->completions);
  pthread_mutex_init(&queue->lock, NULL);
  return &queue->base;
}

EXPORTED struct ibv_qp *fake_create_qp(struct ibv_cq *sends, struct ibv_cq *receives,
                                       uint32_t number, uint32_t room, bool all_signaled) {
  struct fake_qp *pair = calloc(1, sizeof *pair);
  struct ibv_qp *base = &pair->extended.qp_base;
  base->context = sends->context;
  base->send_cq = sends;
  base->recv_cq = receives;
  base->qp_num = number;
  base->qp_type = 2; /* RC */
  pair->older = newest;
  newest = pair;
  pair->room = room;
  pair->all_signaled = all_signaled;
  pair->at_once = true;
  pair->waiting = calloc(MOST_WAITING, sizeof *pair->waiting);
  pthread_mutex_init(&pair->lock, NULL);
  pair->extended.wr_start = wr_start;
  pair->extended.wr_complete = wr_complete;
  pair->extended.wr_abort = wr_abort;
  pair->extended.wr_rdma_write = wr_rdma_write;
  pair->extended.wr_send = wr_send;
  pair->extended.wr_set_sge = wr_set_sge;
  pair->extended.wr_set_inline_data_list = wr_set_inline_data_list;
  return base;
}

EXPORTED void fake_complete_at_once(struct ibv_qp *pair, bool at_once) {
  fake(pair)->at_once = at_once;
}

EXPORTED void fake_complete(struct ibv_qp *pair, uint32_t requests) {
  for (; requests; requests--)
    end_oldest(fake(pair), 0);
}

EXPORTED void fake_fail(struct ibv_qp *pair, int status) {
  for (; fake(pair)->first < fake(pair)->next; status = WR_FLUSH_ERR)
    end_oldest(fake(pair), status);
}

EXPORTED void fake_receive(struct ibv_qp *pair, uint64_t wr_id, int status) {
  struct ibv_wc completion = {.wr_id = wr_id,
                              .status = status,
                              .opcode = status ? -1 : IBV_WC_RECV,
                              .qp_num = pair->qp_num};
  complete_with(pair->recv_cq, completion);
}

EXPORTED void fake_refuse(uint64_t wr_id) { refused = wr_id; }

EXPORTED void fake_meanwhile(void (*action)(void)) { meanwhile = action; }
