/* Refused postings, errors, numbers used again, a ring that is full, a child: counted, or left
 * alone, and never in the way. */
#include <sys/wait.h>

#include "verbs_fixture.h"

enum { RETRY_EXCEEDED = 12 };

static void what_the_device_refuses_is_not_posted(void) {
  struct ibv_qp *pair = new_pair(20, 64);
  fake_refuse(103);
  EXPECT(post_chain(pair, IBV_WR_RDMA_WRITE, 6, 10, 100) != 0);
  fake_refuse(UINT64_MAX);
  struct oncall_queue_pair *board = board_of(20);
  EXPECT(board->posted == 3 && board->posted_bytes == 30 && board->signaled == 0);
  EXPECT(!post_chain(pair, IBV_WR_RDMA_WRITE, 1, 10, 200) && poll_all() == 1);
  EXPECT(board->completed == 4 && board->completed_bytes == 40);
}

static void an_error_ends_what_is_outstanding(void) {
  struct ibv_qp *pair = new_pair(21, 64);
  fake_complete_at_once(pair, false);
  uint64_t at = oncall_verbs()->header->head;
  for (uint64_t chain = 0; chain < 3; chain++)
    EXPECT(!post_chain(pair, IBV_WR_RDMA_WRITE, 2, 10, 10 * chain));
  fake_fail(pair, RETRY_EXCEEDED);
  EXPECT(poll_all() == 6);
  struct oncall_queue_pair *board = board_of(21);
  EXPECT(board->completed == 6 && board->posted == 6 && board->errors == 6);
  EXPECT(board->state == ONCALL_QUEUE_PAIR_ERROR && board->last_status != 0);
  EXPECT(record(at)->status != 0 && oncall_verbs()->header->head == at + 3);
}

/* NCCL has one completion queue for both, and an error does not say of which it is. */
static void an_error_of_a_receive_is_no_end_of_a_send(void) {
  struct ibv_qp *pair = new_pair(22, 64);
  struct ibv_recv_wr receive = {.wr_id = 77}, *bad;
  fake_complete_at_once(pair, false);
  EXPECT(!context->ops.post_recv(pair, &receive, &bad));
  EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1));
  fake_receive(pair, 77, 5);
  EXPECT(poll_all() == 1);
  EXPECT(board_of(22)->completed == 0 && board_of(22)->received == 1 && board_of(22)->errors == 1);
}

static void a_number_used_again_is_another_queue_pair(void) {
  struct ibv_qp *pair = new_pair(23, 64);
  fake_complete_at_once(pair, false);
  EXPECT(!post_chain(pair, IBV_WR_SEND, 3, 10, 1));
  struct oncall_queue_pair *old = board_of(23);
  EXPECT(!ibv_destroy_qp(pair));
  EXPECT(old->state == ONCALL_QUEUE_PAIR_DESTROYED && old->closed_ns > 0);
  EXPECT(old->posted == 3 && old->completed == 0); /* destroyed before they completed */
  pair = new_pair(23, 64);
  EXPECT(board_of(23) != old && board_of(23)->number > old->number);
  EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1) && poll_all() == 1);
  EXPECT(board_of(23)->posted == 1 && board_of(23)->completed == 1 && old->posted == 3);
}

static void connected_anew_it_is_another_too(void) {
  struct ibv_qp *pair = new_pair(24, 64);
  struct oncall_queue_pair *old = board_of(24);
  EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1) && poll_all() == 1);
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
  EXPECT(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE));
  EXPECT(old->state == ONCALL_QUEUE_PAIR_DESTROYED);
  connect_pair(pair, 5);
  EXPECT(board_of(24) != old && board_of(24)->peer_qpn == 5 && board_of(24)->posted == 0);
}

static struct ibv_qp *polled;

static void poll_now(void) { poll_all(); }

/* Another thread may poll a completion before the poster is back. */
static void a_completion_may_be_polled_first(void) {
  polled = new_pair(25, 64);
  uint64_t at = oncall_verbs()->header->head;
  fake_meanwhile(poll_now);
  EXPECT(!post_chain(polled, IBV_WR_SEND, 2, 10, 1));
  EXPECT(!post_chain(polled, IBV_WR_SEND, 3, 10, 1));
  fake_meanwhile(NULL);
  EXPECT(board_of(25)->posted == 5 && board_of(25)->completed == 5);
  EXPECT(record(at)->requests == 2 && record(at + 1)->requests == 3);
}

/* Completions taken by ibv_start_poll go by us: posting goes on, and what is known stays true. */
static void completions_that_we_never_see(void) {
  struct ibv_qp *pair = new_pair(26, 16);
  fake_complete_at_once(pair, false);
  for (int number = 0; number < 100; number++)
    EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1));
  struct oncall_queue_pair *board = board_of(26);
  EXPECT(board->posted == 100 && board->completed == 0 && board->most_outstanding == 16);
  fake_complete(pair, 100);
  EXPECT(poll_all() == 100);
  EXPECT(board->completed == 100 && board->completed_bytes == 1000);
}

static void a_full_ring_drops_and_counts(void) {
  struct ibv_qp *pair = new_pair(27, 64);
  struct oncall_verbs_header *header = oncall_verbs()->header;
  uint64_t room = header->request_slots - (header->head - header->tail);
  for (uint64_t number = 0; number < room + 5; number++)
    EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1) && poll_all() == 1);
  EXPECT(header->dropped == 5 && board_of(27)->completed == room + 5);
  header->tail = header->head;
  EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1) && poll_all() == 1);
  EXPECT(header->dropped == 5);
}

static void queue_pairs_without_number_of_boards(void) {
  struct oncall_verbs_header *header = oncall_verbs()->header;
  uint64_t made = header->queue_pairs_made;
  uint32_t number = 1000;
  for (; header->queue_pairs_made < header->queue_pair_slots; number++)
    EXPECT(!ibv_destroy_qp(new_pair(number, 1)));
  EXPECT(header->lost_queue_pairs == 0 && header->queue_pairs_made > made);
  struct ibv_qp *pair = new_pair(number, 16); /* the others' boards are kept a while yet */
  EXPECT(header->lost_queue_pairs == 1 && !board_of(number));
  EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1) && poll_all() == 1);
}

static void a_child_is_another_process(void) {
  struct ibv_qp *pair = new_pair(28, 64);
  uint64_t head = oncall_verbs()->header->head, posted = board_of(28)->posted;
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    EXPECT(!oncall_verbs());
    EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1)); /* goes by us */
    EXPECT(ibv_open_device(fake_device()) && oncall_verbs()->header->pid == getpid());
    EXPECT(each_ring(NULL) == 2);
    connect_pair(pair, 3);
    EXPECT(!post_chain(pair, IBV_WR_SEND, 1, 10, 1));
    _exit(board_of(28)->posted == 1 ? 0 : 1);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(oncall_verbs()->header->head == head && board_of(28)->posted == posted);
}

static void nowhere_to_write(void) {
  setenv("ONCALL_RUN_DIR", "/proc/nothing/here", 1);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    struct ibv_context *opened = ibv_open_device(fake_device());
    EXPECT(opened && !oncall_verbs());
    EXPECT(opened->ops.post_send == ibv_open_device(fake_device())->ops.post_send);
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  setenv("ONCALL_VERBS_REQUESTS", "256", 1);
  begin_verbs();
  what_the_device_refuses_is_not_posted();
  an_error_ends_what_is_outstanding();
  an_error_of_a_receive_is_no_end_of_a_send();
  a_number_used_again_is_another_queue_pair();
  connected_anew_it_is_another_too();
  a_completion_may_be_polled_first();
  completions_that_we_never_see();
  a_full_ring_drops_and_counts();
  a_child_is_another_process();
  queue_pairs_without_number_of_boards();
  nowhere_to_write();
  setenv("ONCALL_RUN_DIR", run_folder, 1);
  leave_run_folder();
  return 0;
}
