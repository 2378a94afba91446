/* One operation from call to end, reported by each version of the plugin interface. */
#define _GNU_SOURCE
#include "plugin.h"

static void check_life(struct nccl *nccl, void *task) {
  const struct oncall_record *entered = recorded(ONCALL_RECORD_ENTERED, 0);
  EXPECT(entered && entered->entered.sequence == 1 && entered->entered.op == ONCALL_ALL_REDUCE);
  EXPECT(entered->entered.count == 1000 && entered->entered.dtype == ncclFloat32);
  EXPECT(recorded(ONCALL_RECORD_ENQUEUED, 0)->operation == entered->operation);
  const struct oncall_record *described = recorded(ONCALL_RECORD_DESCRIBED, 0);
  EXPECT(described->operation == entered->operation && described->described.channels == 2);
  EXPECT(!strcmp(described->described.algorithm, "RING"));
  EXPECT(!strcmp(described->described.protocol, "SIMPLE"));

  void *send = nccl_transfer(nccl, task, true, getpid());
  void *first = nccl_kernel(nccl, task, 5000), *second = nccl_kernel(nccl, task, 4000);
  EXPECT(send && first && second && count_of(ONCALL_RECORD_STARTED) == 1);
  void *steps[2] = {nccl_step(nccl, send), nccl_step(nccl, send)};
  for (int i = 0; i < 2; i++) {
    nccl_waits(nccl, steps[i], ncclProfilerProxyStepSendGPUWait, 0);
    nccl_waits(nccl, steps[i], ncclProfilerProxyStepSendPeerWait_v4, 0);
    nccl_waits(nccl, steps[i], ncclProfilerProxyStepSendWait, 2000);
  }
  struct oncall_transfer *board = oncall_ring()->transfers;
  while (!board->operation)
    board++;
  EXPECT(board->operation == entered->operation && board->channel == 3 && board->peer == 1);
  EXPECT(board->wait == ONCALL_WAIT_SEND_WIRE && board->is_send && board->steps == 2);
  nccl_kernel_over(nccl, second, 9000);
  nccl_kernel_over(nccl, first, 8000);
  nccl_stop(nccl, steps[0]);
  EXPECT(board->steps_done == 1 && board->bytes == 2000 && board->wait == ONCALL_WAIT_SEND_WIRE);
  nccl_stop(nccl, steps[1]);
  EXPECT(board->steps_done == 2 && board->wait == ONCALL_WAIT_NONE && board->last_step_ns);
  EXPECT(!recorded(ONCALL_RECORD_ENDED, 0)); /* the transfer is not over */
  nccl_stop(nccl, send);
  EXPECT(board->operation == 0);

  const struct oncall_record *over = recorded(ONCALL_RECORD_TRANSFER, 0);
  EXPECT(over->operation == entered->operation && over->group == 2 && over->transfer.is_send);
  EXPECT(over->transfer.bytes == 4000 && over->transfer.channel == 3);
  const struct oncall_record *ended = recorded(ONCALL_RECORD_ENDED, 0);
  EXPECT(ended && ended->operation == entered->operation && ended->ended.sends == 2);
  EXPECT(ended->ended.gpu_duration_ns == 5000 && ended->ended.channels == 2);
  EXPECT(ended->ended.bytes == 4000 && count_of(ONCALL_RECORD_ENDED) == 1);
}

int main(void) {
  enter_run_folder();
  for (int version = 4; version <= 6; version++) {
    struct nccl nccl = nccl_begin(version, 0xabc0 + (uint64_t)version, 1, 4);
    EXPECT(nccl.context && (nccl_mask & ncclProfileKernelCh) && (nccl_mask & ncclProfileColl));
    struct oncall_communicator *board = &oncall_ring()->communicators[version - 4];
    EXPECT(board->identity == 0xabc0 + (uint64_t)version && board->identity_is_hash);
    EXPECT(board->rank == 1 && board->size == 4 && !strcmp(board->name, "tp"));
    EXPECT(board->state == ONCALL_COMMUNICATOR_RUNNING);
    check_life(&nccl, nccl_operation(&nccl, 1000, 2));
    EXPECT(board->collectives.entered == 1 && board->collectives.ended == 1);
    EXPECT(!nccl.finalize(nccl.context) && board->state == ONCALL_COMMUNICATOR_DESTROYED);
    forget_records();
  }
  leave_run_folder();
  return 0;
}
