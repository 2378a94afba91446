/* Whose bytes they are: functions, ageing, numbers used again, more flows than there is room for.
 */
#define TABLE_BITS 16
#define SHARD_BATCHES 64u
#define SHARD_FLOWS 4u
#define SHARDS 2u
#include "host.h"

static struct tx_event of_function(struct tx_event event, uint32_t vhca) {
  event.vhca = vhca;
  return event;
}

static void a_number_on_three_functions_is_three_flows(void) {
  reset();
  for (uint32_t sn = 1; sn <= 3; sn++)
    for (uint32_t vhca = 1; vhca <= 3; vhca++) {
      struct tx_event event = of_function(burst(7, 1000000 + sn * 10, sn), vhca);
      event.units = vhca * 10;
      send(vhca % 2, event);
    }
  poll_after(10);
  for (uint32_t vhca = 1; vhca <= 3; vhca++)
    EXPECT(units_of(vhca, 7) == 30 * vhca && flags_of(vhca, 7) == 0);
  EXPECT(page.flows_open == 3);
}

static void a_silent_flow_ages_and_its_number_serves_again(void) {
  reset();
  send(0, burst(7, 1000000, 900));
  poll_after(1500);
  poll_after(1);
  EXPECT(page.flows_open == 0);
  /* The same number, another queue pair: its serial numbers begin anew, and that is no loss. */
  send(0, burst(7, 1501000000, 5000));
  poll_after(100);
  EXPECT(units_of(1, 7) == 256 && page.gaps == 0 && page.flows_open == 1);
  EXPECT(measured.shards[0].given_back == 0);
  EXPECT(measured.shards[0].flows_used == 2); /* the old record is still being put away */
  for (int second = 0; second < 4; second++)
    poll_after(1200);
  EXPECT(measured.shards[0].given_back == 2);
}

static void one_function_of_several_ages(void) {
  reset();
  for (uint32_t vhca = 1; vhca <= 3; vhca++)
    send(0, of_function(burst(7, 1000000, 1), vhca));
  poll_after(1);
  for (uint32_t ms = 100; ms <= 1400; ms += 100) {
    send(0, of_function(burst(7, ms * 1000000, ms), 1));
    send(1, of_function(burst(7, ms * 1000000, ms), 3));
    poll_after(100);
  }
  poll_after(1);
  EXPECT(page.flows_open == 2);
  /* That it comes back is another life, which must not end with the first one's record. */
  for (uint32_t ms = 1500; ms <= 4000; ms += 100) {
    for (uint32_t vhca = 1; vhca <= 3; vhca++)
      send(0, of_function(burst(7, ms * 1000000, ms), vhca));
    poll_after(100);
  }
  EXPECT(page.flows_open == 3 && measured.shards[0].given_back == 1);
  EXPECT(units_of(2, 7) == 27 * 128);
  EXPECT(units_of(1, 7) == 41 * 128 && units_of(3, 7) == 41 * 128);
}

static void the_last_of_a_chain_ages(void) {
  reset();
  for (uint32_t vhca = 1; vhca <= 3; vhca++)
    send(0, of_function(burst(7, 1000000, 1), vhca));
  poll_after(1);
  for (uint32_t ms = 100; ms <= 4000; ms += 100) {
    for (uint32_t vhca = 2; vhca <= 3; vhca++)
      send(0, of_function(burst(7, ms * 1000000, ms), vhca));
    poll_after(100);
  }
  poll_after(1);
  EXPECT(page.flows_open == 2);
  EXPECT(units_of(1, 7) == 128 && units_of(2, 7) == 41 * 128 && units_of(3, 7) == 41 * 128);
}

/* Records come back for as long as flows come and go. */
static void flows_come_and_go(void) {
  reset();
  for (uint32_t life = 0; life < 40; life++) {
    send(0, burst(100 + life, life * 1000000000u, 1));
    poll_after(1000);
    EXPECT(page.without_flow == 0);
    EXPECT(page.flows_open <= 2);
  }
  for (uint32_t life = 0; life < 39; life++)
    EXPECT(units_of(1, 100 + life) == 128);
}

static void more_flows_than_records_are_counted_and_the_others_go_on(void) {
  reset();
  for (uint32_t qpn = 1; qpn <= 6; qpn++)
    send(0, burst(qpn, 1000000, 1));
  send(1, burst(60, 1000000, 1)); /* another thread has its own */
  poll_after(10);
  EXPECT(page.without_flow == 2 && page.flows_open == 5);
  EXPECT(units_of(1, 4) == 128 && units_of(1, 5) == 0 && units_of(1, 60) == 128);
}

static void a_full_ring_is_counted_and_said_of_the_flow(void) {
  reset();
  uint32_t ms = 1;
  for (; ms <= 70; ms++) /* a batch each */
    send(0, burst(7, ms * 1024000, ms));
  send(1, burst(8, ms * 1024000, 1));
  poll_after(10);
  EXPECT(page.without_batch == 6 && units_of(1, 7) == 64 * 128 && units_of(1, 8) == 128);
  EXPECT(flags_of(1, 7) == 0); /* what was kept is right */
  send(0, burst(7, ms * 1024000, ms));
  poll_after(10);
  EXPECT(units_of(1, 7) == 65 * 128 && flags_of(1, 7) == BATCH_UNDERCOUNT);
  EXPECT(flags_of(1, 8) == 0);
}

static void what_cannot_be_placed_is_counted(void) {
  reset();
  send(2, burst(7, 1000000, 1)); /* a thread without a shard */
  send(0, burst(1u << 16, 1000000, 1));
  send(0, burst(7, 1000000, 1));
  poll_after(10);
  EXPECT(page.strays == 2 && page.events == 1 && reported_count == 1);
}

int main(void) {
  a_number_on_three_functions_is_three_flows();
  a_silent_flow_ages_and_its_number_serves_again();
  one_function_of_several_ages();
  the_last_of_a_chain_ages();
  flows_come_and_go();
  more_flows_than_records_are_counted_and_the_others_go_on();
  a_full_ring_is_counted_and_said_of_the_flow();
  what_cannot_be_placed_is_counted();
  return 0;
}
