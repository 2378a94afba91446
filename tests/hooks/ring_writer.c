/* A process that records what stdin says, one command a line, and answers each by "ok". */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ring.h"

static uint64_t operations;

static void write_records(int count) {
  for (int number = 0; number < count; number++) {
    struct oncall_record record = {.time_ns = oncall_now_ns(), .operation = ++operations};
    record.kind = ONCALL_RECORD_ENTERED;
    record.entered.sequence = operations;
    record.entered.count = ~operations;
    record.entered.peer = -1;
    record.entered.op = ONCALL_ALL_REDUCE;
    oncall_ring_write(&record);
  }
}

/* As if the process had been stopped between reserving a record and finishing it. */
static void begin_record(void) {
  struct oncall_ring *ring = oncall_ring();
  uint64_t position = __atomic_fetch_add(&ring->header->head, 1, __ATOMIC_RELAXED);
  ring->records[position & ring->record_mask].operation = ++operations;
}

static void finish_record(void) {
  struct oncall_ring *ring = oncall_ring();
  for (uint64_t position = ring->header->tail; position < ring->header->head; position++)
    ring->records[position & ring->record_mask].stamp = position + 1;
}

static void make_communicator(int size) {
  struct oncall_communicator *board = oncall_communicator_claim();
  if (!board)
    return;
  board->state = ONCALL_COMMUNICATOR_RUNNING;
  board->identity = 0xfeed;
  board->rank = 1;
  board->size = size;
  snprintf(board->name, sizeof board->name, "tensor");
  oncall_board_end(&board->version);
}

static void make_transfer(int peer) {
  struct oncall_transfer *transfer = oncall_transfer_claim(++operations);
  if (!transfer)
    return;
  transfer->peer = peer;
  transfer->wait = ONCALL_WAIT_SEND_PEER;
  oncall_board_end(&transfer->version);
}

static void obey(const char *command, int number) {
  struct oncall_ring *ring = oncall_ring();
  if (!strcmp(command, "write"))
    write_records(number);
  if (!strcmp(command, "begin"))
    begin_record();
  if (!strcmp(command, "finish"))
    finish_record();
  if (!strcmp(command, "communicator"))
    make_communicator(number);
  if (!strcmp(command, "close"))
    oncall_communicator_close(&ring->communicators[number], ONCALL_COMMUNICATOR_DESTROYED);
  if (!strcmp(command, "begin-board"))
    oncall_board_begin(&ring->communicators[number].version);
  if (!strcmp(command, "transfer"))
    make_transfer(number);
  if (!strcmp(command, "release"))
    oncall_transfer_release(&ring->transfers[number]);
}

int main(void) {
  char line[256], command[32];
  printf("%s\n", oncall_ring_open() ? "recording" : "silent");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int number = 0;
    if (sscanf(line, "%31s %d", command, &number) >= 1 && oncall_ring())
      obey(command, number);
    puts("ok");
    fflush(stdout);
  }
  return 0;
}
