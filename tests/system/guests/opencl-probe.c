/* SPDX-License-Identifier: Apache-2.0 */
/* opencl-probe PLATFORM work|images|parts|il|misuse|say|storm|hold|builtin|bench ... */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/system/guests/opencl_probe.h"

struct calls cl;

static const char text[] =
	"struct pair { int a; float b; };\n"
	"__kernel void add(__global const int *a, __global const int *b, __global int *c, int n)\n"
	"{ size_t i = get_global_id(0); if (i < n) c[i] = a[i] + b[i]; }\n"
	"__kernel void where(__global ulong *out)\n"
	"{ size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1),\n"
	"    z = get_global_id(2) - get_global_offset(2);\n"
	"  size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;\n"
	"  out[at] = get_global_id(0) + 100 * get_global_id(1) + 10000 * get_global_id(2) + 1000000 * get_work_dim() +\n"
	"    10000000 * get_global_offset(0); }\n"
	"__kernel void reverse(__global uint *data, __local uint *part)\n"
	"{ size_t l = get_local_id(0), n = get_local_size(0); part[l] = data[get_global_id(0)];\n"
	"  barrier(CLK_LOCAL_MEM_FENCE); data[get_global_id(0)] = part[n - 1 - l]; }\n"
	"__kernel void values(__global float *out, float4 v, char c, short2 s, double d, struct pair p, __constant int *k)\n"
	"{ out[0] = v.x; out[1] = v.w; out[2] = c; out[3] = s.y; out[4] = d; out[5] = p.a; out[6] = p.b; out[7] = k[1]; }\n"
	"__kernel void maybe(__global int *out, __global const int *in) { out[0] = in ? in[0] : -7; }\n"
	"__kernel __attribute__((reqd_work_group_size(8, 2, 1))) void wants(__global uint *out)\n"
	"{ out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_local_id(0) + 10 * get_local_size(1); }\n"
	"__kernel void spin(__global uint *data, uint n)\n"
	"{ uint v = data[0]; for (uint i = 0; i < n; i++) v = v * 1664525u + 1013904223u; data[0] = v; }\n";

static const char saying[] =
	"__kernel void say(__global int *out) { printf(\"words of a kernel\\n\"); out[0] = 3; }\n";

void must(cl_int result, const char *what)
{
	if (result == CL_SUCCESS)
		return;
	printf("failed %s %d\n", what, result);
	exit(1);
}

void expect(cl_int got, cl_int wanted, const char *name)
{
	if (got == wanted)
		printf("ok %s\n", name);
	else
		printf("not ok %s: %d, not %d\n", name, got, wanted);
}

void expect_true(bool yes, const char *name)
{
	printf("%s %s\n", yes ? "ok" : "not ok", name);
}

void show(const char *name, uint64_t value)
{
	printf("%s %llu\n", name, (unsigned long long)value);
}

void show_bytes(const char *name, const void *bytes, size_t n)
{
	const unsigned char *at = bytes;
	uint64_t sum = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ at[i]) * 0x100000001b3ull;
	printf("%s %016llx\n", name, (unsigned long long)sum);
}

cl_program program_of(const struct world *w, const char *source, const char *options)
{
	cl_int result;
	cl_program program = cl.CreateProgramWithSource(w->context, 1, &source, NULL, &result);
	char log[8192] = "";

	must(result, "clCreateProgramWithSource");
	result = cl.BuildProgram(program, 1, &w->device, options, NULL, NULL);
	if (result != CL_SUCCESS) {
		(void)cl.GetProgramBuildInfo(program, w->device, CL_PROGRAM_BUILD_LOG, sizeof(log),
					     log, NULL);
		printf("log %s\n", log);
	}
	must(result, "clBuildProgram");
	return program;
}

cl_kernel kernel_of(const struct world *w, const char *name)
{
	cl_int result;
	cl_kernel kernel = cl.CreateKernel(w->program, name, &result);

	must(result, name);
	return kernel;
}

static void load(void)
{
	void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

	if (!library) {
		printf("skip no libOpenCL.so.1\n");
		exit(0);
	}
#define LOAD(name) *(void **)(&cl.name) = dlsym(library, "cl" #name);
	PROBE_CALLS(LOAD)
#undef LOAD
}

static void find_platform(struct world *w, const char *name)
{
	cl_platform_id platforms[16];
	cl_uint n = 0;
	char found[128];

	if (cl.GetPlatformIDs(16, platforms, &n) != CL_SUCCESS)
		n = 0;
	for (cl_uint i = 0; i < n; i++) {
		must(cl.GetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(found), found, NULL),
		     "clGetPlatformInfo");
		if (strcmp(found, name) == 0)
			w->platform = platforms[i];
	}
	if (w->platform)
		return;
	printf("skip no platform %s\n", name);
	exit(0);
}

static void open_world(struct world *w, cl_device_type type)
{
	cl_int result;

	if (cl.GetDeviceIDs(w->platform, type, 1, &w->device, NULL) != CL_SUCCESS) {
		printf("skip no device\n");
		exit(0);
	}
	w->context = cl.CreateContext(NULL, 1, &w->device, NULL, NULL, &result);
	must(result, "clCreateContext");
	w->queue = cl.CreateCommandQueue(w->context, w->device, 0, &result);
	must(result, "clCreateCommandQueue");
}

static void close_world(struct world *w)
{
	if (w->program)
		must(cl.ReleaseProgram(w->program), "clReleaseProgram");
	must(cl.ReleaseCommandQueue(w->queue), "clReleaseCommandQueue");
	must(cl.ReleaseContext(w->context), "clReleaseContext");
}

/* ---- waiting while things die ---- */

/* Prints "ready", and "working" after its first launch; goes on until a wait fails, and says how. */
static void hold(struct world *w, uint32_t turns)
{
	cl_kernel spin = kernel_of(w, "spin");
	const uint32_t seed = 1;
	size_t one = 1;
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(seed),
				     (void *)(uintptr_t)&seed, &result);
	uint64_t n = 0;

	must(result, "clCreateBuffer");
	must(cl.SetKernelArg(spin, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(spin, 1, sizeof(turns), &turns), "clSetKernelArg");
	printf("ready\n");
	for (cl_event event = NULL; result == CL_SUCCESS; n++) {
		result = cl.EnqueueNDRangeKernel(w->queue, spin, 1, NULL, &one, &one, 0, NULL,
						 &event);
		if (result == CL_SUCCESS)
			result = cl.WaitForEvents(1, &event);
		if (result == CL_SUCCESS && n == 0)
			printf("working\n");
		if (event)
			(void)cl.ReleaseEvent(event);
		event = NULL;
	}
	printf("ended %d\n", result);
}

/* ---- printing ---- */

/* @n work-items that print a line each: before a blocking read, clFinish() and clWaitForEvents() return. */
static void say(struct world *w, size_t n)
{
	const size_t one = 1;
	cl_event event;
	cl_kernel kernel;
	cl_int result, three = 0;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 64, NULL, &result);

	must(result, "clCreateBuffer");
	must(cl.ReleaseProgram(w->program), "clReleaseProgram");
	w->program = program_of(w, saying, "-cl-kernel-arg-info");
	kernel = kernel_of(w, "say");
	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &n, &one, 0, NULL, NULL), "say");
	must(cl.Finish(w->queue), "clFinish");
	printf("finished\n");
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &one, &one, 0, NULL, &event),
	     "say");
	must(cl.WaitForEvents(1, &event), "clWaitForEvents");
	must(cl.ReleaseEvent(event), "clReleaseEvent");
	printf("waited\n");
	must(cl.EnqueueTask(w->queue, kernel, 0, NULL, NULL), "clEnqueueTask");
	must(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, sizeof(three), &three, 0, NULL, NULL),
	     "clEnqueueReadBuffer");
	show("said", (uint64_t)three);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

/* ---- installed kernels ---- */

static void builtin(struct world *w, const char *name)
{
	const float x[4] = { 1, 2, 3, 4 };
	float out[4] = { 0 };
	const uint64_t n = 4;
	size_t one = 1;
	cl_int result;
	cl_kernel kernel;
	cl_mem a, b;

	w->program = cl.CreateProgramWithBuiltInKernels(w->context, 1, &w->device, name, &result);
	must(result, "clCreateProgramWithBuiltInKernels");
	kernel = kernel_of(w, name);
	a = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(x), (void *)(uintptr_t)x,
			    &result);
	must(result, "clCreateBuffer");
	b = cl.CreateBuffer(w->context, 0, sizeof(out), NULL, &result);
	must(result, "clCreateBuffer");
	must(cl.SetKernelArg(kernel, 0, sizeof(a), &a), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 1, sizeof(b), &b), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 2, sizeof(n), &n), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
	     "enqueue");
	must(cl.EnqueueReadBuffer(w->queue, b, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL),
	     "read");
	for (int i = 0; i < 4; i++)
		printf("out%d %g\n", i, (double)out[i]);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(a), "clReleaseMemObject");
	must(cl.ReleaseMemObject(b), "clReleaseMemObject");
}

/* ---- figures ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Median of @n launches with clFinish(), then of copies of 64 MiB: nanoseconds, and bytes in a microsecond. */
static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void bench_launch(struct world *w, uint64_t *ns, unsigned n)
{
	cl_kernel spin = kernel_of(w, "spin");
	const uint32_t none = 0;
	size_t one = 1;
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 64, NULL, &result);

	must(result, "clCreateBuffer");
	must(cl.SetKernelArg(spin, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(spin, 1, sizeof(none), &none), "clSetKernelArg");
	for (unsigned i = 0; i < n + 100; i++) {
		uint64_t began = now_ns();

		must(cl.EnqueueNDRangeKernel(w->queue, spin, 1, NULL, &one, &one, 0, NULL, NULL),
		     "clEnqueueNDRangeKernel");
		must(cl.Finish(w->queue), "clFinish");
		if (i >= 100)
			ns[i - 100] = now_ns() - began;
	}
	qsort(ns, n, sizeof(*ns), compare);
	show("launch_ns", ns[n / 2]);
	(void)cl.ReleaseKernel(spin);
	(void)cl.ReleaseMemObject(mem);
}

static void bench_copies(struct world *w, uint64_t *ns, unsigned n, size_t bytes)
{
	char *host = aligned_alloc(4096, bytes);
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, bytes, NULL, &result);

	must(result, "clCreateBuffer");
	if (!host)
		exit(1);
	memset(host, 1, bytes);
	for (int is_read = 0; is_read < 2; is_read++) {
		for (unsigned i = 0; i < n + 2; i++) {
			uint64_t began = now_ns();

			must(is_read ? cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, bytes, host,
							    0, NULL, NULL)
				     : cl.EnqueueWriteBuffer(w->queue, mem, CL_TRUE, 0, bytes, host,
							     0, NULL, NULL),
			     "copy");
			if (i >= 2)
				ns[i - 2] = now_ns() - began;
		}
		qsort(ns, n, sizeof(*ns), compare);
		show(is_read ? "read_ns" : "write_ns", ns[n / 2]);
	}
	free(host);
	(void)cl.ReleaseMemObject(mem);
}

static void bench(struct world *w, unsigned n, size_t mib)
{
	uint64_t *ns = calloc(n + 1, sizeof(*ns));

	if (!ns)
		exit(1);
	bench_launch(w, ns, n);
	bench_copies(w, ns, n < 9 ? n : 9, mib << 20);
	free(ns);
}

int main(int argc, char **argv)
{
	struct world w = { 0 };
	const char *what = argc > 2 ? argv[2] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		return 2;
	load();
	find_platform(&w, argv[1]);
	if (strcmp(what, "builtin") == 0) {
		open_world(&w, argc > 4 ? (cl_device_type)strtoul(argv[4], NULL, 0)
					: CL_DEVICE_TYPE_CUSTOM);
		builtin(&w, argv[3]);
		close_world(&w);
		return 0;
	}
	open_world(&w, CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU);
	w.program = program_of(&w, text, "-cl-kernel-arg-info");
	if (strcmp(what, "work") == 0) {
		probe_buffers(&w);
		probe_kernels(&w);
		probe_programs(&w);
		probe_events(&w);
		probe_lifetimes(&w);
	} else if (strcmp(what, "images") == 0) {
		probe_images(&w);
	} else if (strcmp(what, "parts") == 0) {
		probe_sub_devices(&w);
	} else if (strcmp(what, "domains") == 0) {
		probe_domains(&w);
	} else if (strcmp(what, "cost") == 0 && argc > 3) {
		probe_cost(&w, (unsigned)strtoul(argv[3], NULL, 0));
	} else if (strcmp(what, "il") == 0 && argc > 3) {
		probe_il(&w, argv[3]);
	} else if (strcmp(what, "il-misuse") == 0 && argc > 3) {
		probe_il_misuse(&w, argv[3]);
	} else if (strcmp(what, "misuse") == 0) {
		probe_misuse(&w);
		probe_sub_device_misuse(&w);
		probe_image_misuse(&w);
		probe_bad_handles(&w);
	} else if (strcmp(what, "say") == 0) {
		say(&w, argc > 3 ? strtoul(argv[3], NULL, 0) : 1);
	} else if (strcmp(what, "storm") == 0) {
		probe_storm(&w, argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 1000);
	} else if (strcmp(what, "hold") == 0) {
		hold(&w, argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 1000000);
	} else if (strcmp(what, "bench") == 0) {
		bench(&w, argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 2000,
		      argc > 4 ? strtoul(argv[4], NULL, 0) : 64);
	}
	close_world(&w);
	printf("done\n");
	return 0;
}
