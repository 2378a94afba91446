#define _GNU_SOURCE
#include "communicators.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nccl_library.h"
#include "process_facts.h"
#include "ring_identity.h"

enum {
  MOST = 1024,     /* communicators, as many as boards */
  PLACES = 4096,   /* of the table by pointer; a power of two, sparse */
  ATTEMPTS = 4096, /* to begin writing a board that another thread writes */
};

/* A place is written under the lock, `communicator` before `pointer`, and read without. */
struct place {
  uint64_t pointer; /* 0: free, and the end of a search; REMOVED: free, and not the end */
  struct communicator *communicator; /* NULL: known, but no board was free for it */
};
#define REMOVED 1ull

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

static struct communicator communicators[MOST];
static struct place places[PLACES];
static bool attempted;    /* to open a ring, since the process began */
static uint64_t removals; /* tells a thread that what it remembers may be wrong */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

_Thread_local struct communicator *communicator_initialising;

/* What this thread looked up last. */
static _Thread_local struct {
  uint64_t pointer, removals;
  struct communicator *communicator;
} last __attribute__((tls_model("initial-exec")));

/* ------------------------------------------------------------------ the table by pointer */

static uint32_t home_of(uint64_t pointer) {
  return (uint32_t)((pointer * 0x9e3779b97f4a7c15ull) >> 52) & (PLACES - 1);
}

/* NULL: not there. */
static struct place *find(uint64_t pointer) {
  for (uint32_t i = 0, at = home_of(pointer); i < PLACES; i++, at = (at + 1) & (PLACES - 1)) {
    uint64_t found = __atomic_load_n(&places[at].pointer, __ATOMIC_ACQUIRE);
    if (found == pointer)
      return &places[at];
    if (!found)
      break;
  }
  return NULL;
}

static void remember(uint64_t pointer, struct communicator *communicator) {
  pthread_mutex_lock(&lock);
  struct place *place = find(pointer);
  for (uint32_t i = 0, at = home_of(pointer); !place && i < PLACES;
       i++, at = (at + 1) & (PLACES - 1)) {
    if (places[at].pointer <= REMOVED)
      place = &places[at];
  }
  if (place) {
    __atomic_store_n(&place->communicator, communicator, __ATOMIC_RELAXED);
    __atomic_store_n(&place->pointer, pointer, __ATOMIC_RELEASE);
    __atomic_fetch_add(&removals, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
}

/* A forked child has none of its parent's communicators. */
static void in_child(void) {
  pthread_mutex_init(&lock, NULL);
  memset(places, 0, sizeof places);
  attempted = false;
  communicator_initialising = NULL;
  __atomic_fetch_add(&removals, 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void watch_forks(void) { oncall_watch_forks(in_child); }

/* ------------------------------------------------------------------ boards */

static bool begin_writing(struct communicator *communicator) {
  for (int attempt = 0; attempt < ATTEMPTS; attempt++)
    if (oncall_board_begin(&communicator->board->version))
      return true;
  return false;
}

static void end_writing(struct communicator *communicator) {
  oncall_board_end(&communicator->board->version);
}

struct communicator *communicator_begin(uint64_t derived, uint64_t parent, int rank, int size) {
  int saved = errno;
  STORE(attempted, true);
  oncall_ring_open();
  process_learns_nccl_version();
  struct oncall_communicator *board = oncall_communicator_claim();
  struct communicator *communicator = NULL;
  uint16_t slot = oncall_communicator_slot(board);
  if (board && slot < MOST) {
    communicator = &communicators[slot];
    *communicator = (struct communicator){.board = board, .derived = derived, .slot = slot};
    STORE(board->identity, derived);
    STORE(board->parent, parent);
    STORE(board->rank, rank);
    STORE(board->size, size);
  }
  if (board)
    oncall_board_end(&board->version);
  errno = saved;
  return communicator;
}

void communicator_call_it(struct communicator *communicator, const char *name) {
  if (!communicator || !name || !begin_writing(communicator))
    return;
  struct oncall_communicator *board = communicator->board;
  snprintf(board->name, sizeof board->name, "%s", name);
  end_writing(communicator);
}

/* Asks the real NCCL; -1: it cannot say. */
static int ask(void **cell, const char *name, ncclComm_t pointer) {
  ncclResult_t (*real)(ncclComm_t, int *) =
      (ncclResult_t (*)(ncclComm_t, int *))oncall_nccl_function(cell, name, (const void *)ask);
  int value = -1;
  return real && real(pointer, &value) == ncclSuccess ? value : -1;
}

/* Fills in what is not known yet. */
static void describe(struct communicator *communicator, ncclComm_t pointer) {
  static void *rank_cell, *size_cell, *device_cell;
  struct oncall_communicator *board = communicator->board;
  int rank = board->rank >= 0 ? board->rank : ask(&rank_cell, "CommUserRank", pointer);
  int size = board->size >= 0 ? board->size : ask(&size_cell, "CommCount", pointer);
  int device = board->device >= 0 ? board->device : ask(&device_cell, "CommCuDevice", pointer);
  process_learns_device(device);
  if (!begin_writing(communicator))
    return;
  STORE(board->pointer, (uint64_t)(uintptr_t)pointer);
  STORE(board->rank, rank);
  STORE(board->size, size);
  STORE(board->device, device);
  end_writing(communicator);
}

void communicator_begun(struct communicator *communicator, ncclComm_t pointer, int result) {
  if (!communicator)
    return;
  int saved = errno;
  if (result != ncclSuccess && result != ncclInProgress) {
    communicator_error(communicator, result);
    communicator_close(communicator, ONCALL_COMMUNICATOR_FAILED);
  } else if (pointer) {
    remember((uint64_t)(uintptr_t)pointer, communicator);
    if (result == ncclSuccess) {
      describe(communicator, pointer);
      communicator_state(communicator, ONCALL_COMMUNICATOR_RUNNING);
    }
  }
  errno = saved;
}

void communicator_state(struct communicator *communicator, enum oncall_communicator_state state) {
  if (communicator)
    __atomic_store_n(&communicator->board->state, state, __ATOMIC_RELAXED);
}

void communicator_close(struct communicator *communicator, enum oncall_communicator_state state) {
  if (communicator)
    oncall_communicator_close(communicator->board, state);
}

void communicator_error(struct communicator *communicator, int result) {
  if (communicator && result != ncclSuccess && result != ncclInProgress)
    __atomic_store_n(&communicator->board->async_error, result, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ by pointer */

struct communicator *communicator_known(ncclComm_t pointer) {
  struct place *place = find((uint64_t)(uintptr_t)pointer);
  return place ? __atomic_load_n(&place->communicator, __ATOMIC_RELAXED) : NULL;
}

/* Initialised without us seeing it, or seeing only its beginning. */
static struct communicator *first_sight(ncclComm_t pointer) {
  if (!oncall_ring() && LOAD(attempted))
    return NULL; /* each call would try anew */
  int saved = errno;
  static void *rank_cell, *size_cell;
  int rank = ask(&rank_cell, "CommUserRank", pointer);
  int size = ask(&size_cell, "CommCount", pointer);
  int candidates;
  struct communicator *communicator = communicator_awaiting(rank, size, true, &candidates);
  if (!communicator)
    communicator = communicator_begin(0, 0, rank, size);
  if (communicator)
    communicator_begun(communicator, pointer, ncclSuccess);
  else if (oncall_ring())
    remember((uint64_t)(uintptr_t)pointer, NULL);
  errno = saved;
  return communicator;
}

struct communicator *communicator_of(ncclComm_t pointer) {
  uint64_t key = (uint64_t)(uintptr_t)pointer;
  uint64_t now = __atomic_load_n(&removals, __ATOMIC_ACQUIRE);
  if (last.pointer == key && last.removals == now)
    return last.communicator;
  if (key <= REMOVED)
    return NULL;
  struct place *place = find(key);
  struct communicator *communicator =
      place ? __atomic_load_n(&place->communicator, __ATOMIC_RELAXED) : first_sight(pointer);
  last.pointer = key;
  last.removals = place ? now : __atomic_load_n(&removals, __ATOMIC_ACQUIRE);
  last.communicator = communicator;
  return communicator;
}

struct communicator *communicator_forget(ncclComm_t pointer) {
  pthread_mutex_lock(&lock);
  struct place *place = find((uint64_t)(uintptr_t)pointer);
  struct communicator *communicator = place && pointer ? place->communicator : NULL;
  if (place && pointer) {
    __atomic_store_n(&place->pointer, REMOVED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&removals, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return communicator;
}

/* ------------------------------------------------------- by what NCCL passes to the plugin */

static bool may_be(const struct oncall_communicator *board, int rank, int size) {
  int32_t its_rank = LOAD(board->rank), its_size = LOAD(board->size);
  return (its_rank < 0 || its_rank == rank) && (its_size < 0 || its_size == size);
}

struct communicator *communicator_awaiting(int rank, int size, bool its_pointer, int *candidates) {
  struct oncall_ring *ring = oncall_ring();
  struct communicator *found = NULL;
  *candidates = 0;
  for (uint32_t slot = 0; ring && slot < MOST && slot < ring->communicator_slots; slot++) {
    const struct oncall_communicator *board = &ring->communicators[slot];
    uint32_t state = LOAD(board->state);
    bool awaits = its_pointer ? state == ONCALL_COMMUNICATOR_INITIALISING && !LOAD(board->pointer)
                              : (state == ONCALL_COMMUNICATOR_INITIALISING ||
                                 state == ONCALL_COMMUNICATOR_RUNNING) &&
                                    !LOAD(board->identity_is_hash);
    if (awaits && may_be(board, rank, size) && communicators[slot].board) {
      found = &communicators[slot];
      ++*candidates;
    }
  }
  return *candidates == 1 ? found : NULL;
}

void communicator_identified(struct communicator *communicator, uint64_t hash, const char *name,
                             int nodes, int size, int rank) {
  if (!communicator || !begin_writing(communicator))
    return;
  struct oncall_communicator *board = communicator->board;
  STORE(board->identity, hash);
  STORE(board->identity_is_hash, 1);
  STORE(board->rank, rank);
  STORE(board->size, size);
  STORE(board->nodes, nodes > 0 ? (uint32_t)nodes : 0);
  if (name)
    snprintf(board->name, sizeof board->name, "%s", name);
  end_writing(communicator);
}

/* FNV-1a, its bits mixed at the end: members hash alike, strangers hardly ever do. */
uint64_t oncall_hash(uint64_t seed, const void *data, size_t bytes) {
  uint64_t hash = seed ^ 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
  return hash ^ hash >> 33;
}
