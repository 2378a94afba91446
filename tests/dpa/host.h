/* The host's side of a test: events in, requests, and what came out added up by flow and epoch. */
#ifndef ONCALL_TESTS_DPA_HOST_H
#define ONCALL_TESTS_DPA_HOST_H

#include <string.h>

#include "expect.h"
#include "mailbox.h"
#include "measurement.c"
#include "polling.c"

#define REPORTED_MOST 262144

struct reported {
  uint64_t epoch;
  uint32_t qpn, vhca, units, flags;
};

static struct measurement measured;
static struct reported reported[REPORTED_MOST];
static uint32_t reported_count, received;
static uint64_t timer_us = 1000;
static struct mailbox_page page; /* the last one's header */
static _Alignas(8) uint8_t reply[1 << 16];

/* Begin anew. */
static inline void reset(void) {
  memset(&measured, 0, sizeof measured);
  reported_count = received = 0;
}

static void keep(const struct mailbox_batch *batch) {
  for (uint32_t at = 0; at < BATCH_EPOCHS; at++)
    if (batch->units[at]) {
      EXPECT(reported_count < REPORTED_MOST);
      reported[reported_count++] = (struct reported){batch->first_epoch + at, batch->qpn,
                                                     batch->vhca, batch->units[at], batch->flags};
    }
}

/* One page; whether there is more. */
static int ask(uint32_t room) {
  struct mailbox_request request = {MAILBOX_REQUEST_MAGIC, MAILBOX_VERSION, 0, received, 0};
  uint32_t bytes = measurement_answer(&measured, &request, sizeof request, timer_us, reply, room);
  EXPECT(bytes >= sizeof page && bytes <= room);
  memcpy(&page, reply, sizeof page);
  EXPECT(page.magic == MAILBOX_PAGE_MAGIC && page.bytes == bytes);
  EXPECT(page.number == received + 1);
  received = page.number;
  const struct mailbox_batch *batches = (const struct mailbox_batch *)(reply + sizeof page);
  EXPECT(bytes == sizeof page + page.batches * sizeof *batches);
  for (uint32_t at = 0; at < page.batches; at++)
    keep(&batches[at]);
  return (int)page.more;
}

/* All that is closed after `passed_ms` of silence. The NIC first hears that the time begins. */
static inline void poll_after(uint32_t passed_ms) {
  while (ask(sizeof reply))
    ;
  timer_us += passed_ms * 1000ull;
  while (ask(sizeof reply))
    ;
}

/* Units of a flow in an epoch counted from `from`; every record of it added up. */
static inline uint32_t units_at(uint32_t vhca, uint32_t qpn, uint64_t epoch) {
  uint32_t sum = 0;
  for (uint32_t at = 0; at < reported_count; at++)
    if (reported[at].qpn == qpn && reported[at].vhca == vhca && reported[at].epoch == epoch)
      sum += reported[at].units;
  return sum;
}

static inline uint64_t units_of(uint32_t vhca, uint32_t qpn) {
  uint64_t sum = 0;
  for (uint32_t at = 0; at < reported_count; at++)
    if (reported[at].qpn == qpn && reported[at].vhca == vhca)
      sum += reported[at].units;
  return sum;
}

static inline uint32_t flags_of(uint32_t vhca, uint32_t qpn) {
  uint32_t flags = 0;
  for (uint32_t at = 0; at < reported_count; at++)
    if (reported[at].qpn == qpn && reported[at].vhca == vhca)
      flags |= reported[at].flags;
  return flags;
}

/* The first event fixes the NIC's 64 bits of time: it lies this much after epoch 0. */
#define BASE (1ull << 32)

/* A burst of 4 KB in one packet. */
static inline struct tx_event burst(uint32_t qpn, uint32_t at_ns, uint32_t sn) {
  return (struct tx_event){qpn, 1, at_ns, at_ns, 128, 1, sn, sn + 1};
}

static inline void send(uint32_t thread, struct tx_event event) {
  measurement_record(&measured, thread, &event);
}

#endif
