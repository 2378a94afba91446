/* The glue to DOCA PCC over the declarations of our own: events as the NIC writes them, big-endian,
 * and requests through the mailbox's handler. What the library would provide is provided here. */
#define TABLE_BITS 24
#define SHARD_BATCHES 64u
#define SHARD_FLOWS 16u
#define SHARDS 2u
#include "measurement.c"
#include "pcc_device.c"
#include "polling.c"

#include <string.h>

#include "expect.h"
#include "mailbox.h"

static uint64_t timer_us = 5000;
static uint32_t rank, internal_calls;

uint64_t doca_pcc_dev_get_timer(void) { return timer_us; }

uint32_t doca_pcc_dev_thread_rank(void) { return rank; }

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt,
                                        doca_pcc_dev_event_t *event,
                                        const doca_pcc_dev_attr_t *attr,
                                        doca_pcc_dev_results_t *results) {
  (void)algo_ctxt, (void)event, (void)attr;
  internal_calls++;
  *results = (doca_pcc_dev_results_t){.rate = 1u << 20};
}

/* An event byte by byte, as it lies in the NIC's memory. */
static uint32_t happen(uint8_t type, uint32_t slot) {
  static const uint8_t bytes[44] = {
      [4] = 0x12,  [5] = 0x34,                            /* vhca 0x1234 */
      [14] = 1,                                           /* subtype */
      [20] = 0,    [23] = 9,                              /* sn */
      [24] = 0x00, [25] = 0x0f, [26] = 0x43, [27] = 0x40, /* ended at 1,000,256 ns */
      [28] = 0x00, [29] = 0x0f, [30] = 0x42, [31] = 0x40, /* began at 1,000,000 ns */
      [32] = 0x00, [33] = 0x02, [34] = 0x01, [35] = 0x00, /* 2 packets, 256 units */
      [36] = 0x77, [37] = 0xab, [38] = 0xcd, [39] = 0xef, /* queue pair 0xabcdef */
  };
  doca_pcc_dev_event_t event;
  memcpy(&event, bytes, sizeof event);
  ((uint8_t *)&event)[15] = type;
  doca_pcc_dev_algo_ctxt_t context = {0};
  doca_pcc_dev_attr_t attr = {.algo_slot = slot & 15};
  doca_pcc_dev_results_t results = {0};
  doca_pcc_dev_user_algo(&context, &event, &attr, &results);
  return results.rate;
}

static _Alignas(8) uint8_t response[4096];

static struct mailbox_page *ask(uint32_t received) {
  struct mailbox_request request = {MAILBOX_REQUEST_MAGIC, MAILBOX_VERSION, 0, received, 0};
  uint32_t bytes = 0;
  EXPECT(doca_pcc_dev_user_mailbox_handle(&request, sizeof request, sizeof response, response,
                                          &bytes) == DOCA_PCC_DEV_STATUS_OK);
  struct mailbox_page *page = (struct mailbox_page *)response;
  EXPECT(bytes == page->bytes);
  return page;
}

int main(void) {
  uint32_t disabled = 0;
  doca_pcc_dev_user_init(&disabled);
  EXPECT(!(disabled >> DOCA_PCC_DEV_EVNT_ROCE_TX & 1));
  EXPECT(!(disabled >> DOCA_PCC_DEV_EVNT_ROCE_CNP & 1)); /* the NIC's own control needs them */
  EXPECT(doca_pcc_dev_user_set_algo_params(0, 0, 0, 0, 0, 0) == DOCA_PCC_DEV_STATUS_OK);

  /* Whatever the slot, bursts are recorded and the internal algorithm sets the rate. */
  EXPECT(happen(DOCA_PCC_DEV_EVNT_ROCE_TX, 15) == 1u << 20);
  rank = 1;
  EXPECT(happen(DOCA_PCC_DEV_EVNT_ROCE_TX, 0) == 1u << 20);
  EXPECT(happen(DOCA_PCC_DEV_EVNT_ROCE_CNP, 15) == 1u << 20);
  EXPECT(internal_calls == 3);

  uint32_t received = ask(0)->number;
  timer_us += 10000;
  struct mailbox_page *page = ask(received);
  EXPECT(page->events == 2 && page->batches == 2 && page->flows_open == 1);
  const struct mailbox_batch *batch = (const struct mailbox_batch *)(page + 1);
  EXPECT(batch->qpn == 0xabcdef && batch->vhca == 0x1234 && batch->flags == 0);
  uint64_t epoch = ((1ull << 32) + 1000000) / EPOCH_NS;
  EXPECT(epoch - batch->first_epoch < 32 && batch->units[epoch - batch->first_epoch] == 256);

  uint32_t bytes = 1;
  EXPECT(doca_pcc_dev_user_mailbox_handle("no request", 10, sizeof response, response, &bytes) ==
         DOCA_PCC_DEV_STATUS_FAIL);
  EXPECT(bytes == 0);
  return 0;
}
