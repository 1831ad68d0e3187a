/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects shared with OpenGL and EGL, which no context here was made for, and extensions that are not here but have places in
 * the loader's table. Loaders call what they find there without a look: an empty place would end the program.
 */
#include "guest-shim/opencl/calls.h"

#ifndef CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR
#define CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR (-1000)
#endif
#ifndef CL_INVALID_EGL_OBJECT_KHR
#define CL_INVALID_EGL_OBJECT_KHR (-1093)
#endif

/* What these are given besides a handle is of no use. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static bool has(const void *handle, enum icd_type type)
{
	bool found;

	icd_gate_lock();
	found = icd_object_get(handle, type) != NULL;
	icd_gate_unlock();
	return found;
}

/* ---- of OpenGL: a context that was not made of one of its contexts is an invalid one, as one that is none ---- */

cl_mem CL_API_CALL icd_clCreateFromGLBuffer(cl_context context, cl_mem_flags flags,
					    cl_GLuint buffer, cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

cl_mem CL_API_CALL icd_clCreateFromGLTexture(cl_context context, cl_mem_flags flags,
					     cl_GLenum target, cl_GLint level, cl_GLuint texture,
					     cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

cl_mem CL_API_CALL icd_clCreateFromGLTexture2D(cl_context context, cl_mem_flags flags,
					       cl_GLenum target, cl_GLint level, cl_GLuint texture,
					       cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

cl_mem CL_API_CALL icd_clCreateFromGLTexture3D(cl_context context, cl_mem_flags flags,
					       cl_GLenum target, cl_GLint level, cl_GLuint texture,
					       cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

cl_mem CL_API_CALL icd_clCreateFromGLRenderbuffer(cl_context context, cl_mem_flags flags,
						  cl_GLuint renderbuffer, cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

cl_event CL_API_CALL icd_clCreateEventFromGLsyncKHR(cl_context context, cl_GLsync sync, cl_int *ret)
{
	return icd_result(ret, CL_INVALID_CONTEXT, NULL);
}

static cl_int of_mem(cl_mem mem)
{
	return has(mem, ICD_MEM) ? CL_INVALID_GL_OBJECT : CL_INVALID_MEM_OBJECT;
}

cl_int CL_API_CALL icd_clGetGLObjectInfo(cl_mem mem, cl_gl_object_type *ret_type,
					 cl_GLuint *ret_name)
{
	return of_mem(mem);
}

cl_int CL_API_CALL icd_clGetGLTextureInfo(cl_mem mem, cl_gl_texture_info what, size_t size,
					  void *value, size_t *ret_size)
{
	return of_mem(mem);
}

/* The queue's context is none of OpenGL's. */
static cl_int of_queue(cl_command_queue q, cl_int result)
{
	return has(q, ICD_QUEUE) ? result : CL_INVALID_COMMAND_QUEUE;
}

cl_int CL_API_CALL icd_clEnqueueAcquireGLObjects(cl_command_queue q, cl_uint n, const cl_mem *mems,
						 cl_uint nevents, const cl_event *events,
						 cl_event *ret_event)
{
	return of_queue(q, CL_INVALID_CONTEXT);
}

cl_int CL_API_CALL icd_clEnqueueReleaseGLObjects(cl_command_queue q, cl_uint n, const cl_mem *mems,
						 cl_uint nevents, const cl_event *events,
						 cl_event *ret_event)
{
	return of_queue(q, CL_INVALID_CONTEXT);
}

cl_int CL_API_CALL icd_clGetGLContextInfoKHR(const cl_context_properties *properties,
					     cl_gl_context_info what, size_t size, void *value,
					     size_t *ret_size)
{
	return CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR;
}

/* ---- of EGL ---- */

cl_mem CL_API_CALL icd_clCreateFromEGLImageKHR(cl_context context, CLeglDisplayKHR display,
					       CLeglImageKHR image, cl_mem_flags flags,
					       const cl_egl_image_properties_khr *properties,
					       cl_int *ret)
{
	return icd_result(
		ret, has(context, ICD_CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT, NULL);
}

cl_int CL_API_CALL icd_clEnqueueAcquireEGLObjectsKHR(cl_command_queue q, cl_uint n,
						     const cl_mem *mems, cl_uint nevents,
						     const cl_event *events, cl_event *ret_event)
{
	return of_queue(q, CL_INVALID_EGL_OBJECT_KHR);
}

cl_int CL_API_CALL icd_clEnqueueReleaseEGLObjectsKHR(cl_command_queue q, cl_uint n,
						     const cl_mem *mems, cl_uint nevents,
						     const cl_event *events, cl_event *ret_event)
{
	return of_queue(q, CL_INVALID_EGL_OBJECT_KHR);
}

cl_event CL_API_CALL icd_clCreateEventFromEGLSyncKHR(cl_context context, CLeglSyncKHR sync,
						     CLeglDisplayKHR display, cl_int *ret)
{
	return icd_result(
		ret, has(context, ICD_CONTEXT) ? CL_INVALID_EGL_OBJECT_KHR : CL_INVALID_CONTEXT,
		NULL);
}

/* ---- sub-devices as they were before OpenCL 1.2: programs that look find that the extension is not there ---- */

cl_int CL_API_CALL icd_clCreateSubDevicesEXT(cl_device_id device,
					     const cl_device_partition_property_ext *properties,
					     cl_uint n, cl_device_id *devices, cl_uint *ret_n)
{
	return icd_clGetDeviceInfo(device, CL_DEVICE_TYPE, 0, NULL, NULL) == CL_SUCCESS
		       ? CL_INVALID_VALUE
		       : CL_INVALID_DEVICE;
}

cl_int CL_API_CALL icd_clRetainDeviceEXT(cl_device_id device)
{
	return icd_clRetainDevice(device);
}

cl_int CL_API_CALL icd_clReleaseDeviceEXT(cl_device_id device)
{
	return icd_clReleaseDevice(device);
}

cl_int CL_API_CALL icd_clGetKernelSubGroupInfoKHR(cl_kernel kernel, cl_device_id device,
						  cl_kernel_sub_group_info what, size_t ninput,
						  const void *input, size_t size, void *value,
						  size_t *ret_size)
{
	return icd_clGetKernelSubGroupInfo(kernel, device, what, ninput, input, size, value,
					   ret_size);
}
