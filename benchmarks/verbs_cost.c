/* Times posting and polling with and without the verbs shim: benchmarks/verbs.py builds and runs
 * it.
 *
 *     verbs_cost CALLS ROUNDS
 *
 * Prints, a round a line, the CPU ns of each kind of call, bare and hooked: a post of one request,
 * a post of a chain of four, an empty poll, a poll of one completion, and all of a request from
 * post to completion. Built with -DLIBRARY it is the libibverbs, whose device does nothing. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verbs_api.h"

enum { NUMBER = 17, ROOM = 1024 };

struct ibv_context *bare_context(void);

#ifdef LIBRARY

static int completions; /* that the next poll finds */

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
  (void)pair, (void)request, (void)bad;
  return 0;
}

static int post_recv(struct ibv_qp *pair, struct ibv_recv_wr *request, struct ibv_recv_wr **bad) {
  (void)pair, (void)request, (void)bad;
  return 0;
}

/* `most` completions if it is not 16: the caller asks for as many as there shall be. */
static int poll_cq(struct ibv_cq *queue, int most, struct ibv_wc *found) {
  (void)queue;
  if (most == 16)
    return completions;
  for (int at = 0; at < most; at++)
    found[at] = (struct ibv_wc){.qp_num = NUMBER};
  return most;
}

struct ibv_context *bare_context(void) {
  struct ibv_context *context = calloc(1, 512);
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  return context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
  struct ibv_context *context = bare_context();
  context->device = device;
  return context;
}

int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *wanted, int mask) {
  (void)pair, (void)wanted, (void)mask;
  return 0;
}

int ibv_query_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask,
                 struct ibv_qp_init_attr *made) {
  (void)pair, (void)attributes, (void)mask;
  made->cap.max_send_wr = ROOM;
  return 0;
}

#else

enum { KINDS = 5 };

static struct ibv_send_wr chain[4];
static struct ibv_sge piece = {.length = 65536};

static double cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

/* The inline functions of <infiniband/verbs.h>. */
static void post(struct ibv_qp *pair, struct ibv_send_wr *request) {
  struct ibv_send_wr *bad;
  pair->context->ops.post_send(pair, request, &bad);
}

static void poll(struct ibv_cq *queue, int most) {
  struct ibv_wc found[16];
  queue->context->ops.poll_cq(queue, most, found);
}

static double time_kind(int kind, struct ibv_qp *pair, struct ibv_cq *queue, int calls) {
  double start_ns = cpu_ns();
  for (int call = 0; call < calls; call++) {
    if (kind == 0 || kind == 4)
      post(pair, &chain[3]);
    else if (kind == 1)
      post(pair, &chain[0]);
    if (kind == 2)
      poll(queue, 16);
    else if (kind >= 3)
      poll(queue, 1);
  }
  return (cpu_ns() - start_ns) / calls;
}

/* Kinds that only post are followed by as many completions, not timed, and the other way round. */
static void settle(int kind, struct ibv_qp *pair, struct ibv_cq *queue, int calls) {
  for (int call = 0; call < calls && kind < 2; call++)
    poll(queue, 1);
  for (int call = 0; call < calls && kind == 3; call++)
    post(pair, &chain[3]);
}

static double turn(int kind, struct ibv_qp *pair, struct ibv_cq *queue, int calls) {
  enum { AT_ONCE = 512 }; /* fits in the send queue */
  double spent = 0;
  for (int done = 0; done < calls; done += AT_ONCE) {
    if (kind == 3)
      settle(kind, pair, queue, AT_ONCE);
    spent += time_kind(kind, pair, queue, AT_ONCE) * AT_ONCE;
    if (kind < 2)
      settle(kind, pair, queue, AT_ONCE);
  }
  return spent / (double)(calls / AT_ONCE * AT_ONCE);
}

static void make(struct ibv_context *context, struct ibv_qp *pair, struct ibv_cq *queue) {
  struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR};
  queue->context = context;
  *pair = (struct ibv_qp){.context = context, .qp_num = NUMBER, .send_cq = queue};
  ibv_modify_qp(pair, &ready, IBV_QP_STATE);
}

int main(int count, char **words) {
  if (count != 3)
    return 2;
  int calls = atoi(words[1]) / 512 * 512, rounds = atoi(words[2]);
  static struct ibv_device device = {.name = "nothing_0"};
  struct ibv_qp pairs[2];
  struct ibv_cq queues[2];
  make(ibv_open_device(&device), &pairs[1], &queues[1]);
  queues[0].context = bare_context();
  pairs[0] = (struct ibv_qp){.context = queues[0].context, .qp_num = NUMBER};
  if (pairs[0].context->ops.post_send == pairs[1].context->ops.post_send)
    fprintf(stderr, "the shim is not loaded\n");
  for (int at = 0; at < 4; at++)
    chain[at] = (struct ibv_send_wr){.next = at < 3 ? &chain[at + 1] : NULL,
                                     .sg_list = &piece,
                                     .num_sge = 1,
                                     .send_flags = at == 3 ? IBV_SEND_SIGNALED : 0};
  for (int round = 0; round < rounds; round++) {
    for (int kind = 0; kind < KINDS; kind++)
      for (int hooked = 0; hooked < 2; hooked++)
        printf("%f ", turn(kind, &pairs[hooked], &queues[hooked], calls));
    printf("\n");
  }
  return 0;
}
#endif
