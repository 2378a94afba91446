/* Recording: an event finds its flow, its epochs, and adds its bytes. */
#include "measurement.h"

#include "order.h"

#define HARDWARE_CLIPS_AT 32768u     /* units from which on BlueField-3's counter was found wrong */
#define REFERENCE_NS 500000000u      /* how old the common reference may become while events come */
#define FIRST_REFERENCE (1ull << 32) /* no time is negative */
/* Kept out of line, so that the way of most events saves no registers for it. */
#define SELDOM __attribute__((noinline, cold))

/* ---------------------------------------------------------------------------- flows */

static uint32_t find_flow(struct measurement *all, const struct tx_event *event) {
  uint32_t number = TAKE_INDEX(all->table[event->qpn]);
  for (uint32_t step = 0; number && step < CHAIN_MOST; step++) {
    struct flow *flow = &all->flows[number];
    if (LOAD(flow->qpn) == event->qpn && LOAD(flow->vhca) == event->vhca)
      return number;
    number = TAKE_INDEX(flow->next);
  }
  return 0;
}

/* A number of the thread's own that is in no use, 0 if there is none. */
static uint32_t free_number(struct shard *shard, uint32_t thread) {
  if (shard->flows_used < SHARD_FLOWS)
    return thread * SHARD_FLOWS + ++shard->flows_used;
  if (shard->taken_back == TAKE(shard->given_back))
    return 0;
  uint32_t number = shard->returned[shard->taken_back % (SHARD_FLOWS + 1)];
  STORE(shard->taken_back, shard->taken_back + 1);
  return number;
}

/* Two threads may open the same flow at once: one of the two is found from then on, the other
 * keeps what it has counted, and the host adds them up. */
SELDOM static uint32_t open_flow(struct measurement *all, struct shard *shard, uint32_t thread,
                                 const struct tx_event *event) {
  uint32_t number = free_number(shard, thread);
  if (!number)
    return 0;
  struct flow *flow = &all->flows[number];
  STORE(flow->qpn, event->qpn);
  STORE(flow->vhca, (uint16_t)event->vhca);
  STORE(flow->next, LOAD(all->table[event->qpn]));
  STORE(flow->next_sn, event->sn);
  STORE(flow->learned_units, 0u);
  STORE(flow->learned_packets, 0u);
  STORE(flow->has_missed, 0u);
  return number;
}

/* ----------------------------------------------------------------------------- time */

/* The NIC's 32 bits of time as 64: nearest to what was seen last. */
static uint64_t extend(struct measurement *all, struct shard *shard, uint32_t ns) {
  uint64_t common = LOAD(all->reference_ns);
  uint64_t near = common > shard->newest_ns ? common : shard->newest_ns;
  if (!near)
    near = FIRST_REFERENCE + ns;
  uint64_t time = near + (uint64_t)(int64_t)(int32_t)(ns - (uint32_t)near);
  if (time > shard->newest_ns)
    STORE(shard->newest_ns, time);
  if (time > common + REFERENCE_NS)
    STORE(all->reference_ns, time);
  return time;
}

/* -------------------------------------------------------------------------- batches */

static struct batch *current_batch(struct shard *shard, uint32_t flow) {
  uint32_t position = shard->current[flow];
  struct batch *batch = &shard->batches[position % SHARD_BATCHES];
  uint32_t age = shard->head - position; /* 1 for the newest */
  int is_open = age - 1 < shard->head - LOAD(shard->sealed);
  return is_open && batch->flow == flow ? batch : 0;
}

SELDOM static struct batch *open_batch(struct shard *shard, uint32_t flow, uint32_t window) {
  uint32_t head = shard->head;
  if (head - TAKE(shard->tail) >= SHARD_BATCHES)
    return 0;
  struct batch *batch = &shard->batches[head % SHARD_BATCHES];
  STORE(batch->window, window);
  STORE(batch->flow, (uint16_t)flow);
  STORE(batch->flags, (uint16_t)0);
  for (uint32_t word = 0; word < BATCH_EPOCHS / 4; word++)
    STORE(batch->words[word], (uint64_t)0);
  PUBLISH(shard->head, head + 1);
  shard->current[flow] = head;
  return batch;
}

static void flag(struct batch *batch, uint32_t flags) {
  if (flags)
    STORE(batch->flags, (uint16_t)(batch->flags | flags));
}

static void add(struct measurement *all, struct shard *shard, uint32_t number, uint64_t epoch,
                uint32_t units, uint32_t flags) {
  if (!units)
    return;
  uint32_t window = (uint32_t)(epoch / BATCH_EPOCHS);
  struct batch *batch = current_batch(shard, number);
  if (!batch || batch->window != window)
    batch = open_batch(shard, number, window);
  struct flow *flow = &all->flows[number];
  if (!batch) {
    STORE(shard->counts.without_batch, shard->counts.without_batch + 1);
    STORE(flow->has_missed, 1u);
    return;
  }
  if (LOAD(flow->has_missed)) {
    STORE(flow->has_missed, 0u);
    flags |= BATCH_UNDERCOUNT;
  }
  uint16_t *counter = &batch->units[epoch % BATCH_EPOCHS];
  uint32_t sum = *counter + units;
  if (sum > COUNTER_MAX) {
    sum = COUNTER_MAX;
    flags |= BATCH_CLIPPED;
    STORE(shard->counts.clipped, shard->counts.clipped + 1);
  }
  STORE(*counter, (uint16_t)sum);
  flag(batch, flags);
}

/* ---------------------------------------------------------------------------- events */

/* The NIC dropped events between the flow's last one and this one. */
SELDOM static uint32_t gap(struct shard *shard, uint32_t number) {
  STORE(shard->counts.gaps, shard->counts.gaps + 1);
  struct batch *before = current_batch(shard, number);
  if (before)
    flag(before, BATCH_UNDERCOUNT);
  return BATCH_UNDERCOUNT;
}

/* A serial number before the expected one is no gap: it was sent again. */
static uint32_t check_serial(struct shard *shard, struct flow *flow, uint32_t number,
                             const struct tx_event *event) {
  int32_t ahead = (int32_t)(event->sn - LOAD(flow->next_sn));
  STORE(flow->next_sn, event->next_sn);
  return ahead > 0 ? gap(shard, number) : 0;
}

/* What a packet of this flow holds; old bursts count less. */
static void learn(struct flow *flow, const struct tx_event *event) {
  uint32_t units = LOAD(flow->learned_units), packets = LOAD(flow->learned_packets);
  uint32_t halve = (units | packets) >> 30 != 0;
  STORE(flow->learned_units, (units >> halve) + event->units);
  STORE(flow->learned_packets, (packets >> halve) + event->packets);
}

/* A burst that the NIC's counter of bytes cannot hold: its packets, which it can count, times
 * what a packet of this flow held so far; the counter's word where nothing better is known. */
SELDOM static uint32_t estimate(struct shard *shard, const struct flow *flow,
                                const struct tx_event *event, uint32_t *flags) {
  uint32_t units = LOAD(flow->learned_units), packets = LOAD(flow->learned_packets);
  uint64_t estimated = packets ? (uint64_t)event->packets * units / packets : 0;
  if (estimated <= event->units || estimated > UINT32_MAX) {
    *flags |= BATCH_UNDERCOUNT;
    return event->units;
  }
  *flags |= BATCH_ESTIMATED;
  STORE(shard->counts.estimated, shard->counts.estimated + 1);
  return (uint32_t)estimated;
}

/* Add to each epoch from `epoch` to `last` its share of the event's time. Shares are differences of
 * sums rounded down, so that they add up to `units`; each boundary crossed costs a division. */
SELDOM static void spread(struct measurement *all, struct shard *shard, uint32_t number,
                          uint64_t first_ns, uint64_t last_ns, uint64_t last, uint32_t units,
                          uint32_t flags) {
  uint32_t added = 0;
  for (uint64_t epoch = epoch_of(first_ns); epoch < last; epoch++) {
    uint64_t until_ns = (epoch + 1) * EPOCH_NS - first_ns;
    uint32_t sum = (uint32_t)(units * until_ns / (last_ns - first_ns));
    add(all, shard, number, epoch, sum - added, flags);
    added = sum;
  }
  add(all, shard, number, last, units - added, flags);
}

void measurement_record(struct measurement *all, uint32_t thread, const struct tx_event *event) {
  if (thread >= SHARDS || event->qpn >> TABLE_BITS) {
    STORE(all->strays, LOAD(all->strays) + 1);
    return;
  }
  struct shard *shard = &all->shards[thread];
  STORE(shard->counts.events, shard->counts.events + 1);
  uint64_t last_ns = extend(all, shard, event->last_ns);
  uint32_t duration_ns = event->last_ns - event->first_ns;
  if (duration_ns >= SPREAD_EPOCHS * EPOCH_NS)
    duration_ns = 0;
  uint64_t epoch = epoch_of(last_ns);

  uint32_t number = find_flow(all, event), opened = 0;
  if (!number)
    number = opened = open_flow(all, shard, thread, event);
  if (!number) {
    STORE(shard->counts.without_flow, shard->counts.without_flow + 1);
    return;
  }
  struct flow *flow = &all->flows[number];
  STORE(flow->last_epoch, (uint32_t)epoch);
  if (opened) {
    PUBLISH(flow->state, FLOW_OPEN);
    PUBLISH(all->table[event->qpn], (uint16_t)number); /* it may be found: all else is written */
  }
  uint32_t flags = check_serial(shard, flow, number, event);
  uint32_t units = event->units;
  if (units < HARDWARE_CLIPS_AT)
    learn(flow, event);
  else
    units = estimate(shard, flow, event, &flags);
  if (last_ns - duration_ns >= epoch * EPOCH_NS)
    add(all, shard, number, epoch, units, flags);
  else
    spread(all, shard, number, last_ns - duration_ns, last_ns, epoch, units, flags);
}
