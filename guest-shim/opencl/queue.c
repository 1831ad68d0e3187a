/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/opencl/calls.h"

#define PROPERTIES (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)

static struct _cl_command_queue *make(struct _cl_context *context, cl_device_id device,
				      cl_command_queue_properties properties, cl_int *ret_result)
{
	struct _cl_command_queue *q = icd_object_new(ICD_QUEUE);
	int r;

	*ret_result = CL_OUT_OF_HOST_MEMORY;
	if (!q)
		return NULL;
	q->device = device;
	q->properties = properties;
	r = icd_line_take(context->host, device->kind, &q->line);
	if (r == 0) {
		q->context = context;
		icd_object_hold(context);
		icd_object_hold(device);
		*ret_result = CL_SUCCESS;
		return q;
	}
	*ret_result = r == GANTRY_E_LIMIT ? CL_OUT_OF_RESOURCES : icd_status(r);
	icd_object_throw_away(q);
	return NULL;
}

void icd_queue_left(struct _cl_command_queue *q)
{
	struct _cl_event *barrier = q->barrier;

	q->barrier = NULL;
	icd_object_drop(barrier);
}

/* What has been put goes on: the queue of the session is another command queue's next. */
void icd_queue_end(struct _cl_command_queue *q)
{
	if (!q->context)
		return;
	icd_line_put(q->context->host, q->line);
	icd_object_drop(q->device);
	icd_object_drop(q->context);
}

cl_command_queue CL_API_CALL icd_clCreateCommandQueue(cl_context handle, cl_device_id device,
						      cl_command_queue_properties properties,
						      cl_int *ret)
{
	struct _cl_context *context;
	struct _cl_command_queue *q = NULL;
	cl_int result = CL_SUCCESS;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (!context)
		result = CL_INVALID_CONTEXT;
	else if (!icd_device_valid(device) || !icd_context_has(context, device))
		result = CL_INVALID_DEVICE;
	else if (properties & ~(cl_command_queue_properties)PROPERTIES)
		result = CL_INVALID_VALUE;
	else
		q = make(context, device, properties, &result);
	icd_gate_unlock();
	return icd_result(ret, result, q);
}

/* Of OpenCL 2.0, and wanted of any driver by programs that are compiled for it. */
cl_command_queue CL_API_CALL icd_clCreateCommandQueueWithProperties(cl_context context,
								    cl_device_id device,
								    const cl_queue_properties *list,
								    cl_int *ret)
{
	cl_command_queue_properties properties = 0;

	for (; list && *list; list += 2) {
		if (list[0] != CL_QUEUE_PROPERTIES)
			return icd_result(ret, CL_INVALID_VALUE, NULL);
		properties = (cl_command_queue_properties)list[1];
	}
	if (properties & ~(cl_command_queue_properties)PROPERTIES)
		return icd_result(ret, CL_INVALID_QUEUE_PROPERTIES, NULL);
	return icd_clCreateCommandQueue(context, device, properties, ret);
}

cl_int CL_API_CALL icd_clSetCommandQueueProperty(cl_command_queue q,
						 cl_command_queue_properties properties, cl_bool on,
						 cl_command_queue_properties *ret_old)
{
	(void)q;
	(void)properties;
	(void)on;
	(void)ret_old;
	return CL_INVALID_OPERATION; /* of OpenCL 1.0; as the standard has it since */
}

cl_int CL_API_CALL icd_clRetainCommandQueue(cl_command_queue q)
{
	return icd_object_retain(q, ICD_QUEUE, CL_INVALID_COMMAND_QUEUE);
}

cl_int CL_API_CALL icd_clReleaseCommandQueue(cl_command_queue q)
{
	return icd_object_release(q, ICD_QUEUE, CL_INVALID_COMMAND_QUEUE);
}

static cl_int info(const struct _cl_command_queue *q, cl_command_queue_info what,
		   const struct icd_to *to)
{
	switch (what) {
	case CL_QUEUE_CONTEXT:
		return ICD_ANSWER(to, cl_context, q->context);
	case CL_QUEUE_DEVICE:
		return ICD_ANSWER(to, cl_device_id, q->device);
	case CL_QUEUE_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, q->object.refs);
	case CL_QUEUE_PROPERTIES:
		return ICD_ANSWER(to, cl_command_queue_properties, q->properties);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetCommandQueueInfo(cl_command_queue handle, cl_command_queue_info what,
					     size_t size, void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_command_queue *q;
	cl_int result = CL_INVALID_COMMAND_QUEUE;

	icd_gate_lock();
	q = icd_object_get(handle, ICD_QUEUE);
	if (q)
		result = info(q, what, &to);
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clFlush(cl_command_queue handle)
{
	cl_int result;

	icd_gate_lock();
	result = icd_object_get(handle, ICD_QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
	icd_gate_unlock();
	return result; /* whatever can be put is put at once */
}

/* A task that failed has its result in its event; only a session that is gone fails this call. */
static cl_int finish(struct _cl_command_queue *q)
{
	struct icd_host *host = q->context->host;
	gantry_ticket last;
	int r = 0;

	while (q->nwaiting > 0)
		icd_gate_wait();
	last = q->last;
	icd_gate_unlock();
	if (last)
		r = gantry_printed_wait(&host->printed, host->session, &last, 1);
	icd_gate_lock();
	icd_output_pass_on(host);
	return r <= GANTRY_E_PROTOCOL && r > GANTRY_E_DEVICE_FAULT ? icd_status(r) : CL_SUCCESS;
}

cl_int CL_API_CALL icd_clFinish(cl_command_queue handle)
{
	struct _cl_command_queue *q;
	cl_int result = CL_INVALID_COMMAND_QUEUE;

	icd_gate_lock();
	q = icd_object_get(handle, ICD_QUEUE);
	if (q) {
		icd_object_hold(q);
		result = finish(q);
		icd_object_drop(q);
	}
	icd_gate_unlock();
	return result;
}
