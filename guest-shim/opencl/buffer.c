/* SPDX-License-Identifier: Apache-2.0 */
/* Memory objects: buffers, and parts of them. */
#include <stdlib.h>

#include "guest-shim/opencl/calls.h"

#define ACCESS	    (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)
#define HOST_PTR    (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)
#define HOST_ACCESS (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)

static bool at_most_one(cl_mem_flags flags)
{
	return (flags & (flags - 1)) == 0;
}

cl_int icd_mem_check_flags(cl_mem_flags flags)
{
	if ((flags & ~(cl_mem_flags)(ACCESS | HOST_PTR | HOST_ACCESS)) ||
	    !at_most_one(flags & ACCESS) || !at_most_one(flags & HOST_ACCESS))
		return CL_INVALID_VALUE;
	if ((flags & CL_MEM_USE_HOST_PTR) &&
	    (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
		return CL_INVALID_VALUE;
	return CL_SUCCESS;
}

uint64_t icd_context_alloc_bytes(const struct _cl_context *context)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < context->ndevices; i++) {
		uint64_t one = icd_device_alloc_bytes(context->devices[i]);

		most = one > most ? one : most;
	}
	return most;
}

static cl_int check_size(const struct _cl_context *context, size_t bytes)
{
	return bytes == 0 || bytes > icd_context_alloc_bytes(context) ? CL_INVALID_BUFFER_SIZE
								      : CL_SUCCESS;
}

struct _cl_mem *icd_mem_new(struct _cl_context *context, cl_mem_flags flags, size_t bytes)
{
	struct _cl_mem *mem = icd_object_new(ICD_MEM);

	if (!mem)
		return NULL;
	gantry_list_init(&mem->mappings);
	mem->context = context;
	mem->flags = flags & ACCESS ? flags : flags | CL_MEM_READ_WRITE;
	mem->bytes = bytes;
	icd_object_hold(context);
	return mem;
}

/* Where devices work on host memory it lies there while there is room. */
int icd_mem_back(struct _cl_mem *mem, void *host_ptr)
{
	struct gantry_session *session = mem->context->host->session;
	int r = gantry_alloc(session, mem->bytes, 0, &mem->buffer);

	if (r == GANTRY_E_NO_MEMORY)
		r = gantry_alloc(session, mem->bytes, GANTRY_ALLOC_DEVICE, &mem->buffer);
	if (r == 0 && (mem->flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
		r = gantry_write(session, mem->buffer, 0, host_ptr, mem->bytes);
	return r;
}

cl_mem CL_API_CALL icd_clCreateBuffer(cl_context handle, cl_mem_flags flags, size_t bytes,
				      void *host_ptr, cl_int *ret)
{
	bool wants_ptr = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
	struct _cl_context *context;
	struct _cl_mem *mem = NULL;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = icd_mem_check_flags(flags);
	if (result == CL_SUCCESS)
		result = check_size(context, bytes);
	if (result == CL_SUCCESS && !host_ptr != !wants_ptr)
		result = CL_INVALID_HOST_PTR;
	if (result == CL_SUCCESS) {
		mem = icd_mem_new(context, flags, bytes);
		result = mem ? icd_status(icd_mem_back(mem, host_ptr)) : CL_OUT_OF_HOST_MEMORY;
	}
	if (result == CL_SUCCESS && (flags & CL_MEM_USE_HOST_PTR)) {
		mem->host_ptr = host_ptr;
	} else if (result != CL_SUCCESS && mem) {
		icd_object_throw_away(mem);
		mem = NULL;
	}
	icd_gate_unlock();
	return icd_result(ret, result, mem);
}

cl_mem CL_API_CALL icd_clCreateBufferWithProperties(cl_context context,
						    const cl_mem_properties *properties,
						    cl_mem_flags flags, size_t bytes,
						    void *host_ptr, cl_int *ret)
{
	if (properties && *properties)
		return icd_result(ret, CL_INVALID_PROPERTY, NULL);
	return icd_clCreateBuffer(context, flags, bytes, host_ptr, ret);
}

struct _cl_mem *icd_buffer_get(const void *handle)
{
	struct _cl_mem *mem = icd_object_get(handle, ICD_MEM);

	return mem && !mem->image.type ? mem : NULL;
}

struct _cl_mem *icd_image_get(const void *handle)
{
	struct _cl_mem *mem = icd_object_get(handle, ICD_MEM);

	return mem && mem->image.type ? mem : NULL;
}

/* ---- parts ---- */

cl_int icd_mem_inherit(const struct _cl_mem *parent, cl_mem_flags *flags)
{
	cl_mem_flags access = *flags & ACCESS, host = *flags & HOST_ACCESS;

	if (icd_mem_check_flags(*flags) != CL_SUCCESS || (*flags & HOST_PTR))
		return CL_INVALID_VALUE;
	if ((parent->flags & CL_MEM_WRITE_ONLY) && access & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))
		return CL_INVALID_VALUE;
	if ((parent->flags & CL_MEM_READ_ONLY) && access & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))
		return CL_INVALID_VALUE;
	if (host && (parent->flags & HOST_ACCESS) && host != (parent->flags & HOST_ACCESS) &&
	    host != CL_MEM_HOST_NO_ACCESS)
		return CL_INVALID_VALUE;
	*flags |= (access ? 0 : parent->flags & ACCESS) | (host ? 0 : parent->flags & HOST_ACCESS) |
		  (parent->flags & HOST_PTR);
	return CL_SUCCESS;
}

static cl_int check_part(const struct _cl_mem *parent, cl_mem_flags *flags,
			 cl_buffer_create_type type, const cl_buffer_region *region)
{
	if (type != CL_BUFFER_CREATE_TYPE_REGION || !region ||
	    icd_mem_inherit(parent, flags) != CL_SUCCESS)
		return CL_INVALID_VALUE;
	if (region->size == 0)
		return CL_INVALID_BUFFER_SIZE;
	return region->origin > parent->bytes || region->size > parent->bytes - region->origin
		       ? CL_INVALID_VALUE
		       : CL_SUCCESS;
}

static bool is_aligned(const struct _cl_context *context, size_t origin)
{
	for (uint32_t i = 0; i < context->ndevices; i++) {
		uint64_t bits = icd_device_number(context->devices[i], "align_bits");

		if (origin % ((bits ? bits : 1024) / 8) == 0)
			return true;
	}
	return false;
}

static struct _cl_mem *make_part(struct _cl_mem *parent, cl_mem_flags flags,
				 const cl_buffer_region *region)
{
	struct _cl_mem *mem = icd_mem_new(parent->context, flags, region->size);

	if (!mem)
		return NULL;
	mem->parent = parent;
	mem->origin = region->origin;
	mem->buffer = parent->buffer;
	if (parent->host_ptr)
		mem->host_ptr = (char *)parent->host_ptr + region->origin;
	icd_object_hold(parent);
	return mem;
}

cl_mem CL_API_CALL icd_clCreateSubBuffer(cl_mem handle, cl_mem_flags flags,
					 cl_buffer_create_type type, const void *info, cl_int *ret)
{
	struct _cl_mem *parent, *mem = NULL;
	cl_int result = CL_INVALID_MEM_OBJECT;

	icd_gate_lock();
	parent = icd_buffer_get(handle);
	if (parent && !parent->parent)
		result = check_part(parent, &flags, type, info);
	if (result == CL_SUCCESS &&
	    !is_aligned(parent->context, ((const cl_buffer_region *)info)->origin))
		result = CL_MISALIGNED_SUB_BUFFER_OFFSET;
	if (result == CL_SUCCESS) {
		mem = make_part(parent, flags, info);
		result = mem ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	icd_gate_unlock();
	return icd_result(ret, result, mem);
}

/* ---- ends ---- */

struct ended {
	struct icd_call call; /* first */
	struct icd_mem_callback *callbacks;
	cl_mem mem;
};

static void run_callbacks(struct icd_call *call)
{
	struct ended *ended = (struct ended *)call;
	struct icd_mem_callback *next;

	for (struct icd_mem_callback *c = ended->callbacks; c; c = next) {
		next = c->next;
		c->fn(ended->mem, c->user);
		free(c);
	}
	free(ended);
}

static void tell_end(struct _cl_mem *mem)
{
	struct ended *ended = mem->callbacks ? calloc(1, sizeof(*ended)) : NULL;

	if (!ended)
		return;
	*ended = (struct ended){ { .run = run_callbacks }, mem->callbacks, mem };
	icd_pump_call(&ended->call);
}

void icd_mem_end(struct _cl_mem *mem)
{
	struct gantry_session *session = mem->context->host->session;

	gantry_list_for_each_safe(&mem->mappings, struct icd_mapping, link, mapping) {
		gantry_list_remove(&mapping->link);
		icd_mapping_put(session, mapping);
	}
	/* Tasks that were put still have the memory. */
	if (!mem->parent && mem->buffer)
		(void)gantry_free(session, mem->buffer);
	tell_end(mem);
	icd_object_drop(mem->parent);
	icd_object_drop(mem->context);
}

cl_int CL_API_CALL icd_clSetMemObjectDestructorCallback(cl_mem handle,
							void(CL_CALLBACK *fn)(cl_mem, void *),
							void *user)
{
	struct icd_mem_callback *callback = NULL;
	struct _cl_mem *mem;
	cl_int result = CL_INVALID_MEM_OBJECT;

	icd_gate_lock();
	mem = icd_object_get(handle, ICD_MEM);
	if (mem)
		result = fn ? icd_pump_need() : CL_INVALID_VALUE;
	if (result == CL_SUCCESS) {
		callback = malloc(sizeof(*callback));
		result = callback ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	if (callback) {
		*callback = (struct icd_mem_callback){ mem->callbacks, fn, user };
		mem->callbacks = callback;
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clRetainMemObject(cl_mem mem)
{
	return icd_object_retain(mem, ICD_MEM, CL_INVALID_MEM_OBJECT);
}

cl_int CL_API_CALL icd_clReleaseMemObject(cl_mem mem)
{
	return icd_object_release(mem, ICD_MEM, CL_INVALID_MEM_OBJECT);
}

static cl_int info(const struct _cl_mem *mem, cl_mem_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_MEM_TYPE:
		return ICD_ANSWER(to, cl_mem_object_type,
				  mem->image.type ? mem->image.type : CL_MEM_OBJECT_BUFFER);
	case CL_MEM_FLAGS:
		return ICD_ANSWER(to, cl_mem_flags, mem->flags);
	case CL_MEM_SIZE:
		return ICD_ANSWER(to, size_t, mem->bytes);
	case CL_MEM_HOST_PTR:
		return icd_answer(to, &mem->host_ptr, sizeof(mem->host_ptr));
	case CL_MEM_MAP_COUNT:
		return ICD_ANSWER(to, cl_uint, mem->nmappings);
	case CL_MEM_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, mem->object.refs);
	case CL_MEM_CONTEXT:
		return ICD_ANSWER(to, cl_context, mem->context);
	case CL_MEM_ASSOCIATED_MEMOBJECT:
		return ICD_ANSWER(to, cl_mem, mem->parent);
	case CL_MEM_OFFSET:
		return ICD_ANSWER(to, size_t, mem->image.type ? 0 : mem->origin);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetMemObjectInfo(cl_mem handle, cl_mem_info what, size_t size, void *value,
					  size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_mem *mem;
	cl_int result = CL_INVALID_MEM_OBJECT;

	icd_gate_lock();
	mem = icd_object_get(handle, ICD_MEM);
	if (mem)
		result = info(mem, what, &to);
	icd_gate_unlock();
	return result;
}
