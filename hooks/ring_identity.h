/* Who this process is: what the header of its ring says, from the environment and /proc. */
#ifndef ONCALL_HOOKS_RING_IDENTITY_H
#define ONCALL_HOOKS_RING_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "oncall_ring.h"

/* Fills in job, node, ranks, process and clocks. */
void oncall_identify(struct oncall_header *header);

/* The value of an environment variable; NULL if it is unset or empty, or if the program has rights
 * that its user, who set it, has not. */
const char *oncall_setting(const char *name);

/* Like oncall_setting, as a number; `otherwise` if it is none, or not within low..high. */
int64_t oncall_number_setting(const char *name, int64_t low, int64_t high, int64_t otherwise);

/* Like it, as a number of slots: rounded up to a power of two, 64 at least. */
uint32_t oncall_slots_setting(const char *name, int64_t high, int64_t otherwise);

/* Whether nothing is to be recorded here: ONCALL_DISABLE, or a C library that is not glibc. */
bool oncall_disabled(void);

/* Has `in_child` called in every forked child, where the C library is glibc. */
void oncall_watch_forks(void (*in_child)(void));

/* One line on stderr. A stderr that nobody reads any more, or not fast enough, gets none: it must
 * neither end the job (SIGPIPE) nor hold it up. */
void oncall_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same under ONCALL_DEBUG=1 only. */
void oncall_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
