/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel modules: what the author of an installed kernel sees.
 *
 * A module is a folder entry NAME.manifest (text, see devices/manifest.h) beside one image per kind
 * of device. The cpu image is a shared object; for each kernel K of the manifest it exports the
 * function gantry_kernel_K of type gantry_body. The agent reads manifests only; workers load
 * images.
 *
 * Trust: a body is host code, installed by the administrator. Its scalar arguments come from a
 * guest, and the bytes of its buffers may be changed by that guest while the body runs. So it must
 *   - check every element count against the span it was given (gantry_span_count()),
 *   - load an index found in a buffer once, check that copy and use that copy (GANTRY_LOAD_ONCE()),
 *   - never loop on a condition that only buffer contents can end.
 * Threads: a body runs on one lane of a device; several lanes may run the same body at once, so it
 * keeps no state outside its arguments and gantry_env scratch memory.
 * Errors: 0, or -errno: -EINVAL for arguments that do not fit each other (counts past a span),
 * -ERANGE for indices out of range in a buffer, -ECANCELED after env->cancelled() said so.
 */
#ifndef GANTRY_DEVICES_MODULE_H
#define GANTRY_DEVICES_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_MODULE_ABI 1u

/* A range of device memory that the task named and the intake checked. */
struct gantry_span {
	void *ptr;
	uint64_t len_bytes;
};

/* One argument in the order of the kernel's signature; the signature says which member is valid. */
union gantry_value {
	struct gantry_span span; /* buffer arguments: r: w: rw: c: */
	int32_t i32;
	uint32_t u32;
	int64_t i64;
	uint64_t u64;
	float f32;
	double f64;
};

struct gantry_call {
	uint32_t grid[3]; /* 0,0,0: the kernel decides from its arguments */
	uint32_t block[3];
	uint32_t nargs; /* always the count of the signature */
	const union gantry_value *args;
};

/* What the device offers a running body. Sized: new members are added at the end only. */
struct gantry_env {
	uint32_t size;
	uint32_t abi;
	/* Lanes that parallel() can use, 1 or more. */
	uint32_t nlanes;
	uint32_t reserved;
	/*
	 * Calls fn(arg, begin, end) for disjoint ranges that cover [0, n), on this lane and on idle
	 * lanes of the device; returns when all are done. Ranges hold at least @grain items but the
	 * last.
	 */
	void (*parallel)(struct gantry_env *env, uint64_t n, uint64_t grain,
			 void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg);
	/*
	 * Nonzero once the task's session is gone or its deadline passed; long bodies ask now and
	 * then.
	 */
	int (*cancelled)(struct gantry_env *env);
	/*
	 * @bytes of 64-byte aligned scratch memory, valid until the body returns, contents
	 * undefined; NULL past the device's scratch limit, and inside parallel(). Each call returns
	 * memory apart from the earlier ones of the run.
	 */
	void *(*scratch)(struct gantry_env *env, size_t bytes);
	/*
	 * A library handle of this lane ("openblas", "cublas", ...), created on first use and kept;
	 * NULL where the device has no such library. What the pointer is belongs to the library.
	 */
	void *(*handle)(struct gantry_env *env, const char *library);
	/* The lane's native stream (CUstream, cl_command_queue); NULL on cpu devices. */
	void *stream;
};

typedef int gantry_body(struct gantry_env *env, const struct gantry_call *call);

/* Elements of @elem_bytes that fit into @span; a NULL span holds none. */
static inline uint64_t gantry_span_count(const struct gantry_span *span, size_t elem_bytes)
{
	return span->ptr ? span->len_bytes / elem_bytes : 0;
}

/* One load the compiler may neither repeat nor split: for values a guest may be changing. */
#define GANTRY_LOAD_ONCE(lvalue) (*(const volatile __typeof__(lvalue) *)&(lvalue))

#ifdef __cplusplus
}
#endif

#endif
