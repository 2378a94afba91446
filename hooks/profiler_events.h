/* Which profiler events NCCL shall send: ours at first, the collector's wish from then on. */
#ifndef ONCALL_HOOKS_PROFILER_EVENTS_H
#define ONCALL_HOOKS_PROFILER_EVENTS_H

/* NCCL's mask, whose address stays valid; `wanted` NULL: none shall be sent. */
void profiler_events_begin(int *wanted, int *mask);

/* Takes over what the collector wrote into the ring's header since. */
void profiler_events_adopt(void);

/* The mask as it is now. */
int profiler_events_wanted(void);

#endif
