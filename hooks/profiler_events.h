/* Which profiler events NCCL shall send: ours, and those that a chained plugin wants. */
#ifndef ONCALL_HOOKS_PROFILER_EVENTS_H
#define ONCALL_HOOKS_PROFILER_EVENTS_H

#include <stdbool.h>

/* NCCL's mask, whose address stays valid. Unless something `records`, we want none. */
void profiler_events_begin(bool records, int *mask);

/* The mask of the chained plugin, whenever it may have changed. */
void profiler_events_of_other(int events);

/* What we want now, whatever the other does. */
int profiler_events_wanted(void);

#endif
