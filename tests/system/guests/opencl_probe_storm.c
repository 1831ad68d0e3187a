/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function that takes a handle, with handles that are none, and from many threads at once. The loader reads a handle before
 * the driver does, so the functions are called by the driver's own table.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define NTHREADS 6u
#define NSLOTS	 48u

static const struct _cl_icd_dispatch *d;

/* Other arguments that are right, or as near to it as one call can have them. */
static char bytes[4096];
static size_t size;
static const size_t region[3] = { 4, 2, 1 }, below[3] = { 0, 2, 0 }, zero[3], one = 1;
static cl_uint number;
static cl_int number_of; /* a binary's status */
static cl_device_id device;
static const char *text = "__kernel void k(__global int *a) { a[0] = 1; }\n";
static const cl_buffer_region part = { 0, 64 };
static const cl_image_format format = { CL_RGBA, CL_UNSIGNED_INT8 };
static const cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D,
				    .image_width = 4,
				    .image_height = 4 };

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *user)
{
	(void)event;
	(void)status;
	(void)user;
}

static void CL_CALLBACK on_mem(cl_mem mem, void *user)
{
	(void)mem;
	(void)user;
}

enum kind {
	CONTEXT,
	QUEUE,
	MEM,
	PROGRAM,
	KERNEL,
	EVENT,
	IMAGE,
	SAMPLER,
	DEVICE, /* a part of one, where it can be divided */
	NKINDS
};

/* @h is the handle; what is created is let go of at once by name. */
#define CREATES(call, release)                          \
	__extension__({                                 \
		cl_int r = CL_SUCCESS;                  \
		void *made = d->call;                   \
		if (made && r == CL_SUCCESS)            \
			(void)d->release((void *)made); \
		r;                                      \
	})

static cl_int retain_and_release(cl_device_id h)
{
	cl_int r = d->clRetainDevice(h);

	if (r == CL_SUCCESS)
		(void)d->clReleaseDevice(h);
	return r;
}

static cl_int retain_and_release_ext(cl_device_id h)
{
	cl_int r = d->clRetainDeviceEXT(h);

	if (r == CL_SUCCESS)
		(void)d->clReleaseDeviceEXT(h);
	return r;
}

static const cl_device_partition_property all[] = { CL_DEVICE_PARTITION_EQUALLY, 1, 0 },
					  single[] = { CL_DEVICE_PARTITION_BY_COUNTS, 1, 0 };

/* What one unit is divided into is nothing, and no fault of the handle's. */
static cl_int divide(cl_device_id h)
{
	cl_device_id parts[64];
	cl_uint n = 0;
	cl_int r = d->clCreateSubDevices(h, all, 64, parts, &n);

	for (cl_uint i = 0; r == CL_SUCCESS && i < n; i++)
		(void)d->clReleaseDevice(parts[i]);
	return r;
}

/* The queue has the device and its context when nobody else does. */
static cl_int work_on(cl_device_id h)
{
	cl_int r = CL_SUCCESS;
	cl_context context = d->clCreateContext(NULL, 1, &h, NULL, NULL, &r);
	cl_command_queue q;

	if (!context)
		return r;
	q = d->clCreateCommandQueue(context, h, 0, &r);
	(void)d->clReleaseContext(context);
	if (!q)
		return r;
	(void)d->clEnqueueMarkerWithWaitList(q, 0, NULL, NULL);
	(void)d->clFinish(q);
	(void)d->clGetCommandQueueInfo(q, CL_QUEUE_DEVICE, sizeof(bytes), bytes, NULL);
	(void)d->clReleaseCommandQueue(q);
	return r;
}

/* KIND, CODE of a bad handle, NAME, call */
/* clang-format off */
#define ROWS(R) \
	R(CONTEXT, CL_INVALID_CONTEXT, clRetainContext, d->clRetainContext(h)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clReleaseContext, d->clReleaseContext(h)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clGetContextInfo, d->clGetContextInfo(h, CL_CONTEXT_NUM_DEVICES, 64, bytes, NULL)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateCommandQueue, CREATES(clCreateCommandQueue(h, device, 0, &r), clReleaseCommandQueue)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateBuffer, CREATES(clCreateBuffer(h, 0, 64, NULL, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateImage, CREATES(clCreateImage(h, 0, &format, &desc, NULL, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateImage2D, CREATES(clCreateImage2D(h, 0, &format, 4, 4, 0, NULL, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateImage3D, CREATES(clCreateImage3D(h, 0, &format, 4, 4, 4, 0, 0, NULL, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clGetSupportedImageFormats, d->clGetSupportedImageFormats(h, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &number)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateSampler, CREATES(clCreateSampler(h, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &r), clReleaseSampler)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateProgramWithSource, CREATES(clCreateProgramWithSource(h, 1, &text, NULL, &r), clReleaseProgram)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateProgramWithBinary, CREATES(clCreateProgramWithBinary(h, 1, &device, &one, (const unsigned char *[]){ (const unsigned char *)text }, &number_of, &r), clReleaseProgram)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateProgramWithBuiltInKernels, CREATES(clCreateProgramWithBuiltInKernels(h, 1, &device, "vadd", &r), clReleaseProgram)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clLinkProgram, CREATES(clLinkProgram(h, 0, NULL, "", 1, &(cl_program){ NULL }, NULL, NULL, &r), clReleaseProgram)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateUserEvent, CREATES(clCreateUserEvent(h, &r), clReleaseEvent)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clRetainCommandQueue, d->clRetainCommandQueue(h)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clReleaseCommandQueue, d->clReleaseCommandQueue(h)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clGetCommandQueueInfo, d->clGetCommandQueueInfo(h, CL_QUEUE_PROPERTIES, 64, bytes, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clFlush, d->clFlush(h)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clFinish, d->clFinish(h)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueReadBuffer, d->clEnqueueReadBuffer(h, mem, CL_TRUE, 0, 64, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueWriteBuffer, d->clEnqueueWriteBuffer(h, mem, CL_FALSE, 0, 64, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueReadBufferRect, d->clEnqueueReadBufferRect(h, mem, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueWriteBufferRect, d->clEnqueueWriteBufferRect(h, mem, CL_TRUE, zero, zero, region, 0, 0, 0, 0, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueCopyBuffer, d->clEnqueueCopyBuffer(h, mem, mem, 0, 64, 64, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueCopyBufferRect, d->clEnqueueCopyBufferRect(h, mem, mem, zero, region, region, 16, 0, 16, 0, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueFillBuffer, d->clEnqueueFillBuffer(h, mem, bytes, 4, 0, 64, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueMigrateMemObjects, d->clEnqueueMigrateMemObjects(h, 1, &mem, 0, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueMapBuffer, map_and_unmap(h, mem)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueUnmapMemObject, d->clEnqueueUnmapMemObject(h, mem, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueNDRangeKernel, d->clEnqueueNDRangeKernel(h, kernel, 1, NULL, &one, NULL, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueTask, d->clEnqueueTask(h, kernel, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueNativeKernel, d->clEnqueueNativeKernel(h, NULL, NULL, 0, 0, NULL, NULL, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueMarkerWithWaitList, d->clEnqueueMarkerWithWaitList(h, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueBarrierWithWaitList, d->clEnqueueBarrierWithWaitList(h, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueBarrier, d->clEnqueueBarrier(h)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueReadImage, d->clEnqueueReadImage(h, mem, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueWriteImage, d->clEnqueueWriteImage(h, mem, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueCopyImage, d->clEnqueueCopyImage(h, mem, mem, zero, zero, region, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueFillImage, d->clEnqueueFillImage(h, mem, bytes, zero, region, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueCopyImageToBuffer, d->clEnqueueCopyImageToBuffer(h, mem, mem, zero, region, 0, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueCopyBufferToImage, d->clEnqueueCopyBufferToImage(h, mem, mem, 0, zero, region, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueMapImage, map_image_and_unmap(h, mem)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clGetImageInfo of it, d->clGetImageInfo(h, CL_IMAGE_WIDTH, 64, bytes, &size)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueReadImage of it, d->clEnqueueReadImage(queue, h, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueWriteImage of it, d->clEnqueueWriteImage(queue, h, CL_FALSE, zero, region, 0, 0, bytes, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueCopyImage of it, d->clEnqueueCopyImage(queue, h, h, zero, below, region, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueFillImage of it, d->clEnqueueFillImage(queue, h, bytes, zero, region, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueCopyImageToBuffer of it, d->clEnqueueCopyImageToBuffer(queue, h, mem, zero, region, 0, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueCopyBufferToImage to it, d->clEnqueueCopyBufferToImage(queue, mem, h, 0, zero, region, 0, NULL, NULL)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clEnqueueMapImage of it, map_image_and_unmap(queue, h)) \
	R(IMAGE, CL_INVALID_MEM_OBJECT, clReleaseMemObject of an image, d->clReleaseMemObject(h)) \
	R(SAMPLER, CL_INVALID_SAMPLER, clRetainSampler, d->clRetainSampler(h)) \
	R(SAMPLER, CL_INVALID_SAMPLER, clReleaseSampler, d->clReleaseSampler(h)) \
	R(SAMPLER, CL_INVALID_SAMPLER, clGetSamplerInfo, d->clGetSamplerInfo(h, CL_SAMPLER_FILTER_MODE, 64, bytes, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clRetainMemObject, d->clRetainMemObject(h)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clReleaseMemObject, d->clReleaseMemObject(h)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clGetMemObjectInfo, d->clGetMemObjectInfo(h, CL_MEM_SIZE, 64, bytes, &size)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clGetImageInfo, d->clGetImageInfo(h, CL_IMAGE_FORMAT, 64, bytes, &size)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clSetMemObjectDestructorCallback, d->clSetMemObjectDestructorCallback(h, on_mem, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clCreateSubBuffer, CREATES(clCreateSubBuffer(h, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &r), clReleaseMemObject)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clEnqueueReadBuffer of it, d->clEnqueueReadBuffer(queue, h, CL_TRUE, 0, 64, bytes, 0, NULL, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clEnqueueCopyBuffer to it, d->clEnqueueCopyBuffer(queue, mem, h, 0, 64, 64, 0, NULL, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clEnqueueMigrateMemObjects of it, d->clEnqueueMigrateMemObjects(queue, 1, (cl_mem *)&h, 0, 0, NULL, NULL)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clRetainProgram, d->clRetainProgram(h)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clReleaseProgram, d->clReleaseProgram(h)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clBuildProgram, d->clBuildProgram(h, 0, NULL, "-no-such-option", NULL, NULL)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clCompileProgram, d->clCompileProgram(h, 0, NULL, "-no-such-option", 0, NULL, NULL, NULL, NULL)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clGetProgramInfo, d->clGetProgramInfo(h, CL_PROGRAM_NUM_DEVICES, 64, bytes, NULL)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clGetProgramBuildInfo, d->clGetProgramBuildInfo(h, device, CL_PROGRAM_BUILD_STATUS, 64, bytes, NULL)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clCreateKernel, CREATES(clCreateKernel(h, "spin", &r), clReleaseKernel)) \
	R(PROGRAM, CL_INVALID_PROGRAM, clCreateKernelsInProgram, d->clCreateKernelsInProgram(h, 0, NULL, &number)) \
	R(KERNEL, CL_INVALID_KERNEL, clRetainKernel, d->clRetainKernel(h)) \
	R(KERNEL, CL_INVALID_KERNEL, clReleaseKernel, d->clReleaseKernel(h)) \
	R(KERNEL, CL_INVALID_KERNEL, clSetKernelArg, d->clSetKernelArg(h, 0, sizeof(mem), &mem)) \
	R(KERNEL, CL_INVALID_KERNEL, clGetKernelInfo, d->clGetKernelInfo(h, CL_KERNEL_NUM_ARGS, 64, bytes, NULL)) \
	R(KERNEL, CL_INVALID_KERNEL, clGetKernelArgInfo, d->clGetKernelArgInfo(h, 0, CL_KERNEL_ARG_NAME, 64, bytes, NULL)) \
	R(KERNEL, CL_INVALID_KERNEL, clGetKernelWorkGroupInfo, d->clGetKernelWorkGroupInfo(h, device, CL_KERNEL_WORK_GROUP_SIZE, 64, bytes, NULL)) \
	R(KERNEL, CL_INVALID_KERNEL, clEnqueueNDRangeKernel of it, d->clEnqueueNDRangeKernel(queue, h, 1, NULL, &one, NULL, 0, NULL, NULL)) \
	R(EVENT, CL_INVALID_EVENT, clRetainEvent, d->clRetainEvent(h)) \
	R(EVENT, CL_INVALID_EVENT, clReleaseEvent, d->clReleaseEvent(h)) \
	R(EVENT, CL_INVALID_EVENT, clWaitForEvents, d->clWaitForEvents(1, (cl_event *)&h)) \
	R(EVENT, CL_INVALID_EVENT, clGetEventInfo, d->clGetEventInfo(h, CL_EVENT_COMMAND_TYPE, 64, bytes, NULL)) \
	R(EVENT, CL_INVALID_EVENT, clGetEventProfilingInfo, d->clGetEventProfilingInfo(h, CL_PROFILING_COMMAND_END, 64, bytes, NULL)) \
	R(EVENT, CL_INVALID_EVENT, clSetUserEventStatus, d->clSetUserEventStatus(h, CL_COMPLETE)) \
	R(EVENT, CL_INVALID_EVENT, clSetEventCallback, d->clSetEventCallback(h, CL_COMPLETE, on_event, NULL)) \
	R(EVENT, CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList behind it, d->clEnqueueMarkerWithWaitList(queue, 1, (cl_event *)&h, NULL)) \
	R(EVENT, CL_INVALID_EVENT, clEnqueueWaitForEvents, d->clEnqueueWaitForEvents(queue, 1, (cl_event *)&h)) \
	R(DEVICE, CL_INVALID_DEVICE, clRetainDevice, retain_and_release(h)) \
	R(DEVICE, CL_INVALID_DEVICE, clReleaseDevice, d->clReleaseDevice(h)) \
	R(DEVICE, CL_INVALID_DEVICE, clGetDeviceInfo, d->clGetDeviceInfo(h, CL_DEVICE_PARTITION_TYPE, 64, bytes, NULL)) \
	R(DEVICE, CL_INVALID_DEVICE, clCreateSubDevices, divide(h)) \
	R(DEVICE, CL_INVALID_DEVICE, clCreateContext and a queue, work_on(h)) \
	R(DEVICE, CL_INVALID_DEVICE, clCreateSubDevicesEXT, d->clCreateSubDevicesEXT(h, NULL, 1, &(cl_device_id){ NULL }, &number)) \
	R(DEVICE, CL_INVALID_DEVICE, clRetainDeviceEXT, retain_and_release_ext(h)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromGLBuffer, CREATES(clCreateFromGLBuffer(h, 0, 1, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromGLTexture, CREATES(clCreateFromGLTexture(h, 0, 0, 0, 1, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromGLTexture2D, CREATES(clCreateFromGLTexture2D(h, 0, 0, 0, 1, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromGLTexture3D, CREATES(clCreateFromGLTexture3D(h, 0, 0, 0, 1, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromGLRenderbuffer, CREATES(clCreateFromGLRenderbuffer(h, 0, 1, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateEventFromGLsyncKHR, CREATES(clCreateEventFromGLsyncKHR(h, NULL, &r), clReleaseEvent)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateFromEGLImageKHR, CREATES(clCreateFromEGLImageKHR(h, NULL, NULL, 0, NULL, &r), clReleaseMemObject)) \
	R(CONTEXT, CL_INVALID_CONTEXT, clCreateEventFromEGLSyncKHR, CREATES(clCreateEventFromEGLSyncKHR(h, NULL, NULL, &r), clReleaseEvent)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueAcquireGLObjects, d->clEnqueueAcquireGLObjects(h, 1, &mem, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueReleaseGLObjects, d->clEnqueueReleaseGLObjects(h, 1, &mem, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueAcquireEGLObjectsKHR, d->clEnqueueAcquireEGLObjectsKHR(h, 1, &mem, 0, NULL, NULL)) \
	R(QUEUE, CL_INVALID_COMMAND_QUEUE, clEnqueueReleaseEGLObjectsKHR, d->clEnqueueReleaseEGLObjectsKHR(h, 1, &mem, 0, NULL, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clGetGLObjectInfo, d->clGetGLObjectInfo(h, NULL, NULL)) \
	R(MEM, CL_INVALID_MEM_OBJECT, clGetGLTextureInfo, d->clGetGLTextureInfo(h, 0, 64, bytes, NULL))
/* clang-format on */

static cl_int map_and_unmap(cl_command_queue q, cl_mem mem)
{
	cl_int r = CL_SUCCESS;
	void *at = d->clEnqueueMapBuffer(q, mem, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &r);

	if (at && r == CL_SUCCESS)
		(void)d->clEnqueueUnmapMemObject(q, mem, at, 0, NULL, NULL);
	return r;
}

static cl_int map_image_and_unmap(cl_command_queue q, cl_mem mem)
{
	cl_int r = CL_SUCCESS;
	size_t row, slice;
	void *at = d->clEnqueueMapImage(q, mem, CL_TRUE, CL_MAP_READ, zero, region, &row, &slice, 0,
					NULL, NULL, &r);

	if (at && r == CL_SUCCESS)
		(void)d->clEnqueueUnmapMemObject(q, mem, at, 0, NULL, NULL);
	return r;
}

struct row {
	enum kind kind;
	cl_int code;
	const char *name;
};

static const struct row rows[] = {
#define ROW(kind, code, name, call) { kind, code, #name },
	ROWS(ROW)
#undef ROW
};

#define NROWS ((unsigned)(sizeof(rows) / sizeof(rows[0])))

static cl_int call_row(unsigned row, void *h, cl_command_queue queue, cl_mem mem, cl_kernel kernel)
{
	unsigned n = 0;

#define CALL(kind, code, name, call) \
	if (row == n++)              \
		return call;
	ROWS(CALL)
#undef CALL
	return CL_SUCCESS;
}

/* ---- objects of each kind ---- */

static const struct world *world;

static cl_event event_new(cl_context context, cl_command_queue queue, bool is_user)
{
	cl_event event = NULL;
	cl_int r;

	if (!is_user)
		return d->clEnqueueMarkerWithWaitList(queue, 0, NULL, &event) == CL_SUCCESS ? event
											    : NULL;
	event = d->clCreateUserEvent(context, &r);
	if (event)
		(void)d->clSetUserEventStatus(event, CL_COMPLETE);
	return event;
}

static cl_kernel kernel_new(void)
{
	const cl_uint turns = 10;
	cl_int r;
	cl_kernel kernel = d->clCreateKernel(world->program, "spin", &r);

	if (kernel)
		(void)d->clSetKernelArg(kernel, 1, sizeof(turns), &turns);
	return kernel;
}

static cl_device_id device_new(void)
{
	cl_device_id made = NULL;

	(void)d->clCreateSubDevices(device, single, 1, &made, NULL);
	return made;
}

static void *object_new(enum kind kind, cl_context context, cl_command_queue queue, unsigned seed)
{
	cl_int r;

	switch (kind) {
	case CONTEXT:
		return d->clCreateContext(NULL, 1, &device, NULL, NULL, &r);
	case QUEUE:
		return d->clCreateCommandQueue(
			context, device, seed % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &r);
	case MEM:
		return d->clCreateBuffer(context, 0, 1024, NULL, &r);
	case PROGRAM:
		return d->clCreateProgramWithSource(context, 1, &text, NULL, &r);
	case KERNEL:
		return kernel_new();
	case DEVICE:
		return device_new();
	case IMAGE:
		return d->clCreateImage(context, 0, &format, &desc, NULL, &r);
	case SAMPLER:
		return d->clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST,
					  &r);
	default:
		return event_new(context, queue, seed % 2);
	}
}

static void release(enum kind kind, void *h)
{
	switch (kind) {
	case CONTEXT:
		(void)d->clReleaseContext(h);
		break;
	case QUEUE:
		(void)d->clReleaseCommandQueue(h);
		break;
	case MEM:
	case IMAGE:
		(void)d->clReleaseMemObject(h);
		break;
	case PROGRAM:
		(void)d->clReleaseProgram(h);
		break;
	case KERNEL:
		(void)d->clReleaseKernel(h);
		break;
	case SAMPLER:
		(void)d->clReleaseSampler(h);
		break;
	case DEVICE:
		(void)d->clReleaseDevice(h);
		break;
	default:
		(void)d->clReleaseEvent(h);
		break;
	}
}

static void begin(const struct world *w)
{
	world = w;
	device = w->device;
	d = *(const struct _cl_icd_dispatch *const *)(const void *)w->platform;
}

/* ---- handles that are none ---- */

static void bad_handle(const struct world *w, const char *what, enum kind kind, void *h, cl_mem mem,
		       cl_kernel kernel)
{
	unsigned nwrong = 0;

	for (unsigned row = 0; row < NROWS; row++) {
		cl_int got;

		if (rows[row].kind != kind)
			continue;
		got = call_row(row, h, w->queue, mem, kernel);
		if (got == rows[row].code)
			continue;
		expect(got, rows[row].code, rows[row].name);
		nwrong++;
	}
	expect_true(nwrong == 0, what);
}

/* What is shared with OpenGL and EGL, with handles that are good: no context here is one of theirs. */
static void misuse_graphics(const struct world *w, cl_mem mem)
{
	cl_int r = CL_SUCCESS;

	expect_true(!d->clCreateFromGLBuffer(w->context, 0, 1, &r) && r == CL_INVALID_CONTEXT,
		    "clCreateFromGLBuffer without OpenGL");
	expect(d->clGetGLObjectInfo(mem, NULL, NULL), CL_INVALID_GL_OBJECT,
	       "clGetGLObjectInfo of a buffer");
	expect(d->clEnqueueAcquireGLObjects(w->queue, 1, &mem, 0, NULL, NULL), CL_INVALID_CONTEXT,
	       "clEnqueueAcquireGLObjects without OpenGL");
	expect(d->clGetGLContextInfoKHR(NULL, 0, 0, NULL, NULL), -1000, "clGetGLContextInfoKHR");
	expect_true(!d->clCreateFromEGLImageKHR(w->context, NULL, NULL, 0, NULL, &r) &&
			    r == CL_INVALID_OPERATION,
		    "clCreateFromEGLImageKHR without the extension");
	expect(d->clEnqueueReleaseEGLObjectsKHR(w->queue, 1, &mem, 0, NULL, NULL), -1093,
	       "clEnqueueReleaseEGLObjectsKHR of a buffer");
	expect_true(!d->clCreateEventFromEGLSyncKHR(w->context, NULL, NULL, &r) && r == -1093,
		    "clCreateEventFromEGLSyncKHR");
	expect(d->clCreateSubDevicesEXT(device, NULL, 0, NULL, NULL), CL_INVALID_VALUE,
	       "clCreateSubDevicesEXT");
}

void probe_bad_handles(const struct world *w)
{
	uint64_t stray[64] = { 0 };
	void *objects[NKINDS];

	begin(w);
	for (unsigned kind = 0; kind < NKINDS; kind++)
		objects[kind] = object_new((enum kind)kind, w->context, w->queue, kind);
	for (unsigned kind = 0; kind < NKINDS; kind++) {
		void *stale = object_new((enum kind)kind, w->context, w->queue, 1);
		const struct {
			const char *name;
			void *h;
		} bad[] = {
			{ "NULL for a handle", NULL },
			{ "memory of the program for a handle", stray },
			{ "another object's handle", objects[(kind + 1) % NKINDS] },
			{ "the middle of an object", (char *)objects[kind] + 8 },
			{ "an object that was released", stale },
			{ "an address that is none", (void *)UINTPTR_MAX },
		};

		release((enum kind)kind, stale);
		for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			bad_handle(w, bad[i].name, (enum kind)kind, bad[i].h, objects[MEM],
				   objects[KERNEL]);
	}
	misuse_graphics(w, objects[MEM]);
	for (unsigned kind = 0; kind < NKINDS; kind++)
		release((enum kind)kind, objects[kind]);
}

/* ---- from many threads ---- */

static void *slots[NKINDS][NSLOTS];
static unsigned nturns;

static unsigned next(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void *any(enum kind kind, unsigned *state)
{
	return __atomic_load_n(&slots[kind][next(state) % NSLOTS], __ATOMIC_RELAXED);
}

static void turn(unsigned *state)
{
	enum kind kind = (enum kind)(next(state) % NKINDS);
	unsigned what = next(state) % 100, row = next(state) % NROWS;
	void *fresh;

	/* Each binary costs a process of the host's, which is not what is tried here. */
	if (strcmp(rows[row].name, "clCreateProgramWithBinary") == 0)
		row = 0;
	if (what < 25) {
		fresh = object_new(kind, any(CONTEXT, state), any(QUEUE, state), next(state));
		fresh = __atomic_exchange_n(&slots[kind][next(state) % NSLOTS], fresh,
					    __ATOMIC_RELAXED);
		release(kind, fresh);
	} else if (what < 40) {
		release(kind, any(kind, state)); /* and it stays in its slot */
	} else {
		(void)call_row(row, any(rows[row].kind, state), any(QUEUE, state), any(MEM, state),
			       any(KERNEL, state));
	}
}

static void *storm_main(void *arg)
{
	unsigned state = (unsigned)(uintptr_t)arg * 2654435761u;

	for (unsigned i = 0; i < nturns; i++)
		turn(&state);
	return NULL;
}

/* Whatever they do to each other, the program's honest part goes on. */
void probe_storm(const struct world *w, unsigned turns)
{
	pthread_t threads[NTHREADS];
	uint32_t word = 0;
	cl_int r;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 64, NULL, &r);

	must(r, "clCreateBuffer");
	begin(w);
	nturns = turns;
	for (unsigned kind = 0; kind < NKINDS; kind++)
		for (unsigned i = 0; i < NSLOTS; i++)
			slots[kind][i] = object_new((enum kind)kind, w->context, w->queue, i);
	for (uintptr_t i = 0; i < NTHREADS; i++)
		if (pthread_create(&threads[i], NULL, storm_main, (void *)(i + 1)) != 0)
			exit(1);
	for (unsigned i = 0; i < NTHREADS; i++)
		(void)pthread_join(threads[i], NULL);
	must(cl.EnqueueFillBuffer(w->queue, mem, "abcd", 4, 0, 64, 0, NULL, NULL), "fill");
	must(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 60, 4, &word, 0, NULL, NULL), "read");
	expect_true(memcmp(&word, "abcd", 4) == 0, "work after the storm");
	for (unsigned kind = NKINDS; kind-- > 0;)
		for (unsigned i = 0; i < NSLOTS; i++)
			release((enum kind)kind, slots[kind][i]);
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}
