/* Threads that make communicators, call on them and destroy them, with NCCL giving memory of the
 * destroyed to the next: every call is recorded on the communicator that its thread meant. */
#define _GNU_SOURCE
#include <pthread.h>

#include "nccl_api.h"
#include "ring.h"
#include "run_folder.h"

ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { THREADS = 6, LIVES = 20, CALLS = 30 };

static void *live(void *argument) {
  int rank = (int)(long)argument;
  for (int life = 0; life < LIVES; life++) {
    ncclComm_t comm;
    ncclUniqueId id = {{(char)life, (char)rank}};
    EXPECT(ncclCommInitRank(&comm, 1000, id, rank) == ncclSuccess);
    for (int call = 0; call < CALLS; call++) {
      ncclGroupStart();
      EXPECT(ncclAllReduce(NULL, NULL, 8, ncclFloat32, 0, comm, NULL) == ncclSuccess);
      EXPECT(ncclSend(NULL, 8, ncclFloat32, 1, comm, NULL) == ncclSuccess);
      ncclGroupEnd();
    }
    EXPECT(ncclCommDestroy(comm) == ncclSuccess);
  }
  return NULL;
}

int main(void) {
  enter_run_folder();
  pthread_t threads[THREADS];
  for (long rank = 0; rank < THREADS; rank++)
    EXPECT(!pthread_create(&threads[rank], NULL, live, (void *)rank));
  for (int rank = 0; rank < THREADS; rank++)
    pthread_join(threads[rank], NULL);
  const struct oncall_ring *ring = oncall_ring();
  EXPECT(ring->header->communicators_made == THREADS * LIVES);
  EXPECT(ring->header->lost_communicators == 0 && ring->header->dropped == 0);
  for (int slot = 0; slot < THREADS * LIVES; slot++) {
    const struct oncall_communicator *board = &ring->communicators[slot];
    EXPECT(board->state == ONCALL_COMMUNICATOR_DESTROYED && board->device == 3);
    EXPECT(board->collectives.entered == CALLS && board->collectives.enqueued == CALLS);
    EXPECT(board->point_to_point.entered == CALLS && board->point_to_point.count == 8);
  }
  EXPECT(ring->header->head == THREADS * LIVES * CALLS * 5); /* with one of each group */
  leave_run_folder();
  return 0;
}
