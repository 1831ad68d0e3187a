/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/opencl/fit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/str.h"
#include "devices/opencl/container.h"

#define WIDE_ITEMS   65536u
#define BUFFER_BYTES (1u << 20)
#define VALUE_MAX    1024u
#define LOOK_NS	     1000000
#define PATH_ROOM    1024u

/* As PoCL 3.1 names what code takes for granted: that there are no offsets, that the grid is narrow. */
static const char *const suffixes[] = {
	[GANTRY_OPENCL_NARROW] = "-goffs0-smallgrid",
	[GANTRY_OPENCL_WIDE] = "-goffs0",
	[GANTRY_OPENCL_ANY] = "",
};

static int path_of(const struct gantry_opencl_fit *fit, const char *suffix, const char *folder,
		   char *path, size_t cap)
{
	if (!gantry_opencl_pocl_is_folder(fit->folder, sizeof(fit->folder)) ||
	    !gantry_opencl_is_identifier(fit->kernel, strnlen(fit->kernel, sizeof(fit->kernel))))
		return -EINVAL;
	return gantry_str_format(path, cap, "%s/%s/%.*s/%u-%u-%u%s", folder, fit->folder,
				 (int)sizeof(fit->kernel) - 1, fit->kernel, fit->local[0],
				 fit->local[1], fit->local[2], suffix);
}

int gantry_opencl_fit_path(const struct gantry_opencl_fit *fit, uint32_t breadth,
			   const char *folder, char *path, size_t cap)
{
	if (breadth >= GANTRY_ARRAY_SIZE(suffixes))
		return -EINVAL;
	return path_of(fit, suffixes[breadth], folder, path, cap);
}

/* ---- making ---- */

/* What a launch of one work-group needs. */
struct trial {
	const struct gantry_opencl_driver *cl;
	cl_command_queue queue;
	cl_kernel kernel;
	cl_mem memory; /* whatever the kernel does with buffers, it does here */
	uint32_t over; /* atomic */
};

static cl_int set_args(struct trial *t, const struct gantry_opencl_fit *fit)
{
	static const unsigned char zeros[VALUE_MAX];
	cl_int result = CL_SUCCESS;

	for (uint32_t i = 0; i < fit->nargs && result == CL_SUCCESS; i++) {
		if (fit->args[i] == GANTRY_OPENCL_FIT_BUFFER)
			result = t->cl->SetKernelArg(t->kernel, i, sizeof(t->memory), &t->memory);
		else if (fit->args[i] == GANTRY_OPENCL_FIT_LOCAL)
			result = t->cl->SetKernelArg(t->kernel, i, 64, NULL);
		else if (fit->args[i] <= VALUE_MAX)
			result = t->cl->SetKernelArg(t->kernel, i, fit->args[i], zeros);
		else
			result = CL_INVALID_ARG_SIZE;
	}
	return result;
}

/* A thread of OpenCL's. */
static void CL_CALLBACK on_complete(cl_event event, cl_int result, void *user)
{
	struct trial *t = user;

	(void)event;
	(void)result;
	gantry_store_release(&t->over, 1u); /* of interest is only that it is over */
}

static cl_int launch(struct trial *t, const struct gantry_opencl_fit *fit)
{
	const size_t local[3] = { fit->local[0], fit->local[1], fit->local[2] };
	const size_t offset[3] = { fit->breadth == GANTRY_OPENCL_ANY };
	size_t global[3] = { local[0], local[1], local[2] };
	cl_event event = NULL;
	cl_int result;

	if (fit->breadth != GANTRY_OPENCL_NARROW)
		global[0] *= (WIDE_ITEMS + local[0] - 1) / local[0];
	result = t->cl->EnqueueNDRangeKernel(t->queue, t->kernel, 3, offset, global, local, 0, NULL,
					     &event);
	if (result == CL_SUCCESS)
		result = t->cl->SetEventCallback(event, CL_COMPLETE, on_complete, t);
	return result == CL_SUCCESS ? t->cl->Flush(t->queue) : result;
}

/* The file is there before the code runs, and how long that takes nobody knows: its arguments mean nothing. */
static void wait_for(struct trial *t, const char *file)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };

	/* Acquire: pairs with the release in on_complete(). */
	while (access(file, F_OK) < 0 && !gantry_load_acquire(&t->over))
		(void)nanosleep(&look, NULL);
}

int gantry_opencl_fit_make(const struct gantry_opencl_driver *cl, cl_device_id device,
			   cl_context context, cl_program program,
			   const struct gantry_opencl_fit *fit, const char *folder,
			   struct gantry_err *err)
{
	/* The process ends behind this, with OpenCL's threads wherever they are. */
	static struct trial trial;
	char path[PATH_ROOM], file[PATH_ROOM];
	cl_int result = CL_SUCCESS;

	if (gantry_opencl_fit_path(fit, fit->breadth, folder, path, sizeof(path)) < 0 ||
	    gantry_str_format(file, sizeof(file), "%s/%s.so", path, fit->kernel) < 0 ||
	    fit->nargs > GANTRY_ARRAY_SIZE(fit->args) || fit->local[0] == 0 || fit->local[1] == 0 ||
	    fit->local[2] == 0)
		return gantry_err_set(err, -EINVAL, "no such work-group");
	trial.cl = cl;
	trial.queue = cl->CreateCommandQueue(context, device, 0, &result);
	if (result == CL_SUCCESS)
		trial.memory = cl->CreateBuffer(context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL,
						&result);
	if (result == CL_SUCCESS)
		trial.kernel = cl->CreateKernel(program, fit->kernel, &result);
	if (result == CL_SUCCESS)
		result = set_args(&trial, fit);
	if (result == CL_SUCCESS)
		result = launch(&trial, fit);
	if (result != CL_SUCCESS)
		return gantry_opencl_err(result, "launching one work-group", err);
	wait_for(&trial, file);
	return 0;
}

/* ---- taking ---- */

/* "@base/a", "@base/a/b" and so on up to @path, which is below it. */
static int make_folders(const char *base, const char *path)
{
	char part[PATH_ROOM];

	for (size_t at = strlen(base) + 1; path[at - 1]; at++) {
		if (path[at] && path[at] != '/')
			continue;
		if (gantry_str_format(part, sizeof(part), "%.*s", (int)at, path) < 0)
			return -E2BIG;
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return -errno;
		if (!path[at])
			break;
	}
	return 0;
}

static int link_as(const struct gantry_opencl_fit *fit, const char *suffix, const char *file,
		   const char *to)
{
	char path[PATH_ROOM], other[PATH_ROOM];
	int r = path_of(fit, suffix, to, path, sizeof(path));

	if (r == 0)
		r = make_folders(to, path);
	if (r == 0)
		r = gantry_str_format(other, sizeof(other), "%s/%s.so", path, fit->kernel);
	if (r == 0 && link(file, other) < 0 && errno != EEXIST)
		r = -errno;
	return r;
}

int gantry_opencl_fit_take(const struct gantry_opencl_fit *fit, const char *from, const char *to)
{
	static const char *const narrower[] = { "-goffs0", "-smallgrid", "-goffs0-smallgrid" };
	char path[PATH_ROOM], made[PATH_ROOM] = "", file[PATH_ROOM] = "";
	int r = gantry_opencl_fit_path(fit, fit->breadth, from, path, sizeof(path));

	if (r == 0)
		r = gantry_str_format(made, sizeof(made), "%s/%s.so", path, fit->kernel);
	if (r == 0)
		r = gantry_opencl_fit_path(fit, fit->breadth, to, path, sizeof(path));
	if (r == 0)
		r = gantry_str_format(file, sizeof(file), "%s/%s.so", path, fit->kernel);
	if (r == 0 && access(made, F_OK) < 0)
		r = -errno;
	if (r == 0)
		r = make_folders(to, path);
	if (r == 0 && rename(made, file) < 0)
		r = -errno;
	/* What takes nothing for granted is right for all launches. */
	for (size_t i = 0;
	     r == 0 && fit->breadth == GANTRY_OPENCL_ANY && i < GANTRY_ARRAY_SIZE(narrower); i++)
		r = link_as(fit, narrower[i], file, to);
	return r;
}
