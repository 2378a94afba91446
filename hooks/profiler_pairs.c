#include "profiler_pairs.h"

#include <stddef.h>
#include <sys/mman.h>

#include "handles.h"

enum {
  LASTING = 1
      << 17, /* groups, calls, operations: of a thousand operations a second, half a minute */
  PASSING = 1 << 13, /* steps and kernel channels under way */
  MOST_PROBES = 64,
};

struct slot {
  uint64_t state; /* generation << 2 | KEPT | IN_USE */
  uint64_t own;
  void *theirs;
};

#define IN_USE 1ull
#define KEPT 2ull
#define GENERATION_SHIFT 2

static struct pool {
  struct slot *slots;
  uint32_t count;
  uint32_t next __attribute__((aligned(64)));
} pools[] = {{NULL, PASSING, 0}, {NULL, LASTING, 0}};

bool profiler_pairs_begin(void) {
  const size_t bytes = (LASTING + PASSING) * sizeof(struct slot);
  void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    return false;
  pools[0].slots = room;
  pools[1].slots = pools[0].slots + PASSING;
  return true;
}

/* The pool is where a step's number is in other handles. */
static uint64_t name(uint32_t pool, uint64_t state, uint32_t slot) {
  return handle_make(HANDLE_PAIR, (uint32_t)(state >> GENERATION_SHIFT), slot) | (uint64_t)pool
                                                                                     << 56;
}

static struct slot *slot_of(uint64_t handle) {
  uint32_t pool = handle_step(handle), slot = handle_slot(handle);
  bool named = handle_kind(handle) == HANDLE_PAIR && pool < 2 && slot < pools[pool].count;
  return named ? &pools[pool].slots[slot] : NULL;
}

static bool is_of(uint64_t state, uint64_t handle) {
  return ((state >> GENERATION_SHIFT) & HANDLE_GENERATIONS) == handle_generation(handle);
}

uint64_t profiler_pair_make(struct profiler_pair pair, enum profiler_pair_life life) {
  uint32_t number = life != PAIR_PASSING;
  struct pool *pool = &pools[number];
  for (int probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t at = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED) & (pool->count - 1);
    struct slot *slot = &pool->slots[at];
    uint64_t state = __atomic_load_n(&slot->state, __ATOMIC_RELAXED);
    uint64_t next = ((state >> GENERATION_SHIFT) + 1) << GENERATION_SHIFT | IN_USE;
    next |= life == PAIR_KEPT ? KEPT : 0;
    if ((state & IN_USE) || !__atomic_compare_exchange_n(&slot->state, &state, next, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    __atomic_store_n(&slot->own, pair.own, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->theirs, pair.theirs, __ATOMIC_RELEASE);
    return name(number, next, at);
  }
  return 0;
}

struct profiler_pair profiler_pair_of(uint64_t handle) {
  struct slot *slot = slot_of(handle);
  struct profiler_pair pair = {0, NULL};
  if (!slot || !is_of(__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE), handle))
    return pair;
  pair.own = __atomic_load_n(&slot->own, __ATOMIC_ACQUIRE);
  pair.theirs = __atomic_load_n(&slot->theirs, __ATOMIC_ACQUIRE);
  if (!is_of(__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE), handle)) /* used again meanwhile */
    return (struct profiler_pair){0, NULL};
  return pair;
}

void profiler_pair_free(uint64_t handle) {
  struct slot *slot = slot_of(handle);
  uint64_t state = slot ? __atomic_load_n(&slot->state, __ATOMIC_RELAXED) : 0;
  if (slot && (state & IN_USE) && !(state & KEPT) && is_of(state, handle))
    __atomic_compare_exchange_n(&slot->state, &state, state & ~IN_USE, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}
