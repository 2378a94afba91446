/* The names of DOCA PCC's device library that pcc_device.c uses, declared anew: with DOCA
 * installed its own headers are found instead. Written from documentation; nothing is copied. */
#ifndef ONCALL_SHIM_DOCA_PCC_DEV_H
#define ONCALL_SHIM_DOCA_PCC_DEV_H

#include <stdint.h>

#define DOCA_PCC_DEV_MAX_NUM_PORTS 4

typedef enum { DOCA_PCC_DEV_STATUS_OK = 0, DOCA_PCC_DEV_STATUS_FAIL = 1 } doca_pcc_dev_error_t;

enum doca_pcc_dev_event_type_enum {
  DOCA_PCC_DEV_EVNT_NULL = 0,
  DOCA_PCC_DEV_EVNT_FW = 1,
  DOCA_PCC_DEV_EVNT_ROCE_CNP = 2,
  DOCA_PCC_DEV_EVNT_ROCE_TX = 3,
  DOCA_PCC_DEV_EVNT_ROCE_ACK = 4,
  DOCA_PCC_DEV_EVNT_ROCE_NACK = 5,
  DOCA_PCC_DEV_EVNT_RTT = 6,
};

/* Words of an event as the NIC writes them: big-endian. */
typedef struct {
  uint32_t reserved_0;
  uint32_t function; /* 16 reserved, 16 vhca_id, from the low end */
  uint32_t reserved_8;
  uint32_t ev_attr; /* 8 type, 8 subtype, 8 port, 8 flags, from the low end */
  uint32_t flow_tag;
  uint32_t sn;
  uint32_t timestamp;
  uint32_t ev_spec[4]; /* of a TX event: first timestamp, counters, queue pair number */
} doca_pcc_dev_event_t;

typedef struct {
  uint32_t data[12];
} doca_pcc_dev_algo_ctxt_t;

typedef struct {
  uint32_t algo_slot : 4;
  uint32_t overload : 1;
} doca_pcc_dev_attr_t;

typedef struct {
  uint32_t rate;
  uint32_t rtt_req : 1;
} doca_pcc_dev_results_t;

#endif
