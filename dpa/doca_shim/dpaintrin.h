/* The DPA's fence, on RISC-V as the instruction it stands for; see doca_pcc_dev.h. */
#ifndef ONCALL_SHIM_DPAINTRIN_H
#define ONCALL_SHIM_DPAINTRIN_H

#define __DPA_MEMORY 1
#define __DPA_R 1
#define __DPA_W 2
#define __DPA_RW 3

#ifdef __riscv
#define __dpa_thread_fence(space, before, after) __asm__ volatile("fence rw, rw" ::: "memory")
#else
#define __dpa_thread_fence(space, before, after) __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

#endif
