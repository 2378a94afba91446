#define _GNU_SOURCE
#include "verbs_file.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ring_identity.h"
#include "ring_quiet.h"
#include "ring_shared_file.h"
#include "verbs_extended.h"
#include "verbs_patch.h"
#include "verbs_queue_pairs.h"

enum { DEFAULT_REQUESTS = 65536, MOST_REQUESTS = 1 << 24 };

struct oncall_verbs *oncall_verbs_now;

static struct oncall_verbs opened;
static struct oncall_shared_file file;
static pid_t opened_by;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Who records, as the ring says it. */
static void identify(struct oncall_verbs_header *header) {
  static struct oncall_header ring; /* a page: too much for a small thread's stack */
  memset(&ring, 0, sizeof ring);
  oncall_identify(&ring);
  header->anchor_monotonic_ns = ring.anchor_monotonic_ns;
  header->anchor_realtime_ns = ring.anchor_realtime_ns;
  header->process_started_ns = ring.process_started_ns;
  header->process_start_ticks = ring.process_start_ticks;
  header->pid = ring.pid;
  header->parent_pid = ring.parent_pid;
  header->rank = ring.rank;
  header->world_size = ring.world_size;
  header->local_rank = ring.local_rank;
  memcpy(header->job, ring.job, sizeof header->job);
  memcpy(header->node, ring.node, sizeof header->node);
  memcpy(header->hook_version, ring.hook_version, sizeof header->hook_version);
}

/* Where everything lies; returns the size of the file. */
static size_t lay_out(struct oncall_verbs_header *header) {
  header->magic = ONCALL_VERBS_MAGIC;
  header->layout_version = ONCALL_VERBS_LAYOUT;
  header->header_bytes = sizeof(struct oncall_verbs_header);
  header->queue_pair_slots = ONCALL_QUEUE_PAIR_SLOTS;
  header->queue_pair_bytes = sizeof(struct oncall_queue_pair);
  header->request_slots =
      oncall_slots_setting("ONCALL_VERBS_REQUESTS", MOST_REQUESTS, DEFAULT_REQUESTS);
  header->request_bytes = sizeof(struct oncall_request);
  header->queue_pairs_at = sizeof(struct oncall_verbs_header);
  header->requests_at =
      header->queue_pairs_at + (uint64_t)ONCALL_QUEUE_PAIR_SLOTS * sizeof(struct oncall_queue_pair);
  return header->requests_at + (uint64_t)header->request_slots * sizeof(struct oncall_request);
}

static bool make(void) {
  static struct oncall_verbs_header header;
  memset(&header, 0, sizeof header);
  identify(&header);
  header.loaded_by = oncall_verbs_preloaded ? 1 : 2;
  file.bytes = lay_out(&header);
  if (!oncall_shared_file_make(&file, "verbs", header.anchor_realtime_ns, &header, sizeof header))
    return false;
  opened = (struct oncall_verbs){
      .header = (struct oncall_verbs_header *)file.base,
      .boards = (struct oncall_queue_pair *)(file.base + header.queue_pairs_at),
      .requests = (struct oncall_request *)(file.base + header.requests_at),
      .request_mask = header.request_slots - 1,
  };
  return true;
}

struct oncall_verbs *oncall_verbs_open(void) {
  static pid_t failed_in; /* what could not be made once is not tried with every device */
  if (oncall_verbs() || oncall_disabled())
    return oncall_verbs();
  struct oncall_quiet quiet;
  oncall_quiet_begin(&quiet);
  pthread_mutex_lock(&opening);
  if (!oncall_verbs() && failed_in != getpid()) {
    if (make()) {
      opened_by = getpid();
      __atomic_store_n(&oncall_verbs_now, &opened, __ATOMIC_RELEASE);
    } else {
      failed_in = getpid();
    }
  }
  pthread_mutex_unlock(&opening);
  oncall_quiet_end(&quiet);
  return oncall_verbs();
}

/* A forked child is another process; what its parent posted is not its own. */
static void in_child(void) {
  pthread_mutex_init(&opening, NULL);
  queue_pairs_forget_all();
  verbs_patch_in_child();
  verbs_extended_in_child();
  if (!oncall_verbs_now)
    return;
  oncall_verbs_now = NULL;
  oncall_shared_file_leave(&file);
}

__attribute__((constructor)) static void watch_forks(void) { oncall_watch_forks(in_child); }

/* Threads may still post while the process exits: the mapping stays. */
__attribute__((destructor)) static void close_in_order(void) {
  struct oncall_verbs *verbs = oncall_verbs();
  if (verbs && opened_by == getpid()) /* a child that no handler of forks saw leaves it as it is */
    __atomic_store_n(&verbs->header->closed, 1, __ATOMIC_RELEASE);
}

void oncall_verbs_write(struct oncall_verbs *verbs, const struct oncall_request *request) {
  struct oncall_verbs_header *header = verbs->header;
  uint64_t position = __atomic_load_n(&header->head, __ATOMIC_RELAXED);
  do {
    uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
    /* Signed: a stale position may lie behind a tail that others made possible. */
    if ((int64_t)(position - tail) > (int64_t)verbs->request_mask) {
      __atomic_fetch_add(&header->dropped, 1, __ATOMIC_RELAXED);
      return;
    }
  } while (!__atomic_compare_exchange_n(&header->head, &position, position + 1, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  struct oncall_request *slot = &verbs->requests[position & verbs->request_mask];
  const size_t after_stamp = sizeof slot->stamp;
  memcpy((char *)slot + after_stamp, (const char *)request + after_stamp,
         sizeof *slot - after_stamp);
  __atomic_store_n(&slot->stamp, position + 1, __ATOMIC_RELEASE);
}
