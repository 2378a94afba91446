/* Another plugin behind ours, so that ours does not take NCCL's only place for one.
 *
 * It has contexts, handles and a mask of its own, and is sent what it would be sent if NCCL had
 * loaded it: the events that its own mask asks for, with its own handles as parents. Its failure
 * leaves ours working, and ours it. */
#ifndef ONCALL_HOOKS_PROFILER_CHAIN_H
#define ONCALL_HOOKS_PROFILER_CHAIN_H

#include "nccl_profiler.h"
#include "profiler_contexts.h"

extern bool profiler_chained; /* read it with profiler_chain_is_on() */

static inline bool profiler_chain_is_on(void) {
  return __builtin_expect(__atomic_load_n(&profiler_chained, __ATOMIC_ACQUIRE), 0);
}

/* Loads the plugin, at the first call; whether there is one. */
bool profiler_chain_open(int version);

/* NCCL's context for both: `own` and that of the other. */
void *profiler_chain_begin(void *own, const struct profiler_communicator *given,
                           ncclDebugLogger_t log);

void profiler_chain_end(void *context);

uint64_t profiler_chain_start(void *context, uint64_t type, ncclProfilerEventDescr_t *event);

void profiler_chain_stop(uint64_t handle);

void profiler_chain_state(uint64_t handle, int state, ncclProfilerEventStateArgs_t *arguments);

#endif
