/* What a record costs the thread that writes it: prints CPU ns a turn of three loops.
 *
 *     ring_cost THREADS TURNS ROUNDS        -> a line a round: empty clock record
 *
 * Each thread counts its own CPU time, so that threads which share a core do not count each other;
 * the ring is emptied between rounds and never full.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ring.h"

enum { MOST_THREADS = 64, LOOPS = 3 };

static long turns;
static pthread_barrier_t together;
static double cost_ns[MOST_THREADS][LOOPS];

static double cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void empty_turn(long turn) { __asm__ volatile("" : : "r"(turn) : "memory"); }

static void clock_turn(long turn) { empty_turn(turn + oncall_now_ns()); }

static void record_turn(long turn) {
  struct oncall_record record = {.time_ns = oncall_now_ns(), .operation = (uint64_t)turn};
  record.kind = ONCALL_RECORD_ENTERED;
  record.entered.sequence = (uint64_t)turn;
  oncall_ring_write(&record);
}

#define TIME_LOOP(loop, body)                                                                      \
  do {                                                                                             \
    pthread_barrier_wait(&together);                                                               \
    double start = cpu_ns();                                                                       \
    for (long turn = 0; turn < turns; turn++)                                                      \
      body(turn);                                                                                  \
    cost_ns[thread][loop] = (cpu_ns() - start) / (double)turns;                                    \
  } while (0)

static void *run(void *argument) {
  size_t thread = (size_t)argument;
  TIME_LOOP(0, empty_turn);
  TIME_LOOP(1, clock_turn);
  TIME_LOOP(2, record_turn);
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 4)
    return 2;
  size_t threads = strtoul(arguments[1], NULL, 10);
  turns = strtol(arguments[2], NULL, 10);
  struct oncall_ring *ring = oncall_ring_open();
  if (!ring || threads == 0 || threads > MOST_THREADS)
    return 2;
  pthread_barrier_init(&together, NULL, (unsigned)threads);
  for (long round = strtol(arguments[3], NULL, 10); round > 0; round--) {
    pthread_t started[MOST_THREADS];
    double sum[LOOPS] = {0};
    ring->header->tail = ring->header->head;
    for (size_t thread = 0; thread < threads; thread++)
      pthread_create(&started[thread], NULL, run, (void *)thread);
    for (size_t thread = 0; thread < threads; thread++) {
      pthread_join(started[thread], NULL);
      for (int loop = 0; loop < LOOPS; loop++)
        sum[loop] += cost_ns[thread][loop];
    }
    for (int loop = 0; loop < LOOPS; loop++)
      printf("%.2f ", sum[loop] / (double)threads);
    printf("\n");
  }
  return ring->header->dropped != 0;
}
