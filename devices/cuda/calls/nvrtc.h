/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC for programs in guests: its functions that work on a program, of our own. A compiler reads files and crashes on what it is given, so
 * none runs in the worker: a program is kept as texts here, compiled in a process that can open nothing (devices/cuda/rtc.h), and what came of it
 * is kept with it. What asks the library alone (its version, its architectures) goes to NVRTC itself.
 *
 * Threads: those of calls. What a call works for is the thread's (gantry_calls_rtc_here()).
 */
#ifndef GANTRY_DEVICES_CUDA_CALLS_NVRTC_H
#define GANTRY_DEVICES_CUDA_CALLS_NVRTC_H

#include <stddef.h>
#include <stdint.h>

/* One for each session on a device. */
struct gantry_calls_rtc {
	/* What came of a request (proto/cuda_rtc.h); 0, or -errno as gantry_cuda_calls has them. NULL: nobody compiles. */
	int (*compile)(void *cookie, const void *text, uint64_t bytes, void **ret_made,
		       uint64_t *ret_bytes);
	void *cookie;
	uint64_t bytes; /* of texts and results that its programs hold */
};

/* The thread works for @rtc until it is told otherwise; NULL: for nobody. */
void gantry_calls_rtc_here(struct gantry_calls_rtc *rtc);
/*
 * The function that stands for NVRTC's of that name; NULL: NVRTC's own is meant. One is ours alone: nvrtcCompileProgramWith(), which compiles a program with other
 * texts than it was made of (hand/nvrtc.c has its arguments).
 */
void *gantry_calls_rtc_symbol(const char *name);

#endif
