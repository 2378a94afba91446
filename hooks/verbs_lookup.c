/* Preloaded: NCCL and interpreters look libibverbs' functions up by name, which no preloading
 * changes, so dlsym and dlvsym are ours too, and give ours for the few names that we have. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_file.h"
#include "verbs_library.h"

const bool oncall_verbs_preloaded = true;

typedef void *(*dlsym_function)(void *, const char *);
typedef void *(*dlvsym_function)(void *, const char *, const char *);

static dlsym_function real_dlsym;
static dlvsym_function real_dlvsym;

/* ------------------------------------------------------------------ libc's own, without dlsym */

struct symbols {
  const char *names;
  const ElfW(Sym) * table;
  const uint32_t *hash; /* GNU hash table */
};

/* Addresses in a dynamic section are the loaded ones, but on some machines relative. */
static const void *loaded(const struct dl_phdr_info *object, ElfW(Addr) at) {
  return (const void *)(at < object->dlpi_addr ? object->dlpi_addr + at : at);
}

static bool read_symbols(const struct dl_phdr_info *object, struct symbols *symbols) {
  memset(symbols, 0, sizeof *symbols);
  for (int number = 0; number < object->dlpi_phnum; number++) {
    if (object->dlpi_phdr[number].p_type != PT_DYNAMIC)
      continue;
    const ElfW(Dyn) *entry =
        (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[number].p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++) {
      if (entry->d_tag == DT_STRTAB)
        symbols->names = loaded(object, entry->d_un.d_ptr);
      else if (entry->d_tag == DT_SYMTAB)
        symbols->table = loaded(object, entry->d_un.d_ptr);
      else if (entry->d_tag == DT_GNU_HASH)
        symbols->hash = loaded(object, entry->d_un.d_ptr);
    }
  }
  return symbols->names && symbols->table && symbols->hash;
}

static uint32_t hash_of(const char *name) {
  uint32_t hash = 5381;
  for (; *name; name++)
    hash = hash * 33 + (unsigned char)*name;
  return hash;
}

/* The address of a defined function; NULL if the object has none of that name. */
static void *address_of(const struct dl_phdr_info *object, const struct symbols *symbols,
                        const char *name) {
  uint32_t buckets = symbols->hash[0], first = symbols->hash[1], blooms = symbols->hash[2];
  const uint32_t *bucket = symbols->hash + 4 + blooms * (sizeof(ElfW(Addr)) / 4);
  const uint32_t *chain = bucket + buckets;
  uint32_t hash = hash_of(name);
  uint32_t at = buckets ? bucket[hash % buckets] : 0;
  for (; at >= first && at; at++) {
    const ElfW(Sym) *symbol = &symbols->table[at];
    if ((chain[at - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
        strcmp(symbols->names + symbol->st_name, name) == 0)
      return (void *)(object->dlpi_addr + symbol->st_value);
    if (chain[at - first] & 1)
      break;
  }
  return NULL;
}

/* libc.so.6, and libdl.so.2 before glibc 2.34; musl's libc is its loader. */
static bool has_dlsym(const char *path) {
  const char *name = path ? strrchr(path, '/') : NULL;
  return name && (strcmp(name, "/libc.so.6") == 0 || strcmp(name, "/libdl.so.2") == 0 ||
                  strncmp(name, "/ld-musl-", strlen("/ld-musl-")) == 0);
}

static int look_into(struct dl_phdr_info *object, size_t size, void *nothing) {
  (void)size, (void)nothing;
  struct symbols symbols;
  if (!has_dlsym(object->dlpi_name) || !read_symbols(object, &symbols))
    return 0;
  void *plain = address_of(object, &symbols, "dlsym");
  void *versioned = address_of(object, &symbols, "dlvsym"); /* which musl lacks */
  if (plain) {
    __atomic_store_n(&real_dlvsym, (dlvsym_function)versioned, __ATOMIC_RELAXED);
    __atomic_store_n(&real_dlsym, (dlsym_function)plain, __ATOMIC_RELEASE);
  }
  return plain != NULL;
}

static bool is_ready(void) {
  if (!__atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE))
    dl_iterate_phdr(look_into, NULL);
  return __atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE) != NULL;
}

/* Before anything of the program runs: nobody shall wait for it later. */
__attribute__((constructor)) static void get_ready(void) { (void)is_ready(); }

void *verbs_dlvsym(void *library, const char *name, const char *version) {
  return is_ready() && real_dlvsym ? real_dlvsym(library, name, version) : NULL;
}

/* ------------------------------------------------------------------ ours */

static bool may_be_ours(void *library, const char *name) {
  /* RTLD_NEXT means "after the caller", and is found by the return address: it must not be ours. */
  return library != RTLD_NEXT && name && strncmp(name, "ibv_", 4) == 0;
}

/* What is not for us is passed on by a jump, so that the real one sees who called: CMakeLists.txt
 * asks for sibling calls in this file, and tests/hooks/test_verbs_loading.py for RTLD_NEXT. */
__attribute__((visibility("default"))) void *dlsym(void *library, const char *name) {
  if (!is_ready())
    return NULL;
  if (may_be_ours(library, name))
    return verbs_stand_in_for(name, NULL, real_dlsym(library, name));
  return real_dlsym(library, name);
}

__attribute__((visibility("default"))) void *dlvsym(void *library, const char *name,
                                                    const char *version) {
  if (!is_ready() || !real_dlvsym)
    return NULL;
  if (may_be_ours(library, name))
    return verbs_stand_in_for(name, version, real_dlvsym(library, name, version));
  return real_dlvsym(library, name, version);
}
