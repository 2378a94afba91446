/* The NCCL profiler plugin: turns NCCL's events into operations and transfers, and hands them on to
 * the plugin that is chained behind it, if any.
 *
 * NCCL calls init in the thread that initialises a communicator, the Api events in the thread of
 * the call, Coll and P2p in the one that launches (or a host callback), the rest in its proxy
 * threads. An event that we do not want, or cannot follow, gets the handle NULL; its children then
 * come with a NULL parent. Nothing here fails towards NCCL. */
#include "nccl_profiler.h"

#include <errno.h>
#include <unistd.h>

#include "calls.h"
#include "nccl_library.h"
#include "profiler_chain.h"
#include "profiler_contexts.h"
#include "profiler_events.h"
#include "profiler_names.h"
#include "profiler_own.h"
#include "transfers.h"

static int own_pid; /* NCCL asks often, and getpid is a system call */

/* ------------------------------------------------------------------ calls */

/* The call that the shim entered in this thread is NCCL's: followed from here. */
static uint64_t within_shim(struct profiler_context *context, bool captured) {
  struct calls *calls = &calls_of_thread;
  if (!calls->entry.number)
    return 0;
  profiler_context_is(context, calls->entry.communicator);
  calls->call.captured = captured;
  if (!calls->entry.handle)
    calls->entry.handle = operation_follow(&calls->entry, &calls->call);
  return calls->entry.handle;
}

/* Without the shim the event is all there is of the call. */
static uint64_t without_shim(struct profiler_context *context, const struct operation_call *call) {
  struct calls *calls = &calls_of_thread;
  if (!call->op)
    return 0;
  calls->call = *call;
  calls->call.group = calls->group;
  calls->group_operations++;
  calls->entry = operation_enter(profiler_context_communicator(context), &calls->call);
  calls->entry.handle = operation_follow(&calls->entry, &calls->call);
  if (!calls->entry.handle)
    operation_returned(&calls->entry, &calls->call, ncclSuccess);
  return calls->entry.handle;
}

static uint64_t call_started(struct profiler_context *context,
                             const ncclProfilerEventDescr_t *event) {
  bool is_collective = event->type == ncclProfileCollApi;
  bool captured = is_collective ? event->collApi.graphCaptured : event->p2pApi.graphCaptured;
  if (calls_of_thread.inside)
    return within_shim(context, captured);
  /* Both members begin alike. */
  struct operation_call call = {
      .op = profiler_operation(event->collApi.func),
      .dtype = profiler_data_type(event->collApi.datatype),
      .captured = captured,
      .peer = is_collective ? event->collApi.root : -1,
      .count = event->collApi.count,
      .stream = (uint64_t)(uintptr_t)(is_collective ? event->collApi.stream : event->p2pApi.stream),
  };
  if (!profiler_has_root(call.op))
    call.peer = -1;
  return without_shim(context, &call);
}

static void call_stopped(uint64_t handle) {
  struct calls *calls = &calls_of_thread;
  if (calls->inside || calls->entry.handle != handle)
    return;
  operation_returned(&calls->entry, &calls->call, ncclSuccess);
  calls->entry = (struct operation_entry){.number = 0};
}

/* An explicit group that the shim does not see; depth 1 is NCCL's own around a single call. */
static uint64_t group_started(const ncclProfilerEventDescr_t *event) {
  struct calls *calls = &calls_of_thread;
  if (calls->inside || calls->group_depth || event->groupApi.groupDepth < 2)
    return 0;
  calls->group = calls_next_group();
  calls->group_operations = 0;
  calls->group_started_ns = oncall_now_ns();
  return handle_make(HANDLE_GROUP, 0, calls->group);
}

static void group_stopped(uint64_t handle) {
  struct calls *calls = &calls_of_thread;
  if (calls->group_depth || calls->group != handle_slot(handle))
    return;
  calls_record_group(calls->group, calls->group_operations, calls->group_started_ns);
  calls->group = 0;
}

/* ------------------------------------------------------------------ launches */

static bool kernels_are_reported(void) { return profiler_events_wanted() & ncclProfileKernelCh; }

/* Version 4 reports no calls: what the shim entered, or else the launch is all there is. */
static uint64_t call_of_launch(struct profiler_context *context,
                               const struct operation_call *call) {
  struct communicator *communicator = profiler_context_communicator(context);
  if (!communicator || !call->op)
    return 0;
  uint64_t bytes = call->count * oncall_element_bytes(call->dtype);
  uint64_t handle = operation_unlaunched(communicator, call->op, bytes, call->peer);
  if (handle || !profiler_context_is_alone(context))
    return handle;
  struct operation_entry entry = operation_enter(communicator, call);
  entry.handle = operation_follow(&entry, call);
  operation_returned(&entry, call, ncclSuccess);
  return entry.handle;
}

static uint64_t collective_launched(struct profiler_context *context,
                                    const ncclProfilerEventDescr_t *event) {
  uint64_t handle = (uint64_t)(uintptr_t)event->parentObj;
  if (profiler_context_version(context) == 4) {
    struct operation_call call = {
        .op = profiler_operation(event->coll.func),
        .dtype = profiler_data_type(event->coll.datatype),
        .peer = event->coll.root,
        .count = event->coll.count,
    };
    if (!profiler_has_root(call.op))
      call.peer = -1;
    handle = call_of_launch(context, &call);
  }
  const struct operation_choice choice = {
      .algorithm = event->coll.algo,
      .protocol = event->coll.proto,
      .channels = event->coll.nChannels,
      .warps = event->coll.nWarps,
      .announced = !kernels_are_reported() ? 0
                   : event->coll.nChannels ? event->coll.nChannels
                                           : 1,
      .plan_count = event->coll.count,
  };
  return operation_launch(handle, &choice);
}

static uint64_t point_to_point_launched(struct profiler_context *context,
                                        const ncclProfilerEventDescr_t *event) {
  uint64_t handle = (uint64_t)(uintptr_t)event->parentObj;
  if (profiler_context_version(context) == 4) {
    const struct operation_call call = {
        .op = profiler_operation(event->p2p.func),
        .dtype = profiler_data_type(event->p2p.datatype),
        .peer = event->p2p.peer,
        .count = event->p2p.count,
    };
    handle = call_of_launch(context, &call);
  }
  const struct operation_choice choice = {
      .channels = profiler_context_version(context) == 4
                      ? 0
                      : event->p2p.nChannels,      /* version 4 does not say how many */
      .announced = kernels_are_reported() ? 1 : 0, /* older NCCLs report fewer than nChannels */
      .plan_count = event->p2p.count,
  };
  return operation_launch(handle, &choice);
}

/* ------------------------------------------------------------------ transfers */

bool profiler_own_is_foreign(const ncclProfilerEventDescr_t *event) {
  return event->proxyOp.pid != __atomic_load_n(&own_pid, __ATOMIC_RELAXED);
}

static uint64_t transfer_started(const ncclProfilerEventDescr_t *event) {
  if (profiler_own_is_foreign(event))
    return 0;
  const struct transfer_start start = {
      .channel = event->proxyOp.channelId,
      .is_send = event->proxyOp.isSend,
      .peer = event->proxyOp.peer,
      .steps = event->proxyOp.nSteps > 0 ? (uint32_t)event->proxyOp.nSteps : 0,
  };
  return transfer_begin((uint64_t)(uintptr_t)event->parentObj, &start);
}

static enum oncall_wait wait_of(int state) {
  switch (state) {
  case ncclProfilerProxyStepSendGPUWait:
    return ONCALL_WAIT_SEND_GPU;
  case ncclProfilerProxyStepSendPeerWait_v4:
    return ONCALL_WAIT_SEND_PEER;
  case ncclProfilerProxyStepSendWait:
    return ONCALL_WAIT_SEND_WIRE;
  case ncclProfilerProxyStepRecvWait:
    return ONCALL_WAIT_RECV_WIRE;
  case ncclProfilerProxyStepRecvFlushWait:
    return ONCALL_WAIT_RECV_FLUSH;
  case ncclProfilerProxyStepRecvGPUWait:
    return ONCALL_WAIT_RECV_GPU;
  default:
    return ONCALL_WAIT_NONE;
  }
}

/* ------------------------------------------------------------------ our own plugin */

uint64_t profiler_own_start(void *pointer, uint64_t type, const ncclProfilerEventDescr_t *event) {
  /* These come with a foreign context under PXN, and need none. */
  switch (type) {
  case ncclProfileProxyOp:
    return transfer_started(event);
  case ncclProfileProxyStep:
    return transfer_step((uint64_t)(uintptr_t)event->parentObj);
  case ncclProfileKernelCh:
    return operation_kernel((uint64_t)(uintptr_t)event->parentObj, event->kernelCh.pTimer);
  }
  struct profiler_context *context = profiler_context_of(pointer);
  if (!context)
    return 0;
  switch (type) {
  case ncclProfileGroupApi:
    return group_started(event);
  case ncclProfileCollApi:
  case ncclProfileP2pApi:
    return call_started(context, event);
  case ncclProfileColl:
    return collective_launched(context, event);
  case ncclProfileP2p:
    return point_to_point_launched(context, event);
  case ncclProfileGroup: { /* one kernel plan; needed for its order only */
    struct communicator *communicator = profiler_context_communicator(context);
    if (communicator)
      __atomic_fetch_add(&communicator->plans, 1, __ATOMIC_RELAXED);
    return 0;
  }
  default:
    return 0;
  }
}

void profiler_own_stop(uint64_t handle) {
  switch (handle_kind(handle)) {
  case HANDLE_CALL:
    call_stopped(handle);
    break;
  case HANDLE_TASK:
    operation_launched(handle);
    break;
  case HANDLE_KERNEL:
    operation_kernel_over(handle);
    break;
  case HANDLE_TRANSFER:
    transfer_over(handle);
    break;
  case HANDLE_STEP:
    transfer_step_over(handle);
    break;
  case HANDLE_GROUP:
    group_stopped(handle);
    break;
  case HANDLE_NONE:
  case HANDLE_PAIR: /* never ours */
    break;
  }
}

void profiler_own_state(uint64_t handle, int state, const ncclProfilerEventStateArgs_t *arguments) {
  enum oncall_wait wait = wait_of(state);
  if (wait && handle_kind(handle) == HANDLE_STEP)
    transfer_step_waits(handle, wait, arguments ? arguments->proxyStep.transSize : 0);
  else if (state == ncclProfilerKernelChStop && handle_kind(handle) == HANDLE_KERNEL && arguments)
    operation_kernel_gpu_end(handle, arguments->kernelCh.pTimer);
}

void *profiler_own_begin(int *mask, const struct profiler_communicator *given) {
  __atomic_store_n(&own_pid, getpid(), __ATOMIC_RELAXED);
  profiler_events_begin(oncall_ring_open() != NULL, mask);
  return profiler_context_begin(given);
}

void profiler_own_end(void *pointer) {
  struct profiler_context *context = profiler_context_of(pointer);
  if (context)
    profiler_context_end(context);
}

/* ------------------------------------------------------------------ what NCCL calls */

static ncclResult_t start(void *context, void **handle, uint64_t type,
                          ncclProfilerEventDescr_t *event) {
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

static ncclResult_t begin(void **context, int *mask, const struct profiler_communicator *given,
                          ncclDebugLogger_t log) {
  int saved = errno;
  void *own = profiler_own_begin(mask, given);
  *context = profiler_chain_open(given->version) ? profiler_chain_begin(own, given, log) : own;
  errno = saved;
  return ncclSuccess;
}

static ncclResult_t init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_communicator given = {4, hash, name, nodes, size, rank};
  return begin(context, mask, &given, log);
}

static ncclResult_t init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_communicator given = {5, hash, name, nodes, size, rank};
  return begin(context, mask, &given, log);
}

static ncclResult_t init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                            int size, int rank, ncclDebugLogger_t log) {
  const struct profiler_communicator given = {6, hash, name, nodes, size, rank};
  return begin(context, mask, &given, log);
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
