/* What the poller writes to its standard output: frames, little-endian, each with its header. */
#ifndef ONCALL_DPA_FRAMES_H
#define ONCALL_DPA_FRAMES_H

#include <stdint.h>

#define FRAME_MAGIC 0x61704430u /* "0Dpa" */
#define FRAME_VERSION 1u

enum frame_kind {
  FRAME_PAGE = 1,    /* a mailbox page, as the NIC wrote it (mailbox.h): all is well */
  FRAME_PROBLEM = 2, /* a sentence, UTF-8: true until the next page */
};

struct frame { /* 32 bytes */
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint32_t bytes; /* that follow */
  uint32_t reserved;
  int64_t before_ns, after_ns; /* Unix time of the exchange with the NIC */
};

#endif
