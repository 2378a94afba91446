#include "transfers.h"

#include "operations.h"

enum { MOST = 4096 };

struct step {
  bool under_way;
  uint8_t wait;
  uint32_t number;
  uint64_t bytes;
  int64_t since_ns;
};

/* What is kept of a transfer beside its board; its slot is the board's. */
struct transfer {
  uint32_t generation; /* odd: in use */
  struct oncall_transfer *board;
  uint64_t operation; /* handle */
  uint32_t begun, oldest;
  struct step steps[HANDLE_STEPS];
};

static struct transfer transfers[MOST];

static struct transfer *named(uint64_t handle, enum handle_kind kind) {
  if (!handle || handle_kind(handle) != kind || handle_slot(handle) >= MOST)
    return NULL;
  struct transfer *transfer = &transfers[handle_slot(handle)];
  uint32_t generation = __atomic_load_n(&transfer->generation, __ATOMIC_ACQUIRE);
  bool same = (generation & HANDLE_GENERATIONS) == handle_generation(handle);
  return (generation & 1) && same ? transfer : NULL;
}

uint64_t transfer_begin(uint64_t handle, const struct transfer_start *start) {
  uint64_t number;
  uint16_t communicator;
  if (!operation_transfer(handle, &number, &communicator))
    return 0;
  struct oncall_transfer *board = oncall_transfer_claim(number);
  uint32_t slot = board ? (uint32_t)(board - oncall_ring()->transfers) : MOST;
  if (slot >= MOST) {
    if (board) {
      oncall_board_end(&board->version);
      oncall_transfer_release(board);
    }
    operation_transfer_over(handle, start->is_send, 0, 0);
    return 0;
  }
  board->communicator = communicator;
  board->channel = start->channel;
  board->is_send = start->is_send;
  board->peer = start->peer;
  board->steps = start->steps;
  board->since_ns = board->started_ns;
  oncall_board_end(&board->version);

  struct transfer *transfer = &transfers[slot];
  transfer->board = board;
  transfer->operation = handle;
  transfer->begun = transfer->oldest = 0;
  for (uint32_t i = 0; i < HANDLE_STEPS; i++)
    transfer->steps[i].under_way = false;
  uint32_t generation = (transfer->generation + 1) | 1;
  __atomic_store_n(&transfer->generation, generation, __ATOMIC_RELEASE);
  return handle_make(HANDLE_TRANSFER, generation, slot);
}

/* ------------------------------------------------------------------ steps */

/* The one that was begun first of those under way; steps begin in order. */
static const struct step *oldest_step(struct transfer *transfer) {
  for (; transfer->oldest < transfer->begun; transfer->oldest++) {
    const struct step *step = &transfer->steps[transfer->oldest % HANDLE_STEPS];
    if (step->under_way && step->number == transfer->oldest)
      return step;
  }
  return NULL;
}

static void show(struct transfer *transfer, int64_t now_ns) {
  const struct step *oldest = oldest_step(transfer);
  transfer->board->wait = oldest ? oldest->wait : ONCALL_WAIT_NONE;
  transfer->board->since_ns = oldest ? oldest->since_ns : now_ns;
}

/* Numbered here: where NCCL's own numbers begin, and how they go on, differs by version. */
uint64_t transfer_step(uint64_t handle) {
  struct transfer *transfer = named(handle, HANDLE_TRANSFER);
  if (!transfer)
    return 0;
  uint32_t own = transfer->begun++;
  int64_t now_ns = oncall_now_ns();
  transfer->steps[own % HANDLE_STEPS] =
      (struct step){.under_way = true, .number = own, .since_ns = now_ns};
  return handle_of_step(handle, own);
}

static struct transfer *step_named(uint64_t handle, struct step **step) {
  struct transfer *transfer = named(handle, HANDLE_STEP);
  if (!transfer)
    return NULL;
  *step = &transfer->steps[handle_step(handle)];
  return (*step)->under_way ? transfer : NULL;
}

/* The step's wait ends now, and `wait` begins. */
static void turn(struct transfer *transfer, struct step *step, enum oncall_wait wait,
                 int64_t now_ns) {
  transfer->board->waited_ns[step->wait] += now_ns - step->since_ns;
  step->wait = wait;
  step->since_ns = now_ns;
}

void transfer_step_waits(uint64_t handle, enum oncall_wait wait, uint64_t bytes) {
  struct step *step;
  struct transfer *transfer = step_named(handle, &step);
  if (!transfer || !oncall_board_begin(&transfer->board->version))
    return;
  int64_t now_ns = oncall_now_ns();
  turn(transfer, step, wait, now_ns);
  if (bytes)
    step->bytes = bytes;
  show(transfer, now_ns);
  oncall_board_end(&transfer->board->version);
}

void transfer_step_over(uint64_t handle) {
  struct step *step;
  struct transfer *transfer = step_named(handle, &step);
  if (!transfer || !oncall_board_begin(&transfer->board->version))
    return;
  int64_t now_ns = oncall_now_ns();
  turn(transfer, step, ONCALL_WAIT_NONE, now_ns);
  step->under_way = false;
  struct oncall_transfer *board = transfer->board;
  board->steps_done++;
  board->bytes += step->bytes;
  board->last_step_ns = now_ns;
  show(transfer, now_ns);
  oncall_board_end(&board->version);
}

/* ------------------------------------------------------------------ the end */

static uint32_t microseconds(int64_t ns) {
  return ns < 0 ? 0 : ns / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 1000);
}

static void record(const struct oncall_transfer *board) {
  bool is_send = board->is_send;
  int64_t now_ns = oncall_now_ns();
  const int64_t *waited_ns = board->waited_ns;
  const struct oncall_record over = {
      .time_ns = now_ns,
      .operation = board->operation,
      .kind = ONCALL_RECORD_TRANSFER,
      .communicator = board->communicator,
      .group = board->steps,
      .transfer =
          {
              .bytes = board->bytes,
              .peer = board->peer,
              .channel = board->channel,
              .is_send = is_send,
              .first_wait_us =
                  microseconds(waited_ns[is_send ? ONCALL_WAIT_SEND_GPU : ONCALL_WAIT_RECV_WIRE]),
              .peer_wait_us =
                  microseconds(waited_ns[is_send ? ONCALL_WAIT_SEND_PEER : ONCALL_WAIT_RECV_FLUSH]),
              .last_wait_us =
                  microseconds(waited_ns[is_send ? ONCALL_WAIT_SEND_WIRE : ONCALL_WAIT_RECV_GPU]),
              .span_us = microseconds(now_ns - board->started_ns),
          },
  };
  oncall_ring_write(&over);
}

void transfer_over(uint64_t handle) {
  struct transfer *transfer = named(handle, HANDLE_TRANSFER);
  if (!transfer)
    return;
  struct oncall_transfer *board = transfer->board;
  /* Where steps are not reported, the end of the whole stands for all. */
  uint32_t steps = transfer->begun ? board->steps_done : board->steps;
  bool is_send = board->is_send;
  uint64_t bytes = board->bytes, operation = transfer->operation;
  record(board);
  __atomic_fetch_add(&transfer->generation, 1, __ATOMIC_RELEASE);
  oncall_transfer_release(board);
  operation_transfer_over(operation, is_send, steps, bytes);
}
