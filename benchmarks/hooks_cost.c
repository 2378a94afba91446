/* Times NCCL calls hooked and not, and profiler events: benchmarks/hooks.py builds and runs it.
 *
 *     hooks_cost HOOKS THREADS CALLS ROUNDS
 *
 * Prints, a round a line, the CPU ns of an unhooked and of a hooked call, over all threads, each
 * thread on a communicator of its own; with one thread also those of a step of a transfer and of a
 * whole operation as they are reported to the profiler plugin. Built with -DLIBRARY it is the NCCL,
 * with -DOTHER a second plugin that does nothing, to be chained. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nccl_profiler.h"
#include "oncall_ring.h"

#define ALL_REDUCE                                                                                 \
  (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,                  \
   cudaStream_t stream)

#ifdef LIBRARY
#pragma GCC diagnostic ignored "-Wunused-parameter"
ncclResult_t ncclAllReduce ALL_REDUCE __attribute__((weak, alias("pncclAllReduce")));
ncclResult_t pncclAllReduce ALL_REDUCE { return ncclSuccess; }
ncclResult_t pncclCommUserRank(ncclComm_t comm, int *rank) { return *rank = 0, ncclSuccess; }
ncclResult_t pncclCommCount(ncclComm_t comm, int *count) { return *count = 8, ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
    __attribute__((weak, alias("pncclCommInitRank")));
ncclResult_t pncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
  return *comm = malloc(64), ncclSuccess;
}
#elif defined OTHER
#pragma GCC diagnostic ignored "-Wunused-parameter"
static char something[1];
static ncclResult_t init(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                         int size, int rank, ncclDebugLogger_t log) {
  *mask = 0xfff;
  return *context = something, ncclSuccess;
}
static ncclResult_t start(void *context, void **handle, ncclProfilerEventDescr_t *event) {
  return *handle = something, ncclSuccess;
}
static ncclResult_t stop(void *handle) { return ncclSuccess; }
static ncclResult_t state(void *handle, int state, ncclProfilerEventStateArgs_t *arguments) {
  return ncclSuccess;
}
const ncclProfiler_v6_t ncclProfiler_v6 = {"nothing", init, start, stop, state, stop};
#else

ncclResult_t ncclAllReduce ALL_REDUCE;
ncclResult_t pncclAllReduce ALL_REDUCE;
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);

enum { MOST_THREADS = 64 };
static int threads, calls, rounds;
static pthread_barrier_t together;
static struct oncall_header *header;
static double spent_ns[2][MOST_THREADS];

static double cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Takes the collector's place: what was recorded is read. */
static void drain(void) {
  __atomic_store_n(&header->tail, __atomic_load_n(&header->head, __ATOMIC_ACQUIRE),
                   __ATOMIC_RELEASE);
}

static struct oncall_header *map_ring(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rings", getenv("ONCALL_RUN_DIR"));
  DIR *folder = opendir(path);
  struct dirent *entry;
  while ((entry = readdir(folder)) && entry->d_name[0] == '.')
    ;
  snprintf(path, sizeof path, "%s/rings/%s", getenv("ONCALL_RUN_DIR"), entry->d_name);
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0);
  return at == MAP_FAILED ? NULL : at;
}

static void *work(void *argument) {
  long thread = (long)argument;
  ncclComm_t comm;
  ncclUniqueId id = {{(char)thread}};
  ncclCommInitRank(&comm, 8, id, 0);
  for (int round = 0; round < rounds; round++) {
    for (int hooked = 0; hooked < 2; hooked++) {
      ncclResult_t(*call) ALL_REDUCE = hooked ? ncclAllReduce : pncclAllReduce;
      pthread_barrier_wait(&together);
      double start_ns = cpu_ns();
      for (int i = 0; i < calls; i++)
        call(NULL, NULL, 1024, ncclFloat32, 0, comm, NULL);
      spent_ns[hooked][thread] = (cpu_ns() - start_ns) / calls;
    }
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together); /* the main thread has drained and printed */
  }
  return NULL;
}

static double mean(const double *of) {
  double sum = 0;
  for (int i = 0; i < threads; i++)
    sum += of[i];
  return sum / threads;
}

/* ------------------------------------------------------------------ the plugin */

static const ncclProfiler_v6_t *plugin;
static void *context;

static void *start(uint64_t type, void *parent, ncclProfilerEventDescr_t event) {
  void *handle;
  event.type = type;
  event.parentObj = parent;
  plugin->startEvent(context, &handle, &event);
  return handle;
}

static void *begin_operation(void) {
  ncclProfilerEventDescr_t event = {0};
  event.collApi.func = "AllReduce";
  event.collApi.count = 1024;
  event.collApi.datatype = "ncclFloat32";
  void *call = start(ncclProfileCollApi, NULL, event);
  plugin->stopEvent(call);
  event = (ncclProfilerEventDescr_t){0};
  start(ncclProfileGroup, NULL, event);
  event.coll.algo = "RING";
  event.coll.proto = "SIMPLE";
  event.coll.nChannels = 2;
  void *task = start(ncclProfileColl, call, event);
  plugin->stopEvent(task);
  return task;
}

static void end_operation(void *task) {
  for (int channel = 0; channel < 2; channel++) {
    ncclProfilerEventDescr_t event = {0};
    ncclProfilerEventStateArgs_t arguments = {.kernelCh = {.pTimer = 200}};
    event.kernelCh.pTimer = 100;
    void *kernel = start(ncclProfileKernelCh, task, event);
    plugin->recordEventState(kernel, ncclProfilerKernelChStop, &arguments);
    plugin->stopEvent(kernel);
  }
}

/* A sender's step: begun, three waits, over. */
static double time_steps(void) {
  static const int waits[] = {ncclProfilerProxyStepSendGPUWait,
                              ncclProfilerProxyStepSendPeerWait_v4, ncclProfilerProxyStepSendWait};
  ncclProfilerEventStateArgs_t arguments = {.proxyStep = {.transSize = 4096}};
  ncclProfilerEventDescr_t event = {0};
  void *task = begin_operation();
  event.proxyOp.pid = getpid();
  event.proxyOp.isSend = 1;
  void *transfer = start(ncclProfileProxyOp, task, event);
  event = (ncclProfilerEventDescr_t){0};
  double start_ns = cpu_ns();
  for (int i = 0; i < calls; i++) {
    void *step = start(ncclProfileProxyStep, transfer, event);
    for (int wait = 0; wait < 3; wait++)
      plugin->recordEventState(step, waits[wait], &arguments);
    plugin->stopEvent(step);
  }
  double spent = (cpu_ns() - start_ns) / calls;
  plugin->stopEvent(transfer);
  end_operation(task);
  return spent;
}

static double time_operations(void) {
  double start_ns = cpu_ns();
  for (int i = 0; i < calls; i++)
    end_operation(begin_operation());
  return (cpu_ns() - start_ns) / calls;
}

int main(int count, char **words) {
  if (count != 5)
    return 2;
  threads = atoi(words[2]), calls = atoi(words[3]), rounds = atoi(words[4]);
  pthread_t running[MOST_THREADS];
  pthread_barrier_init(&together, NULL, (unsigned)threads + 1);
  for (long thread = 0; thread < threads; thread++)
    pthread_create(&running[thread], NULL, work, (void *)thread);
  for (int round = 0; round < rounds; round++) {
    for (int meeting = 0; meeting < 3; meeting++)
      pthread_barrier_wait(&together);
    if (!header) {
      int mask;
      header = map_ring();
      plugin = dlsym(dlopen(words[1], RTLD_NOW), "ncclProfiler_v6");
      plugin->init(&context, 1, &mask, "benchmark", 1, 8, 5, NULL);
    }
    drain();
    printf("%f %f", mean(spent_ns[0]), mean(spent_ns[1]));
    if (threads == 1) {
      double steps = time_steps();
      printf(" %f %f", steps, time_operations());
      drain();
    }
    printf("\n");
    pthread_barrier_wait(&together);
  }
  if (header->dropped)
    fprintf(stderr, "%llu records dropped\n", (unsigned long long)header->dropped);
  return header->dropped != 0;
}
#endif
