/* Sees what is posted by calls (ibv_wr_start .. ibv_wr_complete, rdma-core 25 and newer): those
 * are inline, and call through pointers in the queue pair. */
#ifndef ONCALL_HOOKS_VERBS_EXTENDED_H
#define ONCALL_HOOKS_VERBS_EXTENDED_H

#include "verbs_api.h"

/* Puts us into the queue pair's pointers, once. */
void verbs_extended_patch(struct ibv_qp_ex *pair);

/* Takes us out again: it is about to be destroyed. */
void verbs_extended_restore(struct ibv_qp *pair);

/* In a forked child: the thread that held the lock is not there. */
void verbs_extended_in_child(void);

#endif
