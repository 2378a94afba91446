/* In libibverbs' place: NCCL is given this library, by NCCL_IBVERBS_LIB or as the first
 * `libibverbs.so` of the library path, and finds what is not ours in the real one behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "verbs_file.h"
#include "verbs_library.h"

const bool oncall_verbs_preloaded = false;

void *verbs_dlvsym(void *library, const char *name, const char *version) {
  return dlvsym(library, name, version);
}
