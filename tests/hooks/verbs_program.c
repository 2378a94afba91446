/* A program that posts to a fake device as stdin says: what tests of the verbs shim and
 * of its collector source run. Answers "ok" or a number for each command.
 *
 *   linked | dlsym | dlvsym | library PATH   how it gets at libibverbs, once and first
 *   pair NUMBER PEER ROOM      a queue pair, ready to send
 *   post NUMBER COUNT BYTES    a chain of so many RDMA writes, the last signaled
 *   hold NUMBER                what is posted from now on stays outstanding
 *   complete NUMBER COUNT      the oldest are over
 *   fail NUMBER STATUS         the oldest fails, the others are flushed
 *   poll                       all completions; answers how many
 *   destroy NUMBER
 *   next NAME                  whether dlsym(RTLD_NEXT, NAME) finds what follows this program
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_verbs.h"

static struct ibv_context *(*open_device)(struct ibv_device *) = ibv_open_device;
static int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = ibv_modify_qp;
static int (*destroy)(struct ibv_qp *) = ibv_destroy_qp;
static struct ibv_context *context;
static struct ibv_cq *queue;
static struct ibv_qp *pairs[4096];

/* As NCCL does: a library of its choice, and each name in the version it was built for. */
static void look_up(const char *path, bool versioned) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  void *(*find)(void *, const char *) = dlsym;
  open_device = versioned ? dlvsym(library, "ibv_open_device", "IBVERBS_1.1")
                          : find(library, "ibv_open_device");
  modify =
      versioned ? dlvsym(library, "ibv_modify_qp", "IBVERBS_1.1") : find(library, "ibv_modify_qp");
  destroy = versioned ? dlvsym(library, "ibv_destroy_qp", "IBVERBS_1.1")
                      : find(library, "ibv_destroy_qp");
  /* Not ours: found in what the library itself needs. */
  if (!open_device || !modify || !destroy || !dlvsym(library, "ibv_query_qp", "IBVERBS_1.1"))
    exit(4);
}

static void connect_pair(unsigned number, unsigned peer, unsigned room) {
  struct ibv_qp *pair = pairs[number] = fake_create_qp(queue, queue, number, room, false);
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR, .dest_qp_num = peer};
  attributes.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
  memcpy(attributes.ah_attr.grh.dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x4d\x00\x02", 16);
  modify(pair, &attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN);
}

static int post(unsigned number, int count, unsigned bytes) {
  struct ibv_send_wr request[64] = {0}, *bad;
  struct ibv_sge piece = {.length = bytes};
  for (int at = 0; at < count; at++) {
    request[at].next = at + 1 < count ? &request[at + 1] : NULL;
    request[at].sg_list = &piece;
    request[at].num_sge = 1;
    request[at].send_flags = at + 1 == count ? IBV_SEND_SIGNALED : 0;
  }
  return context->ops.post_send(pairs[number], request, &bad);
}

static int poll_all(void) {
  struct ibv_wc found[16];
  int count, sum = 0;
  while ((count = context->ops.poll_cq(queue, 16, found)) > 0)
    sum += count;
  return sum;
}

static int obey(const char *command, const char *text) {
  unsigned number = 0, second = 0, third = 0;
  sscanf(text, "%u %u %u", &number, &second, &third);
  if (strcmp(command, "pair") == 0)
    connect_pair(number, second, third);
  else if (strcmp(command, "post") == 0)
    return post(number, (int)second, third);
  else if (strcmp(command, "hold") == 0)
    fake_complete_at_once(pairs[number], false);
  else if (strcmp(command, "complete") == 0)
    fake_complete(pairs[number], second);
  else if (strcmp(command, "fail") == 0)
    fake_fail(pairs[number], (int)second);
  else if (strcmp(command, "poll") == 0)
    return poll_all();
  else if (strcmp(command, "destroy") == 0)
    return destroy(pairs[number]);
  else if (strcmp(command, "next") == 0)
    return dlsym(RTLD_NEXT, text) != NULL;
  else
    return -1;
  return 0;
}

int main(void) {
  char line[4096], command[32], text[4000] = "";
  if (!fgets(line, sizeof line, stdin) || sscanf(line, "%31s %3999s", command, text) < 1)
    return 2;
  if (strcmp(command, "linked") != 0)
    look_up(strcmp(command, "library") == 0 ? text : "libibverbs.so.1",
            strcmp(command, "dlsym") != 0);
  context = open_device(fake_device());
  queue = fake_create_cq(context);
  do {
    printf("%d\n", sscanf(line, "%31s %3999[^\n]", command, text) < 1 ? -1 : obey(command, text));
    fflush(stdout);
  } while (fgets(line, sizeof line, stdin));
  return 0;
}
