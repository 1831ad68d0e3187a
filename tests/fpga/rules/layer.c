/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that the layer changes: who may open the board, what may be made, what is loaded when, and what fails. rules.h says which rules. */
#include "tests/fpga/rules/rules.h"

#include <CL/cl_layer.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_OBJECTS  4096u
#define MAX_PROGRAMS 64u
#define MAX_REGIONS  8u
#define LOST_BYTE    0xdb
#define NS_PER_S     1000000000ull

static const cl_icd_dispatch *below;
static cl_icd_dispatch above;

static struct {
	char board[256];
	bool xilinx;
	bool keeps_memory;
	uint64_t configure_ns;
} rules;

/* @objects protects the tables; @one_load is held while the board is loaded, and is taken first. */
static pthread_mutex_t one_load = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t objects = PTHREAD_MUTEX_INITIALIZER;
static int board_fd = -1;
static unsigned int ncontexts;
static struct board_file *board;
/* Each device of the board is a region with an image of its own. */
static struct region {
	cl_device_id device;
	struct rules_image *resident;
} regions[MAX_REGIONS];

struct program {
	cl_program id;
	struct region *region;
	struct rules_image image;
};
static struct program
	*programs[MAX_PROGRAMS]; /* NULL: unused. A freed one's image stays for what runs */
static struct {
	cl_kernel id;
	struct program *program;
	char name[64];
} kernels[MAX_OBJECTS];
static unsigned int nkernels;
static cl_mem mems[MAX_OBJECTS];
static unsigned int nmems;
static struct {
	cl_command_queue id;
	cl_device_id device;
} queues[MAX_OBJECTS];
static unsigned int nqueues;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static cl_int fail(cl_int result, cl_int *ret_result)
{
	if (ret_result)
		*ret_result = result;
	return result;
}

/* One fault less, if there is one to be had. */
static bool use_up(uint32_t *count)
{
	uint32_t now = __atomic_load_n(count, __ATOMIC_SEQ_CST);

	while (now > 0)
		if (__atomic_compare_exchange_n(count, &now, now - 1, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return true;
	return false;
}

static bool is_gone(void)
{
	if (!board || !__atomic_load_n(&board->gone, __ATOMIC_SEQ_CST))
		return false;
	rules_jobs_fail();
	return true;
}

/* NULL: the board has no more. */
static struct region *region_of(cl_device_id device)
{
	for (unsigned int i = 0; i < MAX_REGIONS; i++) {
		if (!regions[i].device)
			regions[i].device = device;
		if (regions[i].device == device)
			return &regions[i];
	}
	return NULL;
}

/* ---- the board has one process ---- */

static cl_int take_board(void)
{
	int fd;

	if (ncontexts++ > 0)
		return CL_SUCCESS;
	fd = open(rules.board, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !board) {
		void *at = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		board = at == MAP_FAILED ? NULL : at;
	}
	if (fd >= 0 && board && !is_gone() && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		board_fd = fd;
		return CL_SUCCESS;
	}
	if (fd >= 0 && board)
		__atomic_fetch_add(&board->nrefused, 1, __ATOMIC_SEQ_CST);
	if (fd >= 0)
		close(fd);
	ncontexts--;
	return CL_DEVICE_NOT_AVAILABLE;
}

static void give_board(void)
{
	if (--ncontexts > 0)
		return;
	for (unsigned int i = 0; i < MAX_REGIONS; i++)
		regions[i].resident = NULL;
	close(board_fd);
	board_fd = -1;
}

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint n,
					     const cl_device_id *devices,
					     void(CL_CALLBACK *notify)(const char *, const void *,
								       size_t, void *),
					     void *user, cl_int *ret_result)
{
	cl_int result;
	cl_context context;

	pthread_mutex_lock(&objects);
	result = take_board();
	pthread_mutex_unlock(&objects);
	if (fail(result, ret_result) != CL_SUCCESS)
		return NULL;
	context = below->clCreateContext(properties, n, devices, notify, user, ret_result);
	if (!context) {
		pthread_mutex_lock(&objects);
		give_board();
		pthread_mutex_unlock(&objects);
	}
	return context;
}

static cl_context CL_API_CALL
create_context_from_type(const cl_context_properties *properties, cl_device_type type,
			 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
			 void *user, cl_int *ret_result)
{
	(void)properties;
	(void)type;
	(void)notify;
	(void)user;
	fail(CL_DEVICE_NOT_FOUND, ret_result); /* who wants a board names it */
	return NULL;
}

static cl_int CL_API_CALL release_context(cl_context context)
{
	cl_uint count = 0;
	cl_int result;

	below->clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(count), &count, NULL);
	result = below->clReleaseContext(context);
	/* What was made in it keeps it alive below; the board is given back when its maker lets go. */
	pthread_mutex_lock(&objects);
	if (result == CL_SUCCESS && count >= 1 && ncontexts > 0)
		give_board();
	pthread_mutex_unlock(&objects);
	return result;
}

/* ---- what it says of itself ---- */

static cl_int answer(const void *value, size_t len, size_t cap, void *to, size_t *ret_len)
{
	if (to && cap < len)
		return CL_INVALID_VALUE;
	if (to)
		memcpy(to, value, len);
	if (ret_len)
		*ret_len = len;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint n,
					 cl_device_id *devices, cl_uint *ret_n)
{
	if (!(type & (CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_DEFAULT)))
		return CL_DEVICE_NOT_FOUND;
	return below->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, devices, ret_n);
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t cap,
					  void *to, size_t *ret_len)
{
	static const char name[] = "test_board : rules over another device";
	const cl_device_type type = CL_DEVICE_TYPE_ACCELERATOR;
	const cl_bool no = CL_FALSE;

	switch (what) {
	case CL_DEVICE_TYPE:
		return answer(&type, sizeof(type), cap, to, ret_len);
	case CL_DEVICE_NAME:
		return answer(name, sizeof(name), cap, to, ret_len);
	case CL_DEVICE_COMPILER_AVAILABLE:
	case CL_DEVICE_LINKER_AVAILABLE:
	case CL_DEVICE_HOST_UNIFIED_MEMORY:
		return answer(&no, sizeof(no), cap, to, ret_len);
	default:
		return below->clGetDeviceInfo(device, what, cap, to, ret_len);
	}
}

/* ---- loading ---- */

static void lose_memory(void)
{
	static const unsigned char lost = LOST_BYTE;

	for (unsigned int i = 0; nqueues > 0 && i < nmems; i++) {
		size_t len = 0;

		below->clGetMemObjectInfo(mems[i], CL_MEM_SIZE, sizeof(len), &len, NULL);
		if (len > 0)
			below->clEnqueueFillBuffer(queues[0].id, mems[i], &lost, 1, 0, len, 0, NULL,
						   NULL);
		below->clFinish(queues[0].id);
	}
}

/* A launch of another region is at work. */
static bool runs_beside(void)
{
	return __atomic_load_n(&board->nrunning, __ATOMIC_SEQ_CST) > 0;
}

/* With one_load held: so that nothing is enqueued meanwhile. What is at work in other regions goes on. */
static cl_int load(struct rules_image *image, struct region *region)
{
	bool beside;

	struct timespec delay = { .tv_sec = (time_t)(rules.configure_ns / NS_PER_S),
				  .tv_nsec = (long)(rules.configure_ns % NS_PER_S) };

	if (is_gone())
		return CL_DEVICE_NOT_AVAILABLE;
	for (unsigned int i = 0; i < nqueues; i++)
		if (queues[i].device == region->device)
			below->clFinish(queues[i].id);
	__atomic_fetch_add(&board->nloads, 1, __ATOMIC_SEQ_CST);
	region->resident = NULL;
	beside = runs_beside();
	if (!use_up(&board->free_loads))
		nanosleep(&delay, NULL);
	if (!rules.keeps_memory)
		lose_memory();
	if (is_gone())
		return CL_DEVICE_NOT_AVAILABLE;
	if (use_up(&board->fail_loads))
		return CL_OUT_OF_RESOURCES;
	region->resident = image;
	board->nbeside += beside && runs_beside();
	board->last_load_ns = now_ns();
	if (board->first_load_ns == 0)
		board->first_load_ns = board->last_load_ns;
	return CL_SUCCESS;
}

static uint64_t sum_of(const unsigned char *bytes, size_t len)
{
	uint64_t sum = 0xcbf29ce484222325u;

	while (len--)
		sum = (sum ^ *bytes++) * 0x100000001b3u;
	return sum;
}

static struct program *program_add(cl_program id, uint64_t sum, struct region *region)
{
	if (!region)
		return NULL;
	for (unsigned int i = 0; i < MAX_PROGRAMS; i++) {
		if (programs[i] && programs[i]->id)
			continue;
		/* What is there may still be at work: it is left to itself, as little as that is. */
		programs[i] = calloc(1, sizeof(*programs[i]));
		if (programs[i]) {
			programs[i]->id = id;
			programs[i]->region = region;
			programs[i]->image.sum = sum;
		}
		return programs[i];
	}
	return NULL;
}

static struct program *program_find(cl_program id)
{
	for (unsigned int i = 0; i < MAX_PROGRAMS; i++)
		if (programs[i] && programs[i]->id == id)
			return programs[i];
	return NULL;
}

static bool another_is_alive(const struct program *program)
{
	for (unsigned int i = 0; i < MAX_PROGRAMS; i++)
		if (programs[i] && programs[i]->id && programs[i] != program &&
		    programs[i]->region == program->region)
			return true;
	return false;
}

static cl_program CL_API_CALL create_with_binary(cl_context context, cl_uint n,
						 const cl_device_id *devices, const size_t *lens,
						 const unsigned char **binaries, cl_int *ret_status,
						 cl_int *ret_result)
{
	cl_int result = CL_SUCCESS;
	cl_program id = below->clCreateProgramWithBinary(context, n, devices, lens, binaries,
							 ret_status, &result);
	struct program *program;

	if (fail(result, ret_result) != CL_SUCCESS || !id)
		return NULL;
	pthread_mutex_lock(&one_load);
	pthread_mutex_lock(&objects);
	program = program_add(id, sum_of(binaries[0], lens[0]), region_of(devices[0]));
	if (!program)
		result = CL_OUT_OF_HOST_MEMORY;
	else if (rules.xilinx && another_is_alive(program))
		result = CL_OUT_OF_RESOURCES;
	else if (rules.xilinx || !program->region->resident)
		result = load(&program->image, program->region);
	if (result != CL_SUCCESS && program)
		program->id = NULL;
	pthread_mutex_unlock(&objects);
	pthread_mutex_unlock(&one_load);
	if (fail(result, ret_result) == CL_SUCCESS)
		return id;
	below->clReleaseProgram(id);
	return NULL;
}

/* Intel's runtime makes an object of a text, with which nothing can be done. */
static cl_program CL_API_CALL create_with_source(cl_context context, cl_uint n, const char **texts,
						 const size_t *lens, cl_int *ret_result)
{
	if (!rules.xilinx)
		return below->clCreateProgramWithSource(context, n, texts, lens, ret_result);
	fail(CL_COMPILER_NOT_AVAILABLE, ret_result);
	return NULL;
}

static cl_program CL_API_CALL create_with_il(cl_context context, const void *il, size_t len,
					     cl_int *ret_result)
{
	(void)context;
	(void)il;
	(void)len;
	fail(CL_INVALID_OPERATION, ret_result);
	return NULL;
}

static cl_int CL_API_CALL build_program(cl_program id, cl_uint n, const cl_device_id *devices,
					const char *options,
					void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
	struct program *program;
	cl_int result;

	pthread_mutex_lock(&objects);
	program = program_find(id);
	pthread_mutex_unlock(&objects);
	if (!program)
		return CL_COMPILER_NOT_AVAILABLE;
	result = below->clBuildProgram(id, n, devices, options, notify, user);
	pthread_mutex_lock(&objects);
	if (result == CL_SUCCESS)
		rules_image_read(below, id, &program->image);
	pthread_mutex_unlock(&objects);
	return result;
}

static cl_int CL_API_CALL compile_program(cl_program program, cl_uint ndevices,
					  const cl_device_id *devices, const char *options,
					  cl_uint nheaders, const cl_program *headers,
					  const char **names,
					  void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
	(void)program;
	(void)ndevices;
	(void)devices;
	(void)options;
	(void)nheaders;
	(void)headers;
	(void)names;
	(void)notify;
	(void)user;
	return CL_COMPILER_NOT_AVAILABLE;
}

static cl_int CL_API_CALL release_program(cl_program id)
{
	struct program *program;

	pthread_mutex_lock(&objects);
	program = program_find(id);
	/* Kernels keep a program alive below; a board is free of it when its maker lets go. */
	if (program)
		program->id = NULL;
	pthread_mutex_unlock(&objects);
	return below->clReleaseProgram(id);
}

/*
 * ---- objects ----
 *
 * Who made one lets go of it once, and does not use it after; what is still at work may hold it below.
 */

static cl_kernel CL_API_CALL create_kernel(cl_program id, const char *name, cl_int *ret_result)
{
	cl_kernel kernel = below->clCreateKernel(id, name, ret_result);
	unsigned int i = 0;

	if (!kernel)
		return NULL;
	pthread_mutex_lock(&objects);
	while (i < nkernels && kernels[i].id != kernel)
		i++;
	if (i < MAX_OBJECTS) {
		kernels[i].id = kernel;
		kernels[i].program = program_find(id);
		snprintf(kernels[i].name, sizeof(kernels[i].name), "%s", name);
		nkernels += i == nkernels;
	}
	pthread_mutex_unlock(&objects);
	return kernel;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t len,
					void *host, cl_int *ret_result)
{
	cl_mem mem;

	if (is_gone()) {
		fail(CL_DEVICE_NOT_AVAILABLE, ret_result);
		return NULL;
	}
	if (flags & CL_MEM_COPY_HOST_PTR && use_up(&board->fail_copies)) {
		fail(CL_OUT_OF_RESOURCES, ret_result);
		return NULL;
	}
	mem = below->clCreateBuffer(context, flags, len, host, ret_result);
	pthread_mutex_lock(&objects);
	if (mem && nmems < MAX_OBJECTS)
		mems[nmems++] = mem;
	pthread_mutex_unlock(&objects);
	return mem;
}

static cl_int CL_API_CALL release_mem(cl_mem mem)
{
	pthread_mutex_lock(&objects);
	for (unsigned int i = 0; i < nmems; i++)
		if (mems[i] == mem)
			mems[i] = mems[--nmems];
	pthread_mutex_unlock(&objects);
	return below->clReleaseMemObject(mem);
}

static cl_command_queue queue_add(cl_command_queue queue, cl_device_id device)
{
	pthread_mutex_lock(&objects);
	if (queue && nqueues < MAX_OBJECTS) {
		queues[nqueues].device = device;
		queues[nqueues++].id = queue;
	}
	pthread_mutex_unlock(&objects);
	return queue;
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
						 cl_command_queue_properties properties,
						 cl_int *ret_result)
{
	return queue_add(below->clCreateCommandQueue(context, device, properties, ret_result),
			 device);
}

static cl_command_queue CL_API_CALL create_queue_with(cl_context context, cl_device_id device,
						      const cl_queue_properties *properties,
						      cl_int *ret_result)
{
	return queue_add(below->clCreateCommandQueueWithProperties(context, device, properties,
								   ret_result),
			 device);
}

static cl_int CL_API_CALL release_queue(cl_command_queue queue)
{
	pthread_mutex_lock(&objects);
	for (unsigned int i = 0; i < nqueues; i++)
		if (queues[i].id == queue)
			queues[i] = queues[--nqueues];
	pthread_mutex_unlock(&objects);
	return below->clReleaseCommandQueue(queue);
}

/* ---- commands ---- */

/* The image of @kernel is on the board, or is brought there as the vendor does. With one_load held. */
static cl_int need_image(cl_kernel kernel, struct program **ret_program, const char **ret_name)
{
	cl_int result = CL_INVALID_KERNEL;

	pthread_mutex_lock(&objects);
	for (unsigned int i = 0; i < nkernels; i++) {
		if (kernels[i].id != kernel || !kernels[i].program)
			continue;
		*ret_program = kernels[i].program;
		*ret_name = kernels[i].name;
		result = CL_SUCCESS;
		if (kernels[i].program->region->resident == &kernels[i].program->image)
			break;
		result = rules.xilinx
				 ? CL_INVALID_PROGRAM_EXECUTABLE
				 : load(&kernels[i].program->image, kernels[i].program->region);
		break;
	}
	pthread_mutex_unlock(&objects);
	return result;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint ndims,
					 const size_t *offset, const size_t *global,
					 const size_t *local, cl_uint n, const cl_event *waits,
					 cl_event *ret_event)
{
	struct program *program = NULL;
	const char *name = NULL;
	cl_event real;
	cl_int result;

	if (is_gone())
		return CL_DEVICE_NOT_AVAILABLE;
	pthread_mutex_lock(&one_load);
	result = need_image(kernel, &program, &name);
	if (result == CL_SUCCESS && runs_beside() && use_up(&board->refuse_behind))
		result = CL_OUT_OF_RESOURCES;
	if (result == CL_SUCCESS)
		result = below->clEnqueueNDRangeKernel(queue, kernel, ndims, offset, global, local,
						       n, waits, &real);
	if (result == CL_SUCCESS)
		result = rules_job_start(below, queue, real, &program->image, name, board,
					 ret_event);
	pthread_mutex_unlock(&one_load);
	return result;
}

static cl_int CL_API_CALL enqueue_task(cl_command_queue queue, cl_kernel kernel, cl_uint n,
				       const cl_event *waits, cl_event *ret_event)
{
	static const size_t one = 1;

	return enqueue_kernel(queue, kernel, 1, NULL, &one, &one, n, waits, ret_event);
}

static cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem mem, cl_bool blocking,
				       size_t off, size_t len, void *to, cl_uint n,
				       const cl_event *waits, cl_event *ret_event)
{
	if (is_gone())
		return CL_DEVICE_NOT_AVAILABLE;
	if (use_up(&board->fail_copies))
		return CL_OUT_OF_RESOURCES;
	return below->clEnqueueReadBuffer(queue, mem, blocking, off, len, to, n, waits, ret_event);
}

static cl_int CL_API_CALL enqueue_write(cl_command_queue queue, cl_mem mem, cl_bool blocking,
					size_t off, size_t len, const void *from, cl_uint n,
					const cl_event *waits, cl_event *ret_event)
{
	if (is_gone())
		return CL_DEVICE_NOT_AVAILABLE;
	if (use_up(&board->fail_copies))
		return CL_OUT_OF_RESOURCES;
	return below->clEnqueueWriteBuffer(queue, mem, blocking, off, len, from, n, waits,
					   ret_event);
}

static cl_int CL_API_CALL get_profiling(cl_event event, cl_profiling_info what, size_t cap,
					void *to, size_t *ret_len)
{
	uint64_t start_ns, end_ns;
	cl_ulong ns;

	if (!rules_job_times(event, &start_ns, &end_ns))
		return below->clGetEventProfilingInfo(event, what, cap, to, ret_len);
	ns = what == CL_PROFILING_COMMAND_END ? end_ns : start_ns;
	return answer(&ns, sizeof(ns), cap, to, ret_len);
}

static cl_int CL_API_CALL set_callback(cl_event event, cl_int status,
				       void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
				       void *user)
{
	if (notify && status == CL_COMPLETE && rules_job_watch(event, notify, user))
		return CL_SUCCESS;
	return below->clSetEventCallback(event, status, notify, user);
}

static cl_int CL_API_CALL release_event(cl_event event)
{
	/* The queue may hold it as well while it runs; who made it has one hold of it, and asks for times before. */
	rules_job_forget(event);
	return below->clReleaseEvent(event);
}

/* ---- the layer ---- */

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t cap, void *to,
					       size_t *ret_len)
{
	const cl_layer_api_version version = CL_LAYER_API_VERSION_100;

	return what == CL_LAYER_API_VERSION ? answer(&version, sizeof(version), cap, to, ret_len)
					    : CL_INVALID_VALUE;
}

static bool take_rule(const char *key, const char *value)
{
	if (strcmp(key, "board") == 0)
		snprintf(rules.board, sizeof(rules.board), "%s", value);
	else if (strcmp(key, "vendor") == 0)
		rules.xilinx = strcmp(value, "xilinx") == 0;
	else if (strcmp(key, "memory") == 0)
		rules.keeps_memory = strcmp(value, "kept") == 0;
	else if (strcmp(key, "configure_us") == 0)
		rules.configure_ns = strtoull(value, NULL, 10) * 1000;
	else
		return false;
	return true;
}

static bool read_rules(void)
{
	const char *text = getenv("GANTRY_FPGA_RULES");
	char *copy = text ? strdup(text) : NULL, *save = NULL;
	bool good = copy != NULL;

	for (char *word = copy ? strtok_r(copy, " ", &save) : NULL; word && good;
	     word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		good = value != NULL;
		if (good) {
			*value++ = '\0';
			good = take_rule(word, value);
		}
	}
	free(copy);
	return good && rules.board[0];
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *table, cl_uint *ret_n,
					    const cl_icd_dispatch **ret_table)
{
	(void)n;
	if (!read_rules()) {
		fprintf(stderr, "the rules of the board (GANTRY_FPGA_RULES) are not understood\n");
		return CL_INVALID_VALUE;
	}
	below = table;
	/* The loader fills in the rest. */
	above.clGetDeviceIDs = get_device_ids;
	above.clGetDeviceInfo = get_device_info;
	above.clCreateContext = create_context;
	above.clCreateContextFromType = create_context_from_type;
	above.clReleaseContext = release_context;
	above.clCreateProgramWithBinary = create_with_binary;
	above.clCreateProgramWithSource = create_with_source;
	above.clCreateProgramWithIL = create_with_il;
	above.clBuildProgram = build_program;
	above.clCompileProgram = compile_program;
	above.clReleaseProgram = release_program;
	above.clCreateKernel = create_kernel;
	above.clCreateBuffer = create_buffer;
	above.clReleaseMemObject = release_mem;
	above.clCreateCommandQueue = create_queue;
	above.clCreateCommandQueueWithProperties = create_queue_with;
	above.clReleaseCommandQueue = release_queue;
	above.clEnqueueNDRangeKernel = enqueue_kernel;
	above.clEnqueueTask = enqueue_task;
	above.clEnqueueReadBuffer = enqueue_read;
	above.clEnqueueWriteBuffer = enqueue_write;
	above.clGetEventProfilingInfo = get_profiling;
	above.clReleaseEvent = release_event;
	above.clSetEventCallback = set_callback;
	*ret_table = &above;
	*ret_n = sizeof(above) / sizeof(void *);
	return CL_SUCCESS;
}
