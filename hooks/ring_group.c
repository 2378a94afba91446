#include "ring_group.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 100000 }; /* pieces of 255 bytes: some 25 MB, more than any site's file */

/* The number in NAME:PASSWORD:NUMBER:MEMBERS, if NAME is `name`; else -1. */
static int64_t number_in(const char *line, const char *name) {
  size_t length = strlen(name);
  if (strncmp(line, name, length) != 0 || line[length] != ':')
    return -1;
  const char *number = strchr(line + length + 1, ':');
  char *end;
  long long value = number ? strtoll(number + 1, &end, 10) : -1;
  return number && end > number + 1 && value >= 0 && value < UINT32_MAX ? value : -1;
}

int64_t oncall_group_number(const char *name) {
  char *end;
  long long value = strtoll(name, &end, 10);
  if (*name >= '0' && *name <= '9' && !*end)
    return value < UINT32_MAX ? value : -1;
  FILE *groups = fopen("/etc/group", "re");
  char piece[256];
  bool begins = true; /* the piece begins a line; members go on in further ones */
  int64_t found = -1;
  for (int at = 0; groups && found < 0 && at < MOST_LINES && fgets(piece, sizeof piece, groups);
       at++) {
    if (begins)
      found = number_in(piece, name);
    begins = strchr(piece, '\n') != NULL;
  }
  if (groups)
    fclose(groups);
  return found;
}
