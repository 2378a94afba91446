/* A stand-in for DOCA's host library and for the NIC behind it, in one process: the device's
 * program is linked in, and events are read from a file. It shows nothing of a real NIC.
 *
 * ONCALL_STANDIN_EVENTS names the file, one event a line, in the order of time:
 *
 *     ended_unix_ns duration_ns vhca qpn units packets sn
 *
 * An event happens when its time has come and the host asks. The NIC's clock is Unix time less
 * SKEW_NS, of which the NIC tells 32 bits. ONCALL_STANDIN_STATE names a file with the program's
 * state, 0 to 3, read at each look; without it the program is active.
 */
#include <doca_pcc.h>
#include <doca_pcc_dev_algo_access.h>
#include <doca_pcc_dev_services.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SKEW_NS 1234567890123456789ll
#define NAME "mlx5_standin"

struct doca_dev {
  int is_open;
};

struct doca_devinfo {
  const char *name;
};

struct doca_pcc {
  uint32_t request_size, response_size, threads;
  _Alignas(8) char request[64];
  void *response;
  FILE *events;
};

struct doca_pcc_app {
  int unused;
};

static struct doca_pcc_app app;
struct doca_pcc_app *oncall_pcc_app = &app;

static struct doca_dev the_device;
static struct doca_devinfo the_info = {NAME};
static struct doca_devinfo *the_list[] = {&the_info};
static struct doca_pcc the_pcc;
static uint32_t thread_rank;

static int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ------------------------------------------------------------------ the device's library */

uint64_t doca_pcc_dev_get_timer(void) { return (uint64_t)clock_ns(CLOCK_MONOTONIC) / 1000; }

uint32_t doca_pcc_dev_thread_rank(void) { return thread_rank; }

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt,
                                        doca_pcc_dev_event_t *event,
                                        const doca_pcc_dev_attr_t *attr,
                                        doca_pcc_dev_results_t *results) {
  (void)algo_ctxt, (void)event, (void)attr;
  *results = (doca_pcc_dev_results_t){0};
}

struct line {
  long long ended_ns;
  unsigned duration_ns, vhca, qpn, units, packets, sn;
};

/* As the NIC writes it: big-endian. */
static void happen(const struct line *line) {
  uint32_t ended_ns = (uint32_t)(line->ended_ns - SKEW_NS);
  doca_pcc_dev_event_t event = {
      .function = __builtin_bswap32(line->vhca << 16),
      .ev_attr = __builtin_bswap32(DOCA_PCC_DEV_EVNT_ROCE_TX),
      .sn = __builtin_bswap32(line->sn),
      .timestamp = __builtin_bswap32(ended_ns),
      .ev_spec = {__builtin_bswap32(ended_ns - line->duration_ns),
                  __builtin_bswap32(line->packets << 16 | (line->units & 65535)),
                  __builtin_bswap32(line->qpn)},
  };
  doca_pcc_dev_algo_ctxt_t context = {0};
  doca_pcc_dev_attr_t attr = {.algo_slot = 15};
  doca_pcc_dev_results_t results;
  doca_pcc_dev_user_algo(&context, &event, &attr, &results);
  thread_rank = (thread_rank + 1) % the_pcc.threads;
}

static void let_time_pass(void) {
  struct line line;
  while (the_pcc.events) {
    long before = ftell(the_pcc.events);
    int fields =
        fscanf(the_pcc.events, "%lld %u %u %u %u %u %u\n", &line.ended_ns, &line.duration_ns,
               &line.vhca, &line.qpn, &line.units, &line.packets, &line.sn);
    if (fields != 7)
      return;
    if (line.ended_ns > clock_ns(CLOCK_REALTIME)) {
      fseek(the_pcc.events, before, SEEK_SET);
      return;
    }
    happen(&line);
  }
}

/* --------------------------------------------------------------------- the host's library */

const char *doca_error_get_descr(doca_error_t error) {
  return error == DOCA_SUCCESS ? "success" : "unknown error";
}

doca_error_t doca_devinfo_create_list(struct doca_devinfo ***list, uint32_t *count) {
  *list = the_list;
  *count = 1;
  return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **list) {
  (void)list;
  return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *info, char *name,
                                         uint32_t size) {
  snprintf(name, size, "%s", info->name);
  return DOCA_SUCCESS;
}

doca_error_t doca_dev_open(struct doca_devinfo *info, struct doca_dev **device) {
  (void)info;
  *device = &the_device;
  return DOCA_SUCCESS;
}

doca_error_t doca_dev_close(struct doca_dev *device) {
  (void)device;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_create(struct doca_dev *device, struct doca_pcc **pcc) {
  (void)device;
  *pcc = &the_pcc;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_destroy(struct doca_pcc *pcc) {
  free(pcc->response);
  if (pcc->events)
    fclose(pcc->events);
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_get_min_num_threads(struct doca_pcc *pcc, uint32_t *least) {
  (void)pcc;
  *least = 1;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_get_max_num_threads(struct doca_pcc *pcc, uint32_t *most) {
  (void)pcc;
  *most = 256;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_set_app(struct doca_pcc *pcc, struct doca_pcc_app *chosen) {
  (void)pcc;
  return chosen == &app ? DOCA_SUCCESS : DOCA_ERROR_UNKNOWN;
}

doca_error_t doca_pcc_set_thread_affinity(struct doca_pcc *pcc, uint32_t threads,
                                          uint32_t *execution_units) {
  (void)execution_units;
  pcc->threads = threads;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_set_mailbox(struct doca_pcc *pcc, uint32_t request_size,
                                  uint32_t response_size) {
  pcc->request_size = request_size;
  pcc->response_size = response_size;
  return request_size <= sizeof pcc->request ? DOCA_SUCCESS : DOCA_ERROR_UNKNOWN;
}

doca_error_t doca_pcc_start(struct doca_pcc *pcc) {
  const char *path = getenv("ONCALL_STANDIN_EVENTS");
  pcc->response = malloc(pcc->response_size);
  pcc->events = path ? fopen(path, "r") : NULL;
  uint32_t disabled;
  doca_pcc_dev_user_init(&disabled);
  return pcc->response && (pcc->events || !path) ? DOCA_SUCCESS : DOCA_ERROR_UNKNOWN;
}

doca_error_t doca_pcc_stop(struct doca_pcc *pcc) {
  (void)pcc;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_get_process_state(const struct doca_pcc *pcc,
                                        doca_pcc_process_state_t *state) {
  (void)pcc;
  const char *path = getenv("ONCALL_STANDIN_STATE");
  FILE *file = path ? fopen(path, "r") : NULL;
  int stated = file ? fgetc(file) - '0' : DOCA_PCC_PS_ACTIVE;
  if (file)
    fclose(file);
  *state = (doca_pcc_process_state_t)stated;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_mailbox_get_request_buffer(struct doca_pcc *pcc, void **buffer) {
  *buffer = pcc->request;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_mailbox_get_response_buffer(struct doca_pcc *pcc, void **buffer) {
  *buffer = pcc->response;
  return DOCA_SUCCESS;
}

doca_error_t doca_pcc_mailbox_send(struct doca_pcc *pcc, uint32_t request_size,
                                   uint32_t *response_size, uint32_t *handler_result) {
  let_time_pass();
  *handler_result = doca_pcc_dev_user_mailbox_handle(pcc->request, request_size, pcc->response_size,
                                                     pcc->response, response_size);
  return DOCA_SUCCESS;
}
