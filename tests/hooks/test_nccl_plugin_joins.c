/* Version 4 of the plugin gets launches only: each is joined to the call it came from. */
#define _GNU_SOURCE
#include "operations.h"
#include "plugin.h"

static struct communicator *communicator;
static struct nccl nccl;

/* As the shim does; returns the operation's number. */
static uint64_t enter(uint8_t op, uint64_t count, uint8_t dtype, int peer, uint32_t group) {
  const struct operation_call call = {
      .op = op, .dtype = dtype, .peer = peer, .count = count, .group = group};
  struct operation_entry entry = operation_enter(communicator, &call);
  entry.handle = operation_follow(&entry, &call);
  operation_returned(&entry, &call, ncclSuccess);
  return entry.number;
}

/* The number of the operation that this launch was joined to; 0: none. */
static uint64_t launch(const char *function, size_t count, const char *datatype, int peer) {
  ncclProfilerEventDescr_t event = {.type = ncclProfileColl};
  event.coll.func = function;
  event.coll.count = count;
  event.coll.datatype = datatype;
  event.coll.root = peer;
  if (peer >= 0 && (!strcmp(function, "Send") || !strcmp(function, "Recv"))) {
    event = (ncclProfilerEventDescr_t){.type = ncclProfileP2p};
    event.p2p.func = function;
    event.p2p.count = count;
    event.p2p.datatype = datatype;
    event.p2p.peer = peer;
  }
  int before = count_of(ONCALL_RECORD_DESCRIBED);
  void *task = nccl_start(&nccl, event);
  nccl_stop(&nccl, task);
  const struct oncall_record *described = recorded(ONCALL_RECORD_DESCRIBED, before);
  EXPECT((task != NULL) == (described != NULL));
  return described ? described->operation : 0;
}

int main(void) {
  enter_run_folder();
  communicator = communicator_begin(0x1234, 0, 2, 4);
  EXPECT(communicator);
  communicator_initialising = communicator;
  nccl = nccl_begin(4, 0xabc, 2, 4);
  communicator_initialising = NULL;
  EXPECT(communicator->profiler == 4 && communicator->board->identity == 0xabc);

  /* In bytes: NCCL reports AllGather and Broadcast as of so many ncclInt8. */
  uint64_t gather = enter(ONCALL_ALL_GATHER, 100, ncclFloat32, -1, 0);
  EXPECT(launch("AllGather", 400, "ncclInt8", 0) == gather);
  EXPECT(launch("AllGather", 400, "ncclInt8", 0) == 0); /* once */

  /* Alike in a row: in their order. */
  uint64_t first = enter(ONCALL_ALL_REDUCE, 8, ncclFloat16, -1, 0);
  uint64_t second = enter(ONCALL_ALL_REDUCE, 8, ncclFloat16, -1, 0);
  EXPECT(launch("AllReduce", 8, "ncclFloat16", 0) == first);
  EXPECT(launch("AllReduce", 8, "ncclFloat16", 0) == second);

  /* A group in NCCL's order, not the caller's; a peer tells sends apart. */
  uint64_t large = enter(ONCALL_ALL_REDUCE, 99, ncclFloat16, -1, 7);
  uint64_t to_one = enter(ONCALL_SEND, 5, ncclInt64, 1, 7);
  uint64_t to_three = enter(ONCALL_SEND, 5, ncclInt64, 3, 7);
  uint64_t small = enter(ONCALL_ALL_REDUCE, 9, ncclFloat16, -1, 7);
  EXPECT(launch("Send", 5, "ncclInt64", 3) == to_three);
  EXPECT(launch("AllReduce", 9, "ncclFloat16", 0) == small);
  EXPECT(launch("AllReduce", 99, "ncclFloat16", 0) == large);
  EXPECT(launch("Send", 5, "ncclInt64", 1) == to_one);
  EXPECT(launch("Send", 5, "ncclInt64", 2) == 0);

  /* A graph's run: nobody called. */
  EXPECT(launch("AllReduce", 12345, "ncclFloat16", 0) == 0);
  leave_run_folder();
  return 0;
}
