/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the author of an installed OpenCL module sees besides devices/module.h.
 *
 * The module's opencl image ("image opencl NAME-opencl.so" in its manifest) is a shared object as its cpu image is: for
 * each kernel K it exports the host function gantry_kernel_K, and beside them one object gantry_opencl_module with the
 * text of the device code. A kernel of the text that has no host function can be launched by its own name as it is. A
 * host function checks its arguments and enqueues work through struct gantry_opencl_calls, which env->handle(env,
 * "opencl") gives. It never waits for the device.
 *
 * Buffers: span.ptr is no address but a struct gantry_opencl_buffer, which stands for the argument's range: the device
 *   code gets its first byte. env->scratch() gives such buffers too.
 *
 * Trust: as in devices/module.h. Device code must bear a buffer that changes while it runs: it loads an index once,
 *   checks that copy and uses that copy, and its loops end whatever buffers hold.
 * Threads: a host function runs on the device thread; the calls here belong to the run they were given to.
 * Errors: a host function returns what it refuses (-EINVAL) before it has enqueued anything, and passes on what a call
 *   returned. What device code finds (-ERANGE, -ECANCELED) it stores into the verdict.
 */
#ifndef GANTRY_DEVICES_OPENCL_MODULE_H
#define GANTRY_DEVICES_OPENCL_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/module.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_OPENCL_MODULE_ABI 1u

/* Exported by the image under the name gantry_opencl_module. Constant; lives as long as the image. */
struct gantry_opencl_module {
	uint32_t size;
	uint32_t abi; /* GANTRY_OPENCL_MODULE_ABI */
	/* OpenCL C 1.2. */
	const char *text;
	uint64_t text_bytes;
	/* Its kernels that launch() can start, by index; all must be there. */
	uint32_t nfunctions;
	/*
	 * 1 + the index of one (__global volatile int *verdict, ulong n) whose first work-item makes n rounds of a loop; 0:
	 * there is none. The backend measures it when the image is loaded.
	 */
	uint32_t pace;
	const char *const *functions;
};

struct gantry_opencl_buffer {
	uint64_t len_bytes;
	uint32_t align; /* of its first byte: a power of two, 128 at most */
	uint32_t reserved;
};

/* What host and device tell each other about one run, as the device code sees it: __global volatile int *verdict. */
enum gantry_opencl_verdict {
	/* -errno; any of several stores may win. Not zero at the end: as if a host function had returned it. */
	GANTRY_OPENCL_VERDICT_STATUS = 0,
	/* Nonzero: stop as soon as you can. Only where calls->cancels. */
	GANTRY_OPENCL_VERDICT_CANCEL = 1,
};

struct gantry_opencl_param {
	uint64_t bytes; /* of @value, or of local memory where both are NULL */
	const void *value;
	struct gantry_opencl_buffer *buffer;
};

#define GANTRY_OPENCL_BUFFER(b)           \
	{                                 \
		sizeof(void *), NULL, (b) \
	}
#define GANTRY_OPENCL_VALUE(v)        \
	{                             \
		sizeof(v), &(v), NULL \
	}
#define GANTRY_OPENCL_LOCAL(len)  \
	{                         \
		(len), NULL, NULL \
	}

struct gantry_opencl_launch {
	uint32_t function; /* index into the module's functions */
	uint32_t nparams;
	uint64_t groups; /* work-groups, in one dimension */
	uint64_t local;	 /* work-items of one */
	const struct gantry_opencl_param *params;
};

/* Sized: new members are added at the end only. No member is NULL. */
struct gantry_opencl_calls {
	uint32_t size;
	uint32_t nunits;    /* compute units of the device, 1 or more */
	uint32_t max_local; /* work-items of one work-group */
	bool cancels;	    /* a running kernel sees GANTRY_OPENCL_VERDICT_CANCEL */
	/*
	 * All enqueue in order and return 0, or -EINVAL, -ENOMEM or -EIO with nothing enqueued.
	 */
	int (*launch)(struct gantry_env *env, const struct gantry_opencl_launch *launch);
	/* @count elements of @elem_bytes (1, 2, 4 or 8) from byte @off on, each becoming the low bytes of @value. */
	int (*set)(struct gantry_env *env, struct gantry_opencl_buffer *dst, uint64_t off,
		   uint64_t value, uint32_t elem_bytes, uint64_t count);
	/* The first @bytes of @src to those of @dst, which may overlap in memory. */
	int (*copy)(struct gantry_env *env, struct gantry_opencl_buffer *dst,
		    struct gantry_opencl_buffer *src, uint64_t bytes);
	/* The run's verdict, zero; one for each run. NULL: no memory. */
	struct gantry_opencl_buffer *(*verdict)(struct gantry_env *env);
	/* What the module's function for it makes; 0: it has none. */
	uint64_t rounds_per_ms;
};

#ifdef __cplusplus
}
#endif

#endif
