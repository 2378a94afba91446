/* The communicators as NCCL's profiler names them: one context each, joined to the shim's view.
 *
 * The plugin's init comes within the call that initialises a communicator, in its thread or in
 * another one of NCCL's. Where several are being initialised alike it cannot be said which it is
 * about; then the first call on the communicator tells. */
#ifndef ONCALL_HOOKS_PROFILER_CONTEXTS_H
#define ONCALL_HOOKS_PROFILER_CONTEXTS_H

#include "communicators.h"

/* A communicator as NCCL describes it to the plugin. */
struct profiler_communicator {
  uint8_t version; /* of the plugin interface */
  uint64_t hash;
  const char *name; /* NULL: none */
  int nodes, size, rank;
};

struct profiler_context;

/* NULL: no room, or no ring. */
struct profiler_context *profiler_context_begin(const struct profiler_communicator *given);

/* The one NCCL means; NULL: `pointer` is none of ours. */
struct profiler_context *profiler_context_of(void *pointer);

void profiler_context_end(struct profiler_context *context);

uint8_t profiler_context_version(const struct profiler_context *context);

/* The shim has not seen the communicator: all that is known of it comes by way of the plugin. */
bool profiler_context_is_alone(const struct profiler_context *context);

/* A call on the context came within the shim's call on `communicator`: they are one. */
void profiler_context_is(struct profiler_context *context, struct communicator *communicator);

/* Its communicator; NULL: not recorded. */
struct communicator *profiler_context_communicator(struct profiler_context *context);

#endif
