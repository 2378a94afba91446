#define _GNU_SOURCE
#include "ring_shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring_identity.h"

/* Another copy of this library, loaded from another path, has such a file in this process. */
static bool another_copy_records(const char *kind) {
  char line[PATH_MAX + 128], ours[32], ending[32];
  snprintf(ours, sizeof ours, "/rings/%d-", (int)getpid());
  snprintf(ending, sizeof ending, ".%s", kind);
  FILE *maps = fopen("/proc/self/maps", "re");
  bool found = false;
  while (maps && !found && fgets(line, sizeof line, maps))
    found = strstr(line, ours) && strstr(line, ending);
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
static int fill(struct oncall_shared_file *file, const void *header, size_t header_bytes) {
  int error = reserve_blocks(file->fd, file->bytes);
  if (!error)
    error = lock_whole(file->fd);
  if (error)
    return error;
  file->base =
      mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd, 0);
  if (file->base == MAP_FAILED)
    return errno;
  memcpy(file->base, header, header_bytes);
  return 0;
}

bool oncall_shared_file_make(struct oncall_shared_file *file, const char *kind, int64_t started_ns,
                             const void *header, size_t header_bytes) {
  if (another_copy_records(kind)) {
    oncall_debug("another copy of the hooks records this process; this one stays silent");
    return false;
  }
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
  int length = snprintf(name, sizeof name, "%s/rings/%d-%lld.%s", run, (int)getpid(),
                        (long long)started_ns, kind);
  if (length >= (int)sizeof name)
    return false;
  snprintf(unnamed, sizeof unnamed, "%s.new", name);

  file->fd = open(unnamed, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file->fd < 0) {
    oncall_debug("no ring: %s: %s", unnamed, strerror(errno));
    return false;
  }
  admit_group(file->fd);
  int error = fill(file, header, header_bytes);
  if (!error && rename(unnamed, name) != 0) {
    error = errno;
    munmap(file->base, file->bytes);
  }
  if (error) {
    oncall_debug("no ring: %s: %s", unnamed, strerror(error));
    unlink(unnamed);
    close(file->fd);
  }
  return !error;
}

void oncall_shared_file_leave(struct oncall_shared_file *file) {
  mmap(file->base, file->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
       0);
  close(file->fd);
}
