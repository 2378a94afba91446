/* Hooks of what came later than NCCL 2.18: AlltoAll, Gather and Scatter (2.28), one-sided
 * operations (2.29), the variants with a configuration (2.32). */
#include "nccl_shim_calls.h"

ONCALL_HOOK_NEWER(AlltoAll, ONCALL_ALL_TO_ALL, count, type, -1,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream),
                  (send, recv, count, type, comm, stream))

ONCALL_HOOK_NEWER(Gather, ONCALL_GATHER, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream),
                  (send, recv, count, type, root, comm, stream))

ONCALL_HOOK_NEWER(Scatter, ONCALL_SCATTER, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream),
                  (send, recv, count, type, root, comm, stream))

ONCALL_HOOK_NEWER(PutSignal, ONCALL_PUT_SIGNAL, count, type, peer,
                  (const void *buffer, size_t count, ncclDataType_t type, int peer,
                   ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags,
                   ncclComm_t comm, cudaStream_t stream),
                  (buffer, count, type, peer, window, offset, signal, context, flags, comm, stream))

ONCALL_HOOK_NEWER(Signal, ONCALL_SIGNAL, 0, 0, peer,
                  (int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
                   cudaStream_t stream),
                  (peer, signal, context, flags, comm, stream))

ONCALL_HOOK_NEWER(WaitSignal, ONCALL_WAIT_SIGNAL, 0, 0,
                  count == 1 && signals ? signals[0].peer : -1,
                  (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream),
                  (count, signals, comm, stream))

ONCALL_HOOK_NEWER(AllReduceConfig, ONCALL_ALL_REDUCE, count, type, -1,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, op, comm, stream, config))

ONCALL_HOOK_NEWER(BroadcastConfig, ONCALL_BROADCAST, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, root, comm, stream, config))

ONCALL_HOOK_NEWER(ReduceConfig, ONCALL_REDUCE, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, op, root, comm, stream, config))

ONCALL_HOOK_NEWER(AllGatherConfig, ONCALL_ALL_GATHER, count, type, -1,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, comm, stream, config))

ONCALL_HOOK_NEWER(ReduceScatterConfig, ONCALL_REDUCE_SCATTER, count, type, -1,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, op, comm, stream, config))

ONCALL_HOOK_NEWER(AlltoAllConfig, ONCALL_ALL_TO_ALL, count, type, -1,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, comm, stream, config))

ONCALL_HOOK_NEWER(GatherConfig, ONCALL_GATHER, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, root, comm, stream, config))

ONCALL_HOOK_NEWER(ScatterConfig, ONCALL_SCATTER, count, type, root,
                  (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
                  (send, recv, count, type, root, comm, stream, config))
