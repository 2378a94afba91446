#define _GNU_SOURCE
#include "ring_file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring_identity.h"

enum {
  COMMUNICATOR_SLOTS = 1024,
  TRANSFER_SLOTS = 4096,
  DEFAULT_RECORDS = 65536,
  LEAST_RECORDS = 64,
  MOST_RECORDS = 1 << 24,
};

static uint32_t wanted_records(void) {
  int64_t wanted = oncall_number_setting("ONCALL_RING_RECORDS", 1, MOST_RECORDS, DEFAULT_RECORDS);
  uint32_t slots = LEAST_RECORDS;
  while (slots < wanted)
    slots *= 2;
  return slots;
}

/* Where everything lies; returns the size of the file. */
static size_t lay_out(struct oncall_header *header) {
  header->layout_version = ONCALL_RING_LAYOUT;
  header->header_bytes = sizeof(struct oncall_header);
  header->communicator_slots = COMMUNICATOR_SLOTS;
  header->communicator_bytes = sizeof(struct oncall_communicator);
  header->transfer_slots = TRANSFER_SLOTS;
  header->transfer_bytes = sizeof(struct oncall_transfer);
  header->record_slots = wanted_records();
  header->record_bytes = sizeof(struct oncall_record);
  header->communicators_at = sizeof(struct oncall_header);
  header->transfers_at =
      header->communicators_at + (uint64_t)COMMUNICATOR_SLOTS * sizeof(struct oncall_communicator);
  header->records_at =
      header->transfers_at + (uint64_t)TRANSFER_SLOTS * sizeof(struct oncall_transfer);
  return header->records_at + (uint64_t)header->record_slots * sizeof(struct oncall_record);
}

/* Another copy of this library, loaded from another path, has a ring in this process. */
static bool another_copy_records(void) {
  char line[PATH_MAX + 128], ours[32];
  snprintf(ours, sizeof ours, "/rings/%d-", (int)getpid());
  FILE *maps = fopen("/proc/self/maps", "re");
  bool found = false;
  while (maps && !found && fgets(line, sizeof line, maps))
    found = strstr(line, ours) && strstr(line, ".ring");
  if (maps)
    fclose(maps);
  return found;
}

/* Readable, and writable for the consumer's `tail`, by a group if one is told. */
static void admit_group(int fd) {
  const char *name = oncall_setting("ONCALL_RING_GROUP");
  if (!name)
    return;
  int64_t number = oncall_number_setting("ONCALL_RING_GROUP", 0, UINT32_MAX - 1, -1);
  if (number < 0) {
    struct group entry, *found = NULL;
    char text[16384];
    if (getgrnam_r(name, &entry, text, sizeof text, &found) == 0 && found)
      number = entry.gr_gid;
  }
  if (number < 0 || fchown(fd, (uid_t)-1, (gid_t)number) != 0 || fchmod(fd, 0660) != 0)
    oncall_debug("the ring is not given to group %s", name);
}

/* Blocks for the whole file: a full disk shows here, and not as SIGBUS in the training job. */
static int reserve_blocks(int fd, size_t bytes) {
  int error;
  do
    error = posix_fallocate(fd, 0, (off_t)bytes);
  while (error == EINTR);
  return error;
}

static int lock_whole(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
}

/* Maps the file and writes its header; 0 or an errno. */
static int fill(struct oncall_ring_file *file, const struct oncall_header *header) {
  int error = reserve_blocks(file->fd, file->bytes);
  if (!error)
    error = lock_whole(file->fd);
  if (error)
    return error;
  char *base =
      mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd, 0);
  if (base == MAP_FAILED)
    return errno;
  memcpy(base, header, sizeof *header);
  file->ring = (struct oncall_ring){
      .header = (struct oncall_header *)base,
      .communicators = (struct oncall_communicator *)(base + header->communicators_at),
      .transfers = (struct oncall_transfer *)(base + header->transfers_at),
      .records = (struct oncall_record *)(base + header->records_at),
      .record_mask = header->record_slots - 1,
  };
  return 0;
}

bool oncall_ring_file_make(struct oncall_ring_file *file) {
  if (another_copy_records()) {
    oncall_debug("another copy of the hooks records this process; this one stays silent");
    return false;
  }
  static struct oncall_header header; /* a page: too much for a small thread's stack */
  memset(&header, 0, sizeof header);
  header.magic = ONCALL_RING_MAGIC;
  oncall_identify(&header);
  file->bytes = lay_out(&header);

  const char *run = oncall_setting("ONCALL_RUN_DIR");
  char name[PATH_MAX], unnamed[PATH_MAX + 8];
  if (!run)
    run = "/run/oncall";
  snprintf(name, sizeof name, "%s/rings", run);
  mkdir(run, 0755); /* whether or not it is there already */
  if (mkdir(name, 0755) != 0 && errno != EEXIST) {
    oncall_debug("no ring: %s: %s", name, strerror(errno));
    return false;
  }
  int length = snprintf(name, sizeof name, "%s/rings/%d-%lld.ring", run, (int)getpid(),
                        (long long)header.anchor_realtime_ns);
  if (length >= (int)sizeof name)
    return false;
  snprintf(unnamed, sizeof unnamed, "%s.new", name);

  file->fd = open(unnamed, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file->fd < 0) {
    oncall_debug("no ring: %s: %s", unnamed, strerror(errno));
    return false;
  }
  admit_group(file->fd);
  int error = fill(file, &header);
  if (!error && rename(unnamed, name) != 0) {
    error = errno;
    munmap(file->ring.header, file->bytes);
  }
  if (error) {
    oncall_debug("no ring: %s: %s", unnamed, strerror(error));
    unlink(unnamed);
    close(file->fd);
  }
  return !error;
}
