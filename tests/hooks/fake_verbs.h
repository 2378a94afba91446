/* A libibverbs whose only device moves nothing: requests are over when a test says so. */
#ifndef ONCALL_TESTS_FAKE_VERBS_H
#define ONCALL_TESTS_FAKE_VERBS_H

#include <stdbool.h>

#include "verbs_api.h"

struct ibv_device *fake_device(void);
struct ibv_cq *fake_create_cq(struct ibv_context *context);
/* In the state RESET, with `number` and a send queue of `room` requests. */
struct ibv_qp *fake_create_qp(struct ibv_cq *sends, struct ibv_cq *receives, uint32_t number,
                              uint32_t room, bool all_signaled);

/* Requests are over as soon as they are posted; so they are at first. */
void fake_complete_at_once(struct ibv_qp *pair, bool at_once);
/* The oldest `requests` are over. */
void fake_complete(struct ibv_qp *pair, uint32_t requests);
/* The oldest fails with `status`; the others are flushed with it, signaled or not. */
void fake_fail(struct ibv_qp *pair, int status);
/* A receive is over. */
void fake_receive(struct ibv_qp *pair, uint64_t wr_id, int status);
/* Requests of this identity are refused. */
void fake_refuse(uint64_t wr_id);
/* Called while the device has a posting, and its caller has not: another thread, that is. */
void fake_meanwhile(void (*action)(void));

#endif
