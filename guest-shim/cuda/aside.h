/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a few bytes of device memory beside all streams, waited for at once: on queues where nothing else is, so that they wait for
 * nobody's kernels, through a piece of pinned memory.
 *
 * Threads: any, with or without cu.lock; a lock of its own, taken last, is held from enter to leave.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_ASIDE_H
#define GANTRY_GUEST_SHIM_CUDA_ASIDE_H

#include "guest-shim/cuda/core.h"

#define CU_ASIDE_BYTES 65536u

void cu_aside_enter(void);
void cu_aside_leave(void);
/* Between the two. The piece, and the queue of device @device (as the session numbers it), are there: a status. UNSUPPORTED behind a stream. */
int cu_aside_open(uint32_t device);
uint8_t *cu_aside_piece(void);
/* The first @bytes of the piece go to @off of @buffer, or come from there: a status, when that has happened. Opened before. */
int cu_aside_copy(uint32_t device, gantry_buffer buffer, uint64_t off, size_t bytes,
		  bool to_device);

#endif
