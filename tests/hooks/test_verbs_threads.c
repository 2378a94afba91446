/* Threads that post to queue pairs of their own and to a shared one, while others poll the
 * completion queue that all of them share: every sum is exact. */
#include "verbs_fixture.h"

enum { THREADS = 4, CHAINS = 2000, POLLERS = 2 };

static struct ibv_qp *own[THREADS], *shared;
static uint32_t working = THREADS;

static void *post(void *argument) {
  long thread = (long)argument;
  for (int chain = 0; chain < CHAINS; chain++) {
    EXPECT(!post_chain(own[thread], IBV_WR_RDMA_WRITE, 3, 100, 1));
    EXPECT(!post_chain(shared, IBV_WR_SEND, 1, 7, 1));
  }
  __atomic_fetch_sub(&working, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void *poll(void *argument) {
  (void)argument;
  while (__atomic_load_n(&working, __ATOMIC_ACQUIRE))
    poll_all();
  return NULL;
}

int main(void) {
  setenv("ONCALL_VERBS_REQUESTS", "65536", 1);
  begin_verbs();
  pthread_t posters[THREADS], pollers[POLLERS];
  for (uint32_t thread = 0; thread < THREADS; thread++)
    own[thread] = new_pair(100 + thread, 4096);
  shared = new_pair(200, 4096);
  for (long thread = 0; thread < THREADS; thread++)
    pthread_create(&posters[thread], NULL, post, (void *)thread);
  for (int thread = 0; thread < POLLERS; thread++)
    pthread_create(&pollers[thread], NULL, poll, NULL);
  for (int thread = 0; thread < THREADS; thread++)
    pthread_join(posters[thread], NULL);
  for (int thread = 0; thread < POLLERS; thread++)
    pthread_join(pollers[thread], NULL);
  poll_all();
  /* What a thread left to the next, because another was put to sleep in the middle, is settled. */
  for (int thread = 0; thread < THREADS; thread++)
    EXPECT(!post_chain(own[thread], IBV_WR_SEND, 1, 0, 1));
  EXPECT(!post_chain(shared, IBV_WR_SEND, 1, 0, 1));
  poll_all();
  struct oncall_verbs_header *header = oncall_verbs()->header;
  uint64_t requests = 0, bytes = 0;
  for (uint64_t at = 0; at < header->head; at++) {
    requests += record(at)->requests;
    bytes += record(at)->bytes;
  }
  EXPECT(requests > 0 && requests <= THREADS * CHAINS * 4ull + THREADS + 1);
  if (!header->dropped) { /* none waited so long for another that it left its posting uncounted */
    EXPECT(requests == THREADS * CHAINS * 4ull + THREADS + 1);
    EXPECT(bytes == THREADS * CHAINS * 307ull);
    for (uint32_t thread = 0; thread < THREADS; thread++) {
      struct oncall_queue_pair *board = board_of(100 + thread);
      EXPECT(board->posted == 3 * CHAINS + 1 && board->completed == board->posted);
    }
    EXPECT(board_of(200)->completed == THREADS * CHAINS + 1ull);
  }
  leave_run_folder();
  return 0;
}
