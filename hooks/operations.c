#define _GNU_SOURCE
#include "operations.h"

#include <string.h>

#include "slots.h"

enum { MOST = 8192 };

/* The state of a life in one word, so that who sees the last part end is decided by one swap. */
#define OPEN_ONE 1ull /* parts begun and not over: launches, kernel channels, transfers */
#define OPEN (0xffffull * OPEN_ONE)
#define MISSING_ONE (1ull << 16) /* kernel channels announced and not begun */
#define MISSING (0xffffull * MISSING_ONE)
#define LAUNCHED (1ull << 32)
#define HAS_KERNEL (1ull << 33)
#define HAS_TRANSFER (1ull << 34)
#define GENERATION_ONE (1ull << 40)
#define GENERATION (~0ull << 40)

struct operation {
  uint64_t state;
  uint64_t number;
  uint64_t previous; /* handle of the one before it on its communicator */
  struct communicator *communicator;
  uint64_t bytes; /* the caller passed */
  int32_t peer;
  uint32_t plan, group;
  uint8_t op;
  uint32_t channels, sends, recvs;
  uint64_t sent_bytes;
  uint64_t gpu_first_ns, gpu_last_ns;
} __attribute__((aligned(128)));

static struct operation operations[MOST];
static uint32_t below[MOST];
static struct slots slots = {.count = MOST, .below = below};
static uint64_t entered __attribute__((aligned(128))); /* operations so far */

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define ADD(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)

static uint32_t generation_of(uint64_t state) { return (uint32_t)(state >> 40); }

static uint64_t handle_of(const struct operation *operation, enum handle_kind kind) {
  return handle_make(kind, generation_of(LOAD(operation->state)),
                     (uint32_t)(operation - operations));
}

/* The operation that `handle` names and its state; NULL: none any more. */
static struct operation *named(uint64_t handle, uint64_t *state) {
  if (!handle || handle_kind(handle) > HANDLE_KERNEL || handle_slot(handle) >= MOST)
    return NULL;
  struct operation *operation = &operations[handle_slot(handle)];
  *state = __atomic_load_n(&operation->state, __ATOMIC_ACQUIRE);
  return generation_of(*state) == handle_generation(handle) ? operation : NULL;
}

/* ------------------------------------------------------------------ entering */

static struct oncall_progress *progress_of(struct communicator *communicator, uint8_t op) {
  struct oncall_communicator *board = communicator->board;
  return operation_is_point_to_point(op) ? &board->point_to_point : &board->collectives;
}

struct operation_entry operation_enter(struct communicator *communicator,
                                       const struct operation_call *call) {
  struct operation_entry entry = {.communicator = communicator};
  if (!communicator)
    return entry;
  entry.number = ADD(entered, 1) + 1;
  struct oncall_progress *progress = progress_of(communicator, call->op);
  int64_t now_ns = oncall_now_ns();
  struct oncall_record record = {
      .time_ns = now_ns,
      .operation = entry.number,
      .kind = ONCALL_RECORD_ENTERED,
      .communicator = communicator->slot,
      .group = call->group,
      .entered = {.sequence = ADD(progress->entered, 1) + 1,
                  .count = call->count,
                  .stream = call->stream,
                  .peer = call->peer,
                  .op = call->op,
                  .dtype = call->dtype,
                  .captured = call->captured},
  };
  if (oncall_board_begin(&progress->version)) {
    STORE(progress->entered_ns, now_ns);
    STORE(progress->operation, entry.number);
    STORE(progress->count, call->count);
    STORE(progress->peer, call->peer);
    STORE(progress->op, call->op);
    STORE(progress->dtype, call->dtype);
    oncall_board_end(&progress->version);
  }
  oncall_ring_write(&record);
  return entry;
}

static void record_end(const struct operation *operation) {
  int64_t first_ns = (int64_t)operation->gpu_first_ns, last_ns = (int64_t)operation->gpu_last_ns;
  struct oncall_record record = {
      .time_ns = oncall_now_ns(),
      .operation = operation->number,
      .kind = ONCALL_RECORD_ENDED,
      .communicator = operation->communicator->slot,
      .group = operation->group,
      .ended = {.gpu_duration_ns = first_ns && last_ns > first_ns ? last_ns - first_ns : 0,
                .sends = operation->sends,
                .recvs = operation->recvs,
                .bytes = operation->sent_bytes,
                .channels = operation->channels},
  };
  ADD(progress_of(operation->communicator, operation->op)->ended, 1);
  oncall_ring_write(&record);
}

/* NCCL does no work for it that could wait for another rank, and no event tells of it. */
static bool is_trivial(const struct communicator *communicator, const struct operation_call *call) {
  return communicator->board->size == 1 ||
         (call->count == 0 && !operation_is_point_to_point(call->op));
}

void operation_returned(const struct operation_entry *entry, const struct operation_call *call,
                        int result) {
  if (!entry->number)
    return;
  struct oncall_record record = {
      .time_ns = oncall_now_ns(),
      .operation = entry->number,
      .kind = ONCALL_RECORD_ENQUEUED,
      .communicator = entry->communicator->slot,
      .group = call->group,
      .enqueued = {.result = result},
  };
  ADD(progress_of(entry->communicator, call->op)->enqueued, 1);
  oncall_ring_write(&record);
  if (result != ncclSuccess && result != ncclInProgress) {
    communicator_error(entry->communicator, result);
    operation_abandon(entry->handle);
  } else if (!entry->handle && (call->captured || is_trivial(entry->communicator, call))) {
    const struct operation over = {.number = entry->number,
                                   .communicator = entry->communicator,
                                   .group = call->group,
                                   .op = call->op};
    record_end(&over);
  }
}

uint64_t operation_follow(const struct operation_entry *entry, const struct operation_call *call) {
  uint32_t slot;
  if (!entry->number || call->captured || is_trivial(entry->communicator, call))
    return 0;
  if (!slots_take(&slots, &slot)) {
    struct oncall_ring *ring = oncall_ring();
    if (ring)
      ADD(ring->header->lost_operations, 1);
    return 0;
  }
  struct operation *operation = &operations[slot];
  struct communicator *communicator = entry->communicator;
  operation->number = entry->number;
  STORE(operation->communicator, communicator);
  operation->channels = operation->sends = operation->recvs = 0;
  operation->sent_bytes = operation->gpu_first_ns = operation->gpu_last_ns = 0;
  STORE(operation->bytes, call->count * oncall_element_bytes(call->dtype));
  STORE(operation->peer, call->peer);
  STORE(operation->plan, 0);
  STORE(operation->group, call->group);
  STORE(operation->op, call->op);
  uint64_t handle = handle_of(operation, HANDLE_CALL);
  STORE(operation->previous, __atomic_exchange_n(&communicator->newest, handle, __ATOMIC_ACQ_REL));
  return handle;
}

/* ------------------------------------------------------------------ ending */

/* The life ends if it is still as `state` says; who succeeds may read it, then must free it. */
static bool end_life(struct operation *operation, uint64_t state) {
  uint64_t next = (state & GENERATION) + GENERATION_ONE;
  return __atomic_compare_exchange_n(&operation->state, &state, next, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

static void free_slot(struct operation *operation) {
  slots_give(&slots, (uint32_t)(operation - operations));
}

void operation_abandon(uint64_t handle) {
  uint64_t state;
  struct operation *operation = named(handle, &state);
  if (operation && !(state & (OPEN | LAUNCHED)) && end_life(operation, state))
    free_slot(operation);
}

/* Older ones of its communicator are over too: those of earlier kernel plans, and those that were
 * never launched though a later call's operation was. */
static void end_older(const struct operation *ended) {
  uint64_t handle = LOAD(ended->previous), state;
  struct operation *older;
  while ((older = named(handle, &state)) != NULL && !(state & OPEN)) {
    uint32_t group = LOAD(older->group);
    bool same_group = group && group == ended->group;
    if (state & LAUNCHED ? LOAD(older->plan) >= ended->plan : same_group)
      return;
    handle = LOAD(older->previous);
    if (!end_life(older, state))
      return;
    record_end(older);
    free_slot(older);
  }
}

/* A later kernel plan of its communicator is over. */
static bool is_overtaken(const struct operation *operation) {
  const struct communicator *communicator = LOAD(operation->communicator);
  return LOAD(operation->plan) < LOAD(communicator->plan_over);
}

/* A part of it is over: perhaps that was the last one. */
static void settle(struct operation *operation, uint64_t state) {
  bool whole = !(state & MISSING) && (state & (HAS_KERNEL | HAS_TRANSFER));
  if ((state & OPEN) || !(state & LAUNCHED) || !(whole || is_overtaken(operation)) ||
      !end_life(operation, state))
    return;
  if (LOAD(operation->communicator->plan_over) < operation->plan)
    STORE(operation->communicator->plan_over, operation->plan);
  record_end(operation);
  end_older(operation);
  free_slot(operation);
}

/* A part of the operation begins: one more is open, `fewer` announced ones are missing. */
static struct operation *open_part(uint64_t handle, uint64_t flags, uint32_t missing,
                                   uint32_t fewer, uint64_t *before) {
  struct operation *operation = named(handle, before);
  while (operation) {
    uint64_t left = (*before & MISSING) / MISSING_ONE;
    left = left > fewer ? left - fewer : 0;
    left = left + missing > 0xffff ? 0xffff : left + missing;
    if ((*before & OPEN) == OPEN)
      return NULL;
    uint64_t after = ((*before & ~MISSING) | left * MISSING_ONE | flags) + OPEN_ONE;
    if (__atomic_compare_exchange_n(&operation->state, before, after, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return operation;
    if (generation_of(*before) != handle_generation(handle))
      return NULL;
  }
  return NULL;
}

static void close_part(uint64_t handle) {
  uint64_t before;
  struct operation *operation = named(handle, &before);
  while (operation && (before & OPEN) && generation_of(before) == handle_generation(handle)) {
    uint64_t after = before - OPEN_ONE;
    if (__atomic_compare_exchange_n(&operation->state, &before, after, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      settle(operation, after);
      return;
    }
  }
}

/* ------------------------------------------------------------------ launches */

/* NCCL launches in the order of calls, but for those of one group: looking back, whatever lies
 * before a launched operation's group is not to come any more. */
uint64_t operation_unlaunched(struct communicator *communicator, uint8_t op, uint64_t bytes,
                              int32_t peer) {
  uint64_t oldest = 0, state;
  uint64_t handle = __atomic_load_n(&communicator->newest, __ATOMIC_ACQUIRE);
  bool met_launched = false;
  uint32_t last_group = 0;
  for (const struct operation *operation; (operation = named(handle, &state)) != NULL;
       handle = LOAD(operation->previous)) {
    uint32_t group = LOAD(operation->group);
    if (met_launched && (!group || group != last_group))
      break;
    if (state & LAUNCHED) {
      met_launched = true;
      last_group = group;
    } else if (LOAD(operation->op) == op && LOAD(operation->bytes) == bytes &&
               (!operation_is_point_to_point(op) || LOAD(operation->peer) == peer)) {
      oldest = handle;
    }
  }
  return oldest;
}

static void copy_name(char *to, size_t bytes, const char *name) {
  if (name)
    strncpy(to, name, bytes - 1);
}

uint64_t operation_launch(uint64_t handle, const struct operation_choice *choice) {
  uint64_t before;
  struct operation *operation = open_part(handle, LAUNCHED, choice->announced, 0, &before);
  if (!operation)
    return 0;
  STORE(operation->plan, LOAD(operation->communicator->plans));
  if (!(before & LAUNCHED)) {
    struct oncall_record record = {
        .time_ns = oncall_now_ns(),
        .operation = operation->number,
        .kind = ONCALL_RECORD_DESCRIBED,
        .communicator = operation->communicator->slot,
        .group = operation->group,
        .described = {.channels = choice->channels,
                      .warps = choice->warps,
                      .plan_count = choice->plan_count},
    };
    copy_name(record.described.algorithm, sizeof record.described.algorithm, choice->algorithm);
    copy_name(record.described.protocol, sizeof record.described.protocol, choice->protocol);
    oncall_ring_write(&record);
  }
  return handle_as(handle, HANDLE_TASK);
}

void operation_launched(uint64_t handle) { close_part(handle); }

/* ------------------------------------------------------------------ kernel channels */

static void widen(uint64_t *field, uint64_t value, bool upwards) {
  uint64_t now = LOAD(*field);
  while (value && (!now || (upwards ? value > now : value < now)))
    if (__atomic_compare_exchange_n(field, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return;
}

uint64_t operation_kernel(uint64_t handle, uint64_t gpu_ns) {
  uint64_t before;
  struct operation *operation = open_part(handle, HAS_KERNEL, 0, 1, &before);
  if (!operation)
    return 0;
  ADD(operation->channels, 1);
  widen(&operation->gpu_first_ns, gpu_ns, false);
  if (!(before & HAS_KERNEL)) {
    const struct oncall_record record = {
        .time_ns = oncall_now_ns(),
        .operation = operation->number,
        .kind = ONCALL_RECORD_STARTED,
        .communicator = operation->communicator->slot,
        .group = operation->group,
    };
    oncall_ring_write(&record);
  }
  return handle_as(handle, HANDLE_KERNEL);
}

void operation_kernel_gpu_end(uint64_t handle, uint64_t gpu_ns) {
  uint64_t state;
  struct operation *operation = named(handle, &state);
  if (operation && (state & OPEN))
    widen(&operation->gpu_last_ns, gpu_ns, true);
}

void operation_kernel_over(uint64_t handle) { close_part(handle); }

/* ------------------------------------------------------------------ transfers */

bool operation_transfer(uint64_t handle, uint64_t *number, uint16_t *communicator) {
  uint64_t before;
  struct operation *operation = open_part(handle, HAS_TRANSFER, 0, 0, &before);
  if (!operation)
    return false;
  *number = operation->number;
  *communicator = operation->communicator->slot;
  return true;
}

void operation_transfer_over(uint64_t handle, bool is_send, uint32_t steps, uint64_t bytes) {
  uint64_t state;
  struct operation *operation = named(handle, &state);
  if (operation && (state & OPEN)) {
    ADD(*(is_send ? &operation->sends : &operation->recvs), steps);
    if (is_send)
      ADD(operation->sent_bytes, bytes);
  }
  close_part(handle);
}
