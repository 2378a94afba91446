/* Proxy operations and their steps: what a channel's send or receive waits for, and for how long.
 *
 * All events about one come from one thread, NCCL's proxy thread. */
#ifndef ONCALL_HOOKS_TRANSFERS_H
#define ONCALL_HOOKS_TRANSFERS_H

#include "handles.h"
#include "ring.h"

/* What NCCL says of a proxy operation. */
struct transfer_start {
  uint8_t channel;
  bool is_send;
  int32_t peer; /* rank in the communicator */
  uint32_t steps;
};

/* A transfer of the operation that `handle` names; its own handle, 0: not followed. */
uint64_t transfer_begin(uint64_t handle, const struct transfer_start *start);

/* It began its next step; the step's handle. */
uint64_t transfer_step(uint64_t transfer);

/* The step now waits for `wait`. `bytes` it moves; 0: unknown. */
void transfer_step_waits(uint64_t step, enum oncall_wait wait, uint64_t bytes);

void transfer_step_over(uint64_t step);

void transfer_over(uint64_t transfer);

#endif
