/* The number of a group, from /etc/group alone: getgrnam loads modules into the process, and asks
 * servers that may not answer. */
#ifndef ONCALL_HOOKS_RING_GROUP_H
#define ONCALL_HOOKS_RING_GROUP_H

#include <stdint.h>

/* `name` may be a number. -1: there is no such group in the file. */
int64_t oncall_group_number(const char *name);

#endif
