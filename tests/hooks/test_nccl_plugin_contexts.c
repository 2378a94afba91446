/* Communicators that the shim begins and NCCL reports to the plugin, which are alike until one of
 * them is used; and one that the shim sees only later. */
#define _GNU_SOURCE
#include "calls.h"
#include "plugin.h"

static ncclComm_t pointer_of(int number) { return (ncclComm_t)(uintptr_t)(0x1000 * (number + 1)); }

/* One AllReduce through the shim, reported by NCCL as of `nccl`; the handle of its launch. */
static void *operation(struct nccl *nccl, int number) {
  const struct operation_call call = {.op = ONCALL_ALL_REDUCE, .count = 10, .peer = -1};
  calls_enter(pointer_of(number), &call);
  void *handle = nccl_call(nccl, 10);
  nccl_stop(nccl, handle);
  calls_return(ncclSuccess);
  return nccl_launch(nccl, handle, 10, 1);
}

int main(void) {
  enter_run_folder();
  struct communicator *alike[2];
  struct nccl reported[2];
  for (int i = 0; i < 2; i++)
    alike[i] = communicator_begin(0x11 + (uint64_t)i, 0, 2, 4);
  for (int i = 0; i < 2; i++) /* by another thread of NCCL's, when the group ends */
    reported[i] = nccl_begin(6, 0xaa + (uint64_t)i, 2, 4);
  for (int i = 0; i < 2; i++)
    communicator_begun(alike[i], pointer_of(i), ncclSuccess);
  EXPECT(alike[0]->board->identity == 0x11 && alike[1]->board->identity == 0x12);
  EXPECT(operation(&reported[1], 0)); /* reported in another order than begun */
  EXPECT(operation(&reported[0], 1));
  EXPECT(alike[0]->board->identity == 0xab && alike[1]->board->identity == 0xaa);
  EXPECT(alike[0]->board->collectives.entered == 1 && alike[1]->board->collectives.entered == 1);
  EXPECT(oncall_ring()->header->communicators_made == 2);

  struct nccl late = nccl_begin(6, 0xcc, 0, 8);
  struct oncall_communicator *seen_first = &oncall_ring()->communicators[2];
  EXPECT(seen_first->identity == 0xcc && seen_first->state == ONCALL_COMMUNICATOR_RUNNING);
  struct communicator *shim = communicator_begin(0, 0, 0, 8);
  communicator_begun(shim, pointer_of(7), ncclSuccess);
  EXPECT(operation(&late, 7) && shim->board->identity == 0xcc);
  EXPECT(seen_first->state == ONCALL_COMMUNICATOR_DESTROYED);
  EXPECT(!late.finalize(late.context) && shim->board->state == ONCALL_COMMUNICATOR_RUNNING);

  nccl_begin(6, 0xdd, 3, 8);
  int status = nccl_mask; /* more communicators than there is room for switch nothing off */
  for (uint64_t more = 0; more < 1100; more++)
    nccl_begin(6, 0x1000 + more, 1, 16);
  EXPECT(status && nccl_mask == status);
  EXPECT(operation(&reported[1], 0));
  leave_run_folder();
  return 0;
}
