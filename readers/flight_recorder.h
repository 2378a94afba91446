/* The entries of a Flight Recorder dump as rows of numbers, without an object for any of them.
 *
 * Python calls this (src/oncall/importers/flight_recorder/opcodes.py), and has its own unpickler
 * for what is refused here. Whatever is read, both read alike.
 */
#ifndef ONCALL_FLIGHT_RECORDER_H
#define ONCALL_FLIGHT_RECORDER_H

#include <stdint.h>

/* A number that a dump lacks is 0, a code -1, elements without a tensor -1, and `is_p2p` -1. */
struct oncall_entry {
  int64_t group; /* code of its name and description */
  int64_t pg_id;
  int64_t call;
  int64_t dtype; /* of all its tensors */
  int64_t collective_seq;
  int64_t p2p_seq;
  int64_t op_id;
  int64_t record_id;
  int64_t created_ns;
  int64_t started_ns;
  int64_t ended_ns;
  int64_t timeout_ms;
  double duration_ms;
  int64_t input_elements;
  int64_t output_elements;
  int64_t state; /* 1: completed, 2: started */
  int64_t retired;
  int64_t is_p2p;
  int64_t stack; /* -1: none */
};

/* Where a text lies in the dump. */
struct oncall_span {
  uint32_t at;
  uint32_t length;
};

/* `line` has no bytes where it is the number. */
struct oncall_frame {
  struct oncall_span name;
  struct oncall_span file;
  struct oncall_span line;
  int64_t line_number;
};

/* The frames of a call, the first MOST_FRAMES of them; calls from one place share a stack. */
struct oncall_stack {
  uint64_t first;
  uint64_t count;
};

/* The vocabularies in `words`: two texts a group, one a call, one an element type. */
struct oncall_dump {
  const struct oncall_entry *entries;
  const struct oncall_span *words;
  const struct oncall_stack *stacks;
  const struct oncall_frame *frames;
  uint64_t entry_count;
  uint64_t group_count;
  uint64_t call_count;
  uint64_t dtype_count;
  uint64_t stack_count;
  uint64_t frame_count;
  uint64_t entries_at; /* where the key of the entries begins */
};

struct oncall_reader;

/* NULL without memory. One reader reads one dump after another. */
struct oncall_reader *oncall_reader_new(void);

void oncall_reader_free(struct oncall_reader *reader);

/* 0, or -1 for what PyTorch does not write. `dump` holds until the next one is read. */
int oncall_read_dump(struct oncall_reader *reader, const uint8_t *data, uint64_t size,
                     struct oncall_dump *dump);

#endif
