/* The real NCCL behind the hooks: where its functions are. */
#ifndef ONCALL_HOOKS_NCCL_LIBRARY_H
#define ONCALL_HOOKS_NCCL_LIBRARY_H

#include "nccl_api.h"

/* The real ncclNAME, found at the first call and kept in `cell`; NULL: there is none.
 * `caller` is an address in the object that called us. */
void *oncall_nccl_find(void **cell, const char *name, const void *caller);

static inline void *oncall_nccl_function(void **cell, const char *name, const void *caller) {
  void *found = __atomic_load_n(cell, __ATOMIC_ACQUIRE);
  return __builtin_expect(found != NULL, 1) ? found : oncall_nccl_find(cell, name, caller);
}

/* Says once on stderr that NCCL lacks NAME; returns what the caller shall get. */
ncclResult_t oncall_nccl_missing(const char *name);

/* In a hook of ncclNAME: declares `real`, and returns if NCCL has no such function. */
#define ONCALL_REAL(name, parameters)                                                              \
  static void *cell;                                                                               \
  ncclResult_t(*real) parameters =                                                                 \
      (ncclResult_t(*) parameters)oncall_nccl_function(&cell, #name, __builtin_return_address(0)); \
  if (__builtin_expect(!real, 0))                                                                  \
    return oncall_nccl_missing(#name);

/* What is defined for others to bind to. */
#define ONCALL_EXPORT __attribute__((visibility("default")))

#endif
