/* Answers smaller than what there is to tell, answers that get lost, requests that are none. */
#define TABLE_BITS 16
#define SHARD_BATCHES 256u
#define SHARDS 2u
#include "host.h"

#define LEAST_ROOM ((uint32_t)(sizeof(struct mailbox_page) + sizeof(struct mailbox_batch)))

static void send_much(void) {
  for (uint32_t ms = 1; ms <= 20; ms++)
    for (uint32_t qpn = 1; qpn <= 10; qpn++)
      for (uint32_t epoch = 0; epoch < 20; epoch++)
        send(qpn % 2, burst(qpn, ms * 1024000 + epoch * EPOCH_NS, ms * 20 + epoch));
}

/* The same traffic through answers of `room` bytes; returns how many it took. */
static uint32_t pages_of(uint32_t room) {
  reset();
  send_much();
  uint32_t pages = 2;
  for (; ask(room); pages++)
    ;
  timer_us += 10000;
  for (; ask(room); pages++)
    ;
  for (uint32_t qpn = 1; qpn <= 10; qpn++)
    EXPECT(units_of(1, qpn) == 20 * 20 * 128);
  return pages;
}

static void answers_of_any_size_tell_the_same(void) {
  uint32_t few = pages_of(sizeof reply), more = pages_of(2048), most = pages_of(LEAST_ROOM);
  EXPECT(few == 2 && more > few && most > more);
}

static void a_lost_answer_is_sent_again(void) {
  reset();
  send_much();
  while (ask(1024))
    ;
  timer_us += 10000;
  uint32_t kept = reported_count, had = received;
  ask(1024);
  EXPECT(reported_count > kept);
  reported_count = kept, received = had; /* it never came */
  while (ask(1024))
    ;
  for (uint32_t qpn = 1; qpn <= 10; qpn++)
    EXPECT(units_of(1, qpn) == 20 * 20 * 128);
}

static void what_is_not_closed_waits(void) {
  reset();
  send(0, burst(7, 1024000, 1));
  ask(sizeof reply);
  timer_us += 1500; /* the batch is over, its guard is not */
  ask(sizeof reply);
  EXPECT(reported_count == 0 && page.now_ns > BASE);
  timer_us += 4000;
  ask(sizeof reply);
  EXPECT(reported_count == 1);
}

static void a_thread_that_records_nothing_holds_up_nobody(void) {
  reset();
  send(0, burst(7, 1024000, 1));
  send(1, burst(8, 30 * 1024000, 1)); /* its time is the NIC's */
  ask(sizeof reply);
  EXPECT(units_of(1, 7) == 128 && units_of(1, 8) == 0);
}

static void requests_that_are_none_are_refused(void) {
  reset();
  send(0, burst(7, 1024000, 1));
  struct mailbox_request request = {MAILBOX_REQUEST_MAGIC, MAILBOX_VERSION, 0, 0, 0};
  EXPECT(!measurement_answer(&measured, &request, sizeof request - 1, timer_us, reply, 4096));
  EXPECT(!measurement_answer(&measured, &request, sizeof request, timer_us, reply, LEAST_ROOM - 1));
  request.version++;
  EXPECT(!measurement_answer(&measured, &request, sizeof request, timer_us, reply, 4096));
  request.version--, request.magic++;
  EXPECT(!measurement_answer(&measured, &request, sizeof request, timer_us, reply, 4096));
  request.magic--, request.received = 12345; /* a page of another life: nothing is let go */
  EXPECT(measurement_answer(&measured, &request, sizeof request, timer_us, reply, 4096));
  poll_after(10);
  EXPECT(units_of(1, 7) == 128);
}

static void before_anything_was_sent_there_is_no_time(void) {
  reset();
  poll_after(5000);
  EXPECT(page.now_ns == 0 && page.batches == 0 && page.events == 0 && page.boot != 0);
}

int main(void) {
  answers_of_any_size_tell_the_same();
  a_lost_answer_is_sent_again();
  what_is_not_closed_waits();
  a_thread_that_records_nothing_holds_up_nobody();
  requests_that_are_none_are_refused();
  before_anything_was_sent_there_is_no_time();
  return 0;
}
