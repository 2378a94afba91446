/* What is read from an event; see doca_pcc_dev.h. */
#ifndef ONCALL_SHIM_DOCA_PCC_DEV_EVENT_H
#define ONCALL_SHIM_DOCA_PCC_DEV_EVENT_H

#include <doca_pcc_dev.h>

typedef struct {
  uint32_t ev_type : 8;
  uint32_t ev_subtype : 8;
  uint32_t port_num : 8;
  uint32_t flags : 8;
} doca_pcc_dev_event_general_attr_t;

typedef struct {
  uint32_t sent_32bytes : 16;
  uint32_t sent_pkts : 16;
} doca_pcc_dev_roce_tx_cntrs_t;

static inline doca_pcc_dev_event_general_attr_t
doca_pcc_dev_get_ev_attr(doca_pcc_dev_event_t *event) {
  uint32_t word = __builtin_bswap32(event->ev_attr);
  return (doca_pcc_dev_event_general_attr_t){word & 255, word >> 8 & 255, word >> 16 & 255,
                                             word >> 24};
}

static inline uint32_t doca_pcc_dev_get_sn(doca_pcc_dev_event_t *event) {
  return __builtin_bswap32(event->sn);
}

static inline uint32_t doca_pcc_dev_get_timestamp(doca_pcc_dev_event_t *event) {
  return __builtin_bswap32(event->timestamp);
}

static inline uint32_t doca_pcc_dev_get_roce_first_timestamp(doca_pcc_dev_event_t *event) {
  return __builtin_bswap32(event->ev_spec[0]);
}

static inline doca_pcc_dev_roce_tx_cntrs_t
doca_pcc_dev_get_roce_tx_cntrs(doca_pcc_dev_event_t *event) {
  uint32_t word = __builtin_bswap32(event->ev_spec[1]);
  return (doca_pcc_dev_roce_tx_cntrs_t){word & 65535, word >> 16};
}

static inline uint32_t doca_pcc_dev_get_flow_qpn(doca_pcc_dev_event_t *event) {
  return __builtin_bswap32(event->ev_spec[2]) & 0xffffff;
}

#endif
