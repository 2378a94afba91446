/* Memory of a file that somebody else may cut short: a store behind its end raises SIGBUS, which
 * ends the process. docs/decisions/014-no-limit-of-the-job.md says why a handler, and what it
 * costs.
 *
 * A fault in the guarded memory, and in nothing else, puts private memory in its place: the thread
 * goes on, and what it records is lost. Every other SIGBUS goes to whoever had it before us. */
#ifndef ONCALL_HOOKS_RING_GUARD_H
#define ONCALL_HOOKS_RING_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Guards one mapping a process; another call guards that one instead, NULL none. */
void oncall_guard(void *base, size_t bytes);

/* Puts private memory of zeros where the mapping is; false: the kernel has none. Safe in a signal
 * handler. */
bool oncall_replace_memory(void *base, size_t bytes);

#endif
