/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the opencl backend: installed modules, which are shared objects with a text inside, and guests' own code. */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/installed.h"
#include "devices/opencl/backend.h"
#include "devices/opencl/container.h"
#include "devices/pace.h"

#define OPTIONS	      "-cl-kernel-arg-info"
#define FUNCTIONS_MAX 4096u

/* ---- functions and the streams' kernels ---- */

static int id_take(struct gantry_dev *dev, uint32_t *ret_id)
{
	uint64_t *words;

	for (uint32_t w = 0; w < dev->nfunction_words; w++)
		if (~dev->function_ids[w]) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~dev->function_ids[w]);

			dev->function_ids[w] |= 1ull << bit;
			*ret_id = w * 64 + bit;
			return 0;
		}
	words = realloc(dev->function_ids, (dev->nfunction_words + 1) * sizeof(*words));
	if (!words)
		return -ENOMEM;
	dev->function_ids = words;
	words[dev->nfunction_words] = 1;
	*ret_id = dev->nfunction_words++ * 64;
	return 0;
}

/* Also the kernels that streams have of it, before another function gets the number. */
static void id_put(struct gantry_dev *dev, uint32_t id)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		if (id >= stream->nkernels || !stream->kernels[id])
			continue;
		(void)dev->cl->ReleaseKernel(stream->kernels[id]);
		stream->kernels[id] = NULL;
	}
	dev->function_ids[id / 64] &= ~(1ull << (id % 64));
}

/* Adds function @name, which lives as long as the image. */
static int function_add(struct gantry_image *image, const char *name, uint32_t *ret_index)
{
	struct gantry_opencl_function *functions;
	uint32_t id;

	for (uint32_t i = 0; i < image->nfunctions; i++)
		if (strcmp(image->functions[i].name, name) == 0) {
			*ret_index = i;
			return 0;
		}
	if (image->nfunctions == FUNCTIONS_MAX)
		return -ENOMEM;
	functions = realloc(image->functions, (image->nfunctions + 1) * sizeof(*functions));
	if (!functions)
		return -ENOMEM;
	image->functions = functions;
	functions[image->nfunctions].name = strdup(name);
	if (!functions[image->nfunctions].name)
		return -ENOMEM;
	if (id_take(image->dev, &id) < 0) {
		free((void *)(uintptr_t)functions[image->nfunctions].name);
		return -ENOMEM;
	}
	functions[image->nfunctions].id = id;
	*ret_index = image->nfunctions++;
	return 0;
}

cl_kernel gantry_opencl_kernel_of(struct gantry_stream *stream, const struct gantry_image *image,
				  uint32_t index)
{
	const struct gantry_opencl_function *f = &image->functions[index];
	cl_int result = CL_SUCCESS;
	cl_kernel *kernels;

	if (f->id >= stream->nkernels) {
		uint32_t n = f->id + 1;

		kernels = realloc(stream->kernels, n * sizeof(*kernels));
		if (!kernels)
			return NULL;
		memset(kernels + stream->nkernels, 0, (n - stream->nkernels) * sizeof(*kernels));
		stream->kernels = kernels;
		stream->nkernels = n;
	}
	if (!stream->kernels[f->id])
		stream->kernels[f->id] = stream->dev->cl->CreateKernel(image->program, f->name,
								       &result);
	return result == CL_SUCCESS ? stream->kernels[f->id] : NULL;
}

/* ---- programs ---- */

/* @binary was tried in another process. */
static int load_binary(struct gantry_image *image, const void *binary, size_t nbytes,
		       struct gantry_err *err)
{
	const struct gantry_dev *dev = image->dev;
	const unsigned char *bytes = binary;
	cl_int result = CL_SUCCESS, status = CL_SUCCESS;

	image->program = dev->cl->CreateProgramWithBinary(dev->context, 1, &dev->target.device,
							  &nbytes, &bytes, &status, &result);
	if (result == CL_SUCCESS)
		result = status;
	if (result == CL_SUCCESS)
		result = dev->cl->BuildProgram(image->program, 1, &dev->target.device, OPTIONS,
					       NULL, NULL);
	if (result == CL_SUCCESS)
		return 0;
	return gantry_err_set(err, -ENOEXEC, "the device refuses the binary: %s",
			      gantry_opencl_error(result));
}

/* All must be there: a compiler drops what has the name of a function of its own, such as step(). */
static int check_function(const struct gantry_image *image, const char *name,
			  struct gantry_err *err)
{
	const struct gantry_opencl_driver *cl = image->dev->cl;
	cl_int result = CL_SUCCESS;
	cl_kernel kernel = cl->CreateKernel(image->program, name, &result);

	if (result != CL_SUCCESS)
		return gantry_err_set(err, -ENOEXEC, "its text has no kernel %.100s: %s", name,
				      gantry_opencl_error(result));
	(void)cl->ReleaseKernel(kernel);
	return 0;
}

/* What measuring a module's pace needs. */
struct pace {
	const struct gantry_opencl_driver *cl;
	cl_command_queue queue;
	cl_kernel kernel;
};

static int pace_go(void *cookie, uint64_t nrounds)
{
	const struct pace *pace = cookie;
	const size_t one = 1;
	cl_ulong n = nrounds;
	cl_int result = pace->cl->SetKernelArg(pace->kernel, 1, sizeof(n), &n);

	if (result == CL_SUCCESS)
		result = pace->cl->EnqueueNDRangeKernel(pace->queue, pace->kernel, 1, NULL, &one,
							&one, 0, NULL, NULL);
	if (result == CL_SUCCESS)
		result = pace->cl->Finish(pace->queue);
	return gantry_opencl_errno(result);
}

static int measure_pace(struct gantry_image *image, const char *function, struct gantry_err *err)
{
	const struct gantry_dev *dev = image->dev;
	int32_t verdict[2] = { 0 };
	cl_int result = CL_SUCCESS;
	struct pace pace = { .cl = dev->cl };
	cl_mem words = dev->cl->CreateBuffer(dev->context, CL_MEM_COPY_HOST_PTR, sizeof(verdict),
					     verdict, &result);
	int r;

	if (result == CL_SUCCESS)
		pace.queue = dev->cl->CreateCommandQueue(dev->context, dev->target.device, 0,
							 &result);
	if (result == CL_SUCCESS)
		pace.kernel = dev->cl->CreateKernel(image->program, function, &result);
	if (result == CL_SUCCESS)
		result = dev->cl->SetKernelArg(pace.kernel, 0, sizeof(words), &words);
	r = gantry_opencl_errno(result);
	if (r == 0)
		r = gantry_pace_measure(pace_go, &pace, &image->rounds_per_ms);
	if (pace.kernel)
		(void)dev->cl->ReleaseKernel(pace.kernel);
	if (pace.queue)
		(void)dev->cl->ReleaseCommandQueue(pace.queue);
	if (words)
		(void)dev->cl->ReleaseMemObject(words);
	return r < 0 ? gantry_err_set(err, r, "measuring the pace of %.100s failed", function) : 0;
}

static int load_module(struct gantry_image *image, struct gantry_err *err)
{
	const struct gantry_opencl_module *module = dlsym(image->library, "gantry_opencl_module");
	_cleanup_free_ void *binary = NULL;
	size_t nbytes = 0;
	uint32_t index;
	int r;

	if (!module || module->size < sizeof(*module) || module->abi != GANTRY_OPENCL_MODULE_ABI)
		return gantry_err_set(err, -ENOEXEC, "not an OpenCL module of this version");
	r = gantry_opencl_binary_of(image->dev, module->text, module->text_bytes, &binary, &nbytes,
				    err);
	if (r == 0)
		r = load_binary(image, binary, nbytes, err);
	for (uint32_t i = 0; i < module->nfunctions && r == 0; i++) {
		if (function_add(image, module->functions[i], &index) < 0)
			return gantry_err_set(err, -ENOMEM, "no memory for an image");
		if (index != i)
			return gantry_err_set(err, -ENOEXEC, "function %s is there twice",
					      module->functions[i]);
		r = check_function(image, module->functions[i], err);
	}
	if (r < 0 || module->pace == 0)
		return r;
	if (module->pace > module->nfunctions)
		return gantry_err_set(err, -ENOEXEC, "it has no function %u", module->pace - 1);
	return measure_pace(image, module->functions[module->pace - 1], err);
}

static int load_installed(struct gantry_image *image, const char *path, struct gantry_err *err)
{
	int r;

	r = gantry_installed_open(path, &image->library, err);
	if (r < 0)
		return r;
	r = load_module(image, err);
	return r < 0 ? gantry_err_wrap(err, r, "image %s", path) : 0;
}

/* The intermediate code is only for the builder: see gantry_opencl_pocl_strip(). Takes @whole, and gives what is loaded. */
static int keep_whole(struct gantry_image *image, void *whole, size_t *n, void **ret_made,
		      struct gantry_err *err)
{
	void *made = malloc(*n);
	size_t len;

	if (!made) {
		free(whole);
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	}
	len = gantry_opencl_pocl_strip(whole, *n, made);
	if (len < *n && image->dev->fits && image->dev->is_pocl) {
		image->whole = whole;
		image->nwhole = *n;
	} else {
		free(whole);
	}
	*n = len;
	*ret_made = made;
	return 0;
}

static int load_guest(struct gantry_image *image, const void *bytes, size_t nbytes,
		      struct gantry_err *err)
{
	struct gantry_opencl_work work = image->dev->work;
	_cleanup_free_ void *made = NULL;
	enum gantry_opencl_sort sort;
	size_t n = nbytes;
	int r = gantry_opencl_container_check(bytes, nbytes, &sort, err);

	work.of_guest = true;
	image->of_guest = true;
	image->dev->log[0] = '\0';
	if (r == 0 && sort == GANTRY_OPENCL_XCLBIN)
		return gantry_err_set(
			err, -ENOEXEC,
			"an image of a board, which its administrator registers (docs/boards.md)");
	if (r == 0 && (sort == GANTRY_OPENCL_SOURCE || sort == GANTRY_OPENCL_IL)) {
		r = gantry_opencl_builder_compile(&work, bytes, nbytes, &made, &n, image->dev->log,
						  err);
		/* The process that made it had seen a guest's text. */
		if (r == 0)
			r = gantry_opencl_container_check(made, n, &sort, err);
	} else if (r == 0) {
		made = malloc(nbytes);
		if (!made)
			return gantry_err_set(err, -ENOMEM, "no memory for an image");
		memcpy(made, bytes, nbytes);
	}
	if (r == 0 && sort == GANTRY_OPENCL_POCL)
		r = keep_whole(image, GANTRY_TAKE_PTR(made), &n, &made, err);
	if (r == 0)
		r = gantry_opencl_builder_try(&work, made, n, err);
	if (r == 0)
		r = load_binary(image, made, n, err);
	if (r == 0 && image->dev->log[0])
		image->log = strdup(image->dev->log); /* without memory there is none */
	/* What goes wrong with bytes of a stranger is their fault, unless room or the device is missing. */
	if (r < 0 && r != -ENOMEM && r != -EIO && r != -ENODEV && r != -EOPNOTSUPP)
		r = gantry_err_wrap(err, -ENOEXEC, "image");
	return r;
}

int gantry_opencl_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			     size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image = calloc(1, sizeof(*image));
	int r;

	assert(path || dev->guest_code);
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	image->dev = dev;
	gantry_list_push_back(&dev->images, &image->link);
	r = path ? load_installed(image, path, err) : load_guest(image, bytes, nbytes, err);
	if (r < 0) {
		gantry_opencl_image_unload(image);
		return r;
	}
	*ret_image = image;
	return 0;
}

void gantry_opencl_image_unload(struct gantry_image *image)
{
	struct gantry_kernel *next;

	if (!image)
		return;
	for (struct gantry_kernel *kernel = image->kernels; kernel; kernel = next) {
		next = kernel->next;
		free(kernel);
	}
	for (uint32_t i = 0; i < image->nfunctions; i++) {
		id_put(image->dev, image->functions[i].id);
		free((void *)(uintptr_t)image->functions[i].name);
	}
	free(image->functions);
	free(image->fitted);
	free(image->whole);
	free(image->log);
	free(image->said);
	if (image->program)
		(void)image->dev->cl->ReleaseProgram(image->program);
	if (image->library)
		(void)dlclose(image->library); /* a library that stays loaded harms nobody */
	gantry_list_remove(&image->link);
	free(image);
}

/* ---- kernels ---- */

/* OpenCL C's names of the types that signatures have, by enum gantry_arg_type. */
static const char *const type_names[] = {
	[GANTRY_ARG_U8] = "uchar",   [GANTRY_ARG_I8] = "char",	[GANTRY_ARG_U16] = "ushort",
	[GANTRY_ARG_I16] = "short",  [GANTRY_ARG_U32] = "uint", [GANTRY_ARG_I32] = "int",
	[GANTRY_ARG_U64] = "ulong",  [GANTRY_ARG_I64] = "long", [GANTRY_ARG_F32] = "float",
	[GANTRY_ARG_F64] = "double",
};

/* What OpenCL says of a parameter. */
struct param {
	cl_kernel_arg_address_qualifier where;
	cl_kernel_arg_access_qualifier access;
	char type[64]; /* "": it does not say */
};

/* false: it says nothing. */
static bool param_of(const struct gantry_opencl_driver *cl, cl_kernel kernel, cl_uint i,
		     struct param *ret_param)
{
	*ret_param = (struct param){ .access = CL_KERNEL_ARG_ACCESS_NONE };
	if (cl->GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
				 sizeof(ret_param->where), &ret_param->where, NULL) != CL_SUCCESS)
		return false;
	(void)cl->GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ACCESS_QUALIFIER,
				   sizeof(ret_param->access), &ret_param->access,
				   NULL); /* then it is no image */
	if (cl->GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof(ret_param->type) - 1,
				 ret_param->type, NULL) != CL_SUCCESS)
		ret_param->type[0] = '\0';
	return true;
}

/* Handles of the driver's own are never a guest's bytes: what is an image or a sampler gets nothing else. */
static bool param_fits(const struct param *param, const struct gantry_sig_arg *arg)
{
	bool is_image = param->access != CL_KERNEL_ARG_ACCESS_NONE;
	bool is_sampler = strcmp(param->type, "sampler_t") == 0;

	if (arg->mode || is_image)
		return arg->mode && !is_image &&
		       (param->where == CL_KERNEL_ARG_ADDRESS_GLOBAL ||
			param->where == CL_KERNEL_ARG_ADDRESS_CONSTANT);
	if (is_sampler || arg->type == GANTRY_ARG_SAMPLER)
		return is_sampler && arg->type == GANTRY_ARG_SAMPLER;
	/* Of a buffer's parameter it means that there is none. */
	if (arg->type == GANTRY_ARG_LOCAL)
		return param->where != CL_KERNEL_ARG_ADDRESS_PRIVATE;
	if (param->where != CL_KERNEL_ARG_ADDRESS_PRIVATE || arg->type == GANTRY_ARG_BYTES ||
	    !param->type[0])
		return param->where == CL_KERNEL_ARG_ADDRESS_PRIVATE;
	return arg->type < GANTRY_ARRAY_SIZE(type_names) &&
	       strcmp(param->type, type_names[arg->type]) == 0;
}

/* Is parameter @i what the signature says at @arg? True where OpenCL does not tell: a wrong size shows when it is set. */
static bool param_is(const struct gantry_opencl_driver *cl, cl_kernel kernel, cl_uint i,
		     const struct gantry_sig_arg *arg)
{
	struct param param;

	if (!arg->mode && arg->type == GANTRY_ARG_RANGE)
		return false;
	if (!param_of(cl, kernel, i, &param))
		return true;
	if (!arg->mode && arg->type == GANTRY_ARG_IMAGE)
		return param.access != CL_KERNEL_ARG_ACCESS_NONE;
	return param_fits(&param, arg);
}

static int check_params(const struct gantry_opencl_driver *cl, cl_kernel kernel, const char *symbol,
			const struct gantry_signature *sig, struct gantry_err *err)
{
	uint32_t at = gantry_opencl_first_param(sig), told = 0;
	cl_uint n = 0;
	cl_int result = cl->GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL);

	if (result != CL_SUCCESS)
		return gantry_opencl_err(result, "CL_KERNEL_NUM_ARGS", err);
	for (; at < sig->nargs; at++, told++) {
		const struct gantry_sig_arg *arg = &sig->args[at];

		if (told < n && !param_is(cl, kernel, told, arg))
			return gantry_err_set(
				err, -EINVAL,
				"kernel %.100s: parameter %u is not what the signature says",
				symbol, told + 1);
		/* One parameter with what says that it is an image. */
		at += !arg->mode && arg->type == GANTRY_ARG_IMAGE;
	}
	if (told != n)
		return gantry_err_set(err, -EINVAL,
				      "kernel %.100s has %u parameters, the signature %u", symbol,
				      n, told);
	return 0;
}

static void take_limits(struct gantry_kernel *to, cl_kernel kernel)
{
	const struct gantry_dev *dev = to->image->dev;
	size_t most = 0, wanted[3] = { 0 };

	if (dev->cl->GetKernelWorkGroupInfo(kernel, dev->target.device, CL_KERNEL_WORK_GROUP_SIZE,
					    sizeof(most), &most, NULL) != CL_SUCCESS ||
	    most == 0)
		most = dev->max_local;
	/* Of a GPU that is advice (NVIDIA's says 256, and runs 1024): its driver refuses what it cannot do. */
	to->max_local = dev->kind_bits & CL_DEVICE_TYPE_CPU ? most : dev->max_local;
	if (dev->cl->GetKernelWorkGroupInfo(kernel, dev->target.device,
					    CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(wanted),
					    wanted, NULL) != CL_SUCCESS)
		return; /* it wants none */
	for (unsigned int i = 0; i < 3; i++)
		to->only[i] = (uint32_t)wanted[i];
}

/* PoCL has no code for all sizes of a kernel that wants one, and ends the process where it finds none at a launch. */
static int fit_wanted(struct gantry_kernel *to, const char *name, struct gantry_err *err)
{
	int r;

	if (!to->image->dev->is_pocl || to->only[0] == 0)
		return 0;
	r = gantry_opencl_fit(to, name, to->only, GANTRY_OPENCL_ANY, err);
	if (r == -EAGAIN || r == -ENOMEM)
		return gantry_err_wrap(err, -ENOMEM, "code for kernel %.60s, another time", name);
	return r < 0 ? gantry_err_wrap(err, -EOPNOTSUPP,
				       "kernel %.60s has reqd_work_group_size, and no code for it",
				       name)
		     : 0;
}

static int find_function(struct gantry_kernel *to, const char *symbol, struct gantry_err *err)
{
	struct gantry_image *image = to->image;
	const struct gantry_opencl_driver *cl = image->dev->cl;
	struct gantry_opencl_wish wish;
	cl_int result = CL_INVALID_KERNEL_NAME;
	cl_kernel kernel = NULL;
	struct gantry_err why;
	int r;

	if (gantry_opencl_wish_parse(symbol, &wish) == 0)
		kernel = cl->CreateKernel(image->program, wish.name, &result);
	if (result == CL_INVALID_KERNEL_NAME)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %.100s", symbol);
	if (result != CL_SUCCESS)
		return gantry_opencl_err(result, "clCreateKernel", err);
	r = check_params(cl, kernel, wish.name, to->sig, err);
	if (r == 0)
		take_limits(to, kernel);
	(void)cl->ReleaseKernel(kernel);
	if (r == 0 && function_add(image, wish.name, &to->function) < 0)
		r = gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	if (r == 0)
		r = fit_wanted(to, wish.name, err);
	/* A wish: without that code the one for all sizes serves. */
	if (r == 0 && wish.local[0] && !to->only[0])
		(void)gantry_opencl_fit(to, wish.name, wish.local, wish.breadth, &why);
	return r;
}

int gantry_opencl_kernel_get(struct gantry_image *image, const char *symbol,
			     const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			     struct gantry_err *err)
{
	struct gantry_kernel *kernel = calloc(1, sizeof(*kernel));
	int r = 0;

	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	kernel->image = image;
	kernel->sig = sig;
	kernel->body = gantry_installed_body(image->library, symbol);
	if (!kernel->body)
		r = find_function(kernel, symbol, err);
	if (r < 0) {
		free(kernel);
		return r;
	}
	kernel->next = image->kernels;
	image->kernels = kernel;
	*ret_kernel = kernel;
	return 0;
}
