#define _GNU_SOURCE
#include "ring_quiet.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

void oncall_quiet_begin(struct oncall_quiet *quiet) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  sigset_t blocked;
  quiet->error = errno;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &quiet->cancellation);
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_BLOCK, &blocked, &quiet->mask);
}

void oncall_quiet_failed(int error) {
  static const struct timespec at_once = {0, 0};
  sigset_t raised;
  sigemptyset(&raised);
  if (error == EFBIG)
    sigaddset(&raised, SIGXFSZ);
  else if (error == EPIPE)
    sigaddset(&raised, SIGPIPE);
  else
    return;
  sigtimedwait(&raised, NULL, &at_once); /* it is for this thread: nobody else's is taken */
}

void oncall_quiet_end(const struct oncall_quiet *quiet) {
  pthread_sigmask(SIG_SETMASK, &quiet->mask, NULL);
  pthread_setcancelstate(quiet->cancellation, NULL);
  errno = quiet->error;
}
