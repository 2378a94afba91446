#include "profiler_events.h"

#include <stdlib.h>
#include <string.h>

#include "nccl_profiler.h"
#include "ring.h"
#include "ring_identity.h"

static int *nccl_mask;
static int own;    /* what we want */
static int others; /* what a chained plugin wants */

static const struct {
  const char *name;
  int event;
} names[] = {
    {"coll", ncclProfileColl},         {"p2p", ncclProfileP2p},
    {"proxyop", ncclProfileProxyOp},   {"proxystep", ncclProfileProxyStep},
    {"kernelch", ncclProfileKernelCh}, {"groupapi", ncclProfileGroupApi},
    {"collapi", ncclProfileCollApi},   {"p2papi", ncclProfileP2pApi},
};

static int all_events(void) {
  int all = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    all |= names[i].event;
  return all;
}

/* ONCALL_EVENTS="coll,p2p,kernelch"; unset: all. Unknown names are passed over. */
static int events_from_environment(void) {
  const char *at = oncall_setting("ONCALL_EVENTS");
  if (!at)
    return all_events();
  int events = 0;
  while (*at) {
    size_t length = strcspn(at, ", ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strlen(names[i].name) == length && strncmp(at, names[i].name, length) == 0)
        events |= names[i].event;
    at += length + (at[length] != '\0');
  }
  return events;
}

static void publish_mask(void) {
  int *mask = __atomic_load_n(&nccl_mask, __ATOMIC_ACQUIRE);
  int both = __atomic_load_n(&own, __ATOMIC_SEQ_CST) | __atomic_load_n(&others, __ATOMIC_SEQ_CST);
  if (mask)
    __atomic_store_n(mask, both, __ATOMIC_RELAXED);
}

void profiler_events_begin(bool records, int *mask) {
  struct oncall_ring *ring = oncall_ring();
  __atomic_store_n(&nccl_mask, mask, __ATOMIC_RELEASE);
  if (!records || !ring) {
    __atomic_store_n(&own, 0, __ATOMIC_SEQ_CST);
    publish_mask();
    return;
  }
  int events = events_from_environment();
  __atomic_store_n(&own, events, __ATOMIC_SEQ_CST);
  __atomic_store_n(&ring->header->event_mask_now, (uint32_t)events, __ATOMIC_RELAXED);
  publish_mask();
}

void profiler_events_of_other(int events) {
  if (__atomic_load_n(&others, __ATOMIC_RELAXED) == events)
    return;
  __atomic_store_n(&others, events, __ATOMIC_SEQ_CST);
  publish_mask();
}

int profiler_events_wanted(void) { return __atomic_load_n(&own, __ATOMIC_RELAXED); }
