/* A second profiler plugin: writes down what it is called with, one call a line, into
 * $RECORDER_FILE. Built with -DVERSIONS=BITS, the versions of the interface that it has.
 *
 *   RECORDER_MASK     the events it wants
 *   RECORDER_HANDLES  "numbers": handles that are no addresses
 *   RECORDER_INIT     "fails"
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_profiler.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST = 1 << 19 };
static struct event {
  int id;
} events[MOST]; /* never used again: a handle that comes late is still known */
static struct context {
  int id;
} contexts[64];
static int events_made, contexts_made;
static FILE *out;
EXPORT int *recorder_mask; /* as it was given: a plugin may change it at any time */
static bool numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NUMBER(id) ((void *)(0x5000000000000000ull + (unsigned)(id)))

static void *handle_of(int id) { return numbers ? NUMBER(id) : &events[id]; }

/* 0: none; -1: not one that it gave. */
static int id_of(const void *handle) {
  if (!handle)
    return 0;
  for (int id = 1; numbers && id <= events_made; id++)
    if (handle == NUMBER(id))
      return id;
  const struct event *event = handle;
  return !numbers && event > events && event <= events + events_made ? (int)(event - events) : -1;
}

static int context_id(const void *pointer) {
  const struct context *context = pointer;
  return context > contexts && context <= contexts + contexts_made ? (int)(context - contexts) : -1;
}

static const char *text(const char *text) { return text ? text : "-"; }

static void describe(uint64_t type, const ncclProfilerEventDescr_t *e, int version) {
  void *group = NULL;
  switch (type) {
  case ncclProfileGroupApi:
    fprintf(out, " depth=%d", e->groupApi.groupDepth);
    break;
  case ncclProfileCollApi:
    fprintf(out, " %s %zu %s %d", e->collApi.func, e->collApi.count, e->collApi.datatype,
            e->collApi.root);
    break;
  case ncclProfileP2pApi:
    fprintf(out, " %s %zu %s", e->p2pApi.func, e->p2pApi.count, e->p2pApi.datatype);
    break;
  case ncclProfileColl:
    fprintf(out, " %s %llu %zu %s %d %d %d %s %s", e->coll.func,
            (unsigned long long)e->coll.seqNumber, e->coll.count, e->coll.datatype, e->coll.root,
            e->coll.nChannels, e->coll.nWarps, text(e->coll.algo), text(e->coll.proto));
    group = version >= 5 ? e->coll.parentGroup : NULL;
    break;
  case ncclProfileP2p:
    fprintf(out, " %s %zu %s %d", e->p2p.func, e->p2p.count, e->p2p.datatype, e->p2p.peer);
    group = version >= 5 ? e->p2p.parentGroup : NULL;
    break;
  case ncclProfileProxyOp:
    fprintf(out, " %d %d %d %d %d", e->proxyOp.channelId, e->proxyOp.peer, e->proxyOp.nSteps,
            e->proxyOp.chunkSize, e->proxyOp.isSend);
    break;
  case ncclProfileKernelCh:
    fprintf(out, " %d", e->kernelCh.channelId);
    break;
  }
  if (version == 7) { /* what lies behind version 6's fields of a collective */
    uint64_t more[3];
    memcpy(more, (const char *)e + sizeof *e, sizeof more);
    fprintf(out, " tag=%llu", (unsigned long long)(more[0] | more[1] | more[2]));
  }
  fprintf(out, " group=%d", id_of(group));
}

static ncclResult_t start(void *context, void **handle, uint64_t type,
                          ncclProfilerEventDescr_t *event, int version) {
  pthread_mutex_lock(&lock);
  int id = events_made + 1 < MOST ? ++events_made : 0;
  fprintf(out, "start %d %d %llu %d rank=%d", id, context_id(context), (unsigned long long)type,
          id_of(event->parentObj), event->rank);
  describe(type, event, version);
  fprintf(out, "\n");
  pthread_mutex_unlock(&lock);
  *handle = id ? handle_of(id) : NULL;
  return ncclSuccess;
}

static ncclResult_t stop(void *handle) {
  pthread_mutex_lock(&lock);
  fprintf(out, "stop %d\n", id_of(handle));
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t state(void *handle, int state, ncclProfilerEventStateArgs_t *arguments) {
  bool is_step = state >= ncclProfilerProxyStepSendGPUWait && state <= 20 && state != 19;
  pthread_mutex_lock(&lock);
  fprintf(out, "state %d %d %zu\n", id_of(handle), state,
          is_step && arguments ? arguments->proxyStep.transSize : 0);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t finalize(void *context) {
  pthread_mutex_lock(&lock);
  fprintf(out, "finalize %d\n", context_id(context));
  fflush(out);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t begin(void **context, int *mask, int version, const char *name, int nodes,
                          int size, int rank) {
  const char *wanted = getenv("RECORDER_MASK"), *fails = getenv("RECORDER_INIT");
  const char *handles = getenv("RECORDER_HANDLES");
  pthread_mutex_lock(&lock);
  numbers = handles && strcmp(handles, "numbers") == 0;
  if (!out)
    out = fopen(getenv("RECORDER_FILE"), "we");
  *mask = wanted ? atoi(wanted) : 0;
  recorder_mask = mask;
  *context = &contexts[++contexts_made];
  fprintf(out, "init %d %d %s %d %d %d\n", contexts_made, version, text(name), nodes, size, rank);
  pthread_mutex_unlock(&lock);
  return fails ? ncclInvalidUsage : ncclSuccess;
}

static inline ncclResult_t init_4(void **context, int *mask, const char *name, uint64_t hash,
                                  int nodes, int size, int rank, ncclDebugLogger_t log) {
  (void)log, (void)hash;
  return begin(context, mask, 4, name, nodes, size, rank);
}

static inline ncclResult_t start_4(void *context, void **handle, ncclProfilerEventDescr_t *event) {
  return start(context, handle, *(const uint8_t *)&event->type, event, 4);
}

#define NEWER(version)                                                                             \
  static ncclResult_t init_##version(void **context, uint64_t hash, int *mask, const char *name,   \
                                     int nodes, int size, int rank, ncclDebugLogger_t log) {       \
    (void)log, (void)hash;                                                                         \
    return begin(context, mask, version, name, nodes, size, rank);                                 \
  }                                                                                                \
  static ncclResult_t start_##version(void *context, void **handle,                                \
                                      ncclProfilerEventDescr_t *event) {                           \
    return start(context, handle, event->type, event, version);                                    \
  }                                                                                                \
  EXPORT const ncclProfiler_v5_t ncclProfiler_v##version = {                                       \
      "recorder", init_##version, start_##version, stop, state, finalize};

#if VERSIONS & 1 << 4
EXPORT const ncclProfiler_v4_t ncclProfiler_v4 = {"recorder", init_4, start_4,
                                                  stop,       state,  finalize};
#endif
#if VERSIONS & 1 << 5
NEWER(5)
#endif
#if VERSIONS & 1 << 6
NEWER(6)
#endif
#if VERSIONS & 1 << 7
NEWER(7)
#endif
