/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of devices: sub-devices. Which ways there are the host has told; what a part is goes with each launch of its queues, and
 * the host's own sub-device runs it. A part lives for as long as the program, a context, a queue or a part of it has it.
 */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

typedef cl_device_partition_property property_t;

/* ---- what the host has told ---- */

static void add_domain(struct _cl_device_id *device, const char *line)
{
	char *at;
	uint64_t bit = strtoull(line, &at, 10);
	struct icd_domain *domain;

	if (bit == 0 || (bit & (bit - 1)) || (bit & ~(uint64_t)GANTRY_PART_DOMAINS))
		return;
	domain = &device->domains[__builtin_ctzll(bit)];
	domain->nparts = 0;
	while (*at == ' ' && domain->nparts < ICD_DOMAIN_PARTS) {
		uint64_t units = strtoull(at + 1, &at, 10);

		if (units == 0 || units > GANTRY_PART_MAX_UNITS)
			break;
		domain->units[domain->nparts++] = (uint16_t)units;
	}
}

void icd_parts_find(struct _cl_device_id *device)
{
	uint64_t units = icd_device_number(device, "units");

	device->units = units && units <= UINT32_MAX ? (uint32_t)units : 1;
	if (!device->compiles)
		return; /* installed kernels have the whole device */
	if (device->units > 1 && device->units <= GANTRY_PART_MAX_UNITS)
		device->ways = (uint32_t)icd_device_number(device, "partition") &
			       (GANTRY_PART_EQUALLY | GANTRY_PART_COUNTS);
	for (const char *at = device->about; (at = icd_device_line(at, "domain")) != NULL;)
		add_domain(device, at);
}

/* ---- dividing ---- */

static const struct _cl_device_id *root_of(const struct _cl_device_id *device)
{
	while (device->parent)
		device = device->parent;
	return device;
}

static bool has_way(const struct _cl_device_id *device, property_t way)
{
	switch (way) {
	case CL_DEVICE_PARTITION_EQUALLY:
		return device->ways & GANTRY_PART_EQUALLY;
	case CL_DEVICE_PARTITION_BY_COUNTS:
		return device->ways & GANTRY_PART_COUNTS;
	case CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN:
		for (uint32_t d = 0; d < GANTRY_PART_NDOMAINS; d++)
			if (device->domains[d].nparts)
				return true;
		return false;
	default:
		return false;
	}
}

/* How a device is to be divided. */
struct plan {
	const struct _cl_device_id *device;
	property_t way;
	const property_t *list; /* the program's, behind the way */
	uint32_t nlist;		/* of these up to the 0 */
	uint32_t domain;	/* which, of 0 to GANTRY_PART_NDOMAINS - 1 */
	uint32_t n;		/* parts */
};

static cl_int plan_equally(struct plan *p)
{
	if (p->nlist != 1 || p->list[0] < 1 || p->list[0] > p->device->units)
		return CL_INVALID_VALUE;
	p->n = p->device->units / (uint32_t)p->list[0];
	return CL_SUCCESS;
}

static cl_int plan_counts(struct plan *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->nlist; i++) {
		if (p->list[i] < 1 || p->list[i] > p->device->units)
			return CL_INVALID_DEVICE_PARTITION_COUNT;
		sum += (uint64_t)p->list[i];
	}
	p->n = p->nlist;
	return p->n && sum <= p->device->units ? CL_SUCCESS : CL_INVALID_DEVICE_PARTITION_COUNT;
}

/* "Next" is the first of them, in their order, that divides the device. */
static cl_int plan_domain(struct plan *p)
{
	property_t wanted = p->nlist == 1 ? p->list[0] : 0;

	for (uint32_t d = 0; d < GANTRY_PART_NDOMAINS; d++) {
		if (p->device->domains[d].nparts == 0 ||
		    (wanted != CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE &&
		     wanted != (property_t)1 << d))
			continue;
		p->domain = d;
		p->n = p->device->domains[d].nparts;
		return CL_SUCCESS;
	}
	return CL_INVALID_VALUE;
}

static cl_int plan(struct plan *p, const struct _cl_device_id *device, const property_t *list)
{
	*p = (struct plan){ .device = device };
	if (!list || !list[0])
		return CL_INVALID_VALUE;
	p->way = list[0];
	p->list = list + 1;
	if (!has_way(device, p->way))
		return has_way(root_of(device), p->way) ? CL_DEVICE_PARTITION_FAILED
							: CL_INVALID_VALUE;
	/* More words than units are wrong in any list, and may be no list at all. */
	while (p->nlist <= device->units && p->list[p->nlist])
		p->nlist++;
	if (p->way == CL_DEVICE_PARTITION_EQUALLY)
		return plan_equally(p);
	return p->way == CL_DEVICE_PARTITION_BY_COUNTS ? plan_counts(p) : plan_domain(p);
}

/* Which units part @i has; @first: that of the part before it ended with. */
static uint32_t place(const struct plan *p, uint32_t i, uint32_t first,
		      struct gantry_launch_part *ret_part)
{
	const struct icd_domain *domain = &p->device->domains[p->domain];
	uint32_t count = (uint32_t)p->list[p->way == CL_DEVICE_PARTITION_BY_COUNTS ? i : 0];

	if (p->way == CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN) {
		*ret_part = (struct gantry_launch_part){ .domain = (uint16_t)(1u << p->domain),
							 .index = (uint16_t)i };
		return domain->units[i];
	}
	*ret_part = p->device->part;
	ret_part->first = (uint16_t)(p->device->part.first + first);
	ret_part->count = (uint16_t)count;
	return count;
}

/* What was asked for, with the domain that it came to. */
static bool keep_type(struct _cl_device_id *part, const struct plan *p)
{
	part->type_words = p->nlist + 2;
	part->made_by = calloc(part->type_words, sizeof(*part->made_by));
	if (!part->made_by)
		return false;
	part->made_by[0] = p->way;
	memcpy(part->made_by + 1, p->list, p->nlist * sizeof(*p->list));
	if (p->way == CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN)
		part->made_by[1] = (property_t)1 << p->domain;
	return true;
}

static struct _cl_device_id *part_new(const struct plan *p, uint32_t i, uint32_t *first)
{
	struct _cl_device_id *part = icd_object_new(ICD_DEVICE);
	struct icd_object object;

	if (!part)
		return NULL;
	object = part->object;
	*part = *p->device;
	part->object = object;
	part->parent = (struct _cl_device_id *)(uintptr_t)p->device;
	icd_object_hold(part->parent);
	part->made_by = NULL;
	part->units = place(p, i, *first, &part->part);
	*first += part->units;
	part->nbuiltins = 0;
	part->ways = part->units > 1 ? root_of(p->device)->ways : 0;
	memset(part->domains, 0, sizeof(part->domains));
	if (keep_type(part, p))
		return part;
	icd_object_throw_away(part);
	return NULL;
}

void icd_part_end(struct _cl_device_id *part)
{
	free(part->made_by);
	part->made_by = NULL;
	icd_object_drop(part->parent);
}

static cl_int divide(const struct plan *p, cl_device_id *ret_devices)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < p->n; i++) {
		ret_devices[i] = part_new(p, i, &first);
		if (ret_devices[i])
			continue;
		while (i > 0)
			icd_object_throw_away(ret_devices[--i]);
		return CL_OUT_OF_HOST_MEMORY;
	}
	return CL_SUCCESS;
}

cl_int CL_API_CALL icd_clCreateSubDevices(cl_device_id device, const property_t *properties,
					  cl_uint n, cl_device_id *ret_devices, cl_uint *ret_n)
{
	cl_int result = CL_INVALID_DEVICE;
	struct plan p = { 0 };

	icd_gate_lock();
	if (icd_device_valid(device))
		result = plan(&p, device, properties);
	if (result == CL_SUCCESS && ret_devices)
		result = n < p.n ? CL_INVALID_VALUE : divide(&p, ret_devices);
	icd_gate_unlock();
	if (result == CL_SUCCESS && ret_n)
		*ret_n = p.n;
	return result;
}

/* Those of the platform are there for as long as it is, and not counted. */
cl_int CL_API_CALL icd_clRetainDevice(cl_device_id device)
{
	cl_int result = CL_INVALID_DEVICE;

	icd_gate_lock();
	if (icd_device_valid(device)) {
		if (device->parent)
			device->object.refs++;
		result = CL_SUCCESS;
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clReleaseDevice(cl_device_id device)
{
	cl_int result = CL_INVALID_DEVICE;

	icd_gate_lock();
	if (icd_device_valid(device) && device->object.refs > 0) {
		if (device->parent)
			icd_object_let_go(device);
		result = CL_SUCCESS;
	}
	icd_gate_unlock();
	return result;
}

/* ---- queries ---- */

static cl_int answer_ways(const struct _cl_device_id *device, const struct icd_to *to)
{
	static const property_t ways[] = { CL_DEVICE_PARTITION_EQUALLY,
					   CL_DEVICE_PARTITION_BY_COUNTS,
					   CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN };
	property_t found[3] = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < 3; i++)
		if (has_way(device, ways[i]))
			found[n++] = ways[i];
	return icd_answer(to, found, (n ? n : 1) * sizeof(found[0]));
}

static uint32_t most_parts(const struct _cl_device_id *device)
{
	uint32_t most = device->ways ? device->units : 0;

	for (uint32_t d = 0; d < GANTRY_PART_NDOMAINS; d++)
		if (device->domains[d].nparts > most)
			most = device->domains[d].nparts;
	return most;
}

static uint64_t domains_of(const struct _cl_device_id *device)
{
	uint64_t found = 0;

	for (uint32_t d = 0; d < GANTRY_PART_NDOMAINS; d++)
		if (device->domains[d].nparts)
			found |= 1ull << d | CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE;
	return found;
}

cl_int icd_part_info(const struct _cl_device_id *device, cl_device_info what,
		     const struct icd_to *to)
{
	switch (what) {
	case CL_DEVICE_MAX_COMPUTE_UNITS:
		return ICD_ANSWER(to, cl_uint, device->units);
	case CL_DEVICE_PARENT_DEVICE:
		return ICD_ANSWER(to, cl_device_id, device->parent);
	case CL_DEVICE_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, device->parent ? device->object.refs : 1);
	case CL_DEVICE_PARTITION_PROPERTIES:
		return answer_ways(device, to);
	case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
		return ICD_ANSWER(to, cl_uint, most_parts(device));
	case CL_DEVICE_PARTITION_AFFINITY_DOMAIN:
		return ICD_ANSWER(to, cl_device_affinity_domain, domains_of(device));
	case CL_DEVICE_PARTITION_TYPE:
		return device->made_by ? icd_answer(to, device->made_by,
						    device->type_words * sizeof(property_t))
				       : ICD_ANSWER(to, cl_device_partition_property, 0);
	default:
		return CL_INVALID_VALUE;
	}
}
