/* Many producers and a consumer: every record arrives once and whole, or is counted as dropped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "ring.h"
#include "run_folder.h"

enum { PRODUCERS = 8, RECORDS = 20000, SLOTS = 256 };

static uint64_t written[PRODUCERS];
static int producing = PRODUCERS;

/* A record's payload repeats what its other fields say: a mixture of two would show. */
static struct oncall_record about(uint64_t producer, uint64_t number) {
  struct oncall_record record = {.operation = number, .kind = ONCALL_RECORD_ENTERED};
  record.communicator = (uint16_t)producer;
  record.entered.sequence = number * PRODUCERS + producer;
  record.entered.count = ~record.entered.sequence;
  return record;
}

static void *produce(void *argument) {
  uint64_t producer = (uint64_t)argument;
  for (uint64_t number = 1; number <= RECORDS; number++) {
    struct oncall_record record = about(producer, number);
    if (oncall_ring_write(&record))
      written[producer]++;
    if (number % 64 == 0)
      sched_yield();
  }
  __atomic_fetch_sub(&producing, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Reads what is whole, as the collector does. Returns how many. */
static uint64_t consume(struct oncall_ring *ring, uint64_t last[PRODUCERS]) {
  uint64_t tail = ring->header->tail, start = tail;
  for (;; tail++) {
    struct oncall_record *slot = &ring->records[tail & ring->record_mask];
    if (__atomic_load_n(&slot->stamp, __ATOMIC_ACQUIRE) != tail + 1)
      break;
    struct oncall_record record = *slot;
    EXPECT(record.communicator < PRODUCERS);
    EXPECT(record.entered.sequence == record.operation * PRODUCERS + record.communicator);
    EXPECT(record.entered.count == ~record.entered.sequence);
    EXPECT(record.operation > last[record.communicator]); /* a thread's own order is kept */
    last[record.communicator] = record.operation;
  }
  __atomic_store_n(&ring->header->tail, tail, __ATOMIC_RELEASE);
  return tail - start;
}

static void many_producers(struct oncall_ring *ring) {
  pthread_t threads[PRODUCERS];
  uint64_t last[PRODUCERS] = {0}, read = 0, wrote = 0;
  for (uint64_t producer = 0; producer < PRODUCERS; producer++)
    EXPECT(pthread_create(&threads[producer], NULL, produce, (void *)producer) == 0);
  while (__atomic_load_n(&producing, __ATOMIC_ACQUIRE)) {
    read += consume(ring, last);
    sched_yield();
  }
  for (int producer = 0; producer < PRODUCERS; producer++) {
    pthread_join(threads[producer], NULL);
    wrote += written[producer];
  }
  read += consume(ring, last);
  EXPECT(read == wrote);
  EXPECT(wrote > SLOTS);
  EXPECT(wrote + ring->header->dropped == (uint64_t)PRODUCERS * RECORDS);
}

static void full_ring_drops_and_counts(struct oncall_ring *ring) {
  uint64_t dropped = ring->header->dropped, head = ring->header->head;
  struct oncall_record record = about(0, 1);
  for (int number = 0; number < SLOTS; number++)
    EXPECT(oncall_ring_write(&record));
  for (int number = 0; number < 10; number++)
    EXPECT(!oncall_ring_write(&record));
  EXPECT(ring->header->dropped == dropped + 10);
  EXPECT(ring->header->head == head + SLOTS);
}

/* Whatever a consumer leaves in `tail`, nothing is written outside the ring. A tail ahead is also
 * what a producer sees whose own position has grown stale: no reason to drop. */
static void senseless_tail_does_no_harm(struct oncall_ring *ring) {
  struct oncall_record record = about(0, 1);
  ring->header->tail = ring->header->head + 1000000;
  for (int number = 0; number < 3 * SLOTS; number++)
    EXPECT(oncall_ring_write(&record));
  ring->header->tail = UINT64_MAX;
  oncall_ring_write(&record);
  ring->header->tail = ring->header->head;
  EXPECT(oncall_ring_write(&record));
}

int main(void) {
  enter_run_folder();
  struct oncall_record record = {.kind = ONCALL_RECORD_ENTERED};
  EXPECT(!oncall_ring_write(&record)); /* no ring yet */
  setenv("ONCALL_RING_RECORDS", "200", 1);
  struct oncall_ring *ring = oncall_ring_open();
  EXPECT(ring && oncall_ring_open() == ring);
  EXPECT(ring->header->record_slots == SLOTS); /* the next power of two */
  many_producers(ring);
  full_ring_drops_and_counts(ring);
  senseless_tail_does_no_harm(ring);
  leave_run_folder();
  return 0;
}
