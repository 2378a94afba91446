/* A ring that is cut short under its process costs records and nothing else, and every other
 * SIGBUS goes where it went before the ring was opened. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "ring.h"
#include "run_folder.h"

static sigjmp_buf back;
static volatile sig_atomic_t handled;
static void *volatile handled_at;

static void handle_with_details(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  handled++;
  handled_at = info->si_addr;
  siglongjmp(back, 1);
}

static void handle(int signal) {
  (void)signal;
  handled++;
}

static void set_handler(int flags, void (*plain)(int)) {
  struct sigaction action = {.sa_flags = flags};
  if (flags & SA_SIGINFO)
    action.sa_sigaction = handle_with_details;
  else
    action.sa_handler = plain;
  EXPECT(sigaction(SIGBUS, &action, NULL) == 0);
}

static void write_some(void) {
  struct oncall_record record = {.kind = ONCALL_RECORD_ENTERED};
  for (int number = 0; number < 200; number++)
    oncall_ring_write(&record);
  struct oncall_communicator *board = oncall_communicator_claim();
  if (board)
    oncall_board_end(&board->version);
  struct oncall_transfer *transfer = oncall_transfer_claim(3);
  if (transfer)
    oncall_board_end(&transfer->version);
  oncall_transfer_release(transfer);
}

static void cut(const char *path) {
  if (strstr(path, ".ring"))
    EXPECT(truncate(path, 0) == 0);
}

/* A page of a file that ends before it: of the job's own, and none of ours. */
static char *own_fault(void) {
  char path[] = "/tmp/oncall-own-XXXXXX";
  int fd = mkstemp(path);
  EXPECT(fd >= 0 && unlink(path) == 0);
  char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT(page != MAP_FAILED);
  close(fd);
  return page;
}

static void open_and_lose(void) {
  EXPECT(oncall_ring_open());
  write_some();
  each_ring(cut);
  write_some();
}

static void in_default_disposition(void) {
  set_handler(0, SIG_DFL);
  open_and_lose();
  write_some();
}

static void under_a_handler(void) {
  set_handler(SA_SIGINFO, NULL);
  open_and_lose();
  EXPECT(handled == 0);
  char *page = own_fault();
  if (sigsetjmp(back, 1) == 0)
    *(volatile char *)page = 1;
  EXPECT(handled == 1 && handled_at == page);
  write_some();
}

static void under_an_older_handler(void) {
  set_handler(0, handle);
  open_and_lose();
  EXPECT(handled == 0 && raise(SIGBUS) == 0 && handled == 1);
}

static void ignored(void) {
  set_handler(0, SIG_IGN);
  open_and_lose();
  EXPECT(raise(SIGBUS) == 0);
}

/* As Python's faulthandler does: it keeps what was there, ours, and calls it. */
static struct sigaction kept;
static void call_kept(int signal, siginfo_t *info, void *context) {
  handled++;
  kept.sa_sigaction(signal, info, context);
}

static void under_a_later_handler_that_calls_ours(void) {
  EXPECT(oncall_ring_open());
  struct sigaction action = {.sa_sigaction = call_kept, .sa_flags = SA_SIGINFO};
  EXPECT(sigaction(SIGBUS, &action, &kept) == 0);
  each_ring(cut);
  write_some();
  EXPECT(handled > 0);
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need memory themselves   \
                                                                   */
static void without_memory_of_its_own(void) {
  EXPECT(oncall_ring_open());
  struct rlimit none = {0, 0};
  EXPECT(setrlimit(RLIMIT_DATA, &none) == 0);
  each_ring(cut);
  write_some();
}
#endif

static void dies_of_its_own_fault(void) {
  in_default_disposition();
  *(volatile char *)own_fault() = 1;
}

static void dies_of_a_signal_sent_to_it(void) {
  in_default_disposition();
  kill(getpid(), SIGBUS);
}

static void dies_of_its_own_fault_though_ignored(void) {
  ignored();
  *(volatile char *)own_fault() = 1;
}

/* 0, or minus the signal that ended it. */
static int in_child(void (*body)(void)) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    body();
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  each_ring(remove_ring);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void) {
  enter_run_folder();
  EXPECT(in_child(in_default_disposition) == 0);
  EXPECT(in_child(under_a_handler) == 0);
  EXPECT(in_child(under_an_older_handler) == 0);
  EXPECT(in_child(ignored) == 0);
  EXPECT(in_child(under_a_later_handler_that_calls_ours) == 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need memory themselves   \
                                                                   */
  EXPECT(in_child(without_memory_of_its_own) == 0);
#endif
  EXPECT(in_child(dies_of_its_own_fault) == -SIGBUS);
  EXPECT(in_child(dies_of_a_signal_sent_to_it) == -SIGBUS);
  EXPECT(in_child(dies_of_its_own_fault_though_ignored) == -SIGBUS);
  leave_run_folder();
  return 0;
}
