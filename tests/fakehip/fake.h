/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the stand-in for AMD's runtime that works on the CPU: a library with the binary interface of libamdhip64, as far
 * as devices/hip calls it. device.c has GPUs and errors, memory.c memory and windows, module.c code, graph.c graphs, stream.c streams and
 * events, which are threads here.
 *
 * Like the real one it ends the process at a bad access. What of the environment it reads: FAKEHIP_GPUS (1), FAKEHIP_ARCH
 * ("gfx90a:sramecc+:xnack-"), FAKEHIP_VERSION (60240092; from 70100000 on descriptors are taken by value). The library of
 * ROCm 5 is built of the same files with FAKEHIP_ROCM5: it has the old layout of properties, no
 * windows, and graphs that take no function of a module.
 */
#ifndef GANTRY_TESTS_FAKEHIP_FAKE_H
#define GANTRY_TESTS_FAKEHIP_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/hip/driver.h"
#include "tests/fakecuda/kernel.h"

#define EXPORT __attribute__((visibility("default")))

#define DECLARE(member, symbol, args) EXPORT gantry_hip_result symbol args;
GANTRY_HIP_FUNCTIONS(DECLARE)
GANTRY_HIP_OPTIONAL(DECLARE)
#undef DECLARE

#define FAKE_GPU_BYTES (4ull << 30)
#define FAKE_THREADS   1024

struct gantry_hip_module {
	void *library;
};

struct gantry_hip_function {
	struct gantry_hip_function *next; /* all of the process */
	struct gantry_hip_module *module;
	char name[128];
	fakecuda_kernel *fn;
	const struct fakecuda_param *params;
};

/* What a stream does next. */
struct fake_op {
	struct fake_op *next;
	void (*run)(struct gantry_hip_stream *stream, struct fake_op *op);
	void *dst;
	const void *src;
	uint64_t len; /* bytes */
	uint64_t pattern;
	uint32_t width;
	struct gantry_hip_event *event;
	gantry_hip_callback *callback;
	void *user;
	const struct gantry_hip_function *function;
	struct fakecuda_geometry geometry;
	unsigned char args[1024];
};

/* device.c */
int fake_version(void);
int fake_ngpus(void);
/* As the runtime says it, and ends the process. */
_Noreturn void fake_fault(const char *what, const void *address);

/* memory.c: is all of [address, address + len) memory that a GPU reaches? */
bool fake_reaches(const void *address, uint64_t len);

/* stream.c: a zeroed one; put: queues and owns it. */
struct fake_op *fake_op_new(void (*run)(struct gantry_hip_stream *stream, struct fake_op *op));
gantry_hip_result fake_put(struct gantry_hip_stream *stream, struct fake_op *op);

/* module.c: a launch that is not queued yet. */
gantry_hip_result fake_launch_new(const struct gantry_hip_function *function,
				  struct gantry_hip_size grid, struct gantry_hip_size block,
				  unsigned shared_bytes, void **params, struct fake_op **ret_op);

#endif
