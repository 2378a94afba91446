/* What NCCL's profiler calls functions and data types. */
#ifndef ONCALL_HOOKS_PROFILER_NAMES_H
#define ONCALL_HOOKS_PROFILER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* enum oncall_operation; 0: a function we do not know. */
uint8_t profiler_operation(const char *function);

/* ncclDataType_t; ncclInt8 if the name is unknown. */
uint8_t profiler_data_type(const char *name);

bool profiler_has_root(uint8_t op);

#endif
