/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver API as a careful program uses it; loaded at run time, so that the build needs no driver. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tests/bench/bench.h"
#include "tests/bench/gpu/gpu.h"

#define IMAGE_MAX (64u << 20)

/* Their names in the library, where cuda.h renames them by macros. */
#define TEXT(name)   #name
#define SYMBOL(name) TEXT(name)

#define CALLS(X)                       \
	X(cuInit)                      \
	X(cuDeviceGet)                 \
	X(cuDevicePrimaryCtxRetain)    \
	X(cuDevicePrimaryCtxRelease)   \
	X(cuCtxSetCurrent)             \
	X(cuCtxGetStreamPriorityRange) \
	X(cuStreamCreateWithPriority)  \
	X(cuStreamSynchronize)         \
	X(cuModuleLoadData)            \
	X(cuModuleGetFunction)         \
	X(cuMemAlloc)                  \
	X(cuMemFree)                   \
	X(cuMemHostAlloc)              \
	X(cuMemFreeHost)               \
	X(cuMemcpyHtoD)                \
	X(cuMemcpyDtoH)                \
	X(cuMemcpyHtoDAsync)           \
	X(cuMemcpyDtoHAsync)           \
	X(cuMemsetD8Async)             \
	X(cuLaunchKernel)              \
	X(cuGetErrorName)

static struct {
#define MEMBER(name) __typeof__(&name) name##_call;
	CALLS(MEMBER)
} cu;

static CUdevice device;
static CUcontext context;
static CUstream stream;
static CUmodule module;

static int failed(const char *what, CUresult r)
{
	const char *name = "?";

	if (cu.cuGetErrorName_call)
		(void)cu.cuGetErrorName_call(r, &name); /* an unknown one keeps the question mark */
	bench_fail("%s: %s", what, name);
	return -1;
}

#define TRY(call, ...)                                             \
	do {                                                       \
		CUresult try_result = cu.call##_call(__VA_ARGS__); \
		if (try_result != CUDA_SUCCESS)                    \
			return failed(#call, try_result);          \
	} while (0)

static int load_driver(void)
{
	const char *path = getenv("GANTRY_TEST_CUDA_DRIVER");
	void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
	void *symbol;

	if (!library) {
		bench_fail("%s", dlerror());
		return -1;
	}
#define RESOLVE(name)                                             \
	symbol = dlsym(library, SYMBOL(name));                    \
	if (!symbol) {                                            \
		bench_fail("the driver has no %s", SYMBOL(name)); \
		return -1;                                        \
	}                                                         \
	memcpy(&cu.name##_call, &symbol, sizeof(symbol));
	CALLS(RESOLVE)
	return 0;
}

static int load_image(const char *path)
{
	char *image = NULL;
	CUresult r;

	if (gantry_file_read(path, IMAGE_MAX, &image, NULL) < 0) {
		bench_fail("cannot read %s", path);
		return -1;
	}
	r = cu.cuModuleLoadData_call(&module, image);
	free(image);
	return r == CUDA_SUCCESS ? 0 : failed("cuModuleLoadData", r);
}

int gpu_open(const char *image_path, int priority, uint64_t *ret_ns)
{
	uint64_t start = gantry_now_ns();
	int least, greatest;
	struct gpu_kernel k;

	if (load_driver() < 0)
		return -1;
	TRY(cuInit, 0);
	TRY(cuDeviceGet, &device, 0);
	TRY(cuDevicePrimaryCtxRetain, &context, device);
	TRY(cuCtxSetCurrent, context);
	TRY(cuCtxGetStreamPriorityRange, &least, &greatest);
	TRY(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING,
	    priority > 0 ? greatest : least);
	if (load_image(image_path) < 0 || gpu_kernel("empty", "void", &k) < 0 ||
	    gpu_launch(&k, (struct gpu_dim){ 1, 1, 1 }, (struct gpu_dim){ 1, 1, 1 }, NULL) < 0 ||
	    gpu_sync() < 0)
		return -1;
	*ret_ns = gantry_now_ns() - start;
	return 0;
}

void gpu_close(void)
{
	(void)cu.cuDevicePrimaryCtxRelease_call(device); /* the process ends next */
}

int gpu_alloc(uint64_t bytes, gpu_buffer *ret_buffer)
{
	CUdeviceptr ptr;

	TRY(cuMemAlloc, &ptr, bytes);
	*ret_buffer = ptr;
	return 0;
}

int gpu_free(gpu_buffer buffer)
{
	TRY(cuMemFree, (CUdeviceptr)buffer);
	return 0;
}

int gpu_pin(uint64_t bytes, struct gpu_pinned *ret_pinned)
{
	TRY(cuMemHostAlloc, &ret_pinned->ptr, bytes, CU_MEMHOSTALLOC_PORTABLE);
	memset(ret_pinned->ptr, 1, bytes);
	ret_pinned->bytes = bytes;
	return 0;
}

int gpu_unpin(struct gpu_pinned *pinned)
{
	TRY(cuMemFreeHost, pinned->ptr);
	return 0;
}

int gpu_write(gpu_buffer buffer, const void *src, uint64_t bytes)
{
	/* As every program of the Rodinia suite does; it waits for the stream by itself only if that is blocking. */
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyHtoD, (CUdeviceptr)buffer, src, bytes);
	return 0;
}

int gpu_read(gpu_buffer buffer, void *dst, uint64_t bytes)
{
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH, dst, (CUdeviceptr)buffer, bytes);
	return 0;
}

int gpu_write_pinned(gpu_buffer buffer, const struct gpu_pinned *src, uint64_t bytes)
{
	TRY(cuMemcpyHtoDAsync, (CUdeviceptr)buffer, src->ptr, bytes, stream);
	return 0;
}

int gpu_read_pinned(gpu_buffer buffer, const struct gpu_pinned *dst, uint64_t bytes)
{
	TRY(cuMemcpyDtoHAsync, dst->ptr, (CUdeviceptr)buffer, bytes, stream);
	return 0;
}

int gpu_fill(gpu_buffer buffer, uint8_t value, uint64_t bytes)
{
	TRY(cuMemsetD8Async, (CUdeviceptr)buffer, value, bytes, stream);
	return 0;
}

int gpu_kernel(const char *name, const char *signature, struct gpu_kernel *ret_kernel)
{
	struct gantry_err err;
	CUfunction function;

	if (gantry_signature_parse(signature, &ret_kernel->sig, &err) < 0) {
		bench_fail("%s: %s", name, err.text);
		return -1;
	}
	TRY(cuModuleGetFunction, &function, module, name);
	ret_kernel->handle = (uint64_t)(uintptr_t)function;
	return 0;
}

int gpu_launch(const struct gpu_kernel *kernel, struct gpu_dim grid, struct gpu_dim block,
	       const union gpu_arg *args)
{
	void *params[GPU_MAX_ARGS];

	for (uint32_t i = 0; i < kernel->sig.nargs; i++)
		params[i] = (void *)&args[i];
	TRY(cuLaunchKernel, (CUfunction)(uintptr_t)kernel->handle, grid.x, grid.y, grid.z, block.x,
	    block.y, block.z, 0, stream, params, NULL);
	return 0;
}

int gpu_sync(void)
{
	TRY(cuStreamSynchronize, stream);
	return 0;
}
