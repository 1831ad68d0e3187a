/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the program's that change places with pages of shared memory, with what they hold: the addresses stay, and from then on
 * both names are the same memory. No moment is without content, but what another thread writes to them meanwhile is lost.
 *
 * Only private, writable memory without a file behind it is taken, and no stack: others answer -EINVAL.
 * Threads: any. Returns: 0, -EINVAL, -ENOMEM: nothing has changed; -EOPNOTSUPP: shared memory that cannot have a second name.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_PAGES_H
#define GANTRY_GUEST_SHIM_CUDA_PAGES_H

#include <stddef.h>

#define CU_PAGE 4096u

/* The program can read and write all of it. */
int cu_pages_are_there(const void *at, size_t bytes);
/*
 * @at gets the pages at @shared, which stays mapped until they are unshared; both whole pages. A child of fork() gets a copy of its own at
 * @at: shared memory is not its.
 */
int cu_pages_share(void *at, void *shared, size_t bytes);
/*
 * And pages of its own again, as far as they are there: what the program has unmapped meanwhile stays so, and what it has mapped instead is
 * left alone. -ENOMEM: they stay shared.
 */
int cu_pages_unshare(void *at);

#endif
