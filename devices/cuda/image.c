/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of the cuda backend: installed modules, which are shared objects with device code inside, and
 * device code as it is (fatbin, cubin, PTX), installed or a guest's.
 */
#include <assert.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/cuda/backend.h"
#include "devices/cuda/compile.h"
#include "devices/installed.h"

#define FILE_MAX_BYTES (1ull << 30)
#define LOG_BYTES      4096u

/* ---- device code ---- */

/* The line of the driver's log that says what is wrong, made fit for a sentence. */
static const char *log_line(char *log)
{
	char *line = strstr(log, "error");

	line = line ? line : strstr(log, "fatal");
	while (line && line > log && line[-1] != '\n')
		line--;
	line = line ? line : log;
	line[strcspn(line, "\r\n")] = '\0';
	gantry_str_make_printable(line);
	return line;
}

static int load_failed(struct gantry_dev *dev, CUresult result, char *log, struct gantry_err *err)
{
	int r = gantry_cuda_check(dev, result, "loading the image", err);

	switch (result) {
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
		return gantry_err_set(err, -ENOEXEC,
				      "the image holds no code for this device, which is %s",
				      dev->arch);
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
		return gantry_err_set(err, -ENOEXEC,
				      "the image's PTX is of a newer CUDA than the driver's %d.%d",
				      dev->driver->version / 1000,
				      dev->driver->version % 1000 / 10);
	default:
		break;
	}
	if (log[0] != '\0' && r == -ENOEXEC)
		return gantry_err_set(err, r, "the driver refuses the image: %.180s",
				      log_line(log));
	/* What else goes wrong with bytes of a stranger is their fault, unless room or the device is missing. */
	if (r == -EINVAL || r == -ENOENT || r == -EOPNOTSUPP)
		return gantry_err_wrap(err, -ENOEXEC, "the driver refuses the image");
	return r;
}

int gantry_cuda_code_load(struct gantry_dev *dev, const void *bytes, CUmodule *ret_module,
			  struct gantry_err *err)
{
	char log[LOG_BYTES] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)(sizeof(log) - 1) };
	CUresult result = dev->driver->ModuleLoadDataEx(ret_module, bytes, 2, options, values);

	return result == CUDA_SUCCESS ? 0 : load_failed(dev, result, log, err);
}

static int load_bytes(struct gantry_image *image, const void *bytes, size_t nbytes,
		      struct gantry_err *err)
{
	int r;

	/* Of an image that nobody asked for its log, of another session's maybe. */
	gantry_cuda_link_forget(image->dev);
	image->is_graphs = gantry_cuda_graph_is(bytes, nbytes);
	if (image->is_graphs)
		return 0;
	if (gantry_cuda_link_is(bytes, nbytes))
		return gantry_cuda_link(image->dev, bytes, nbytes, &image->module, err);
	/* The driver takes no length and believes the headers: they are checked first. */
	r = gantry_cuda_image_check(bytes, nbytes, image->dev->arch, err);

	return r < 0 ? r : gantry_cuda_code_load(image->dev, bytes, &image->module, err);
}

/* ---- installed modules ---- */

static int take_functions(struct gantry_image *image, const struct gantry_cuda_module *module,
			  struct gantry_err *err)
{
	const struct gantry_cuda_driver *driver = image->dev->driver;

	image->functions = calloc(module->nfunctions ? module->nfunctions : 1, sizeof(CUfunction));
	if (!image->functions)
		return gantry_err_set(err, -ENOMEM, "no memory for a module's functions");
	for (uint32_t i = 0; i < module->nfunctions; i++) {
		CUresult result = driver->ModuleGetFunction(&image->functions[i], image->module,
							    module->functions[i]);
		int r = gantry_cuda_check(image->dev, result, module->functions[i], err);

		if (r < 0)
			return gantry_err_wrap(err, r == -ENOENT ? -ENOEXEC : r,
					       "a function of the module");
	}
	image->nfunctions = module->nfunctions;
	return 0;
}

static int load_library(struct gantry_image *image, const char *path, struct gantry_err *err)
{
	const struct gantry_cuda_module *module;
	int r;

	r = gantry_installed_open(path, &image->library, err);
	if (r < 0)
		return r;
	module = dlsym(image->library, "gantry_cuda_module");
	if (!module)
		return gantry_err_set(err, -ENOEXEC, "image %s: it has no gantry_cuda_module",
				      path);
	if (module->abi != GANTRY_CUDA_MODULE_ABI || module->size < sizeof(*module))
		return gantry_err_set(err, -ENOEXEC,
				      "image %s: made for another version of devices/cuda/module.h",
				      path);
	image->installed = module;
	/* What other threads than the device's look at has no counts and caches of launches. */
	if ((module->flags & GANTRY_CUDA_ASIDE) && module->nfunctions > 0)
		return gantry_err_set(err, -ENOEXEC,
				      "image %s: it runs aside and has device code of its own",
				      path);
	/* One that enqueues nothing of its own has no device code. */
	if (!module->image && module->nfunctions == 0)
		return 0;
	r = gantry_cuda_image_check(module->image, module->image_bytes, image->dev->arch, err);
	if (r == 0)
		r = gantry_cuda_code_load(image->dev, module->image, &image->module, err);
	if (r == 0)
		r = take_functions(image, module, err);
	return r < 0 ? gantry_err_wrap(err, r, "image %s", path) : 0;
}

/* Code for this machine's processors, rather than for the device? */
static bool is_host_code(const char *bytes, size_t nbytes)
{
	Elf64_Ehdr header;

	if (nbytes < sizeof(header) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
		return false;
	memcpy(&header, bytes, sizeof(header));
	return header.e_machine != EM_CUDA;
}

static int load_path(struct gantry_image *image, const char *path, struct gantry_err *err)
{
	_cleanup_free_ char *bytes = NULL;
	size_t nbytes = 0;
	int r;

	/* A bare name would be searched for in the system's folders. */
	if (!strchr(path, '/'))
		return gantry_err_set(err, -ENOEXEC, "image %s: not a path", path);
	r = gantry_file_read(path, FILE_MAX_BYTES, &bytes, &nbytes);
	if (r < 0)
		return gantry_err_set_errno(err, r == -ENOMEM ? r : -ENOEXEC, "image %s", path);
	if (is_host_code(bytes, nbytes))
		return load_library(image, path, err);
	/* gantry_file_read() ends the bytes with a NUL, which is what PTX has to have. */
	if (gantry_cuda_image_sort(bytes, nbytes) == GANTRY_CUDA_PTX)
		nbytes++;
	r = load_bytes(image, bytes, nbytes, err);
	return r < 0 ? gantry_err_wrap(err, r, "image %s", path) : 0;
}

/* ---- life ---- */

int gantry_cuda_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image = calloc(1, sizeof(*image));
	int r;

	assert(!path == !!bytes);
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	image->dev = dev;
	gantry_list_push_back(&dev->images, &image->link);
	r = path ? load_path(image, path, err) : load_bytes(image, bytes, nbytes, err);
	if (r < 0) {
		gantry_cuda_image_unload(image);
		return r;
	}
	*ret_image = image;
	return 0;
}

void gantry_cuda_image_unload(struct gantry_image *image)
{
	struct gantry_kernel *next;

	if (!image)
		return;
	/* Their threads may be in it, and go through it when they end. */
	if (image->installed && (image->installed->flags & GANTRY_CUDA_ASIDE))
		gantry_cuda_owners_end(image->dev);
	gantry_list_for_each(&image->dev->streams, struct gantry_stream, link, stream)
		gantry_rows_forget(stream->rows, image);
	gantry_cuda_graphs_forget(image->dev, image);
	for (struct gantry_kernel *kernel = image->kernels; kernel; kernel = next) {
		next = kernel->next;
		free(kernel->layout);
		free(kernel);
	}
	if (image->module)
		(void)image->dev->driver->ModuleUnload(
			image->module); /* refused after a fault only */
	if (image->library)
		(void)dlclose(image->library); /* a library that stays loaded harms nobody */
	free(image->functions);
	gantry_list_remove(&image->link);
	free(image);
}

/* ---- kernels ---- */

/*
 * The driver copies as many bytes from as many places as the function takes: what a guest says of
 * them must be what the function was compiled with.
 */
static int check_params(const struct gantry_dev *dev, CUfunction function, const char *symbol,
			const struct gantry_signature *sig, struct gantry_err *err)
{
	size_t off, size;

	for (uint32_t i = 0; i < sig->nargs; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		size_t wanted = arg->mode ? sizeof(CUdeviceptr) : gantry_arg_type_bytes(arg->type);

		if (dev->driver->FuncGetParamInfo(function, i, &off, &size) != CUDA_SUCCESS)
			return gantry_err_set(
				err, -EINVAL,
				"kernel %.80s takes %u parameters, the signature has %u", symbol, i,
				sig->nargs);
		if (size != wanted)
			return gantry_err_set(
				err, -EINVAL,
				"parameter %u of kernel %.80s has %zu bytes, in the signature %zu",
				i + 1, symbol, size, wanted);
		if (off != arg->off_bytes)
			return gantry_err_set(
				err, -EINVAL,
				"parameter %u of kernel %.80s begins at byte %zu, in the signature at %u",
				i + 1, symbol, off, arg->off_bytes);
	}
	if (dev->driver->FuncGetParamInfo(function, sig->nargs, &off, &size) == CUDA_SUCCESS)
		return gantry_err_set(
			err, -EINVAL,
			"kernel %.80s takes more than the %u parameters of the signature", symbol,
			sig->nargs);
	return 0;
}

/* Reads what launches are checked against; also loads the function, which must not happen in submit(). */
static int take_limits(struct gantry_kernel *kernel, struct gantry_err *err)
{
	struct gantry_dev *dev = kernel->image->dev;
	int max_threads = 0;
	int shared = 0;
	int r;

	r = gantry_cuda_check(dev,
			      dev->driver->FuncGetAttribute(&max_threads,
							    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
							    kernel->function),
			      "cuFuncGetAttribute", err);
	if (r == 0)
		r = gantry_cuda_check(
			dev,
			dev->driver->FuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
						      kernel->function),
			"cuFuncGetAttribute", err);
	kernel->max_threads = (uint32_t)max_threads;
	kernel->static_shared = (uint32_t)shared;
	return r;
}

static int find_function(struct gantry_kernel *kernel, const char *symbol, struct gantry_err *err)
{
	struct gantry_dev *dev = kernel->image->dev;
	CUresult result = dev->driver->ModuleGetFunction(&kernel->function, kernel->image->module,
							 symbol);
	int r;

	if (result == CUDA_ERROR_NOT_FOUND)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %.100s", symbol);
	r = gantry_cuda_check(dev, result, "cuModuleGetFunction", err);
	if (r == 0)
		r = kernel->sig->is_raw
			    ? gantry_cuda_layout_take(kernel, err)
			    : check_params(dev, kernel->function, symbol, kernel->sig, err);
	return r < 0 ? r : take_limits(kernel, err);
}

/* What runs aside has its arguments when the caller's memory is another command's: values only, no places there. */
static int check_aside(const struct gantry_image *image, const struct gantry_signature *sig,
		       struct gantry_err *err)
{
	if (!image->installed || !(image->installed->flags & GANTRY_CUDA_ASIDE) ||
	    !gantry_signature_is_opencl(sig))
		return 0;
	return gantry_err_set(err, -EINVAL, "what runs aside takes numbers and buffers only");
}

int gantry_cuda_kernel_get(struct gantry_image *image, const char *symbol,
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
	if (image->is_graphs)
		r = gantry_cuda_graph_kernel(symbol, sig, &kernel->graph, err);
	else if (kernel->body)
		r = check_aside(image, sig, err);
	else
		r = find_function(kernel, symbol, err);
	if (r < 0) {
		free(kernel->layout);
		free(kernel);
		return r;
	}
	kernel->next = image->kernels;
	image->kernels = kernel;
	*ret_kernel = kernel;
	return 0;
}
