#include "values.h"

#include <stdlib.h>
#include <string.h>

#include "names.h"

enum { MOST_MARKS = 64, MOST_VALUES = 1 << 21, FIRST_TEXTS = 256, MOST_PROBES = 64 };

void *values_grow(struct growing *array, size_t each) {
  if (array->count == array->room) {
    size_t room = array->room ? array->room * 2 : 1024;
    void *items = array->count < MOST_VALUES ? realloc(array->items, room * each) : NULL;
    if (items == NULL)
      return NULL;
    array->items = items;
    array->room = room;
  }
  return (char *)array->items + array->count++ * each;
}

/* -------------------------------------------------------------------- texts */

/* Python's unpickler refuses a text that is no UTF-8; so it must be seen here. Surrogates, which it
 * lets pass, are left to it. */
static bool is_utf8(const uint8_t *bytes, uint32_t length) {
  for (uint32_t at = 0; at < length;) {
    uint8_t lead = bytes[at++];
    if (lead < 0x80)
      continue;
    uint32_t follow = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || length - at < follow)
      return false;
    uint32_t point = lead & (0x3fu >> follow);
    for (uint32_t one = 0; one < follow; one++, at++) {
      if ((bytes[at] & 0xc0) != 0x80)
        return false;
      point = point << 6 | (bytes[at] & 0x3f);
    }
    if (point < (follow == 3   ? 0x10000u
                 : follow == 2 ? 0x800u
                               : 0x80u) ||
        point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return false;
  }
  return true;
}

static uint32_t hash_of(const uint8_t *bytes, uint32_t length) {
  uint32_t hash = 2166136261u;
  for (uint32_t at = 0; at < length; at++)
    hash = (hash ^ bytes[at]) * 16777619u;
  return hash;
}

/* The place of a text in the table: where it is, or where it belongs; NULL if that is far off, as
 * where somebody chose texts that have one hash. */
static uint32_t *place_of(const struct values *values, uint32_t at, uint32_t length) {
  uint32_t *table = values->table.items;
  const struct text *texts = values->texts.items;
  uint32_t mask = (uint32_t)values->table.count - 1;
  uint32_t hash = hash_of(values->data + at, length);
  for (uint32_t probe = 0; probe < MOST_PROBES; probe++) {
    uint32_t *place = table + ((hash + probe) & mask);
    if (*place == 0)
      return place;
    const struct text *text = texts + *place - 1;
    if (text->length == length && memcmp(values->data + text->at, values->data + at, length) == 0)
      return place;
  }
  return NULL;
}

/* A table for twice as many texts, or the first one. */
static bool make_table(struct values *values) {
  size_t count = values->table.count ? values->table.count * 2 : FIRST_TEXTS;
  if (count > values->table.room) {
    uint32_t *table = realloc(values->table.items, count * sizeof *table);
    if (table == NULL)
      return false;
    values->table.items = table;
    values->table.room = count;
  }
  values->table.count = count;
  memset(values->table.items, 0, count * sizeof(uint32_t));
  const struct text *texts = values->texts.items;
  for (uint32_t text = 0; text < values->texts.count; text++) {
    uint32_t *place = place_of(values, texts[text].at, texts[text].length);
    if (place == NULL)
      return false;
    *place = text + 1;
  }
  return true;
}

/* The number of the text in these bytes, UINT32_MAX if it cannot be one. */
static uint32_t text_at(struct values *values, uint32_t at, uint32_t length) {
  if (values->texts.count * 2 >= values->table.count && !make_table(values))
    return UINT32_MAX;
  uint32_t *place = place_of(values, at, length);
  if (place == NULL)
    return UINT32_MAX;
  if (*place == 0) {
    struct text *text =
        is_utf8(values->data + at, length) ? values_grow(&values->texts, sizeof *text) : NULL;
    if (text == NULL)
      return UINT32_MAX;
    *text = (struct text){at, length, name_of(values->data + at, length), -1, -1};
    *place = (uint32_t)values->texts.count;
  }
  return *place - 1;
}

/* ------------------------------------------------------------------ opcodes */

static uint64_t little(const uint8_t *bytes, uint32_t count) {
  uint64_t number = 0;
  for (uint32_t at = 0; at < count; at++)
    number |= (uint64_t)bytes[at] << (8 * at);
  return number;
}

static double big_fraction(const uint8_t *bytes) {
  uint64_t bits = 0;
  for (uint32_t at = 0; at < 8; at++)
    bits = bits << 8 | bytes[at];
  double fraction;
  memcpy(&fraction, &bits, sizeof fraction);
  return fraction;
}

static struct value *stack_of(const struct values *values) { return values->stack.items; }

/* What lies above the last mark. */
static uint32_t base_of(const struct values *values) {
  const uint32_t *marks = values->marks.items;
  return values->marks.count ? marks[values->marks.count - 1] : 0;
}

static uint32_t above_mark(const struct values *values) {
  return (uint32_t)values->stack.count - base_of(values);
}

static bool push(struct values *values, struct value value) {
  struct value *top = values_grow(&values->stack, sizeof *top);
  if (top == NULL)
    return false;
  *top = value;
  return true;
}

static bool push_container(struct values *values, enum kind kind) {
  struct container *container = values_grow(&values->containers, sizeof *container);
  if (container == NULL)
    return false;
  *container = (struct container){.stack = -1};
  return push(values, (struct value){kind, (uint32_t)values->containers.count - 1, {0}});
}

/* Move the uppermost values into the container, which is full then. */
static bool fill(struct values *values, struct container *container, uint32_t count) {
  container->first = (uint32_t)values->items.count;
  container->count = count;
  container->full = true;
  const struct value *from = stack_of(values) + values->stack.count - count;
  for (uint32_t at = 0; at < count; at++) {
    struct value *item = values_grow(&values->items, sizeof *item);
    if (item == NULL)
      return false;
    *item = from[at];
  }
  values->stack.count -= count;
  return true;
}

static bool push_tuple(struct values *values, uint32_t count) {
  struct container *tuple =
      above_mark(values) >= count ? values_grow(&values->containers, sizeof *tuple) : NULL;
  uint32_t at = (uint32_t)values->containers.count - 1;
  if (tuple == NULL)
    return false;
  *tuple = (struct container){.stack = -1};
  return fill(values, tuple, count) && push(values, (struct value){TUPLE, at, {0}});
}

/* Whether the list on top of the stack is that of the entries: a value of the outermost dictionary,
 * whose key they are. */
static bool is_entries(const struct values *values) {
  uint32_t above = above_mark(values);
  if (values->marks.count != 1 || above < 2 || above % 2)
    return false;
  const struct value *top = stack_of(values) + values->stack.count;
  return top[-1].kind == LIST && top[-2].kind == TEXT && text_of(values, top[-2])->name == ENTRIES;
}

static bool mark(struct values *values) {
  if (is_entries(values)) {
    if (values->had_entries)
      return false;
    values->within_entries = true;
  }
  if (values->marks.count >= MOST_MARKS)
    return false;
  uint32_t *place = values_grow(&values->marks, sizeof *place);
  if (place == NULL)
    return false;
  *place = (uint32_t)values->stack.count;
  return true;
}

/* The container below the last mark, if it is of this kind and empty so far; the mark is gone. */
static struct container *below_mark(struct values *values, enum kind kind) {
  uint32_t base = base_of(values);
  if (values->marks.count == 0 || base == 0)
    return NULL;
  values->marks.count--;
  struct value below = stack_of(values)[base - 1];
  struct container *container = below.kind == (uint32_t)kind ? container_of(values, below) : NULL;
  return container == NULL || container->full ? NULL : container;
}

static bool append_items(struct values *values) {
  uint32_t count = above_mark(values);
  struct container *list = below_mark(values, LIST);
  if (list == NULL)
    return false;
  if (values->within_entries && values->marks.count == 1) {
    values->within_entries = false;
    values->had_entries = true;
    values->entries = stack_of(values)[values->stack.count - count - 1].at;
    const struct value *first = stack_of(values) + values->stack.count - count;
    for (uint32_t at = 0; at < count; at++)
      if (first[at].kind != ROW || first[at].at != at)
        return false;
    values->stack.count -= count;
    *list = (struct container){.full = true, .stack = -1};
    return true;
  }
  return fill(values, list, count);
}

static bool set_items(struct values *values, take_entry *take, void *rows) {
  uint32_t count = above_mark(values);
  struct container *table = below_mark(values, TABLE);
  if (table == NULL || count % 2)
    return false;
  const struct value *first = stack_of(values) + values->stack.count - count;
  for (uint32_t at = 0; at < count; at += 2)
    if (first[at].kind != TEXT)
      return false;
  if (!values->within_entries || values->marks.count != 2)
    return fill(values, table, count);
  table->full = true;
  values->stack.count -= count;
  struct value *top = stack_of(values) + values->stack.count - 1;
  *top = (struct value){ROW, above_mark(values) - 1, {0}};
  return take(rows, first, count);
}

static bool memoise(struct values *values, uint32_t at) {
  if (above_mark(values) == 0 || at > values->memo.count)
    return false;
  struct value top = stack_of(values)[values->stack.count - 1];
  if ((top.kind == LIST || top.kind == TABLE) && !container_of(values, top)->full)
    return false;
  if (at == values->memo.count && values_grow(&values->memo, sizeof top) == NULL)
    return false;
  ((struct value *)values->memo.items)[at] = top;
  return true;
}

/* `opcode_at`: where the text, or what refers to it, begins. */
static bool push_text(struct values *values, struct value text, uint32_t opcode_at) {
  if (values->marks.count == 1 && above_mark(values) % 2 == 0 &&
      text_of(values, text)->name == ENTRIES)
    values->entries_at = opcode_at;
  return push(values, text);
}

static bool recall(struct values *values, uint32_t at, uint32_t opcode_at) {
  if (at >= values->memo.count)
    return false;
  struct value known = ((const struct value *)values->memo.items)[at];
  return known.kind == TEXT ? push_text(values, known, opcode_at) : push(values, known);
}

static struct value number(int64_t number) { return (struct value){NUMBER, 0, {number}}; }

static struct value flag(bool flag) { return (struct value){FLAG, 0, {flag}}; }

/* ------------------------------------------------------------------ reading */

/* Bytes that follow an opcode, of a number its own count of bytes, of a text its length; -1 for an
 * opcode that PyTorch's pickler does not write. */
static int argument_bytes(uint8_t opcode) {
  switch (opcode) {
  case '}':
  case ']':
  case ')':
  case '(':
  case 'u':
  case 'e':
  case 't':
  case 0x85:
  case 0x86:
  case 0x87:
  case 0x88:
  case 0x89:
  case 'N':
  case '.':
    return 0;
  case 'K':
  case 'q':
  case 'h':
  case 0x8a:
    return 1;
  case 'M':
    return 2;
  case 'J':
  case 'r':
  case 'j':
  case 'X':
    return 4;
  case 'G':
    return 8;
  default:
    return -1;
  }
}

/* The opcode at `at` with its argument; false if it is refused. `*end` is behind it. */
static bool step(struct values *values, uint32_t at, uint32_t *end, take_entry *take, void *rows) {
  uint8_t opcode = values->data[at];
  const uint8_t *argument = values->data + at + 1;
  uint32_t left = values->size - at - 1;
  int bytes = argument_bytes(opcode);
  if (bytes < 0 || (uint32_t)bytes > left)
    return false;
  left -= (uint32_t)bytes;
  *end = values->size - left;
  switch (opcode) {
  case 'h':
    return recall(values, argument[0], at);
  case 'j':
    return recall(values, (uint32_t)little(argument, 4), at);
  case 'q':
    return memoise(values, argument[0]);
  case 'r':
    return memoise(values, (uint32_t)little(argument, 4));
  case 'K':
    return push(values, number(argument[0]));
  case 'M':
    return push(values, number((int64_t)little(argument, 2)));
  case 'J':
    return push(values, number((int32_t)(uint32_t)little(argument, 4)));
  case 'G':
    return push(values, (struct value){FRACTION, 0, {.fraction = big_fraction(argument)}});
  case 'N':
    return push(values, (struct value){NONE, 0, {0}});
  case 0x88:
  case 0x89:
    return push(values, flag(opcode == 0x88));
  case ']':
    return push_container(values, LIST);
  case '}':
    return push_container(values, TABLE);
  case '(':
    return mark(values);
  case 'e':
    return append_items(values);
  case 'u':
    return set_items(values, take, rows);
  case ')':
    return push_tuple(values, 0);
  case 0x85:
  case 0x86:
  case 0x87:
    return push_tuple(values, opcode - 0x84u);
  case 't': {
    uint32_t count = above_mark(values);
    if (values->marks.count == 0)
      return false;
    values->marks.count--;
    return push_tuple(values, count);
  }
  case 'X': {
    uint32_t length = (uint32_t)little(argument, 4);
    uint32_t text = length <= left ? text_at(values, at + 5, length) : UINT32_MAX;
    *end += length;
    return text != UINT32_MAX && push_text(values, (struct value){TEXT, text, {0}}, at);
  }
  case 0x8a: {
    uint32_t length = argument[0];
    if (length > 8 || length > left)
      return false;
    uint64_t bits = little(argument + 1, length);
    if (length > 0 && length < 8 && argument[length] & 0x80)
      bits |= ~0ull << (8 * length);
    *end += length;
    return push(values, number((int64_t)bits));
  }
  default: /* the end, which values_read looks for */
    return false;
  }
}

/* Whether the outermost dictionary ends with the entries: what is before them can then be read
 * without them. */
static bool ends_with_entries(const struct values *values) {
  if (values->marks.count != 0 || values->stack.count != 1 || !values->had_entries)
    return false;
  struct value outermost = stack_of(values)[0];
  if (outermost.kind != TABLE || outermost.at != 0)
    return false;
  const struct container *table = container_of(values, outermost);
  if (table->count < 2)
    return false;
  const struct value *last = items_of(values, table) + table->count - 2;
  return last[0].kind == TEXT && text_of(values, last[0])->name == ENTRIES &&
         last[1].kind == LIST && last[1].at == values->entries;
}

static void forget(struct values *values) {
  struct growing *all[] = {&values->stack, &values->marks,      &values->memo,
                           &values->items, &values->containers, &values->texts};
  for (size_t at = 0; at < sizeof all / sizeof *all; at++)
    all[at]->count = 0;
  values->table.count = 0;
  values->within_entries = values->had_entries = false;
}

bool values_read(struct values *values, take_entry *take, void *rows) {
  forget(values);
  uint32_t at = 2;
  if (values->size < 2 || values->data[0] != 0x80 || values->data[1] != 2)
    return false;
  while (at < values->size) {
    if (values->data[at] == '.')
      return ends_with_entries(values);
    if (!step(values, at, &at, take, rows))
      return false;
  }
  return false;
}

void values_free(struct values *values) {
  struct growing *all[] = {&values->stack,      &values->marks, &values->memo, &values->items,
                           &values->containers, &values->texts, &values->table};
  for (size_t at = 0; at < sizeof all / sizeof *all; at++)
    free(all[at]->items);
  *values = (struct values){0};
}
