#define _GNU_SOURCE
#include "verbs_extended.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_queue_pairs.h"

enum { SLOTS = 8192, MOST_PROBES = 64 };

#define EMPTY NULL
#define REMOVED ((struct ibv_qp_ex *)1)

/* What the provider had put there, and what is being posted. The provider lets one thread in from
 * wr_start to wr_complete or wr_abort, so `posting` needs no lock. */
static struct extended {
  struct ibv_qp_ex *pair;
  struct ibv_qp_ex original; /* its pointers */
  struct posting posting;
  struct queue_pair *known;
  bool all_signaled;
  /* The request begun last; its data comes after it. */
  int opcode;
  bool is_signaled;
  uint64_t wr_id, bytes;
} *extended[SLOTS];
static struct ibv_qp_ex *keys[SLOTS];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

enum { NO_REQUEST = -1 };

static uint32_t place(const struct ibv_qp_ex *pair, uint32_t probe) {
  return (uint32_t)((((uintptr_t)pair >> 6) * 0x9e3779b97f4a7c15ull >> 51) + probe) % SLOTS;
}

/* Never NULL for a patched queue pair. */
static struct extended *extended_of(const struct ibv_qp_ex *pair) {
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t at = place(pair, probe);
    const struct ibv_qp_ex *found = __atomic_load_n(&keys[at], __ATOMIC_ACQUIRE);
    if (found == pair)
      return extended[at];
    if (found == EMPTY)
      break;
  }
  return NULL;
}

/* ------------------------------------------------------------------ a request after the other */

static void end_request(struct extended *of) {
  if (of->opcode != NO_REQUEST)
    posting_add(&of->posting, of->opcode, of->is_signaled, of->bytes, of->wr_id);
  of->opcode = NO_REQUEST;
}

static struct extended *begin_request(struct ibv_qp_ex *pair, int opcode) {
  struct extended *of = extended_of(pair);
  end_request(of);
  of->opcode = opcode;
  of->is_signaled = of->all_signaled || pair->wr_flags & IBV_SEND_SIGNALED;
  of->wr_id = pair->wr_id;
  of->bytes = 0;
  return of;
}

static void start(struct ibv_qp_ex *pair) {
  struct extended *of = extended_of(pair);
  of->original.wr_start(pair); /* takes the provider's lock */
  of->known = queue_pair_find(pair->qp_base.context, pair->qp_base.qp_num);
  of->all_signaled = of->known && queue_pair_all_signaled(of->known);
  of->opcode = NO_REQUEST;
  posting_begin(&of->posting, of->known ? oncall_now_ns() : 0);
}

static int complete(struct ibv_qp_ex *pair) {
  struct extended *of = extended_of(pair);
  end_request(of);
  struct posting posting = of->posting; /* the next may begin as soon as the lock is given back */
  struct queue_pair *known = of->known;
  int failed = of->original.wr_complete(pair);
  if (!failed && known && posting.requests)
    queue_pair_posted(known, &posting);
  return failed;
}

static void abort_all(struct ibv_qp_ex *pair) { extended_of(pair)->original.wr_abort(pair); }

/* ------------------------------------------------------------------ requests */

static void write_data(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at) {
  begin_request(pair, IBV_WR_RDMA_WRITE)->original.wr_rdma_write(pair, rkey, at);
}

static void write_imm(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at, uint32_t data) {
  begin_request(pair, IBV_WR_RDMA_WRITE_WITH_IMM)->original.wr_rdma_write_imm(pair, rkey, at, data);
}

static void read_data(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at) {
  begin_request(pair, IBV_WR_RDMA_READ)->original.wr_rdma_read(pair, rkey, at);
}

static void send_data(struct ibv_qp_ex *pair) {
  begin_request(pair, IBV_WR_SEND)->original.wr_send(pair);
}

static void send_imm(struct ibv_qp_ex *pair, uint32_t data) {
  begin_request(pair, IBV_WR_SEND_WITH_IMM)->original.wr_send_imm(pair, data);
}

static void send_inv(struct ibv_qp_ex *pair, uint32_t rkey) {
  begin_request(pair, IBV_WR_SEND_WITH_INV)->original.wr_send_inv(pair, rkey);
}

static void send_tso(struct ibv_qp_ex *pair, void *header, uint16_t bytes, uint16_t segment) {
  begin_request(pair, IBV_WR_TSO)->original.wr_send_tso(pair, header, bytes, segment);
}

static void compare_swap(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at, uint64_t compare,
                         uint64_t swap) {
  begin_request(pair, IBV_WR_ATOMIC_CMP_AND_SWP)
      ->original.wr_atomic_cmp_swp(pair, rkey, at, compare, swap);
}

static void fetch_add(struct ibv_qp_ex *pair, uint32_t rkey, uint64_t at, uint64_t more) {
  begin_request(pair, IBV_WR_ATOMIC_FETCH_AND_ADD)
      ->original.wr_atomic_fetch_add(pair, rkey, at, more);
}

static void bind_window(struct ibv_qp_ex *pair, void *window, uint32_t rkey, const void *how) {
  begin_request(pair, IBV_WR_BIND_MW)->original.wr_bind_mw(pair, window, rkey, how);
}

static void invalidate(struct ibv_qp_ex *pair, uint32_t rkey) {
  begin_request(pair, IBV_WR_LOCAL_INV)->original.wr_local_inv(pair, rkey);
}

/* ------------------------------------------------------------------ their data */

static void set_piece(struct ibv_qp_ex *pair, uint32_t key, uint64_t at, uint32_t length) {
  struct extended *of = extended_of(pair);
  of->bytes += length;
  of->original.wr_set_sge(pair, key, at, length);
}

static void set_pieces(struct ibv_qp_ex *pair, size_t count, const struct ibv_sge *pieces) {
  struct extended *of = extended_of(pair);
  for (size_t number = 0; number < count; number++)
    of->bytes += pieces[number].length;
  of->original.wr_set_sge_list(pair, count, pieces);
}

static void set_inline(struct ibv_qp_ex *pair, void *at, size_t length) {
  struct extended *of = extended_of(pair);
  of->bytes += length;
  of->original.wr_set_inline_data(pair, at, length);
}

static void set_inlines(struct ibv_qp_ex *pair, size_t count, const struct ibv_data_buf *pieces) {
  struct extended *of = extended_of(pair);
  for (size_t number = 0; number < count; number++)
    of->bytes += pieces[number].length;
  of->original.wr_set_inline_data_list(pair, count, pieces);
}

/* ------------------------------------------------------------------ patching */

/* Only what the provider set: a queue pair has those calls that it was made for. */
#define PUT(pointer, ours)                                                                         \
  if (pair->pointer)                                                                               \
  pair->pointer = ours

static void put_in(struct ibv_qp_ex *pair) {
  PUT(wr_atomic_cmp_swp, compare_swap);
  PUT(wr_atomic_fetch_add, fetch_add);
  PUT(wr_bind_mw, bind_window);
  PUT(wr_local_inv, invalidate);
  PUT(wr_rdma_read, read_data);
  PUT(wr_rdma_write, write_data);
  PUT(wr_rdma_write_imm, write_imm);
  PUT(wr_send, send_data);
  PUT(wr_send_imm, send_imm);
  PUT(wr_send_inv, send_inv);
  PUT(wr_send_tso, send_tso);
  PUT(wr_set_inline_data, set_inline);
  PUT(wr_set_inline_data_list, set_inlines);
  PUT(wr_set_sge, set_piece);
  PUT(wr_set_sge_list, set_pieces);
  PUT(wr_abort, abort_all);
  PUT(wr_complete, complete);
  pair->wr_start = start;
}

/* From wr_atomic_cmp_swp to wr_abort: the pointers, and nothing that changes beside them. */
static void copy_pointers(struct ibv_qp_ex *to, const struct ibv_qp_ex *from) {
  const size_t first = offsetof(struct ibv_qp_ex, wr_atomic_cmp_swp);
  memcpy((char *)to + first, (const char *)from + first, sizeof *to - first);
}

static bool remember(struct ibv_qp_ex *pair) {
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t at = place(pair, probe);
    if (keys[at] != EMPTY && keys[at] != REMOVED)
      continue;
    if (!extended[at] && !(extended[at] = calloc(1, sizeof *extended[at])))
      return false;
    copy_pointers(&extended[at]->original, pair);
    __atomic_store_n(&keys[at], pair, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

void verbs_extended_in_child(void) { pthread_mutex_init(&changing, NULL); }

void verbs_extended_patch(struct ibv_qp_ex *pair) {
  pthread_mutex_lock(&changing);
  if (pair->wr_start && pair->wr_start != start && pair->wr_complete && remember(pair))
    put_in(pair);
  pthread_mutex_unlock(&changing);
}

void verbs_extended_restore(struct ibv_qp *base) {
  struct ibv_qp_ex *pair = (struct ibv_qp_ex *)base; /* the address only: it may be none */
  pthread_mutex_lock(&changing);
  struct extended *of = extended_of(pair);
  for (uint32_t probe = 0; of && probe < MOST_PROBES; probe++) {
    uint32_t at = place(pair, probe);
    if (keys[at] == pair) {
      copy_pointers(pair, &of->original);
      __atomic_store_n(&keys[at], REMOVED, __ATOMIC_RELEASE);
      break;
    }
  }
  pthread_mutex_unlock(&changing);
}
