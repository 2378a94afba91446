#define _GNU_SOURCE
#include "ring_unrecorded.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ring_identity.h"

/* Its users hold the lock under which a file is made. */
static char note[PATH_MAX]; /* "": none is left */
static char reason[256];
static pid_t given_by; /* a forked child gives its own */

static void leave_note(const char *folder, const char *kind, int64_t started_ns) {
  int length = snprintf(note, sizeof note, "%s/%d-%lld.%s.unrecorded", folder, (int)getpid(),
                        (long long)started_ns, kind);
  if (length < 0 || length >= (int)sizeof note || symlink(reason, note) != 0)
    note[0] = '\0';
}

void oncall_unrecorded(const char *folder, const char *kind, int64_t started_ns, const char *format,
                       ...) {
  char text[sizeof reason];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (given_by == getpid() && strcmp(text, reason) == 0)
    return;
  if (given_by == getpid() && note[0])
    unlink(note);
  given_by = getpid();
  note[0] = '\0';
  memcpy(reason, text, sizeof reason);
  oncall_debug("not recorded (%s): %s", kind, reason);
  if (folder && reason[0])
    leave_note(folder, kind, started_ns);
}

void oncall_recorded(void) {
  if (given_by == getpid() && note[0])
    unlink(note);
  note[0] = reason[0] = '\0';
}
