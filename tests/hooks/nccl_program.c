/* A program linked with NCCL that makes the calls it reads from stdin, one a line; prints each
 * result. Communicators are named by number, in the order they were made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl_api.h"

#define ON ncclComm_t comm, cudaStream_t stream
ncclResult_t ncclAllReduce(const void *, void *, size_t, int, int, ON);
ncclResult_t ncclAllGather(const void *, void *, size_t, int, ON);
ncclResult_t ncclReduceScatter(const void *, void *, size_t, int, int, ON);
ncclResult_t ncclBroadcast(const void *, void *, size_t, int, int root, ON);
ncclResult_t ncclBcast(void *, size_t, int, int root, ON);
ncclResult_t ncclReduce(const void *, void *, size_t, int, int, int root, ON);
ncclResult_t ncclAlltoAll(const void *, void *, size_t, int, ON);
ncclResult_t ncclSend(const void *, size_t, int, int peer, ON);
ncclResult_t ncclRecv(void *, size_t, int, int peer, ON);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclCommInitRank(ncclComm_t *, int size, ncclUniqueId, int rank);
ncclResult_t ncclCommInitAll(ncclComm_t *, int count, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t, int color, int key, ncclComm_t *, void *config);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclGetVersion(int *);

static ncclComm_t comms[64];
static int made;

/* Initialises one out of the hooks' sight, as a program would that had begun before them. */
static ncclResult_t init_unseen(ncclUniqueId id, int size, int rank) {
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int) =
      (ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int))dlsym(library, "pncclCommInitRank");
  return init(&comms[made++], size, id, rank);
}

static int obey(const char *command, int a, int b, int c) {
  ncclUniqueId id = {{(char)c}};
  ncclComm_t comm = comms[a];
  cudaStream_t stream = (cudaStream_t)0x5;
#define IF(name) else if (!strcmp(command, name))
  if (!strcmp(command, "init"))
    return ncclCommInitRank(&comms[made++], b, id, a);
  IF("init_unseen") return init_unseen(id, b, a);
  IF("init_all") {
    made += a;
    return ncclCommInitAll(&comms[made - a], a, NULL);
  }
  IF("split") return ncclCommSplit(comm, b, c, &comms[made++], NULL);
  IF("finalize") return ncclCommFinalize(comm);
  IF("destroy") return ncclCommDestroy(comm);
  IF("abort") return ncclCommAbort(comm);
  IF("error") {
    ncclResult_t error;
    return ncclCommGetAsyncError(comm, &error);
  }
  IF("group_start") return ncclGroupStart();
  IF("group_end") return ncclGroupEnd();
  IF("all_reduce") return ncclAllReduce(NULL, NULL, b, ncclFloat32, 0, comm, stream);
  IF("all_gather") return ncclAllGather(NULL, NULL, b, ncclFloat32, comm, stream);
  IF("reduce_scatter") return ncclReduceScatter(NULL, NULL, b, ncclFloat32, 0, comm, stream);
  IF("broadcast") return ncclBroadcast(NULL, NULL, b, ncclFloat32, c, comm, stream);
  IF("bcast") return ncclBcast(NULL, b, ncclFloat32, c, comm, stream);
  IF("reduce") return ncclReduce(NULL, NULL, b, ncclFloat32, 0, c, comm, stream);
  IF("all_to_all") return ncclAlltoAll(NULL, NULL, b, ncclFloat32, comm, stream);
  IF("send") return ncclSend(NULL, b, ncclFloat32, c, comm, stream);
  IF("recv") return ncclRecv(NULL, b, ncclFloat32, c, comm, stream);
  IF("version") {
    int version;
    ncclResult_t result = ncclGetVersion(&version);
    return result ? -(int)result : version;
  }
  return -1;
}

int main(void) {
  char line[128], command[64];
  while (fgets(line, sizeof line, stdin)) {
    int a = 0, b = 0, c = 0;
    sscanf(line, "%63s %d %d %d", command, &a, &b, &c);
    if (!strncmp(command, "has:", 4)) /* as a program asks what the library can do */
      printf("%d\n", dlsym(RTLD_DEFAULT, command + 4) != NULL);
    else
      printf("%d\n", obey(command, a, b, c));
    fflush(stdout);
  }
  return 0;
}
