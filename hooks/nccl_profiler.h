/* The binary interface of NCCL's profiler plugins, versions 4, 5 and 6.
 *
 * Source: src/include/plugin/profiler/profiler_v{4,5,6,7}.h of NVIDIA/nccl (2.27.3 to 2.32), and
 * the debug information of libnccl.so.2 in nvidia-nccl-cu12 2.32.3, which has all four. Versions
 * grew at the ends of the union's members only, so that one structure reads them all as far as we
 * read: it is version 5's. Version 4 keeps `type` in one byte, the other seven are not set.
 *
 * Version 7 (2.31) adds a caller's tag and kernel phases, which we do not use; NCCL offers what it
 * has to a plugin of version 6 just as well, and other layouts of the same name exist in forks. So
 * ours ends with 6. */
#ifndef ONCALL_HOOKS_NCCL_PROFILER_H
#define ONCALL_HOOKS_NCCL_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl_api.h"

enum {
  ncclProfileGroup = 1 << 0,
  ncclProfileColl = 1 << 1,
  ncclProfileP2p = 1 << 2,
  ncclProfileProxyOp = 1 << 3,
  ncclProfileProxyStep = 1 << 4,
  ncclProfileProxyCtrl = 1 << 5,
  ncclProfileKernelCh = 1 << 6,
  ncclProfileNetPlugin = 1 << 7,
  ncclProfileGroupApi = 1 << 8,
  ncclProfileCollApi = 1 << 9,
  ncclProfileP2pApi = 1 << 10,
  ncclProfileKernelLaunch = 1 << 11,
  ncclProfileCeColl = 1 << 12, /* from here on: version 6 */
  ncclProfileCeSync = 1 << 13,
  ncclProfileCeBatch = 1 << 14,
};

enum {
  ncclProfilerProxyStepSendGPUWait = 8,
  ncclProfilerProxyStepSendWait = 9,
  ncclProfilerProxyStepRecvWait = 10,
  ncclProfilerProxyStepRecvFlushWait = 11,
  ncclProfilerProxyStepRecvGPUWait = 12,
  ncclProfilerProxyOpInProgress_v4 = 19,
  ncclProfilerProxyStepSendPeerWait_v4 = 20,
  ncclProfilerKernelChStop = 22,
};

typedef struct {
  uint64_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      bool graphCaptured;
      int groupDepth;
    } groupApi;
    struct {
      const char *func;
      size_t count;
      const char *datatype;
      int root;
      void *stream;
      bool graphCaptured;
    } collApi;
    struct {
      const char *func;
      size_t count;
      const char *datatype;
      void *stream;
      bool graphCaptured;
    } p2pApi;
    struct {
      uint64_t seqNumber;
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
      void *parentGroup; /* not in version 4 */
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
      void *parentGroup; /* not in version 4 */
    } p2p;
    struct {
      int pid; /* of the process that asked for it */
      uint8_t channelId;
      int peer;
      int nSteps;
      int chunkSize;
      int isSend;
    } proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
  };
} ncclProfilerEventDescr_t;

typedef union {
  struct {
    size_t transSize;
  } proxyStep;
  struct {
    uint64_t pTimer;
  } kernelCh;
} ncclProfilerEventStateArgs_t;

typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line,
                                  const char *format, ...);

typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, int *eActivationMask, const char *commName,
                       uint64_t commHash, int nNodes, int nranks, int rank,
                       ncclDebugLogger_t logfn);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, int eState,
                                   ncclProfilerEventStateArgs_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v4_t;

typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, uint64_t commId, int *eActivationMask, const char *commName,
                       int nNodes, int nranks, int rank, ncclDebugLogger_t logfn);
  ncclResult_t (*startEvent)(void *context, void **eHandle, ncclProfilerEventDescr_t *eDescr);
  ncclResult_t (*stopEvent)(void *eHandle);
  ncclResult_t (*recordEventState)(void *eHandle, int eState,
                                   ncclProfilerEventStateArgs_t *eStateArgs);
  ncclResult_t (*finalize)(void *context);
} ncclProfiler_v5_t;

typedef ncclProfiler_v5_t ncclProfiler_v6_t;

#define AT(member, offset)                                                                         \
  _Static_assert(offsetof(ncclProfilerEventDescr_t, member) == (offset), #member)
AT(parentObj, 8);
AT(rank, 16);
AT(groupApi.groupDepth, 28);
AT(collApi.root, 48);
AT(collApi.stream, 56);
AT(collApi.graphCaptured, 64);
AT(p2pApi.stream, 48);
AT(p2pApi.graphCaptured, 56);
AT(coll.count, 56);
AT(coll.datatype, 72);
AT(coll.nChannels, 80);
AT(coll.algo, 88);
AT(coll.parentGroup, 104);
AT(p2p.count, 48);
AT(p2p.peer, 56);
AT(p2p.nChannels, 60);
AT(p2p.parentGroup, 64);
AT(proxyOp.channelId, 28);
AT(proxyOp.isSend, 44);
AT(kernelCh.pTimer, 32);
#undef AT
_Static_assert(sizeof(ncclProfilerEventDescr_t) == 112, "descriptor of version 5");

#endif
