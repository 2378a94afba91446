/* The measurement inside DOCA PCC: what the NIC calls for each event, and for each request of the
 * host. Congestion control itself stays the NIC's own. */
#include <doca_pcc_dev.h>
#include <doca_pcc_dev_algo_access.h>
#include <doca_pcc_dev_event.h>
#include <doca_pcc_dev_services.h>

#include "measurement.h"

static struct measurement measured; /* zeros are its beginning */

/* There is no getter for it: bits 16 to 31 of the event's second word. */
static uint32_t get_vhca(const doca_pcc_dev_event_t *event) {
  return __builtin_bswap32(((const uint32_t *)event)[1]) >> 16;
}

/* The header says "serial number of this event". Where it proves to be that of the burst's last
 * packet, which has 24 bits: those at the top, so that differences wrap as they do. */
static void set_serial(struct tx_event *burst, uint32_t sn) {
#ifdef ONCALL_SN_OF_PACKETS
  burst->next_sn = (sn + 1) << 8;
  burst->sn = burst->next_sn - (burst->packets << 8);
#else
  burst->sn = sn;
  burst->next_sn = sn + 1;
#endif
}

static void record(doca_pcc_dev_event_t *event) {
  doca_pcc_dev_roce_tx_cntrs_t sent = doca_pcc_dev_get_roce_tx_cntrs(event);
  struct tx_event burst = {
      .qpn = doca_pcc_dev_get_flow_qpn(event),
      .vhca = get_vhca(event),
      .first_ns = doca_pcc_dev_get_roce_first_timestamp(event),
      .last_ns = doca_pcc_dev_get_timestamp(event),
      .units = sent.sent_32bytes,
      .packets = sent.sent_pkts,
  };
  set_serial(&burst, doca_pcc_dev_get_sn(event));
  measurement_record(&measured, doca_pcc_dev_thread_rank(), &burst);
}

/* Recorded first, whatever the slot: queue pairs that negotiated no enhanced connection, as
 * NCCL's, may come on any. The rate is then the internal algorithm's. */
void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt, doca_pcc_dev_event_t *event,
                            const doca_pcc_dev_attr_t *attr, doca_pcc_dev_results_t *results) {
  if (doca_pcc_dev_get_ev_attr(event).ev_type == DOCA_PCC_DEV_EVNT_ROCE_TX)
    record(event);
  doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
}

/* Notifications of congestion and round trips stay: the internal algorithm lives by them. */
void doca_pcc_dev_user_init(uint32_t *disable_event_bitmask) {
  *disable_event_bitmask = 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK | 1u << DOCA_PCC_DEV_EVNT_ROCE_NACK;
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t *new_param_values,
                                                       uint32_t *params) {
  (void)port_num, (void)algo_slot, (void)param_id_base, (void)param_num;
  (void)new_param_values, (void)params;
  return DOCA_PCC_DEV_STATUS_OK;
}

/* No counters of the NIC are read here: that call is fatal in a mailbox handler. */
doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(void *request, uint32_t request_size,
                                                      uint32_t max_response_size, void *response,
                                                      uint32_t *response_size) {
  *response_size = measurement_answer(&measured, request, request_size, doca_pcc_dev_get_timer(),
                                      response, max_response_size);
  return *response_size ? DOCA_PCC_DEV_STATUS_OK : DOCA_PCC_DEV_STATUS_FAIL;
}
