/* NCCL's binary interface, as far as the hooks need it: no NCCL header is needed to build them.
 *
 * Authority: nccl.h of the PyPI wheel nvidia-nccl-cu12 2.32.3. Structures that only pass through
 * stay opaque; nothing here changed its meaning since NCCL 2.18. */
#ifndef ONCALL_HOOKS_NCCL_API_H
#define ONCALL_HOOKS_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclCollConfig ncclCollConfig_t;
typedef struct ncclSimInfo ncclSimInfo_t;
typedef int ncclRedOp_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

/* As far as the communicator's name (2.27); `size` says how far the program's goes. */
typedef struct {
  size_t size;
  unsigned int magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
} ncclConfig_t;
#define NCCL_API_MAGIC 0xcafebeefu

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

typedef enum {
  ncclSuccess = 0,
  ncclInvalidUsage = 5,
  ncclInProgress = 7,
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
} ncclDataType_t;

/* Bytes of one element; 0: a type newer than this list. */
static inline size_t oncall_element_bytes(int type) {
  static const uint8_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? bytes[type] : 0;
}

#endif
