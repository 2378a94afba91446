/* Threads that record while the host reads: nothing is counted twice, nothing is lost unsaid. */
#define TABLE_BITS 16
#define SHARD_BATCHES 4096u
#define SHARDS 4u
#define SHARD_FLOWS 64u
#include <pthread.h>

#include "host.h"

#define ROUNDS 20000u
#define STEP_NS 4000u
#define ABREAST 250u /* rounds, 1 ms: threads of a NIC live in one time */

static pthread_barrier_t start, abreast;

/* Every thread sends on every queue pair, all of them new at the same moment. */
static void *race(void *thread) {
  uint32_t own = (uint32_t)(uintptr_t)thread;
  pthread_barrier_wait(&start);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    if (round % ABREAST == 0)
      pthread_barrier_wait(&abreast);
    struct tx_event event = burst(1 + round % 16, 1000000 + round * STEP_NS, 0);
    event.units = 1 + own;
    measurement_record(&measured, own, &event);
  }
  return 0;
}

int main(void) {
  reset();
  send(0, burst(99, 1000000, 1)); /* the NIC's time has begun: threads agree on it */
  pthread_t threads[SHARDS];
  EXPECT(pthread_barrier_init(&start, 0, SHARDS + 1) == 0);
  EXPECT(pthread_barrier_init(&abreast, 0, SHARDS) == 0);
  for (uint32_t at = 0; at < SHARDS; at++)
    EXPECT(pthread_create(&threads[at], 0, race, (void *)(uintptr_t)at) == 0);
  pthread_barrier_wait(&start);
  do
    ask(sizeof reply);
  while (page.events < SHARDS * ROUNDS); /* while they record */
  for (uint32_t at = 0; at < SHARDS; at++)
    EXPECT(pthread_join(threads[at], 0) == 0);
  poll_after(10);

  EXPECT(page.events == SHARDS * ROUNDS + 1 && page.without_flow + page.without_batch == 0);
  for (uint32_t qpn = 1; qpn <= 16; qpn++)
    EXPECT(units_of(1, qpn) == ROUNDS / 16 * (1 + 2 + 3 + 4));
  return 0;
}
