#include "profiler_contexts.h"

#include <stdio.h>

enum { MOST = 1024 };

struct profiler_context {
  uint32_t in_use;
  bool alone;                        /* its board was made here, or there was no room for one */
  struct communicator *communicator; /* NULL: not known yet which, or not recorded */
  struct profiler_communicator given;
  char name[ONCALL_NAME_BYTES];
};

static struct profiler_context contexts[MOST];

static struct profiler_context *take(void) {
  for (uint32_t i = 0; i < MOST; i++) {
    uint32_t free = 0;
    if (__atomic_compare_exchange_n(&contexts[i].in_use, &free, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
      return &contexts[i];
  }
  return NULL;
}

static struct communicator *known(const struct profiler_context *context) {
  return __atomic_load_n(&context->communicator, __ATOMIC_ACQUIRE);
}

static void join(struct profiler_context *context, struct communicator *communicator) {
  const struct profiler_communicator *given = &context->given;
  __atomic_store_n(&communicator->profiler, given->version, __ATOMIC_RELAXED);
  communicator_identified(communicator, given->hash, given->name, given->nodes, given->size,
                          given->rank);
  __atomic_store_n(&context->communicator, communicator, __ATOMIC_RELEASE);
}

static void make(struct profiler_context *context) {
  const struct profiler_communicator *given = &context->given;
  struct communicator *made = communicator_begin(given->hash, 0, given->rank, given->size);
  context->alone = true;
  if (!made)
    return;
  join(context, made);
  communicator_state(made, ONCALL_COMMUNICATOR_RUNNING);
}

struct profiler_context *profiler_context_begin(const struct profiler_communicator *given) {
  struct profiler_context *context = oncall_ring() ? take() : NULL;
  if (!context)
    return NULL;
  context->alone = false;
  context->communicator = NULL;
  context->given = *given;
  context->given.name = NULL;
  if (given->name) {
    snprintf(context->name, sizeof context->name, "%s", given->name);
    context->given.name = context->name;
  }
  int candidates = 1;
  struct communicator *communicator = communicator_initialising;
  if (!communicator)
    communicator = communicator_awaiting(given->rank, given->size, false, &candidates);
  if (communicator)
    join(context, communicator);
  else if (!candidates)
    make(context);
  return context;
}

struct profiler_context *profiler_context_of(void *pointer) {
  struct profiler_context *context = pointer;
  bool ours = context >= contexts && context < contexts + MOST;
  return ours && __atomic_load_n(&context->in_use, __ATOMIC_ACQUIRE) ? context : NULL;
}

void profiler_context_end(struct profiler_context *context) {
  if (context->alone)
    communicator_close(known(context), ONCALL_COMMUNICATOR_DESTROYED);
  __atomic_store_n(&context->in_use, 0, __ATOMIC_RELEASE);
}

uint8_t profiler_context_version(const struct profiler_context *context) {
  return context->given.version;
}

bool profiler_context_is_alone(const struct profiler_context *context) { return context->alone; }

void profiler_context_is(struct profiler_context *context, struct communicator *communicator) {
  if (known(context) == communicator)
    return;
  if (context->alone)
    communicator_close(known(context), ONCALL_COMMUNICATOR_DESTROYED);
  context->alone = false;
  join(context, communicator);
}

struct communicator *profiler_context_communicator(struct profiler_context *context) {
  if (known(context) || context->alone)
    return known(context);
  int candidates;
  struct communicator *communicator =
      communicator_awaiting(context->given.rank, context->given.size, false, &candidates);
  if (communicator)
    join(context, communicator);
  else
    make(context);
  return known(context);
}
