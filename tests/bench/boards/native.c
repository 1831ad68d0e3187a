/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that have a board one after the other, as such boards are shared without Gantry: bench-board-native IMAGE KERNEL LAUNCHES
 * [IMAGE KERNEL LAUNCHES ...]. Each puts all its launches into one queue. An image is loaded where the one before is another. All in one
 * process and one context, so that nothing but loading and launching is measured. Prints the nanoseconds from when the first image was
 * loaded to the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "devices/opencl/builder.h"

#define N	   1024u
#define MAX_BINARY (64u << 20)

static const struct gantry_opencl_driver *cl;
static struct gantry_opencl_target target;
static cl_context context;
static cl_program program;
static const char *loaded; /* the image that @program was made from */
static int32_t in[N], out[N];

static void need(cl_int result, const char *what)
{
	if (result == CL_SUCCESS)
		return;
	fprintf(stderr, "bench-board-native: %s: %s\n", what, gantry_opencl_error(result));
	exit(1);
}

static void open_board(void)
{
	const struct gantry_opencl_choice choice = { .platform = "Portable" };
	struct gantry_err err = GANTRY_ERR_NONE;
	cl_int result = CL_SUCCESS;

	if (gantry_opencl_driver_open(NULL, &cl, &err) < 0 ||
	    gantry_opencl_choose(cl, &choice, &target, &err) < 0) {
		fprintf(stderr, "bench-board-native: %s\n", err.text);
		exit(1);
	}
	context = cl->CreateContext(NULL, 1, &target.device, NULL, NULL, &result);
	need(result, "clCreateContext");
}

static void run_once(const char *kernel_name)
{
	static const size_t one = 1;
	cl_int result = CL_SUCCESS;
	cl_command_queue queue = cl->CreateCommandQueue(context, target.device, 0, &result);
	cl_kernel kernel = cl->CreateKernel(program, kernel_name, &result);

	need(result, kernel_name);
	need(cl->EnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
	     kernel_name);
	need(cl->Finish(queue), kernel_name);
	(void)cl->ReleaseKernel(kernel);
	(void)cl->ReleaseCommandQueue(queue);
}

static void load(const char *image)
{
	_cleanup_free_ char *bytes = NULL;
	const unsigned char *at;
	cl_int result = CL_SUCCESS, status = CL_SUCCESS;
	size_t len;

	if (loaded && strcmp(loaded, image) == 0)
		return;
	if (program)
		(void)cl->ReleaseProgram(program);
	if (gantry_file_read(image, MAX_BINARY, &bytes, &len) < 0)
		need(CL_INVALID_BINARY, image);
	at = (const unsigned char *)bytes;
	program = cl->CreateProgramWithBinary(context, 1, &target.device, &len, &at, &status,
					      &result);
	need(result, "clCreateProgramWithBinary");
	need(cl->BuildProgram(program, 1, &target.device, NULL, NULL, NULL), "clBuildProgram");
	run_once("gantry_loaded"); /* then it is on the board */
	loaded = image;
}

static void run(const char *kernel_name, unsigned int launches)
{
	static const size_t one = 1;
	const cl_uint n = N;
	cl_int result = CL_SUCCESS;
	cl_command_queue queue = cl->CreateCommandQueue(context, target.device, 0, &result);
	cl_mem from = cl->CreateBuffer(context, CL_MEM_READ_WRITE, sizeof(in), NULL, &result);
	cl_mem to = cl->CreateBuffer(context, CL_MEM_READ_WRITE, sizeof(out), NULL, &result);
	cl_kernel kernel = cl->CreateKernel(program, kernel_name, &result);

	need(result, kernel_name);
	need(cl->EnqueueWriteBuffer(queue, from, CL_FALSE, 0, sizeof(in), in, 0, NULL, NULL),
	     "clEnqueueWriteBuffer");
	need(cl->SetKernelArg(kernel, 0, sizeof(from), &from), kernel_name);
	need(cl->SetKernelArg(kernel, 1, sizeof(to), &to), kernel_name);
	need(cl->SetKernelArg(kernel, 2, sizeof(n), &n), kernel_name);
	for (unsigned int i = 0; i < launches; i++)
		need(cl->EnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
		     kernel_name);
	need(cl->EnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL),
	     "clEnqueueReadBuffer");
	for (unsigned int i = 0; i < N; i++)
		if (out[i] != in[i] + 1)
			need(CL_INVALID_VALUE, "a result that is wrong");
	(void)cl->ReleaseKernel(kernel);
	(void)cl->ReleaseMemObject(from);
	(void)cl->ReleaseMemObject(to);
	(void)cl->ReleaseCommandQueue(queue);
}

int main(int argc, char **argv)
{
	uint64_t from_ns = 0;

	if (argc < 4 || argc % 3 != 1)
		return 2;
	for (int i = 0; i < (int)N; i++)
		in[i] = i * 7;
	open_board();
	for (int i = 1; i + 2 < argc; i += 3) {
		load(argv[i]);
		if (!from_ns)
			from_ns = gantry_now_ns();
		run(argv[i + 1], (unsigned int)strtoul(argv[i + 2], NULL, 10));
	}
	printf("%" PRIu64 "\n", gantry_now_ns() - from_ns);
	return 0;
}
