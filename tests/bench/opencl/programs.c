/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole programs (tests/bench/gpu/apps.h) as OpenCL host programs: bench-opencl-programs PLATFORM TEXT. They know nothing of
 * Gantry; the platform is found through the ICD loader, which is looked up at run time. Commands, one a line:
 *
 *   prepare APP SCALE
 *   run APP             {"ns":...,"checksum":...}
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tests/bench/bench.h"
#include "tests/bench/gpu/apps.h"
#include "tests/bench/gpu/gpu.h"

#define TEXT_MAX    (1u << 20)
#define MAX_KERNELS 32u

/* clang-format off */
#define CALLS(C) \
	C(GetPlatformIDs) C(GetPlatformInfo) C(GetDeviceIDs) C(CreateContext) C(CreateCommandQueue) C(CreateBuffer) \
	C(ReleaseMemObject) C(CreateProgramWithSource) C(BuildProgram) C(GetProgramBuildInfo) C(CreateKernel) C(SetKernelArg) \
	C(EnqueueNDRangeKernel) C(EnqueueReadBuffer) C(EnqueueWriteBuffer) C(EnqueueFillBuffer) C(Finish)
/* clang-format on */

static struct {
#define MEMBER(name) __typeof__(cl##name) *name;
	CALLS(MEMBER)
#undef MEMBER
} cl;

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_program program;
static cl_kernel kernels[MAX_KERNELS];
static uint32_t nkernels;

static int done(cl_int result, const char *what)
{
	if (result == CL_SUCCESS)
		return 0;
	bench_fail("%s: %d", what, result);
	return -1;
}

#define TRY(name, ...)                                          \
	do {                                                    \
		if (done(cl.name(__VA_ARGS__), "cl" #name) < 0) \
			return -1;                              \
	} while (0)

/* ---- tests/bench/gpu/gpu.h, as far as these programs need it ---- */

static cl_mem mem_of(gpu_buffer buffer)
{
	return (cl_mem)(uintptr_t)buffer;
}

int gpu_alloc(uint64_t bytes, gpu_buffer *ret_buffer)
{
	cl_int result;
	cl_mem mem = cl.CreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &result);

	*ret_buffer = (uintptr_t)mem;
	return done(result, "clCreateBuffer");
}

int gpu_free(gpu_buffer buffer)
{
	TRY(ReleaseMemObject, mem_of(buffer));
	return 0;
}

int gpu_write(gpu_buffer buffer, const void *src, uint64_t bytes)
{
	TRY(EnqueueWriteBuffer, queue, mem_of(buffer), CL_TRUE, 0, bytes, src, 0, NULL, NULL);
	return 0;
}

int gpu_read(gpu_buffer buffer, void *dst, uint64_t bytes)
{
	TRY(EnqueueReadBuffer, queue, mem_of(buffer), CL_TRUE, 0, bytes, dst, 0, NULL, NULL);
	return 0;
}

int gpu_fill(gpu_buffer buffer, uint8_t value, uint64_t bytes)
{
	TRY(EnqueueFillBuffer, queue, mem_of(buffer), &value, 1, 0, bytes, 0, NULL, NULL);
	return 0;
}

int gpu_kernel(const char *name, const char *signature, struct gpu_kernel *ret_kernel)
{
	struct gantry_err err;
	cl_int result;

	if (nkernels == MAX_KERNELS || gantry_signature_parse(signature, &ret_kernel->sig, &err) < 0) {
		bench_fail("%s: it has no such signature", name);
		return -1;
	}
	kernels[nkernels] = cl.CreateKernel(program, name, &result);
	ret_kernel->handle = nkernels++;
	return done(result, name);
}

int gpu_launch(const struct gpu_kernel *kernel, struct gpu_dim grid, struct gpu_dim block,
	       const union gpu_arg *args)
{
	const size_t local[3] = { block.x, block.y, block.z };
	const size_t global[3] = { (size_t)grid.x * block.x, (size_t)grid.y * block.y,
				   (size_t)grid.z * block.z };
	cl_kernel k = kernels[kernel->handle];
	cl_uint ndims = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;

	for (cl_uint i = 0; i < kernel->sig.nargs; i++) {
		const struct gantry_sig_arg *arg = &kernel->sig.args[i];
		cl_mem mem = mem_of(args[i].buffer);

		if (arg->mode)
			TRY(SetKernelArg, k, i, sizeof(mem), &mem);
		else
			TRY(SetKernelArg, k, i, gantry_arg_type_bytes(arg->type), &args[i]);
	}
	TRY(EnqueueNDRangeKernel, queue, k, ndims, NULL, global, local, 0, NULL, NULL);
	return 0;
}

/* ---- the platform ---- */

static int load(void)
{
	void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

	if (!library) {
		bench_fail("no libOpenCL.so.1");
		return -1;
	}
#define LOAD(name) *(void **)(&cl.name) = dlsym(library, "cl" #name);
	CALLS(LOAD)
#undef LOAD
	return 0;
}

static int open_platform(const char *name)
{
	cl_platform_id platforms[16], found = NULL;
	char text[128];
	cl_int result;
	cl_uint n = 0;

	TRY(GetPlatformIDs, 16, platforms, &n);
	for (cl_uint i = 0; i < n && i < 16; i++)
		if (cl.GetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(text), text, NULL) ==
			    CL_SUCCESS &&
		    strcmp(text, name) == 0)
			found = platforms[i];
	if (!found) {
		bench_fail("no platform %s", name);
		return -1;
	}
	TRY(GetDeviceIDs, found, CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU, 1, &device, NULL);
	context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &result);
	if (done(result, "clCreateContext") < 0)
		return -1;
	queue = cl.CreateCommandQueue(context, device, 0, &result);
	return done(result, "clCreateCommandQueue");
}

static int build(const char *path)
{
	const char *source;
	char *text = NULL, log[512] = "";
	size_t nbytes;
	cl_int result;

	if (gantry_file_read(path, TEXT_MAX, &text, &nbytes) < 0) {
		bench_fail("cannot read %s", path);
		return -1;
	}
	source = text;
	program = cl.CreateProgramWithSource(context, 1, &source, &nbytes, &result);
	free(text);
	if (done(result, "clCreateProgramWithSource") < 0)
		return -1;
	result = cl.BuildProgram(program, 1, &device, "", NULL, NULL);
	if (result == CL_SUCCESS)
		return 0;
	(void)cl.GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log,
				     NULL); /* then there is none */
	log[strcspn(log, "\n\"\\")] = '\0';
	bench_fail("clBuildProgram: %d, %s", result, log);
	return -1;
}

/* ---- commands ---- */

static const struct app *app_of(const struct bench_args *args)
{
	for (const struct app *app = apps; args->n > 0 && app->name; app++)
		if (strcmp(app->name, args->words[0]) == 0)
			return app;
	bench_fail("no such program");
	return NULL;
}

static void cmd_prepare(const struct bench_args *args)
{
	const struct app *app = app_of(args);

	if (app && app->prepare((uint32_t)bench_arg(args, 1, 1)) == 0)
		printf("{\"prepared\":true}\n");
}

static void cmd_run(const struct bench_args *args)
{
	const struct app *app = app_of(args);
	uint64_t start = gantry_now_ns(), checksum;

	if (app && app->run(&checksum) == 0)
		printf("{\"ns\":%llu,\"checksum\":%llu}\n",
		       (unsigned long long)(gantry_now_ns() - start), (unsigned long long)checksum);
}

int main(int argc, char **argv)
{
	static const struct bench_command commands[] = {
		{ "pin", bench_pin },
		{ "prepare", cmd_prepare },
		{ "run", cmd_run },
		{ NULL, NULL },
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || load() < 0 || open_platform(argv[1]) < 0 || build(argv[2]) < 0)
		return 1;
	return bench_serve(commands);
}
