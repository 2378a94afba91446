#include "calls.h"

_Thread_local struct calls calls_of_thread;

static uint32_t groups;

void calls_enter(ncclComm_t comm, const struct operation_call *call) {
  struct calls *calls = &calls_of_thread;
  if (calls->inside++)
    return;
  calls->call = *call;
  calls->call.group = calls->group;
  calls->group_operations++;
  calls->entry = operation_enter(communicator_of(comm), &calls->call);
  /* Version 4 of the plugin sees launches only: from here on, follow what they may belong to. */
  if (calls->entry.number && calls->entry.communicator->profiler == 4)
    calls->entry.handle = operation_follow(&calls->entry, &calls->call);
}

void calls_return(int result) {
  struct calls *calls = &calls_of_thread;
  if (--calls->inside)
    return;
  operation_returned(&calls->entry, &calls->call, result);
  calls->entry.number = 0;
}

uint32_t calls_next_group(void) { return __atomic_add_fetch(&groups, 1, __ATOMIC_RELAXED); }

void calls_group_start(void) {
  struct calls *calls = &calls_of_thread;
  if (calls->inside || calls->group_depth++)
    return;
  calls->group = calls_next_group();
  calls->group_operations = 0;
  calls->group_started_ns = oncall_now_ns();
}

bool calls_group_end(void) {
  struct calls *calls = &calls_of_thread;
  if (calls->inside || !calls->group_depth || --calls->group_depth)
    return false;
  calls_record_group(calls->group, calls->group_operations, calls->group_started_ns);
  calls->group = 0;
  return true;
}

void calls_record_group(uint32_t group, uint32_t operations, int64_t started_ns) {
  const struct oncall_record record = {
      .time_ns = oncall_now_ns(),
      .kind = ONCALL_RECORD_GROUP,
      .communicator = UINT16_MAX,
      .group = group,
      .group_call = {.operations = operations, .started_ns = started_ns},
  };
  oncall_ring_write(&record);
}
