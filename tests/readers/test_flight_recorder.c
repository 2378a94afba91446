/* A dump is read as it was written; cut off, or with any of its bytes changed, it is read or
 * refused, and nothing beside it is looked at: sanitizers watch. */
#include "flight_recorder.h"

#include <stdbool.h>
#include <string.h>

#include "expect.h"

enum { ENTRIES = 3, MOST_BYTES = 4096, CHANGED = 60000 };

static uint8_t written[MOST_BYTES];
static uint32_t size;
static const char *memo[64];
static uint8_t memoised;

static void byte(uint8_t byte) {
  EXPECT(size < MOST_BYTES);
  written[size++] = byte;
}

static void little(uint64_t number, int bytes) {
  for (int at = 0; at < bytes; at++)
    byte((uint8_t)(number >> (8 * at)));
}

/* As PyTorch's pickler: the first time with a memo, then by it. */
static void text(const char *text) {
  for (uint8_t known = 0; known < memoised; known++)
    if (strcmp(memo[known], text) == 0) {
      byte('h');
      byte(known);
      return;
    }
  byte('X');
  little(strlen(text), 4);
  for (const char *at = text; *at; at++)
    byte((uint8_t)*at);
  byte('q');
  byte(memoised);
  memo[memoised++] = text;
}

static void number(const char *name, int64_t number) {
  text(name);
  byte(0x8a);
  byte(8);
  little((uint64_t)number, 8);
}

static void opcodes(const char *opcodes) {
  for (; *opcodes; opcodes++)
    byte((uint8_t)*opcodes);
}

static void sizes(const char *name, uint16_t elements) {
  text(name);
  opcodes("](](M");
  little(elements, 2);
  opcodes("ee");
}

/* Each call has a list of its own, of frames that all share. */
static void frames(void) {
  static uint8_t shared[2];
  text("frames");
  opcodes("](");
  for (int frame = 0; frame < 2; frame++) {
    if (shared[frame]) {
      byte('h');
      byte(shared[frame]);
      continue;
    }
    opcodes("}(");
    text("name");
    text("step");
    text("filename");
    text("train.py");
    text("line");
    byte('K');
    byte((uint8_t)(7 + frame));
    opcodes("uq");
    byte(memoised);
    shared[frame] = memoised;
    memo[memoised++] = "";
  }
  opcodes("e");
}

static void entry(int64_t seq) {
  opcodes("}(");
  frames();
  number("collective_seq_id", seq);
  number("time_created_ns", 1760000000000000000 + seq);
  text("process_group");
  text("0");
  text(seq < 2 ? "default_pg" : "tp");
  byte(0x86);
  text("profiling_name");
  text("nccl:all_reduce");
  sizes("input_sizes", 600);
  sizes("output_sizes", 700);
  text("input_dtypes");
  opcodes("](");
  text("Float");
  opcodes("e");
  text("state");
  text("completed");
  text("retired");
  byte(0x88);
  text("is_p2p");
  byte(0x89);
  text("duration_ms");
  opcodes("G?\x80");
  little(0, 6); /* 1 / 128 */
  opcodes("u");
}

static void write_dump(void) {
  byte(0x80);
  byte(2);
  opcodes("}(");
  text("version");
  text("2.10");
  text("entries");
  opcodes("](");
  for (int64_t seq = 0; seq < ENTRIES; seq++)
    entry(seq);
  opcodes("eu.");
}

static void expect_what_was_written(struct oncall_reader *reader) {
  struct oncall_dump dump;
  EXPECT(oncall_read_dump(reader, written, size, &dump) == 0);
  EXPECT(dump.entry_count == ENTRIES);
  EXPECT(dump.group_count == 2 && dump.call_count == 1 && dump.dtype_count == 1);
  EXPECT(memcmp(written + dump.entries_at, "X\7\0\0\0entries", 12) == 0);
  EXPECT(memcmp(written + dump.words[4].at, "nccl:all_reduce", dump.words[4].length) == 0);
  for (int64_t seq = 0; seq < ENTRIES; seq++) {
    const struct oncall_entry *entry = dump.entries + seq;
    EXPECT(entry->collective_seq == seq && entry->created_ns == 1760000000000000000 + seq);
    EXPECT(entry->group == (seq == 2) && entry->call == 0 && entry->dtype == 0);
    EXPECT(entry->input_elements == 600 && entry->output_elements == 700);
    EXPECT(entry->state == 1 && entry->retired == 1 && entry->is_p2p == 0);
    EXPECT(entry->duration_ms == 1.0 / 128 && entry->ended_ns == 0);
    EXPECT(entry->stack == 0 && dump.stacks[0].count == 2);
    EXPECT(dump.frames[1].line_number == 8 && dump.frames[0].file.length == strlen("train.py"));
  }
}

/* Read from memory that ends where the data do; what is said of it lies within. */
static bool read_all(struct oncall_reader *reader, const uint8_t *data, uint32_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  EXPECT(copy != NULL);
  memcpy(copy, data, size);
  struct oncall_dump dump;
  bool is_read = oncall_read_dump(reader, copy, size, &dump) == 0;
  if (is_read) {
    uint64_t words = 2 * dump.group_count + dump.call_count + dump.dtype_count;
    EXPECT(dump.entries_at < size);
    for (uint64_t at = 0; at < words; at++)
      EXPECT(dump.words[at].at <= size && dump.words[at].length <= size - dump.words[at].at);
    for (uint64_t at = 0; at < dump.stack_count; at++)
      EXPECT(dump.stacks[at].first + dump.stacks[at].count <= dump.frame_count);
    for (uint64_t at = 0; at < dump.frame_count; at++)
      EXPECT(dump.frames[at].file.at + dump.frames[at].file.length <= size);
    for (uint64_t at = 0; at < dump.entry_count; at++) {
      const struct oncall_entry *entry = dump.entries + at;
      EXPECT(entry->stack >= -1 && entry->stack < (int64_t)dump.stack_count);
      EXPECT(entry->group >= 0 && (uint64_t)entry->group < dump.group_count);
      EXPECT(entry->call >= 0 && (uint64_t)entry->call < dump.call_count);
      EXPECT(entry->dtype >= -1 && entry->dtype < (int64_t)dump.dtype_count);
    }
  }
  free(copy);
  return is_read;
}

static uint32_t random_state = 2463534242u;

static uint32_t any(uint32_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state % below;
}

/* Bytes changed to those of other places, which are opcodes and lengths, or to any. */
static bool read_changed(struct oncall_reader *reader) {
  uint8_t changed[MOST_BYTES];
  memcpy(changed, written, size);
  for (uint32_t changes = 1 + any(3); changes > 0; changes--) {
    uint32_t to = any(size), from = any(size), length = 1 + any(8);
    if (any(3) == 0)
      changed[to] = (uint8_t)any(256);
    else
      for (uint32_t at = 0; at < length && to + at < size && from + at < size; at++)
        changed[to + at] = written[from + at];
  }
  return read_all(reader, changed, size);
}

int main(void) {
  write_dump();
  struct oncall_reader *reader = oncall_reader_new();
  EXPECT(reader != NULL);
  expect_what_was_written(reader);
  for (uint32_t end = 0; end < size; end++)
    EXPECT(!read_all(reader, written, end));
  uint32_t is_read = 0;
  for (uint32_t at = 0; at < CHANGED; at++)
    is_read += read_changed(reader);
  EXPECT(is_read > CHANGED / 100 && is_read < CHANGED); /* both ends were met */
  expect_what_was_written(reader);
  oncall_reader_free(reader);
  return 0;
}
