/* The writing side of a ring: what the hooks call. The layout is in oncall_ring.h.
 *
 * A process has at most one ring, opened at its first communicator. Nothing here fails loudly:
 * without a ring every function does nothing, and the training job runs on unrecorded.
 * After the ring is open no function allocates, locks, waits or makes a system call.
 */
#ifndef ONCALL_HOOKS_RING_H
#define ONCALL_HOOKS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "oncall_ring.h"

struct oncall_ring {
  struct oncall_header *header;
  struct oncall_communicator *communicators;
  struct oncall_transfer *transfers;
  struct oncall_record *records;
  uint64_t record_mask; /* record_slots - 1 */
  /* As laid out: what the header says of it may be written by whoever may write the file. */
  uint32_t communicator_slots, transfer_slots;
};

extern struct oncall_ring *oncall_ring_now; /* read it with oncall_ring() */

/* This process's ring, opened if it is not yet; NULL if it cannot be. May make system calls. */
struct oncall_ring *oncall_ring_open(void);

/* This process's ring; NULL: not opened, or in a child that has not opened its own. */
static inline struct oncall_ring *oncall_ring(void) {
  return __atomic_load_n(&oncall_ring_now, __ATOMIC_ACQUIRE);
}

static inline int64_t oncall_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now); /* in the vDSO: no system call */
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Append a copy of `record` (its `stamp` is set here). False: there is no ring, or it is full. */
bool oncall_ring_write(const struct oncall_record *record);

/* Begin to write a board, or the description of a `progress`. False: another thread does so
 * already; then leave it. Counters that stand alone (entered, ended, ...) need no begin: they are
 * added to atomically. */
static inline bool oncall_board_begin(uint32_t *version) {
  uint32_t even = __atomic_load_n(version, __ATOMIC_RELAXED);
  if ((even & 1u) || !__atomic_compare_exchange_n(version, &even, even + 1, false, __ATOMIC_ACQUIRE,
                                                  __ATOMIC_RELAXED))
    return false;
#ifndef __SANITIZE_THREAD__ /* which knows no fences, and needs none */
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
  return true;
}

static inline void oncall_board_end(uint32_t *version) {
  __atomic_fetch_add(version, 1, __ATOMIC_RELEASE);
}

/* A board for a new communicator, its writing begun: describe it, then oncall_board_end. It is
 * INITIALISING, has a `number` and `created_ns`, unknown ranks are -1. NULL: none is free. */
struct oncall_communicator *oncall_communicator_claim(void);

/* Its life is over: DESTROYED, ABORTED, FAILED or FINALISED. */
void oncall_communicator_close(struct oncall_communicator *board,
                               enum oncall_communicator_state state);

/* The slot that records name; `board` may be NULL: UINT16_MAX. */
uint16_t oncall_communicator_slot(const struct oncall_communicator *board);

/* A board for a proxy operation of `operation` (not 0), its writing begun, all else zero but
 * `started_ns`. NULL: none is free. */
struct oncall_transfer *oncall_transfer_claim(uint64_t operation);

/* The transfer is over: its slot is free. `transfer` may be NULL. */
void oncall_transfer_release(struct oncall_transfer *transfer);

#endif
