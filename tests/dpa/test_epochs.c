/* Into which epochs an event's bytes go. */
#define TABLE_BITS 16
#define SHARD_BATCHES 64u
#define SHARDS 2u
#include "host.h"

static uint64_t epoch_at(uint64_t ns) { return (BASE + ns) / EPOCH_NS; }

static void the_product_is_the_quotient(void) {
  for (uint64_t power = 1; power < 1ull << 60; power *= 2)
    for (uint64_t epoch = power / EPOCH_NS; epoch < power / EPOCH_NS + 1000; epoch++) {
      EXPECT(epoch_of(epoch * EPOCH_NS) == epoch);
      EXPECT(epoch_of(epoch * EPOCH_NS + EPOCH_NS - 1) == epoch);
    }
}

static void an_event_within_an_epoch_counts_there(void) {
  reset();
  send(0, burst(7, 1000000, 1));
  poll_after(10);
  EXPECT(reported_count == 1 && units_at(1, 7, epoch_at(1000000)) == 128);
  EXPECT(page.events == 1 && page.flows_open == 1 && reported[0].flags == 0);
}

static void an_event_across_epochs_is_spread_by_time(void) {
  reset();
  /* From the middle of an epoch to the middle of the third after it. */
  uint64_t boundary = (epoch_at(1000000) + 1) * EPOCH_NS - BASE;
  struct tx_event event = burst(7, 0, 1);
  event.first_ns = (uint32_t)boundary - EPOCH_NS / 2;
  event.last_ns = (uint32_t)boundary + 2 * EPOCH_NS + EPOCH_NS / 2;
  event.units = 301;
  send(0, event);
  poll_after(10);
  uint64_t first = epoch_at(event.first_ns);
  EXPECT(units_at(1, 7, first) == 50);
  EXPECT(units_at(1, 7, first + 1) == 100);
  EXPECT(units_at(1, 7, first + 2) == 100);
  EXPECT(units_at(1, 7, first + 3) == 51); /* what rounding left over */
  EXPECT(units_of(1, 7) == 301);
}

static void an_event_that_began_impossibly_long_ago_counts_at_its_end(void) {
  reset();
  struct tx_event late = burst(7, 1000000, 1);
  late.first_ns = 2000000; /* after its end */
  send(0, late);
  late = burst(8, 100000000, 1);
  late.first_ns -= SPREAD_EPOCHS * EPOCH_NS;
  send(0, late);
  poll_after(10);
  EXPECT(reported_count == 2);
  EXPECT(units_at(1, 7, epoch_at(1000000)) == 128 && units_at(1, 8, epoch_at(100000000)) == 128);
}

static void a_counter_stops_at_65535_and_says_so(void) {
  reset();
  struct tx_event event = burst(7, 1000000, 1);
  for (event.units = 30000; event.sn < 4; event.sn = event.next_sn++)
    send(0, event);
  send(0, burst(8, 1000000, 1));
  poll_after(10);
  EXPECT(units_of(1, 7) == 65535);
  EXPECT(flags_of(1, 7) == BATCH_CLIPPED && flags_of(1, 8) == 0 && page.clipped == 1);
}

/* 4.29 s after the first event, in the middle of a burst. */
static void the_nics_clock_wraps(void) {
  reset();
  struct tx_event event = burst(7, 0, 1);
  event.first_ns = 0u - 3 * EPOCH_NS;
  event.last_ns = 3 * EPOCH_NS;
  event.units = 600;
  send(0, burst(9, 0u - 500000000, 1)); /* half a second before */
  send(0, event);
  send(1, burst(8, 3 * EPOCH_NS, 1)); /* another thread, which saw nothing before */
  poll_after(10);
  uint64_t wrap = BASE + (1ull << 32);
  EXPECT(units_of(1, 7) == 600);
  for (uint32_t at = 0; at < reported_count; at++)
    if (reported[at].qpn == 7)
      EXPECT(reported[at].epoch >= wrap / EPOCH_NS - 3 &&
             reported[at].epoch <= wrap / EPOCH_NS + 3);
  EXPECT(units_at(1, 8, (wrap + 3 * EPOCH_NS) / EPOCH_NS) == 128);
}

/* Nothing was sent for longer than the NIC's clock can tell; the timer still can. */
static void silence_longer_than_the_clocks_wrap(void) {
  reset();
  send(0, burst(7, 1000000, 1));
  poll_after(1);
  poll_after(9999);
  send(1, burst(7, (uint32_t)(1000000 + 10000000000ull), 2));
  poll_after(10);
  EXPECT(units_at(1, 7, epoch_at(1000000)) == 128);
  EXPECT(units_at(1, 7, epoch_at(1000000 + 10000000000ull)) == 128);
}

/* Its batch has gone to the host, whether or not the host has confirmed that. */
static void an_event_that_comes_late_is_kept(void) {
  reset();
  send(0, burst(7, 1000000, 1));
  send(0, burst(8, 50000000, 1)); /* that late it is */
  ask(sizeof reply);
  EXPECT(units_of(1, 7) == 128);
  send(0, burst(7, 1000000, 2));
  poll_after(10);
  EXPECT(units_at(1, 7, epoch_at(1000000)) == 256 && units_of(1, 7) == 256);
}

/* The timer may be another oscillator than the NIC's clock: a time that has not come yet would
 * close batches that are still written. */
static void a_fast_timer_does_not_run_ahead(void) {
  reset();
  uint64_t ns = 1000000;
  for (uint32_t second = 0; second < 3600; second++, ns += 1000000000) {
    send(0, burst(7, (uint32_t)ns, second));
    ask(sizeof reply);
    EXPECT(page.now_ns <= BASE + ns && page.now_ns + 1000000 > BASE + ns);
    timer_us += 1000000 + 50; /* 50 ppm */
  }
}

int main(void) {
  the_product_is_the_quotient();
  an_event_that_comes_late_is_kept();
  a_fast_timer_does_not_run_ahead();
  an_event_within_an_epoch_counts_there();
  an_event_across_epochs_is_spread_by_time();
  an_event_that_began_impossibly_long_ago_counts_at_its_end();
  a_counter_stops_at_65535_and_says_so();
  the_nics_clock_wraps();
  silence_longer_than_the_clocks_wrap();
  return 0;
}
