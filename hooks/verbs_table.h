/* Queue pairs by context and number: found without a lock, changed by one thread at a time. */
#ifndef ONCALL_HOOKS_VERBS_TABLE_H
#define ONCALL_HOOKS_VERBS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct ibv_context;

/* Unique, and not 0 or 1: numbers have 24 bits, and two contexts do not begin within 256 bytes. */
static inline uint64_t verbs_table_key(const struct ibv_context *context, uint32_t number) {
  return (uint64_t)(uintptr_t)context >> 8 << 24 | (number & 0xffffff);
}

/* UINT32_MAX: not there. */
uint32_t verbs_table_find(uint64_t key);

/* False: it is full. */
bool verbs_table_insert(uint64_t key, uint32_t value);

/* What it was; UINT32_MAX: it was not there. */
uint32_t verbs_table_remove(uint64_t key);

void verbs_table_clear(void);

#endif
