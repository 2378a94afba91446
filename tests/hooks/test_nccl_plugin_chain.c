/* What a chained plugin gets where a job on the stand-in does not go: CUDA graphs, another
 * process's transfers (PXN), a mask that changes while the job runs. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "plugin.h"

static char file[64];

/* Of the event that it got last. */
static int parent, context, number;

static void look(void) {
  char line[512];
  fflush(NULL);
  FILE *received = fopen(file, "re");
  EXPECT(received);
  while (fgets(line, sizeof line, received))
    sscanf(line, "start %d %d %*u %d", &number, &context, &parent);
  fclose(received);
}

static void *call(struct nccl *nccl, bool captured) {
  ncclProfilerEventDescr_t event = {.type = ncclProfileCollApi};
  event.collApi.func = "AllReduce";
  event.collApi.datatype = "ncclFloat32";
  event.collApi.count = 8;
  event.collApi.graphCaptured = captured;
  void *handle = nccl_start(nccl, event);
  nccl_stop(nccl, handle);
  return handle;
}

static int *mask_of_other(void) {
  void *library = dlopen(RECORDING_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  int **mask = library ? dlsym(library, "recorder_mask") : NULL;
  EXPECT(mask && *mask);
  return *mask;
}

/* A graph's call is the parent each time the graph is launched, however long after. */
static void a_captured_call_stays_a_parent(struct nccl *nccl) {
  void *captured = call(nccl, true);
  void *normal = call(nccl, false);
  look();
  int of_normal = number;
  nccl_stop(nccl, nccl_launch(nccl, normal, 8, 2));
  look();
  EXPECT(parent == of_normal);
#ifndef __SANITIZE_THREAD__ /* under which this takes long, and only one thread is here */
  *mask_of_other() = ncclProfileCollApi;
  for (int i = 0; i < 140000; i++) {
    void *task = nccl_operation(nccl, 8, 1);
    nccl_kernel_over(nccl, nccl_kernel(nccl, task, 1), 2);
  }
  *mask_of_other() = 0xffff;
  nccl_stop(nccl, nccl_launch(nccl, captured, 8, 2));
  look();
  EXPECT(parent == of_normal - 1);
  nccl_stop(nccl, nccl_launch(nccl, normal, 8, 2));
  look();
  EXPECT(parent == 0); /* too old: no other event is taken for it */
#else
  (void)captured;
#endif
}

static void a_transfer_for_another_process(struct nccl *nccl) {
  struct nccl foreign = *nccl;
  foreign.context = (void *)0x7f0000001000; /* means something there */
  void *stray = (void *)0x7000000000000001; /* as their hooks may name it */
  void *transfer = nccl_transfer(&foreign, stray, true, getpid() + 1);
  look();
  EXPECT(transfer && parent == 0 && context == -1);
  void *step = nccl_step(&foreign, transfer);
  int of_transfer = number;
  look();
  EXPECT(step && parent == of_transfer);
  nccl_stop(&foreign, step);
  nccl_stop(&foreign, transfer);
}

static void a_mask_that_changes(struct nccl *nccl) {
  int *mask = mask_of_other();
  look();
  int before = number;
  *mask = 0;
  call(nccl, false);
  look();
  EXPECT(number == before && nccl_mask && !(nccl_mask & ncclProfileKernelLaunch));
  *mask = ncclProfileKernelLaunch;
  call(nccl, false); /* no parent of what it wants */
  look();
  EXPECT(number == before && nccl_mask & ncclProfileKernelLaunch);
  void *launch = nccl_start(nccl, (ncclProfilerEventDescr_t){.type = ncclProfileKernelLaunch});
  look();
  EXPECT(launch && number == before + 1);
  nccl_stop(nccl, launch);
  nccl_stop(nccl, launch); /* NCCL stops some events twice */
  *mask = 0xffff;
}

int main(void) {
  enter_run_folder();
  snprintf(file, sizeof file, "%s/received", run_folder);
  setenv("RECORDER_FILE", file, 1);
  setenv("RECORDER_MASK", "65535", 1);
  setenv("ONCALL_CHAIN_PROFILER", RECORDING_PLUGIN, 1);
  struct nccl nccl = nccl_begin(6, 0xabc, 1, 4);
  EXPECT(nccl.context && (nccl_mask & 0xffff) == 0xffff);
  a_transfer_for_another_process(&nccl);
  a_mask_that_changes(&nccl);
  a_captured_call_stays_a_parent(&nccl);
  EXPECT(!nccl.finalize(nccl.context));
  unlink(file);
  leave_run_folder();
  return 0;
}
