#include "profiler_chain.h"

#include <pthread.h>

#include "handles.h"
#include "profiler_events.h"
#include "profiler_other.h"
#include "profiler_own.h"
#include "profiler_pairs.h"

enum { MOST = 1024 };

/* A communicator: what NCCL is given as its context. */
static struct chain_context {
  uint32_t in_use;
  bool has_theirs; /* its init succeeded */
  void *own, *theirs;
} contexts[MOST];

bool profiler_chained;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int version_asked;

/* ------------------------------------------------------------------ communicators */

static void load(void) {
  if (profiler_other_load(version_asked) && profiler_pairs_begin())
    __atomic_store_n(&profiler_chained, true, __ATOMIC_RELEASE);
}

bool profiler_chain_open(int version) {
  version_asked = version; /* the same each time: NCCL has chosen once */
  pthread_once(&once, load);
  return profiler_chain_is_on();
}

static struct chain_context *take(void) {
  for (uint32_t i = 0; i < MOST; i++) {
    uint32_t free = 0;
    if (__atomic_compare_exchange_n(&contexts[i].in_use, &free, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
      return &contexts[i];
  }
  return NULL;
}

/* NULL: none of ours. With PXN it may be another process's. */
static struct chain_context *context_of(void *pointer) {
  struct chain_context *context = pointer;
  bool ours = context >= contexts && context < contexts + MOST;
  return ours && __atomic_load_n(&context->in_use, __ATOMIC_ACQUIRE) ? context : NULL;
}

void *profiler_chain_begin(void *own, const struct profiler_communicator *given,
                           ncclDebugLogger_t log) {
  struct chain_context *context = take();
  if (!context) {
    profiler_own_end(own);
    return NULL;
  }
  context->own = own;
  context->has_theirs = profiler_other_init(&context->theirs, given, log);
  profiler_events_of_other(profiler_other_mask());
  return context;
}

void profiler_chain_end(void *pointer) {
  struct chain_context *context = context_of(pointer);
  if (!context)
    return;
  if (context->has_theirs && context->theirs)
    profiler_other_finalize(context->theirs);
  profiler_own_end(context->own);
  __atomic_store_n(&context->in_use, 0, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ which events */

#define OF_STEP (ncclProfileProxyStep | ncclProfileNetPlugin)
#define OF_TRANSFER (ncclProfileProxyOp | OF_STEP)
#define OF_TASK (OF_TRANSFER | ncclProfileKernelCh)
#define OF_PLAN (ncclProfileGroup | ncclProfileColl | ncclProfileP2p | OF_TASK)
#define OF_ENGINE (ncclProfileCeColl | ncclProfileCeSync | ncclProfileCeBatch)

/* The bits of a mask that make NCCL send an event of this type: its own, and those of the events
 * that it is a parent of (src/plugin/profiler.cc). */
static uint64_t bits_for(uint64_t type) {
  switch (type) {
  case ncclProfileGroupApi:
    return type | ncclProfileCollApi | ncclProfileP2pApi | ncclProfileKernelLaunch | OF_PLAN |
           OF_ENGINE;
  case ncclProfileCollApi:
    return type | ncclProfileColl | OF_TASK | OF_ENGINE;
  case ncclProfileP2pApi:
    return type | ncclProfileP2p | OF_TASK;
  case ncclProfileGroup:
    return OF_PLAN;
  case ncclProfileColl:
  case ncclProfileP2p:
    return type | OF_TASK;
  case ncclProfileProxyOp:
    return OF_TRANSFER;
  case ncclProfileProxyStep:
    return OF_STEP;
  case ncclProfileCeColl:
    return OF_ENGINE;
  default:
    return type;
  }
}

/* ------------------------------------------------------------------ handles */

/* A handle that stands for one plugin's event alone is that plugin's own. Theirs are addresses, and
 * have no kind; one that looks like ours is wrapped as well. */
static uint64_t join(uint64_t own, void *theirs, enum profiler_pair_life life) {
  uint64_t number = (uint64_t)(uintptr_t)theirs;
  if (!theirs)
    return own;
  if (!own && handle_kind(number) == HANDLE_NONE)
    return number;
  uint64_t both = profiler_pair_make((struct profiler_pair){own, theirs}, life);
  if (both)
    return both;
  profiler_own_stop(own); /* the other was there first */
  return handle_kind(number) == HANDLE_NONE ? number : 0;
}

static struct profiler_pair split(uint64_t handle) {
  switch (handle_kind(handle)) {
  case HANDLE_NONE:
    return (struct profiler_pair){0, (void *)(uintptr_t)handle};
  case HANDLE_PAIR:
    return profiler_pair_of(handle);
  default:
    return (struct profiler_pair){handle, NULL};
  }
}

static struct profiler_pair split_parent(const void *parent) {
  return split((uint64_t)(uintptr_t)parent);
}

/* ------------------------------------------------------------------ events */

/* A call that a CUDA graph captures is a parent each time the graph is launched. */
static bool is_captured(uint64_t type, const ncclProfilerEventDescr_t *event) {
  return (type == ncclProfileGroupApi && event->groupApi.graphCaptured) ||
         (type == ncclProfileCollApi && event->collApi.graphCaptured) ||
         (type == ncclProfileP2pApi && event->p2pApi.graphCaptured);
}

static enum profiler_pair_life life_of(uint64_t type, const ncclProfilerEventDescr_t *event) {
  const uint64_t parents = ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi |
                           ncclProfileGroup | ncclProfileColl | ncclProfileP2p |
                           ncclProfileProxyOp | ncclProfileCeColl;
  return is_captured(type, event) ? PAIR_KEPT : type & parents ? PAIR_LASTING : PAIR_PASSING;
}

/* The field that names its group beside its parent, in versions that have one; NULL: none. */
static void **group_of(uint64_t type, ncclProfilerEventDescr_t *event, uint8_t version) {
  if (version < 5)
    return NULL;
  return type == ncclProfileColl  ? &event->coll.parentGroup
         : type == ncclProfileP2p ? &event->p2p.parentGroup
                                  : NULL;
}

/* NCCL's descriptor with their handles in it, for the time of the call. */
static void *start_theirs(void *context, uint64_t type, ncclProfilerEventDescr_t *event) {
  void *parent = event->parentObj;
  void **group = group_of(type, event, (uint8_t)version_asked);
  void *group_was = group ? *group : NULL;
  bool is_foreign = type == ncclProfileProxyOp && profiler_own_is_foreign(event);
  event->parentObj = is_foreign ? NULL : split_parent(parent).theirs;
  if (group)
    *group = split_parent(group_was).theirs;
  void *handle = profiler_other_start(context, type, event);
  event->parentObj = parent;
  if (group)
    *group = group_was;
  return handle;
}

static uint64_t start_own(void *context, uint64_t type, ncclProfilerEventDescr_t *event) {
  void *parent = event->parentObj;
  event->parentObj = (void *)(uintptr_t)split_parent(parent).own;
  uint64_t handle = profiler_own_start(context, type, event);
  event->parentObj = parent;
  return handle;
}

uint64_t profiler_chain_start(void *pointer, uint64_t type, ncclProfilerEventDescr_t *event) {
  struct chain_context *context = context_of(pointer);
  uint64_t bits = bits_for(type), own = 0;
  void *theirs = NULL;
  int wanted = profiler_other_mask();
  profiler_events_of_other(wanted);
  if (bits & (uint64_t)profiler_events_wanted())
    own = start_own(context ? context->own : NULL, type, event);
  /* Without a context only what a proxy does for another process. */
  bool may_come =
      context ? context->has_theirs : (type & (OF_TRANSFER | ncclProfileProxyCtrl)) != 0;
  if (may_come && (bits & (uint64_t)wanted))
    theirs = start_theirs(context ? context->theirs : NULL, type, event);
  return join(own, theirs, life_of(type, event));
}

void profiler_chain_stop(uint64_t handle) {
  struct profiler_pair pair = split(handle);
  profiler_own_stop(pair.own);
  if (pair.theirs)
    profiler_other_stop(pair.theirs);
  profiler_pair_free(handle);
}

void profiler_chain_state(uint64_t handle, int state, ncclProfilerEventStateArgs_t *arguments) {
  struct profiler_pair pair = split(handle);
  profiler_own_state(pair.own, state, arguments);
  if (pair.theirs)
    profiler_other_state(pair.theirs, state, arguments);
}
