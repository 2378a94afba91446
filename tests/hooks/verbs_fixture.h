/* A process with a fake device open under the shim, and its file as a reader finds it. */
#ifndef ONCALL_TESTS_VERBS_FIXTURE_H
#define ONCALL_TESTS_VERBS_FIXTURE_H

#include "fake_verbs.h"
#include "run_folder.h"
#include "verbs_file.h"

static struct ibv_context *context;
static struct ibv_cq *completions;

static inline void begin_verbs(void) {
  enter_run_folder();
  setenv("RANK", "3", 1);
  context = ibv_open_device(fake_device());
  EXPECT(context && oncall_verbs());
  completions = fake_create_cq(context);
}

/* Ready to send, as NCCL makes it ready. */
static inline void connect_pair(struct ibv_qp *pair, uint32_t peer) {
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR, .dest_qp_num = peer};
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid[15] = 9;
  EXPECT(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN));
  attributes = (struct ibv_qp_attr){.qp_state = 3, .timeout = 20, .retry_cnt = 7};
  EXPECT(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT));
}

static inline struct ibv_qp *new_pair(uint32_t number, uint32_t room) {
  struct ibv_qp *pair = fake_create_qp(completions, completions, number, room, false);
  connect_pair(pair, number + 1000);
  return pair;
}

/* Posts a chain of `count` requests of `bytes` in two pieces, the last signaled. */
static inline int post_chain(struct ibv_qp *pair, int opcode, int count, uint32_t bytes,
                             uint64_t first_id) {
  struct ibv_send_wr request[64], *bad = NULL;
  struct ibv_sge pieces[2] = {{.length = bytes / 2}, {.length = bytes - bytes / 2}};
  EXPECT(count <= 64);
  for (int number = 0; number < count; number++)
    request[number] = (struct ibv_send_wr){
        .wr_id = first_id + (uint64_t)number,
        .next = number + 1 < count ? &request[number + 1] : NULL,
        .sg_list = pieces,
        .num_sge = 2,
        .opcode = opcode,
        .send_flags = number + 1 == count ? IBV_SEND_SIGNALED : 0,
    };
  return pair->context->ops.post_send(pair, request, &bad);
}

static inline int poll_all(void) {
  struct ibv_wc found[16];
  int count, sum = 0;
  while ((count = context->ops.poll_cq(completions, 16, found)) > 0)
    sum += count;
  return sum;
}

/* The board of the newest queue pair of that number; NULL: none. */
static inline struct oncall_queue_pair *board_of(uint32_t number) {
  struct oncall_verbs *verbs = oncall_verbs();
  struct oncall_queue_pair *newest = NULL;
  for (uint32_t slot = 0; slot < verbs->header->queue_pair_slots; slot++) {
    struct oncall_queue_pair *board = &verbs->boards[slot];
    if (board->state && board->qpn == number && (!newest || board->number > newest->number))
      newest = board;
  }
  return newest;
}

static inline const struct oncall_request *record(uint64_t position) {
  struct oncall_verbs *verbs = oncall_verbs();
  const struct oncall_request *found = &verbs->requests[position & verbs->request_mask];
  EXPECT(position < verbs->header->head && found->stamp == position + 1);
  return found;
}

#endif
