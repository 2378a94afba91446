/* What this thread is calling: the operation it has entered, the group it has opened.
 *
 * The shim writes it around NCCL's call; the profiler plugin, called by NCCL within that call,
 * reads it, and so a call and NCCL's events about it become one operation. */
#ifndef ONCALL_HOOKS_CALLS_H
#define ONCALL_HOOKS_CALLS_H

#include <stdbool.h>

#include "operations.h"

struct calls {
  struct operation_call call; /* `entry` is about it */
  struct operation_entry entry;
  uint32_t inside; /* hooks under way: NCCL calls itself by its public names */
  uint32_t group_depth, group;
  uint32_t group_operations;
  int64_t group_started_ns;
};

extern _Thread_local struct calls calls_of_thread __attribute__((tls_model("initial-exec")));

/* Around a call of NCCL by the program. `calls_begin` is false within another hook: then neither
 * it nor `calls_end` records anything, but `calls_end` must be called all the same. */
void calls_enter(ncclComm_t comm, const struct operation_call *call);
void calls_return(int result);

/* Around ncclGroupStart and ncclGroupEnd; the number of a group that was closed, else 0. */
void calls_group_start(void);
bool calls_group_end(void);
uint32_t calls_next_group(void);
void calls_record_group(uint32_t group, uint32_t operations, int64_t started_ns);

#endif
