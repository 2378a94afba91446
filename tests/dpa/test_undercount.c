/* Lost events and counters that do not hold: said of the flow, never a lower rate in silence. */
#define TABLE_BITS 16
#define SHARD_BATCHES 256u
#define SHARDS 2u
#include "host.h"

static void a_gap_in_serial_numbers_flags_both_sides_of_it(void) {
  reset();
  send(0, burst(7, 1024000, 1));
  send(0, burst(8, 1024000, 1));
  send(0, burst(7, 5 * 1024000, 4)); /* 2 and 3 are lost */
  send(0, burst(7, 9 * 1024000, 5));
  send(0, burst(8, 9 * 1024000, 2));
  poll_after(10);
  EXPECT(page.gaps == 1 && flags_of(1, 8) == 0);
  uint32_t flagged = 0;
  for (uint32_t at = 0; at < reported_count; at++)
    flagged += reported[at].qpn == 7 && reported[at].flags == BATCH_UNDERCOUNT;
  EXPECT(flagged == 2);
}

static void what_is_sent_again_is_no_gap(void) {
  reset();
  send(0, burst(7, 1024000, 5));
  send(0, burst(7, 1024100, 3));
  send(0, burst(7, 1024200, 4));
  poll_after(10);
  EXPECT(page.gaps == 0 && flags_of(1, 7) == 0 && units_of(1, 7) == 384);
}

static void serial_numbers_wrap(void) {
  reset();
  send(0, burst(7, 1024000, UINT32_MAX - 1));
  send(0, burst(7, 1024000, UINT32_MAX));
  send(0, burst(7, 1024000, 0));
  poll_after(10);
  EXPECT(page.gaps == 0);
  send(0, burst(7, 20 * 1024000, 2));
  poll_after(100);
  EXPECT(page.gaps == 1);
}

static struct tx_event long_burst(uint32_t units, uint32_t packets, uint32_t sn) {
  struct tx_event event = burst(7, 100 * 1024000, sn);
  event.first_ns -= 10 * EPOCH_NS; /* 320 us: 16 MB at 400 Gb/s */
  event.units = units;
  event.packets = packets;
  return event;
}

/* The NIC's own counter of bytes ends at 65535; that of packets does not. */
static void a_burst_too_long_for_the_nics_counter_is_estimated_by_its_packets(void) {
  reset();
  for (uint32_t sn = 1; sn <= 10; sn++)
    send(0, burst(7, 1024000, sn)); /* packets of 4 KB */
  send(0, long_burst(65535, 3000, 11));
  poll_after(200);
  EXPECT(units_of(1, 7) == 1280 + 3000 * 128);
  EXPECT(page.estimated == 1 && (flags_of(1, 7) & BATCH_UNDERCOUNT) == 0);
  EXPECT(flags_of(1, 7) & BATCH_ESTIMATED);
}

static void without_a_packet_seen_before_it_is_a_lower_bound(void) {
  reset();
  send(0, long_burst(65535, 3000, 1));
  poll_after(200);
  EXPECT(units_of(1, 7) == 65535 && flags_of(1, 7) == BATCH_UNDERCOUNT && page.estimated == 0);
}

/* A flow of small packets must not be made small: the NIC's count is the least it can be. */
static void an_estimate_never_takes_bytes_away(void) {
  reset();
  struct tx_event small = burst(7, 1024000, 1);
  small.units = 2;
  send(0, small);
  send(0, long_burst(40000, 400, 2));
  poll_after(200);
  EXPECT(units_of(1, 7) == 40002);
}

static void learning_goes_on_for_ever(void) {
  reset();
  struct tx_event event = burst(7, 1024000, 1);
  event.units = 32000;
  event.packets = 250;
  for (uint32_t round = 0; round < 200000; round++) {
    event.sn = event.next_sn++;
    send(0, event);
  }
  const struct flow *flow = &measured.flows[1];
  EXPECT(flow->learned_packets > 0 && flow->learned_units / flow->learned_packets == 128);
}

int main(void) {
  a_gap_in_serial_numbers_flags_both_sides_of_it();
  what_is_sent_again_is_no_gap();
  serial_numbers_wrap();
  a_burst_too_long_for_the_nics_counter_is_estimated_by_its_packets();
  without_a_packet_seen_before_it_is_a_lower_bound();
  an_estimate_never_takes_bytes_away();
  learning_goes_on_for_ever();
  return 0;
}
