#define _GNU_SOURCE
#include "ring.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ring_file.h"
#include "ring_identity.h"
#include "ring_quiet.h"

/* A board of an ended communicator is kept this long, for a collector to read it. */
#define KEPT_NS 60000000000ll
#define MOST_PROBES 64u

struct oncall_ring *oncall_ring_now;

static struct oncall_ring_file file __attribute__((aligned(64))); /* read by every record */
static pid_t opened_by;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------ the process's life */

struct oncall_ring *oncall_ring_open(void) {
  if (oncall_ring())
    return oncall_ring();
  if (oncall_disabled())
    return NULL;
  struct oncall_quiet quiet;
  oncall_quiet_begin(&quiet);
  pthread_mutex_lock(&opening);
  if (!oncall_ring() && oncall_ring_file_make(&file)) {
    opened_by = getpid();
    __atomic_store_n(&oncall_ring_now, &file.ring, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&opening);
  oncall_quiet_end(&quiet);
  return oncall_ring();
}

/* A forked child is another process: it opens a ring of its own when it needs one. Boards its
 * parent had claimed may still be pointed at; they become private memory that nobody reads. */
static void in_child(void) {
  pthread_mutex_init(&opening, NULL);
  if (!oncall_ring_now)
    return;
  oncall_ring_now = NULL;
  oncall_shared_file_leave(&file.shared);
}

__attribute__((constructor)) static void watch_forks(void) { oncall_watch_forks(in_child); }

/* Threads may still record while the process exits: the mapping stays. */
__attribute__((destructor)) static void close_in_order(void) {
  struct oncall_ring *ring = oncall_ring();
  if (ring && opened_by == getpid()) /* a child that no handler of forks saw leaves it as it is */
    __atomic_store_n(&ring->header->closed, 1, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ records */

bool oncall_ring_write(const struct oncall_record *record) {
  struct oncall_ring *ring = oncall_ring();
  if (!ring)
    return false;
  struct oncall_header *header = ring->header;
  uint64_t position = __atomic_load_n(&header->head, __ATOMIC_RELAXED);
  do {
    uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
    /* Signed: a stale position may lie behind a tail that others made possible. */
    if ((int64_t)(position - tail) > (int64_t)ring->record_mask) {
      __atomic_fetch_add(&header->dropped, 1, __ATOMIC_RELAXED);
      return false;
    }
  } while (!__atomic_compare_exchange_n(&header->head, &position, position + 1, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  struct oncall_record *slot = &ring->records[position & ring->record_mask];
  const size_t after_stamp = sizeof slot->stamp;
  memcpy((char *)slot + after_stamp, (const char *)record + after_stamp,
         sizeof *slot - after_stamp);
  __atomic_store_n(&slot->stamp, position + 1, __ATOMIC_RELEASE);
  return true;
}

/* ------------------------------------------------------------------ communicators */

static bool is_over(uint32_t state) {
  return state == ONCALL_COMMUNICATOR_DESTROYED || state == ONCALL_COMMUNICATOR_ABORTED ||
         state == ONCALL_COMMUNICATOR_FAILED;
}

/* Worth a closer look, which takes beginning to write: nothing but `state` may be read before. */
static bool may_be_free(const struct oncall_communicator *board, bool again) {
  uint32_t state = __atomic_load_n(&board->state, __ATOMIC_RELAXED);
  return again ? is_over(state) : state == ONCALL_COMMUNICATOR_UNUSED;
}

/* Never used; or ended, kept long enough, and all records that name it are read. */
static bool is_free(const struct oncall_communicator *board, uint64_t tail, int64_t now_ns) {
  return board->state == ONCALL_COMMUNICATOR_UNUSED ||
         (is_over(board->state) && (int64_t)(tail - board->closed_at) >= 0 &&
          now_ns - board->closed_ns > KEPT_NS);
}

static void begin_life(struct oncall_ring *ring, struct oncall_communicator *board,
                       int64_t now_ns) {
  const size_t after_state = offsetof(struct oncall_communicator, identity);
  memset((char *)board + after_state, 0, sizeof *board - after_state);
  __atomic_store_n(&board->state, ONCALL_COMMUNICATOR_INITIALISING, __ATOMIC_RELAXED);
  board->number = __atomic_add_fetch(&ring->header->communicators_made, 1, __ATOMIC_RELAXED);
  board->created_ns = now_ns;
  board->rank = board->size = board->device = -1;
  board->collectives.peer = board->point_to_point.peer = -1;
}

struct oncall_communicator *oncall_communicator_claim(void) {
  struct oncall_ring *ring = oncall_ring();
  if (!ring)
    return NULL;
  int64_t now_ns = oncall_now_ns();
  uint64_t tail = __atomic_load_n(&ring->header->tail, __ATOMIC_ACQUIRE);
  for (int again = 0; again < 2; again++) {
    for (uint32_t slot = 0; slot < ring->communicator_slots; slot++) {
      struct oncall_communicator *board = &ring->communicators[slot];
      if (!may_be_free(board, again) || !oncall_board_begin(&board->version))
        continue;
      if (is_free(board, tail, now_ns)) {
        begin_life(ring, board, now_ns);
        return board;
      }
      oncall_board_end(&board->version);
    }
  }
  __atomic_fetch_add(&ring->header->lost_communicators, 1, __ATOMIC_RELAXED);
  return NULL;
}

void oncall_communicator_close(struct oncall_communicator *board,
                               enum oncall_communicator_state state) {
  struct oncall_ring *ring = oncall_ring();
  if (!ring || !board)
    return;
  for (uint32_t attempt = 0; attempt < MOST_PROBES; attempt++) {
    if (!oncall_board_begin(&board->version))
      continue;
    board->closed_ns = oncall_now_ns();
    board->closed_at = __atomic_load_n(&ring->header->head, __ATOMIC_RELAXED);
    __atomic_store_n(&board->state, state, __ATOMIC_RELAXED);
    oncall_board_end(&board->version);
    return;
  }
}

uint16_t oncall_communicator_slot(const struct oncall_communicator *board) {
  struct oncall_ring *ring = oncall_ring();
  return ring && board ? (uint16_t)(board - ring->communicators) : UINT16_MAX;
}

/* ------------------------------------------------------------------ transfers */

struct oncall_transfer *oncall_transfer_claim(uint64_t operation) {
  static uint32_t next; /* where to look first: slots are freed about in the order of claiming */
  struct oncall_ring *ring = oncall_ring();
  if (!ring)
    return NULL;
  uint32_t slots = ring->transfer_slots;
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t slot = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % slots;
    struct oncall_transfer *transfer = &ring->transfers[slot];
    if (__atomic_load_n(&transfer->operation, __ATOMIC_RELAXED) ||
        !oncall_board_begin(&transfer->version))
      continue;
    if (!transfer->operation) {
      const size_t after_operation = offsetof(struct oncall_transfer, peer);
      memset((char *)transfer + after_operation, 0, sizeof *transfer - after_operation);
      transfer->communicator = 0;
      transfer->channel = transfer->is_send = 0;
      __atomic_store_n(&transfer->operation, operation, __ATOMIC_RELAXED);
      transfer->started_ns = oncall_now_ns();
      return transfer;
    }
    oncall_board_end(&transfer->version);
  }
  __atomic_fetch_add(&ring->header->lost_transfers, 1, __ATOMIC_RELAXED);
  return NULL;
}

void oncall_transfer_release(struct oncall_transfer *transfer) {
  if (!transfer)
    return;
  /* Who else may have begun is looking for a free slot, and leaves this one as it is. */
  bool begun = oncall_board_begin(&transfer->version);
  __atomic_store_n(&transfer->operation, 0, __ATOMIC_RELEASE);
  if (begun)
    oncall_board_end(&transfer->version);
}
