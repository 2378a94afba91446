/* Sees what is posted and completed: ibv_post_send, ibv_post_recv and ibv_poll_cq are inline and
 * call through a table in the opened context. */
#ifndef ONCALL_HOOKS_VERBS_PATCH_H
#define ONCALL_HOOKS_VERBS_PATCH_H

#include "verbs_api.h"

/* Puts us into the context's table. In place: its provider knows the context by its address. */
void verbs_patch(struct ibv_context *context);

/* In a forked child: the thread that held the lock is not there. */
void verbs_patch_in_child(void);

#endif
