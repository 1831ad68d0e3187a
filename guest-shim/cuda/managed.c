/* SPDX-License-Identifier: Apache-2.0 */
/* Advice on managed memory, page by page: ranges with what was said of them; of what is in none nothing was. */
#include "guest-shim/cuda/managed.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define PAGE 4096u

/* Devices are numbered as the program does; -1 is the host, and -2 nothing. */
struct said {
	bool read_mostly;
	uint32_t accessed_by; /* a bit for each device, and one for the host */
	CUmemLocation preferred;
	CUmemLocation prefetched;
};
#define BY_HOST (1u << CU_MAX_DEVICES)

struct range {
	struct range *next; /* further up; no two overlap */
	CUdeviceptr from;
	CUdeviceptr to;
	struct said said;
};
static struct range *ranges;

/* ---- ranges ---- */

/* A range ends at @at, if one has it inside; false: no memory. */
static bool split(CUdeviceptr at)
{
	struct range *r = ranges, *rest;

	while (r && r->to <= at)
		r = r->next;
	if (!r || r->from >= at)
		return true;
	rest = malloc(sizeof(*rest));
	if (!rest)
		return false;
	*rest = *r;
	rest->from = at;
	r->to = at;
	r->next = rest;
	return true;
}

/* All from @from to @to is in ranges. */
static bool cover(CUdeviceptr from, CUdeviceptr to)
{
	struct range **at = &ranges;

	while (from < to) {
		struct range *new;

		while (*at && (*at)->to <= from)
			at = &(*at)->next;
		if (*at && (*at)->from <= from) {
			from = (*at)->to;
			continue;
		}
		new = calloc(1, sizeof(*new));
		if (!new)
			return false;
		new->next = *at;
		new->from = from;
		new->to = *at ? GANTRY_MIN((*at)->from, to) : to;
		*at = new;
		from = new->to;
	}
	return true;
}

void cu_managed_forget_locked(CUdeviceptr address, size_t bytes)
{
	struct range **at = &ranges;
	CUdeviceptr end = address + bytes;

	while (*at) {
		struct range *r = *at;

		if (r->from < address || r->from >= end) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		free(r);
	}
}

/* ---- said ---- */

static bool is_managed(CUdeviceptr address, size_t bytes)
{
	uint64_t off;
	const struct cu_alloc *alloc = cu_alloc_span_locked(address, bytes, &off);

	return bytes && alloc && cu_alloc_is_managed(alloc);
}

static CUresult check_place(const CUmemLocation *place, bool of_nodes)
{
	struct cu_device *dev;

	switch (place->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return cu_device_get(place->id, &dev) == CUDA_SUCCESS ? CUDA_SUCCESS
								      : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
		return CUDA_SUCCESS;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return of_nodes && place->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return of_nodes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static uint32_t bit_of(const CUmemLocation *place)
{
	return place->type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << (uint32_t)place->id : BY_HOST;
}

static void take(struct said *said, CUmem_advise advice, const CUmemLocation *place)
{
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		said->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		said->preferred = *place;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		said->preferred = (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_INVALID };
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		said->accessed_by |= bit_of(place);
		break;
	default:
		said->accessed_by &= ~bit_of(place);
	}
}

/* Whole pages; NULL: there was no memory to note it. */
static struct range *note(CUdeviceptr address, size_t bytes, CUdeviceptr *ret_end)
{
	CUdeviceptr from = address / PAGE * PAGE, to = (address + bytes + PAGE - 1) / PAGE * PAGE;
	struct range *r;

	if (!split(from) || !split(to) || !cover(from, to))
		return NULL;
	for (r = ranges; r->from < from; r = r->next)
		;
	*ret_end = to;
	return r;
}

CUresult cu_managed_advise_locked(CUdeviceptr address, size_t bytes, CUmem_advise advice,
				  const CUmemLocation *location)
{
	bool takes_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
			   advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
			   advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
	CUdeviceptr end;
	CUresult result;

	if (!is_managed(address, bytes) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
	    advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	result = takes_place ? check_place(location, advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
			     : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	for (struct range *r = note(address, bytes, &end); r && r->from < end; r = r->next)
		take(&r->said, advice, location);
	return CUDA_SUCCESS;
}

CUresult cu_managed_prefetch_locked(CUdeviceptr address, size_t bytes,
				    const CUmemLocation *location)
{
	CUdeviceptr end;
	CUresult result = is_managed(address, bytes) ? check_place(location, true)
						     : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	for (struct range *r = note(address, bytes, &end); r && r->from < end; r = r->next)
		r->said.prefetched = *location;
	return CUDA_SUCCESS;
}

/* ---- asked ---- */

static void agree(CUmemLocation *place, const CUmemLocation *other)
{
	bool has_id = place->type == CU_MEM_LOCATION_TYPE_DEVICE ||
		      place->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;

	if (place->type != other->type || (has_id && place->id != other->id))
		*place = (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_INVALID };
}

/* What was said of every page. */
static struct said said_of_all(CUdeviceptr from, CUdeviceptr to)
{
	const struct range *r = ranges;
	struct said all;

	while (r && r->to <= from)
		r = r->next;
	if (!r || r->from > from)
		return (struct said){ 0 };
	all = r->said;
	for (; r->to < to; r = r->next) {
		const struct range *next = r->next;

		if (!next || next->from != r->to)
			return (struct said){ 0 };
		all.read_mostly = all.read_mostly && next->said.read_mostly;
		all.accessed_by &= next->said.accessed_by;
		agree(&all.preferred, &next->said.preferred);
		agree(&all.prefetched, &next->said.prefetched);
	}
	return all;
}

/* The older form: a device's number, or the host, or nothing. */
static int number_of(const CUmemLocation *place)
{
	if (place->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return place->id;
	return place->type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
}

static CUresult list_accessed(uint32_t accessed_by, int *list, size_t n)
{
	size_t found = 0;

	for (uint32_t i = 0; i <= CU_MAX_DEVICES; i++)
		if ((accessed_by >> i & 1) && found < n)
			list[found++] = i == CU_MAX_DEVICES ? CU_DEVICE_CPU : (int)i;
	while (found < n)
		list[found++] = CU_DEVICE_INVALID;
	return CUDA_SUCCESS;
}

static int value_of(const struct said *all, CUmem_range_attribute attribute)
{
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		return all->read_mostly;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		return number_of(&all->preferred);
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		return number_of(&all->prefetched);
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		return (int)all->preferred.type;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		return all->preferred.id;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		return (int)all->prefetched.type;
	default:
		return all->prefetched.id;
	}
}

CUresult cu_managed_get_locked(void *data, size_t data_bytes, CUmem_range_attribute attribute,
			       CUdeviceptr address, size_t bytes)
{
	struct said all;
	int value;

	if (!data || !is_managed(address, bytes) ||
	    attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
	    attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID || data_bytes == 0 ||
	    data_bytes % sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	all = said_of_all(address, address + bytes);
	if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
		return list_accessed(all.accessed_by, data, data_bytes / sizeof(int));
	if (data_bytes != sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	value = value_of(&all, attribute);
	memcpy(data, &value, sizeof(value));
	return CUDA_SUCCESS;
}
