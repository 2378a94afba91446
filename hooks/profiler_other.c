#define _GNU_SOURCE
#include "profiler_other.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ring_identity.h"

/* Version 7's descriptor: version 6's, and fields behind those of some events. All that we cannot
 * know of them is 0, as it is for an NCCL that does not set them. */
union descriptor_v7 {
  ncclProfilerEventDescr_t older;
  char bytes[136];
};

static struct {
  int nccl_version, version; /* of the interface, between NCCL and us and between us and it */
  const ncclProfiler_v4_t *v4;
  const ncclProfiler_v5_t *newer; /* 5, 6, 7 */
  int mask;
} other;

extern const ncclProfiler_v4_t ncclProfiler_v4;
extern const ncclProfiler_v5_t ncclProfiler_v5, ncclProfiler_v6;

static bool is_ours(const void *table) {
  return table == &ncclProfiler_v4 || table == &ncclProfiler_v5 || table == &ncclProfiler_v6;
}

static void *open_library(const char *name) {
  char file[NAME_MAX + 1];
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* as NCCL does */
  const char *error = library ? NULL : dlerror();
  if (!library && !strchr(name, '/') &&
      snprintf(file, sizeof file, "libnccl-profiler-%s.so", name) < (int)sizeof file)
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    oncall_say("ONCALL_CHAIN_PROFILER: %s", error ? error : name);
  return library;
}

/* The table of the version that fits best: NCCL's own, one with the same layout, an older one. */
static bool choose(void *library) {
  static const int fitting[][5] = {{4}, {5, 6, 7, 4}, {6, 5, 7, 4}};
  for (const int *versions = fitting[other.nccl_version - 4]; *versions; versions++) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", *versions);
    const void *table = dlsym(library, symbol);
    if (!table)
      continue;
    if (is_ours(table))
      return false;
    other.version = *versions;
    other.v4 = *versions == 4 ? table : NULL;
    other.newer = *versions == 4 ? NULL : table;
    return true;
  }
  return false;
}

bool profiler_other_load(int version) {
  const char *name = oncall_setting("ONCALL_CHAIN_PROFILER");
  void *library = name ? open_library(name) : NULL;
  other.nccl_version = version;
  if (!library)
    return false;
  if (choose(library))
    return true;
  oncall_say("ONCALL_CHAIN_PROFILER: %s is this library itself, or has no plugin that an NCCL of "
             "interface version %d could call",
             name, version);
  dlclose(library);
  return false;
}

bool profiler_other_init(void **context, const struct profiler_communicator *given,
                         ncclDebugLogger_t log) {
  *context = NULL;
  ncclResult_t failed = other.v4 ? other.v4->init(context, &other.mask, given->name, given->hash,
                                                  given->nodes, given->size, given->rank, log)
                                 : other.newer->init(context, given->hash, &other.mask, given->name,
                                                     given->nodes, given->size, given->rank, log);
  return !failed;
}

void profiler_other_finalize(void *context) {
  (other.v4 ? other.v4->finalize : other.newer->finalize)(context);
}

int profiler_other_mask(void) { return __atomic_load_n(&other.mask, __ATOMIC_RELAXED); }

/* The part of a newer event that version 4 knows, its group as its parent; false: it knows none. */
static bool to_v4(ncclProfilerEventDescr_t *old, const ncclProfilerEventDescr_t *event) {
  if (event->type > ncclProfileNetPlugin)
    return false;
  *old = *event;
  if (event->type == ncclProfileColl)
    old->parentObj = event->coll.parentGroup;
  else if (event->type == ncclProfileP2p)
    old->parentObj = event->p2p.parentGroup;
  return true;
}

void *profiler_other_start(void *context, uint64_t type, ncclProfilerEventDescr_t *event) {
  ncclProfilerEventDescr_t old;
  union descriptor_v7 newer;
  void *handle = NULL;
  if (other.v4 && other.nccl_version == 4) {
    other.v4->startEvent(context, &handle, event);
  } else if (other.v4) {
    if (to_v4(&old, event))
      other.v4->startEvent(context, &handle, &old);
  } else if (other.version == 7) {
    memset(&newer, 0, sizeof newer);
    newer.older = *event;
    other.newer->startEvent(context, &handle, &newer.older);
  } else if (other.version >= 6 || type < ncclProfileCeColl) {
    other.newer->startEvent(context, &handle, event);
  }
  return handle;
}

void profiler_other_stop(void *handle) {
  (other.v4 ? other.v4->stopEvent : other.newer->stopEvent)(handle);
}

void profiler_other_state(void *handle, int state, ncclProfilerEventStateArgs_t *arguments) {
  (other.v4 ? other.v4->recordEventState : other.newer->recordEventState)(handle, state, arguments);
}
