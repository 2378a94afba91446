/* The names of DOCA PCC's host library that poller.c uses, declared anew: with DOCA installed its
 * own headers are found instead. Written from documentation; nothing is copied. */
#ifndef ONCALL_SHIM_DOCA_PCC_H
#define ONCALL_SHIM_DOCA_PCC_H

#include <doca_dev.h>
#include <doca_error.h>
#include <stddef.h>
#include <stdint.h>

struct doca_pcc;
struct doca_pcc_app; /* the device's program, as dpacc links it in */

typedef enum {
  DOCA_PCC_PS_ACTIVE = 0,
  DOCA_PCC_PS_STANDBY = 1,
  DOCA_PCC_PS_DEACTIVATED = 2,
  DOCA_PCC_PS_ERROR = 3,
} doca_pcc_process_state_t;

doca_error_t doca_pcc_create(struct doca_dev *device, struct doca_pcc **pcc);
doca_error_t doca_pcc_destroy(struct doca_pcc *pcc);
doca_error_t doca_pcc_get_min_num_threads(struct doca_pcc *pcc, uint32_t *least);
doca_error_t doca_pcc_get_max_num_threads(struct doca_pcc *pcc, uint32_t *most);
doca_error_t doca_pcc_set_app(struct doca_pcc *pcc, struct doca_pcc_app *app);
doca_error_t doca_pcc_set_thread_affinity(struct doca_pcc *pcc, uint32_t threads,
                                          uint32_t *execution_units);
doca_error_t doca_pcc_set_mailbox(struct doca_pcc *pcc, uint32_t request_size,
                                  uint32_t response_size);
doca_error_t doca_pcc_start(struct doca_pcc *pcc);
doca_error_t doca_pcc_stop(struct doca_pcc *pcc);
doca_error_t doca_pcc_get_process_state(const struct doca_pcc *pcc,
                                        doca_pcc_process_state_t *state);
doca_error_t doca_pcc_mailbox_get_request_buffer(struct doca_pcc *pcc, void **buffer);
doca_error_t doca_pcc_mailbox_get_response_buffer(struct doca_pcc *pcc, void **buffer);
doca_error_t doca_pcc_mailbox_send(struct doca_pcc *pcc, uint32_t request_size,
                                   uint32_t *response_size, uint32_t *handler_result);

#endif
