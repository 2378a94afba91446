/* Making a ring's file: where everything lies in it, and who records. */
#ifndef ONCALL_HOOKS_RING_FILE_H
#define ONCALL_HOOKS_RING_FILE_H

#include "ring.h"
#include "ring_shared_file.h"

struct oncall_ring_file {
  struct oncall_ring ring;
  struct oncall_shared_file shared;
};

/* False: it cannot be made, and nothing of it is left. */
bool oncall_ring_file_make(struct oncall_ring_file *file);

#endif
