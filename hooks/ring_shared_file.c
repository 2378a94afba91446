/* Making a file in the training job's own thread. Whatever it refuses or whatever limit the job
 * has, the answer is a process that is not recorded and says why: see
 * docs/decisions/014-no-limit-of-the-job.md. */
#define _GNU_SOURCE
#include "ring_shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ring_group.h"
#include "ring_guard.h"
#include "ring_identity.h"
#include "ring_quiet.h"
#include "ring_unrecorded.h"

/* linux/magic.h */
#define TMPFS 0x01021994
#define RAMFS 0x858458f6u

/* Descriptors below these are what programs count on: standard streams, and what a shell, a
 * launcher or systemd passes by number. */
enum { LOWEST_FD = 100, LEAST_FD = 3 };

/* What is being made. Paths are too long for a small thread's stack; one thread at a time is here.
 */
static struct {
  const char *kind;
  int64_t started_ns;
  char folder[PATH_MAX]; /* of the rings; "": not known to be one */
  char name[96], unnamed[104];
} making;

#define UNRECORDED(...)                                                                            \
  oncall_unrecorded(making.folder[0] ? making.folder : NULL, making.kind, making.started_ns,       \
                    __VA_ARGS__)

/* Another copy of this library, loaded from another path, has such a file in this process. */
static bool another_copy_records(void) {
  static char line[PATH_MAX + 128];
  char ours[32], ending[32];
  snprintf(ours, sizeof ours, "/rings/%d-", (int)getpid());
  snprintf(ending, sizeof ending, ".%s", making.kind);
  FILE *maps = fopen("/proc/self/maps", "re");
  bool found = false;
  while (maps && !found && fgets(line, sizeof line, maps))
    found = strstr(line, ours) && strstr(line, ending);
  if (maps)
    fclose(maps);
  return found;
}

/* ------------------------------------------------------------------ where */

/* The folder of rings, made where it is missing; -1: there is none. It is none of ours if it is a
 * link, which anybody could have put into a run directory that all may write. */
static int open_folder(const char *run) {
  const int how = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int length = snprintf(making.folder, sizeof making.folder, "%s/rings", run);
  /* A ring's name follows; and a path of ours must never be cut to another one. */
  if (length >= (int)(sizeof making.folder - sizeof making.unnamed) || run[0] != '/') {
    making.folder[0] = '\0';
    UNRECORDED("ONCALL_RUN_DIR is %s", run[0] == '/' ? "too long" : "not an absolute path");
    return -1;
  }
  int folder = open(making.folder, how);
  if (folder < 0 && errno == ENOENT) {
    mkdir(run, 0755); /* whether or not it is there already */
    if (mkdir(making.folder, 0755) == 0 || errno == EEXIST)
      folder = open(making.folder, how);
  }
  if (folder >= 0)
    return folder;
  int error = errno;
  char path[160];
  snprintf(path, sizeof path, "%s", making.folder);
  if (error != EMFILE && error != ENFILE)
    making.folder[0] = '\0';
  UNRECORDED("%s: %s", path, error == ELOOP ? "is a link" : strerror(error));
  return -1;
}

/* A store into a mapped file on a disk can wait for the disk; one into a file in memory cannot. */
static bool is_in_memory(void) {
  const char *on_disk = oncall_setting("ONCALL_RUN_DIR_ON_DISK");
  struct statfs system;
  if (on_disk && strcmp(on_disk, "1") == 0)
    return true;
  if (statfs(making.folder, &system) != 0) {
    UNRECORDED("statfs of the run directory: %s", strerror(errno));
    return false;
  }
  if ((uint32_t)system.f_type == TMPFS || (uint32_t)system.f_type == RAMFS)
    return true;
  UNRECORDED("the run directory is on a disk, which could hold up the job: use a tmpfs, or set "
             "ONCALL_RUN_DIR_ON_DISK=1");
  return false;
}

/* Beyond it a write raises SIGXFSZ. It may be lowered meanwhile: ring_quiet.h sees to that. */
static bool fits_file_limit(size_t bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= bytes)
    return true;
  UNRECORDED("the limit on file sizes (ulimit -f) is %llu kB, the file takes %zu kB",
             (unsigned long long)limit.rlim_cur / 1024, bytes / 1024);
  return false;
}

/* ------------------------------------------------------------------ the file */

/* The same file under a high number; -1 if no number but a low one is left. */
static int move_up(int fd) {
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
  if (moved < 0)
    moved = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD);
  int error = errno;
  close(fd);
  errno = error;
  return moved;
}

/* Readable, and writable for the consumer's `tail`, by a group if one is named. */
static void admit_group(int fd) {
  const char *name = oncall_setting("ONCALL_RING_GROUP");
  if (!name)
    return;
  int64_t number = oncall_group_number(name);
  if (number < 0)
    oncall_debug(
        "ONCALL_RING_GROUP: no group %s in /etc/group; if it is elsewhere, give its number", name);
  else if (fchown(fd, (uid_t)-1, (gid_t)number) != 0 || fchmod(fd, 0660) != 0)
    oncall_debug("the ring is not given to group %s: %s", name, strerror(errno));
}

/* Blocks for the whole file: a full file system shows here, and not as SIGBUS in the job. By
 * writing, which every process does: a filter of system calls may end who calls fallocate. */
static int reserve_blocks(int fd, size_t bytes) {
  static char zeros[1 << 16];
  while (bytes > 0) {
    ssize_t written = write(fd, zeros, bytes < sizeof zeros ? bytes : sizeof zeros);
    if (written > 0)
      bytes -= (size_t)written;
    else if (written == 0 || errno != EINTR)
      return written == 0 ? EIO : errno;
  }
  return 0;
}

static int lock_whole(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
}

/* fstat by its number: glibc of 2012 calls it __fxstat, which musl lacks. On both architectures the
 * kernel's structure is the C library's. */
static int file_status(int fd, struct stat *status) { return (int)syscall(SYS_fstat, fd, status); }

static int remember_file(struct oncall_shared_file *file) {
  struct stat now;
  if (file_status(file->fd, &now) != 0)
    return errno;
  file->device = now.st_dev;
  file->inode = now.st_ino;
  return 0;
}

/* Maps the file and writes its header; 0 or an errno. */
static int fill(struct oncall_shared_file *file, const void *header, size_t header_bytes) {
  int error = reserve_blocks(file->fd, file->bytes);
  oncall_quiet_failed(error);
  if (!error)
    error = lock_whole(file->fd);
  if (!error)
    error = remember_file(file);
  if (error)
    return error;
  file->base =
      mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd, 0);
  if (file->base == MAP_FAILED)
    return errno;
  oncall_guard(file->base, file->bytes);
  memcpy(file->base, header, header_bytes);
  return 0;
}

static bool make_in(int folder, struct oncall_shared_file *file, const void *header,
                    size_t header_bytes) {
  int low =
      openat(folder, making.unnamed, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (low < 0) {
    UNRECORDED("%s: %s", making.unnamed, strerror(errno));
    return false;
  }
  file->fd = move_up(low);
  int error = file->fd < 0 ? errno : 0;
  if (!error) {
    admit_group(file->fd);
    error = fill(file, header, header_bytes);
  }
  if (!error && renameat(folder, making.unnamed, folder, making.name) != 0) {
    error = errno;
    oncall_guard(NULL, 0);
    munmap(file->base, file->bytes);
  }
  if (error) {
    UNRECORDED("%s: %s", making.unnamed, strerror(error));
    unlinkat(folder, making.unnamed, 0);
    if (file->fd >= 0)
      close(file->fd);
  }
  return !error;
}

static bool make(struct oncall_shared_file *file, const void *header, size_t header_bytes) {
  const char *run = oncall_setting("ONCALL_RUN_DIR");
  making.folder[0] = '\0';
  snprintf(making.name, sizeof making.name, "%d-%lld.%s", (int)getpid(),
           (long long)making.started_ns, making.kind);
  snprintf(making.unnamed, sizeof making.unnamed, "%s.new", making.name);
  if (another_copy_records()) {
    UNRECORDED("another copy of the hooks records this process");
    return false;
  }
  if (getauxval(AT_SECURE)) {
    UNRECORDED("the program has rights that its user has not (setuid, or file capabilities)");
    return false;
  }
  int folder = open_folder(run ? run : "/run/oncall");
  if (folder < 0)
    return false;
  bool made =
      is_in_memory() && fits_file_limit(file->bytes) && make_in(folder, file, header, header_bytes);
  close(folder);
  return made;
}

bool oncall_shared_file_make(struct oncall_shared_file *file, const char *kind, int64_t started_ns,
                             const void *header, size_t header_bytes) {
  making.kind = kind;
  making.started_ns = started_ns;
  bool made = make(file, header, header_bytes);
  if (made)
    oncall_recorded();
  return made;
}

void oncall_shared_file_leave(struct oncall_shared_file *file) {
  struct stat now;
  int saved = errno;
  oncall_replace_memory(file->base, file->bytes);
  /* The job may have closed it with all others, and opened its own under that number. */
  if (file_status(file->fd, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode)
    close(file->fd);
  errno = saved;
}
