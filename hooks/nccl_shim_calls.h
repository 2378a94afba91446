/* How a hook of an operation looks: enter, forward, return. */
#ifndef ONCALL_HOOKS_NCCL_SHIM_CALLS_H
#define ONCALL_HOOKS_NCCL_SHIM_CALLS_H

#include "calls.h"
#include "nccl_library.h"

/* ncclNAME with `parameters`, forwarded with `arguments`: an operation of `op` on `comm` with
 * `elements` of `type` and `side`, the root or peer. `hook` is the symbol it is defined under. */
#define ONCALL_HOOK_AS(hook, name, operation, elements, type, side, parameters, arguments)         \
  ncclResult_t hook parameters;                                                                    \
  ONCALL_EXPORT ncclResult_t hook parameters {                                                     \
    ONCALL_REAL(name, parameters)                                                                  \
    const struct operation_call call = {.op = (operation),                                         \
                                        .dtype = (uint8_t)(type),                                  \
                                        .peer = (side),                                            \
                                        .count = (elements),                                       \
                                        .stream = (uint64_t)(uintptr_t)stream};                    \
    calls_enter(comm, &call);                                                                      \
    ncclResult_t result = real arguments;                                                          \
    calls_return(result);                                                                          \
    return result;                                                                                 \
  }

#define ONCALL_HOOK(name, operation, elements, type, side, parameters, arguments)                  \
  ONCALL_HOOK_AS(nccl##name, name, operation, elements, type, side, parameters, arguments)

/* An NCCL older than a function has programs that ask for it by dlsym and do without it. To them
 * a definition here would be a lie, so it bears a version that is not the default one: the dynamic
 * linker binds programs that name the function to it, and dlsym passes it over. The version must
 * be the library's first (oncall_hooks.map). */
#define ONCALL_HIDDEN_FROM_DLSYM(name)                                                             \
  __asm__(".symver oncall_nccl" #name ", nccl" #name "@ONCALL_NEWER")
#define ONCALL_HOOK_NEWER(name, operation, elements, type, side, parameters, arguments)            \
  ONCALL_HIDDEN_FROM_DLSYM(name);                                                                  \
  ONCALL_HOOK_AS(oncall_nccl##name, name, operation, elements, type, side, parameters, arguments)

#endif
