/* Making a ring's file: complete, reserved on disk and locked before it has its name. */
#ifndef ONCALL_HOOKS_RING_FILE_H
#define ONCALL_HOOKS_RING_FILE_H

#include "ring.h"

struct oncall_ring_file {
  struct oncall_ring ring;
  size_t bytes; /* of the mapping at ring.header */
  int fd;       /* kept open: closing it would give up the lock */
};

/* False: it cannot be made, and nothing of it is left. */
bool oncall_ring_file_make(struct oncall_ring_file *file);

#endif
