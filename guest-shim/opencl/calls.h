/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of OpenCL that this driver has, as the loader's table names them. */
#ifndef GANTRY_GUEST_SHIM_OPENCL_CALLS_H
#define GANTRY_GUEST_SHIM_OPENCL_CALLS_H

#include "guest-shim/opencl/icd.h"

/* clang-format off */
#define ICD_CALLS(C) \
	C(clGetPlatformIDs) C(clGetPlatformInfo) C(clGetDeviceIDs) C(clGetDeviceInfo) C(clCreateContext) \
	C(clCreateContextFromType) C(clRetainContext) C(clReleaseContext) C(clGetContextInfo) \
	C(clCreateCommandQueue) C(clRetainCommandQueue) C(clReleaseCommandQueue) C(clGetCommandQueueInfo) \
	C(clSetCommandQueueProperty) C(clCreateBuffer) C(clCreateImage2D) C(clCreateImage3D) \
	C(clRetainMemObject) C(clReleaseMemObject) C(clGetSupportedImageFormats) C(clGetMemObjectInfo) \
	C(clGetImageInfo) C(clCreateSampler) C(clRetainSampler) C(clReleaseSampler) C(clGetSamplerInfo) \
	C(clCreateProgramWithSource) C(clCreateProgramWithBinary) C(clRetainProgram) C(clReleaseProgram) \
	C(clBuildProgram) C(clUnloadCompiler) C(clGetProgramInfo) C(clGetProgramBuildInfo) \
	C(clCreateKernel) C(clCreateKernelsInProgram) C(clRetainKernel) C(clReleaseKernel) \
	C(clSetKernelArg) C(clGetKernelInfo) C(clGetKernelWorkGroupInfo) C(clWaitForEvents) \
	C(clGetEventInfo) C(clRetainEvent) C(clReleaseEvent) C(clGetEventProfilingInfo) C(clFlush) \
	C(clFinish) C(clEnqueueReadBuffer) C(clEnqueueWriteBuffer) C(clEnqueueCopyBuffer) \
	C(clEnqueueReadImage) C(clEnqueueWriteImage) C(clEnqueueCopyImage) C(clEnqueueCopyImageToBuffer) \
	C(clEnqueueCopyBufferToImage) C(clEnqueueMapBuffer) C(clEnqueueMapImage) \
	C(clEnqueueUnmapMemObject) C(clEnqueueNDRangeKernel) C(clEnqueueTask) C(clEnqueueNativeKernel) \
	C(clEnqueueMarker) C(clEnqueueWaitForEvents) C(clEnqueueBarrier) C(clGetExtensionFunctionAddress) \
	C(clSetEventCallback) C(clCreateSubBuffer) C(clSetMemObjectDestructorCallback) \
	C(clCreateUserEvent) C(clSetUserEventStatus) C(clEnqueueReadBufferRect) \
	C(clEnqueueWriteBufferRect) C(clEnqueueCopyBufferRect) C(clCreateSubDevices) C(clRetainDevice) \
	C(clReleaseDevice) C(clCreateImage) C(clCreateProgramWithBuiltInKernels) C(clCompileProgram) \
	C(clLinkProgram) C(clUnloadPlatformCompiler) C(clGetKernelArgInfo) C(clEnqueueFillBuffer) \
	C(clEnqueueFillImage) C(clEnqueueMigrateMemObjects) C(clEnqueueMarkerWithWaitList) \
	C(clEnqueueBarrierWithWaitList) C(clGetExtensionFunctionAddressForPlatform) \
	C(clCreateCommandQueueWithProperties) C(clCreatePipe) C(clGetPipeInfo) C(clSVMAlloc) C(clSVMFree) \
	C(clEnqueueSVMFree) C(clEnqueueSVMMemcpy) C(clEnqueueSVMMemFill) C(clEnqueueSVMMap) \
	C(clEnqueueSVMUnmap) C(clCreateSamplerWithProperties) C(clSetKernelArgSVMPointer) \
	C(clSetKernelExecInfo) C(clCloneKernel) C(clCreateProgramWithIL) C(clEnqueueSVMMigrateMem) \
	C(clGetDeviceAndHostTimer) C(clGetHostTimer) C(clGetKernelSubGroupInfo) \
	C(clSetDefaultDeviceCommandQueue) C(clSetProgramReleaseCallback) \
	C(clSetProgramSpecializationConstant) C(clCreateBufferWithProperties) \
	C(clCreateImageWithProperties) C(clSetContextDestructorCallback) \
	C(clCreateFromGLBuffer) C(clCreateFromGLTexture) C(clCreateFromGLTexture2D) \
	C(clCreateFromGLTexture3D) C(clCreateFromGLRenderbuffer) C(clGetGLObjectInfo) \
	C(clGetGLTextureInfo) C(clEnqueueAcquireGLObjects) C(clEnqueueReleaseGLObjects) \
	C(clGetGLContextInfoKHR) C(clCreateEventFromGLsyncKHR) C(clCreateFromEGLImageKHR) \
	C(clEnqueueAcquireEGLObjectsKHR) C(clEnqueueReleaseEGLObjectsKHR) \
	C(clCreateEventFromEGLSyncKHR) C(clCreateSubDevicesEXT) C(clRetainDeviceEXT) \
	C(clReleaseDeviceEXT) C(clGetKernelSubGroupInfoKHR)
/* clang-format on */

#define ICD_DECLARE(name) extern __typeof__(name) icd_##name;
ICD_CALLS(ICD_DECLARE)
#undef ICD_DECLARE

#endif
