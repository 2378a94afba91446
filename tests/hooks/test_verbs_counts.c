/* Every request is counted once, with its bytes, and every completion becomes one record. */
#include <string.h>

#include "verbs_fixture.h"

static void a_chain_is_one_run(void) {
  struct ibv_qp *pair = new_pair(10, 128);
  uint64_t at = oncall_verbs()->header->head;
  EXPECT(post_chain(pair, IBV_WR_RDMA_WRITE, 4, 1001, 1) == 0);
  struct oncall_queue_pair *board = board_of(10);
  EXPECT(board->posted == 4 && board->writes == 4 && board->signaled == 1);
  EXPECT(board->posted_bytes == 4004 && board->completed == 0 && board->oldest_posted_ns > 0);
  EXPECT(poll_all() == 1);
  EXPECT(board->completed == 4 && board->completed_bytes == 4004 && !board->oldest_posted_ns);
  const struct oncall_request *run = record(at);
  EXPECT(run->requests == 4 && run->bytes == 4004 && run->outstanding == 0 && run->status == 0);
  EXPECT(run->posted_ns > 0 && run->posted_ns <= run->completed_ns);
  EXPECT(run->number == board->number && &oncall_verbs()->boards[run->queue_pair] == board);
  EXPECT(oncall_verbs()->header->head == at + 1);
}

static void its_board_says_who_it_is(void) {
  struct oncall_queue_pair *board = board_of(10);
  EXPECT(board->peer_qpn == 1010 && board->peer_gid[15] == 9 && board->port == 1);
  EXPECT(board->timeout == 20 && board->retry == 7 && board->most_outstanding == 128);
  EXPECT(strcmp(board->nic, "fake_0") == 0 && board->state == ONCALL_QUEUE_PAIR_READY);
  EXPECT(board->version % 2 == 0 && board->ready_ns > 0);
  struct oncall_verbs_header *header = oncall_verbs()->header;
  EXPECT(header->magic == ONCALL_VERBS_MAGIC && header->rank == 3 && header->pid == getpid());
  EXPECT(each_ring(NULL) == 1);
}

/* As perftest posts: one of a hundred is signaled, each in a call of its own. */
static void unsignaled_ones_wait_for_the_next_signaled(void) {
  struct ibv_qp *pair = new_pair(11, 128);
  uint64_t at = oncall_verbs()->header->head;
  struct ibv_sge piece = {.length = 10};
  struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  for (int number = 1; number <= 100; number++) {
    request.send_flags = number % 50 == 0 ? IBV_SEND_SIGNALED : 0;
    EXPECT(!context->ops.post_send(pair, &request, &bad));
  }
  EXPECT(board_of(11)->posted == 100 && board_of(11)->completed == 0);
  EXPECT(poll_all() == 2);
  EXPECT(board_of(11)->completed == 100 && board_of(11)->sends == 100);
  EXPECT(record(at)->requests == 50 && record(at)->bytes == 500 && record(at)->outstanding == 50);
  EXPECT(record(at + 1)->requests == 50 && record(at + 1)->outstanding == 0);
  EXPECT(record(at)->posted_ns < record(at)->last_posted_ns);
}

static void all_are_signaled_where_the_queue_pair_says_so(void) {
  struct ibv_qp *pair = fake_create_qp(completions, completions, 12, 16, true);
  connect_pair(pair, 1);
  uint64_t at = oncall_verbs()->header->head;
  EXPECT(!post_chain(pair, IBV_WR_SEND, 12, 8, 1));
  EXPECT(poll_all() == 12);
  EXPECT(board_of(12)->signaled == 12 && board_of(12)->completed == 12);
  uint64_t requests = 0, bytes = 0;
  for (; at < oncall_verbs()->header->head; at++) {
    requests += record(at)->requests;
    bytes += record(at)->bytes;
  }
  EXPECT(requests == 12 && bytes == 96);
}

static void what_reads_ask_for_is_not_sent(void) {
  struct ibv_qp *pair = new_pair(13, 16);
  EXPECT(!post_chain(pair, IBV_WR_RDMA_READ, 2, 100, 1));
  EXPECT(!post_chain(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 1));
  EXPECT(poll_all() == 2);
  struct oncall_queue_pair *board = board_of(13);
  EXPECT(board->reads == 2 && board->read_bytes == 200 && board->other == 1);
  EXPECT(board->posted_bytes == 0 && board->completed == 3 && board->completed_bytes == 0);
}

static void receives_are_counted_apart(void) {
  struct ibv_qp *pair = new_pair(14, 16);
  struct ibv_recv_wr second = {0}, first = {.next = &second}, *bad;
  EXPECT(!context->ops.post_recv(pair, &first, &bad));
  fake_receive(pair, 0, IBV_WC_SUCCESS);
  EXPECT(poll_all() == 1);
  EXPECT(board_of(14)->receives == 2 && board_of(14)->received == 1);
  EXPECT(board_of(14)->posted == 0 && board_of(14)->completed == 0);
}

static void a_list_in_calls_counts_like_one_of_structs(void) {
  struct ibv_qp *base = fake_create_qp(completions, completions, 15, 16, false);
  struct ibv_qp_ex *pair = ibv_qp_to_qp_ex(base);
  connect_pair(base, 1);
  struct ibv_data_buf pieces[2] = {{.length = 3}, {.length = 4}};
  uint64_t at = oncall_verbs()->header->head;
  pair->wr_start(pair);
  pair->wr_id = 1, pair->wr_flags = 0;
  pair->wr_rdma_write(pair, 0, 0);
  pair->wr_set_sge(pair, 0, 0, 4096);
  pair->wr_flags = IBV_SEND_SIGNALED;
  pair->wr_send(pair);
  pair->wr_set_inline_data_list(pair, 2, pieces);
  EXPECT(!pair->wr_complete(pair));
  EXPECT(poll_all() == 1);
  struct oncall_queue_pair *board = board_of(15);
  EXPECT(board->posted == 2 && board->writes == 1 && board->sends == 1);
  EXPECT(board->completed == 2 && board->completed_bytes == 4103);
  EXPECT(record(at)->requests == 2 && record(at)->bytes == 4103);
  pair->wr_start(pair);
  pair->wr_send(pair);
  pair->wr_abort(pair);
  EXPECT(board->posted == 2);
  EXPECT(ibv_qp_to_qp_ex(base) == pair); /* asked again, patched once */
  EXPECT(!ibv_destroy_qp(base));
}

int main(void) {
  begin_verbs();
  a_chain_is_one_run();
  its_board_says_who_it_is();
  unsignaled_ones_wait_for_the_next_signaled();
  all_are_signaled_where_the_queue_pair_says_so();
  what_reads_ask_for_is_not_sent();
  receives_are_counted_apart();
  a_list_in_calls_counts_like_one_of_structs();
  leave_run_folder();
  return 0;
}
