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
 */
#include <CL/cl_layer.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const cl_icd_dispatch *below;
static cl_icd_dispatch above;
static struct {
	bool domains;
	bool il;
	bool no_queues;
} more;

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

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t cap,
					  void *to, size_t *ret_n)
{
	const cl_device_affinity_domain domains = CL_DEVICE_AFFINITY_DOMAIN_NUMA |
						  CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE |
						  CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE;
	const cl_device_partition_property ways[] = { CL_DEVICE_PARTITION_EQUALLY,
						      CL_DEVICE_PARTITION_BY_COUNTS,
						      CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN };

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

static cl_int CL_API_CALL get_program_info(cl_program program, cl_program_info what, size_t cap,
					   void *to, size_t *ret_n)
{
	const struct il_program *il = find(program);

	if (il && what == CL_PROGRAM_IL)
		return answer(il->module, il->bytes, cap, to, ret_n);
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
	below = table;
	/* The loader fills in the rest. */
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
	*ret_table = &above;
	*ret_n = sizeof(above) / sizeof(void *);
	return CL_SUCCESS;
}
