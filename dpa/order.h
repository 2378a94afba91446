/* Words that several threads share: single loads and stores, in a stated order, and nothing more.
 *
 * No read-modify-write is used: on BlueField-3's DPA those were found to compile and to misbehave.
 * So every shared word has one writer, or is one that any writer may win.
 */
#ifndef ONCALL_DPA_ORDER_H
#define ONCALL_DPA_ORDER_H

#ifdef ONCALL_DPA_DEVICE
#include <dpaintrin.h>

#define LOAD(word) (*(volatile __typeof__(word) *)&(word))
#define STORE(word, value) ((void)(*(volatile __typeof__(word) *)&(word) = (value)))
/* What was written before it is seen by whoever TAKEs the word. */
#define PUBLISH(word, value)                                                                       \
  do {                                                                                             \
    __dpa_thread_fence(__DPA_MEMORY, __DPA_RW, __DPA_W);                                           \
    STORE(word, value);                                                                            \
  } while (0)
#define TAKE(word)                                                                                 \
  ({                                                                                               \
    __typeof__(word) taken = LOAD(word);                                                           \
    __dpa_thread_fence(__DPA_MEMORY, __DPA_R, __DPA_RW);                                           \
    taken;                                                                                         \
  })
/* Of an index: what is read through it comes after it without a fence, by address dependency. */
#define TAKE_INDEX(word) LOAD(word)
#else
#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define PUBLISH(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)
#define TAKE(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define TAKE_INDEX(word) TAKE(word)
#endif

#endif
