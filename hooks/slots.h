/* The free slots of a fixed pool: a stack by compare-and-swap, with a tag against reuse in
 * between. It begins empty of memory of its own: slots never used yet are handed out in order. */
#ifndef ONCALL_HOOKS_SLOTS_H
#define ONCALL_HOOKS_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

struct slots {
  uint64_t top;    /* tag << 32 | slot + 1; 0 in the low half: empty */
  uint32_t unused; /* slots from here on were never taken */
  uint32_t count;
  uint32_t *below; /* [count], slot + 1 of the next free one */
};

/* False: none is free. */
static inline bool slots_take(struct slots *slots, uint32_t *slot) {
  uint64_t top = __atomic_load_n(&slots->top, __ATOMIC_ACQUIRE);
  while ((uint32_t)top) {
    uint32_t below = __atomic_load_n(&slots->below[(uint32_t)top - 1], __ATOMIC_RELAXED);
    uint64_t next = ((top >> 32) + 1) << 32 | below;
    if (__atomic_compare_exchange_n(&slots->top, &top, next, true, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
      *slot = (uint32_t)top - 1;
      return true;
    }
  }
  uint32_t unused = __atomic_load_n(&slots->unused, __ATOMIC_RELAXED);
  while (unused < slots->count) {
    if (__atomic_compare_exchange_n(&slots->unused, &unused, unused + 1, true, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
      *slot = unused;
      return true;
    }
  }
  return false;
}

static inline void slots_give(struct slots *slots, uint32_t slot) {
  uint64_t top = __atomic_load_n(&slots->top, __ATOMIC_RELAXED), next;
  do {
    __atomic_store_n(&slots->below[slot], (uint32_t)top, __ATOMIC_RELAXED);
    next = ((top >> 32) + 1) << 32 | (slot + 1);
  } while (!__atomic_compare_exchange_n(&slots->top, &top, next, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED));
}

#endif
