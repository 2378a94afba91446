/* Preloaded: every fsync and every large write takes as long as on a disk that is dying. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

static void wait_ms(long ms) {
  struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static long slow_ms(void) {
  const char *text = getenv("SLOW_DISK_MS");
  return text ? atol(text) : 0;
}

int fsync(int descriptor) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  wait_ms(slow_ms());
  return real(descriptor);
}

int fdatasync(int descriptor) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  wait_ms(slow_ms());
  return real(descriptor);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t at) {
  ssize_t (*real)(int, const void *, size_t, off64_t) =
      (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  if (size > 4096)
    wait_ms(slow_ms() / 20);
  return real(descriptor, bytes, size, at);
}
