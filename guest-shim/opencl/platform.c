/* SPDX-License-Identifier: Apache-2.0 */
/* The platform and its devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "guest-shim/opencl/calls.h"

#define PLATFORM_EXTENSIONS "cl_khr_icd"
#define LEAST_ALLOC	    (128ull << 20)

struct _cl_platform_id icd_platform = { &icd_dispatch };

/* ---- the platform ---- */

cl_int CL_API_CALL icd_clGetPlatformIDs(cl_uint n, cl_platform_id *platforms, cl_uint *ret_n)
{
	struct _cl_device_id *devices;
	uint32_t ndevices;

	if ((n == 0 && platforms) || (!platforms && !ret_n))
		return CL_INVALID_VALUE;
	icd_gate_lock();
	ndevices = icd_devices(&devices);
	icd_gate_unlock();
	if (ret_n)
		*ret_n = ndevices ? 1 : 0;
	/* Without an agent the program's other platforms are as if there were none of this name. */
	if (ndevices == 0)
		return CL_PLATFORM_NOT_FOUND_KHR;
	if (platforms)
		platforms[0] = &icd_platform;
	return CL_SUCCESS;
}

cl_int CL_API_CALL icd_clGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
					 size_t size, void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	char text[64];

	if (platform != &icd_platform)
		return CL_INVALID_PLATFORM;
	switch (what) {
	case CL_PLATFORM_PROFILE:
		return icd_answer_text(&to, "FULL_PROFILE");
	case CL_PLATFORM_VERSION:
		(void)snprintf(text, sizeof(text), "OpenCL 1.2 Gantry %s", gantry_version());
		return icd_answer_text(&to, text);
	case CL_PLATFORM_NAME:
	case CL_PLATFORM_VENDOR:
		return icd_answer_text(&to, "Gantry");
	case CL_PLATFORM_EXTENSIONS:
		return icd_answer_text(&to, PLATFORM_EXTENSIONS);
	case CL_PLATFORM_ICD_SUFFIX_KHR:
		return icd_answer_text(&to, "GANTRY");
	default:
		return CL_INVALID_VALUE;
	}
}

static bool is_asked_for(const struct _cl_device_id *device, cl_uint i, cl_device_type type)
{
	if (type == CL_DEVICE_TYPE_ALL)
		return device->type != CL_DEVICE_TYPE_CUSTOM;
	return (type & device->type) || ((type & CL_DEVICE_TYPE_DEFAULT) && i == 0);
}

cl_int CL_API_CALL icd_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint n,
				      cl_device_id *ret_devices, cl_uint *ret_n)
{
	const cl_device_type known = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
				     CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM |
				     CL_DEVICE_TYPE_DEFAULT;
	struct _cl_device_id *devices;
	uint32_t ndevices;
	cl_uint found = 0;

	if (platform && platform != &icd_platform)
		return CL_INVALID_PLATFORM;
	if (type != CL_DEVICE_TYPE_ALL && ((type & ~known) || type == 0))
		return CL_INVALID_DEVICE_TYPE;
	if ((n == 0 && ret_devices) || (!ret_devices && !ret_n))
		return CL_INVALID_VALUE;
	icd_gate_lock();
	ndevices = icd_devices(&devices);
	icd_gate_unlock();
	for (uint32_t i = 0; i < ndevices; i++) {
		if (!is_asked_for(&devices[i], i, type))
			continue;
		if (ret_devices && found < n)
			ret_devices[found] = &devices[i];
		found++;
	}
	if (ret_n)
		*ret_n = found;
	return found ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

/* ---- a device ---- */

/* Numbers that the host tells, and what is said where it tells nothing. */
static const struct number {
	cl_device_info what;
	const char *key; /* NULL: @otherwise, always */
	uint64_t otherwise;
	uint8_t bytes; /* of the answer */
} numbers[] = {
	{ CL_DEVICE_MAX_CLOCK_FREQUENCY, "clock_mhz", 1, 4 },
	{ CL_DEVICE_ADDRESS_BITS, "address_bits", 64, 4 },
	{ CL_DEVICE_MAX_WORK_GROUP_SIZE, "work_group", 1, sizeof(size_t) },
	{ CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, NULL, 3, 4 },
	{ CL_DEVICE_VENDOR_ID, NULL, 0, 4 },
	{ CL_DEVICE_IMAGE2D_MAX_WIDTH, "image2d_width", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE2D_MAX_HEIGHT, "image2d_height", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE3D_MAX_WIDTH, "image3d_width", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE3D_MAX_HEIGHT, "image3d_height", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE3D_MAX_DEPTH, "image3d_depth", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, "image_buffer", 0, sizeof(size_t) },
	{ CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, "image_array", 0, sizeof(size_t) },
	{ CL_DEVICE_MAX_SAMPLERS, "samplers", 0, 4 },
	{ CL_DEVICE_MAX_PARAMETER_SIZE, NULL, 1024, sizeof(size_t) },
	{ CL_DEVICE_MEM_BASE_ADDR_ALIGN, "align_bits", 1024, 4 },
	{ CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, "align_bytes", 128, 4 },
	{ CL_DEVICE_SINGLE_FP_CONFIG, "single", CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN, 8 },
	{ CL_DEVICE_DOUBLE_FP_CONFIG, "double", 0, 8 },
	{ CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, "cache_type", CL_NONE, 4 },
	{ CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, "cache_line", 0, 4 },
	{ CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, "cache_bytes", 0, 8 },
	{ CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, "constant_bytes", 65536, 8 },
	{ CL_DEVICE_MAX_CONSTANT_ARGS, "constant_args", 8, 4 },
	{ CL_DEVICE_LOCAL_MEM_TYPE, "local_type", CL_GLOBAL, 4 },
	{ CL_DEVICE_LOCAL_MEM_SIZE, "local_bytes", 32768, 8 },
	{ CL_DEVICE_ERROR_CORRECTION_SUPPORT, "ecc", CL_FALSE, 4 },
	{ CL_DEVICE_HOST_UNIFIED_MEMORY, NULL, CL_FALSE, 4 },
	{ CL_DEVICE_PROFILING_TIMER_RESOLUTION, NULL, 1, sizeof(size_t) },
	{ CL_DEVICE_ENDIAN_LITTLE, NULL, CL_TRUE, 4 },
	{ CL_DEVICE_AVAILABLE, NULL, CL_TRUE, 4 },
	{ CL_DEVICE_PRINTF_BUFFER_SIZE, "printf_bytes", 0, sizeof(size_t) },
	{ CL_DEVICE_PREFERRED_INTEROP_USER_SYNC, NULL, CL_TRUE, 4 },
	{ CL_DEVICE_QUEUE_PROPERTIES, NULL,
	  CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 8 },
	{ CL_DEVICE_EXECUTION_CAPABILITIES, NULL, CL_EXEC_KERNEL, 8 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, "vector_char", 1, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT, "vector_short", 1, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, "vector_int", 1, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG, "vector_long", 1, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, "vector_float", 1, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, "vector_double", 0, 4 },
	{ CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF, NULL, 0, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, "vector_char", 1, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT, "vector_short", 1, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, "vector_int", 1, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG, "vector_long", 1, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, "vector_float", 1, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, "vector_double", 0, 4 },
	{ CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, NULL, 0, 4 },
};

static cl_int answer_number(const struct _cl_device_id *device, const struct number *number,
			    const struct icd_to *to)
{
	uint64_t value = number->key ? icd_device_number(device, number->key) : 0;

	/* Little-endian: the low bytes come first. */
	value = value ? value : number->otherwise;
	return icd_answer(to, &value, number->bytes);
}

/* Of what the host's device has, what works through this driver. */
static cl_int answer_extensions(const struct _cl_device_id *device, const struct icd_to *to)
{
	static const char *const known[] = {
		"cl_khr_global_int32_base_atomics",
		"cl_khr_global_int32_extended_atomics",
		"cl_khr_local_int32_base_atomics",
		"cl_khr_local_int32_extended_atomics",
		"cl_khr_int64_base_atomics",
		"cl_khr_int64_extended_atomics",
		"cl_khr_byte_addressable_store",
		"cl_khr_3d_image_writes",
		"cl_khr_fp64",
		"cl_khr_fp16",
		"cles_khr_int64",
	};
	char text[512] = "", *at = text;
	const char *all = strstr(device->about, "\nextensions ");
	size_t len = all ? strcspn(all + 1, "\n") : 0;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(known); i++) {
		const char *found = all ? strstr(all, known[i]) : NULL;

		if (found && found < all + len)
			at += snprintf(at, sizeof(text) - (size_t)(at - text), "%s%s",
				       at == text ? "" : " ", known[i]);
	}
	if (icd_il_version(device))
		(void)snprintf(at, sizeof(text) - (size_t)(at - text), "%scl_khr_il_program",
			       at == text ? "" : " ");
	return icd_answer_text(to, text);
}

static cl_int answer_name(const struct _cl_device_id *device, const struct icd_to *to)
{
	const char *model = strstr(device->about, "\nmodel ");
	char text[160];

	if (!model)
		return icd_answer_text(to, device->props.name);
	model += strlen("\nmodel ");
	(void)snprintf(text, sizeof(text), "%s (%.*s)", device->props.name,
		       (int)strcspn(model, "\n"), model);
	return icd_answer_text(to, text);
}

static cl_int answer_items(const struct _cl_device_id *device, const struct icd_to *to)
{
	const char *line = strstr(device->about, "\nwork_items ");
	size_t items[3] = { 1, 1, 1 };

	if (line && sscanf(line, "\nwork_items %zu %zu %zu", &items[0], &items[1], &items[2]) != 3)
		items[0] = items[1] = items[2] = 1;
	return icd_answer(to, items, sizeof(items));
}

static cl_int answer_builtins(const struct _cl_device_id *device, const struct icd_to *to)
{
	char *names = icd_device_builtin_names(device);
	cl_int result = names ? icd_answer_text(to, names) : CL_OUT_OF_HOST_MEMORY;

	free(names);
	return result;
}

static cl_int answer_mem(const struct _cl_device_id *device, cl_device_info what,
			 const struct icd_to *to)
{
	uint64_t all = icd_device_mem_bytes(device);
	uint64_t one = icd_device_alloc_bytes(device);

	if (what == CL_DEVICE_GLOBAL_MEM_SIZE)
		return ICD_ANSWER(to, cl_ulong, all);
	/* The standard's least, where the tenant has that much. */
	return ICD_ANSWER(to, cl_ulong,
			  one < LEAST_ALLOC && all >= LEAST_ALLOC ? LEAST_ALLOC : one);
}

/* Of one kernel: as many as the device takes, and a launch can say. */
static cl_int answer_images(const struct _cl_device_id *device, const char *key,
			    const struct icd_to *to)
{
	uint64_t n = device->nformats ? icd_device_number(device, key) : 0;

	return ICD_ANSWER(to, cl_uint, n < ICD_MAX_IMAGES ? n : ICD_MAX_IMAGES);
}

static cl_int answer_il(const struct _cl_device_id *device, const struct icd_to *to)
{
	const char *version = icd_il_version(device);
	char text[128];

	(void)snprintf(text, sizeof(text), "%.*s", version ? (int)strcspn(version, "\n") : 0,
		       version ? version : "");
	return icd_answer_text(to, text);
}

static cl_int info(const struct _cl_device_id *device, cl_device_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_DEVICE_TYPE:
		return ICD_ANSWER(to, cl_device_type, device->type);
	case CL_DEVICE_PLATFORM:
		return ICD_ANSWER(to, cl_platform_id, &icd_platform);
	case CL_DEVICE_NAME:
		return answer_name(device, to);
	case CL_DEVICE_VENDOR:
		return icd_answer_text(to, "Gantry");
	case CL_DRIVER_VERSION:
		return icd_answer_text(to, gantry_version());
	case CL_DEVICE_PROFILE:
		return icd_answer_text(to, "FULL_PROFILE");
	case CL_DEVICE_VERSION:
		return icd_answer_text(to, "OpenCL 1.2 Gantry");
	case CL_DEVICE_OPENCL_C_VERSION:
		return icd_answer_text(to, "OpenCL C 1.2 Gantry");
	case CL_DEVICE_EXTENSIONS:
		return answer_extensions(device, to);
	case CL_DEVICE_BUILT_IN_KERNELS:
		return answer_builtins(device, to);
	case CL_DEVICE_MAX_WORK_ITEM_SIZES:
		return answer_items(device, to);
	case CL_DEVICE_GLOBAL_MEM_SIZE:
	case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
		return answer_mem(device, what, to);
	case CL_DEVICE_COMPILER_AVAILABLE:
	case CL_DEVICE_LINKER_AVAILABLE:
		return ICD_ANSWER(to, cl_bool, device->compiles);
	case CL_DEVICE_IL_VERSION:
		return answer_il(device, to);
	case CL_DEVICE_IMAGE_SUPPORT:
		return ICD_ANSWER(to, cl_bool, device->nformats > 0);
	case CL_DEVICE_MAX_READ_IMAGE_ARGS:
		return answer_images(device, "image_reads", to);
	case CL_DEVICE_MAX_WRITE_IMAGE_ARGS:
		return answer_images(device, "image_writes", to);
	default:
		for (size_t i = 0; i < GANTRY_ARRAY_SIZE(numbers); i++)
			if (numbers[i].what == what)
				return answer_number(device, &numbers[i], to);
		return icd_part_info(device, what, to);
	}
}

cl_int CL_API_CALL icd_clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size,
				       void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	cl_int result = CL_INVALID_DEVICE;

	icd_gate_lock();
	if (icd_device_valid(device))
		result = info(device, what, &to);
	icd_gate_unlock();
	return result;
}
