#define _GNU_SOURCE
#include "verbs_queue_pairs.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs_table.h"

/* A board of an ended queue pair is kept this long, for a collector to read it. */
#define KEPT_NS 60000000000ll

enum {
  LEAST_RUNS = 16,
  MOST_RUNS = 4096,
  MOST_TRIES = 4096, /* to take a queue pair that another thread has: some microseconds */
};

struct queue_pair {
  uint32_t taken;
  bool all_signaled;
  struct oncall_queue_pair *board;
  struct run *runs; /* run_mask + 1 of them, a ring from `first` up to `next` */
  uint64_t run_mask, first, next;
  struct run open;       /* unsignaled ones that no signaled one follows yet */
  uint32_t early;        /* completions polled before their posting was registered */
  uint32_t missed;       /* completions that came while another thread had it */
  uint32_t unregistered; /* signaled requests whose posting came then: owed no run */
  size_t run_bytes;      /* of the mapping at `runs` */
};

static struct queue_pair pairs[ONCALL_QUEUE_PAIR_SLOTS]; /* one a board */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------ taking one */

/* Never waits for a thread that was put to sleep while it had it: then it is false. */
static bool take(struct queue_pair *pair) {
  for (int tries = 0; tries < MOST_TRIES; tries++)
    if (!__atomic_exchange_n(&pair->taken, 1, __ATOMIC_ACQUIRE))
      return true;
  return false;
}

static void release(struct queue_pair *pair) {
  __atomic_store_n(&pair->taken, 0, __ATOMIC_RELEASE);
}

/* Counters of a board have one writer at a time, and a reader in another process. */
static void add(uint64_t *counter, uint64_t more) {
  __atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

static void set(int64_t *instant, int64_t now_ns) {
  __atomic_store_n(instant, now_ns, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ its life */

static uint32_t runs_for(uint32_t room) {
  uint32_t runs = LEAST_RUNS;
  while (runs < room && runs < MOST_RUNS)
    runs *= 2;
  return room ? runs : 1024;
}

/* Room for its runs: made once a slot, and again where it is too small. */
static bool make_room(struct queue_pair *pair, uint32_t room) {
  uint32_t runs = runs_for(room);
  size_t bytes = runs * sizeof(struct run);
  if (pair->run_bytes < bytes) {
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
      return false;
    if (pair->runs)
      munmap(pair->runs, pair->run_bytes);
    pair->runs = made;
    pair->run_bytes = bytes;
  }
  pair->run_mask = runs - 1;
  return true;
}

/* Ended, kept long enough, and all records that name it are read. */
static bool may_be_used_again(const struct oncall_verbs *verbs,
                              const struct oncall_queue_pair *board, int64_t now_ns) {
  uint64_t tail = __atomic_load_n(&verbs->header->tail, __ATOMIC_ACQUIRE);
  return board->state == ONCALL_QUEUE_PAIR_DESTROYED && (int64_t)(tail - board->closed_at) >= 0 &&
         now_ns - board->closed_ns > KEPT_NS;
}

/* The slot of a free board, ONCALL_QUEUE_PAIR_SLOTS if there is none. */
static uint32_t free_slot(struct oncall_verbs *verbs, int64_t now_ns) {
  static uint32_t next; /* boards are freed about in the order of claiming */
  if (verbs->header->queue_pairs_made < ONCALL_QUEUE_PAIR_SLOTS)
    return (uint32_t)verbs->header->queue_pairs_made;
  for (uint32_t probe = 0; probe < ONCALL_QUEUE_PAIR_SLOTS; probe++) {
    uint32_t slot = next++ % ONCALL_QUEUE_PAIR_SLOTS;
    if (may_be_used_again(verbs, &verbs->boards[slot], now_ns))
      return slot;
  }
  return ONCALL_QUEUE_PAIR_SLOTS;
}

static void describe(struct oncall_queue_pair *board, const struct ibv_qp *pair,
                     const struct ibv_qp_attr *peer, int mask, int64_t now_ns) {
  const size_t after_state = offsetof(struct oncall_queue_pair, qpn);
  memset((char *)board + after_state, 0, sizeof *board - after_state);
  board->qpn = pair->qp_num;
  board->peer_qpn = mask & IBV_QP_DEST_QPN ? peer->dest_qp_num : 0;
  board->type = (uint8_t)pair->qp_type;
  board->ready_ns = now_ns;
  if (mask & IBV_QP_AV) {
    board->port = peer->ah_attr.port_num;
    board->peer_lid = peer->ah_attr.dlid;
    if (peer->ah_attr.is_global)
      memcpy(board->peer_gid, peer->ah_attr.grh.dgid, sizeof board->peer_gid);
  }
  const struct ibv_device *device = pair->context->device;
  if (device)
    memcpy(board->nic, device->name, sizeof board->nic - 1);
}

/* Writing a board's description; only who holds `changing` does. */
static void begin(struct oncall_queue_pair *board) { oncall_board_begin(&board->version); }

static void end(struct oncall_queue_pair *board, uint32_t state) {
  __atomic_store_n(&board->state, state, __ATOMIC_RELAXED);
  oncall_board_end(&board->version);
}

static void close_board(struct oncall_verbs *verbs, struct oncall_queue_pair *board) {
  begin(board);
  board->closed_ns = oncall_now_ns();
  board->closed_at = __atomic_load_n(&verbs->header->head, __ATOMIC_RELAXED);
  end(board, ONCALL_QUEUE_PAIR_DESTROYED);
}

/* Forgets it, if it is still the one of that life. */
static void forget(struct oncall_verbs *verbs, const struct ibv_qp *pair) {
  uint32_t slot = verbs_table_remove(verbs_table_key(pair->context, pair->qp_num));
  if (slot < ONCALL_QUEUE_PAIR_SLOTS)
    close_board(verbs, &verbs->boards[slot]);
}

void queue_pair_ready(struct ibv_qp *pair, const struct ibv_qp_attr *peer, int mask, uint32_t room,
                      bool all_signaled) {
  struct oncall_verbs *verbs = oncall_verbs();
  if (!verbs)
    return;
  int64_t now_ns = oncall_now_ns();
  pthread_mutex_lock(&changing);
  forget(verbs, pair);
  uint32_t slot = free_slot(verbs, now_ns);
  if (slot == ONCALL_QUEUE_PAIR_SLOTS || !make_room(&pairs[slot], room)) {
    __atomic_fetch_add(&verbs->header->lost_queue_pairs, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&changing);
    return;
  }
  struct queue_pair *mine = &pairs[slot];
  struct oncall_queue_pair *board = &verbs->boards[slot];
  begin(board);
  describe(board, pair, peer, mask, now_ns);
  board->number = ++verbs->header->queue_pairs_made;
  board->most_outstanding = room;
  end(board, ONCALL_QUEUE_PAIR_READY);
  mine->board = board;
  mine->all_signaled = all_signaled;
  mine->first = mine->next = 0;
  mine->early = mine->missed = mine->unregistered = 0;
  memset(&mine->open, 0, sizeof mine->open);
  release(mine);
  if (!verbs_table_insert(verbs_table_key(pair->context, pair->qp_num), slot)) {
    close_board(verbs, board);
    __atomic_fetch_add(&verbs->header->lost_queue_pairs, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&changing);
}

void queue_pair_settings(struct ibv_qp *pair, const struct ibv_qp_attr *wanted, int mask) {
  struct queue_pair *mine = queue_pair_find(pair->context, pair->qp_num);
  if (!mine)
    return;
  pthread_mutex_lock(&changing);
  begin(mine->board);
  if (mask & IBV_QP_TIMEOUT)
    mine->board->timeout = wanted->timeout;
  if (mask & IBV_QP_RETRY_CNT)
    mine->board->retry = wanted->retry_cnt;
  oncall_board_end(&mine->board->version);
  pthread_mutex_unlock(&changing);
}

void queue_pair_failed(struct ibv_qp *pair) {
  struct queue_pair *mine = queue_pair_find(pair->context, pair->qp_num);
  if (mine)
    __atomic_store_n(&mine->board->state, ONCALL_QUEUE_PAIR_ERROR, __ATOMIC_RELAXED);
}

void queue_pair_gone(struct ibv_qp *pair) {
  struct oncall_verbs *verbs = oncall_verbs();
  if (!verbs)
    return;
  pthread_mutex_lock(&changing);
  forget(verbs, pair);
  pthread_mutex_unlock(&changing);
}

void queue_pairs_forget_all(void) {
  pthread_mutex_init(&changing, NULL);
  if (oncall_verbs_now)
    verbs_table_clear();
}

struct queue_pair *queue_pair_find(const struct ibv_context *context, uint32_t number) {
  uint32_t slot = verbs_table_find(verbs_table_key(context, number));
  return slot < ONCALL_QUEUE_PAIR_SLOTS ? &pairs[slot] : NULL;
}

bool queue_pair_all_signaled(const struct queue_pair *pair) { return pair->all_signaled; }

/* ------------------------------------------------------------------ requests */

static uint32_t outstanding(const struct oncall_queue_pair *board) {
  return (uint32_t)(board->posted - board->completed);
}

static void publish_oldest(struct queue_pair *pair) {
  const struct run *oldest =
      pair->first == pair->next ? &pair->open : &pair->runs[pair->first & pair->run_mask];
  set(&pair->board->oldest_posted_ns, oldest->posted_ns);
}

/* A run is over: it is counted and recorded. */
static void finish(struct queue_pair *pair, const struct run *run, int status, int64_t now_ns) {
  struct oncall_queue_pair *board = pair->board;
  struct oncall_verbs *verbs = oncall_verbs();
  add(&board->completed, run->requests);
  add(&board->completed_bytes, run->bytes);
  set(&board->last_completed_ns, now_ns);
  if (!verbs)
    return;
  struct oncall_request record = {
      .posted_ns = run->posted_ns,
      .last_posted_ns = run->last_posted_ns,
      .completed_ns = now_ns,
      .bytes = run->bytes,
      .queue_pair = (uint32_t)(board - verbs->boards),
      .requests = run->requests,
      .number = (uint32_t)board->number,
      .opcode = run->opcode,
      .status = (uint8_t)status,
      .outstanding = outstanding(board),
  };
  oncall_verbs_write(verbs, &record);
}

/* `other` follows `run` and becomes part of it. */
static void put_together(struct run *run, const struct run *other) {
  if (!run->requests)
    run->posted_ns = other->posted_ns;
  run->last_posted_ns = other->last_posted_ns;
  run->bytes += other->bytes;
  run->wr_id = other->wr_id;
  run->requests += other->requests;
  run->owed += other->owed;
  run->opcode = other->opcode;
}

static void append(struct queue_pair *pair, const struct run *run, int64_t now_ns) {
  put_together(&pair->open, run);
  if (pair->early) {
    pair->early--;
    finish(pair, &pair->open, IBV_WC_SUCCESS, now_ns);
  } else if (pair->next - pair->first <= pair->run_mask) {
    pair->runs[pair->next++ & pair->run_mask] = pair->open;
  } else { /* more than its send queue holds: completions are not seen, or out of a bigger one */
    put_together(&pair->runs[(pair->next - 1) & pair->run_mask], &pair->open);
  }
  memset(&pair->open, 0, sizeof pair->open);
}

void queue_pair_posted(struct queue_pair *pair, const struct posting *posting) {
  if (!take(pair)) {
    __atomic_fetch_add(&pair->unregistered, posting->signaled, __ATOMIC_RELAXED);
    struct oncall_verbs *verbs = oncall_verbs();
    if (verbs)
      __atomic_fetch_add(&verbs->header->dropped, posting->signaled, __ATOMIC_RELAXED);
    return;
  }
  struct oncall_queue_pair *board = pair->board;
  add(&board->posted, posting->requests);
  add(&board->posted_bytes, posting->bytes);
  add(&board->read_bytes, posting->read_bytes);
  add(&board->writes, posting->writes);
  add(&board->sends, posting->sends);
  add(&board->reads, posting->reads);
  add(&board->other, posting->requests - posting->writes - posting->sends - posting->reads);
  add(&board->signaled, posting->signaled);
  int64_t now_ns = pair->early ? oncall_now_ns() : 0;
  for (uint32_t number = 0; number < posting->runs; number++)
    append(pair, &posting->run[number], now_ns);
  if (posting->tail.requests)
    put_together(&pair->open, &posting->tail);
  publish_oldest(pair);
  release(pair);
}

void queue_pair_received_posts(struct queue_pair *pair, uint32_t receives) {
  __atomic_fetch_add(&pair->board->receives, receives, __ATOMIC_RELAXED);
}

/* On error only identity and status are valid (ibv_poll_cq(3)). Where sends and receives share
 * a completion queue, it is a send's if it is the one that is due, or no receive is posted. */
static bool is_receive(const struct queue_pair *pair, const struct ibv_wc *completion) {
  if (completion->status == IBV_WC_SUCCESS)
    return completion->opcode & IBV_WC_RECV;
  const struct run *due = &pair->runs[pair->first & pair->run_mask];
  bool is_due = pair->first != pair->next && due->wr_id == completion->wr_id;
  uint64_t receives = __atomic_load_n(&pair->board->receives, __ATOMIC_RELAXED);
  return !is_due && receives > pair->board->received;
}

/* One completion of the oldest run, which is over if it owes no other. */
static void retire(struct queue_pair *pair, int status, uint64_t wr_id, int64_t now_ns) {
  bool failed = status != IBV_WC_SUCCESS;
  if (pair->first == pair->next) {
    if (failed && pair->open.requests) { /* flushed, though it was not signaled */
      finish(pair, &pair->open, status, now_ns);
      memset(&pair->open, 0, sizeof pair->open);
    } else if (!failed) {
      pair->early++;
    }
    return;
  }
  struct run *run = &pair->runs[pair->first & pair->run_mask];
  if (failed && run->wr_id != wr_id && run->requests > run->owed) {
    run->requests--; /* of the unsignaled ones before its last */
    add(&pair->board->completed, 1);
    return;
  }
  if (--run->owed)
    return;
  pair->first++;
  finish(pair, run, status, now_ns);
}

static void count_error(struct oncall_queue_pair *board, int status) {
  add(&board->errors, 1);
  __atomic_store_n(&board->last_status, (uint64_t)status, __ATOMIC_RELAXED);
  __atomic_store_n(&board->state, ONCALL_QUEUE_PAIR_ERROR, __ATOMIC_RELAXED);
}

void queue_pair_completed(struct queue_pair *pair, const struct ibv_wc *completion,
                          int64_t now_ns) {
  if (!take(pair)) {
    if (completion->status == IBV_WC_SUCCESS && !(completion->opcode & IBV_WC_RECV))
      __atomic_fetch_add(&pair->missed, 1, __ATOMIC_RELAXED);
    return;
  }
  if (completion->status != IBV_WC_SUCCESS)
    count_error(pair->board, completion->status);
  if (is_receive(pair, completion)) {
    add(&pair->board->received, 1);
  } else {
    uint32_t due = 1;
    if (__atomic_load_n(&pair->missed, __ATOMIC_RELAXED))
      due += __atomic_exchange_n(&pair->missed, 0, __ATOMIC_RELAXED);
    for (; due; due--) {
      if (__atomic_load_n(&pair->unregistered, __ATOMIC_RELAXED))
        __atomic_fetch_sub(&pair->unregistered, 1, __ATOMIC_RELAXED);
      else
        retire(pair, completion->status, completion->wr_id, now_ns);
    }
    publish_oldest(pair);
  }
  release(pair);
}
