/* SPDX-License-Identifier: Apache-2.0 */
/* Images, their functions and variables. Libraries and kernels are modules and functions: nothing differs but the names. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/managed.h"
#include "guest-shim/cuda/mirror.h"

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

static CUresult module_add_locked(struct CUmod_st *module, struct CUctx_st *ctx)
{
	/* It may have ended while the image was on its way. */
	if (ctx && !cu_handle_is_locked(ctx, CU_KIND_CTX))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!cu_handle_add_locked(module, CU_KIND_MODULE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->ctx = ctx;
	if (ctx) {
		module->next = ctx->modules;
		ctx->modules = module;
	}
	return CUDA_SUCCESS;
}

static void module_leave_locked(struct CUmod_st *module)
{
	struct CUmod_st **at = &module->ctx->modules;

	while (*at && *at != module)
		at = &(*at)->next;
	if (*at)
		*at = module->next;
}

CUresult cu_module_load(const void *image, uint64_t file_bytes, struct CUctx_st *ctx,
			struct CUmod_st **ret_module)
{
	struct CUmod_st *module;
	CUresult result;
	uint64_t bytes;
	int r;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = cu_image_find(&image, file_bytes);
	if (bytes == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_output_show();
	cu_output_want(image, bytes);
	r = gantry_image_load(cu.session, GANTRY_KIND_CUDA, image, bytes, &module->image);
	if (r < 0) {
		free(module);
		return load_result(r);
	}
	(void)pthread_mutex_lock(&cu.lock);
	result = module_add_locked(module, ctx);
	(void)pthread_mutex_unlock(&cu.lock);
	if (result != CUDA_SUCCESS) {
		(void)gantry_image_free(cu.session, module->image);
		free(module);
		return result;
	}
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
	if (module->ctx)
		module_leave_locked(module);
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

/* No image has another. */
static bool can_be_symbol(const char *name)
{
	size_t len = strnlen(name, GANTRY_MAX_SYMBOL);

	return len > 0 && len < GANTRY_MAX_SYMBOL;
}

CUresult cu_func_get_locked(struct CUctx_st *ctx, struct CUmod_st *module, const char *name,
			    struct CUfunc_st **ret_func)
{
	struct CUfunc_st *func;
	CUresult result;

	if (!can_be_symbol(name))
		return CUDA_ERROR_NOT_FOUND;
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

	if (!can_be_symbol(name))
		return CUDA_ERROR_NOT_FOUND;
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
