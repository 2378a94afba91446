/* Operations, from the call that enters them to their last event.
 *
 * Every operation is recorded when it is entered and when its call returns. It is followed beyond
 * that if the profiler plugin reports its progress: in a slot of a fixed pool, named by a
 * handle. It is over when its task was launched, and all kernel channels and transfers that were
 * begun or announced are over; or when a later one of its communicator is, for NCCL runs the
 * kernels of a communicator in order. */
#ifndef ONCALL_HOOKS_OPERATIONS_H
#define ONCALL_HOOKS_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "communicators.h"
#include "handles.h"

/* What the caller passed. */
struct operation_call {
  uint8_t op; /* enum oncall_operation */
  uint8_t dtype;
  bool captured; /* into a CUDA graph */
  int32_t peer;  /* or root; -1: none */
  uint64_t count;
  uint64_t stream;
  uint32_t group; /* 0: none */
};

/* An operation that has just been entered. */
struct operation_entry {
  struct communicator *communicator;
  uint64_t number; /* process-wide, from 1; 0: not recorded */
  uint64_t handle; /* 0: not followed */
};

static inline bool operation_is_point_to_point(uint8_t op) { return op >= ONCALL_SEND; }

/* The host called. `communicator` may be NULL: then nothing is recorded. */
struct operation_entry operation_enter(struct communicator *communicator,
                                       const struct operation_call *call);

/* The call returned `result`. */
void operation_returned(const struct operation_entry *entry, const struct operation_call *call,
                        int result);

/* Begin to follow one that was entered; returns its handle, 0: no slot is free. */
uint64_t operation_follow(const struct operation_entry *entry, const struct operation_call *call);

/* Its call failed: nothing will become of it. */
void operation_abandon(uint64_t handle);

/* The oldest followed operation of this kind that was not launched yet; 0: none. Where the plugin
 * is not handed calls (v4), this is how launches are joined to them. `peer` counts only for Send
 * and Recv. */
uint64_t operation_unlaunched(struct communicator *communicator, uint8_t op, uint64_t bytes,
                              int32_t peer);

/* NCCL's choice for it. */
struct operation_choice {
  const char *algorithm, *protocol; /* NULL: unknown */
  uint8_t channels, warps;
  uint8_t announced; /* kernel channels of which events will come, at least */
  uint64_t plan_count;
};

/* Each of these returns a handle of its own kind, or 0 if `handle` names no operation. */
uint64_t operation_launch(uint64_t handle, const struct operation_choice *choice);
uint64_t operation_kernel(uint64_t handle, uint64_t gpu_ns);
bool operation_transfer(uint64_t handle, uint64_t *number, uint16_t *communicator);

/* And ends so. `gpu_ns` by the GPU's clock, 0: unknown. */
void operation_launched(uint64_t handle);
void operation_kernel_gpu_end(uint64_t handle, uint64_t gpu_ns);
void operation_kernel_over(uint64_t handle);
void operation_transfer_over(uint64_t handle, bool is_send, uint32_t steps, uint64_t bytes);

#endif
