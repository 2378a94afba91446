/* Boards of transfers: claimed by one thread each, read consistently, counted when none is free. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "ring.h"
#include "run_folder.h"

enum { THREADS = 8, CLAIMS = 2000 };

static int claiming = THREADS;

static void *claim_and_release(void *argument) {
  uint64_t operation = (uint64_t)argument + 1;
  for (int number = 0; number < CLAIMS; number++) {
    struct oncall_transfer *transfer = oncall_transfer_claim(operation);
    EXPECT(transfer);
    transfer->bytes = operation;
    transfer->since_ns = (int64_t)operation;
    oncall_board_end(&transfer->version);
    while (!oncall_board_begin(&transfer->version)) /* another looks whether it is free */
      sched_yield();
    EXPECT(transfer->operation == operation && transfer->bytes == operation);
    oncall_board_end(&transfer->version);
    oncall_transfer_release(transfer);
  }
  __atomic_fetch_sub(&claiming, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* A reader looks while others write, and sees by the version what to believe. */
__attribute__((no_sanitize("thread"))) static void read_consistently(struct oncall_ring *ring) {
  for (uint32_t slot = 0; slot < 256; slot++) {
    struct oncall_transfer *board = &ring->transfers[slot];
    uint32_t before = __atomic_load_n(&board->version, __ATOMIC_ACQUIRE);
    uint64_t bytes = *(volatile uint64_t *)&board->bytes;
    int64_t since = *(volatile int64_t *)&board->since_ns;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint32_t after = __atomic_fetch_add(&board->version, 0, __ATOMIC_ACQ_REL);
    if (before == after && before % 2 == 0)
      EXPECT((uint64_t)since == bytes);
  }
}

static void transfers_are_claimed_once(struct oncall_ring *ring) {
  pthread_t threads[THREADS];
  for (uint64_t number = 0; number < THREADS; number++)
    EXPECT(pthread_create(&threads[number], NULL, claim_and_release, (void *)number) == 0);
  while (__atomic_load_n(&claiming, __ATOMIC_ACQUIRE)) {
    read_consistently(ring);
    sched_yield();
  }
  for (int number = 0; number < THREADS; number++)
    pthread_join(threads[number], NULL);
  for (uint32_t slot = 0; slot < ring->header->transfer_slots; slot++)
    EXPECT(ring->transfers[slot].operation == 0 && ring->transfers[slot].version % 2 == 0);
}

static void full_transfers_are_counted(struct oncall_ring *ring) {
  uint32_t slots = ring->header->transfer_slots;
  for (uint32_t number = 0; number < slots; number++) {
    struct oncall_transfer *transfer = oncall_transfer_claim(7);
    EXPECT(transfer);
    oncall_board_end(&transfer->version);
  }
  EXPECT(!oncall_transfer_claim(7));
  EXPECT(ring->header->lost_transfers == 1);
  for (uint32_t slot = 0; slot < slots; slot++)
    oncall_transfer_release(&ring->transfers[slot]);
  oncall_transfer_release(NULL);
}

int main(void) {
  EXPECT(!oncall_transfer_claim(1)); /* without a ring */
  enter_run_folder();
  struct oncall_ring *ring = oncall_ring_open();
  EXPECT(ring);
  transfers_are_claimed_once(ring);
  full_transfers_are_counted(ring);
  leave_run_folder();
  return 0;
}
