/* Plays NCCL towards the profiler plugin, as far as a test needs it; reads what was recorded. */
#ifndef ONCALL_TESTS_PLUGIN_H
#define ONCALL_TESTS_PLUGIN_H

#include <string.h>
#include <unistd.h>

#include "nccl_profiler.h"
#include "ring.h"
#include "run_folder.h"

extern const ncclProfiler_v4_t ncclProfiler_v4;
extern const ncclProfiler_v5_t ncclProfiler_v5, ncclProfiler_v6;

/* A communicator towards one version of the plugin. */
struct nccl {
  int version;
  void *context;
  ncclResult_t (*start)(void *, void **, ncclProfilerEventDescr_t *);
  ncclResult_t (*stop)(void *);
  ncclResult_t (*state)(void *, int, ncclProfilerEventStateArgs_t *);
  ncclResult_t (*finalize)(void *);
};

static int nccl_mask;

static inline struct nccl nccl_begin(int version, uint64_t hash, int rank, int size) {
  const ncclProfiler_v5_t *newer = version == 6 ? &ncclProfiler_v6 : &ncclProfiler_v5;
  struct nccl nccl = {
      version, NULL, newer->startEvent, newer->stopEvent, newer->recordEventState, newer->finalize};
  if (version == 4) {
    nccl.start = ncclProfiler_v4.startEvent;
    EXPECT(!ncclProfiler_v4.init(&nccl.context, &nccl_mask, "tp", hash, 1, size, rank, NULL));
  } else {
    EXPECT(!newer->init(&nccl.context, hash, &nccl_mask, "tp", 1, size, rank, NULL));
  }
  return nccl;
}

/* As NCCL passes it: version 4 sets one byte of the type, and less behind it. */
static inline void *nccl_start(struct nccl *nccl, ncclProfilerEventDescr_t event) {
  void *handle = (void *)0x77; /* whatever was there before */
  if (nccl->version == 4)
    event.type |= 0xabcdef00u;
  EXPECT(nccl->start(nccl->context, &handle, &event) == ncclSuccess);
  return handle;
}

static inline void nccl_stop(struct nccl *nccl, void *handle) {
  EXPECT(nccl->stop(handle) == ncclSuccess);
}

static inline void *nccl_call(struct nccl *nccl, size_t count) {
  return nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileCollApi,
                                                     .collApi = {.func = "AllReduce",
                                                                 .count = count,
                                                                 .datatype = "ncclFloat32",
                                                                 .stream = (void *)0x5}});
}

static inline void nccl_plan(struct nccl *nccl) {
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileGroup}));
}

static inline void *nccl_launch(struct nccl *nccl, void *call, size_t count, uint8_t channels) {
  return nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileColl,
                                                     .parentObj = call,
                                                     .coll = {.func = "AllReduce",
                                                              .count = count,
                                                              .datatype = "ncclFloat32",
                                                              .nChannels = channels,
                                                              .nWarps = 16,
                                                              .algo = "RING",
                                                              .proto = "SIMPLE"}});
}

/* Called and launched, with a plan of its own. */
static inline void *nccl_operation(struct nccl *nccl, size_t count, uint8_t channels) {
  void *call = nccl->version == 4 ? NULL : nccl_call(nccl, count);
  nccl_stop(nccl, call);
  nccl_plan(nccl);
  void *task = nccl_launch(nccl, call, count, channels);
  nccl_stop(nccl, task);
  return task;
}

static inline void *nccl_kernel(struct nccl *nccl, void *task, uint64_t gpu_ns) {
  return nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileKernelCh,
                                                     .parentObj = task,
                                                     .kernelCh = {.pTimer = gpu_ns}});
}

static inline void nccl_kernel_over(struct nccl *nccl, void *kernel, uint64_t gpu_ns) {
  ncclProfilerEventStateArgs_t arguments = {.kernelCh = {.pTimer = gpu_ns}};
  EXPECT(!nccl->state(kernel, ncclProfilerKernelChStop, &arguments));
  nccl_stop(nccl, kernel);
}

static inline void *nccl_transfer(struct nccl *nccl, void *task, bool is_send, int pid) {
  ncclProfilerEventDescr_t event = {.type = ncclProfileProxyOp, .parentObj = task};
  event.proxyOp.pid = pid;
  event.proxyOp.channelId = 3;
  event.proxyOp.peer = 1;
  event.proxyOp.nSteps = 2;
  event.proxyOp.isSend = is_send;
  return nccl_start(nccl, event);
}

static inline void *nccl_step(struct nccl *nccl, void *transfer) {
  return nccl_start(
      nccl, (ncclProfilerEventDescr_t){.type = ncclProfileProxyStep, .parentObj = transfer});
}

static inline void nccl_waits(struct nccl *nccl, void *step, int state, size_t bytes) {
  ncclProfilerEventStateArgs_t arguments = {.proxyStep = {.transSize = bytes}};
  EXPECT(!nccl->state(step, state, &arguments));
}

/* The `which`th record of a kind, from 0; NULL: there are not so many. */
static inline const struct oncall_record *recorded(uint16_t kind, int which) {
  const struct oncall_ring *ring = oncall_ring();
  uint64_t head = __atomic_load_n(&ring->header->head, __ATOMIC_RELAXED);
  for (uint64_t at = 0; at < head && at <= ring->record_mask; at++)
    if (ring->records[at].kind == kind && which-- == 0)
      return &ring->records[at];
  return NULL;
}

static inline int count_of(uint16_t kind) {
  int count = 0;
  while (recorded(kind, count))
    count++;
  return count;
}

/* Forget all records so far. */
static inline void forget_records(void) {
  struct oncall_ring *ring = oncall_ring();
  memset(ring->records, 0, (ring->record_mask + 1) * sizeof *ring->records);
  ring->header->head = ring->header->tail = 0;
}

#endif
