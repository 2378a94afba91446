/* What a process learns after its ring is open: NCCL's version, and the GPU it uses. */
#ifndef ONCALL_HOOKS_PROCESS_FACTS_H
#define ONCALL_HOOKS_PROCESS_FACTS_H

/* Asks the real NCCL, once. */
void process_learns_nccl_version(void);

/* CUDA's number of a device; -1: not known. The first one reported counts. */
void process_learns_device(int device);

#endif
