/* What host and NIC say to each other through the mailbox. Little-endian, 8-byte aligned.
 *
 * The host asks, the NIC answers with one page. A page is sent again until the host says that it
 * has it: a lost answer loses nothing. `more` asks for the next one at once.
 */
#ifndef ONCALL_DPA_MAILBOX_H
#define ONCALL_DPA_MAILBOX_H

#include <stdint.h>

#define MAILBOX_REQUEST_MAGIC 0x71706f50u /* "Popq" */
#define MAILBOX_PAGE_MAGIC 0x65676150u    /* "Page" */
#define MAILBOX_VERSION 1u

struct mailbox_request {
  uint32_t magic;
  uint16_t version;
  uint16_t reserved;
  uint32_t received; /* number of the last page that arrived, 0 for none */
  uint32_t reserved_too;
};

struct mailbox_page {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint32_t bytes; /* of the page, with this header */
  uint32_t number;
  uint32_t batches; /* that follow */
  uint32_t more;    /* 1: what is closed did not fit */
  uint32_t epoch_ns, unit_bytes;
  uint64_t boot;   /* another one: numbers and counts begin anew */
  uint64_t now_ns; /* the NIC's time, or a little less; 0: nothing was sent yet */
  /* Since boot; events as struct counts tells them. */
  uint64_t events, without_flow, without_batch, gaps, clipped, estimated, strays;
  uint64_t flows_open;
};

/* 32 epochs of one flow, about a millisecond. A flow may have several for the same time: they add
 * up. */
struct mailbox_batch {
  uint64_t first_epoch; /* number: NIC's time / epoch_ns */
  uint32_t qpn;
  uint16_t vhca;
  uint16_t flags; /* enum batch_flag */
  uint16_t units[32];
};

#endif
