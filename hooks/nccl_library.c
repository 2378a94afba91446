#define _GNU_SOURCE
#include "nccl_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "ring_identity.h"

static bool is_ours(const void *address) {
  Dl_info there, here;
  return dladdr(address, &there) && dladdr((const void *)is_ours, &here) &&
         there.dli_fbase == here.dli_fbase;
}

/* pncclNAME, or ncclNAME where a library has only that; never a definition of ours. */
static void *function_in(void *library, const char *name) {
  char symbol[64];
  for (int plain = 0; plain < 2; plain++) {
    snprintf(symbol, sizeof symbol, "%snccl%s", plain ? "" : "p", name);
    void *found = dlsym(library, symbol);
    if (found && !is_ours(found))
      return found;
  }
  return NULL;
}

/* In the object that called us and what it was linked with. */
static void *function_of_caller(const void *caller, const char *name) {
  Dl_info object;
  if (!dladdr(caller, &object) || !object.dli_fname)
    return NULL;
  void *library = dlopen(object.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return library ? function_in(library, name) : NULL;
}

/* libnccl.so.2 wherever it was loaded first: frameworks load it RTLD_LOCAL, so that RTLD_NEXT does
 * not see it. The handles stay open, as the functions stay in use. */
void *oncall_nccl_find(void **cell, const char *name, const void *caller) {
  int saved = errno;
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  void *found = library ? function_in(library, name) : NULL;
  if (!found)
    found = function_in(RTLD_NEXT, name);
  if (!found)
    found = function_of_caller(caller, name);
  if (found)
    __atomic_store_n(cell, found, __ATOMIC_RELEASE);
  errno = saved;
  return found;
}

ncclResult_t oncall_nccl_missing(const char *name) {
  static int said;
  if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
    oncall_say("this NCCL has no nccl%s; the call returns ncclInvalidUsage", name);
  return ncclInvalidUsage;
}
