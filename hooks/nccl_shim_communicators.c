/* Hooks of the life of communicators. */
#include "nccl_shim_communicators.h"

#include <unistd.h>

#include "calls.h"
#include "nccl_library.h"
#include "nccl_shim_calls.h"

enum { MOST_DEFERRED = 64, MOST_DEVICES = 64 };

/* Initialisations that this thread's group will do; NCCL writes `*where` by its end. */
struct deferred {
  struct communicator *communicator;
  ncclComm_t *where;
};
static _Thread_local struct {
  uint32_t count;
  struct deferred *list;
} deferred __attribute__((tls_model("initial-exec")));

/* Room for the thread that first defers, a few threads in all: no allocation. */
static struct deferred rooms[8][MOST_DEFERRED];
static uint32_t rooms_taken;

static void defer(struct communicator *communicator, ncclComm_t *where) {
  if (!deferred.list) {
    uint32_t room = __atomic_fetch_add(&rooms_taken, 1, __ATOMIC_RELAXED);
    if (room >= sizeof rooms / sizeof *rooms)
      return;
    deferred.list = rooms[room];
  }
  if (deferred.count < MOST_DEFERRED)
    deferred.list[deferred.count++] = (struct deferred){communicator, where};
}

void shim_resolve_initialisations(int result) {
  for (uint32_t i = 0; i < deferred.count; i++)
    communicator_begun(deferred.list[i].communicator, *deferred.list[i].where, result);
  deferred.count = 0;
}

/* ------------------------------------------------------------------ beginning */

static struct communicator *begin(uint64_t derived, uint64_t parent, int rank, int size) {
  if (calls_of_thread.inside++)
    return NULL;
  struct communicator *communicator = communicator_begin(derived, parent, rank, size);
  communicator_initialising = communicator;
  return communicator;
}

/* The name in a configuration, where that goes so far; a wrong one is NCCL's to refuse. */
static void take_name(struct communicator *communicator, const ncclConfig_t *config) {
  if (communicator && config && config->magic == NCCL_API_MAGIC && config->size >= sizeof *config)
    communicator_call_it(communicator, config->commName);
}

static ncclResult_t begun(struct communicator *communicator, ncclComm_t *where,
                          ncclResult_t result) {
  calls_of_thread.inside--;
  if (!communicator)
    return result;
  communicator_initialising = NULL;
  if (calls_of_thread.group_depth && result == ncclSuccess)
    defer(communicator, where);
  else
    communicator_begun(communicator, where ? *where : NULL, result);
  return result;
}

#define INIT_RANK (ncclComm_t * comm, int size, ncclUniqueId id, int rank)
ncclResult_t ncclCommInitRank INIT_RANK;
ONCALL_EXPORT ncclResult_t ncclCommInitRank INIT_RANK {
  ONCALL_REAL(CommInitRank, INIT_RANK)
  struct communicator *communicator = begin(oncall_hash(0, &id, sizeof id), 0, rank, size);
  return begun(communicator, comm, real(comm, size, id, rank));
}

#define INIT_RANK_CONFIG                                                                           \
  (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
ncclResult_t ncclCommInitRankConfig INIT_RANK_CONFIG;
ONCALL_EXPORT ncclResult_t ncclCommInitRankConfig INIT_RANK_CONFIG {
  ONCALL_REAL(CommInitRankConfig, INIT_RANK_CONFIG)
  struct communicator *communicator = begin(oncall_hash(0, &id, sizeof id), 0, rank, size);
  take_name(communicator, config);
  return begun(communicator, comm, real(comm, size, id, rank, config));
}

#define INIT_RANK_SCALABLE                                                                         \
  (ncclComm_t * comm, int size, int rank, int count, ncclUniqueId *ids, ncclConfig_t *config)
ONCALL_HIDDEN_FROM_DLSYM(CommInitRankScalable);
ncclResult_t oncall_ncclCommInitRankScalable INIT_RANK_SCALABLE;
ONCALL_EXPORT ncclResult_t oncall_ncclCommInitRankScalable INIT_RANK_SCALABLE {
  ONCALL_REAL(CommInitRankScalable, INIT_RANK_SCALABLE)
  size_t bytes = ids && count > 0 ? (size_t)count * sizeof *ids : 0;
  struct communicator *communicator = begin(oncall_hash(0, ids, bytes), 0, rank, size);
  take_name(communicator, config);
  return begun(communicator, comm, real(comm, size, rank, count, ids, config));
}

#define INIT_ALL (ncclComm_t * comms, int count, const int *devices)
ncclResult_t ncclCommInitAll INIT_ALL;
ONCALL_EXPORT ncclResult_t ncclCommInitAll INIT_ALL {
  ONCALL_REAL(CommInitAll, INIT_ALL)
  struct communicator *members[MOST_DEVICES] = {NULL};
  int64_t seed[2] = {getpid(), oncall_now_ns()};
  for (int rank = 0; rank < count && rank < MOST_DEVICES; rank++)
    members[rank] = communicator_begin(oncall_hash(0, seed, sizeof seed), 0, rank, count);
  calls_of_thread.inside++;
  ncclResult_t result = real(comms, count, devices);
  calls_of_thread.inside--;
  for (int rank = 0; rank < count && rank < MOST_DEVICES; rank++)
    communicator_begun(members[rank], comms ? comms[rank] : NULL, result);
  return result;
}

/* ------------------------------------------------------------------ children */

/* All members of the parent make the same calls in the same order, so they count alike. */
static struct communicator *begin_child(ncclComm_t parent_pointer, uint64_t salt, int rank,
                                        int size) {
  struct communicator *parent =
      calls_of_thread.inside || !parent_pointer ? NULL : communicator_of(parent_pointer);
  uint64_t name = 0, parent_name = 0;
  if (parent) {
    uint64_t what[2] = {__atomic_add_fetch(&parent->children, 1, __ATOMIC_RELAXED), salt};
    parent_name = parent->board->identity;
    name = parent->derived ? oncall_hash(parent->derived, what, sizeof what) : 0;
  }
  return begin(name, parent_name, rank, size);
}

/* It will be no member. */
static struct communicator *begin_nothing(ncclComm_t parent_pointer) {
  struct communicator *parent = calls_of_thread.inside ? NULL : communicator_of(parent_pointer);
  if (parent)
    __atomic_add_fetch(&parent->children, 1, __ATOMIC_RELAXED);
  calls_of_thread.inside++;
  return NULL;
}

#define SPLIT (ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config)
ncclResult_t ncclCommSplit SPLIT;
ONCALL_EXPORT ncclResult_t ncclCommSplit SPLIT {
  ONCALL_REAL(CommSplit, SPLIT)
  struct communicator *communicator =
      color < 0 ? begin_nothing(comm) : begin_child(comm, (uint64_t)(uint32_t)color, -1, -1);
  take_name(communicator, config);
  return begun(communicator, child, real(comm, color, key, child, config));
}

#define SHRINK                                                                                     \
  (ncclComm_t comm, int *excluded, int count, ncclComm_t *child, ncclConfig_t *config, int flags)
ONCALL_HIDDEN_FROM_DLSYM(CommShrink);
ncclResult_t oncall_ncclCommShrink SHRINK;
ONCALL_EXPORT ncclResult_t oncall_ncclCommShrink SHRINK {
  ONCALL_REAL(CommShrink, SHRINK)
  uint64_t salt = 1ull << 32; /* in whatever order the members list the excluded */
  for (int i = 0; excluded && i < count; i++)
    salt += oncall_hash(0, &excluded[i], sizeof *excluded);
  struct communicator *communicator = begin_child(comm, salt, -1, -1);
  take_name(communicator, config);
  return begun(communicator, child, real(comm, excluded, count, child, config, flags));
}

/* Of the members that grow it only the root knows the id that the newcomers have: without the
 * plugin its name is not known. */
#define GROW                                                                                       \
  (ncclComm_t comm, int size, const ncclUniqueId *id, int rank, ncclComm_t *grown,                 \
   ncclConfig_t *config)
ONCALL_HIDDEN_FROM_DLSYM(CommGrow);
ncclResult_t oncall_ncclCommGrow GROW;
ONCALL_EXPORT ncclResult_t oncall_ncclCommGrow GROW {
  ONCALL_REAL(CommGrow, GROW)
  struct communicator *parent = comm ? communicator_of(comm) : NULL;
  struct communicator *communicator = begin(0, parent ? parent->board->identity : 0, rank, size);
  take_name(communicator, config);
  return begun(communicator, grown, real(comm, size, id, rank, grown, config));
}

/* ------------------------------------------------------------------ ending */

static bool succeeded(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

#define ONE_COMM (ncclComm_t comm)
ncclResult_t ncclCommFinalize ONE_COMM;
ONCALL_EXPORT ncclResult_t ncclCommFinalize ONE_COMM {
  ONCALL_REAL(CommFinalize, ONE_COMM)
  struct communicator *communicator = communicator_known(comm);
  calls_of_thread.inside++;
  ncclResult_t result = real(comm);
  calls_of_thread.inside--;
  if (succeeded(result))
    communicator_state(communicator, ONCALL_COMMUNICATOR_FINALISED);
  return result;
}

/* NCCL may give the pointer to another communicator as soon as it has freed this one. */
static ncclResult_t end(ncclResult_t (*real)(ncclComm_t), ncclComm_t comm,
                        enum oncall_communicator_state state) {
  struct communicator *communicator = communicator_forget(comm);
  calls_of_thread.inside++;
  ncclResult_t result = real(comm);
  calls_of_thread.inside--;
  if (succeeded(result))
    communicator_close(communicator, state);
  else if (communicator)
    communicator_begun(communicator, comm, ncclInProgress); /* it lives on */
  return result;
}

ncclResult_t ncclCommDestroy ONE_COMM;
ONCALL_EXPORT ncclResult_t ncclCommDestroy ONE_COMM {
  ONCALL_REAL(CommDestroy, ONE_COMM)
  return end(real, comm, ONCALL_COMMUNICATOR_DESTROYED);
}

ncclResult_t ncclCommAbort ONE_COMM;
ONCALL_EXPORT ncclResult_t ncclCommAbort ONE_COMM {
  ONCALL_REAL(CommAbort, ONE_COMM)
  return end(real, comm, ONCALL_COMMUNICATOR_ABORTED);
}

/* Nothing runs on a revoked communicator any more, though it can still be split and destroyed. */
#define REVOKE (ncclComm_t comm, int flags)
ONCALL_HIDDEN_FROM_DLSYM(CommRevoke);
ncclResult_t oncall_ncclCommRevoke REVOKE;
ONCALL_EXPORT ncclResult_t oncall_ncclCommRevoke REVOKE {
  ONCALL_REAL(CommRevoke, REVOKE)
  ncclResult_t result = real(comm, flags);
  if (succeeded(result))
    communicator_state(communicator_known(comm), ONCALL_COMMUNICATOR_FINALISED);
  return result;
}

/* ------------------------------------------------------------------ in between */

#define ASYNC_ERROR (ncclComm_t comm, ncclResult_t * error)
ncclResult_t ncclCommGetAsyncError ASYNC_ERROR;
ONCALL_EXPORT ncclResult_t ncclCommGetAsyncError ASYNC_ERROR {
  ONCALL_REAL(CommGetAsyncError, ASYNC_ERROR)
  ncclResult_t result = real(comm, error);
  struct communicator *communicator = communicator_known(comm);
  if (result == ncclSuccess && error && communicator) {
    communicator_error(communicator, *error);
    if (*error == ncclSuccess && __atomic_load_n(&communicator->board->state, __ATOMIC_RELAXED) ==
                                     ONCALL_COMMUNICATOR_INITIALISING)
      communicator_begun(communicator, comm, ncclSuccess);
  }
  return result;
}

/* It closes the group without running it. */
#define SIMULATE_END (ncclSimInfo_t * info)
ONCALL_HIDDEN_FROM_DLSYM(GroupSimulateEnd);
ncclResult_t oncall_ncclGroupSimulateEnd SIMULATE_END;
ONCALL_EXPORT ncclResult_t oncall_ncclGroupSimulateEnd SIMULATE_END {
  ONCALL_REAL(GroupSimulateEnd, SIMULATE_END)
  ncclResult_t result = real(info);
  if (calls_group_end())
    shim_resolve_initialisations(result);
  return result;
}
