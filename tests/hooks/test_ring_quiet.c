/* What runs in the training job's own threads makes no system call: the kernel would kill it. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "ring.h"
#include "run_folder.h"

static void record_everything(void) {
  struct oncall_record record = {.kind = ONCALL_RECORD_ENTERED};
  for (int number = 0; number < 300; number++) { /* more than the ring holds */
    oncall_ring_write(&record);
    struct oncall_transfer *transfer = oncall_transfer_claim(7);
    if (transfer)
      oncall_board_end(&transfer->version);
    if (number % 2)
      oncall_transfer_release(transfer);
  }
  struct oncall_communicator *board = oncall_communicator_claim();
  oncall_board_end(&board->version);
  oncall_communicator_close(board, ONCALL_COMMUNICATOR_DESTROYED);
}

/* From here on every system call but exit kills the process; clock_gettime may be one where a
 * machine's clock cannot be read without. */
static void allow_nothing(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void) {
#ifdef __SANITIZE_THREAD__
  return 0; /* its own bookkeeping makes system calls */
#endif
  enter_run_folder();
  setenv("ONCALL_RING_RECORDS", "256", 1);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    EXPECT(oncall_ring_open());
    allow_nothing();
    record_everything();
    syscall(SYS_exit, oncall_ring()->header->dropped == 44 ? 0 : 1);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  leave_run_folder();
  return 0;
}
