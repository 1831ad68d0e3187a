/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are wrong, with the result that the standard names for each. Lines "ok NAME" or "not ok NAME". */
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define IL_VERSION 0x105B /* CL_DEVICE_IL_VERSION, of OpenCL 2.1 */

static cl_int create(const struct world *w, cl_mem_flags flags, size_t bytes, void *host)
{
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, flags, bytes, host, &result);

	if (mem)
		must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	return result;
}

static void misuse_buffers(const struct world *w, cl_mem mem)
{
	char host[64] = { 0 };
	const cl_buffer_region outside = { 512, 1024 }, crooked = { 3, 8 }, empty = { 0, 0 };
	const size_t zero[3] = { 0, 0, 0 }, region[3] = { 8, 8, 8 },
		     huge[3] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };
	cl_int result;

	expect(create(w, 0, 0, NULL), CL_INVALID_BUFFER_SIZE, "a buffer of no bytes");
	expect(create(w, 0, SIZE_MAX, NULL), CL_INVALID_BUFFER_SIZE, "a buffer of all bytes");
	expect(create(w, CL_MEM_COPY_HOST_PTR, 64, NULL), CL_INVALID_HOST_PTR, "a copy of NULL");
	expect(create(w, 0, 64, host), CL_INVALID_HOST_PTR, "memory that no flag wants");
	expect(create(w, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, NULL), CL_INVALID_VALUE,
	       "two kinds of access");
	expect(create(w, 1ull << 40, 64, NULL), CL_INVALID_VALUE, "an unknown flag");
	(void)cl.CreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &outside, &result);
	expect(result, CL_INVALID_VALUE, "a part that reaches outside");
	(void)cl.CreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &crooked, &result);
	expect(result, CL_MISALIGNED_SUB_BUFFER_OFFSET, "a part that is not aligned");
	(void)cl.CreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &result);
	expect(result, CL_INVALID_BUFFER_SIZE, "a part of no bytes");
	expect(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 1000, 100, host, 0, NULL, NULL),
	       CL_INVALID_VALUE, "reading past the end");
	expect(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, SIZE_MAX, 2, host, 0, NULL, NULL),
	       CL_INVALID_VALUE, "an offset that overflows");
	expect(cl.EnqueueWriteBuffer(w->queue, mem, CL_TRUE, 0, 8, NULL, 0, NULL, NULL),
	       CL_INVALID_VALUE, "writing from NULL");
	expect(cl.EnqueueCopyBuffer(w->queue, mem, mem, 0, 4, 8, 0, NULL, NULL),
	       CL_MEM_COPY_OVERLAP, "a copy onto itself");
	expect(cl.EnqueueCopyBufferRect(w->queue, mem, mem, zero, (const size_t[3]){ 4, 0, 0 },
					region, 16, 128, 16, 128, 0, NULL, NULL),
	       CL_MEM_COPY_OVERLAP, "a box onto itself");
	expect(cl.EnqueueReadBufferRect(w->queue, mem, CL_TRUE, zero, zero, huge, 0, 0, 0, 0, host,
					0, NULL, NULL),
	       CL_INVALID_VALUE, "a box whose size overflows");
	expect(cl.EnqueueReadBufferRect(w->queue, mem, CL_TRUE, zero, zero, region, 4, 0, 0, 0,
					host, 0, NULL, NULL),
	       CL_INVALID_VALUE, "a pitch shorter than a row");
	expect(cl.EnqueueFillBuffer(w->queue, mem, host, 3, 0, 9, 0, NULL, NULL), CL_INVALID_VALUE,
	       "a pattern of three bytes");
	expect(cl.EnqueueFillBuffer(w->queue, mem, host, 4, 2, 8, 0, NULL, NULL), CL_INVALID_VALUE,
	       "a fill that is not aligned to its pattern");
	expect(cl.EnqueueUnmapMemObject(w->queue, mem, host, 0, NULL, NULL), CL_INVALID_VALUE,
	       "unmapping what is not mapped");
	(void)cl.EnqueueMapBuffer(w->queue, mem, CL_TRUE, CL_MAP_READ, 1020, 8, 0, NULL, NULL,
				  &result);
	expect(result, CL_INVALID_VALUE, "mapping past the end");
}

static void misuse_wanted_shape(const struct world *w, cl_mem mem)
{
	const size_t global[2] = { 16, 8 }, turned[2] = { 2, 8 }, half[2] = { 8, 1 },
		     wanted[2] = { 8, 2 }, odd[2] = { 20, 8 };
	cl_kernel kernel = kernel_of(w, "wants");

	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "no size of groups for a kernel that wants one");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 2, NULL, global, turned, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "another size than a kernel wants");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 2, NULL, global, half, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "a smaller size than a kernel wants");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, global, wanted, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "fewer dimensions than a kernel wants");
	expect(cl.EnqueueTask(w->queue, kernel, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE,
	       "a task of a kernel that wants groups");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 2, NULL, odd, wanted, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "a size that the wanted one does not divide");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 2, NULL, global, wanted, 0, NULL, NULL),
	       CL_SUCCESS, "the size that a kernel wants");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
}

static void misuse_kernels(const struct world *w, cl_mem mem)
{
	size_t global = 64, local = 7, zero = 0, most = SIZE_MAX, one = 1, many = (size_t)1 << 20;
	cl_kernel kernel = kernel_of(w, "add"), reverse = kernel_of(w, "reverse");
	const cl_int n = 4;
	cl_int result;

	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
	       CL_INVALID_KERNEL_ARGS, "arguments that are not set");
	expect(cl.SetKernelArg(kernel, 9, sizeof(mem), &mem), CL_INVALID_ARG_INDEX,
	       "an argument that is not there");
	expect(cl.SetKernelArg(kernel, 3, 2, &n), CL_INVALID_ARG_SIZE, "a value of another size");
	expect(cl.SetKernelArg(kernel, 0, 4, &mem), CL_INVALID_ARG_SIZE,
	       "a buffer of another size");
	expect(cl.SetKernelArg(kernel, 3, sizeof(n), NULL), CL_INVALID_ARG_VALUE,
	       "a value at NULL");
	expect(cl.SetKernelArg(reverse, 1, 0, NULL), CL_INVALID_ARG_SIZE, "no local memory");
	expect(cl.SetKernelArg(reverse, 1, 4, &n), CL_INVALID_ARG_VALUE,
	       "local memory with a value");
	for (cl_uint i = 0; i < 3; i++)
		must(cl.SetKernelArg(kernel, i, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 3, sizeof(n), &n), "clSetKernelArg");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 0, NULL, &global, NULL, 0, NULL, NULL),
	       CL_INVALID_WORK_DIMENSION, "no dimension");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 4, NULL, &global, NULL, 0, NULL, NULL),
	       CL_INVALID_WORK_DIMENSION, "four dimensions");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, NULL, NULL, 0, NULL, NULL),
	       CL_INVALID_GLOBAL_WORK_SIZE, "no size");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &zero, NULL, 0, NULL, NULL),
	       CL_INVALID_GLOBAL_WORK_SIZE, "a size of nothing");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, &most, &global, NULL, 0, NULL, NULL),
	       CL_INVALID_GLOBAL_OFFSET, "an offset that overflows");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "groups that do not divide");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &global, &zero, 0, NULL, NULL),
	       CL_INVALID_WORK_GROUP_SIZE, "groups of nothing");
	result = cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &many, &many, 0, NULL, NULL);
	expect_true(result == CL_INVALID_WORK_GROUP_SIZE || result == CL_INVALID_WORK_ITEM_SIZE,
		    "a group that is too large");
	(void)cl.CreateKernel(w->program, "nobody", &result);
	expect(result, CL_INVALID_KERNEL_NAME, "a kernel that is not there");
	(void)cl.CreateKernel(w->program, NULL, &result);
	expect(result, CL_INVALID_VALUE, "a kernel of no name");
	expect(cl.BuildProgram(w->program, 0, NULL, "", NULL, NULL), CL_INVALID_OPERATION,
	       "building what has kernels");
	must(cl.ReleaseKernel(reverse), "clReleaseKernel");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	expect(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
	       CL_INVALID_KERNEL, "a kernel that was released");
	expect(cl.ReleaseKernel(kernel), CL_INVALID_KERNEL, "releasing it again");
}

static void misuse_programs(const struct world *w)
{
	const unsigned char junk[64] = "this is no binary of anybody's";
	const unsigned char *binary = junk, *none = NULL;
	const char *text = "__kernel void k(__global int *x) { *x = 1; }", *null_text = NULL;
	size_t n = sizeof(junk), zero = 0;
	cl_int result, status = CL_SUCCESS;
	cl_program program;
	cl_kernel kernel;

	(void)cl.CreateProgramWithBinary(w->context, 1, &w->device, &n, &binary, &status, &result);
	expect(result, CL_INVALID_BINARY, "a binary that is none");
	expect(status, CL_INVALID_BINARY, "and its status");
	(void)cl.CreateProgramWithBinary(w->context, 1, &w->device, &zero, &none, &status, &result);
	expect(result, CL_INVALID_VALUE, "a binary of no bytes");
	(void)cl.CreateProgramWithSource(w->context, 1, &null_text, NULL, &result);
	expect(result, CL_INVALID_VALUE, "a text at NULL");
	(void)cl.CreateProgramWithSource(w->context, 0, &text, NULL, &result);
	expect(result, CL_INVALID_VALUE, "no text");
	program = program_of(w, text, "");
	kernel = cl.CreateKernel(program, "k", &result);
	must(result, "clCreateKernel");
	expect(cl.GetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, 0, NULL, NULL),
	       CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
	       "arguments of what was built without asking for them");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	program = cl.CreateProgramWithSource(w->context, 1, &text, NULL, &result);
	must(result, "clCreateProgramWithSource");
	(void)cl.CreateKernel(program, "k", &result);
	expect(result, CL_INVALID_PROGRAM_EXECUTABLE, "a kernel of what was not built");
	expect(cl.BuildProgram(program, 1, NULL, "", NULL, NULL), CL_INVALID_VALUE,
	       "one device at NULL");
	expect(cl.BuildProgram(program, 0, NULL, "-no-such-option", NULL, NULL),
	       CL_INVALID_BUILD_OPTIONS, "an option that is none");
	(void)cl.CreateProgramWithBuiltInKernels(w->context, 1, &w->device, "nobody_has_this",
						 &result);
	expect(result, CL_INVALID_VALUE, "an installed kernel that is not there");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
}

/* Whose status nobody can set any more. */
static void misuse_forgotten_event(const struct world *w)
{
	cl_int result, status = CL_COMPLETE;
	cl_event event = cl.CreateUserEvent(w->context, &result), marker;

	must(result, "clCreateUserEvent");
	must(cl.EnqueueMarkerWithWaitList(w->queue, 1, &event, &marker),
	     "clEnqueueMarkerWithWaitList");
	must(cl.ReleaseEvent(event), "clReleaseEvent");
	expect(cl.WaitForEvents(1, &marker), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
	       "waiting for what waits for an event that nobody has");
	must(cl.GetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
			     NULL),
	     "CL_EVENT_COMMAND_EXECUTION_STATUS");
	expect_true(status < 0, "its status is an error");
	expect(cl.Finish(w->queue), CL_SUCCESS, "and its queue goes on");
	must(cl.ReleaseEvent(marker), "clReleaseEvent");
}

static void misuse_events(const struct world *w, cl_mem mem)
{
	cl_int result;
	cl_event event = cl.CreateUserEvent(w->context, &result), marker, none = NULL;
	cl_event stray = (cl_event)(uintptr_t)&result;

	must(result, "clCreateUserEvent");
	expect(cl.EnqueueMarkerWithWaitList(w->queue, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST,
	       "a list that is not there");
	expect(cl.EnqueueMarkerWithWaitList(w->queue, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST,
	       "a list of none");
	expect(cl.EnqueueMarkerWithWaitList(w->queue, 1, &none, NULL), CL_INVALID_EVENT_WAIT_LIST,
	       "a list with NULL in it");
	expect(cl.EnqueueMarkerWithWaitList(w->queue, 1, &stray, NULL), CL_INVALID_EVENT_WAIT_LIST,
	       "a list with what is no event in it");
	expect(cl.EnqueueMarkerWithWaitList(w->queue, (cl_uint)-1, NULL, NULL),
	       CL_INVALID_EVENT_WAIT_LIST, "a list of minus one");
	expect(cl.WaitForEvents(0, NULL), CL_INVALID_VALUE, "waiting for nothing");
	expect(cl.SetUserEventStatus(event, CL_RUNNING), CL_INVALID_VALUE, "a status that is none");
	must(cl.EnqueueMarkerWithWaitList(w->queue, 0, NULL, &marker),
	     "clEnqueueMarkerWithWaitList");
	expect(cl.SetUserEventStatus(marker, CL_COMPLETE), CL_INVALID_EVENT,
	       "the status of a command");
	expect(cl.SetEventCallback(marker, CL_COMPLETE, NULL, NULL), CL_INVALID_VALUE,
	       "a callback at NULL");
	expect(cl.GetEventProfilingInfo(marker, CL_PROFILING_COMMAND_END, 8, &result, NULL),
	       CL_PROFILING_INFO_NOT_AVAILABLE, "times of a queue that takes none");
	must(cl.ReleaseEvent(marker), "clReleaseEvent");
	must(cl.ReleaseEvent(event), "clReleaseEvent");
	expect(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, 4, &result, 1, &event, NULL),
	       CL_INVALID_EVENT_WAIT_LIST, "a list with what was released");
}

/* The order is the program's fault; nothing breaks. */
static void misuse_maps(const struct world *w, cl_mem mem)
{
	cl_int result;
	cl_event user = cl.CreateUserEvent(w->context, &result);
	cl_command_queue q = cl.CreateCommandQueue(w->context, w->device,
						   CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &result);
	void *at;

	must(result, "clCreateCommandQueue");
	at = cl.EnqueueMapBuffer(q, mem, CL_FALSE, CL_MAP_WRITE, 0, 64, 1, &user, NULL, &result);
	must(result, "clEnqueueMapBuffer");
	must(cl.EnqueueUnmapMemObject(q, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	expect(cl.EnqueueUnmapMemObject(q, mem, at, 0, NULL, NULL), CL_INVALID_VALUE,
	       "unmapping twice");
	must(cl.SetUserEventStatus(user, CL_COMPLETE), "clSetUserEventStatus");
	expect(cl.Finish(q), CL_SUCCESS, "unmapping what waits to be mapped");
	must(cl.ReleaseEvent(user), "clReleaseEvent");
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
}

static void misuse_objects(const struct world *w, cl_mem mem)
{
	cl_int result, word = 0;
	cl_context other = cl.CreateContext(NULL, 1, &w->device, NULL, NULL, &result);
	cl_command_queue q;
	char languages[64] = "?";
	const cl_context_properties twice[] = { CL_CONTEXT_PLATFORM, 0, 0 },
				    unknown[] = { 0x7777, 1, 0 };

	must(result, "clCreateContext");
	q = cl.CreateCommandQueue(other, w->device, 0, &result);
	must(result, "clCreateCommandQueue");
	expect(cl.EnqueueReadBuffer(q, mem, CL_TRUE, 0, 4, &word, 0, NULL, NULL),
	       CL_INVALID_CONTEXT, "a buffer of another context");
	(void)cl.CreateCommandQueue(w->context, NULL, 0, &result);
	expect(result, CL_INVALID_DEVICE, "a queue of no device");
	(void)cl.CreateCommandQueue(w->context, w->device, 1 << 20, &result);
	expect(result, CL_INVALID_VALUE, "a queue of unknown properties");
	(void)cl.CreateContext(NULL, 0, NULL, NULL, NULL, &result);
	expect(result, CL_INVALID_VALUE, "a context of no device");
	(void)cl.CreateContext(twice, 1, &w->device, NULL, NULL, &result);
	expect(result, CL_INVALID_PLATFORM, "a context of no platform");
	(void)cl.CreateContext(unknown, 1, &w->device, NULL, NULL, &result);
	expect(result, CL_INVALID_PROPERTY, "a context of unknown properties");
	expect(cl.GetContextInfo(w->context, CL_CONTEXT_REFERENCE_COUNT, 1, &word, NULL),
	       CL_INVALID_VALUE, "an answer that does not fit");
	expect(cl.GetDeviceInfo(w->device, 0xffff, sizeof(word), &word, NULL), CL_INVALID_VALUE,
	       "a question that is none");
	expect(cl.GetDeviceInfo(w->device, IL_VERSION, sizeof(languages), languages, NULL),
	       CL_SUCCESS, "which intermediate languages a device takes");
	expect_true(languages[0] == '\0', "are none either");
	expect(cl.GetDeviceIDs(w->platform, 0, 1, &(cl_device_id){ NULL }, NULL),
	       CL_INVALID_DEVICE_TYPE, "devices of no type");
	/* A handle of another type: the loader passes it on as it is. */
	expect(cl.GetKernelInfo((cl_kernel)(uintptr_t)mem, CL_KERNEL_NUM_ARGS, sizeof(word), &word,
				NULL),
	       CL_INVALID_KERNEL, "a buffer for a kernel");
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
	expect(cl.Finish(q), CL_INVALID_COMMAND_QUEUE, "a queue that was released");
	must(cl.ReleaseContext(other), "clReleaseContext");
	expect(cl.ReleaseContext(other), CL_INVALID_CONTEXT, "a context that was released");
}

void probe_misuse(const struct world *w)
{
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 1024, NULL, &result);

	must(result, "clCreateBuffer");
	misuse_buffers(w, mem);
	misuse_kernels(w, mem);
	misuse_wanted_shape(w, mem);
	misuse_programs(w);
	misuse_events(w, mem);
	misuse_forgotten_event(w);
	misuse_maps(w, mem);
	misuse_objects(w, mem);
	must(cl.Finish(w->queue), "clFinish");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	expect(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, 4, &result, 0, NULL, NULL),
	       CL_INVALID_MEM_OBJECT, "a buffer that was released");
}
