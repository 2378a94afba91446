/* Random traffic against a reference too simple to be wrong: every event by its true 64-bit time,
 * its bytes as fractions of a number, in one large array. */
#define TABLE_BITS 16
#define SHARD_BATCHES 1024u
#define SHARD_FLOWS 16u
#define SHARDS 3u
#define AGE_EPOCHS 3000u /* 96 ms: flows come and go within a stream */
#include <math.h>

#include "host.h"

#define FLOWS_SENT 12u
#define MOST_EPOCHS 20000u
#define EVENTS 6000u
#define STREAMS 30u

static struct reference {
  double units[MOST_EPOCHS];     /* by epoch since the stream's begin */
  uint32_t rounded[MOST_EPOCHS]; /* shares there, of which each may be rounded */
  uint64_t sum, counted;
  int has_lost;
} reference[FLOWS_SENT];

static uint64_t random_state;

static uint32_t draw(uint32_t below) { /* xorshift64* */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (uint32_t)((random_state * 0x2545f4914f6cdd1dull) >> 32) % below;
}

static void refer(struct reference *flow, uint64_t first_ns, uint64_t last_ns, uint32_t units,
                  uint64_t origin) {
  flow->sum += units;
  for (uint64_t epoch = first_ns / EPOCH_NS; epoch <= last_ns / EPOCH_NS; epoch++) {
    double from = epoch * EPOCH_NS > first_ns ? (double)(epoch * EPOCH_NS - first_ns) : 0;
    double until = (double)(last_ns - first_ns);
    if ((epoch + 1) * EPOCH_NS < last_ns)
      until = (double)((epoch + 1) * EPOCH_NS - first_ns);
    double share = last_ns > first_ns ? (until - from) / (double)(last_ns - first_ns) : 1;
    EXPECT(epoch >= origin && epoch - origin < MOST_EPOCHS);
    flow->units[epoch - origin] += share * units;
    flow->rounded[epoch - origin] += last_ns > first_ns;
  }
}

static uint64_t play(uint64_t seed) {
  random_state = seed;
  reset();
  memset(reference, 0, sizeof reference);
  uint64_t begin_ns = BASE + draw(UINT32_MAX); /* as the core will number it */
  uint64_t origin = begin_ns / EPOCH_NS - 40, now_ns = begin_ns;
  uint32_t sn[FLOWS_SENT] = {0};
  for (uint32_t event = 0; event < EVENTS; event++) {
    uint32_t idle = draw(400) == 0 ? draw(30000000) : draw(30000);
    now_ns += idle;
    timer_us = now_ns / 1000;
    uint32_t at = draw(FLOWS_SENT) & draw(FLOWS_SENT); /* some send seldom and age */
    uint32_t duration_ns = event && draw(3) == 0 ? draw(10 * EPOCH_NS) : 0;
    struct tx_event burst = {.qpn = 100 + at / 2,
                             .vhca = at % 2,
                             .first_ns = (uint32_t)(now_ns - duration_ns),
                             .last_ns = (uint32_t)now_ns,
                             .units = draw(1000),
                             .packets = 1 + draw(10),
                             .sn = sn[at],
                             .next_sn = sn[at] + 1};
    sn[at]++;
    if (event && seed % 3 == 0 && draw(500) == 0) {
      reference[at].has_lost = 1; /* the NIC drops it */
    } else {
      refer(&reference[at], now_ns - duration_ns, now_ns, burst.units, origin);
      send(draw(SHARDS), burst);
    }
    if (draw(50) == 0)
      ask(512 + draw(4096));
  }
  poll_after(10);
  return origin;
}

static void compare(uint64_t origin) {
  EXPECT(page.without_flow + page.without_batch + page.clipped + page.strays == 0);
  static uint32_t counted[FLOWS_SENT][MOST_EPOCHS];
  memset(counted, 0, sizeof counted);
  for (uint32_t at = 0; at < reported_count; at++) {
    uint32_t flow = (reported[at].qpn - 100) * 2 + reported[at].vhca;
    EXPECT(flow < FLOWS_SENT && reported[at].epoch - origin < MOST_EPOCHS);
    counted[flow][reported[at].epoch - origin] += reported[at].units;
    reference[flow].counted += reported[at].units;
  }
  for (uint32_t flow = 0; flow < FLOWS_SENT; flow++) {
    EXPECT(reference[flow].counted == reference[flow].sum);
    EXPECT(reference[flow].has_lost || flags_of(flow % 2, 100 + flow / 2) == 0);
    for (uint32_t epoch = 0; epoch < MOST_EPOCHS; epoch++) {
      double off = fabs(counted[flow][epoch] - reference[flow].units[epoch]);
      EXPECT(off <= reference[flow].rounded[epoch] + 1e-6);
    }
  }
}

int main(void) {
  for (uint64_t seed = 1; seed <= STREAMS; seed++)
    compare(play(seed * 0x9e3779b97f4a7c15ull));
  return 0;
}
