/* Plays one pattern of events to the measurement, for its instructions to be counted from outside:
 *
 *     play same|interleaved|spanning|batches|opening EVENTS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measurement.h"

#define PACKET_UNITS 128u /* 4 KB */
#define READ_EVERY 65536u
#define FLOWS_SENT 2000u /* Pulse 4.3 */

static struct measurement measured;

struct pattern {
  const char *name;
  uint32_t flows, step_ns, duration_ns;
};

static const struct pattern patterns[] = {
    {"same", 1, 82, 0},                 /* one queue pair at 400 Gb/s */
    {"interleaved", FLOWS_SENT, 82, 0}, /* as many as Pulse measured, in turn */
    {"spanning", 1, 32000, 32000},      /* each event crosses a boundary of epochs */
    {"batches", 1, 32000u * 32u, 0},    /* each event opens a batch */
    {"opening", 1u << 23, 82, 0},       /* each event opens a flow, until there are no more */
};

int main(int count, char **arguments) {
  if (count != 3)
    return 2;
  for (uint32_t at = 0; at < sizeof patterns / sizeof *patterns; at++) {
    const struct pattern *pattern = &patterns[at];
    if (strcmp(pattern->name, arguments[1]) != 0)
      continue;
    uint32_t events = (uint32_t)atoi(arguments[2]);
    for (uint32_t event = 0; event < events; event++) {
      uint32_t now_ns = 1000000 + event * pattern->step_ns, sn = event / pattern->flows;
      struct tx_event burst = {1 + event % pattern->flows,
                               1,
                               now_ns - pattern->duration_ns,
                               now_ns,
                               PACKET_UNITS,
                               1,
                               sn,
                               sn + 1};
      measurement_record(&measured, 0, &burst);
      if (event % READ_EVERY == READ_EVERY - 1) /* or the ring of batches would be full */
        measured.shards[0].tail = measured.shards[0].sealed = measured.shards[0].head;
    }
    printf("%llu\n", (unsigned long long)measured.shards[0].counts.events);
    return 0;
  }
  return 2;
}
