/* Hooks of the operations that every NCCL in use has (2.18 and later), and of group calls. */
#include "nccl_shim_calls.h"
#include "nccl_shim_communicators.h"

ONCALL_HOOK(AllReduce, ONCALL_ALL_REDUCE, count, type, -1,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream),
            (send, recv, count, type, op, comm, stream))

ONCALL_HOOK(AllGather, ONCALL_ALL_GATHER, count, type, -1,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
             cudaStream_t stream),
            (send, recv, count, type, comm, stream))

ONCALL_HOOK(ReduceScatter, ONCALL_REDUCE_SCATTER, count, type, -1,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, cudaStream_t stream),
            (send, recv, count, type, op, comm, stream))

ONCALL_HOOK(Broadcast, ONCALL_BROADCAST, count, type, root,
            (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, cudaStream_t stream),
            (send, recv, count, type, root, comm, stream))

ONCALL_HOOK(Bcast, ONCALL_BROADCAST, count, type, root,
            (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
             cudaStream_t stream),
            (buffer, count, type, root, comm, stream))

ONCALL_HOOK(Reduce, ONCALL_REDUCE, count, type, root,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream),
            (send, recv, count, type, op, root, comm, stream))

ONCALL_HOOK(Send, ONCALL_SEND, count, type, peer,
            (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream),
            (send, count, type, peer, comm, stream))

ONCALL_HOOK(Recv, ONCALL_RECV, count, type, peer,
            (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream),
            (recv, count, type, peer, comm, stream))

ncclResult_t ncclGroupStart(void);
ONCALL_EXPORT ncclResult_t ncclGroupStart(void) {
  ONCALL_REAL(GroupStart, (void))
  calls_group_start();
  return real();
}

ncclResult_t ncclGroupEnd(void);
ONCALL_EXPORT ncclResult_t ncclGroupEnd(void) {
  ONCALL_REAL(GroupEnd, (void))
  ncclResult_t result = real();
  if (calls_group_end())
    shim_resolve_initialisations(result);
  return result;
}
