/* Events in whatever order NCCL sends them, and some that it never should. */
#define _GNU_SOURCE
#include "plugin.h"

/* The kernel may be over before the launch is, or begin long after. */
static void launch_may_end_last(struct nccl *nccl) {
  void *call = nccl_call(nccl, 10);
  nccl_plan(nccl);
  void *task = nccl_launch(nccl, call, 10, 1);
  nccl_kernel_over(nccl, nccl_kernel(nccl, task, 1), 2);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 0);
  nccl_stop(nccl, task);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1);
  nccl_stop(nccl, call);
  EXPECT(count_of(ONCALL_RECORD_ENQUEUED) == 1);
  forget_records();
}

static void one_channel_after_the_other(struct nccl *nccl) {
  void *task = nccl_operation(nccl, 10, 3);
  for (int channel = 0; channel < 3; channel++) {
    EXPECT(count_of(ONCALL_RECORD_ENDED) == 0);
    nccl_kernel_over(nccl, nccl_kernel(nccl, task, 100), 200);
  }
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1);
  EXPECT(!nccl_kernel(nccl, task, 300)); /* it is stale now */
  EXPECT(!nccl_transfer(nccl, task, true, getpid()));
  nccl_stop(nccl, task);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1);
  forget_records();
}

/* Fewer kernel channels came than were announced: a later plan's end tells. */
static void later_plan_ends_older(struct nccl *nccl) {
  void *older = nccl_operation(nccl, 10, 4);
  nccl_kernel_over(nccl, nccl_kernel(nccl, older, 1), 2);
  void *never_launched = nccl_call(nccl, 20);
  nccl_stop(nccl, never_launched);
  void *later = nccl_operation(nccl, 30, 1);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 0);
  nccl_kernel_over(nccl, nccl_kernel(nccl, later, 3), 4);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 3);
  EXPECT(!nccl_launch(nccl, never_launched, 20, 1));
  forget_records();
}

/* Two of one plan end each on its own. */
static void one_plan_is_no_order(struct nccl *nccl) {
  void *calls[2] = {nccl_call(nccl, 10), NULL}, *tasks[2];
  nccl_stop(nccl, calls[0]);
  calls[1] = nccl_call(nccl, 20);
  nccl_stop(nccl, calls[1]);
  nccl_plan(nccl);
  for (int i = 0; i < 2; i++) {
    tasks[i] = nccl_launch(nccl, calls[i], 10, 1);
    nccl_stop(nccl, tasks[i]);
  }
  nccl_kernel_over(nccl, nccl_kernel(nccl, tasks[1], 1), 2);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1);
  nccl_kernel_over(nccl, nccl_kernel(nccl, tasks[0], 1), 2);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 2);
  forget_records();
}

/* A transfer that outlasts a later plan, of an operation that lacks an announced channel. */
static void overtaken_operations_end_with_their_last_part(struct nccl *nccl) {
  void *older = nccl_operation(nccl, 10, 2), *later;
  void *transfer = nccl_transfer(nccl, older, true, getpid());
  nccl_kernel_over(nccl, nccl_kernel(nccl, older, 1), 2);
  later = nccl_operation(nccl, 10, 1);
  nccl_kernel_over(nccl, nccl_kernel(nccl, later, 3), 4);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1);
  nccl_stop(nccl, transfer);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 2);
  forget_records();
}

/* Ancestors that we do not ask for, types from the future, children of what we do not follow. */
static void unwanted_events_have_no_handle(struct nccl *nccl) {
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileGroupApi,
                                                      .groupApi = {.groupDepth = 1}}));
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileKernelLaunch}));
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileProxyCtrl}));
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = 1 << 14}));
  EXPECT(!nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileCollApi,
                                                      .collApi = {.func = "Unknown", .count = 1}}));
  EXPECT(!nccl_launch(nccl, NULL, 1, 1) && !nccl_kernel(nccl, NULL, 1));
  EXPECT(!nccl_step(nccl, NULL) && !nccl_transfer(nccl, NULL, true, getpid()));
  nccl_stop(nccl, NULL);
  nccl_waits(nccl, NULL, ncclProfilerProxyStepSendWait, 1);
  for (uint64_t kind = 1; kind < 16; kind++) {
    void *invented = (void *)(uintptr_t)(kind << 60 | 0x123456789abcdefull);
    nccl_stop(nccl, invented);
    nccl_waits(nccl, invented, ncclProfilerProxyStepSendWait, 1);
    nccl_waits(nccl, invented, ncclProfilerKernelChStop, 1);
  }
  EXPECT(oncall_ring()->header->head == 0);
}

/* With PXN another process's context and parent come: neither may be looked at. */
static void foreign_transfers_are_left_alone(struct nccl *nccl) {
  void *task = nccl_operation(nccl, 10, 1);
  struct nccl foreign = *nccl;
  foreign.context = (void *)0xdeadbeef;
  EXPECT(!nccl_transfer(&foreign, (void *)0xdeadbee8, true, getpid() + 1));
  EXPECT(!nccl_transfer(nccl, task, true, getpid() + 1));
  nccl_kernel_over(nccl, nccl_kernel(nccl, task, 1), 2);
  EXPECT(count_of(ONCALL_RECORD_ENDED) == 1 && recorded(ONCALL_RECORD_ENDED, 0)->ended.sends == 0);
  EXPECT(oncall_ring()->header->lost_transfers == 0);
  forget_records();
}

/* A call captured into a graph runs whenever the graph does; its own end is that of the call. */
static void captured_calls_are_over_at_once(struct nccl *nccl) {
  ncclProfilerEventDescr_t event = {.type = ncclProfileCollApi};
  event.collApi.func = "Broadcast";
  event.collApi.count = 7;
  event.collApi.datatype = "ncclInt64";
  event.collApi.root = 2;
  event.collApi.graphCaptured = true;
  EXPECT(!nccl_start(nccl, event));
  const struct oncall_record *entered = recorded(ONCALL_RECORD_ENTERED, 0);
  EXPECT(entered->entered.captured == 1 && entered->entered.peer == 2);
  EXPECT(count_of(ONCALL_RECORD_ENQUEUED) == 1 && count_of(ONCALL_RECORD_ENDED) == 1);
  forget_records();
}

static void explicit_groups_are_numbered(struct nccl *nccl) {
  void *group = nccl_start(
      nccl, (ncclProfilerEventDescr_t){.type = ncclProfileGroupApi, .groupApi = {.groupDepth = 2}});
  ncclProfilerEventDescr_t send = {.type = ncclProfileP2pApi};
  send.p2pApi.func = "Send";
  send.p2pApi.count = 5;
  send.p2pApi.datatype = "ncclFloat16";
  nccl_stop(nccl, nccl_start(nccl, send));
  nccl_stop(nccl, group);
  const struct oncall_record *entered = recorded(ONCALL_RECORD_ENTERED, 0);
  EXPECT(entered->group && entered->entered.op == ONCALL_SEND && entered->entered.sequence == 1);
  const struct oncall_record *whole = recorded(ONCALL_RECORD_GROUP, 0);
  EXPECT(whole->group == entered->group && whole->group_call.operations == 1);
  forget_records();
}

int main(void) {
  enter_run_folder();
  struct nccl nccl = nccl_begin(6, 0xabc, 0, 4);
  launch_may_end_last(&nccl);
  one_channel_after_the_other(&nccl);
  later_plan_ends_older(&nccl);
  one_plan_is_no_order(&nccl);
  overtaken_operations_end_with_their_last_part(&nccl);
  unwanted_events_have_no_handle(&nccl);
  foreign_transfers_are_left_alone(&nccl);
  captured_calls_are_over_at_once(&nccl);
  explicit_groups_are_numbered(&nccl);
  leave_run_folder();
  return 0;
}
