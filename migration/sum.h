/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH64 with seed 0, as its specification says: fast sums of pages and records. Finds damage, not malice: a stream
 * between hosts is inside TLS.
 *
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_MIGRATION_SUM_H
#define GANTRY_MIGRATION_SUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t gantry_sum64(const void *data, size_t len);

/*
 * Copies @len bytes, a multiple of 32, from memory that others may write meanwhile, aligned to 8; returns the sum of what is at @to
 * afterwards. Costs hardly more than the sum alone.
 */
uint64_t gantry_sum64_copy(void *to, const volatile void *from, size_t len);

#endif
