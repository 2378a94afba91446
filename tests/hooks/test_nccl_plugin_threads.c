/* Several communicators at work at once, each with a thread that calls and one that is NCCL's
 * proxy; some operations are reported in full, some in part. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "plugin.h"

enum { PAIRS = 4, OPERATIONS = 600, QUEUE = 64 };

/* From the calling thread to the proxy thread, as NCCL's own queues. */
struct pair {
  struct nccl nccl;
  void *tasks[QUEUE];
  uint32_t written, read;
};

static void *call(void *argument) {
  struct pair *pair = argument;
  for (uint32_t i = 0; i < OPERATIONS; i++) {
    void *task = nccl_operation(&pair->nccl, 10 + i, i % 5 ? 2 : 3); /* 3: one never comes */
    while (i - __atomic_load_n(&pair->read, __ATOMIC_ACQUIRE) >= QUEUE)
      sched_yield();
    pair->tasks[i % QUEUE] = task;
    __atomic_store_n(&pair->written, i + 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

static void run_kernels(struct nccl *nccl, void *task) {
  void *send = nccl_transfer(nccl, task, true, getpid());
  void *kernels[2] = {nccl_kernel(nccl, task, 100), nccl_kernel(nccl, task, 110)};
  void *step = nccl_step(nccl, send);
  nccl_waits(nccl, step, ncclProfilerProxyStepSendWait, 8);
  nccl_kernel_over(nccl, kernels[0], 200);
  nccl_stop(nccl, step);
  nccl_stop(nccl, send);
  nccl_kernel_over(nccl, kernels[1], 210);
}

static void *progress(void *argument) {
  struct pair *pair = argument;
  for (uint32_t i = 0; i < OPERATIONS; i++) {
    while (__atomic_load_n(&pair->written, __ATOMIC_ACQUIRE) <= i)
      sched_yield();
    void *task = pair->tasks[i % QUEUE];
    __atomic_store_n(&pair->read, i + 1, __ATOMIC_RELEASE);
    run_kernels(&pair->nccl, task);
  }
  return NULL;
}

int main(void) {
  enter_run_folder();
  static struct pair pairs[PAIRS];
  pthread_t threads[PAIRS][2];
  for (int version = 0; version < PAIRS; version++) {
    pairs[version].nccl = nccl_begin(4 + version % 3, 0xabc0 + (uint64_t)version, 0, 4);
    EXPECT(!pthread_create(&threads[version][0], NULL, call, &pairs[version]));
    EXPECT(!pthread_create(&threads[version][1], NULL, progress, &pairs[version]));
  }
  for (int pair = 0; pair < PAIRS; pair++) {
    pthread_join(threads[pair][0], NULL);
    pthread_join(threads[pair][1], NULL);
    struct oncall_communicator *board = &oncall_ring()->communicators[pair];
    EXPECT(board->collectives.entered == OPERATIONS && board->collectives.ended == OPERATIONS);
    EXPECT(!pairs[pair].nccl.finalize(pairs[pair].nccl.context));
  }
  EXPECT(oncall_ring()->header->lost_operations == 0);
  EXPECT(oncall_ring()->header->lost_transfers == 0);
  leave_run_folder();
  return 0;
}
