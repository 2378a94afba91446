#define _GNU_SOURCE
#include "process_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_library.h"
#include "ring.h"
#include "ring_identity.h"

/* NCCL's code: 22703 is 2.27.3; before 2.9 it was 2804 for 2.8.4. */
static void spell_version(int code, char *text, size_t bytes) {
  int major = code >= 10000 ? code / 10000 : code / 1000;
  int rest = code >= 10000 ? code % 10000 : code % 1000;
  snprintf(text, bytes, "%d.%d.%d", major, rest / 100, rest % 100);
}

void process_learns_nccl_version(void) {
  static void *cell;
  static pid_t asked_by; /* a forked child has another ring */
  pid_t process = getpid();
  struct oncall_ring *ring = oncall_ring();
  if (!ring || __atomic_exchange_n(&asked_by, process, __ATOMIC_RELAXED) == process)
    return;
  ncclResult_t (*real)(int *) = (ncclResult_t (*)(int *))oncall_nccl_function(
      &cell, "GetVersion", (const void *)process_learns_nccl_version);
  int code = 0;
  if (real && real(&code) == ncclSuccess && code > 0)
    spell_version(code, ring->header->nccl_version, sizeof ring->header->nccl_version);
}

/* The number on the node of the `device`th GPU that the process may see; -1: named otherwise. */
static int number_on_node(int device) {
  const char *visible = oncall_setting("CUDA_VISIBLE_DEVICES");
  for (int at = 0; visible && at < device; at++) {
    visible = strchr(visible, ',');
    if (!visible)
      return -1;
    visible++;
  }
  if (!visible)
    return device;
  char *end;
  long number = strtol(visible, &end, 10);
  return end != visible && (*end == ',' || *end == '\0') && number < 1024 ? (int)number : -1;
}

void process_learns_device(int device) {
  struct oncall_ring *ring = oncall_ring();
  int32_t unknown = -1;
  if (ring && device >= 0)
    __atomic_compare_exchange_n(&ring->header->gpu, &unknown, number_on_node(device), false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
