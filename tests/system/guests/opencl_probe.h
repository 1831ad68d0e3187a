/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host program in OpenCL as others write them: it knows nothing of Gantry. It is run against several platforms, and what it
 * prints is compared: lines "NAME VALUE". The loader is looked up at run time, so that the build needs no OpenCL.
 */
#ifndef OPENCL_PROBE_H
#define OPENCL_PROBE_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <CL/cl_icd.h>

#include <stdbool.h>
#include <stdint.h>

/* Every function of OpenCL 1.2 that the program calls, as cl.NAME. */
/* It is never laid out the same twice. */
/* clang-format off */
#define PROBE_CALLS(C) \
	C(GetPlatformIDs) \
	C(GetPlatformInfo) \
	C(GetDeviceIDs) \
	C(GetDeviceInfo) \
	C(CreateSubDevices) \
	C(RetainDevice) \
	C(ReleaseDevice) \
	C(CreateContext) \
	C(CreateContextFromType) \
	C(RetainContext) \
	C(ReleaseContext) \
	C(GetContextInfo) \
	C(CreateCommandQueue) \
	C(RetainCommandQueue) \
	C(ReleaseCommandQueue) \
	C(GetCommandQueueInfo) \
	C(CreateBuffer) \
	C(CreateSubBuffer) \
	C(RetainMemObject) \
	C(ReleaseMemObject) \
	C(GetMemObjectInfo) \
	C(SetMemObjectDestructorCallback) \
	C(CreateImage) \
	C(CreateImage2D) \
	C(GetSupportedImageFormats) \
	C(GetImageInfo) \
	C(CreateSampler) \
	C(RetainSampler) \
	C(ReleaseSampler) \
	C(GetSamplerInfo) \
	C(CreateProgramWithSource) \
	C(CreateProgramWithBinary) \
	C(CreateProgramWithBuiltInKernels) \
	C(RetainProgram) \
	C(ReleaseProgram) \
	C(BuildProgram) \
	C(CompileProgram) \
	C(LinkProgram) \
	C(GetProgramInfo) \
	C(GetProgramBuildInfo) \
	C(CreateKernel) \
	C(CreateKernelsInProgram) \
	C(RetainKernel) \
	C(ReleaseKernel) \
	C(SetKernelArg) \
	C(GetKernelInfo) \
	C(GetKernelArgInfo) \
	C(GetKernelWorkGroupInfo) \
	C(WaitForEvents) \
	C(GetEventInfo) \
	C(CreateUserEvent) \
	C(RetainEvent) \
	C(ReleaseEvent) \
	C(SetUserEventStatus) \
	C(SetEventCallback) \
	C(GetEventProfilingInfo) \
	C(Flush) \
	C(Finish) \
	C(EnqueueReadBuffer) \
	C(EnqueueWriteBuffer) \
	C(EnqueueReadBufferRect) \
	C(EnqueueWriteBufferRect) \
	C(EnqueueCopyBufferRect) \
	C(EnqueueFillBuffer) \
	C(EnqueueCopyBuffer) \
	C(EnqueueMapBuffer) \
	C(EnqueueMapImage) \
	C(EnqueueReadImage) \
	C(EnqueueWriteImage) \
	C(EnqueueCopyImage) \
	C(EnqueueFillImage) \
	C(EnqueueCopyImageToBuffer) \
	C(EnqueueCopyBufferToImage) \
	C(EnqueueUnmapMemObject) \
	C(EnqueueMigrateMemObjects) \
	C(EnqueueNDRangeKernel) \
	C(EnqueueTask) \
	C(EnqueueMarkerWithWaitList) \
	C(EnqueueBarrierWithWaitList)
/* clang-format on */

struct calls {
#define PROBE_MEMBER(name) __typeof__(cl##name) *name;
	PROBE_CALLS(PROBE_MEMBER)
#undef PROBE_MEMBER
};
extern struct calls cl;

/* What all parts use: made by main() of the platform that was asked for. */
struct world {
	cl_platform_id platform;
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_program program;
};

/* Ends the program unless @result is CL_SUCCESS. */
void must(cl_int result, const char *what);
/* Prints "ok NAME", or "not ok NAME" with both. */
void expect(cl_int got, cl_int wanted, const char *name);
void expect_true(bool yes, const char *name);
/* Prints "NAME SUM", of bytes that every platform must leave alike. */
void show_bytes(const char *name, const void *bytes, size_t n);
void show(const char *name, uint64_t value);
cl_kernel kernel_of(const struct world *w, const char *name);
/* A build of @text, which must succeed. */
cl_program program_of(const struct world *w, const char *text, const char *options);

void probe_buffers(const struct world *w);
void probe_kernels(const struct world *w);
void probe_programs(const struct world *w);
void probe_events(const struct world *w);
void probe_lifetimes(const struct world *w);
void probe_images(const struct world *w);
void probe_image_misuse(const struct world *w);
/* Every function that takes a handle, with handles that are none; by the driver's table: Gantry's only. */
void probe_bad_handles(const struct world *w);
/* Both: of a platform whose device has parts, or one compute unit. */
void probe_sub_devices(const struct world *w);
void probe_domains(const struct world *w);
void probe_cost(const struct world *w, unsigned units);
void probe_sub_device_misuse(const struct world *w);
/* Programs in the SPIR-V of that file. */
void probe_il(const struct world *w, const char *path);
void probe_il_misuse(const struct world *w, const char *path);
void probe_storm(const struct world *w, unsigned turns);
void probe_misuse(const struct world *w);

#endif
