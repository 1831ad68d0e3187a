/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and images in the program's memory: mapping, and its end. */
#include <stdlib.h>

#include "guest-shim/opencl/transfer.h"

static struct gantry_session *context_session(const struct _cl_mem *mem)
{
	return mem->context->host->session;
}

/* Between the buffer and where the program has it; of an image only what was mapped, not what lies between. */
static int copy(struct gantry_session *session, const struct icd_work *work, bool is_write)
{
	const struct icd_mapping *mapping = work->owned;
	const struct icd_mapped *what = &mapping->what;

	if (what->region[0])
		return icd_transfer_box(session, work->mem->buffer, what, is_write, mapping->at,
					what->pitch);
	return is_write ? gantry_write(session, work->mem->buffer, what->off, mapping->at,
				       what->bytes)
			: gantry_read(session, work->mem->buffer, what->off, mapping->at,
				      what->bytes);
}

static cl_int run_map(struct _cl_event *event, struct icd_work *work)
{
	struct icd_mapping *mapping = work->owned;
	bool discards = mapping->flags & CL_MAP_WRITE_INVALIDATE_REGION;
	int mode = discards ? GANTRY_W : mapping->flags & CL_MAP_WRITE ? GANTRY_RW : GANTRY_R;

	if (!mapping->at) {
		int r = gantry_map(icd_transfer_session(event), work->mem->buffer,
				   mapping->what.off, mapping->what.bytes, mode, GANTRY_FOREVER,
				   &mapping->mapped);

		mapping->at = r == 0 ? mapping->mapped : NULL;
		return icd_status(r);
	}
	return discards ? CL_SUCCESS : icd_status(copy(icd_transfer_session(event), work, false));
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
	return icd_status(copy(session, work, true));
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

static struct icd_mapping *mapping_new(struct _cl_mem *mem, cl_map_flags flags,
				       const struct icd_mapped *what)
{
	struct icd_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return NULL;
	mapping->what = *what;
	mapping->what.off += mem->origin;
	mapping->flags = flags;
	mapping->nusers = 1;
	/* The standard's: such a buffer is mapped where the program has it. */
	if (mem->host_ptr)
		mapping->at = (char *)mem->host_ptr + what->off;
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
		mapping->at = aligned_alloc(128, (mapping->what.bytes + 127) & ~(size_t)127);
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

	/* Written back later without what lies between rows: the device may work there meanwhile. */
	if (mapping->what.region[0] && mapping->flags != CL_MAP_READ && !give_address(mapping))
		return CL_MAP_FAILURE;
	mapping->nusers++;
	icd_transfer_use(&work, mem, NULL);
	result = icd_enqueue(q, mem->image.type ? CL_COMMAND_MAP_IMAGE : CL_COMMAND_MAP_BUFFER,
			     &work, is_blocking, waits, &event);
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

static cl_int check_map(const struct _cl_mem *mem, cl_map_flags flags)
{
	const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;

	if ((flags & ~(CL_MAP_READ | writes)) || flags == 0 ||
	    ((flags & CL_MAP_WRITE_INVALIDATE_REGION) && (flags & (CL_MAP_READ | CL_MAP_WRITE))))
		return CL_INVALID_VALUE;
	if (((flags & CL_MAP_READ) && !icd_transfer_host_may(mem, CL_MEM_HOST_WRITE_ONLY)) ||
	    ((flags & writes) && !icd_transfer_host_may(mem, CL_MEM_HOST_READ_ONLY)))
		return CL_INVALID_OPERATION;
	return CL_SUCCESS;
}

/* *ret_at: where the program has it. */
static cl_int map_part(struct _cl_command_queue *q, struct _cl_mem *mem, cl_map_flags flags,
		       const struct icd_mapped *what, bool is_blocking,
		       const struct icd_waits *waits, cl_event *ret_event, void **ret_at)
{
	struct icd_mapping *mapping = mapping_new(mem, flags, what);
	cl_int result;

	if (!mapping)
		return CL_OUT_OF_HOST_MEMORY;
	icd_object_hold(mem);
	mapping->nusers++; /* this call's */
	result = map(q, mem, mapping, is_blocking, waits, ret_event);
	if (result == CL_SUCCESS)
		*ret_at = mapping->at;
	else
		mapping_remove(mem, mapping);
	icd_mapping_put(context_session(mem), mapping);
	icd_object_drop(mem);
	return result;
}

void *CL_API_CALL icd_clEnqueueMapBuffer(cl_command_queue handle, cl_mem mem_handle,
					 cl_bool is_blocking, cl_map_flags flags, size_t off,
					 size_t bytes, cl_uint n, const cl_event *list,
					 cl_event *ret_event, cl_int *ret)
{
	const struct icd_mapped what = { .off = off, .bytes = bytes };
	const struct icd_waits waits = { n, list };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	void *at = NULL;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(mem, off, bytes);
	if (result == CL_SUCCESS)
		result = check_map(mem, flags);
	if (result == CL_SUCCESS)
		result = map_part(q, mem, flags, &what, is_blocking, &waits, ret_event, &at);
	icd_gate_unlock();
	return icd_result(ret, result, at);
}

/* The pitches that the program has to be told, which are the image's. */
static cl_int tell_pitches(const struct gantry_launch_image *image, size_t *row, size_t *slice)
{
	bool has_slices = image->type == GANTRY_IMAGE_3D || gantry_image_has_layers(image->type);

	if (!row || (has_slices && !slice))
		return CL_INVALID_VALUE;
	*row = image->row_bytes;
	if (slice)
		*slice = has_slices ? image->slice_bytes : 0;
	return CL_SUCCESS;
}

void *CL_API_CALL icd_clEnqueueMapImage(cl_command_queue handle, cl_mem mem_handle,
					cl_bool is_blocking, cl_map_flags flags,
					const size_t *origin, const size_t *region, size_t *ret_row,
					size_t *ret_slice, cl_uint n, const cl_event *list,
					cl_event *ret_event, cl_int *ret)
{
	const struct icd_waits waits = { n, list };
	struct _cl_command_queue *q;
	struct icd_mapped what;
	struct _cl_mem *mem;
	void *at = NULL;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check_any(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS && !mem->image.type)
		result = CL_INVALID_MEM_OBJECT;
	if (result == CL_SUCCESS)
		result = icd_image_map_box(mem, origin, region, &what);
	if (result == CL_SUCCESS)
		result = check_map(mem, flags);
	if (result == CL_SUCCESS)
		result = tell_pitches(&mem->image, ret_row, ret_slice);
	if (result == CL_SUCCESS)
		result = map_part(q, mem, flags, &what, is_blocking, &waits, ret_event, &at);
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
	result = icd_transfer_check_any(handle, mem_handle, &waits, &q, &mem);
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
