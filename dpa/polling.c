/* Reading: closed batches go to the host page by page, flows that fell silent are taken back. */
#include "mailbox.h"
#include "measurement.h"
#include "order.h"

_Static_assert(sizeof(struct mailbox_batch) == 16 + 2 * BATCH_EPOCHS, "as the host reads it");
#define LEAK 14 /* at most 61 ppm between the timer's rate and that of the NIC's clock */

/* ----------------------------------------------------------------------------- time */

/* A time that has surely come: the newest event's, or what the timer says has passed since. It is
 * never late by more than the time since the last event; batches are not closed too early. */
static void advance_time(struct measurement *all, uint64_t timer_us) {
  uint64_t newest_ns = 0;
  for (uint32_t at = 0; at < SHARDS; at++) {
    uint64_t ns = LOAD(all->shards[at].newest_ns);
    newest_ns = ns > newest_ns ? ns : newest_ns;
  }
  uint64_t passed_ns = (timer_us - all->timer_us) * 1000;
  all->timer_us = timer_us;
  if (all->now_ns)
    all->now_ns += passed_ns - (passed_ns >> LEAK);
  if (newest_ns > all->now_ns)
    all->now_ns = newest_ns;
  if (all->now_ns)
    STORE(all->reference_ns, all->now_ns);
}

static uint64_t window_of(const struct measurement *all, const struct batch *batch) {
  uint64_t now = all->now_ns / EPOCH_NS / BATCH_EPOCHS;
  return now + (uint64_t)(int64_t)(int32_t)(LOAD(batch->window) - (uint32_t)now);
}

static int is_closed(const struct measurement *all, uint64_t window) {
  return (window + 1) * BATCH_EPOCHS * EPOCH_NS + GUARD_NS <= all->now_ns;
}

/* ---------------------------------------------------------------------------- ageing */

/* No event finds the flow any more. Threads may be opening another of its number right now, and
 * one of the two writes is then lost: the new flow is opened once more, or this one ages again. */
static void unlink_flow(struct measurement *all, uint32_t number) {
  struct flow *flow = &all->flows[number];
  uint16_t next = LOAD(flow->next);
  uint32_t at = LOAD(all->table[flow->qpn]);
  if (at == number) {
    STORE(all->table[flow->qpn], next);
    return;
  }
  for (uint32_t step = 0; at && step < CHAIN_MOST; step++) {
    struct flow *before = &all->flows[at];
    at = LOAD(before->next);
    if (at == number) {
      STORE(before->next, next);
      return;
    }
  }
}

static void give_back(struct shard *shard, uint32_t number) {
  uint32_t position = shard->given_back;
  shard->returned[position % (SHARD_FLOWS + 1)] = (uint16_t)number;
  PUBLISH(shard->given_back, position + 1);
}

/* A silent flow is first hidden, then, when no event can be at work with it and no unread batch
 * names it, its number goes back to the thread that had opened it. Returns flows in use. */
static uint32_t age_flows(struct measurement *all) {
  uint32_t now = (uint32_t)(all->now_ns / EPOCH_NS), open = 0;
  for (uint32_t number = 1; number <= FLOWS; number++) {
    struct flow *flow = &all->flows[number];
    uint32_t state = TAKE(flow->state);
    if (state == FLOW_OPEN && (int32_t)(now - LOAD(flow->last_epoch)) > (int32_t)AGE_EPOCHS) {
      unlink_flow(all, number);
      flow->retired_epoch = now;
      flow->retired_drain = all->drains;
      STORE(flow->state, FLOW_RETIRED);
    } else if (state == FLOW_RETIRED && all->drains - flow->retired_drain >= 2 &&
               (int32_t)(now - flow->retired_epoch) > (int32_t)AGE_EPOCHS) {
      STORE(flow->state, FLOW_FREE);
      give_back(&all->shards[(number - 1) / SHARD_FLOWS], number);
    }
    open += state == FLOW_OPEN;
  }
  return open;
}

/* ----------------------------------------------------------------------------- pages */

static void write_batch(const struct measurement *all, const struct batch *batch, uint64_t window,
                        struct mailbox_batch *to) {
  const struct flow *flow = &all->flows[batch->flow];
  to->first_epoch = window * BATCH_EPOCHS;
  to->qpn = LOAD(flow->qpn);
  to->vhca = LOAD(flow->vhca);
  to->flags = LOAD(batch->flags);
  for (uint32_t epoch = 0; epoch < BATCH_EPOCHS; epoch++)
    to->units[epoch] = LOAD(batch->units[epoch]);
}

/* What is closed in one shard; returns whether all of it fitted. */
static int write_shard(const struct measurement *all, struct shard *shard, uint8_t *reply,
                       uint32_t room, struct mailbox_page *page) {
  uint32_t head = TAKE(shard->head), position = shard->tail;
  int fits = 1;
  for (; position != head; position++) {
    const struct batch *batch = &shard->batches[position % SHARD_BATCHES];
    uint64_t window = window_of(all, batch);
    if (!is_closed(all, window))
      break;
    if (room - page->bytes < sizeof(struct mailbox_batch)) {
      fits = 0;
      break;
    }
    STORE(shard->sealed, position + 1);
    write_batch(all, batch, window, (struct mailbox_batch *)(reply + page->bytes));
    page->bytes += (uint32_t)sizeof(struct mailbox_batch);
    page->batches++;
  }
  return fits;
}

static void write_counts(const struct measurement *all, struct mailbox_page *page) {
  for (uint32_t at = 0; at < SHARDS; at++) {
    const struct counts *counts = &all->shards[at].counts;
    page->events += LOAD(counts->events);
    page->without_flow += LOAD(counts->without_flow);
    page->without_batch += LOAD(counts->without_batch);
    page->gaps += LOAD(counts->gaps);
    page->clipped += LOAD(counts->clipped);
    page->estimated += LOAD(counts->estimated);
  }
  page->strays = LOAD(all->strays);
}

/* The host has the page: its batches may be used again. */
static void release_page(struct measurement *all) {
  for (uint32_t at = 0; at < SHARDS; at++)
    PUBLISH(all->shards[at].tail, all->shards[at].sealed);
  all->page++;
}

uint32_t measurement_answer(struct measurement *all, const void *request, uint32_t request_bytes,
                            uint64_t timer_us, void *reply, uint32_t room) {
  const struct mailbox_request *asked = request;
  struct mailbox_page *page = reply;
  if (request_bytes < sizeof *asked || asked->magic != MAILBOX_REQUEST_MAGIC ||
      asked->version != MAILBOX_VERSION || room < sizeof *page + sizeof(struct mailbox_batch))
    return 0;
  if (!all->boot) {
    all->boot = timer_us + 1;
    all->page = 1;
    all->timer_us = timer_us;
  }
  if (asked->received == all->page)
    release_page(all);
  advance_time(all, timer_us);
  *page = (struct mailbox_page){.magic = MAILBOX_PAGE_MAGIC,
                                .version = MAILBOX_VERSION,
                                .header_bytes = sizeof *page,
                                .bytes = sizeof *page,
                                .number = all->page,
                                .epoch_ns = EPOCH_NS,
                                .unit_bytes = UNIT_BYTES,
                                .boot = all->boot,
                                .now_ns = all->now_ns};
  if (all->page == 1 || all->aged != all->drains) /* once, however many pages a poll takes */
    all->flows_open = age_flows(all);
  all->aged = all->drains;
  page->flows_open = all->flows_open;
  int fits = 1;
  for (uint32_t at = 0; at < SHARDS; at++)
    fits &= write_shard(all, &all->shards[at], reply, room, page);
  page->more = !fits;
  all->drains += (uint32_t)fits;
  write_counts(all, page);
  return page->bytes;
}
