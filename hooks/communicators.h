/* The communicators of this process: from ncclComm_t, and from the profiler's context, to a board.
 *
 * A communicator is named alike by all its members. The profiler plugin tells NCCL's commHash;
 * without it the name is derived from what all members pass: the unique id, or the parent's name,
 * the number of the split and the colour. 0: unknown (initialised before we were loaded). */
#ifndef ONCALL_HOOKS_COMMUNICATORS_H
#define ONCALL_HOOKS_COMMUNICATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_api.h"
#include "ring.h"

struct communicator {
  struct oncall_communicator *board;
  uint64_t derived;   /* its name without the plugin */
  uint64_t newest;    /* handle of its newest operation that is followed; 0: none */
  uint32_t children;  /* how often it was split, shrunk or grown */
  uint32_t plans;     /* kernel plans begun */
  uint32_t plan_over; /* the latest of which an operation is over */
  uint32_t profiler;  /* version of the plugin interface that feeds it; 0: none */
  uint16_t slot;      /* of its board */
};

/* A communicator that begins its life; NULL: not recorded. `rank`, `size` -1: not known yet. */
struct communicator *communicator_begin(uint64_t derived, uint64_t parent, int rank, int size);

/* The name the program gave it; NULL: none. */
void communicator_call_it(struct communicator *communicator, const char *name);

/* Its initialisation returned `result` and, where it is known already, `pointer`. */
void communicator_begun(struct communicator *communicator, ncclComm_t pointer, int result);

/* That of `pointer`; registered at first sight; NULL: not recorded. */
struct communicator *communicator_of(ncclComm_t pointer);

/* That of `pointer` if it is known; NULL otherwise. */
struct communicator *communicator_known(ncclComm_t pointer);

/* `pointer` is about to be freed, and may soon name another. Returns what it named, or NULL. */
struct communicator *communicator_forget(ncclComm_t pointer);

void communicator_close(struct communicator *communicator, enum oncall_communicator_state state);

void communicator_state(struct communicator *communicator, enum oncall_communicator_state state);

/* An error it answered with; success and ncclInProgress are none. */
void communicator_error(struct communicator *communicator, int result);

/* What NCCL handed to the profiler plugin about it. */
void communicator_identified(struct communicator *communicator, uint64_t hash, const char *name,
                             int nodes, int size, int rank);

/* The one that is `rank` of `size`, or may be, and awaits its pointer, or else what the plugin will
 * be handed. NULL: it is none, or one of several `candidates`. */
struct communicator *communicator_awaiting(int rank, int size, bool its_pointer, int *candidates);

/* The one this thread is initialising; set around NCCL's call. */
extern _Thread_local struct communicator *communicator_initialising
    __attribute__((tls_model("initial-exec")));

uint64_t oncall_hash(uint64_t seed, const void *data, size_t bytes);

#endif
