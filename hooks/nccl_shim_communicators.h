/* Communicators whose initialisation was called for within a group: NCCL does it at its end. */
#ifndef ONCALL_HOOKS_NCCL_SHIM_COMMUNICATORS_H
#define ONCALL_HOOKS_NCCL_SHIM_COMMUNICATORS_H

/* The outermost group of this thread is over, with this result. */
void shim_resolve_initialisations(int result);

#endif
