/* libibverbs' own functions: those that calls go on to. */
#ifndef ONCALL_HOOKS_VERBS_LIBRARY_H
#define ONCALL_HOOKS_VERBS_LIBRARY_H

enum verbs_function {
  VERBS_OPEN_DEVICE,
  VERBS_IMPORT_DEVICE,
  VERBS_MODIFY_QP,
  VERBS_DESTROY_QP,
  VERBS_QP_TO_QP_EX,
  VERBS_QUERY_QP, /* asked, not stood in front of */
  VERBS_FUNCTIONS,
};

/* NULL, and errno ENOSYS: there is none in this process. */
void *verbs_real(enum verbs_function function);

/* A program looked `name` up and found `found`: what it shall be given instead. */
void *verbs_stand_in_for(const char *name, const char *version, void *found);

/* dlvsym as it is, whoever stands in front of it. */
void *verbs_dlvsym(void *library, const char *name, const char *version);

#endif
