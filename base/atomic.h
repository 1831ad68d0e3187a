/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and stores with a named order, for 32- and 64-bit integers.
 *
 * This file and proto/ring.c are the only places that name memory orders. Each use of an acquire,
 * a release or a fence names its partner and what it protects in a comment.
 *
 * The words may live in memory that another process writes: a value loaded here is input. Load it
 * once, check it, use the copy.
 *
 * Macros because one name serves both widths; every argument is evaluated once.
 */
#ifndef GANTRY_BASE_ATOMIC_H
#define GANTRY_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define gantry_load_relaxed(ptr) __atomic_load_n((ptr), __ATOMIC_RELAXED)
#define gantry_load_acquire(ptr) __atomic_load_n((ptr), __ATOMIC_ACQUIRE)

#define gantry_store_relaxed(ptr, value) __atomic_store_n((ptr), (value), __ATOMIC_RELAXED)
#define gantry_store_release(ptr, value) __atomic_store_n((ptr), (value), __ATOMIC_RELEASE)

/* Read-modify-write, acquire and release. All return the value before. */
#define gantry_fetch_add(ptr, value) __atomic_fetch_add((ptr), (value), __ATOMIC_ACQ_REL)
#define gantry_fetch_sub(ptr, value) __atomic_fetch_sub((ptr), (value), __ATOMIC_ACQ_REL)
#define gantry_fetch_or(ptr, value)  __atomic_fetch_or((ptr), (value), __ATOMIC_ACQ_REL)
#define gantry_fetch_and(ptr, value) __atomic_fetch_and((ptr), (value), __ATOMIC_ACQ_REL)
#define gantry_exchange(ptr, value)  __atomic_exchange_n((ptr), (value), __ATOMIC_ACQ_REL)

/* For counters that order nothing: statistics. */
#define gantry_count_add(ptr, value) ((void)__atomic_fetch_add((ptr), (value), __ATOMIC_RELAXED))

/*
 * If *@ptr is *@expected, make it @desired and be true (acquire and release); else load *@ptr into
 * *@expected (acquire) and be false. Never fails spuriously.
 */
#define gantry_cas(ptr, expected, desired)                                                 \
	__atomic_compare_exchange_n((ptr), (expected), (desired), false, __ATOMIC_ACQ_REL, \
				    __ATOMIC_ACQUIRE)

#if defined(__SANITIZE_THREAD__)
#define GANTRY_ATOMIC_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GANTRY_ATOMIC_UNDER_TSAN 1
#endif
#endif

#ifdef GANTRY_ATOMIC_UNDER_TSAN
extern uint32_t gantry_fence_dummy;
#endif

/*
 * Orders every earlier load and store before every later one: the store-then-load hand-shake of
 * parking
 * ("I sleep" / "I put work"). ThreadSanitizer does not model fences; there it is a sequentially
 * consistent read-modify-write of one word that all share, which orders the same accesses.
 */
static inline void gantry_fence_full(void)
{
#ifdef GANTRY_ATOMIC_UNDER_TSAN
	(void)__atomic_fetch_add(&gantry_fence_dummy, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/*
 * Tells the core that this is a spin loop: saves power, and gives its time to the sibling thread.
 */
static inline void gantry_cpu_relax(void)
{
	__builtin_ia32_pause();
}

#ifdef __cplusplus
}
#endif

#endif
