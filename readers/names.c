#include "names.h"

#include <string.h>

static const char *const names[NAMES] = {
    [PROCESS_GROUP] = "process_group",
    [PG_ID] = "pg_id",
    [COLLECTIVE_SEQ_ID] = "collective_seq_id",
    [P2P_SEQ_ID] = "p2p_seq_id",
    [OP_ID] = "op_id",
    [RECORD_ID] = "record_id",
    [PROFILING_NAME] = "profiling_name",
    [TIME_CREATED_NS] = "time_created_ns",
    [TIME_DISCOVERED_STARTED_NS] = "time_discovered_started_ns",
    [TIME_DISCOVERED_COMPLETED_NS] = "time_discovered_completed_ns",
    [TIMEOUT_MS] = "timeout_ms",
    [DURATION_MS] = "duration_ms",
    [INPUT_SIZES] = "input_sizes",
    [OUTPUT_SIZES] = "output_sizes",
    [INPUT_DTYPES] = "input_dtypes",
    [STATE] = "state",
    [RETIRED] = "retired",
    [IS_P2P] = "is_p2p",
    [FRAMES] = "frames",
    [ENTRIES] = "entries",
    [FRAME_NAME] = "name",
    [FRAME_FILE] = "filename",
    [FRAME_LINE] = "line",
    [COMPLETED] = "completed",
    [STARTED] = "started",
};

int32_t name_of(const uint8_t *bytes, uint32_t length) {
  for (int32_t name = 0; name < NAMES; name++)
    if (strlen(names[name]) == length && memcmp(names[name], bytes, length) == 0)
      return name;
  return -1;
}
