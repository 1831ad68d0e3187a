/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: addresses that are reserved, memory that has none, and which lies where. Memory is a buffer of whole
 * granules, which tasks use by its name; where it is mapped is a second address of it, for kernels, under which copies and fills are looked
 * up here as allocations are. A reservation is a range of the session's on one device.
 */
#include "guest-shim/cuda/vmm.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/session.h"

/* Places that are tried for one reservation. */
#define RANGE_TRIES 8u

struct cu_reservation {
	struct cu_reservation *next;
	CUdeviceptr address;
	size_t bytes;	 /* as the program said */
	size_t reserved; /* whole granules */
	struct cu_device *dev;
	gantry_buffer range;
};
static struct cu_reservation *reservations;

uint64_t cu_granule(const struct cu_device *dev)
{
	uint64_t bytes = 0;
	int n = gantry_device_ask(cu.session, GANTRY_ASK_GRANULE, dev->index, 0,
				  (struct gantry_ask_numbers){ { 0 } }, &bytes, sizeof(bytes));

	return n == sizeof(bytes) && gantry_is_pow2(bytes) ? bytes : 0;
}

/* ---- addresses ---- */

bool cu_keep_clear(CUdeviceptr address, size_t bytes)
{
	void *at = (void *)(uintptr_t)address;
	void *got = mmap(at, bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (got != MAP_FAILED && got != at)
		(void)munmap(got, bytes);
	return got == at;
}

void cu_give_up_clear(CUdeviceptr address, size_t bytes)
{
	(void)munmap((void *)(uintptr_t)address, bytes);
}

/*
 * A range where the program has nothing: what it has at one place, the host does not know of. Those that will not do are kept until one
 * does, or the host would choose the same again.
 */
static int find_range(const struct cu_device *dev, size_t bytes, size_t align, CUdeviceptr wish,
		      struct gantry_reply_variable *ret_range)
{
	struct gantry_reply_variable ranges[RANGE_TRIES];
	unsigned int n = 0;
	bool found = false;
	int r;

	do {
		r = gantry_device_range(cu.session, dev->index, bytes, align, wish, &ranges[n]);
		found = r == 0 && cu_keep_clear(ranges[n].address, bytes);
		n += r == 0;
	} while (r == 0 && !found && n < RANGE_TRIES);
	if (found)
		*ret_range = ranges[--n];
	while (n > 0)
		(void)gantry_free(cu.session, ranges[--n].handle); /* nothing is there */
	return found ? 0 : r < 0 ? r : GANTRY_E_NO_MEMORY;
}

CUresult cu_range_new_locked(const struct cu_device *dev, uint64_t bytes, uint64_t align,
			     CUdeviceptr wish, struct gantry_reply_variable *ret_range)
{
	return cu_result(find_range(dev, bytes, GANTRY_MAX(align, dev->granule), wish, ret_range));
}

CUresult cu_range_end_locked(gantry_buffer range, CUdeviceptr address, uint64_t bytes)
{
	int r = gantry_free(cu.session, range);

	if (r == 0)
		cu_give_up_clear(address, bytes);
	return cu_result(r);
}

CUresult cu_reserve_locked(struct cu_device *dev, size_t bytes, size_t align, CUdeviceptr wish,
			   CUdeviceptr *ret_address)
{
	struct cu_reservation *new = calloc(1, sizeof(*new));
	struct gantry_reply_variable range;
	CUresult result;
	uint64_t reserved;

	if (!new || gantry_align_up(bytes, dev->granule, &reserved) < 0 ||
	    reserved > GANTRY_MAX_BUFFER_BYTES || align > GANTRY_MAX_BUFFER_BYTES) {
		free(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = cu_range_new_locked(dev, reserved, align, wish, &range);
	if (result != CUDA_SUCCESS) {
		free(new);
		return result;
	}
	*new = (struct cu_reservation){ .next = reservations,
					.address = range.address,
					.bytes = bytes,
					.reserved = reserved,
					.dev = dev,
					.range = range.handle };
	reservations = new;
	*ret_address = new->address;
	return CUDA_SUCCESS;
}

CUresult cu_unreserve_locked(CUdeviceptr address, size_t bytes)
{
	struct cu_reservation **at = &reservations, *found;
	CUresult result;

	while (*at && (*at)->address != address)
		at = &(*at)->next;
	found = *at;
	if (!found || found->bytes != bytes || cu_alloc_touches_locked(address, found->reserved))
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_range_end_locked(found->range, address, found->reserved);
	if (result != CUDA_SUCCESS)
		return result;
	*at = found->next;
	free(found);
	return CUDA_SUCCESS;
}

static struct cu_reservation *reservation_of(CUdeviceptr address, size_t bytes)
{
	for (struct cu_reservation *r = reservations; r; r = r->next)
		if (address >= r->address &&
		    gantry_range_inside(address - r->address, bytes, r->reserved))
			return r;
	return NULL;
}

/* ---- memory ---- */

CUresult cu_physical_new_locked(struct cu_device *dev, size_t bytes,
				const CUmemAllocationProp *prop, struct cu_physical **ret_physical)
{
	uint64_t deadline_ns = gantry_deadline_ns(GANTRY_CALL_TIMEOUT_NS);
	struct cu_physical *new;
	CUdeviceptr home;
	CUresult result;

	if (bytes == 0 || bytes % dev->granule)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > GANTRY_MAX_BUFFER_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	new = calloc(1, sizeof(*new));
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*new = (struct cu_physical){ .dev = dev, .bytes = bytes, .prop = *prop, .nrefs = 1 };
	do
		result = cu_buffer_new_locked(
			dev, bytes, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED | GANTRY_ALLOC_WHOLE,
			&new->buffer, &home);
	while (result == CUDA_ERROR_OUT_OF_MEMORY && cu_backing_wait_locked(dev, deadline_ns));
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(new, CU_KIND_PHYSICAL)) {
		(void)gantry_free(cu.session,
				  new->buffer); /* the first failure is the one to tell */
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(new);
		return result;
	}
	*ret_physical = new;
	return CUDA_SUCCESS;
}

struct cu_physical *cu_physical_of_locked(CUmemGenericAllocationHandle handle)
{
	struct cu_physical *physical = (struct cu_physical *)(uintptr_t)handle;

	/* One that is released and mapped yet has no handle. */
	return cu_handle_is_locked(physical, CU_KIND_PHYSICAL) && physical->nrefs ? physical : NULL;
}

/* Neither a handle nor a mapping is left of it. */
static void end_if_unused(struct cu_physical *physical)
{
	if (physical->nrefs || physical->is_mapped)
		return;
	cu_handle_remove_locked(physical);
	/* Its memory goes when what was submitted before has finished. */
	(void)gantry_free(cu.session, physical->buffer);
	free(physical);
}

void cu_physical_release_locked(struct cu_physical *physical)
{
	physical->nrefs--;
	end_if_unused(physical);
}

/* ---- which lies where ---- */

int cu_map_tell(const struct cu_device *dev, gantry_buffer buffer, enum gantry_map_what what,
		gantry_buffer range, uint64_t off, uint32_t rights)
{
	const struct gantry_op_map op = { .device = dev->index,
					  .what = what,
					  .buffer = buffer,
					  .range = range,
					  .off = off,
					  .rights = rights };

	return gantry_device_map(cu.session, &op);
}

static int tell(const struct cu_physical *physical, enum gantry_map_what what, gantry_buffer range,
		uint64_t off, uint32_t rights)
{
	return cu_map_tell(physical->dev, physical->buffer, what, range, off, rights);
}

CUresult cu_map_locked(CUdeviceptr address, size_t bytes, struct cu_physical *physical)
{
	const struct cu_reservation *r = reservation_of(address, bytes);
	const struct cu_alloc alloc = { .address = address,
					.bytes = bytes,
					.buffer = physical->buffer,
					.kind = CU_MEMORY_MAPPED,
					.device = physical->dev->index,
					.physical = physical };
	CUresult result;

	if (!r || address % physical->dev->granule || bytes == 0 || bytes > physical->bytes ||
	    bytes % physical->dev->granule || cu_alloc_touches_locked(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes < physical->bytes)
		return cu_unsupported("cuMemMap of a part of an allocation");
	if (physical->is_mapped)
		return cu_unsupported("cuMemMap of what is mapped elsewhere too");
	if (r->dev != physical->dev)
		return cu_unsupported("cuMemMap where another device was current at the reserving");
	result = cu_result(tell(physical, GANTRY_MAP_MAP, r->range, address - r->address, 0));
	if (result == CUDA_SUCCESS)
		result = cu_alloc_add_locked(&alloc);
	else
		return result;
	if (result != CUDA_SUCCESS) {
		(void)tell(physical, GANTRY_MAP_UNMAP, 0, 0,
			   0); /* the first failure is the one to tell */
		return result;
	}
	physical->is_mapped = true;
	return CUDA_SUCCESS;
}

/* Whole mappings, one after the other, are all of it. */
static bool is_whole(CUdeviceptr address, size_t bytes)
{
	CUdeviceptr at = address, end = address + bytes;

	while (at < end && end > address) {
		const struct cu_alloc *alloc = cu_alloc_find_locked(at);

		if (!alloc || alloc->kind != CU_MEMORY_MAPPED || alloc->address != at)
			return false;
		at += alloc->bytes;
	}
	return bytes && at == end;
}

/* Whatever was put into streams so far; the lock is given up meanwhile, so contexts may come and go. */
static CUresult wait_for_all(void)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t done = 0;

	for (;;) {
		struct CUctx_st *next = NULL, *ctx;
		uint32_t at = 0;

		while ((ctx = (struct CUctx_st *)(uintptr_t)cu_handle_next_locked(CU_KIND_CTX,
										  &at)))
			if (ctx->id > done && (!next || ctx->id < next->id))
				next = ctx;
		if (!next || result != CUDA_SUCCESS)
			return result;
		done = next->id;
		result = cu_ctx_wait_locked(next);
	}
}

CUresult cu_unmap_locked(CUdeviceptr address, size_t bytes)
{
	CUresult result;

	if (!is_whole(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = wait_for_all();
	if (result == CUDA_SUCCESS && !is_whole(address, bytes))
		result = CUDA_ERROR_INVALID_VALUE; /* unmapped twice at the same time */
	for (CUdeviceptr at = address; result == CUDA_SUCCESS && at < address + bytes;) {
		const struct cu_alloc *alloc = cu_alloc_find_locked(at);
		struct cu_physical *physical = alloc->physical;

		at += alloc->bytes;
		result = cu_result(tell(physical, GANTRY_MAP_UNMAP, 0, 0, 0));
		if (result != CUDA_SUCCESS)
			break;
		cu_alloc_forget_locked(alloc->address);
		physical->is_mapped = false;
		end_if_unused(physical);
	}
	return result;
}

/* ---- who may use it ---- */

static unsigned int flags_of(uint32_t access, uint32_t ordinal)
{
	return access >> (2 * ordinal) & 3u;
}

static bool is_flag(unsigned int flags)
{
	return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
	       flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static CUresult check_access(const CUmemAccessDesc *desc, size_t count)
{
	struct cu_device *dev;

	for (size_t i = 0; i < count; i++) {
		if (!is_flag(desc[i].flags))
			return CUDA_ERROR_INVALID_VALUE;
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return cu_unsupported("cuMemSetAccess for the host");
		if (cu_device_get(desc[i].location.id, &dev) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	return CUDA_SUCCESS;
}

/* A device that one may reach it from reaches it as the most that any may: each for itself is a matter of copies and fills. */
static uint32_t rights_of(uint32_t access)
{
	uint32_t rights = 0;

	for (uint32_t i = 0; i < CU_MAX_DEVICES; i++)
		rights |= flags_of(access, i);
	return rights;
}

static CUresult set_access_of(struct cu_alloc *alloc, const CUmemAccessDesc *desc, size_t count)
{
	uint32_t access = alloc->access;
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < count; i++) {
		uint32_t shift = 2 * (uint32_t)desc[i].location.id;

		access = (access & ~(3u << shift)) | (uint32_t)desc[i].flags << shift;
	}
	if (rights_of(access) != rights_of(alloc->access))
		result = cu_result(
			tell(alloc->physical, GANTRY_MAP_RIGHTS, 0, 0, rights_of(access)));
	if (result == CUDA_SUCCESS)
		alloc->access = access;
	return result;
}

CUresult cu_set_access_locked(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
			      size_t count)
{
	CUresult result = is_whole(address, bytes) ? check_access(desc, count)
						   : CUDA_ERROR_INVALID_VALUE;

	for (CUdeviceptr at = address; result == CUDA_SUCCESS && at < address + bytes;) {
		struct cu_alloc *alloc = cu_alloc_find_locked(at);

		result = set_access_of(alloc, desc, count);
		at += alloc->bytes;
	}
	return result;
}

CUresult cu_get_access_locked(CUdeviceptr address, uint32_t ordinal, unsigned long long *ret_flags)
{
	const struct cu_alloc *alloc = cu_alloc_find_locked(address);

	if (!alloc || alloc->kind != CU_MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = flags_of(alloc->access, ordinal);
	return CUDA_SUCCESS;
}

struct cu_physical *cu_physical_at_locked(CUdeviceptr address)
{
	const struct cu_alloc *alloc = cu_alloc_find_locked(address);

	return alloc && alloc->kind == CU_MEMORY_MAPPED ? alloc->physical : NULL;
}

/* ---- copies and fills ---- */

size_t cu_mapped_part_locked(CUdeviceptr address, size_t bytes)
{
	const struct cu_alloc *alloc = cu_alloc_find_locked(address);

	if (!alloc || alloc->kind != CU_MEMORY_MAPPED)
		return bytes;
	return GANTRY_MIN(bytes, alloc->bytes - (address - alloc->address));
}

bool cu_mapped_allows_locked(CUdeviceptr address, size_t bytes, uint32_t ordinal, bool write)
{
	unsigned int need = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
				  : CU_MEM_ACCESS_FLAGS_PROT_READ;
	bool begins = true;

	while (bytes > 0) {
		const struct cu_alloc *alloc = cu_alloc_find_locked(address);
		size_t n = cu_mapped_part_locked(address, bytes);

		/* What does not begin in a mapping is no affair of this; what does, ends in one. */
		if (!alloc || alloc->kind != CU_MEMORY_MAPPED)
			return begins && !reservation_of(address, 1);
		if ((flags_of(alloc->access, ordinal) & need) != need)
			return false;
		begins = false;
		address += n;
		bytes -= n;
	}
	return true;
}

size_t cu_mapped_bytes_locked(CUdeviceptr address, size_t bytes)
{
	size_t there = 0;

	while (there < bytes) {
		const struct cu_alloc *alloc = cu_alloc_find_locked(address + there);

		if (!alloc || alloc->kind != CU_MEMORY_MAPPED)
			break;
		there += cu_mapped_part_locked(address + there, bytes - there);
	}
	return there;
}
