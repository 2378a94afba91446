/* On aarch64 the stack protector's value lies in glibc's loader, under a name of glibc's; a library
 * that asks for the loader by that name ends every process of an image with musl. This one has the
 * value of its own, from where glibc takes it. */
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#if defined(__aarch64__)

__attribute__((visibility("hidden"))) uintptr_t __stack_chk_guard;

/* Before the library's other constructors; it has no buffer, so the compiler gives it no guard. */
__attribute__((constructor(101))) static void choose_guard(void) {
  const void *random = (const void *)getauxval(AT_RANDOM);
  if (!random)
    return;
  memcpy(&__stack_chk_guard, random, sizeof __stack_chk_guard);
  __stack_chk_guard &= ~(uintptr_t)0xff; /* ends a string that is read past its end */
}

#else

typedef int no_guard_of_its_own; /* elsewhere it lies in each thread */

#endif
