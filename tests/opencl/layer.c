/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of the OpenCL loader (OPENCL_LAYERS) for tests: over a device that lacks them it offers domains by which it can be
 * divided, and programs in SPIR-V. What it adds is made of what the device has: a domain's parts are parts by counts, and SPIR-V
 * is translated to LLVM's code, which PoCL takes as a binary, when the program is built.
 *
 *   OPENCL_MORE=WORD WORD...
 *     domains     the device has two NUMA nodes, one unit and the rest; and a level 3 cache for each unit
 *     il          the device takes SPIR-V, with specialization constants of 4 bytes
 *     no-queues   its sub-devices get no queue in a context of their parent's
 *     gpu         the device is a GPU as NVIDIA's OpenCL has one, of a platform "Stand-in GPU": its memory is not the host's, it is not
 *                 divided, its binaries are PTX (gpu.c), groups of 256 are all that it advises, a command is said to begin before the one ahead of it has ended, and
 *                 once a kernel "wild" was launched all that was put has failed, with a number that is not OpenCL's
 */
#include <CL/cl_layer.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/opencl/gpu.h"

/* What NVIDIA's calls answer after a wrong access. */
#define FAILED		  (-9999)
#define BEGINS_EARLIER_NS 100000000u /* more than NVIDIA's 10 us, so that it shows */

static const cl_icd_dispatch *below;
static cl_icd_dispatch above;
static struct {
	bool domains;
	bool il;
	bool no_queues;
	bool gpu;
} more;
static atomic_bool is_lost; /* a wild kernel was launched */

/* What the program has of one in SPIR-V. */
struct il_program {
	void *dispatch; /* of the context: loaders look */
	struct il_program *next;
	cl_context context;
	cl_program real; /* NULL: not built yet */
	void *module;
	size_t bytes;
	char constants[512]; /* as the translator takes them */
};
static struct il_program *programs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

static cl_int CL_API_CALL get_platform_info(cl_platform_id platform, cl_platform_info what,
					    size_t cap, void *to, size_t *ret_n)
{
	static const char name[] = "Stand-in GPU";

	if (more.gpu && what == CL_PLATFORM_NAME)
		return answer(name, sizeof(name), cap, to, ret_n);
	return below->clGetPlatformInfo(platform, what, cap, to, ret_n);
}

/* What the device says of itself as a GPU; false: as it is. */
static bool gpu_number(cl_device_info what, cl_ulong *ret_number)
{
	*ret_number = what == CL_DEVICE_TYPE		   ? CL_DEVICE_TYPE_GPU
		      : what == CL_DEVICE_SINGLE_FP_CONFIG ? 0xbf
							   : 0;
	return what == CL_DEVICE_TYPE || what == CL_DEVICE_SINGLE_FP_CONFIG ||
	       what == CL_DEVICE_HOST_UNIFIED_MEMORY || what == CL_DEVICE_PARTITION_PROPERTIES ||
	       what == CL_DEVICE_PARTITION_AFFINITY_DOMAIN;
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
	cl_ulong number;

	if (more.gpu && gpu_number(what, &number))
		return answer(&number,
			      what == CL_DEVICE_HOST_UNIFIED_MEMORY ? sizeof(cl_bool)
								    : sizeof(number),
			      cap, to, ret_n);
	if (more.il && what == CL_DEVICE_IL_VERSION)
		return answer("SPIR-V_1.4", sizeof("SPIR-V_1.4"), cap, to, ret_n);
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

	if (more.gpu)
		return CL_INVALID_VALUE;
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

/* ---- SPIR-V ---- */

/* NULL: none of the layer's. */
static struct il_program *find(cl_program program)
{
	struct il_program *at;

	pthread_mutex_lock(&lock);
	for (at = programs; at && (cl_program)(void *)at != program; at = at->next)
		;
	pthread_mutex_unlock(&lock);
	return at;
}

static cl_program real_of(cl_program program)
{
	struct il_program *il = find(program);

	return il ? il->real : program;
}

static cl_program CL_API_CALL create_with_il(cl_context context, const void *bytes, size_t n,
					     cl_int *ret_result)
{
	struct il_program *il = more.il && bytes && n ? calloc(1, sizeof(*il)) : NULL;

	if (ret_result)
		*ret_result = il ? CL_SUCCESS : CL_INVALID_OPERATION;
	if (!il)
		return NULL;
	il->dispatch = *(void **)context;
	il->context = context;
	il->module = malloc(n);
	il->bytes = n;
	memcpy(il->module, bytes, n);
	pthread_mutex_lock(&lock);
	il->next = programs;
	programs = il;
	pthread_mutex_unlock(&lock);
	return (cl_program)(void *)il;
}

static cl_int CL_API_CALL set_constant(cl_program program, cl_uint id, size_t n, const void *value)
{
	struct il_program *il = find(program);
	size_t len = il ? strlen(il->constants) : 0;
	int number;

	if (!il)
		return CL_INVALID_PROGRAM;
	if (n != sizeof(number) || sizeof(il->constants) - len < 40)
		return CL_INVALID_VALUE;
	memcpy(&number, value, n);
	snprintf(il->constants + len, sizeof(il->constants) - len, "%s%u:i32:%d", len ? " " : "",
		 id, number);
	return CL_SUCCESS;
}

static bool write_file(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "wb");
	bool good = file && fwrite(bytes, 1, n, file) == n;

	return file && fclose(file) == 0 && good;
}

/* LLVM's code of it, malloc'd; where the process may write. */
static unsigned char *translate(const struct il_program *il, size_t *ret_n)
{
	const char *folder = getenv("POCL_CACHE_DIR") ? getenv("POCL_CACHE_DIR") : "/tmp";
	char from[300], to[300], constants[600];
	unsigned char *code = NULL;
	FILE *file;
	pid_t pid;
	int status = 1;

	snprintf(from, sizeof(from), "%s/il-%d.spv", folder, (int)getpid());
	snprintf(to, sizeof(to), "%s/il-%d.bc", folder, (int)getpid());
	snprintf(constants, sizeof(constants), "--spec-const=%s", il->constants);
	if (!write_file(from, il->module, il->bytes))
		return NULL;
	pid = fork();
	if (pid == 0) {
		execl(LLVM_SPIRV, LLVM_SPIRV, "-r", from, "-o", to,
		      il->constants[0] ? constants : (char *)NULL, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	file = status == 0 ? fopen(to, "rb") : NULL;
	if (file) {
		code = malloc(4 << 20);
		*ret_n = code ? fread(code, 1, 4 << 20, file) : 0;
		(void)fclose(file);
	}
	(void)unlink(from);
	(void)unlink(to);
	return code;
}

static cl_int CL_API_CALL build_program(cl_program program, cl_uint n, const cl_device_id *devices,
					const char *options,
					void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
	struct il_program *il = find(program);
	cl_int result = CL_INVALID_BINARY;
	unsigned char *code;
	size_t bytes = 0;

	/* Its division is exact only where that is asked for: texts can see it. */
	if (more.gpu && options && strstr(options, "-cl-fp32-correctly-rounded-divide-sqrt"))
		options = "-cl-kernel-arg-info -D EXACT_DIVISION";
	if (!il)
		return below->clBuildProgram(program, n, devices, options, notify, user);
	code = n == 1 ? translate(il, &bytes) : NULL;
	if (code)
		il->real = below->clCreateProgramWithBinary(il->context, 1, devices, &bytes,
							    (const unsigned char **)&code, NULL,
							    &result);
	free(code);
	return il->real ? below->clBuildProgram(il->real, n, devices, options, notify, user)
			: result;
}

/* ---- a GPU ---- */

/* One device's, as the tests have it. */
static cl_int get_ptx(cl_program program, cl_program_info what, size_t cap, void *to, size_t *ret_n)
{
	unsigned char *binary = NULL, **into = to;
	size_t n = 0;
	cl_int result = below->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(n), &n,
						NULL);

	if (result == CL_SUCCESS)
		binary = malloc(n ? n : 1);
	if (binary)
		result = below->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary),
						 &binary, NULL);
	if (result == CL_SUCCESS && what == CL_PROGRAM_BINARIES) {
		(void)gpu_ptx(binary, n, into ? *into : NULL);
		result = answer(into, sizeof(*into), cap, NULL, ret_n);
	} else if (result == CL_SUCCESS) {
		n = n ? gpu_ptx(binary, n, NULL) : 0;
		result = answer(&n, sizeof(n), cap, to, ret_n);
	}
	free(binary);
	return result;
}

static cl_program CL_API_CALL create_with_binary(cl_context context, cl_uint n,
						 const cl_device_id *devices, const size_t *lengths,
						 const unsigned char **binaries, cl_int *status,
						 cl_int *ret_result)
{
	size_t bytes = 0;
	unsigned char *inside = more.gpu && n == 1 ? gpu_inside(binaries[0], lengths[0], &bytes)
						   : NULL;
	cl_program program;

	if (more.gpu && !inside) {
		if (ret_result)
			*ret_result = CL_INVALID_BINARY;
		return NULL;
	}
	if (!inside)
		return below->clCreateProgramWithBinary(context, n, devices, lengths, binaries,
							status, ret_result);
	program = below->clCreateProgramWithBinary(
		context, 1, devices, &bytes, (const unsigned char **)&inside, status, ret_result);
	free(inside);
	return program;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint ndims,
					 const size_t *offset, const size_t *global,
					 const size_t *local, cl_uint n, const cl_event *events,
					 cl_event *ret_event)
{
	char name[64] = "";

	(void)below->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name), name, NULL);
	if (more.gpu && strcmp(name, "wild") == 0)
		atomic_store(&is_lost, true);
	return below->clEnqueueNDRangeKernel(queue, kernel, ndims, offset, global, local, n, events,
					     ret_event);
}

static cl_int CL_API_CALL get_group_info(cl_kernel kernel, cl_device_id device,
					 cl_kernel_work_group_info what, size_t cap, void *to,
					 size_t *ret_n)
{
	const size_t advised = 256;

	if (more.gpu && what == CL_KERNEL_WORK_GROUP_SIZE)
		return answer(&advised, sizeof(advised), cap, to, ret_n);
	return below->clGetKernelWorkGroupInfo(kernel, device, what, cap, to, ret_n);
}

static cl_int CL_API_CALL finish(cl_command_queue queue)
{
	cl_int result = below->clFinish(queue);

	return atomic_load(&is_lost) ? CL_INVALID_COMMAND_QUEUE : result;
}

static cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info what, size_t cap, void *to,
					 size_t *ret_n)
{
	if (atomic_load(&is_lost) && what == CL_EVENT_COMMAND_EXECUTION_STATUS)
		return FAILED;
	return below->clGetEventInfo(event, what, cap, to, ret_n);
}

static cl_int CL_API_CALL get_event_times(cl_event event, cl_profiling_info what, size_t cap,
					  void *to, size_t *ret_n)
{
	cl_ulong *ns = to;
	cl_int result = atomic_load(&is_lost)
				? FAILED
				: below->clGetEventProfilingInfo(event, what, cap, to, ret_n);

	if (result == CL_SUCCESS && more.gpu && what == CL_PROFILING_COMMAND_START && ns)
		*ns -= BEGINS_EARLIER_NS;
	return result;
}

static cl_int CL_API_CALL get_program_info(cl_program program, cl_program_info what, size_t cap,
					   void *to, size_t *ret_n)
{
	const struct il_program *il = find(program);

	if (il && what == CL_PROGRAM_IL)
		return answer(il->module, il->bytes, cap, to, ret_n);
	if (more.gpu && (what == CL_PROGRAM_BINARY_SIZES || what == CL_PROGRAM_BINARIES))
		return get_ptx(real_of(program), what, cap, to, ret_n);
	return below->clGetProgramInfo(real_of(program), what, cap, to, ret_n);
}

static cl_int CL_API_CALL get_build_info(cl_program program, cl_device_id device,
					 cl_program_build_info what, size_t cap, void *to,
					 size_t *ret_n)
{
	return below->clGetProgramBuildInfo(real_of(program), device, what, cap, to, ret_n);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *ret_result)
{
	return below->clCreateKernel(real_of(program), name, ret_result);
}

static cl_int CL_API_CALL create_kernels(cl_program program, cl_uint n, cl_kernel *kernels,
					 cl_uint *ret_n)
{
	return below->clCreateKernelsInProgram(real_of(program), n, kernels, ret_n);
}

/* The layer's part of it stays until the process ends. */
static cl_int CL_API_CALL release_program(cl_program program)
{
	cl_program real = real_of(program);

	return real ? below->clReleaseProgram(real) : CL_SUCCESS;
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
	more.il = words && strstr(words, "il");
	more.no_queues = words && strstr(words, "no-queues");
	more.gpu = words && strstr(words, "gpu");
	below = table;
	/* The loader fills in the rest. */
	above.clGetPlatformInfo = get_platform_info;
	above.clGetDeviceInfo = get_device_info;
	above.clCreateSubDevices = create_sub_devices;
	above.clCreateCommandQueue = create_queue;
	above.clCreateProgramWithIL = create_with_il;
	above.clSetProgramSpecializationConstant = set_constant;
	above.clBuildProgram = build_program;
	above.clGetProgramInfo = get_program_info;
	above.clGetProgramBuildInfo = get_build_info;
	above.clCreateKernel = create_kernel;
	above.clCreateKernelsInProgram = create_kernels;
	above.clReleaseProgram = release_program;
	above.clCreateProgramWithBinary = create_with_binary;
	above.clEnqueueNDRangeKernel = enqueue_kernel;
	above.clGetKernelWorkGroupInfo = get_group_info;
	above.clFinish = finish;
	above.clGetEventInfo = get_event_info;
	above.clGetEventProfilingInfo = get_event_times;
	*ret_table = &above;
	*ret_n = sizeof(above) / sizeof(void *);
	return CL_SUCCESS;
}
