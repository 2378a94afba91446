/* This process's verbs file: opened with its first RDMA device, written by whoever posts and polls.
 *
 * Nothing here fails loudly, as with the ring: without a file nothing is recorded, and every call
 * goes on to libibverbs as if we were not there. */
#ifndef ONCALL_HOOKS_VERBS_FILE_H
#define ONCALL_HOOKS_VERBS_FILE_H

#include "oncall_verbs.h"
#include "ring.h"

struct oncall_verbs {
  struct oncall_verbs_header *header;
  struct oncall_queue_pair *boards;
  struct oncall_request *requests;
  uint64_t request_mask; /* request_slots - 1 */
};

enum { ONCALL_QUEUE_PAIR_SLOTS = 4096 };

extern struct oncall_verbs *oncall_verbs_now; /* read it with oncall_verbs() */

/* The library is preloaded, and does not stand in libibverbs' place: which of the two is built. */
extern const bool oncall_verbs_preloaded;

/* This process's file, opened if it is not yet; NULL if it cannot be. May make system calls. */
struct oncall_verbs *oncall_verbs_open(void);

/* This process's file; NULL: not opened, or in a child that has not opened its own. */
static inline struct oncall_verbs *oncall_verbs(void) {
  return __atomic_load_n(&oncall_verbs_now, __ATOMIC_ACQUIRE);
}

/* Append a copy of `request` (its `stamp` is set here). A full ring drops it and counts. */
void oncall_verbs_write(struct oncall_verbs *verbs, const struct oncall_request *request);

#endif
