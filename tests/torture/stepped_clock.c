/* Preloaded: the wall clock stands beside the machine's by the nanoseconds in a file, the monotonic
 * one does not. Whoever writes the file sets the clock of the program, while it runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

static const volatile int64_t *offset_ns;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("STEPPED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file >= 0) {
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
      offset_ns = page;
    close(file);
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real)
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (result == 0 && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t at_ns = (int64_t)now->tv_sec * NS_PER_S + now->tv_nsec + *offset_ns;
    now->tv_sec = at_ns / NS_PER_S;
    now->tv_nsec = at_ns % NS_PER_S;
  }
  return result;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds)
    *seconds = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return 0;
}
