/* One event, two plugins: NCCL keeps one handle of it, which stands for ours and for theirs.
 *
 * NCCL names an event as a parent long after it was stopped: a collective is stopped when it is
 * launched, and its transfers come while it runs. So a slot is used again only when all others were
 * in between, and a handle that is older still is recognised: it stands for nothing. */
#ifndef ONCALL_HOOKS_PROFILER_PAIRS_H
#define ONCALL_HOOKS_PROFILER_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

struct profiler_pair {
  uint64_t own;
  void *theirs;
};

enum profiler_pair_life {
  PAIR_PASSING, /* named by nobody once it is stopped */
  PAIR_LASTING, /* may be named as a parent for a while */
  PAIR_KEPT,    /* for ever */
};

/* Makes room; false: there is none. */
bool profiler_pairs_begin(void);

/* A handle for both; 0: no slot is free. */
uint64_t profiler_pair_make(struct profiler_pair pair, enum profiler_pair_life life);

/* What the handle stands for. */
struct profiler_pair profiler_pair_of(uint64_t handle);

/* Its event is stopped: its slot may be used again, in its turn. */
void profiler_pair_free(uint64_t handle);

#endif
