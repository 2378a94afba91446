/* A test is a program: the first expectation that does not hold ends it with a line on stderr. */
#ifndef ONCALL_TESTS_EXPECT_H
#define ONCALL_TESTS_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#endif
