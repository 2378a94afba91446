/* The words of the Flight Recorder that are looked for. */
#ifndef ONCALL_NAMES_H
#define ONCALL_NAMES_H

#include <stdint.h>

enum name {
  PROCESS_GROUP,
  PG_ID,
  COLLECTIVE_SEQ_ID,
  P2P_SEQ_ID,
  OP_ID,
  RECORD_ID,
  PROFILING_NAME,
  TIME_CREATED_NS,
  TIME_DISCOVERED_STARTED_NS,
  TIME_DISCOVERED_COMPLETED_NS,
  TIMEOUT_MS,
  DURATION_MS,
  INPUT_SIZES,
  OUTPUT_SIZES,
  INPUT_DTYPES,
  STATE,
  RETIRED,
  IS_P2P,
  FRAMES,
  ENTRIES,
  FRAME_NAME,
  FRAME_FILE,
  FRAME_LINE,
  COMPLETED,
  STARTED,
  NAMES
};

/* Which word these bytes are, -1 for any other. */
int32_t name_of(const uint8_t *bytes, uint32_t length);

#endif
