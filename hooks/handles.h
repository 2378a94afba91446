/* What NCCL keeps for us between two callbacks: numbers, never addresses.
 *
 * A handle names a slot of a fixed pool and which of its lives is meant. One that is stale, from
 * another process (PXN) or invented is recognised, and nothing is read through it.
 *
 *   kind 4 bits | 4 bits, step | generation 24 bits | slot 32 bits
 */
#ifndef ONCALL_HOOKS_HANDLES_H
#define ONCALL_HOOKS_HANDLES_H

#include <stdint.h>

enum handle_kind {
  HANDLE_NONE = 0,
  HANDLE_CALL = 1,     /* CollApi, P2pApi: an operation, while its call lasts */
  HANDLE_TASK = 2,     /* Coll, P2p: an operation, while its kernel is being launched */
  HANDLE_KERNEL = 3,   /* KernelCh: an operation, while one of its kernel channels runs */
  HANDLE_TRANSFER = 4, /* ProxyOp */
  HANDLE_STEP = 5,     /* ProxyStep: a transfer's, one of HANDLE_STEPS */
  HANDLE_GROUP = 6,    /* GroupApi: its slot is the group's number */
  HANDLE_PAIR = 7,     /* one of ours and one of a chained plugin: profiler_pairs.h */
};

enum { HANDLE_STEPS = 16 }; /* NCCL has at most 8 steps of a proxy operation under way */

#define HANDLE_GENERATIONS 0xffffffu

static inline uint64_t handle_make(enum handle_kind kind, uint32_t generation, uint32_t slot) {
  return (uint64_t)kind << 60 | (uint64_t)(generation & HANDLE_GENERATIONS) << 32 | slot;
}

static inline uint64_t handle_of_step(uint64_t transfer, uint32_t step) {
  return (transfer & ~(0xffull << 56)) | (uint64_t)HANDLE_STEP << 60 |
         (uint64_t)(step % HANDLE_STEPS) << 56;
}

static inline enum handle_kind handle_kind(uint64_t handle) {
  return (enum handle_kind)(handle >> 60);
}

static inline uint32_t handle_step(uint64_t handle) { return handle >> 56 & 0xf; }

static inline uint32_t handle_generation(uint64_t handle) {
  return handle >> 32 & HANDLE_GENERATIONS;
}

static inline uint32_t handle_slot(uint64_t handle) { return (uint32_t)handle; }

/* The same slot and life, as another kind. */
static inline uint64_t handle_as(uint64_t handle, enum handle_kind kind) {
  return (handle & ~(0xffull << 56)) | (uint64_t)kind << 60;
}

#endif
