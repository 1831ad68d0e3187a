/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of the OpenCL loader (OPENCL_LAYERS) for tests: over a device that lacks them it offers domains by which it can be
 * divided. What it adds is made of what the device has: a domain's parts are parts by counts.
 *
 *   OPENCL_MORE=WORD WORD...
 *     domains     the device has two NUMA nodes, one unit and the rest; and a level 3 cache for each unit
 *     no-queues   its sub-devices get no queue in a context of their parent's
 */
#include <CL/cl_layer.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const cl_icd_dispatch *below;
static cl_icd_dispatch above;
static struct {
	bool domains;
	bool no_queues;
} more;

static cl_int answer(const void *from, size_t n, size_t cap, void *to, size_t *ret_n)
{
	if (to && cap < n)
		return CL_INVALID_VALUE;
	if (to)
		memcpy(to, from, n);
	if (ret_n)
		*ret_n = n;
	return CL_SUCCESS;
}

static cl_device_id parent_of(cl_device_id device)
{
	cl_device_id parent = NULL;

	(void)below->clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof(parent), &parent,
				     NULL);
	return parent;
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t cap,
					  void *to, size_t *ret_n)
{
	const cl_device_affinity_domain domains = CL_DEVICE_AFFINITY_DOMAIN_NUMA |
						  CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE |
						  CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE;
	const cl_device_partition_property ways[] = { CL_DEVICE_PARTITION_EQUALLY,
						      CL_DEVICE_PARTITION_BY_COUNTS,
						      CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN };

	if (more.domains && !parent_of(device)) {
		if (what == CL_DEVICE_PARTITION_AFFINITY_DOMAIN)
			return answer(&domains, sizeof(domains), cap, to, ret_n);
		if (what == CL_DEVICE_PARTITION_PROPERTIES)
			return answer(ways, sizeof(ways), cap, to, ret_n);
	}
	return below->clGetDeviceInfo(device, what, cap, to, ret_n);
}

static cl_int CL_API_CALL create_sub_devices(cl_device_id device,
					     const cl_device_partition_property *list, cl_uint n,
					     cl_device_id *devices, cl_uint *ret_n)
{
	cl_uint units = 1;
	cl_device_partition_property nodes[] = { CL_DEVICE_PARTITION_BY_COUNTS, 1, 0, 0, 0 };
	const cl_device_partition_property ones[] = { CL_DEVICE_PARTITION_EQUALLY, 1, 0 };

	if (!more.domains || !list || list[0] != CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN)
		return below->clCreateSubDevices(device, list, n, devices, ret_n);
	(void)below->clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units,
				     NULL);
	nodes[2] = (cl_device_partition_property)units - 1;
	if (list[1] == CL_DEVICE_AFFINITY_DOMAIN_NUMA)
		return below->clCreateSubDevices(device, nodes, n, devices, ret_n);
	return list[1] == CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE
		       ? below->clCreateSubDevices(device, ones, n, devices, ret_n)
		       : CL_INVALID_VALUE;
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
						 cl_command_queue_properties properties,
						 cl_int *ret_result)
{
	if (!more.no_queues || !parent_of(device))
		return below->clCreateCommandQueue(context, device, properties, ret_result);
	if (ret_result)
		*ret_result = CL_INVALID_DEVICE;
	return NULL;
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t cap, void *to,
					       size_t *ret_len)
{
	const cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	return what == CL_LAYER_API_VERSION ? answer(&version, sizeof(version), cap, to, ret_len)
					    : CL_INVALID_VALUE;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *table, cl_uint *ret_n,
					    const cl_icd_dispatch **ret_table)
{
	const char *words = getenv("OPENCL_MORE");

	(void)n;
	more.domains = words && strstr(words, "domains");
	more.no_queues = words && strstr(words, "no-queues");
	below = table;
	/* The loader fills in the rest. */
	above.clGetDeviceInfo = get_device_info;
	above.clCreateSubDevices = create_sub_devices;
	above.clCreateCommandQueue = create_queue;
	*ret_table = &above;
	*ret_n = sizeof(above) / sizeof(void *);
	return CL_SUCCESS;
}
