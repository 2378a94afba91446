/* The functions that stand in front of libibverbs' own. Each does what the real one does, and
 * returns what it returned. */
#define _GNU_SOURCE
#include <errno.h>

#include "verbs_extended.h"
#include "verbs_library.h"
#include "verbs_patch.h"
#include "verbs_queue_pairs.h"

#define EXPORTED __attribute__((visibility("default")))

static struct ibv_context *opened(struct ibv_context *context) {
  int saved = errno;
  if (context && oncall_verbs_open())
    verbs_patch(context);
  errno = saved;
  return context;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device) {
  struct ibv_context *(*real)(struct ibv_device *) = verbs_real(VERBS_OPEN_DEVICE);
  return real ? opened(real(device)) : NULL;
}

EXPORTED struct ibv_context *ibv_import_device(int cmd_fd) {
  struct ibv_context *(*real)(int) = verbs_real(VERBS_IMPORT_DEVICE);
  return real ? opened(real(cmd_fd)) : NULL;
}

/* How many requests fit in its send queue (0: it does not say), and whether all are signaled. */
static uint32_t ask(struct ibv_qp *pair, bool *all_signaled) {
  int (*query)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *) =
      verbs_real(VERBS_QUERY_QP);
  struct ibv_qp_attr now = {0};
  struct ibv_qp_init_attr made = {0};
  if (!query || query(pair, &now, IBV_QP_CAP, &made) != 0)
    return 0;
  *all_signaled = made.sq_sig_all != 0;
  return made.cap.max_send_wr;
}

static void follow(struct ibv_qp *pair, const struct ibv_qp_attr *wanted, int mask) {
  bool all_signaled = false;
  if (mask & IBV_QP_STATE && wanted->qp_state == IBV_QPS_RTR) {
    uint32_t room = ask(pair, &all_signaled);
    queue_pair_ready(pair, wanted, mask, room, all_signaled);
  }
  if (mask & IBV_QP_STATE && wanted->qp_state == IBV_QPS_RESET)
    queue_pair_gone(pair);
  if (mask & IBV_QP_STATE && wanted->qp_state == IBV_QPS_ERR)
    queue_pair_failed(pair);
  if (mask & (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT))
    queue_pair_settings(pair, wanted, mask);
}

EXPORTED int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *wanted, int mask) {
  int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int) = verbs_real(VERBS_MODIFY_QP);
  if (!real)
    return ENOSYS;
  int failed = real(pair, wanted, mask);
  if (!failed && oncall_verbs()) {
    int saved = errno;
    follow(pair, wanted, mask);
    errno = saved;
  }
  return failed;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *pair) {
  int (*real)(struct ibv_qp *) = verbs_real(VERBS_DESTROY_QP);
  if (!real)
    return ENOSYS;
  /* Before it is gone: its number and its memory may be another's at once. */
  queue_pair_gone(pair);
  verbs_extended_restore(pair);
  return real(pair);
}

EXPORTED struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *pair) {
  struct ibv_qp_ex *(*real)(struct ibv_qp *) = verbs_real(VERBS_QP_TO_QP_EX);
  struct ibv_qp_ex *extended = real ? real(pair) : NULL;
  if (extended && oncall_verbs()) {
    int saved = errno;
    verbs_extended_patch(extended);
    errno = saved;
  }
  return extended;
}
