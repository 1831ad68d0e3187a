/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenCL as a library loaded at run time: the loader that vendors' drivers are found through, and the choice of one
 * device of one platform.
 *
 * Nothing of OpenCL is linked: a binary serves machines with and without it.
 *
 * Threads: any; loading is under a lock. Blocking: the first call starts every vendor's driver, which may take a second.
 */
#ifndef GANTRY_DEVICES_OPENCL_DRIVER_H
#define GANTRY_DEVICES_OPENCL_DRIVER_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"

/* All of OpenCL 1.2, so that they are wherever a loader is. */
#define GANTRY_OPENCL_FUNCTIONS(F)                                  \
	F(GetPlatformIDs, clGetPlatformIDs)                         \
	F(GetPlatformInfo, clGetPlatformInfo)                       \
	F(GetDeviceIDs, clGetDeviceIDs)                             \
	F(GetDeviceInfo, clGetDeviceInfo)                           \
	F(CreateSubDevices, clCreateSubDevices)                     \
	F(ReleaseDevice, clReleaseDevice)                           \
	F(CreateContext, clCreateContext)                           \
	F(ReleaseContext, clReleaseContext)                         \
	F(CreateCommandQueue, clCreateCommandQueue)                 \
	F(ReleaseCommandQueue, clReleaseCommandQueue)               \
	F(GetCommandQueueInfo, clGetCommandQueueInfo)               \
	F(CreateBuffer, clCreateBuffer)                             \
	F(CreateImage, clCreateImage)                               \
	F(GetSupportedImageFormats, clGetSupportedImageFormats)     \
	F(ReleaseMemObject, clReleaseMemObject)                     \
	F(CreateSampler, clCreateSampler)                           \
	F(ReleaseSampler, clReleaseSampler)                         \
	F(CreateProgramWithSource, clCreateProgramWithSource)       \
	F(CreateProgramWithBinary, clCreateProgramWithBinary)       \
	F(BuildProgram, clBuildProgram)                             \
	F(ReleaseProgram, clReleaseProgram)                         \
	F(GetProgramInfo, clGetProgramInfo)                         \
	F(GetProgramBuildInfo, clGetProgramBuildInfo)               \
	F(CreateKernel, clCreateKernel)                             \
	F(CreateKernelsInProgram, clCreateKernelsInProgram)         \
	F(ReleaseKernel, clReleaseKernel)                           \
	F(SetKernelArg, clSetKernelArg)                             \
	F(GetKernelInfo, clGetKernelInfo)                           \
	F(GetKernelArgInfo, clGetKernelArgInfo)                     \
	F(GetKernelWorkGroupInfo, clGetKernelWorkGroupInfo)         \
	F(EnqueueNDRangeKernel, clEnqueueNDRangeKernel)             \
	F(EnqueueReadBuffer, clEnqueueReadBuffer)                   \
	F(EnqueueWriteBuffer, clEnqueueWriteBuffer)                 \
	F(EnqueueReadImage, clEnqueueReadImage)                     \
	F(EnqueueWriteImage, clEnqueueWriteImage)                   \
	F(EnqueueCopyBuffer, clEnqueueCopyBuffer)                   \
	F(EnqueueFillBuffer, clEnqueueFillBuffer)                   \
	F(EnqueueBarrierWithWaitList, clEnqueueBarrierWithWaitList) \
	F(Flush, clFlush)                                           \
	F(Finish, clFinish)                                         \
	F(SetEventCallback, clSetEventCallback)                     \
	F(GetEventInfo, clGetEventInfo)                             \
	F(GetEventProfilingInfo, clGetEventProfilingInfo)           \
	F(ReleaseEvent, clReleaseEvent)

/* Of newer ones: NULL where the loader does not have them. */
#define GANTRY_OPENCL_NEWER_FUNCTIONS(F)              \
	F(CreateProgramWithIL, clCreateProgramWithIL) \
	F(SetProgramSpecializationConstant, clSetProgramSpecializationConstant)

struct gantry_opencl_driver {
#define GANTRY_OPENCL_MEMBER(member, symbol) __typeof__(symbol) *member;
	GANTRY_OPENCL_FUNCTIONS(GANTRY_OPENCL_MEMBER)
#undef GANTRY_OPENCL_MEMBER
	cl_program(CL_API_CALL *CreateProgramWithIL)(cl_context, const void *, size_t, cl_int *);
	cl_int(CL_API_CALL *SetProgramSpecializationConstant)(cl_program, cl_uint, size_t,
							      const void *);
};

/*
 * Loads @path (NULL: libOpenCL.so.1), without asking it for anything. *@ret_driver lives as long as the process. -ENODEV:
 * no such library, or one without OpenCL 1.2; -EBUSY: the process has loaded another one.
 */
int gantry_opencl_driver_open(const char *path, const struct gantry_opencl_driver **ret_driver,
			      struct gantry_err *err);

/* One device, by what the configuration says. */
struct gantry_opencl_choice {
	const char *
		platform; /* its number, or part of its name; NULL: the first with a device that fits */
	const char *
		device; /* of that platform: its number among the devices, or part of its name; NULL: the first */
};

struct gantry_opencl_target {
	cl_platform_id platform;
	cl_device_id device;
};

/* "platform" and "device" of @conf. */
struct gantry_opencl_choice gantry_opencl_choice_of(const struct gantry_device_conf *conf);

/* -ENODEV: there is none such, with a sentence that says what there is. */
int gantry_opencl_choose(const struct gantry_opencl_driver *driver,
			 const struct gantry_opencl_choice *choice,
			 struct gantry_opencl_target *ret_target, struct gantry_err *err);

/* What OpenCL answers for @what, or @otherwise where it does not. */
uint64_t gantry_opencl_number(const struct gantry_opencl_driver *driver, cl_device_id device,
			      cl_device_info what, uint64_t otherwise);
/* The same of texts, cut to @cap; "" where it does not. */
void gantry_opencl_text(const struct gantry_opencl_driver *driver, cl_device_id device,
			cl_device_info what, char *text, size_t cap);
void gantry_opencl_platform_text(const struct gantry_opencl_driver *driver, cl_platform_id platform,
				 cl_platform_info what, char *text, size_t cap);

/* Of OpenCL 2.1, which the headers for 1.2 do not name. */
#define GANTRY_OPENCL_IL_VERSION 0x105Bu /* CL_DEVICE_IL_VERSION */

/* The name of a result of OpenCL 1.2, "CL_INVALID_VALUE"; "an OpenCL error" for others. */
const char *gantry_opencl_error(cl_int result);
/* 0 or the -errno nearest to @result. */
int gantry_opencl_errno(cl_int result);
/* As gantry_err_set(), of a call that failed: "@what: CL_...". 0 for success, with @err untouched. */
int gantry_opencl_err(cl_int result, const char *what, struct gantry_err *err);

#endif
