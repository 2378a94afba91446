#include "profiler_names.h"

#include <string.h>

#include "nccl_api.h"
#include "oncall_ring.h"

static const struct {
  const char *name;
  uint8_t op;
} functions[] = {
    {"AllReduce", ONCALL_ALL_REDUCE},
    {"AllGather", ONCALL_ALL_GATHER},
    {"ReduceScatter", ONCALL_REDUCE_SCATTER},
    {"Send", ONCALL_SEND},
    {"Recv", ONCALL_RECV},
    {"Broadcast", ONCALL_BROADCAST},
    {"Reduce", ONCALL_REDUCE},
    {"AlltoAll", ONCALL_ALL_TO_ALL},
    {"AllToAll", ONCALL_ALL_TO_ALL},
    {"Gather", ONCALL_GATHER},
    {"Scatter", ONCALL_SCATTER},
    {"PutSignal", ONCALL_PUT_SIGNAL},
    {"Signal", ONCALL_SIGNAL},
    {"WaitSignal", ONCALL_WAIT_SIGNAL},
};

uint8_t profiler_operation(const char *function) {
  for (size_t i = 0; function && i < sizeof functions / sizeof *functions; i++)
    if (strcmp(function, functions[i].name) == 0)
      return functions[i].op;
  return 0;
}

uint8_t profiler_data_type(const char *name) {
  static const char *const names[ncclNumTypes] = {
      "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
      "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
      "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
  };
  for (uint8_t type = 0; name && type < ncclNumTypes; type++)
    if (strcmp(name, names[type]) == 0)
      return type;
  return ncclInt8;
}

bool profiler_has_root(uint8_t op) {
  return op == ONCALL_BROADCAST || op == ONCALL_REDUCE || op == ONCALL_GATHER ||
         op == ONCALL_SCATTER;
}
