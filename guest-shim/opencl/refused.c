/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What OpenCL has and no device here: native kernels, shared virtual memory,
 * and what came with OpenCL 2.0 and later, which programs may call of a driver of 1.2 all the same.
 */
#include "guest-shim/opencl/calls.h"

static bool has(const void *handle, enum icd_type type)
{
	bool found;

	icd_gate_lock();
	found = icd_object_get(handle, type) != NULL;
	icd_gate_unlock();
	return found;
}

static cl_int unless_queue(cl_command_queue q, cl_int result)
{
	return has(q, ICD_QUEUE) ? result : CL_INVALID_COMMAND_QUEUE;
}

static void *unless_context(cl_context context, cl_int *ret)
{
	return icd_result(
		ret, has(context, ICD_CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT, NULL);
}

void *CL_API_CALL icd_clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t bytes,
				 cl_uint align)
{
	(void)context;
	(void)flags;
	(void)bytes;
	(void)align;
	return NULL;
}

void CL_API_CALL icd_clSVMFree(cl_context context, void *at)
{
	(void)context;
	(void)at;
}

cl_int CL_API_CALL icd_clEnqueueNativeKernel(cl_command_queue command_queue,
					     void(CL_CALLBACK *user_func)(void *), void *args,
					     size_t cb_args, cl_uint num_mem_objects,
					     const cl_mem *mem_list, const void **args_mem_loc,
					     cl_uint num_events_in_wait_list,
					     const cl_event *event_wait_list, cl_event *event)
{
	(void)user_func;
	(void)args;
	(void)cb_args;
	(void)num_mem_objects;
	(void)mem_list;
	(void)args_mem_loc;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clGetPipeInfo(cl_mem pipe, cl_pipe_info param_name, size_t param_value_size,
				     void *param_value, size_t *param_value_size_ret)
{
	(void)pipe;
	(void)param_name;
	(void)param_value_size;
	(void)param_value;
	(void)param_value_size_ret;
	return CL_INVALID_MEM_OBJECT;
}

cl_int CL_API_CALL icd_clEnqueueSVMFree(
	cl_command_queue command_queue, cl_uint num_svm_pointers, void *svm_pointers[],
	void(CL_CALLBACK *pfn_free_func)(cl_command_queue queue, cl_uint num_svm_pointers,
					 void *svm_pointers[], void *user_data),
	void *user_data, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
	cl_event *event)
{
	(void)num_svm_pointers;
	(void)svm_pointers;
	(void)pfn_free_func;
	(void)user_data;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clEnqueueSVMMemcpy(cl_command_queue command_queue, cl_bool blocking_copy,
					  void *dst_ptr, const void *src_ptr, size_t size,
					  cl_uint num_events_in_wait_list,
					  const cl_event *event_wait_list, cl_event *event)
{
	(void)blocking_copy;
	(void)dst_ptr;
	(void)src_ptr;
	(void)size;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clEnqueueSVMMemFill(cl_command_queue command_queue, void *svm_ptr,
					   const void *pattern, size_t pattern_size, size_t size,
					   cl_uint num_events_in_wait_list,
					   const cl_event *event_wait_list, cl_event *event)
{
	(void)svm_ptr;
	(void)pattern;
	(void)pattern_size;
	(void)size;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clEnqueueSVMMap(cl_command_queue command_queue, cl_bool blocking_map,
				       cl_map_flags flags, void *svm_ptr, size_t size,
				       cl_uint num_events_in_wait_list,
				       const cl_event *event_wait_list, cl_event *event)
{
	(void)blocking_map;
	(void)flags;
	(void)svm_ptr;
	(void)size;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clEnqueueSVMUnmap(cl_command_queue command_queue, void *svm_ptr,
					 cl_uint num_events_in_wait_list,
					 const cl_event *event_wait_list, cl_event *event)
{
	(void)svm_ptr;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clEnqueueSVMMigrateMem(cl_command_queue command_queue,
					      cl_uint num_svm_pointers, const void **svm_pointers,
					      const size_t *sizes, cl_mem_migration_flags flags,
					      cl_uint num_events_in_wait_list,
					      const cl_event *event_wait_list, cl_event *event)
{
	(void)num_svm_pointers;
	(void)svm_pointers;
	(void)sizes;
	(void)flags;
	(void)num_events_in_wait_list;
	(void)event_wait_list;
	(void)event;
	return unless_queue(command_queue, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL icd_clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint arg_index,
						const void *arg_value)
{
	(void)kernel;
	(void)arg_index;
	(void)arg_value;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clSetKernelExecInfo(cl_kernel kernel, cl_kernel_exec_info param_name,
					   size_t param_value_size, const void *param_value)
{
	(void)kernel;
	(void)param_name;
	(void)param_value_size;
	(void)param_value;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clGetDeviceAndHostTimer(cl_device_id device, cl_ulong *device_timestamp,
					       cl_ulong *host_timestamp)
{
	(void)device;
	(void)device_timestamp;
	(void)host_timestamp;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp)
{
	(void)device;
	(void)host_timestamp;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device,
					       cl_kernel_sub_group_info param_name,
					       size_t input_value_size, const void *input_value,
					       size_t param_value_size, void *param_value,
					       size_t *param_value_size_ret)
{
	(void)kernel;
	(void)device;
	(void)param_name;
	(void)input_value_size;
	(void)input_value;
	(void)param_value_size;
	(void)param_value;
	(void)param_value_size_ret;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clSetDefaultDeviceCommandQueue(cl_context context, cl_device_id device,
						      cl_command_queue command_queue)
{
	(void)context;
	(void)device;
	(void)command_queue;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clSetProgramReleaseCallback(cl_program program,
						   void(CL_CALLBACK *pfn_notify)(cl_program program,
										 void *user_data),
						   void *user_data)
{
	(void)program;
	(void)pfn_notify;
	(void)user_data;
	return CL_INVALID_OPERATION;
}

cl_int CL_API_CALL icd_clSetContextDestructorCallback(
	cl_context context, void(CL_CALLBACK *pfn_notify)(cl_context context, void *user_data),
	void *user_data)
{
	(void)context;
	(void)pfn_notify;
	(void)user_data;
	return CL_INVALID_OPERATION;
}

cl_sampler CL_API_CALL icd_clCreateSamplerWithProperties(
	cl_context context, const cl_sampler_properties *sampler_properties, cl_int *errcode_ret)
{
	(void)sampler_properties;
	return unless_context(context, errcode_ret);
}

cl_mem CL_API_CALL icd_clCreatePipe(cl_context context, cl_mem_flags flags,
				    cl_uint pipe_packet_size, cl_uint pipe_max_packets,
				    const cl_pipe_properties *properties, cl_int *errcode_ret)
{
	(void)flags;
	(void)pipe_packet_size;
	(void)pipe_max_packets;
	(void)properties;
	return unless_context(context, errcode_ret);
}
