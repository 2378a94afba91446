/* A pickle as PyTorch's own pickler writes it (torch/csrc/jit/serialization/pickler.cpp), as
 * values.
 *
 * Protocol 2 with the 24 opcodes of that pickler, containers filled once and memoised when they are
 * full. Anything else is refused: Python's unpickler reads it in place of this.
 */
#ifndef ONCALL_VALUES_H
#define ONCALL_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind { NONE, FLAG, NUMBER, FRACTION, TEXT, LIST, TUPLE, TABLE, ROW };

/* `at`: of a text, of a container, or of a row. */
struct value {
  uint32_t kind;
  uint32_t at;
  union {
    int64_t number;
    double fraction;
  };
};

/* Texts that are equal are one. `name` says which of the recorder's words it is, -1 for others;
 * `call` and `dtype` are its codes in those vocabularies, -1 before it has one. */
struct text {
  uint32_t at;
  uint32_t length;
  int32_t name;
  int32_t call;
  int32_t dtype;
};

/* Items are values in a row; those of a TABLE are keys and values in turn. */
struct container {
  uint32_t first;
  uint32_t count;
  bool full;
  int32_t stack; /* that a list of frames is, -1 before it is known */
};

struct growing {
  void *items;
  size_t count;
  size_t room;
};

struct values {
  const uint8_t *data;
  uint32_t size;
  uint32_t entries_at; /* where the key of the entries begins */
  uint32_t entries;    /* their container */
  bool within_entries;
  bool had_entries;
  struct growing stack;      /* struct value */
  struct growing marks;      /* uint32_t: places in the stack */
  struct growing memo;       /* struct value */
  struct growing items;      /* struct value */
  struct growing containers; /* struct container */
  struct growing texts;      /* struct text */
  struct growing table;      /* uint32_t: texts by their hash, from 1 */
};

/* Called where an entry of the dump is complete: `count` keys and values in turn. */
typedef bool take_entry(void *rows, const struct value *items, uint32_t count);

/* Whether it was read, each of its entries given to `take` in turn. */
bool values_read(struct values *values, take_entry *take, void *rows);

/* Room for one more, NULL if there is none. */
void *values_grow(struct growing *array, size_t each);

void values_free(struct values *values);

static inline struct text *text_of(const struct values *values, struct value value) {
  return (struct text *)values->texts.items + value.at;
}

static inline struct container *container_of(const struct values *values, struct value value) {
  return (struct container *)values->containers.items + value.at;
}

static inline const struct value *items_of(const struct values *values,
                                           const struct container *container) {
  return (const struct value *)values->items.items + container->first;
}

#endif
