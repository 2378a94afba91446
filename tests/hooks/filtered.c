/* Runs a program under a filter of system calls, as a sandbox does:
 *
 *   filtered kill|EPERM|ENOSYS CALL,CALL.. PROGRAM ARGUMENT..
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
  const char *name;
  unsigned numbers[2];
} calls[] = {
    {"fallocate", {SYS_fallocate}},
#ifdef SYS_mkdir
    {"mkdir", {SYS_mkdir, SYS_mkdirat}},   {"rename", {SYS_rename, SYS_renameat}},
#else
    {"mkdir", {SYS_mkdirat}},
    {"rename", {SYS_renameat}},
#endif
    {"socket", {SYS_socket, SYS_connect}}, {"statfs", {SYS_statfs, SYS_fstatfs}},
    {"symlink", {SYS_symlinkat}},
};

static struct sock_filter filter[64] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
};
static unsigned short length = 1;

static void add(unsigned number, unsigned action) {
  filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
}

int main(int count, char **words) {
  if (count < 4)
    return 2;
  unsigned action = strcmp(words[1], "kill") == 0    ? SECCOMP_RET_KILL_PROCESS
                    : strcmp(words[1], "EPERM") == 0 ? SECCOMP_RET_ERRNO | EPERM
                                                     : SECCOMP_RET_ERRNO | ENOSYS;
  for (char *name = strtok(words[2], ","); name; name = strtok(NULL, ","))
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
      for (int which = 0; which < 2 && strcmp(name, calls[i].name) == 0; which++)
        if (which == 0 || calls[i].numbers[which])
          add(calls[i].numbers[which], action);
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {.len = length, .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return 77;
  execv(words[3], words + 3);
  return 127;
}
