/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in the program's memory: mapping, and its end. */
#include <stdlib.h>

#include "guest-shim/opencl/transfer.h"

static struct gantry_session *context_session(const struct _cl_mem *mem)
{
	return mem->context->host->session;
}

static cl_int run_map(struct _cl_event *event, struct icd_work *work)
{
	struct icd_mapping *mapping = work->owned;
	bool discards = mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION;
	int mode = discards ? GANTRY_W : mapping->flags & CL_MAP_WRITE ? GANTRY_RW : GANTRY_R;

	if (!mapping->at) {
		int r = gantry_map(icd_transfer_session(event), work->mem->buffer, mapping->off,
				   mapping->bytes, mode, GANTRY_FOREVER, &mapping->mapped);

		mapping->at = r == 0 ? mapping->mapped : NULL;
		return icd_status(r);
	}
	return discards ? CL_SUCCESS
			: icd_status(gantry_read(icd_transfer_session(event), work->mem->buffer,
						 mapping->off, mapping->at, mapping->bytes));
}

static cl_int run_unmap(struct _cl_event *event, struct icd_work *work)
{
	struct icd_mapping *mapping = work->owned;
	struct gantry_session *session = icd_transfer_session(event);
	void *mapped = mapping->mapped;

	mapping->mapped = NULL;
	if (mapped)
		return icd_status(gantry_unmap(session, mapped));
	if (!(mapping->flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)))
		return CL_SUCCESS;
	return icd_status(gantry_write(session, work->mem->buffer, mapping->off, mapping->at,
				       mapping->bytes));
}

void icd_mapping_put(struct gantry_session *session, struct icd_mapping *mapping)
{
	if (--mapping->nusers > 0)
		return;
	if (mapping->mapped)
		(void)gantry_unmap(session, mapping->mapped);
	if (mapping->is_shadow)
		free(mapping->at);
	free(mapping);
}

/* A program may unmap what is not mapped yet: the last of both commands lets it go. */
static void fini(struct icd_work *work)
{
	icd_mapping_put(context_session(work->mem), work->owned);
}

static struct icd_mapping *mapping_new(struct _cl_mem *mem, cl_map_flags flags, size_t off,
				       size_t bytes)
{
	struct icd_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return NULL;
	mapping->off = mem->origin + off;
	mapping->bytes = bytes;
	mapping->flags = flags;
	mapping->nusers = 1;
	/* The standard's: such a buffer is mapped where the program has it. */
	if (mem->host_ptr)
		mapping->at = (char *)mem->host_ptr + off;
	gantry_list_push_back(&mem->mappings, &mapping->link);
	mem->nmappings++;
	return mapping;
}

/* The buffer's no longer; another thread may have unmapped it already, knowing where it is. */
static void mapping_remove(struct _cl_mem *mem, struct icd_mapping *mapping)
{
	if (gantry_list_is_empty(&mapping->link))
		return;
	gantry_list_remove(&mapping->link);
	mem->nmappings--;
	icd_mapping_put(context_session(mem), mapping);
}

/* A program wants the address now; one whose command waits has memory of the driver's, filled when its time comes. */
static bool give_address(struct icd_mapping *mapping)
{
	if (!mapping->at) {
		mapping->at = aligned_alloc(128, (mapping->bytes + 127) & ~(size_t)127);
		mapping->is_shadow = mapping->at != NULL;
	}
	return mapping->at != NULL;
}

static cl_int map(struct _cl_command_queue *q, struct _cl_mem *mem, struct icd_mapping *mapping,
		  bool is_blocking, const struct icd_waits *waits, cl_event *ret_event)
{
	struct icd_work work = {
		.on_host = run_map, .fini = fini, .is_prompt = true, .owned = mapping
	};
	cl_event event = NULL, mine;
	cl_int result;

	mapping->nusers++;
	icd_transfer_use(&work, mem, NULL);
	result = icd_enqueue(q, CL_COMMAND_MAP_BUFFER, &work, is_blocking, waits, &event);
	if (result != CL_SUCCESS)
		return result;
	mine = icd_object_get(event, ICD_EVENT); /* or another thread has let go of it */
	icd_object_hold_new(mine);
	/* What has failed for what it waits for is mapped nowhere, and its event says so. */
	if (!give_address(mapping))
		result = CL_MAP_FAILURE;
	if (result == CL_SUCCESS && is_blocking && mine) {
		result = icd_event_wait(mine);
		result = result < 0 ? result : CL_SUCCESS;
	}
	if (result == CL_SUCCESS && ret_event) {
		*ret_event = event;
		icd_object_drop(mine);
	} else {
		(void)icd_object_give(mine, CL_OUT_OF_RESOURCES);
	}
	return result;
}

static cl_int check_map(const struct _cl_mem *mem, cl_map_flags flags, size_t off, size_t bytes)
{
	const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;

	if ((flags & ~(CL_MAP_READ | writes)) || flags == 0 ||
	    ((flags & CL_MAP_WRITE_INVALIDATE_REGION) && (flags & (CL_MAP_READ | CL_MAP_WRITE))))
		return CL_INVALID_VALUE;
	if (icd_transfer_check_range(mem, off, bytes) != CL_SUCCESS)
		return CL_INVALID_VALUE;
	if (((flags & CL_MAP_READ) && !icd_transfer_host_may(mem, CL_MEM_HOST_WRITE_ONLY)) ||
	    ((flags & writes) && !icd_transfer_host_may(mem, CL_MEM_HOST_READ_ONLY)))
		return CL_INVALID_OPERATION;
	return CL_SUCCESS;
}

void *CL_API_CALL icd_clEnqueueMapBuffer(cl_command_queue handle, cl_mem mem_handle,
					 cl_bool is_blocking, cl_map_flags flags, size_t off,
					 size_t bytes, cl_uint n, const cl_event *list,
					 cl_event *ret_event, cl_int *ret)
{
	const struct icd_waits waits = { n, list };
	struct icd_mapping *mapping = NULL;
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	void *at = NULL;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = check_map(mem, flags, off, bytes);
	if (result == CL_SUCCESS) {
		icd_object_hold(mem);
		mapping = mapping_new(mem, flags, off, bytes);
		if (mapping)
			mapping->nusers++; /* this call's */
		result = mapping ? map(q, mem, mapping, is_blocking, &waits, ret_event)
				 : CL_OUT_OF_HOST_MEMORY;
		if (result == CL_SUCCESS)
			at = mapping->at;
		else if (mapping)
			mapping_remove(mem, mapping);
		if (mapping)
			icd_mapping_put(context_session(mem), mapping);
		icd_object_drop(mem);
	}
	icd_gate_unlock();
	return icd_result(ret, result, at);
}

static struct icd_mapping *mapping_at(const struct _cl_mem *mem, const void *at)
{
	gantry_list_for_each(&mem->mappings, struct icd_mapping, link, mapping)
		if (at && mapping->at == at)
			return mapping;
	return NULL;
}

cl_int CL_API_CALL icd_clEnqueueUnmapMemObject(cl_command_queue handle, cl_mem mem_handle, void *at,
					       cl_uint n, const cl_event *list, cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = { .on_host = run_unmap, .fini = fini };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS) {
		work.owned = mapping_at(mem, at);
		result = work.owned ? CL_SUCCESS : CL_INVALID_VALUE;
	}
	if (result == CL_SUCCESS) {
		((struct icd_mapping *)work.owned)->nusers++;
		mapping_remove(mem, work.owned);
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(q, CL_COMMAND_UNMAP_MEM_OBJECT, &work, false, &waits,
				     ret_event);
	}
	icd_gate_unlock();
	return result;
}
