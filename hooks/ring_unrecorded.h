/* Why this process is not recorded: one line on stderr under ONCALL_DEBUG=1, and a note in the
 * rings' folder that the collector, `oncall hooks show` and `oncall doctor` read.
 *
 * The note is a symbolic link that leads nowhere and whose text is the reason: making it takes no
 * file descriptor, no room for data and no file size, so that it can be left where a ring cannot.
 */
#ifndef ONCALL_HOOKS_RING_UNRECORDED_H
#define ONCALL_HOOKS_RING_UNRECORDED_H

#include <stdint.h>

/* Leaves `<pid>-<started_ns>.<kind>.unrecorded` in `folder`; NULL: only says it. A reason that was
 * given already is not given again. */
void oncall_unrecorded(const char *folder, const char *kind, int64_t started_ns, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));

/* It is recorded now: a note that it had left is taken back. */
void oncall_recorded(void);

#endif
