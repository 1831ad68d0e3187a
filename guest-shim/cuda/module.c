/* SPDX-License-Identifier: Apache-2.0 */
/* Images, their functions and variables. Libraries and kernels are modules and functions: nothing differs but the names. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/managed.h"
#include "guest-shim/cuda/mirror.h"
#include "proto/cuda_link.h"

#define WRAPPER_MAGIC 0x466243b1u /* fatbinary.h: what nvcc leaves around a fatbin */
#define FATBIN_MAGIC  0xba55ed50u

struct wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	void *files;
};

struct fatbin {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t bytes;
};

/* What cuLinkComplete() has made. */
static bool is_link(const void *image)
{
	return strncmp(image, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES) == 0;
}

/* Programs give no length: as the driver does, this believes the headers. 0: no image. */
static uint64_t image_bytes(const void *image)
{
	struct fatbin fatbin;
	Elf64_Ehdr elf;
	struct gantry_link_header link;
	uint64_t end;

	if (is_link(image)) {
		memcpy(&link, image, sizeof(link));
		return link.bytes;
	}
	memcpy(&fatbin.magic, image, sizeof(fatbin.magic));
	if (fatbin.magic == FATBIN_MAGIC) {
		memcpy(&fatbin, image, sizeof(fatbin));
		return fatbin.header_bytes + fatbin.bytes;
	}
	if (memcmp(image, ELFMAG, SELFMAG) != 0)
		return strlen(image) + 1;
	memcpy(&elf, image, sizeof(elf));
	end = elf.e_shoff + (uint64_t)elf.e_shnum * elf.e_shentsize;
	return GANTRY_MAX(end, elf.e_phoff + (uint64_t)elf.e_phnum * elf.e_phentsize);
}

/* As devices/cuda/format.c knows parts of fatbins. */
struct part {
	uint16_t kind;
	uint16_t version;
	uint32_t header_bytes;
	uint64_t bytes; /* of the contents, as they lie here */
	uint32_t compressed_bytes;
	uint32_t reserved;
};

bool cu_image_is_compressed(const void *image, size_t bytes)
{
	struct fatbin fatbin;
	struct part part;

	if (bytes < sizeof(fatbin))
		return false;
	memcpy(&fatbin, image, sizeof(fatbin));
	if (fatbin.magic != FATBIN_MAGIC)
		return false;
	for (size_t off = fatbin.header_bytes; off < bytes;
	     off += part.header_bytes + (size_t)part.bytes) {
		if (!gantry_range_inside(off, sizeof(part), bytes))
			return true;
		memcpy(&part, (const char *)image + off, sizeof(part));
		if (part.compressed_bytes != 0 || part.header_bytes < sizeof(part) ||
		    !gantry_range_inside(off, part.header_bytes, bytes) ||
		    !gantry_range_inside(off + part.header_bytes, part.bytes, bytes))
			return true;
	}
	return false;
}

/* The driver compiles no source: what is not one of its formats is refused here, as there. */
static bool is_ptx(const char *text)
{
	const char *at = strstr(text, ".version");

	return at && (at == text || at[-1] == '\n' || at[-1] == ' ' || at[-1] == '\t');
}

static CUresult load_result(int status)
{
	const char *why = gantry_last_error();

	if (status != GANTRY_E_IMAGE)
		return cu_result(status);
	if (strstr(why, "no code for") || strstr(why, "nothing for") || strstr(why, "is for sm_"))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (strstr(why, "newer CUDA"))
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cu_module_load(const void *image, bool is_library, struct CUmod_st **ret_module)
{
	struct wrapper wrapper;
	struct CUmod_st *module;
	uint64_t bytes;
	int r;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&wrapper.magic, image, sizeof(wrapper.magic));
	if (wrapper.magic == WRAPPER_MAGIC) {
		memcpy(&wrapper, image, sizeof(wrapper));
		image = wrapper.data;
	}
	bytes = image ? image_bytes(image) : 0;
	if (bytes == 0 || bytes > GANTRY_MAX_IMAGE_BYTES)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&wrapper.magic, image, sizeof(wrapper.magic));
	if (wrapper.magic != FATBIN_MAGIC && memcmp(image, ELFMAG, SELFMAG) != 0 &&
	    !is_link(image) && !is_ptx(image))
		return CUDA_ERROR_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_output_show();
	cu_output_want(image, bytes);
	module->is_library = is_library;
	r = gantry_image_load(cu.session, GANTRY_KIND_CUDA, image, bytes, &module->image);
	if (r < 0) {
		free(module);
		return load_result(r);
	}
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_add_locked(module, CU_KIND_MODULE)) {
		(void)pthread_mutex_unlock(&cu.lock);
		(void)gantry_image_free(cu.session, module->image);
		free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(void)pthread_mutex_unlock(&cu.lock);
	*ret_module = module;
	return CUDA_SUCCESS;
}

static void func_free(struct CUfunc_st *func)
{
	if (func->kernel)
		(void)gantry_kernel_free(cu.session, func->kernel);
	free(func->params);
	free(func->name);
	free(func);
}

void cu_module_end_locked(struct CUmod_st *module)
{
	cu_handle_remove_locked(module);
	cu_output_due();
	while (module->funcs) {
		struct CUfunc_st *func = module->funcs;

		module->funcs = func->next;
		cu_handle_remove_locked(func);
		func_free(func);
	}
	while (module->variables) {
		struct cu_variable *variable = module->variables;

		module->variables = variable->next;
		cu_mirror_remove_locked(variable);
		if (variable->is_managed)
			cu_managed_forget_locked(variable->address, variable->bytes);
		cu_alloc_forget_locked(variable->address);
		(void)gantry_free(cu.session, variable->buffer);
		free(variable->name);
		free(variable);
	}
	(void)gantry_image_free(cu.session, module->image);
	free(module);
}

/* ---- functions ---- */

CUresult cu_func_ask(const struct cu_device *dev, const struct CUfunc_st *func,
		     enum gantry_ask what, uint64_t number0, uint64_t number1, void *ret_answer,
		     size_t bytes)
{
	int r = gantry_device_ask(cu.session, what, dev->index, func->kernel,
				  (struct gantry_ask_numbers){ { number0, number1 } }, ret_answer,
				  bytes);

	return cu_result(r);
}

static CUresult take_params(const struct CUctx_st *ctx, struct CUfunc_st *func)
{
	struct gantry_reply_function answer = { 0 };
	CUresult result = cu_func_ask(ctx->dev, func, GANTRY_ASK_KERNEL, 0, 0, &answer,
				      sizeof(answer));

	if (result != CUDA_SUCCESS)
		return result;
	if (answer.nparams > GANTRY_MAX_ARGS_BYTES || answer.params_bytes > GANTRY_MAX_ARGS_BYTES)
		return CUDA_ERROR_NOT_SUPPORTED;
	func->nparams = answer.nparams;
	func->params_bytes = answer.params_bytes;
	memcpy(func->attributes, answer.attributes, sizeof(func->attributes));
	func->params = calloc(func->nparams ? func->nparams : 1, sizeof(*func->params));
	if (!func->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < func->nparams;) {
		size_t room = (func->nparams - i) * sizeof(*func->params);
		int r = gantry_device_ask(cu.session, GANTRY_ASK_PARAMS, ctx->dev->index,
					  func->kernel, (struct gantry_ask_numbers){ { i } },
					  &func->params[i], room);

		if (r < (int)sizeof(*func->params))
			return cu_result(r < 0 ? r : GANTRY_E_INTERNAL);
		i += (uint32_t)GANTRY_MIN((size_t)r, room) / (uint32_t)sizeof(*func->params);
	}
	/* The host is not believed either: it is our memory that is read by these. */
	for (uint32_t i = 0; i < func->nparams; i++)
		if (!gantry_range_inside(func->params[i].off, func->params[i].bytes,
					 func->params_bytes))
			return CUDA_ERROR_UNKNOWN;
	return CUDA_SUCCESS;
}

CUresult cu_func_get_locked(struct CUctx_st *ctx, struct CUmod_st *module, const char *name,
			    struct CUfunc_st **ret_func)
{
	struct CUfunc_st *func;
	CUresult result;

	for (func = module->funcs; func; func = func->next)
		if (strcmp(func->name, name) == 0) {
			*ret_func = func;
			return CUDA_SUCCESS;
		}
	func = calloc(1, sizeof(*func));
	if (!func)
		return CUDA_ERROR_OUT_OF_MEMORY;
	func->module = module;
	func->name = strdup(name);
	result = func->name ? cu_result(gantry_kernel_from(cu.session, module->image, name,
							   GANTRY_RAW, &func->kernel))
			    : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = take_params(ctx, func);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		result = cu_unsupported("kernels with more than 32764 bytes of parameters");
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(func, CU_KIND_FUNC))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		func_free(func);
		return result;
	}
	func->next = module->funcs;
	module->funcs = func;
	*ret_func = func;
	return CUDA_SUCCESS;
}

/* ---- variables ---- */

static CUresult variable_add(struct CUctx_st *ctx, struct cu_variable *variable)
{
	struct cu_alloc alloc = { .address = variable->address,
				  .bytes = variable->bytes,
				  .buffer = variable->buffer,
				  .kind = CU_MEMORY_VARIABLE,
				  .ctx = ctx,
				  .device = variable->device };
	CUresult result = cu_mirror_add_locked(variable);

	if (result != CUDA_SUCCESS)
		return result;
	if (variable->is_managed)
		alloc.host = (void *)(uintptr_t)variable->address;
	result = cu_alloc_add_locked(&alloc);
	if (result != CUDA_SUCCESS)
		cu_mirror_remove_locked(variable);
	return result;
}

/* A managed one is the same for all devices, the one where it was looked for first. */
static struct cu_variable *find_variable(const struct CUctx_st *ctx, const struct CUmod_st *module,
					 const char *name)
{
	for (struct cu_variable *v = module->variables; v; v = v->next)
		if ((v->is_managed || v->device == ctx->dev->index) && strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

bool cu_module_runs_on(const struct CUmod_st *module, const struct cu_device *dev)
{
	for (const struct cu_variable *v = module->variables; v; v = v->next)
		if (v->is_managed && v->device != dev->index)
			return false;
	return true;
}

CUresult cu_variable_get_locked(struct CUctx_st *ctx, struct CUmod_st *module, const char *name,
				struct cu_variable **ret_variable)
{
	struct gantry_reply_variable made;
	struct cu_variable *variable;
	CUresult result;

	variable = find_variable(ctx, module, name);
	if (variable) {
		*ret_variable = variable;
		return CUDA_SUCCESS;
	}
	result = cu_result(
		gantry_image_variable(cu.session, module->image, ctx->dev->index, name, &made));
	if (result != CUDA_SUCCESS)
		return result;
	variable = calloc(1, sizeof(*variable));
	if (variable)
		*variable = (struct cu_variable){ .name = strdup(name),
						  .device = ctx->dev->index,
						  .buffer = made.handle,
						  .address = made.address,
						  .bytes = made.bytes };
	result = variable && variable->name ? variable_add(ctx, variable)
					    : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		(void)gantry_free(cu.session, made.handle);
		free(variable ? variable->name : NULL);
		free(variable);
		return result;
	}
	variable->next = module->variables;
	module->variables = variable;
	*ret_variable = variable;
	return CUDA_SUCCESS;
}
