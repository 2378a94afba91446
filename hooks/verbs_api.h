/* What of libibverbs the shim touches, so that it is built where rdma-core is not installed.
 *
 * libibverbs promises these layouts to compiled programs (its IBVERBS_1.1 interface), so they do
 * not change; tests/hooks/test_verbs_api.py compares every one with <infiniband/verbs.h>. Of a
 * struct that only libibverbs makes, what comes after the last member we use is left out.
 */
#ifndef ONCALL_HOOKS_VERBS_API_H
#define ONCALL_HOOKS_VERBS_API_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
  IBV_QPS_RESET = 0,
  IBV_QPS_RTR = 2,
  IBV_QPS_ERR = 6,

  IBV_QP_STATE = 1 << 0,
  IBV_QP_PORT = 1 << 5,
  IBV_QP_AV = 1 << 7,
  IBV_QP_TIMEOUT = 1 << 9,
  IBV_QP_RETRY_CNT = 1 << 10,
  IBV_QP_CAP = 1 << 19,
  IBV_QP_DEST_QPN = 1 << 20,

  IBV_SEND_SIGNALED = 1 << 1,
  IBV_WC_SUCCESS = 0,
  IBV_WC_RECV = 1 << 7,

  IBV_WR_RDMA_WRITE = 0,
  IBV_WR_RDMA_WRITE_WITH_IMM = 1,
  IBV_WR_SEND = 2,
  IBV_WR_SEND_WITH_IMM = 3,
  IBV_WR_RDMA_READ = 4,
  IBV_WR_ATOMIC_CMP_AND_SWP = 5,
  IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
  IBV_WR_LOCAL_INV = 7,
  IBV_WR_BIND_MW = 8,
  IBV_WR_SEND_WITH_INV = 9,
  IBV_WR_TSO = 10,
};

struct ibv_qp;
struct ibv_cq;
struct ibv_wc;
struct ibv_send_wr;
struct ibv_recv_wr;

struct ibv_device {
  void *operations[2];
  int node_type, transport_type;
  char name[64];
};

struct ibv_context_ops {
  void *before_poll[11];
  int (*poll_cq)(struct ibv_cq *queue, int most, struct ibv_wc *completions);
  void *between[13];
  int (*post_send)(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad);
  int (*post_recv)(struct ibv_qp *pair, struct ibv_recv_wr *request, struct ibv_recv_wr **bad);
  void *after[5];
};

struct ibv_context {
  struct ibv_device *device;
  struct ibv_context_ops ops;
};

struct ibv_cq {
  struct ibv_context *context;
};

struct ibv_qp {
  struct ibv_context *context;
  void *qp_context, *pd;
  struct ibv_cq *send_cq, *recv_cq;
  void *srq;
  uint32_t handle, qp_num;
  int state, qp_type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
};

struct ibv_sge {
  uint64_t addr;
  uint32_t length, lkey;
};

struct ibv_data_buf {
  void *addr;
  size_t length;
};

struct ibv_send_wr {
  uint64_t wr_id;
  struct ibv_send_wr *next;
  struct ibv_sge *sg_list;
  int num_sge, opcode;
  unsigned int send_flags;
};

struct ibv_recv_wr {
  uint64_t wr_id;
  struct ibv_recv_wr *next;
};

struct ibv_wc {
  uint64_t wr_id;
  int status, opcode;
  uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
  unsigned int wc_flags;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits;
};

struct ibv_global_route {
  uint8_t dgid[16] __attribute__((aligned(8)));
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
  struct ibv_global_route grh;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_cap {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_attr {
  int qp_state, cur_qp_state, path_mtu, path_mig_state;
  uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
  unsigned int qp_access_flags;
  struct ibv_qp_cap cap;
  struct ibv_ah_attr ah_attr, alt_ah_attr;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
  uint8_t port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
  uint32_t rate_limit;
};

struct ibv_qp_init_attr {
  void *qp_context, *send_cq, *recv_cq, *srq;
  struct ibv_qp_cap cap;
  int qp_type, sq_sig_all;
};

/* A queue pair posted to by calls: begin, requests and their data, complete. */
struct ibv_qp_ex {
  struct ibv_qp qp_base;
  uint64_t comp_mask, wr_id;
  unsigned int wr_flags;
  void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t, uint64_t);
  void (*wr_atomic_fetch_add)(struct ibv_qp_ex *, uint32_t, uint64_t, uint64_t);
  void (*wr_bind_mw)(struct ibv_qp_ex *, void *, uint32_t, const void *);
  void (*wr_local_inv)(struct ibv_qp_ex *, uint32_t);
  void (*wr_rdma_read)(struct ibv_qp_ex *, uint32_t, uint64_t);
  void (*wr_rdma_write)(struct ibv_qp_ex *, uint32_t, uint64_t);
  void (*wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
  void (*wr_send)(struct ibv_qp_ex *);
  void (*wr_send_imm)(struct ibv_qp_ex *, uint32_t);
  void (*wr_send_inv)(struct ibv_qp_ex *, uint32_t);
  void (*wr_send_tso)(struct ibv_qp_ex *, void *, uint16_t, uint16_t);
  void *wr_set_ud_addr, *wr_set_xrc_srqn;
  void (*wr_set_inline_data)(struct ibv_qp_ex *, void *, size_t);
  void (*wr_set_inline_data_list)(struct ibv_qp_ex *, size_t, const struct ibv_data_buf *);
  void (*wr_set_sge)(struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t);
  void (*wr_set_sge_list)(struct ibv_qp_ex *, size_t, const struct ibv_sge *);
  void (*wr_start)(struct ibv_qp_ex *);
  int (*wr_complete)(struct ibv_qp_ex *);
  void (*wr_abort)(struct ibv_qp_ex *);
  /* wr_atomic_write follows where libibverbs is new enough: left alone */
};

/* What the shim puts itself in front of. */
struct ibv_context *ibv_open_device(struct ibv_device *device);
struct ibv_context *ibv_import_device(int cmd_fd);
int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *wanted, int mask);
int ibv_destroy_qp(struct ibv_qp *pair);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *pair);
/* And what it asks. */
int ibv_query_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask,
                 struct ibv_qp_init_attr *made);

#endif
