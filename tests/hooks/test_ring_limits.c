/* What opening a ring leaves as it was in the thread that does it: its signals, its errno, its
 * locks when it is cancelled; and what a process without our handlers of forks does to the ring. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "ring.h"
#include "run_folder.h"

static bool limit_is_hidden;
static volatile sig_atomic_t signals;

/* In libc's place: the limit is lowered between our look at it and our write. */
int getrlimit(__rlimit_resource_t which, struct rlimit *limit) {
  if (limit_is_hidden && which == RLIMIT_FSIZE) {
    *limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    return 0;
  }
  return (int)syscall(SYS_prlimit64, 0, which, NULL, limit);
}

static void count_signal(int signal) {
  (void)signal;
  signals++;
}

static void a_limit_that_comes_in_between(void) {
  struct rlimit small = {1 << 20, RLIM_INFINITY};
  sigset_t mask, after;
  signal(SIGXFSZ, count_signal);
  EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
  limit_is_hidden = true;
  EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
  errno = 77;
  EXPECT(!oncall_ring_open() && errno == 77);
  EXPECT(signals == 0 && sigpending(&after) == 0 && !sigismember(&after, SIGXFSZ));
  EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
  for (int number = 1; number < SIGRTMIN; number++)
    EXPECT(sigismember(&mask, number) == sigismember(&after, number));
  small.rlim_cur = RLIM_INFINITY;
  EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
  EXPECT(oncall_ring_open()); /* the next communicator may have more luck */
}

static void *open_it(void *opened) {
  *(bool *)opened = oncall_ring_open() != NULL;
  return NULL;
}

static void *open_cancelled(void *opened) {
  pthread_cancel(pthread_self()); /* comes true at the next call that may be cancelled */
  *(bool *)opened = oncall_ring_open() != NULL;
  pthread_testcancel();
  return NULL;
}

static void a_thread_that_is_cancelled(void) {
  pthread_t thread;
  void *result;
  bool opened = false;
  EXPECT(pthread_create(&thread, NULL, open_cancelled, &opened) == 0);
  EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  EXPECT(opened);
  alarm(20);
  EXPECT(oncall_ring_open());
}

static void a_small_stack(void) {
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
  pthread_attr_t attributes;
  pthread_t thread;
  bool opened = false;
  pthread_attr_init(&attributes);
  EXPECT(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
  setenv("ONCALL_RING_GROUP", "no such group", 1);
  EXPECT(pthread_create(&thread, &attributes, open_it, &opened) == 0);
  EXPECT(pthread_join(thread, NULL) == 0 && opened);
#else
  (void)open_it;
#endif
}

static int descriptor_of_ring(void) {
  char link[64], target[PATH_MAX];
  for (int fd = 0; fd < 1024; fd++) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length > 5 && memcmp(target + length - 5, ".ring", 5) == 0)
      return fd;
  }
  return -1;
}

/* A daemon closes all it has, and opens its own under the same number. */
static void a_descriptor_used_again(void) {
  EXPECT(oncall_ring_open());
  int ours = descriptor_of_ring();
  EXPECT(ours > 2 && dup2(2, ours) == ours);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0)
    _exit(fcntl(ours, F_GETFD) < 0);
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

/* No handler of forks runs before it, and its destructors do. */
static void a_child_by_system_call(void) {
  EXPECT(oncall_ring_open());
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  EXPECT(child >= 0);
  if (child == 0)
    exit(0);
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(!oncall_ring()->header->closed);
}

static void in_child(void (*body)(void)) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  each_ring(remove_ring);
}

int main(void) {
  enter_run_folder();
  in_child(a_limit_that_comes_in_between);
  in_child(a_thread_that_is_cancelled);
  in_child(a_small_stack);
  in_child(a_descriptor_used_again);
#ifndef __SANITIZE_THREAD__ /* knows no process that it did not see begin */
  in_child(a_child_by_system_call);
#else
  (void)a_child_by_system_call;
#endif
  leave_run_folder();
  return 0;
}
