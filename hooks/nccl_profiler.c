/* The NCCL profiler plugin: what NCCL calls. Each call goes to our own plugin, and to the one that
 * is chained behind it, if any. Nothing here fails towards NCCL. */
#include "nccl_profiler.h"

#include <errno.h>

#include "nccl_library.h"
#include "profiler_chain.h"
#include "profiler_events.h"
#include "profiler_own.h"

static ncclResult_t start(void *context, void **handle, uint64_t type,
                          ncclProfilerEventDescr_t *event) {
  profiler_events_adopt();
  uint64_t started = profiler_chain_is_on() ? profiler_chain_start(context, type, event)
                                            : profiler_own_start(context, type, event);
  *handle = (void *)(uintptr_t)started;
  return ncclSuccess;
}

static ncclResult_t start_event(void *context, void **handle, ncclProfilerEventDescr_t *event) {
  return start(context, handle, event->type, event);
}

static ncclResult_t start_event_v4(void *context, void **handle, ncclProfilerEventDescr_t *event) {
  return start(context, handle, *(const uint8_t *)&event->type, event);
}

static ncclResult_t stop_event(void *pointer) {
  uint64_t handle = (uint64_t)(uintptr_t)pointer;
  if (profiler_chain_is_on())
    profiler_chain_stop(handle);
  else
    profiler_own_stop(handle);
  return ncclSuccess;
}

static ncclResult_t record_event_state(void *pointer, int state,
                                       ncclProfilerEventStateArgs_t *arguments) {
  uint64_t handle = (uint64_t)(uintptr_t)pointer;
  if (profiler_chain_is_on())
    profiler_chain_state(handle, state, arguments);
  else
    profiler_own_state(handle, state, arguments);
  return ncclSuccess;
}

static ncclResult_t finalize(void *context) {
  if (profiler_chain_is_on())
    profiler_chain_end(context);
  else
    profiler_own_end(context);
  return ncclSuccess;
}

static ncclResult_t begin(void **context, int *mask, const struct profiler_telling *telling,
                          ncclDebugLogger_t log) {
  int saved = errno;
  void *own = profiler_own_begin(mask, telling);
  *context = profiler_chain_open(telling->version) ? profiler_chain_begin(own, telling, log) : own;
  errno = saved;
  return ncclSuccess;
}

static ncclResult_t init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_telling telling = {4, hash, name, nodes, size, rank};
  return begin(context, mask, &telling, log);
}

static ncclResult_t init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_telling telling = {5, hash, name, nodes, size, rank};
  return begin(context, mask, &telling, log);
}

static ncclResult_t init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_telling telling = {6, hash, name, nodes, size, rank};
  return begin(context, mask, &telling, log);
}

ONCALL_EXPORT const ncclProfiler_v4_t ncclProfiler_v4 = {
    "oncall", init_v4, start_event_v4, stop_event, record_event_state, finalize,
};
ONCALL_EXPORT const ncclProfiler_v5_t ncclProfiler_v5 = {
    "oncall", init_v5, start_event, stop_event, record_event_state, finalize,
};
ONCALL_EXPORT const ncclProfiler_v6_t ncclProfiler_v6 = {
    "oncall", init_v6, start_event, stop_event, record_event_state, finalize,
};
