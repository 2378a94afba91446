#define _GNU_SOURCE
#include "verbs_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "verbs_api.h"

static const struct {
  const char *name, *version;
  void *ours;
} functions[VERBS_FUNCTIONS] = {
    [VERBS_OPEN_DEVICE] = {"ibv_open_device", "IBVERBS_1.1", ibv_open_device},
    [VERBS_IMPORT_DEVICE] = {"ibv_import_device", "IBVERBS_1.10", ibv_import_device},
    [VERBS_MODIFY_QP] = {"ibv_modify_qp", "IBVERBS_1.1", ibv_modify_qp},
    [VERBS_DESTROY_QP] = {"ibv_destroy_qp", "IBVERBS_1.1", ibv_destroy_qp},
    [VERBS_QP_TO_QP_EX] = {"ibv_qp_to_qp_ex", "IBVERBS_1.6", ibv_qp_to_qp_ex},
    [VERBS_QUERY_QP] = {"ibv_query_qp", "IBVERBS_1.1", NULL},
};
static void *real[VERBS_FUNCTIONS];

static void *find(enum verbs_function function) {
  const char *name = functions[function].name, *version = functions[function].version;
  void *found = verbs_dlvsym(RTLD_NEXT, name, version);
  if (found && found != functions[function].ours)
    return found;
  /* Plug-ins and interpreters load it RTLD_LOCAL, where RTLD_NEXT does not look. */
  void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  found = library ? verbs_dlvsym(library, name, version) : NULL;
  return found == functions[function].ours ? NULL : found;
}

void *verbs_real(enum verbs_function function) {
  void *found = __atomic_load_n(&real[function], __ATOMIC_ACQUIRE);
  if (!found) {
    found = find(function);
    __atomic_store_n(&real[function], found, __ATOMIC_RELEASE);
  }
  if (!found)
    errno = ENOSYS;
  return found;
}

void *verbs_stand_in_for(const char *name, const char *version, void *found) {
  for (int function = 0; found && function < VERBS_FUNCTIONS; function++) {
    void *ours = functions[function].ours;
    if (!ours || strcmp(name, functions[function].name) != 0)
      continue;
    /* IBVERBS_1.0 has other structs. */
    if (found == ours || (version && strcmp(version, functions[function].version) != 0))
      return found;
    __atomic_store_n(&real[function], found, __ATOMIC_RELEASE);
    return ours;
  }
  return found;
}
