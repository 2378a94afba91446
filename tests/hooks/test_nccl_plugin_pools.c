/* More in flight than there are slots: counted, and NCCL notices nothing. */
#define _GNU_SOURCE
#include "plugin.h"

enum { MORE_OPERATIONS = 8192 + 10, MORE_TRANSFERS = 4096 + 10 };

static void operations_run_out(struct nccl *nccl) {
  static void *tasks[MORE_OPERATIONS];
  int without = 0;
  for (int i = 0; i < MORE_OPERATIONS; i++) {
    tasks[i] = nccl_operation(nccl, 10, 1);
    without += tasks[i] == NULL;
  }
  EXPECT(without == 10 && oncall_ring()->header->lost_operations == 10);
  for (int i = 0; i < MORE_OPERATIONS; i++)
    nccl_kernel_over(nccl, nccl_kernel(nccl, tasks[i], 1), 2);
  void *task = nccl_operation(nccl, 10, 1); /* there is room again */
  EXPECT(task);
  nccl_kernel_over(nccl, nccl_kernel(nccl, task, 1), 2);
  struct oncall_communicator *board = &oncall_ring()->communicators[0];
  EXPECT(board->collectives.entered == MORE_OPERATIONS + 1);
  EXPECT(board->collectives.ended == MORE_OPERATIONS + 1 - 10);
}

static void transfers_run_out(struct nccl *nccl) {
  static void *transfers[MORE_TRANSFERS];
  void *task = nccl_operation(nccl, 10, 1);
  int without = 0;
  for (int i = 0; i < MORE_TRANSFERS; i++) {
    transfers[i] = nccl_transfer(nccl, task, i % 2, getpid());
    without += transfers[i] == NULL;
    nccl_stop(nccl, nccl_step(nccl, transfers[i]));
  }
  EXPECT(without == 10 && oncall_ring()->header->lost_transfers == 10);
  for (int i = 0; i < MORE_TRANSFERS; i++)
    nccl_stop(nccl, transfers[i]);
  forget_records();
  nccl_kernel_over(nccl, nccl_kernel(nccl, task, 1), 2);
  const struct oncall_record *ended = recorded(ONCALL_RECORD_ENDED, 0);
  EXPECT(ended && ended->ended.sends + ended->ended.recvs == MORE_TRANSFERS - 10);
}

int main(void) {
  enter_run_folder();
  struct nccl nccl = nccl_begin(5, 0xabc, 0, 4);
  operations_run_out(&nccl);
  transfers_run_out(&nccl);
  leave_run_folder();
  return 0;
}
