#include "verbs_table.h"

#include <string.h>

enum { SLOTS = 1 << 14, MOST_PROBES = 64 };

#define EMPTY 0ull
#define REMOVED 1ull

static struct {
  uint64_t key;
  uint32_t value;
} table[SLOTS];

static uint32_t place(uint64_t key, uint32_t probe) {
  return ((uint32_t)(key * 0x9e3779b97f4a7c15ull >> 50) + probe) % SLOTS;
}

/* Where the key is; SLOTS: nowhere. */
static uint32_t where(uint64_t key) {
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t at = place(key, probe);
    uint64_t found = __atomic_load_n(&table[at].key, __ATOMIC_ACQUIRE);
    if (found == key)
      return at;
    if (found == EMPTY)
      break;
  }
  return SLOTS;
}

uint32_t verbs_table_find(uint64_t key) {
  uint32_t at = where(key);
  return at == SLOTS ? UINT32_MAX : __atomic_load_n(&table[at].value, __ATOMIC_RELAXED);
}

bool verbs_table_insert(uint64_t key, uint32_t value) {
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t at = place(key, probe);
    if (__atomic_load_n(&table[at].key, __ATOMIC_RELAXED) > REMOVED)
      continue;
    __atomic_store_n(&table[at].value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&table[at].key, key, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

uint32_t verbs_table_remove(uint64_t key) {
  uint32_t at = where(key);
  if (at == SLOTS)
    return UINT32_MAX;
  uint32_t value = __atomic_load_n(&table[at].value, __ATOMIC_RELAXED);
  __atomic_store_n(&table[at].key, REMOVED, __ATOMIC_RELEASE);
  return value;
}

void verbs_table_clear(void) { memset(table, 0, sizeof table); }
