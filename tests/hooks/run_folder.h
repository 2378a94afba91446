/* A run directory of the test's own, named to the hooks by the environment. */
#ifndef ONCALL_TESTS_RUN_FOLDER_H
#define ONCALL_TESTS_RUN_FOLDER_H

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

static char run_folder[] = "/tmp/oncall-test-XXXXXX";

/* Visits each ring file; `visit` may be NULL. Returns how many there are. */
static inline int each_ring(void (*visit)(const char *path)) {
  char folder[64], path[PATH_MAX];
  snprintf(folder, sizeof folder, "%s/rings", run_folder);
  DIR *listing = opendir(folder);
  int found = 0;
  for (struct dirent *entry; listing && (entry = readdir(listing));) {
    if (entry->d_name[0] == '.')
      continue;
    found++;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (visit)
      visit(path);
  }
  if (listing)
    closedir(listing);
  return found;
}

static inline void remove_ring(const char *path) { unlink(path); }

static inline void leave_run_folder(void) {
  char folder[64];
  each_ring(remove_ring);
  snprintf(folder, sizeof folder, "%s/rings", run_folder);
  rmdir(folder);
  rmdir(run_folder);
}

static inline void enter_run_folder(void) {
  EXPECT(mkdtemp(run_folder));
  setenv("ONCALL_RUN_DIR", run_folder, 1);
  setenv("ONCALL_RUN_DIR_ON_DISK", "1", 1);
}

#endif
