#define _GNU_SOURCE
#include "ring_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ring_quiet.h"

const char *oncall_setting(const char *name) {
  const char *value = secure_getenv(name);
  return value && *value ? value : NULL;
}

static bool parse(const char *text, int64_t low, int64_t high, int64_t *number) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high)
    return false;
  *number = value;
  return true;
}

int64_t oncall_number_setting(const char *name, int64_t low, int64_t high, int64_t otherwise) {
  const char *text = oncall_setting(name);
  int64_t number;
  return text && parse(text, low, high, &number) ? number : otherwise;
}

uint32_t oncall_slots_setting(const char *name, int64_t high, int64_t otherwise) {
  int64_t wanted = oncall_number_setting(name, 1, high, otherwise);
  uint32_t slots = 64;
  while (slots < wanted)
    slots *= 2;
  return slots;
}

static void say(const char *format, va_list arguments) {
  struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
  struct oncall_quiet quiet;
  char line[512]; /* at most PIPE_BUF: a pipe that is ready takes it whole */
  oncall_quiet_begin(&quiet);
  int begun = snprintf(line, sizeof line, "oncall hooks [%d]: ", (int)getpid());
  int more = vsnprintf(line + begun, sizeof line - (size_t)begun, format, arguments);
  size_t length = strlen(line);
  if (more >= 0 && length == sizeof line - 1)
    length--;
  line[length++] = '\n';
  if (poll(&error, 1, 0) == 1 && error.revents & POLLOUT && write(STDERR_FILENO, line, length) < 0)
    oncall_quiet_failed(errno);
  oncall_quiet_end(&quiet);
}

void oncall_say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
}

/* Weak, and called in place of pthread_atfork, which glibc links as a copy that refers to it
 * strongly: musl has no such function, and would end every process that this library is preloaded
 * into. */
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));

bool oncall_disabled(void) {
  const char *disabled = oncall_setting("ONCALL_DISABLE");
  return (disabled && strcmp(disabled, "0") != 0) || !__register_atfork;
}

void oncall_watch_forks(void (*in_child)(void)) {
  if (__register_atfork)
    __register_atfork(NULL, NULL, in_child, NULL); /* NULL: of a library that is never unloaded */
}

void oncall_debug(const char *format, ...) {
  const char *wanted = oncall_setting("ONCALL_DEBUG");
  if (!wanted || strcmp(wanted, "1") != 0)
    return;
  va_list arguments;
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
}

/* The first variable of the launchers we know that holds a number. */
static int32_t first_number(const char *const names[]) {
  for (; *names; names++) {
    int64_t number = oncall_number_setting(*names, 0, INT32_MAX, -1);
    if (number >= 0)
      return (int32_t)number;
  }
  return -1;
}

static void copy(char *to, size_t size, const char *from) {
  if (from)
    snprintf(to, size, "%s", from);
}

static void name_job(char *to, size_t size) {
  const char *job = oncall_setting("ONCALL_JOB");
  const char *slurm = oncall_setting("SLURM_JOB_ID");
  const char *elastic = oncall_setting("TORCHELASTIC_RUN_ID");
  if (job)
    copy(to, size, job);
  else if (slurm)
    snprintf(to, size, "slurm-%s", slurm);
  else
    copy(to, size, elastic ? elastic : "unnamed");
}

static void name_node(char *to, size_t size) {
  const char *configured = oncall_setting("ONCALL_NODE");
  if (configured) {
    copy(to, size, configured);
    return;
  }
  if (gethostname(to, size) != 0)
    copy(to, size, "unknown");
  to[size - 1] = '\0';
  to[strcspn(to, ".")] = '\0';
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Field 22 of /proc/self/stat: ticks from boot to the start of this process; 0 if unreadable. */
static int64_t start_ticks(void) {
  char text[1024];
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  if (bytes <= 0)
    return 0;
  text[bytes] = '\0';
  char *at = strrchr(text, ')'); /* the command before it may hold anything */
  for (int field = 2; at && field < 22; field++)
    at = strchr(at + 1, ' ');
  return at ? strtoll(at + 1, NULL, 10) : 0;
}

/* One instant on both clocks: the pair read closest together of a few. */
static void anchor(struct oncall_header *header) {
  int64_t least = INT64_MAX;
  for (int attempt = 0; attempt < 5; attempt++) {
    int64_t before = clock_ns(CLOCK_MONOTONIC);
    int64_t realtime = clock_ns(CLOCK_REALTIME);
    int64_t after = clock_ns(CLOCK_MONOTONIC);
    if (after - before >= least)
      continue;
    least = after - before;
    header->anchor_monotonic_ns = before + least / 2;
    header->anchor_realtime_ns = realtime;
  }
}

static void identify_process(struct oncall_header *header) {
  header->pid = getpid();
  header->parent_pid = getppid();
  header->process_start_ticks = start_ticks();
  int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  if (header->process_start_ticks && ticks_per_second > 0) {
    int64_t booted_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME);
    header->process_started_ns =
        booted_ns + header->process_start_ticks * (1000000000ll / ticks_per_second);
  } else {
    header->process_started_ns = header->anchor_realtime_ns;
  }
}

void oncall_identify(struct oncall_header *header) {
  static const char *const ranks[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                      NULL};
  static const char *const local_ranks[] = {"LOCAL_RANK", "SLURM_LOCALID",
                                            "OMPI_COMM_WORLD_LOCAL_RANK", NULL};
  static const char *const sizes[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", NULL};
  anchor(header);
  identify_process(header);
  header->rank = first_number(ranks);
  header->local_rank = first_number(local_ranks);
  header->world_size = first_number(sizes);
  header->gpu = -1;
  name_job(header->job, sizeof header->job);
  name_node(header->node, sizeof header->node);
  copy(header->configuration, sizeof header->configuration, oncall_setting("ONCALL_JOB_CONFIG"));
}
