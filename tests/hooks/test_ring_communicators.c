/* Boards of communicators: claimed once, used again only when nobody needs them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "ring.h"
#include "run_folder.h"

enum { THREADS = 8, LIVES = 50 };

static struct oncall_communicator *new_communicator(void) {
  struct oncall_communicator *board = oncall_communicator_claim();
  if (board)
    oncall_board_end(&board->version);
  return board;
}

static void boards_are_used_again_when_read_and_old(struct oncall_ring *ring) {
  struct oncall_communicator *first = new_communicator();
  EXPECT(first && oncall_communicator_slot(first) == 0 && first->number == 1);
  EXPECT(first->state == ONCALL_COMMUNICATOR_INITIALISING && first->rank == -1);
  for (uint32_t slot = 1; slot < ring->header->communicator_slots; slot++)
    EXPECT(new_communicator());
  EXPECT(!new_communicator());
  EXPECT(ring->header->lost_communicators == 1);

  struct oncall_record record = {.kind = ONCALL_RECORD_ENTERED};
  EXPECT(oncall_ring_write(&record));
  oncall_communicator_close(first, ONCALL_COMMUNICATOR_DESTROYED);
  first->closed_ns -= 61 * 1000000000ll;
  EXPECT(!new_communicator()); /* a record that may name it is not read */
  ring->header->tail = ring->header->head;
  first->closed_ns += 59 * 1000000000ll;
  EXPECT(!new_communicator()); /* just ended: a collector may not have looked at it */
  first->closed_ns -= 59 * 1000000000ll;
  EXPECT(new_communicator() == first);
  EXPECT(first->number == ring->header->communicators_made);
  EXPECT(first->state == ONCALL_COMMUNICATOR_INITIALISING && first->closed_ns == 0);
}

static void a_board_is_written_by_one(struct oncall_ring *ring) {
  uint32_t *version = &ring->communicators[1].collectives.version;
  EXPECT(oncall_board_begin(version) && !oncall_board_begin(version));
  oncall_board_end(version);
  EXPECT(oncall_board_begin(version));
  oncall_board_end(version);
}

/* Another thread may be looking whether the board is free. */
static void begin_soon(uint32_t *version) {
  while (!oncall_board_begin(version))
    sched_yield();
}

static void *live_and_end(void *argument) {
  (void)argument;
  for (int number = 0; number < LIVES; number++) {
    struct oncall_communicator *board = new_communicator();
    if (!board)
      continue;
    uint64_t number_made = board->number;
    oncall_communicator_close(board, ONCALL_COMMUNICATOR_ABORTED);
    begin_soon(&board->version);
    EXPECT(board->number == number_made);  /* too young for another to take */
    board->closed_ns -= 61 * 1000000000ll; /* old enough for the next */
    oncall_board_end(&board->version);
  }
  return NULL;
}

static void threads_share_what_is_free(struct oncall_ring *ring) {
  pthread_t threads[THREADS];
  uint64_t made = ring->header->communicators_made, lost = ring->header->lost_communicators;
  for (uint32_t slot = 0; slot < ring->header->communicator_slots; slot++)
    oncall_communicator_close(&ring->communicators[slot], ONCALL_COMMUNICATOR_DESTROYED);
  for (uint32_t slot = 0; slot < 2 * THREADS; slot++)
    ring->communicators[slot].closed_ns -= 61 * 1000000000ll;
  for (int number = 0; number < THREADS; number++)
    EXPECT(pthread_create(&threads[number], NULL, live_and_end, NULL) == 0);
  for (int number = 0; number < THREADS; number++)
    pthread_join(threads[number], NULL);
  made = ring->header->communicators_made - made;
  EXPECT(made > 0 && made + ring->header->lost_communicators - lost == THREADS * LIVES);
  for (uint32_t slot = 0; slot < ring->header->communicator_slots; slot++)
    EXPECT(ring->communicators[slot].version % 2 == 0);
}

int main(void) {
  EXPECT(!oncall_communicator_claim()); /* without a ring */
  EXPECT(oncall_communicator_slot(NULL) == UINT16_MAX);
  enter_run_folder();
  struct oncall_ring *ring = oncall_ring_open();
  EXPECT(ring);
  boards_are_used_again_when_read_and_old(ring);
  a_board_is_written_by_one(ring);
  threads_share_what_is_free(ring);
  leave_run_folder();
  return 0;
}
