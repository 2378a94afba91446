/* What our own plugin makes of NCCL's events. Its handles are numbers (handles.h), 0 for an event
 * that it does not follow; the parent of an event is such a number too. */
#ifndef ONCALL_HOOKS_PROFILER_OWN_H
#define ONCALL_HOOKS_PROFILER_OWN_H

#include "nccl_profiler.h"
#include "profiler_contexts.h"

/* A communicator begins; sets NCCL's mask. NULL: it is not recorded. */
void *profiler_own_begin(int *mask, const struct profiler_communicator *given);

void profiler_own_end(void *context);

/* `event->parentObj` is a handle of ours; `type` is the event's, read as its version has it. */
uint64_t profiler_own_start(void *context, uint64_t type, const ncclProfilerEventDescr_t *event);

/* A ProxyOp that our proxy does for another process of the node, or that one for us (PXN): its
 * parent and context are the other process's. */
bool profiler_own_is_foreign(const ncclProfilerEventDescr_t *event);

void profiler_own_stop(uint64_t handle);

void profiler_own_state(uint64_t handle, int state, const ncclProfilerEventStateArgs_t *arguments);

#endif
