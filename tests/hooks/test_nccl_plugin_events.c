/* Which events NCCL is asked for: by the environment, or none. */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "plugin.h"

/* In a process of its own, for a process opens its ring once. */
static void apart(void (*test)(void)) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    test();
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void all_by_default(void) {
  nccl_begin(6, 1, 0, 2);
  EXPECT(nccl_mask ==
         (ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp | ncclProfileProxyStep |
          ncclProfileKernelCh | ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi));
  EXPECT(oncall_ring()->header->event_mask_now == (uint32_t)nccl_mask);
}

static void environment_narrows(void) {
  setenv("ONCALL_EVENTS", "coll, p2p,unknown,collapi", 1);
  nccl_begin(6, 1, 0, 2);
  EXPECT(nccl_mask == (ncclProfileColl | ncclProfileP2p | ncclProfileCollApi));
}

static void nothing_without_a_ring(void) {
  setenv("ONCALL_DISABLE", "1", 1);
  nccl_mask = 77;
  struct nccl nccl = nccl_begin(6, 1, 0, 2);
  EXPECT(nccl_mask == 0 && !nccl.context);
  EXPECT(!nccl_call(&nccl, 10) && !nccl_launch(&nccl, NULL, 10, 1));
  EXPECT(!nccl.finalize(nccl.context));
}

/* Without kernel channels an operation ends with its transfers, or its end stays unknown. */
static void ends_without_kernels(void) {
  setenv("ONCALL_EVENTS", "coll,collapi,proxyop", 1);
  struct nccl nccl = nccl_begin(6, 1, 0, 2);
  void *silent = nccl_operation(&nccl, 10, 2), *reported = nccl_operation(&nccl, 10, 2);
  EXPECT(silent && count_of(ONCALL_RECORD_ENDED) == 0);
  nccl_stop(&nccl, nccl_transfer(&nccl, reported, false, getpid()));
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 2);                 /* the later one ends the older */
  EXPECT(recorded(ONCALL_RECORD_ENDED, 0)->ended.recvs == 2); /* all its steps */
}

int main(void) {
  enter_run_folder();
  apart(all_by_default);
  apart(environment_narrows);
  apart(nothing_without_a_ring);
  apart(ends_without_kernels);
  leave_run_folder();
  return 0;
}
