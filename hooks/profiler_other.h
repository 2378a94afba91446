/* Another profiler plugin, such as NCCL Inspector, called as NCCL would call it: in the version of
 * the interface that it has, and with what NCCL's own adaptor for that version would hand on. */
#ifndef ONCALL_HOOKS_PROFILER_OTHER_H
#define ONCALL_HOOKS_PROFILER_OTHER_H

#include <stdbool.h>

#include "nccl_profiler.h"
#include "profiler_contexts.h"

/* Loads ONCALL_CHAIN_PROFILER, a path or NAME of libnccl-profiler-NAME.so, for an NCCL that speaks
 * `version` with us. False: there is none, or none that can be served; then it says why. */
bool profiler_other_load(int version);

/* False: its init failed, for this communicator it is not called any more. */
bool profiler_other_init(void **context, const struct profiler_communicator *given,
                         ncclDebugLogger_t log);

void profiler_other_finalize(void *context);

/* What it wants now: the mask that it was given in NCCL's stead. */
int profiler_other_mask(void);

/* `event`, its parents its own handles. Returns its handle; NULL: it follows it not, or its version
 * has no such event. */
void *profiler_other_start(void *context, uint64_t type, ncclProfilerEventDescr_t *event);

void profiler_other_stop(void *handle);

void profiler_other_state(void *handle, int state, ncclProfilerEventStateArgs_t *arguments);

#endif
