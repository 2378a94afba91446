/* Two copies of the hooks in one process: the second stays silent, whichever path it came by. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/wait.h>

#include "ring.h"
#include "run_folder.h"

typedef bool (*opens_function)(void);

int main(void) {
  enter_run_folder();
  void *library = dlopen(SECOND_COPY, RTLD_NOW | RTLD_LOCAL);
  EXPECT(library);
  opens_function second_opens = (opens_function)dlsym(library, "second_copy_opens");
  EXPECT(second_opens);
  EXPECT(oncall_ring_open());
  EXPECT(!second_opens());
  EXPECT(each_ring(NULL) == 1);

  pid_t child = fork(); /* there, none has a ring: who comes first records */
  if (child == 0) {
    EXPECT(second_opens());
    EXPECT(!oncall_ring_open());
    exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(each_ring(NULL) == 2);
  leave_run_folder();
  return 0;
}
