/* A stretch of system calls in the job's own thread that the job must not notice.
 *
 * Within it the thread takes no signal, so that none of the job's handlers runs while we hold a
 * lock and no call ends with EINTR; it cannot be cancelled; and a signal that one of our own calls
 * raises (SIGXFSZ, SIGPIPE) is removed again. Signals of faults stay as they are. */
#ifndef ONCALL_HOOKS_RING_QUIET_H
#define ONCALL_HOOKS_RING_QUIET_H

#include <signal.h>

struct oncall_quiet {
  sigset_t mask; /* the thread's own */
  int cancellation;
  int error; /* errno as it was */
};

void oncall_quiet_begin(struct oncall_quiet *quiet);

/* One of our calls failed with EFBIG or EPIPE: the signal that came with it is taken back. */
void oncall_quiet_failed(int error);

/* errno is again what it was. */
void oncall_quiet_end(const struct oncall_quiet *quiet);

#endif
