/* The least library that can stand behind the hooks: NCCL's names, and nothing moved.
 *
 * Built with -DNEWER it also has what came after NCCL 2.27. A freed communicator's memory is given
 * to the next one, as malloc does. `FAKE_RESULT` is what operations return, `FAKE_INIT` what
 * initialisations do. */
#include <stdlib.h>

#include "nccl_api.h"

struct ncclComm {
  int rank, size, used;
};
static struct ncclComm comms[16];

static ncclResult_t configured(const char *setting) {
  const char *value = getenv(setting);
  return (ncclResult_t)(value ? atoi(value) : 0);
}

static ncclResult_t make(ncclComm_t *comm, int rank, int size) {
  ncclResult_t result = configured("FAKE_INIT");
  *comm = NULL;
  if (result && result != ncclInProgress)
    return result;
  int at = 0;
  while (__atomic_exchange_n(&comms[at].used, 1, __ATOMIC_ACQUIRE))
    at++;
  comms[at].rank = rank;
  comms[at].size = size;
  *comm = &comms[at];
  return result;
}

/* Each function under both names, the plain one weak, as in the real library. */
#define BOTH(name, parameters)                                                                     \
  ncclResult_t nccl##name parameters __attribute__((weak, alias("pnccl" #name)));                  \
  ncclResult_t pnccl##name parameters

#define ANY(argument) ((void)(argument))
#define MOVED const void *send, void *recv, size_t count, int type
#define ON ncclComm_t comm, cudaStream_t stream
#define OPERATION(name, parameters)                                                                \
  BOTH(name, parameters);                                                                          \
  ncclResult_t pnccl##name parameters {                                                            \
    ANY(count), ANY(type), ANY(stream);                                                            \
    return comm ? configured("FAKE_RESULT") : ncclInvalidUsage;                                    \
  }

#pragma GCC diagnostic ignored "-Wunused-parameter"
OPERATION(AllReduce, (MOVED, int op, ON))
OPERATION(AllGather, (MOVED, ON))
OPERATION(ReduceScatter, (MOVED, int op, ON))
OPERATION(Broadcast, (MOVED, int root, ON))
OPERATION(Reduce, (MOVED, int op, int root, ON))
OPERATION(Send, (const void *send, size_t count, int type, int peer, ON))
OPERATION(Recv, (void *recv, size_t count, int type, int peer, ON))
#ifdef NEWER
OPERATION(AlltoAll, (MOVED, ON))
#endif

/* Calls itself by a public name, as the real one does. */
BOTH(Bcast, (void *buffer, size_t count, int type, int root, ON));
ncclResult_t pncclBcast(void *buffer, size_t count, int type, int root, ON) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

BOTH(GetVersion, (int *version));
ncclResult_t pncclGetVersion(int *version) {
  *version = 22703;
  return ncclSuccess;
}

BOTH(GroupStart, (void));
ncclResult_t pncclGroupStart(void) { return ncclSuccess; }
BOTH(GroupEnd, (void));
ncclResult_t pncclGroupEnd(void) { return ncclSuccess; }

BOTH(CommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank));
ncclResult_t pncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
  return make(comm, rank, size);
}

BOTH(CommInitAll, (ncclComm_t * all, int count, const int *devices));
ncclResult_t pncclCommInitAll(ncclComm_t *all, int count, const int *devices) {
  for (int rank = 0; rank < count; rank++)
    make(&all[rank], rank, count);
  return ncclSuccess;
}

BOTH(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *child, void *config));
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child, void *config) {
  *child = NULL;
  return color < 0 ? ncclSuccess : make(child, comm->rank / 2, (comm->size + 1) / 2);
}

#define OF_COMM(name, parameters, body)                                                            \
  BOTH(name, parameters);                                                                          \
  ncclResult_t pnccl##name parameters {                                                            \
    body;                                                                                          \
    return ncclSuccess;                                                                            \
  }
OF_COMM(CommFinalize, (ncclComm_t comm), (void)comm)
OF_COMM(CommDestroy, (ncclComm_t comm), __atomic_store_n(&comm->used, 0, __ATOMIC_RELEASE))
OF_COMM(CommAbort, (ncclComm_t comm), __atomic_store_n(&comm->used, 0, __ATOMIC_RELEASE))
OF_COMM(CommCount, (ncclComm_t comm, int *count), *count = comm->size)
OF_COMM(CommUserRank, (ncclComm_t comm, int *rank), *rank = comm->rank)
OF_COMM(CommCuDevice, (ncclComm_t comm, int *device), *device = 3)
OF_COMM(CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error), *error = ncclSuccess)
