/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a 32-bit word, across processes.
 *
 * Trust: the word may be in memory that a hostile peer writes: a wake-up means "look again", never
 *        "it is so", and a peer can always refuse to wake. Give every wait a deadline.
 * Threads: any, in any process that maps the word. The futex is process-shared.
 */
#ifndef GANTRY_BASE_FUTEX_H
#define GANTRY_BASE_FUTEX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sleep while *@word is @expected, until woken or until @deadline_ns (absolute CLOCK_MONOTONIC;
 * GANTRY_DEADLINE_NEVER for none).
 * 0: woken, perhaps for nothing; -EAGAIN: *@word was not @expected; -ETIMEDOUT; -EINTR: a signal
 * came. After each of them look at the word again.
 */
int gantry_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns);

/*
 * Wake at most @n sleepers. Never blocks. Returns how many were woken, or -errno (-EFAULT: not
 * mapped).
 */
int gantry_futex_wake(uint32_t *word, int n);

#ifdef __cplusplus
}
#endif

#endif
