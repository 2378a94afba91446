/* The hooks once more, as a library at another path: LD_PRELOAD and NCCL_PROFILER_PLUGIN differ. */
#include "ring.h"

__attribute__((visibility("default"))) bool second_copy_opens(void);

bool second_copy_opens(void) { return oncall_ring_open() != NULL; }
