/* Fork, exec, a killed process, a place that cannot be written: the job runs on, and what was
 * recorded stays readable. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ring.h"
#include "run_folder.h"

static const char *program;

/* Runs `body` in a child; returns its exit status, or minus the signal that ended it. */
static int in_child(void (*body)(void)) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    body();
    exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static bool write_one(void) {
  struct oncall_record record = {.kind = ONCALL_RECORD_ENTERED, .time_ns = oncall_now_ns()};
  return oncall_ring_write(&record);
}

static struct oncall_communicator *parents_board;

static void write_without_a_ring(void) {
  EXPECT(!oncall_ring() && !write_one());
  parents_board->rank = 99; /* a stale pointer: it must hurt nobody */
  oncall_communicator_close(parents_board, ONCALL_COMMUNICATOR_DESTROYED);
}

static void open_another(void) {
  EXPECT(oncall_ring_open() && write_one());
  EXPECT(oncall_ring()->header->pid == getpid());
  EXPECT(oncall_ring()->header->parent_pid == getppid());
  EXPECT(each_ring(NULL) == 2);
}

static void a_forked_child_is_another_process(void) {
  struct oncall_ring *ring = oncall_ring();
  parents_board = oncall_communicator_claim();
  oncall_board_end(&parents_board->version);
  uint64_t head = ring->header->head;
  EXPECT(in_child(write_without_a_ring) == 0);
  EXPECT(in_child(open_another) == 0);
  EXPECT(ring->header->head == head && parents_board->rank == -1);
  EXPECT(parents_board->state == ONCALL_COMMUNICATOR_INITIALISING);
  EXPECT(!ring->header->closed);
  EXPECT(write_one());
}

static void die_while_writing(void) {
  EXPECT(oncall_ring_open() && write_one());
  __atomic_fetch_add(&oncall_ring()->header->head, 1, __ATOMIC_RELAXED); /* reserved, not written */
  EXPECT(write_one());
  raise(SIGKILL);
}

static int torn_rings, closed_rings;

static void read_back(const char *path) {
  struct oncall_header header;
  int fd = open(path, O_RDWR);
  EXPECT(fd >= 0 && pread(fd, &header, sizeof header, 0) == sizeof header);
  EXPECT(header.magic == ONCALL_RING_MAGIC);
  closed_rings += header.closed == 1;
  for (uint64_t position = header.tail; position < header.head; position++) {
    struct oncall_record record;
    off_t at = (off_t)(header.records_at + position % header.record_slots * sizeof record);
    EXPECT(pread(fd, &record, sizeof record, at) == sizeof record);
    torn_rings += record.stamp != position + 1;
  }
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (header.pid != getpid())
    EXPECT(fcntl(fd, F_SETLK, &lock) == 0); /* the dead hold none */
  if (header.pid != getpid())
    close(fd); /* closing ours would give up this process's lock */
}

static void a_killed_process_leaves_a_torn_record(void) {
  EXPECT(in_child(die_while_writing) == -SIGKILL);
  each_ring(read_back);
  EXPECT(torn_rings == 1);
  EXPECT(closed_rings == 1); /* that of open_another, which left in order */
}

static void exec_anew(void) {
  EXPECT(oncall_ring_open());
  execl(program, program, "after-exec", NULL);
  exit(9);
}

static int opens_after_exec(void) {
  EXPECT(oncall_ring_open() && write_one());
  return 0;
}

static void exec_opens_a_new_ring(void) {
#ifdef EMULATED
  return; /* qemu-user hands the exec of another machine's program to the kernel */
#endif
  int before = each_ring(NULL);
  EXPECT(in_child(exec_anew) == 0);
  EXPECT(each_ring(NULL) == before + 2); /* one of each program that the process was */
}

static void open_nothing(void) { EXPECT(!oncall_ring_open() && !write_one()); }

static void nowhere_to_write(void) {
  int before = each_ring(NULL);
  setenv("ONCALL_DISABLE", "1", 1);
  EXPECT(in_child(open_nothing) == 0);
  unsetenv("ONCALL_DISABLE");
  setenv("ONCALL_RUN_DIR", "/proc/nothing/here", 1);
  EXPECT(in_child(open_nothing) == 0);
  setenv("ONCALL_RUN_DIR", "/dev/null", 1);
  EXPECT(in_child(open_nothing) == 0);
  setenv("ONCALL_RUN_DIR", run_folder, 1);
  EXPECT(each_ring(NULL) == before);
}

int main(int count, char **arguments) {
  program = arguments[0];
  if (count > 1)
    return opens_after_exec();
  enter_run_folder();
  setenv("RANK", "5", 1);
  setenv("WORLD_SIZE", "not a number", 1);
  setenv("SLURM_JOB_ID", "77", 1);
  nowhere_to_write();
  EXPECT(oncall_ring_open());
  EXPECT(oncall_ring()->header->rank == 5 && oncall_ring()->header->world_size == -1);
  EXPECT(strcmp(oncall_ring()->header->job, "slurm-77") == 0);
  a_forked_child_is_another_process();
  a_killed_process_leaves_a_torn_record();
  exec_opens_a_new_ring();
  leave_run_folder();
  return 0;
}
