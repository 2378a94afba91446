/* Serial numbers that count packets, in 24 bits: how the glue hands them to the core, which takes
 * differences of 32. */
#define ONCALL_SN_OF_PACKETS 1
#define TABLE_BITS 16
#define SHARD_BATCHES 64u
#define SHARD_FLOWS 16u
#define SHARDS 2u
#include "measurement.c"
#include "pcc_device.c"
#include "polling.c"

#include "expect.h"

uint64_t doca_pcc_dev_get_timer(void) { return 1; }

uint32_t doca_pcc_dev_thread_rank(void) { return 0; }

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *algo_ctxt,
                                        doca_pcc_dev_event_t *event,
                                        const doca_pcc_dev_attr_t *attr,
                                        doca_pcc_dev_results_t *results) {
  (void)algo_ctxt, (void)event, (void)attr, (void)results;
}

/* A burst of `packets`, the last of which has this number. */
static uint64_t gaps_after(uint32_t last, uint32_t packets) {
  struct tx_event burst = {.qpn = 7, .vhca = 1, .last_ns = 1000, .units = 128, .packets = packets};
  burst.first_ns = burst.last_ns;
  set_serial(&burst, last);
  measurement_record(&measured, 0, &burst);
  return measured.shards[0].counts.gaps;
}

int main(void) {
  EXPECT(gaps_after(0xfffff0, 4) == 0);
  EXPECT(gaps_after(0xfffff8, 8) == 0);  /* follows at once */
  EXPECT(gaps_after(0x000007, 15) == 0); /* across the end of 24 bits */
  EXPECT(gaps_after(0x000007, 4) == 0);  /* sent again */
  EXPECT(gaps_after(0x00000a, 2) == 1);  /* packet 8 is missing */
  return 0;
}
