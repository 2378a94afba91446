/* Handles that stand for two: how long, and that one too old stands for nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "expect.h"
#include "handles.h"
#include "profiler_pairs.h"

enum { LASTS = 100000, THREADS = 4, ROUNDS = 20000 };

static uint64_t make(uint64_t number, enum profiler_pair_life life) {
  uint64_t handle =
      profiler_pair_make((struct profiler_pair){number, (void *)(uintptr_t)(number * 3)}, life);
  EXPECT(handle && handle_kind(handle) == HANDLE_PAIR);
  return handle;
}

static bool stands_for(uint64_t handle, uint64_t number) {
  struct profiler_pair pair = profiler_pair_of(handle);
  return pair.own == number && pair.theirs == (void *)(uintptr_t)(number * 3);
}

static void a_parent_stays_known(void) {
  uint64_t parent = make(7, PAIR_LASTING), captured = make(8, PAIR_KEPT),
           step = make(9, PAIR_PASSING);
  profiler_pair_free(parent);
  profiler_pair_free(parent); /* NCCL stops some events twice */
  profiler_pair_free(captured);
  for (uint64_t number = 0; number < LASTS; number++)
    profiler_pair_free(make(100 + number, PAIR_LASTING));
  for (uint64_t number = 0; number < LASTS; number++)
    profiler_pair_free(make(100 + number, PAIR_PASSING));
  EXPECT(stands_for(parent, 7) && stands_for(captured, 8) && stands_for(step, 9));
  for (uint64_t number = 0; number < 3 * LASTS; number++)
    profiler_pair_free(make(100 + number, PAIR_LASTING));
  EXPECT(stands_for(parent, 0) && stands_for(captured, 8) && stands_for(step, 9));
  profiler_pair_free(step);
}

static void what_is_no_pair_stands_for_nothing(void) {
  EXPECT(stands_for(0, 0) && stands_for(handle_make(HANDLE_TASK, 1, 1), 0));
  EXPECT(stands_for(handle_make(HANDLE_PAIR, 1, UINT32_MAX), 0));
  EXPECT(stands_for(UINT64_MAX, 0));
  profiler_pair_free(UINT64_MAX);
}

static void a_full_pool_gives_none(void) {
  static uint64_t taken[1 << 14];
  uint32_t count = 0;
  struct profiler_pair pair = {1, (void *)3};
  while (count < 1 << 14 && (taken[count] = profiler_pair_make(pair, PAIR_PASSING)))
    count++;
  EXPECT(count == 1 << 13);
  while (count)
    profiler_pair_free(taken[--count]);
  profiler_pair_free(make(5, PAIR_PASSING));
}

static void *make_and_free(void *argument) {
  uint64_t thread = (uint64_t)(uintptr_t)argument;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint64_t number = thread << 32 | round;
    uint64_t handle = make(number, round % 2 ? PAIR_LASTING : PAIR_PASSING);
    EXPECT(stands_for(handle, number));
    profiler_pair_free(handle);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  EXPECT(profiler_pairs_begin());
  a_parent_stays_known();
  what_is_no_pair_stands_for_nothing();
  a_full_pool_gives_none();
  for (uintptr_t thread = 0; thread < THREADS; thread++)
    EXPECT(!pthread_create(&threads[thread], NULL, make_and_free, (void *)(thread + 1)));
  for (int thread = 0; thread < THREADS; thread++)
    EXPECT(!pthread_join(threads[thread], NULL));
  return 0;
}
