/* A file that the hooks write and the collector reads, mapped by both: complete, reserved in
 * memory and locked before it has its name. */
#ifndef ONCALL_HOOKS_RING_SHARED_FILE_H
#define ONCALL_HOOKS_RING_SHARED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct oncall_shared_file {
  char *base;
  size_t bytes; /* of the mapping at `base`, and of the file */
  int fd;       /* kept open: closing it would give up the lock */
  dev_t device; /* the file behind `fd`, should the job have closed that and used it again */
  ino_t inode;
};

/* Makes `<pid>-<started_ns>.<kind>` of file->bytes in the run directory, beginning with `header`.
 * False: it cannot be made, or another copy of the hooks has one in this process; nothing of it is
 * left but a note that says why. The caller lets in one thread at a time, and is quiet. */
bool oncall_shared_file_make(struct oncall_shared_file *file, const char *kind, int64_t started_ns,
                             const void *header, size_t header_bytes);

/* In a forked child: the file is the parent's. What was mapped becomes private memory that nobody
 * reads, for pointers into it may still be used. */
void oncall_shared_file_leave(struct oncall_shared_file *file);

#endif
