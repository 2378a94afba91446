#include "flight_recorder.h"

#include <stdlib.h>
#include <string.h>

#include "names.h"
#include "values.h"

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_GROUPS = 1024, MOST_DIMENSIONS = 64, MOST_FRAMES = 256, KNOWN_STACKS = 256 };

static const int64_t MOST_ELEMENTS = (int64_t)1
                                     << 60; /* Python adds them as fractions, up to 2**62 */

struct oncall_reader {
  struct values values;
  struct growing entries;       /* struct oncall_entry */
  struct growing groups;        /* struct oncall_span, two each */
  struct growing calls;         /* struct oncall_span */
  struct growing dtypes;        /* struct oncall_span */
  struct growing words;         /* struct oncall_span */
  struct growing stacks;        /* struct oncall_stack */
  struct growing frames;        /* struct oncall_frame */
  uint32_t known[KNOWN_STACKS]; /* lists of frames, by their hash */
  uint64_t tensors;             /* that were looked at, with their dimensions: no more than bytes */
};

/* ------------------------------------------------------------- vocabularies */

static struct oncall_span span_of(const struct oncall_reader *reader, struct value text) {
  const struct text *known = text_of(&reader->values, text);
  return (struct oncall_span){known->at, known->length};
}

static bool same(struct oncall_span one, struct oncall_span other) {
  return one.at == other.at && one.length == other.length; /* equal texts are one */
}

/* The code of a text, which `known` keeps; the next one for a text that has none. */
static bool code_of(struct oncall_reader *reader, struct growing *words, struct value text,
                    int32_t *known, int64_t *code) {
  if (*known < 0) {
    struct oncall_span *word = values_grow(words, sizeof *word);
    if (word == NULL)
      return false;
    *word = span_of(reader, text);
    *known = (int32_t)words->count - 1;
  }
  *code = *known;
  return true;
}

static bool take_group(struct oncall_reader *reader, struct value value, int64_t *code) {
  if (value.kind != TUPLE)
    return false;
  const struct container *pair = container_of(&reader->values, value);
  const struct value *items = items_of(&reader->values, pair);
  if (pair->count != 2 || items[0].kind != TEXT || items[1].kind != TEXT)
    return false;
  struct oncall_span name = span_of(reader, items[0]), description = span_of(reader, items[1]);
  const struct oncall_span *known = reader->groups.items;
  size_t count = reader->groups.count / 2;
  size_t at = 0;
  while (at < count && !(same(known[2 * at], name) && same(known[2 * at + 1], description)))
    at++;
  *code = (int64_t)at;
  if (at < count)
    return true;
  struct oncall_span *first = at < MOST_GROUPS ? values_grow(&reader->groups, sizeof *first) : NULL;
  if (first == NULL)
    return false;
  *first = name;
  struct oncall_span *second = values_grow(&reader->groups, sizeof *second);
  if (second == NULL)
    return false;
  *second = description;
  return true;
}

static bool take_call(struct oncall_reader *reader, struct value value, int64_t *code) {
  return value.kind == TEXT &&
         code_of(reader, &reader->calls, value, &text_of(&reader->values, value)->call, code);
}

/* ------------------------------------------------------------------ tensors */

static bool look_at(struct oncall_reader *reader, uint32_t count) {
  reader->tensors += count;
  return reader->tensors <= reader->values.size;
}

static bool is_list(struct value value) { return value.kind == LIST || value.kind == TUPLE; }

/* The element type that all tensors have; -1 if they differ. */
static bool take_dtypes(struct oncall_reader *reader, struct value value, int64_t *code) {
  *code = -1;
  if (value.kind == NONE)
    return true;
  if (!is_list(value))
    return false;
  const struct container *list = container_of(&reader->values, value);
  const struct value *items = items_of(&reader->values, list);
  if (list->count == 0)
    return true;
  if (!look_at(reader, list->count))
    return false;
  bool differ = false;
  for (uint32_t at = 0; at < list->count; at++) {
    if (items[at].kind != TEXT)
      return false;
    differ |= items[at].at != items[0].at;
  }
  struct text *text = text_of(&reader->values, items[0]);
  return differ || code_of(reader, &reader->dtypes, items[0], &text->dtype, code);
}

static bool elements_of(struct oncall_reader *reader, struct value value, int64_t *elements) {
  if (!is_list(value))
    return false;
  const struct container *sizes = container_of(&reader->values, value);
  const struct value *items = items_of(&reader->values, sizes);
  if (sizes->count > MOST_DIMENSIONS || !look_at(reader, sizes->count))
    return false;
  *elements = 1;
  for (uint32_t at = 0; at < sizes->count; at++)
    if (items[at].kind != NUMBER || items[at].number < 0 ||
        __builtin_mul_overflow(*elements, items[at].number, elements))
      return false;
  return *elements < MOST_ELEMENTS;
}

/* The elements of all tensors. */
static bool take_sizes(struct oncall_reader *reader, struct value value, int64_t *elements) {
  *elements = -1;
  if (value.kind == NONE)
    return true;
  if (!is_list(value))
    return false;
  const struct container *tensors = container_of(&reader->values, value);
  if (tensors->count == 0)
    return true;
  if (!look_at(reader, tensors->count))
    return false;
  *elements = 0;
  for (uint32_t at = 0; at < tensors->count; at++) {
    int64_t each;
    if (!elements_of(reader, items_of(&reader->values, tensors)[at], &each))
      return false;
    *elements += each; /* both are below 2**60 */
    if (*elements >= MOST_ELEMENTS)
      return false;
  }
  return true;
}

/* ------------------------------------------------------------------- frames */

/* A frame's three values, by its table; false if it lacks one. */
static bool frame_of(const struct oncall_reader *reader, const struct container *table,
                     struct oncall_frame *frame) {
  const struct value *items = items_of(&reader->values, table);
  unsigned found = 0;
  for (uint32_t at = 0; at < table->count; at += 2) {
    int32_t name = text_of(&reader->values, items[at])->name;
    struct value value = items[at + 1];
    if (name < FRAME_NAME || name > FRAME_LINE)
      continue;
    bool is_number = name == FRAME_LINE && value.kind == NUMBER;
    if (value.kind != TEXT && !is_number)
      return false;
    struct oncall_span span = is_number ? (struct oncall_span){0, 0} : span_of(reader, value);
    if (name == FRAME_LINE && !is_number && span.length == 0)
      return false;
    if (name == FRAME_NAME)
      frame->name = span;
    else if (name == FRAME_FILE)
      frame->file = span;
    else
      frame->line = span, frame->line_number = is_number ? value.number : -1;
    found |= 1u << (name - FRAME_NAME);
  }
  return found == 7;
}

/* A list with the same frames, if one was met lately; else this one, which is met now. Each call
 * has a list of its own, few of which differ. */
static uint32_t met_before(struct oncall_reader *reader, uint32_t list) {
  const struct container *containers = reader->values.containers.items;
  const struct value *items = items_of(&reader->values, containers + list);
  uint32_t count = containers[list].count, hash = count;
  for (uint32_t at = 0; at < count; at++)
    hash = (hash ^ items[at].at) * 16777619u;
  uint32_t *known = reader->known + (hash ^ hash >> 16) % KNOWN_STACKS;
  const struct container *other = containers + *known;
  if (*known < list && other->stack >= 0 && other->count == count) {
    const struct value *others = items_of(&reader->values, other);
    uint32_t at = 0;
    while (at < count && others[at].kind == items[at].kind && others[at].at == items[at].at)
      at++;
    if (at == count)
      return *known;
  }
  *known = list;
  return list;
}

static bool add_stack(struct oncall_reader *reader, struct container *list) {
  struct oncall_stack *stack = values_grow(&reader->stacks, sizeof *stack);
  if (stack == NULL)
    return false;
  stack->first = reader->frames.count;
  stack->count = list->count < MOST_FRAMES ? list->count : MOST_FRAMES;
  const struct value *items = items_of(&reader->values, list);
  for (uint64_t at = 0; at < stack->count; at++) {
    struct oncall_frame *frame =
        items[at].kind == TABLE ? values_grow(&reader->frames, sizeof *frame) : NULL;
    if (frame == NULL || !frame_of(reader, container_of(&reader->values, items[at]), frame))
      return false;
  }
  list->stack = (int32_t)reader->stacks.count - 1;
  return true;
}

static bool take_frames(struct oncall_reader *reader, struct value value, int64_t *stack) {
  *stack = -1;
  if (value.kind == NONE)
    return true;
  if (value.kind != LIST)
    return false;
  struct container *list = container_of(&reader->values, value);
  if (list->count == 0)
    return true;
  if (list->stack < 0) {
    uint32_t before = met_before(reader, value.at);
    if (before != value.at)
      list->stack = ((struct container *)reader->values.containers.items)[before].stack;
    else if (!add_stack(reader, list))
      return false;
  }
  *stack = list->stack;
  return true;
}

/* ------------------------------------------------------------------ entries */

static bool take_number(struct value value, int64_t *number) {
  *number = value.kind == NUMBER ? value.number : 0;
  return value.kind == NUMBER || value.kind == NONE;
}

static bool take_flag(struct value value, int64_t otherwise, int64_t *flag) {
  *flag = value.kind == FLAG ? value.number : otherwise;
  return value.kind == FLAG || value.kind == NONE;
}

static bool take_duration(struct value value, double *duration) {
  *duration = value.kind == FRACTION ? value.fraction
              : value.kind == NUMBER ? (double)value.number
                                     : 0;
  return value.kind == FRACTION || value.kind == NUMBER || value.kind == NONE;
}

static bool take_state(const struct oncall_reader *reader, struct value value, int64_t *state) {
  int32_t name = value.kind == TEXT ? text_of(&reader->values, value)->name : -1;
  *state = name == COMPLETED ? 1 : name == STARTED ? 2 : 0;
  return value.kind == TEXT || value.kind == NONE;
}

static bool take_value(struct oncall_reader *reader, struct oncall_entry *entry, int32_t name,
                       struct value value) {
  switch (name) {
  case PROCESS_GROUP:
    return take_group(reader, value, &entry->group);
  case PG_ID:
    return take_number(value, &entry->pg_id);
  case COLLECTIVE_SEQ_ID:
    return value.kind == NUMBER && take_number(value, &entry->collective_seq);
  case P2P_SEQ_ID:
    return take_number(value, &entry->p2p_seq);
  case OP_ID:
    return take_number(value, &entry->op_id);
  case RECORD_ID:
    return take_number(value, &entry->record_id);
  case PROFILING_NAME:
    return take_call(reader, value, &entry->call);
  case TIME_CREATED_NS:
    return take_number(value, &entry->created_ns);
  case TIME_DISCOVERED_STARTED_NS:
    return take_number(value, &entry->started_ns);
  case TIME_DISCOVERED_COMPLETED_NS:
    return take_number(value, &entry->ended_ns);
  case TIMEOUT_MS:
    return take_number(value, &entry->timeout_ms);
  case DURATION_MS:
    return take_duration(value, &entry->duration_ms);
  case INPUT_SIZES:
    return take_sizes(reader, value, &entry->input_elements);
  case OUTPUT_SIZES:
    return take_sizes(reader, value, &entry->output_elements);
  case INPUT_DTYPES:
    return take_dtypes(reader, value, &entry->dtype);
  case STATE:
    return take_state(reader, value, &entry->state);
  case RETIRED:
    return take_flag(value, 0, &entry->retired);
  case IS_P2P:
    return take_flag(value, -1, &entry->is_p2p);
  case FRAMES:
    return take_frames(reader, value, &entry->stack);
  default:
    return true;
  }
}

/* What no entry may lack: its group, call and number. */
enum { NEEDED = 1 << PROCESS_GROUP | 1 << PROFILING_NAME | 1 << COLLECTIVE_SEQ_ID };

static bool take(void *rows, const struct value *items, uint32_t count) {
  struct oncall_reader *reader = rows;
  struct oncall_entry *entry = values_grow(&reader->entries, sizeof *entry);
  if (entry == NULL)
    return false;
  *entry = (struct oncall_entry){
      .dtype = -1, .input_elements = -1, .output_elements = -1, .is_p2p = -1, .stack = -1};
  unsigned found = 0;
  for (uint32_t at = 0; at < count; at += 2) {
    int32_t name = text_of(&reader->values, items[at])->name;
    unsigned bit = name < 0 ? 0 : 1u << name;
    if (found & bit || !take_value(reader, entry, name, items[at + 1]))
      return false; /* what is said twice would leave a word behind that no entry has */
    found |= bit;
  }
  return (found & NEEDED) == NEEDED;
}

/* ---------------------------------------------------------------- the reader */

EXPORTED struct oncall_reader *oncall_reader_new(void) {
  return calloc(1, sizeof(struct oncall_reader));
}

EXPORTED void oncall_reader_free(struct oncall_reader *reader) {
  if (reader == NULL)
    return;
  values_free(&reader->values);
  free(reader->entries.items);
  free(reader->groups.items);
  free(reader->calls.items);
  free(reader->dtypes.items);
  free(reader->words.items);
  free(reader->stacks.items);
  free(reader->frames.items);
  free(reader);
}

/* All vocabularies in one array. */
static bool join_words(struct oncall_reader *reader) {
  const struct growing *from[] = {&reader->groups, &reader->calls, &reader->dtypes};
  for (size_t one = 0; one < sizeof from / sizeof *from; one++)
    for (size_t at = 0; at < from[one]->count; at++) {
      struct oncall_span *word = values_grow(&reader->words, sizeof *word);
      if (word == NULL)
        return false;
      *word = ((const struct oncall_span *)from[one]->items)[at];
    }
  return true;
}

EXPORTED int oncall_read_dump(struct oncall_reader *reader, const uint8_t *data, uint64_t size,
                              struct oncall_dump *dump) {
  if (size > INT32_MAX)
    return -1;
  reader->values.data = data;
  reader->values.size = (uint32_t)size;
  reader->tensors = 0;
  reader->entries.count = reader->groups.count = reader->calls.count = 0;
  reader->dtypes.count = reader->words.count = 0;
  reader->stacks.count = reader->frames.count = 0;
  if (!values_read(&reader->values, take, reader) || !join_words(reader))
    return -1;
  *dump = (struct oncall_dump){
      .entries = reader->entries.items,
      .words = reader->words.items,
      .stacks = reader->stacks.items,
      .frames = reader->frames.items,
      .entry_count = reader->entries.count,
      .group_count = reader->groups.count / 2,
      .call_count = reader->calls.count,
      .dtype_count = reader->dtypes.count,
      .stack_count = reader->stacks.count,
      .frame_count = reader->frames.count,
      .entries_at = reader->values.entries_at,
  };
  return 0;
}
