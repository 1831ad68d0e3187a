/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the author of an installed CUDA module sees besides devices/module.h.
 *
 * The module's cuda image ("image cuda NAME-cuda.so" in its manifest) is a shared object as its cpu
 * image is: for each kernel K it exports the host function gantry_kernel_K, and beside them one
 * object gantry_cuda_module that describes the device code inside the same file. A host function
 * checks its arguments and enqueues work on env->stream through struct gantry_cuda_calls, which
 * env->handle(env, "cuda") gives. It never waits for the device: neither for results nor for room,
 * so how much it enqueues must not depend on a guest's numbers; loops belong into device code.
 * Modules that say GANTRY_CUDA_ASIDE are free of that.
 *
 * Trust: as in devices/module.h. Spans hold device addresses; the host function does not follow
 *   them. Device code must bear a buffer that changes while it runs: it loads an index once, checks
 *   that copy and uses that copy, and its loops end whatever buffers hold.
 * Threads: a host function runs on the device thread, with GANTRY_CUDA_ASIDE on a thread of its session; the calls
 *   here belong to the run they were given to.
 * Errors: a host function returns what it refuses (-EINVAL) before it has enqueued anything, and
 *   passes on what a call returned. What device code finds (-ERANGE, -ECANCELED) it stores into
 *   the verdict.
 */
#ifndef GANTRY_DEVICES_CUDA_MODULE_H
#define GANTRY_DEVICES_CUDA_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/module.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_CUDA_MODULE_ABI 2u

enum gantry_cuda_module_flags {
	/*
	 * Its host functions may take long and wait for the device. They run one after the other, mostly on a thread of their session, which has the device's
	 * context; nothing else of their stream is begun meanwhile. The module has no functions of its own on the device: of
	 * the calls below host, reaches and library are there, launch, set, copy and occupancy return -EINVAL, verdict and
	 * env->scratch() NULL; what it enqueues it does with the driver or with libraries, on env->stream.
	 */
	GANTRY_CUDA_ASIDE = 1 << 0,
};

/* Exported by the image under the name gantry_cuda_module. Constant; lives as long as the image. */
struct gantry_cuda_module {
	uint32_t size;
	uint32_t abi; /* GANTRY_CUDA_MODULE_ABI */
	/* A fatbin, cubin or PTX text, as cuModuleLoadData() takes it. NULL with no functions: no device code. */
	const void *image;
	uint64_t image_bytes;
	/* Its functions that launch() can start, by index; all must be there. */
	uint32_t nfunctions;
	uint32_t flags; /* enum gantry_cuda_module_flags */
	const char *const *functions;
	/*
	 * With GANTRY_CUDA_ASIDE, or NULL: whether the function of this call is known to return within microseconds. It may run
	 * on the device thread then, where that harms nobody else. On the device thread; must not block, and is no promise.
	 */
	bool (*quick)(struct gantry_env *env, const struct gantry_call *call);
	/*
	 * With GANTRY_CUDA_ASIDE, or NULL: the session that calls->owner named has ended on this device, or the module is unloaded. Frees what was kept
	 * for it, on its thread, after its last function there. @lost: the context has failed, so that nothing on the device
	 * can be freed and libraries are better not called.
	 */
	void (*left)(uint64_t owner, bool lost);
};

/*
 * What host and device tell each other about one run: a cell of pinned host memory that both
 * address, zero when the host function starts.
 */
struct gantry_cuda_verdict {
	/*
	 * -errno from device code; any of several stores may win. Not zero at the end: the command's
	 * status is that of a host function that had returned it.
	 */
	int32_t status;
	/* Nonzero: stop as soon as you can. A read costs a trip over the bus: ask now and then. */
	uint32_t cancel;
};

enum gantry_cuda_launch_flags {
	/*
	 * All blocks run at the same time, so they may wait for each other (a cooperative launch). The
	 * grid may be at most nunits * occupancy() blocks.
	 */
	GANTRY_CUDA_TOGETHER = 1 << 0,
};

struct gantry_cuda_launch {
	uint32_t function; /* index into the module's functions */
	uint32_t flags;	   /* enum gantry_cuda_launch_flags */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes; /* dynamic; at most 48 KiB */
	uint32_t nparams;
	/* Addresses of the parameters, copied before launch() returns. */
	const void *const *params;
};

/* Sized: new members are added at the end only. No member is NULL. */
struct gantry_cuda_calls {
	uint32_t size;
	/* Multiprocessors that the stream may use, 1 or more. */
	uint32_t nunits;
	/*
	 * All three enqueue on env->stream in order and return 0, or -EIO (-EINVAL for a launch that
	 * this device cannot do) with nothing enqueued.
	 */
	int (*launch)(struct gantry_env *env, const struct gantry_cuda_launch *launch);
	/* @count elements of @elem_bytes (1, 2 or 4), each becoming the low bytes of @value. */
	int (*set)(struct gantry_env *env, void *dst, uint32_t value, uint32_t elem_bytes,
		   uint64_t count);
	/* From device memory to device memory; ranges that overlap are undefined. */
	int (*copy)(struct gantry_env *env, void *dst, const void *src, uint64_t bytes);
	/*
	 * Blocks of @nthreads threads and @shared_bytes dynamic shared memory that one multiprocessor
	 * holds of @function at a time, 1 or more; or -errno. Cheap after the first time.
	 */
	int (*occupancy)(struct gantry_env *env, uint32_t function, uint32_t nthreads,
			 uint32_t shared_bytes);
	/*
	 * The run's verdict as device code addresses it. A run that does not ask has no way to fail on
	 * the device. NULL: no cell is free, return -EAGAIN.
	 */
	struct gantry_cuda_verdict *(*verdict)(struct gantry_env *env);
	/*
	 * Of a span: where the host has [ptr, ptr + bytes), which the guest may be writing to; NULL: it is not host
	 * memory.
	 */
	void *(*host)(struct gantry_env *env, void *ptr, uint64_t bytes);
	/* Whether @address is of memory that the worker has on this device for its sessions. Does not block. */
	int (*reaches)(struct gantry_env *env, uint64_t address);
	/*
	 * A vendor's library by its soname, for dlsym(); loaded for good, from the device's folder of libraries or
	 * else the system's. NULL: there is none. May take seconds.
	 */
	void *(*library)(struct gantry_env *env, const char *soname);
	/* The same for all runs on one device of the worker, and another for each device; means nothing else. */
	const void *device;
	/* With GANTRY_CUDA_ASIDE, else 0: the session, on this device; never used again for another one. */
	uint64_t owner;
	/* The device's number, as the driver and libraries count devices in this process. */
	int32_t ordinal;
	/* With GANTRY_CUDA_ASIDE, else -EINVAL: waits until env->stream has done all that it has. 0, or -EIO. */
	int (*settle)(struct gantry_env *env);
	/*
	 * With GANTRY_CUDA_ASIDE: memory of the session's for what makes anew, on another device, what the module keeps for it here
	 * (devices/keep.h). NULL: there is none.
	 */
	void *keep;
	uint64_t keep_bytes;
	/*
	 * With GANTRY_CUDA_ASIDE, else -EOPNOTSUPP: what compiles images for this device makes of @text what it makes (devices/cuda/compile.h), in a process
	 * that can do nothing else, bounded and on the session's account. Takes as long as it takes. 0 and *ret_made, from malloc(), or -errno
	 * as gantry_stream_attr has them.
	 */
	int (*compile)(struct gantry_env *env, const void *text, uint64_t bytes, void **ret_made,
		       uint64_t *ret_bytes);
	/*
	 * Of keep, behind its head: pages for [@off, @off + @bytes), to be asked for before they are used, with keep_cookie. 0, or -ENOMEM: the host
	 * has none, and an access could end the worker. Any thread, while keep is the session's.
	 */
	int (*keep_reserve)(const void *keep_cookie, uint64_t off, uint64_t bytes);
	const void *keep_cookie;
	/* Which part of its GPU the device is, where one GPU is several; 0: the first, or the whole. */
	uint32_t part;
};

/*
 * env->scratch() gives device memory, 256-byte aligned, which is the run's until what it enqueued
 * is done; the next run of the stream may get the same. env->parallel() and env->cancelled() work on
 * the host and are of little use; env->nlanes is 1.
 *
 * env->handle(env, "cublas") and env->handle(env, "cufft") give the following, bound to env->stream;
 * NULL where the machine has no such library. First use may take a second.
 */

/* cuBLAS (cublas_v2.h); functions return 0 for success. */
struct gantry_cublas {
	uint32_t size;
	uint32_t reserved;
	void *handle; /* cublasHandle_t: host pointer mode, no TF32 */
	/* cublasSgemm_v2, column-major; operations are 0 (as it is) and 1 (transposed). */
	int (*sgemm)(void *handle, int op_a, int op_b, int m, int n, int k, const float *alpha,
		     const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
		     int ldc);
	int (*dgemm)(void *handle, int op_a, int op_b, int m, int n, int k, const double *alpha,
		     const double *a, int lda, const double *b, int ldb, const double *beta,
		     double *c, int ldc);
};

/* Kinds of transform; the numbers are cufftType's. */
enum gantry_cufft_kind {
	GANTRY_CUFFT_R2C = 0x2a,
	GANTRY_CUFFT_C2R = 0x2c,
	GANTRY_CUFFT_C2C = 0x29,
};

/* cuFFT (cufft.h), single precision, dense batches of one dimension; functions return 0 for success. */
struct gantry_cufft {
	uint32_t size;
	uint32_t reserved;
	void *cache; /* for plan() */
	/*
	 * The plan for @batch transforms of @n points; made on first use, when it may take a while, and
	 * kept until others push it out. It wants *ret_work_bytes of scratch memory, given to work()
	 * before each transform. -ENOMEM, -EINVAL: cuFFT has none.
	 */
	int (*plan)(void *cache, int kind, int n, int batch, int *ret_plan,
		    uint64_t *ret_work_bytes);
	/* cufftSetWorkArea */
	int (*work)(int plan, void *memory);
	/* cufftExecC2C, cufftExecR2C, cufftExecC2R; @direction is -1 (forward) or 1. */
	int (*c2c)(int plan, void *in, void *out, int direction);
	int (*r2c)(int plan, float *in, void *out);
	int (*c2r)(int plan, void *in, float *out);
};

#ifdef __cplusplus
}
#endif

#endif
