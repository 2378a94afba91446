/* The host's side of the measurement: loads it into a NIC, asks for its pages once a second, and
 * writes them to standard output for the collector.
 *
 *     oncall-dpa-poller DEVICE [EVERY_MS [FIRST_EXECUTION_UNIT [RESPONSE_BYTES]]]
 *
 * DEVICE is the NIC's RDMA device. Ends with its reader, on SIGTERM, or when the NIC's program
 * does, after saying why.
 */
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_pcc.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"
#include "mailbox.h"
#include "measurement.h"

extern struct doca_pcc_app *oncall_pcc_app; /* dpacc --app-name=oncall_pcc_app */

static volatile sig_atomic_t is_stopping;

static void stop(int signal) {
  (void)signal;
  is_stopping = 1;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ---------------------------------------------------------------------------- frames */

/* Ends the program where nobody reads any more. */
static void write_all(const void *bytes, size_t count) {
  const char *at = bytes;
  while (count) {
    ssize_t done = write(STDOUT_FILENO, at, count);
    if (done < 0 && errno == EINTR && !is_stopping)
      continue;
    if (done < 0)
      exit(0);
    at += done;
    count -= (size_t)done;
  }
}

static void send_frame(enum frame_kind kind, const void *bytes, uint32_t count, int64_t before_ns) {
  struct frame frame = {.magic = FRAME_MAGIC,
                        .version = FRAME_VERSION,
                        .kind = (uint16_t)kind,
                        .bytes = count,
                        .before_ns = before_ns,
                        .after_ns = now_ns()};
  write_all(&frame, sizeof frame);
  write_all(bytes, count);
}

__attribute__((format(printf, 1, 2))) static void report_problem(const char *format, ...) {
  char sentence[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  send_frame(FRAME_PROBLEM, sentence, (uint32_t)strlen(sentence), now_ns());
}

static void must(doca_error_t result, const char *what) {
  if (result == DOCA_SUCCESS)
    return;
  report_problem("%s: %s", what, doca_error_get_descr(result));
  exit(1);
}

/* --------------------------------------------------------------------------- the NIC */

static struct doca_dev *open_device(const char *name) {
  struct doca_devinfo **list;
  uint32_t count;
  struct doca_dev *device = NULL;
  must(doca_devinfo_create_list(&list, &count), "NICs cannot be listed");
  for (uint32_t at = 0; at < count && !device; at++) {
    char found[DOCA_DEVINFO_IBDEV_NAME_SIZE] = "";
    if (doca_devinfo_get_ibdev_name(list[at], found, sizeof found) == DOCA_SUCCESS &&
        strcmp(found, name) == 0)
      must(doca_dev_open(list[at], &device), "the NIC cannot be opened");
  }
  doca_devinfo_destroy_list(list);
  if (!device) {
    report_problem("no NIC here is called %s", name);
    exit(1);
  }
  return device;
}

/* Threads on execution units that follow one another, as many as the measurement has shards. */
static void place_threads(struct doca_pcc *pcc, uint32_t first_unit) {
  uint32_t least = 1, most = SHARDS, units[SHARDS];
  must(doca_pcc_get_min_num_threads(pcc, &least), "its least number of threads is unknown");
  must(doca_pcc_get_max_num_threads(pcc, &most), "its largest number of threads is unknown");
  uint32_t count = most < SHARDS ? most : SHARDS;
  if (least > SHARDS) {
    report_problem("the NIC wants %u threads, the measurement was built for %u (SHARDS)", least,
                   SHARDS);
    exit(1);
  }
  for (uint32_t at = 0; at < count; at++)
    units[at] = first_unit + at;
  must(doca_pcc_set_thread_affinity(pcc, count, units), "threads cannot be placed");
}

static struct doca_pcc *start(struct doca_dev *device, uint32_t first_unit, uint32_t room) {
  struct doca_pcc *pcc;
  must(doca_pcc_create(device, &pcc), "programmable congestion control is not to be had");
  must(doca_pcc_set_app(pcc, oncall_pcc_app), "the program is refused");
  place_threads(pcc, first_unit);
  must(doca_pcc_set_mailbox(pcc, sizeof(struct mailbox_request), room), "no mailbox");
  must(doca_pcc_start(pcc), "the program does not start");
  return pcc;
}

/* Whether the NIC's program runs; if not, why. */
static int is_active(const struct doca_pcc *pcc) {
  doca_pcc_process_state_t state = DOCA_PCC_PS_ERROR;
  must(doca_pcc_get_process_state(pcc, &state), "its state is unknown");
  if (state == DOCA_PCC_PS_STANDBY)
    report_problem("on standby: another program controls this NIC's congestion");
  if (state == DOCA_PCC_PS_ACTIVE || state == DOCA_PCC_PS_STANDBY)
    return state == DOCA_PCC_PS_ACTIVE;
  report_problem("the NIC's program was %s",
                 state == DOCA_PCC_PS_ERROR ? "stopped by an error" : "deactivated");
  exit(1);
}

/* -------------------------------------------------------------------------- the pages */

/* Ask once and pass the answer on; returns whether there is more. */
static int pass_page(struct doca_pcc *pcc, uint32_t *received) {
  struct mailbox_request *request;
  struct mailbox_page *page;
  uint32_t bytes = 0, handled = 0;
  must(doca_pcc_mailbox_get_request_buffer(pcc, (void **)&request), "no buffer of requests");
  *request = (struct mailbox_request){
      .magic = MAILBOX_REQUEST_MAGIC, .version = MAILBOX_VERSION, .received = *received};
  int64_t before_ns = now_ns();
  must(doca_pcc_mailbox_send(pcc, sizeof *request, &bytes, &handled), "the NIC does not answer");
  must(doca_pcc_mailbox_get_response_buffer(pcc, (void **)&page), "no buffer of answers");
  if (handled || bytes < sizeof *page || page->magic != MAILBOX_PAGE_MAGIC) {
    report_problem("the NIC refuses to answer: is its program of the same version?");
    exit(1);
  }
  send_frame(FRAME_PAGE, page, bytes, before_ns);
  *received = page->number;
  return page->more != 0;
}

static uint32_t number(int count, char **arguments, int at, uint32_t otherwise) {
  return at < count ? (uint32_t)strtoul(arguments[at], NULL, 10) : otherwise;
}

int main(int count, char **arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: %s DEVICE [EVERY_MS [FIRST_EXECUTION_UNIT [RESPONSE_BYTES]]]\n",
            arguments[0]);
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
  sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
  uint32_t every_ms = number(count, arguments, 2, 1000);
  struct doca_dev *device = open_device(arguments[1]);
  struct doca_pcc *pcc =
      start(device, number(count, arguments, 3, 176), number(count, arguments, 4, 32768));
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  uint32_t received = 0;
  while (!is_stopping) {
    if (is_active(pcc))
      while (pass_page(pcc, &received) && !is_stopping)
        ;
    due.tv_nsec += every_ms % 1000 * 1000000;
    due.tv_sec += every_ms / 1000 + due.tv_nsec / 1000000000;
    due.tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
  }
  doca_pcc_stop(pcc);
  doca_pcc_destroy(pcc);
  doca_dev_close(device);
  return 0;
}
