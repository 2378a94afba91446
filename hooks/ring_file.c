#define _GNU_SOURCE
#include "ring_file.h"

#include <string.h>

#include "ring_identity.h"

enum {
  COMMUNICATOR_SLOTS = 1024,
  TRANSFER_SLOTS = 4096,
  DEFAULT_RECORDS = 65536,
  MOST_RECORDS = 1 << 24,
};

/* Where everything lies; returns the size of the file. */
static size_t lay_out(struct oncall_header *header) {
  header->layout_version = ONCALL_RING_LAYOUT;
  header->header_bytes = sizeof(struct oncall_header);
  header->communicator_slots = COMMUNICATOR_SLOTS;
  header->communicator_bytes = sizeof(struct oncall_communicator);
  header->transfer_slots = TRANSFER_SLOTS;
  header->transfer_bytes = sizeof(struct oncall_transfer);
  header->record_slots = oncall_slots_setting("ONCALL_RING_RECORDS", MOST_RECORDS, DEFAULT_RECORDS);
  header->record_bytes = sizeof(struct oncall_record);
  header->communicators_at = sizeof(struct oncall_header);
  header->transfers_at =
      header->communicators_at + (uint64_t)COMMUNICATOR_SLOTS * sizeof(struct oncall_communicator);
  header->records_at =
      header->transfers_at + (uint64_t)TRANSFER_SLOTS * sizeof(struct oncall_transfer);
  return header->records_at + (uint64_t)header->record_slots * sizeof(struct oncall_record);
}

bool oncall_ring_file_make(struct oncall_ring_file *file) {
  static struct oncall_header header; /* a page: too much for a small thread's stack */
  memset(&header, 0, sizeof header);
  header.magic = ONCALL_RING_MAGIC;
  oncall_identify(&header);
  file->shared.bytes = lay_out(&header);
  if (!oncall_shared_file_make(&file->shared, "ring", header.anchor_realtime_ns, &header,
                               sizeof header))
    return false;
  char *base = file->shared.base;
  file->ring = (struct oncall_ring){
      .header = (struct oncall_header *)base,
      .communicators = (struct oncall_communicator *)(base + header.communicators_at),
      .transfers = (struct oncall_transfer *)(base + header.transfers_at),
      .records = (struct oncall_record *)(base + header.records_at),
      .record_mask = header.record_slots - 1,
      .communicator_slots = header.communicator_slots,
      .transfer_slots = header.transfer_slots,
  };
  return true;
}
