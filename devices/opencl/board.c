/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver "opencl" of boards: an FPGA through its vendor's OpenCL. docs/boards.md goes through the options: library,
 * platform, device, model, memory, trial.
 */
#include "devices/opencl/board.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "devices/opencl/container.h"

#define DEFAULT_MEM_BYTES (256ull << 20)
#define MEM_ALIGN	  64u /* of places; where bytes lie on the board is the vendor's affair */
/* A kernel without parameters of this name, where an image has it, is run once when the image was loaded. */
#define FIRST_KERNEL "gantry_loaded"
#define MAX_NAMES    (1u << 20)
#define MAX_DEVICES  64u

static int say(int code, char *text, size_t cap, const struct gantry_err *err)
{
	(void)gantry_str_copy(text, cap, err->text); /* may be cut short */
	return code;
}

/* ---- options ---- */

static int take_trial(const char *value, bool *ret_trial, bool *ret_given, struct gantry_err *err)
{
	if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
		return gantry_err_set(err, -EINVAL, "trial: yes or no");
	*ret_trial = strcmp(value, "yes") == 0;
	*ret_given = true;
	return 0;
}

static int take_loads(const char *value, bool *ret_late, bool *ret_given, struct gantry_err *err)
{
	if (strcmp(value, "program") != 0 && strcmp(value, "kernel") != 0)
		return gantry_err_set(err, -EINVAL, "loads: program or kernel");
	*ret_late = strcmp(value, "kernel") == 0;
	*ret_given = true;
	return 0;
}

static int take_regions(const char *value, uint32_t *ret_nregions, struct gantry_err *err)
{
	uint64_t n;

	if (gantry_u64_parse(value, 1, GANTRY_OPENCL_BOARD_REGIONS, &n, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "regions");
	*ret_nregions = (uint32_t)n;
	return 0;
}

struct options {
	bool trial;
	bool trial_given;
	bool late;
	bool late_given;
};

static int take_option(struct gantry_opencl_board *board, const char *key, const char *value,
		       struct options *options, struct gantry_err *err)
{
	if (strcmp(key, "library") == 0)
		board->work.library = value;
	else if (strcmp(key, "platform") == 0)
		board->work.choice.platform = value;
	else if (strcmp(key, "device") == 0)
		board->work.choice.device = value;
	else if (strcmp(key, "trial") == 0)
		return take_trial(value, &options->trial, &options->trial_given, err);
	else if (strcmp(key, "loads") == 0)
		return take_loads(value, &options->late, &options->late_given, err);
	else if (strcmp(key, "memory") == 0)
		return gantry_size_parse(value, &board->mem_bytes, err) < 0
			       ? gantry_err_wrap(err, -EINVAL, "memory")
			       : 0;
	else if (strcmp(key, "regions") == 0)
		return take_regions(value, &board->nregions, err);
	else if (strcmp(key, "model") == 0)
		return !gantry_name_valid(value) || gantry_str_copy(board->model,
								    sizeof(board->model), value) < 0
			       ? gantry_err_set(err, -EINVAL, "model: \"%.40s\" is no name", value)
			       : 0;
	else
		return gantry_err_set(err, -EINVAL,
				      "no option \"%.40s\": there are library, platform, device, "
				      "model, memory, regions, loads and trial",
				      key);
	return 0;
}

/* The words stay in the board's copy of them. */
static int parse_options(struct gantry_opencl_board *board, const char *text,
			 struct options *options, struct gantry_err *err)
{
	char *save = NULL;
	int r = 0;

	board->strings = strdup(text);
	if (!board->strings)
		return gantry_err_set(err, -ENOMEM, "no memory for a board");
	for (char *word = strtok_r(board->strings, " ", &save); word && r == 0;
	     word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		if (!value)
			return gantry_err_set(err, -EINVAL, "\"%.40s\" is not key=value", word);
		*value++ = '\0';
		r = take_option(board, word, value, options, err);
	}
	return r;
}

/* ---- finding it ---- */

/* "pac_a10 : Arria 10 ..." is a pac-a10. */
static void model_of_name(const char *name, char *model, size_t cap)
{
	size_t n = 0;

	for (; *name && *name != ' ' && *name != ':' && n + 1 < cap; name++)
		model[n++] = isalnum((unsigned char)*name) ? (char)tolower((unsigned char)*name)
							   : '-';
	model[n] = '\0';
	if (!gantry_name_valid(model))
		(void)gantry_str_copy(model, cap, "opencl");
}

static uint64_t number(const struct gantry_opencl_board *board, cl_device_info what,
		       uint64_t otherwise)
{
	return gantry_opencl_number(board->cl, board->target.device, what, otherwise);
}

static int describe(struct gantry_opencl_board *board, struct gantry_err *err)
{
	uint64_t most = number(board, CL_DEVICE_GLOBAL_MEM_SIZE, DEFAULT_MEM_BYTES);
	char name[64];

	gantry_opencl_text(board->cl, board->target.device, CL_DEVICE_NAME, name, sizeof(name));
	if (!(number(board, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_ACCELERATOR))
		return gantry_err_set(err, -ENODEV,
				      "%s is no accelerator to OpenCL: use backend = opencl", name);
	if (!board->model[0])
		model_of_name(name, board->model, sizeof(board->model));
	if (most && board->mem_bytes > most)
		return gantry_err_set(err, -EINVAL, "memory: %s has %llu bytes", name,
				      (unsigned long long)most);
	if (board->mem_bytes == 0)
		board->mem_bytes = most ? gantry_min_u64(most, DEFAULT_MEM_BYTES)
					: DEFAULT_MEM_BYTES;
	return 0;
}

static bool is_of(const struct gantry_opencl_board *board, const char *platform)
{
	char name[64];

	gantry_opencl_platform_text(board->cl, board->target.platform, CL_PLATFORM_NAME, name,
				    sizeof(name));
	return strcmp(name, platform) == 0;
}

/* The device that was chosen, and those behind it. */
static int find_regions(struct gantry_opencl_board *board, struct gantry_err *err)
{
	cl_device_id devices[MAX_DEVICES];
	cl_uint n = 0, first = 0;

	board->regions[0].device = board->target.device;
	if (board->nregions == 1)
		return 0;
	if (board->cl->GetDeviceIDs(board->target.platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES,
				    devices, &n) != CL_SUCCESS)
		n = 0;
	n = n < MAX_DEVICES ? n : MAX_DEVICES;
	while (first < n && devices[first] != board->target.device)
		first++;
	if (n - first < board->nregions)
		return gantry_err_set(err, -ENODEV,
				      "regions: the platform has %u devices from the chosen one "
				      "on, %u are wanted",
				      n - first, board->nregions);
	for (uint32_t i = 0; i < board->nregions; i++)
		board->regions[i].device = devices[first + i];
	return 0;
}

static int find(struct gantry_opencl_board *board, const char *text, struct gantry_err *err)
{
	struct options options = { .trial = false };
	int r = parse_options(board, text, &options, err);

	if (r == 0)
		r = gantry_opencl_driver_open(board->work.library, &board->cl, err);
	/* Before the first call of OpenCL: it starts threads, and reads what the builder sets. */
	if (r == 0)
		r = gantry_opencl_builder_start(err);
	if (r == 0)
		r = gantry_opencl_choose(board->cl, &board->work.choice, &board->target, err);
	if (r == 0)
		r = describe(board, err);
	if (r == 0)
		r = find_regions(board, err);
	if (r < 0)
		return r;
	/* PoCL's loader writes files, which a worker may not; on a real board each trial costs a loading. */
	board->trial = options.trial_given ? options.trial
					   : is_of(board, "Portable Computing Language");
	board->late = options.late_given ? options.late : !is_of(board, "Xilinx");
	return 0;
}

/* ---- images ---- */

struct bytes {
	const void *at;
	size_t len;
};

static int map(const struct gantry_board_file *file, struct bytes *ret_bytes,
	       struct gantry_err *err)
{
	struct stat st;
	void *at;

	if (fstat(file->fd, &st) < 0 || st.st_size <= 0)
		return gantry_err_set(err, -EBADMSG, "image %s is empty", file->image);
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file->fd, 0);
	if (at == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "image %s", file->image);
	*ret_bytes = (struct bytes){ at, (size_t)st.st_size };
	return 0;
}

static void unmap(const struct bytes *bytes)
{
	(void)munmap((void *)(uintptr_t)bytes->at, bytes->len); /* ours, so it cannot fail */
}

/* Before a vendor's loader sees it; and, where that is asked for, a loader whose process may crash. */
static int check_file(const struct gantry_opencl_board *board, const struct gantry_board_file *file,
		      struct gantry_err *err)
{
	enum gantry_opencl_sort sort = GANTRY_OPENCL_UNKNOWN;
	struct bytes bytes;
	int r = map(file, &bytes, err);

	if (r < 0)
		return r;
	r = gantry_opencl_container_check(bytes.at, bytes.len, &sort, err);
	if (r == 0 && (sort == GANTRY_OPENCL_SOURCE || sort == GANTRY_OPENCL_IL))
		r = gantry_err_set(err, -ENOEXEC, "a text: boards take what was compiled for them");
	if (r == 0 && board->trial)
		r = gantry_opencl_builder_try(&board->work, bytes.at, bytes.len, err);
	unmap(&bytes);
	if (r < 0)
		return gantry_err_wrap(err, r == -ENOEXEC ? -EBADMSG : r, "image %s", file->image);
	return 0;
}

static int check_files(const struct gantry_opencl_board *board,
		       const struct gantry_board_file *files, uint32_t nfiles,
		       struct gantry_err *err)
{
	for (uint32_t i = 0; i < nfiles; i++) {
		int r;

		if (board->nregions == 1 && files[i].place != GANTRY_BOARD_PLACE_WHOLE)
			return gantry_err_set(err, -EBADMSG,
					      "image %s: this board has no regions: write \"load "
					      "whole\"",
					      files[i].image);
		if (board->nregions > 1 && files[i].place >= board->nregions)
			return gantry_err_set(err, -EBADMSG,
					      "image %s: this board has %u regions, and images for "
					      "one of them only: write \"load 0\"",
					      files[i].image, board->nregions);
		r = check_file(board, &files[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Does OpenCL say that the parameter is none such? XRT answers with numbers of its own, which say nothing. */
static bool is_other(const struct gantry_opencl_board *board, cl_kernel kernel, cl_uint param,
		     bool buffer)
{
	cl_kernel_arg_address_qualifier where = 0;

	if (board->cl->GetKernelArgInfo(kernel, param, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
					sizeof(where), &where, NULL) != CL_SUCCESS)
		return false;
	switch (where) {
	case CL_KERNEL_ARG_ADDRESS_GLOBAL:
	case CL_KERNEL_ARG_ADDRESS_CONSTANT:
		return !buffer;
	case CL_KERNEL_ARG_ADDRESS_LOCAL:
		return true;
	case CL_KERNEL_ARG_ADDRESS_PRIVATE:
		return buffer;
	default:
		return false;
	}
}

/* What a manifest says of @kernel's parameters, as far as OpenCL tells. */
static int check_params(const struct gantry_opencl_board *board, struct gantry_opencl_unit *unit,
			struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl = board->cl;
	cl_uint n = 0, nbuffers = 0, param = 0, nargs = 0;

	if (cl->GetKernelInfo(unit->kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL) != CL_SUCCESS)
		return gantry_err_set(err, -EIO, "OpenCL does not tell of kernel %s",
				      unit->def->name);
	for (uint32_t i = 0; i < unit->def->nargs; i++) {
		nbuffers += unit->def->arg_bytes[i] == 0;
		nargs += unit->def->arg_bytes[i] != GANTRY_BOARD_ARG_SHAPE;
	}
	unit->lengths = nbuffers > 0 && n == nargs + nbuffers;
	if (n != nargs && !unit->lengths)
		return gantry_err_set(err, -EBADMSG,
				      "kernel %s has %u parameters, in its manifest %u",
				      unit->def->name, n, nargs);
	for (uint32_t i = 0; i < nargs; i++, param++) {
		bool buffer = unit->def->arg_bytes[i] == 0;

		if (is_other(board, unit->kernel, param, buffer))
			return gantry_err_set(err, -EBADMSG,
					      "kernel %s: parameter %u is not what the manifest "
					      "says",
					      unit->def->name, param + 1);
		param += buffer && unit->lengths;
	}
	return 0;
}

static int make_unit(struct gantry_opencl_board *board, struct gantry_opencl_region *region,
		     const struct gantry_board_kernel *def, uint32_t window, struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl = board->cl;
	struct gantry_opencl_unit *unit = &region->units[window];
	cl_int result = CL_SUCCESS;

	memset(unit, 0, sizeof(*unit));
	unit->board = board;
	unit->region = region;
	unit->runs[0].unit = unit->runs[1].unit = unit;
	unit->kernel = cl->CreateKernel(region->program, def->name, &result);
	if (result == CL_INVALID_KERNEL_NAME)
		return gantry_err_set(err, -EBADMSG, "it has no kernel %s", def->name);
	if (result == CL_SUCCESS)
		unit->queue = cl->CreateCommandQueue(board->context, region->device,
						     CL_QUEUE_PROFILING_ENABLE, &result);
	unit->def = def;
	if (result != CL_SUCCESS)
		return gantry_opencl_err(result, "a unit's kernel and queue", err);
	return check_params(board, unit, err);
}

/* What OpenCL made of it; -ENODEV: the board is gone. */
static int outcome(struct gantry_opencl_board *board, cl_int result, const char *what,
		   struct gantry_err *err)
{
	if (result == CL_SUCCESS)
		return 0;
	(void)gantry_opencl_err(result, what, err);
	board->lost = board->lost || result == CL_DEVICE_NOT_AVAILABLE;
	return board->lost ? -ENODEV : -EIO;
}

/* Is it one of @names, with ';' between them? */
static bool is_named(const char *names, const char *name)
{
	size_t len = strlen(name);

	for (; names; names = strchr(names, ';'), names = names ? names + 1 : NULL)
		if (strncmp(names, name, len) == 0 && (names[len] == ';' || names[len] == '\0'))
			return true;
	return false;
}

static bool has_kernel(const struct gantry_opencl_board *board, cl_program program,
		       const char *name)
{
	_cleanup_free_ char *names = NULL;
	size_t bytes = 0;

	/* Asking for a kernel that is not there has some runtimes complain to the terminal. */
	if (board->cl->GetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &bytes) !=
		    CL_SUCCESS ||
	    bytes > MAX_NAMES)
		return false;
	names = calloc(1, bytes + 1);
	return names &&
	       board->cl->GetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, bytes, names, NULL) ==
		       CL_SUCCESS &&
	       is_named(names, name);
}

/*
 * On some boards an image is not there before a kernel of it runs: that is part of loading. Nor is what lies in the
 * board's memory there afterwards, which no task of anybody's may be the one to lose.
 */
static int run_first(struct gantry_opencl_board *board, struct gantry_opencl_region *region,
		     struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl = board->cl;
	static const size_t one = 1;
	cl_int result = CL_SUCCESS;
	cl_kernel kernel;

	if (!has_kernel(board, region->program, FIRST_KERNEL))
		return board->late ? gantry_err_set(err, -EBADMSG,
						    "it has no kernel " FIRST_KERNEL
						    ", and this board loads an image when a kernel "
						    "of it runs (loads=kernel)")
				   : 0;
	kernel = cl->CreateKernel(region->program, FIRST_KERNEL, &result);
	if (result == CL_SUCCESS) {
		result = cl->EnqueueNDRangeKernel(region->copies, kernel, 1, NULL, &one, &one, 0,
						  NULL, NULL);
		if (result == CL_SUCCESS)
			result = cl->Finish(region->copies);
		(void)cl->ReleaseKernel(kernel);
	}
	return outcome(board, result, "the first launch", err);
}

/* -ENODEV: the board is gone, with what is at work there. */
static int unload(struct gantry_opencl_board *board, struct gantry_opencl_region *region)
{
	const struct gantry_opencl_driver *cl = board->cl;

	if (!gantry_opencl_board_drain(board, region)) {
		board->lost = true;
		return -ENODEV;
	}
	for (uint32_t i = 0; i < GANTRY_OPENCL_BOARD_WINDOWS; i++) {
		struct gantry_opencl_unit *unit = &region->units[i];

		if (unit->kernel)
			(void)cl->ReleaseKernel(unit->kernel);
		if (unit->queue)
			(void)cl->ReleaseCommandQueue(unit->queue);
		memset(unit, 0, sizeof(*unit));
	}
	/* Other regions' launches have some of it. */
	if (board->nregions == 1)
		gantry_opencl_board_forget(board);
	if (region->copies)
		(void)cl->ReleaseCommandQueue(region->copies);
	if (region->program)
		(void)cl->ReleaseProgram(region->program);
	region->copies = NULL;
	region->program = NULL;
	return 0;
}

static int make_program(struct gantry_opencl_board *board, struct gantry_opencl_region *region,
			const struct bytes *bytes, struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl = board->cl;
	const unsigned char *at = bytes->at;
	cl_int result = CL_SUCCESS, status = CL_SUCCESS;

	region->program = cl->CreateProgramWithBinary(board->context, 1, &region->device,
						      &bytes->len, &at, &status, &result);
	if (result == CL_SUCCESS)
		result = status;
	if (result != CL_SUCCESS)
		return outcome(board, result, "clCreateProgramWithBinary", err);
	/* It also makes OpenCL tell of parameters, where it can. */
	result = cl->BuildProgram(region->program, 1, &region->device, "-cl-kernel-arg-info", NULL,
				  NULL);
	return outcome(board, result, "clBuildProgram", err);
}

/* For copies. */
static int make_queue(struct gantry_opencl_board *board, struct gantry_opencl_region *region,
		      struct gantry_err *err)
{
	cl_int result = CL_SUCCESS;

	region->copies = board->cl->CreateCommandQueue(board->context, region->device, 0, &result);
	return outcome(board, result, "clCreateCommandQueue", err);
}

static struct gantry_opencl_region *region_of(struct gantry_opencl_board *board,
					      const struct gantry_board_file *file)
{
	return &board->regions[file->place == GANTRY_BOARD_PLACE_WHOLE ? 0 : file->place];
}

static int load(struct gantry_opencl_board *board, const struct gantry_board_file *file,
		struct gantry_err *err)
{
	struct gantry_opencl_region *region = region_of(board, file);
	struct bytes bytes;
	int r;

	if (unload(board, region) < 0)
		return gantry_err_set(err, -ENODEV, "the board does not end what is at work");
	r = map(file, &bytes, err);
	if (r < 0)
		return r;
	r = make_program(board, region, &bytes, err);
	unmap(&bytes);
	if (r == 0)
		r = make_queue(board, region, err);
	for (uint32_t k = 0; k < file->nkernels && r == 0; k++)
		for (uint32_t u = 0; u < file->kernels[k].units && r == 0; u++)
			r = make_unit(board, region, &file->kernels[k], file->kernels[k].window + u,
				      err);
	if (r == 0)
		r = run_first(board, region, err);
	if (r < 0)
		(void)unload(board, region); /* nothing is at work */
	return r;
}

/* ---- the table ---- */

static int board_load(void *handle, const struct gantry_board_file *file, char *text, size_t cap)
{
	struct gantry_opencl_board *board = handle;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = load(board, file, &err);

	return r < 0 ? say(r, text, cap, &err) : 0;
}

static void board_close(void *handle)
{
	struct gantry_opencl_board *board = handle;

	if (!board)
		return;
	/* OpenCL may still call for launches that never end: what they need stays, as long as the process does. */
	for (uint32_t i = 0; board->context && i < board->nregions; i++)
		if (unload(board, &board->regions[i]) < 0)
			return;
	gantry_opencl_board_forget(board);
	if (board->context)
		(void)board->cl->ReleaseContext(board->context);
	(void)pthread_cond_destroy(&board->news);
	(void)pthread_mutex_destroy(&board->lock);
	free(board->pieces);
	free(board->strings);
	free(board);
}

static struct gantry_opencl_board *board_new(void)
{
	struct gantry_opencl_board *board = calloc(1, sizeof(*board));

	if (!board)
		return NULL;
	board->nregions = 1;
	(void)pthread_mutex_init(&board->lock, NULL);
	gantry_cond_init(&board->news);
	return board;
}

static int take_board(struct gantry_opencl_board *board, struct gantry_err *err)
{
	cl_device_id devices[GANTRY_OPENCL_BOARD_REGIONS];
	cl_int result = CL_SUCCESS;

	for (uint32_t i = 0; i < board->nregions; i++)
		devices[i] = board->regions[i].device;
	board->context = board->cl->CreateContext(NULL, board->nregions, devices, NULL, NULL,
						  &result);
	if (result == CL_DEVICE_NOT_AVAILABLE)
		return gantry_err_set(err, -EBUSY, "another process has the board");
	return result == CL_SUCCESS ? 0
				    : (gantry_opencl_err(result, "clCreateContext", err), -ENODEV);
}

static int board_open(const char *options, const struct gantry_board_file *files, uint32_t nfiles,
		      void **ret_board, struct gantry_board_info *ret_info, char *text, size_t cap)
{
	struct gantry_opencl_board *board = board_new();
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	if (!board)
		return -ENOMEM;
	r = find(board, options, &err);
	if (r == 0)
		r = check_files(board, files, nfiles, &err);
	if (r == -EBUSY)
		(void)gantry_err_set(&err, r, "another process has the board");
	if (r == 0)
		r = take_board(board, &err);
	if (r < 0) {
		board_close(board);
		return say(r, text, cap, &err);
	}
	*ret_info = (struct gantry_board_info){ .nregions = board->nregions,
						.mem_align = MEM_ALIGN,
						.mem_bytes = board->mem_bytes,
						.clock_hz = 1000000000,
						/* Xilinx's have banks. */
						.ties_memory = !board->late };
	(void)gantry_str_copy(ret_info->model, sizeof(ret_info->model), board->model);
	*ret_board = board;
	return 0;
}

extern const struct gantry_board_driver gantry_board_opencl;
const struct gantry_board_driver gantry_board_opencl = {
	.abi = GANTRY_BOARD_ABI,
	.bytes = sizeof(struct gantry_board_driver),
	.name = "opencl",
	.open = board_open,
	.close = board_close,
	.load = board_load,
	.read = gantry_opencl_board_read,
	.write = gantry_opencl_board_write,
	.mem_read = gantry_opencl_board_mem_read,
	.mem_write = gantry_opencl_board_mem_write,
	.wait = gantry_opencl_board_wait,
	.wake = gantry_opencl_board_wake,
	.cycles = gantry_opencl_board_cycles,
	.follow = gantry_opencl_board_follow,
};
