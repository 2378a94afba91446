/* What steers congestion control; see doca_pcc_dev.h. */
#ifndef ONCALL_SHIM_DOCA_PCC_DEV_ALGO_ACCESS_H
#define ONCALL_SHIM_DOCA_PCC_DEV_ALGO_ACCESS_H

#include <doca_pcc_dev.h>

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt,
                                        doca_pcc_dev_event_t *event,
                                        const doca_pcc_dev_attr_t *attr,
                                        doca_pcc_dev_results_t *results);

/* Called by the library. */
void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt, doca_pcc_dev_event_t *event,
                            const doca_pcc_dev_attr_t *attr, doca_pcc_dev_results_t *results);
void doca_pcc_dev_user_init(uint32_t *disable_event_bitmask);
doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t *new_param_values,
                                                       uint32_t *params);

#endif
