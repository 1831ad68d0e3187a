/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the hip backend: installed modules, which are shared objects with code inside, and guests' own code. */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/hip/backend.h"
#include "devices/installed.h"
#include "devices/pace.h"

#define CODE_ALIGN    4096u
#define MAX_FUNCTIONS 4096u

/* ---- code ---- */

/* Loads what of @bytes is for this device, from a copy that stays. */
static int load_code(struct gantry_image *image, const void *bytes, size_t nbytes,
		     struct gantry_err *err)
{
	struct gantry_dev *dev = image->dev;
	uint64_t room;
	int r = gantry_hip_container_open(bytes, nbytes, dev->arch, &image->object, err);

	if (r < 0)
		return r;
	if (gantry_align_up(image->object.nbytes, CODE_ALIGN, &room) == 0)
		image->code = aligned_alloc(CODE_ALIGN, room);
	if (!image->code)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	memcpy(image->code, image->object.bytes, image->object.nbytes);
	image->object.bytes = image->code;
	r = gantry_hip_err(dev->hip->ModuleLoadData(&image->module, image->code),
			   "hipModuleLoadData", err);
	/* What goes wrong with well-formed bytes is their fault, unless room or the device is missing. */
	return r < 0 && r != -ENOMEM && r != -EIO && r != -ENODEV ? -ENOEXEC : r;
}

static int find_functions(struct gantry_image *image, const struct gantry_hip_module_image *module,
			  struct gantry_err *err)
{
	if (module->nfunctions > MAX_FUNCTIONS)
		return gantry_err_set(err, -ENOEXEC, "more than %u functions", MAX_FUNCTIONS);
	image->functions = calloc(module->nfunctions + 1, sizeof(struct gantry_hip_function *));
	if (!image->functions)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	for (; image->nfunctions < module->nfunctions; image->nfunctions++) {
		const char *name = module->functions[image->nfunctions];
		gantry_hip_result result = image->dev->hip->ModuleGetFunction(
			&image->functions[image->nfunctions], image->module, name);

		if (result != GANTRY_HIP_SUCCESS)
			return gantry_err_set(err, -ENOEXEC, "its code has no kernel %.100s: %s",
					      name, gantry_hip_error(result));
	}
	return 0;
}

/* Those of a group where pace is measured: one works. */
#define PACE_THREADS 64u

/* What measuring a module's pace needs. */
struct pace {
	const struct gantry_dev *dev;
	struct gantry_hip_function *function;
	void *verdict;
};

static int pace_go(void *cookie, uint64_t nrounds)
{
	struct pace *pace = cookie;
	const struct gantry_hip_driver *hip = pace->dev->hip;
	void *params[] = { &pace->verdict, &nrounds };
	gantry_hip_result result = hip->ModuleLaunchKernel(pace->function, 1, 1, 1, PACE_THREADS, 1,
							   1, 0, pace->dev->own, params, NULL);

	if (result == GANTRY_HIP_SUCCESS)
		result = hip->StreamSynchronize(pace->dev->own);
	return gantry_hip_outcome(result);
}

static int measure_pace(struct gantry_image *image, uint32_t function, struct gantry_err *err)
{
	struct pace pace = { .dev = image->dev, .function = image->functions[function] };
	const struct gantry_hip_driver *hip = image->dev->hip;
	gantry_hip_result result = hip->Malloc(&pace.verdict, 2 * sizeof(int32_t));
	int r;

	if (result == GANTRY_HIP_SUCCESS)
		result = hip->MemsetAsync(pace.verdict, 0, 2 * sizeof(int32_t), image->dev->own);
	r = gantry_hip_outcome(result);
	if (r == 0)
		r = gantry_pace_measure(pace_go, &pace, &image->rounds_per_ms);
	if (pace.verdict)
		(void)hip->Free(pace.verdict);
	return r < 0 ? gantry_err_set(err, r, "measuring the device's pace failed") : 0;
}

static int load_module(struct gantry_image *image, struct gantry_err *err)
{
	const struct gantry_hip_module_image *module = dlsym(image->library, "gantry_hip_module");
	int r;

	if (!module || module->size < sizeof(*module) || module->abi != GANTRY_HIP_MODULE_ABI)
		return gantry_err_set(err, -ENOEXEC, "not a module for AMD GPUs of this version");
	r = load_code(image, module->code, module->code_bytes, err);
	if (r == 0)
		r = find_functions(image, module, err);
	if (r < 0 || module->pace == 0)
		return r;
	if (module->pace > module->nfunctions)
		return gantry_err_set(err, -ENOEXEC, "it has no function %u", module->pace - 1);
	return measure_pace(image, module->pace - 1, err);
}

int gantry_hip_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image = calloc(1, sizeof(*image));
	int r;

	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	image->dev = dev;
	gantry_list_push_back(&dev->images, &image->link);
	if (path) {
		r = gantry_installed_open(path, &image->library, err);
		if (r == 0) {
			r = load_module(image, err);
			if (r < 0)
				r = gantry_err_wrap(err, r, "image %s", path);
		}
	} else {
		r = load_code(image, bytes, nbytes, err);
	}
	if (r < 0) {
		gantry_hip_image_unload(image);
		return r;
	}
	*ret_image = image;
	return 0;
}

void gantry_hip_image_unload(struct gantry_image *image)
{
	struct gantry_kernel *next;

	if (!image)
		return;
	gantry_list_for_each(&image->dev->streams, struct gantry_stream, link, stream)
		gantry_rows_forget(stream->rows, image);
	for (struct gantry_kernel *kernel = image->kernels; kernel; kernel = next) {
		next = kernel->next;
		free(kernel);
	}
	if (image->module)
		(void)image->dev->hip->ModuleUnload(
			image->module); /* after a fault the process ends */
	gantry_hip_object_free(&image->object);
	free(image->functions);
	free(image->code);
	if (image->library)
		(void)dlclose(image->library); /* a library that stays loaded harms nobody */
	gantry_list_remove(&image->link);
	free(image);
}

/* ---- kernels ---- */

/* The runtime copies as many bytes as the code says: what a guest says of them must be that. */
static int check_params(const struct gantry_hip_kernel *has, const char *symbol,
			const struct gantry_signature *sig, struct gantry_err *err)
{
	for (uint32_t i = 0; i < sig->nargs && i < has->nparams; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		const struct gantry_hip_param *param = &has->params[i];
		size_t wanted = arg->mode ? sizeof(void *) : gantry_arg_type_bytes(arg->type);

		if (param->is_buffer != (arg->mode != 0))
			return gantry_err_set(
				err, -EINVAL,
				"parameter %u of kernel %.80s is %s buffer, in the signature it is %s",
				i + 1, symbol, param->is_buffer ? "a" : "no",
				arg->mode ? "one" : "none");
		if (param->size != wanted || param->off != arg->off_bytes)
			return gantry_err_set(
				err, -EINVAL,
				"parameter %u of kernel %.80s has %u bytes at %u, in the signature %zu at %u",
				i + 1, symbol, param->size, param->off, wanted, arg->off_bytes);
	}
	if (has->nparams != sig->nargs)
		return gantry_err_set(err, -EINVAL,
				      "kernel %.80s takes %u parameters, the signature has %u",
				      symbol, has->nparams, sig->nargs);
	return 0;
}

static int find_function(struct gantry_kernel *kernel, const char *symbol, struct gantry_err *err)
{
	const struct gantry_image *image = kernel->image;
	const struct gantry_hip_driver *hip = image->dev->hip;
	const struct gantry_hip_kernel *has = gantry_hip_object_find(&image->object, symbol);
	int threads = 0;
	int r;

	if (!has)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %.100s", symbol);
	r = check_params(has, symbol, kernel->sig, err);
	if (r == 0)
		r = gantry_hip_err(hip->ModuleGetFunction(&kernel->function, image->module, symbol),
				   "hipModuleGetFunction", err);
	if (r < 0)
		return r;
	kernel->max_threads = image->dev->max_threads;
	if (has->max_threads)
		kernel->max_threads = (uint32_t)gantry_min_u64(kernel->max_threads,
							       has->max_threads);
	if (hip->FuncGetAttribute(&threads, GANTRY_HIP_FUNC_MAX_THREADS, kernel->function) ==
		    GANTRY_HIP_SUCCESS &&
	    threads > 0)
		kernel->max_threads = (uint32_t)gantry_min_u64(kernel->max_threads,
							       (uint64_t)threads);
	return 0;
}

int gantry_hip_kernel_get(struct gantry_image *image, const char *symbol,
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
