#define _GNU_SOURCE
#include "ring_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

static struct {
  uintptr_t base;
  size_t bytes;
} guarded;
static bool installed;
static struct sigaction before_us;

bool oncall_replace_memory(void *base, size_t bytes) {
  const int access = PROT_READ | PROT_WRITE, kind = MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  /* RLIMIT_DATA counts private memory, and does not count shared. */
  return mmap(base, bytes, access, kind | MAP_PRIVATE, -1, 0) != MAP_FAILED ||
         mmap(base, bytes, access, kind | MAP_SHARED, -1, 0) != MAP_FAILED;
}

static bool is_guarded(const siginfo_t *info) {
  uintptr_t base = __atomic_load_n(&guarded.base, __ATOMIC_ACQUIRE);
  uintptr_t at = (uintptr_t)info->si_addr;
  return info->si_code > 0 && base && at >= base && at - base < guarded.bytes;
}

/* As if we were not there. */
static void pass_on(int signal, siginfo_t *info, void *context) {
  const struct sigaction next = before_us;
  bool was_sent = info->si_code <= 0; /* by kill, and not by a fault */
  if (next.sa_handler == SIG_IGN && was_sent)
    return;
  if (next.sa_handler == SIG_DFL || next.sa_handler == SIG_IGN) {
    struct sigaction none = {.sa_handler = SIG_DFL};
    sigaction(signal, &none, NULL); /* a fault comes again, and ends the process where it is */
    if (was_sent)
      raise(signal);
    return;
  }
  if (next.sa_flags & (int)SA_RESETHAND)
    before_us = (struct sigaction){.sa_handler = SIG_DFL};
  if (next.sa_flags & SA_SIGINFO)
    next.sa_sigaction(signal, info, context);
  else
    next.sa_handler(signal);
}

static void on_bus_error(int signal, siginfo_t *info, void *context) {
  int saved = errno;
  bool mended = is_guarded(info) && oncall_replace_memory((void *)guarded.base, guarded.bytes);
  errno = saved;
  if (!mended)
    pass_on(signal, info, context);
}

/* Once: a handler that the job installs later may call ours, which must not call it again. What we
 * replace is what we pass on to, even if another thread, as that of our other library, has
 * installed its own since we looked. */
static void install(void) {
  struct sigaction replaced;
  if (installed || sigaction(SIGBUS, NULL, &before_us) != 0)
    return;
  struct sigaction ours = before_us;
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = (before_us.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
  installed = sigaction(SIGBUS, &ours, &replaced) == 0;
  if (installed)
    before_us = replaced;
}

void oncall_guard(void *base, size_t bytes) {
  __atomic_store_n(&guarded.base, 0, __ATOMIC_RELEASE);
  guarded.bytes = bytes;
  __atomic_store_n(&guarded.base, (uintptr_t)base, __ATOMIC_RELEASE);
  if (base)
    install();
}
