/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakehip/fake.h"
#include "tests/fakehip/payload.h"

static struct {
	pthread_mutex_t lock;
	struct gantry_hip_function *functions;
} code = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct fakecuda_param no_params[] = { { 0, 0 } };

static int fault(void **params, const struct fakecuda_geometry *geometry)
{
	(void)params;
	(void)geometry;
	return GANTRY_HIP_ILLEGAL_ADDRESS;
}

gantry_hip_result hipModuleLoadData(struct gantry_hip_module **ret_module, const void *image)
{
	struct gantry_hip_module *module;
	const char *path = fakehip_payload(image);

	if (!path)
		return GANTRY_HIP_NO_BINARY_FOR_GPU; /* true machine code */
	module = calloc(1, sizeof(*module));
	if (!module)
		return GANTRY_HIP_OUT_OF_MEMORY;
	module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module->library) {
		fprintf(stderr, "fakehip: %s\n", dlerror());
		free(module);
		return GANTRY_HIP_INVALID_IMAGE;
	}
	*ret_module = module;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipModuleUnload(struct gantry_hip_module *module)
{
	struct gantry_hip_function **slot = &code.functions;

	pthread_mutex_lock(&code.lock);
	while (*slot) {
		struct gantry_hip_function *function = *slot;

		if (function->module != module) {
			slot = &function->next;
			continue;
		}
		*slot = function->next;
		free(function);
	}
	pthread_mutex_unlock(&code.lock);
	(void)dlclose(module->library);
	free(module);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipModuleGetFunction(struct gantry_hip_function **ret_function,
				       struct gantry_hip_module *module, const char *name)
{
	struct gantry_hip_function *function = calloc(1, sizeof(*function));
	char symbol[160];
	void *address;

	if (!function)
		return GANTRY_HIP_OUT_OF_MEMORY;
	function->module = module;
	(void)snprintf(function->name, sizeof(function->name), "%s", name);
	(void)snprintf(symbol, sizeof(symbol), "fakecuda_%s", name);
	address = dlsym(module->library, symbol);
	memcpy(&function->fn, &address, sizeof(address));
	(void)snprintf(symbol, sizeof(symbol), "fakecuda_params_%s", name);
	function->params = dlsym(module->library, symbol);
	/* Named so in every image: a bad access. */
	if (strcmp(name, "fault") == 0) {
		function->params = no_params;
		function->fn = fault;
	} else if (!address || !function->params) {
		free(function);
		return GANTRY_HIP_NOT_FOUND;
	}
	pthread_mutex_lock(&code.lock);
	function->next = code.functions;
	code.functions = function;
	pthread_mutex_unlock(&code.lock);
	*ret_function = function;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipFuncGetAttribute(int *value, int attribute,
				      struct gantry_hip_function *function)
{
	(void)function;
	if (attribute != GANTRY_HIP_FUNC_MAX_THREADS && attribute != GANTRY_HIP_FUNC_SHARED_BYTES)
		return GANTRY_HIP_INVALID_VALUE;
	*value = attribute == GANTRY_HIP_FUNC_MAX_THREADS ? FAKE_THREADS : 0;
	return GANTRY_HIP_SUCCESS;
}

static int never_ends(void *cookie)
{
	(void)cookie;
	return 0;
}

static void run_launch(struct gantry_hip_stream *stream, struct fake_op *op)
{
	void *params[128];

	(void)stream;
	for (size_t i = 0; op->function->params[i].size; i++)
		params[i] = op->args + op->function->params[i].offset;
	if (op->function->fn(params, &op->geometry) != 0)
		fake_fault(op->function->name, NULL);
}

gantry_hip_result fake_launch_new(const struct gantry_hip_function *function,
				  struct gantry_hip_size grid, struct gantry_hip_size block,
				  unsigned shared_bytes, void **params, struct fake_op **ret_op)
{
	uint64_t nthreads = (uint64_t)block.x * block.y * block.z;
	struct fake_op *op;

	if (nthreads > FAKE_THREADS || nthreads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0)
		return GANTRY_HIP_INVALID_VALUE;
	op = fake_op_new(run_launch);
	if (!op)
		return GANTRY_HIP_OUT_OF_MEMORY;
	op->function = function;
	op->geometry = (struct fakecuda_geometry){
		.grid = { grid.x, grid.y, grid.z },
		.block = { block.x, block.y, block.z },
		.shared_bytes = shared_bytes,
		.ending = never_ends,
	};
	for (size_t i = 0; function->params[i].size; i++)
		memcpy(op->args + function->params[i].offset, params[i], function->params[i].size);
	*ret_op = op;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipModuleLaunchKernel(struct gantry_hip_function *function, unsigned grid_x,
					unsigned grid_y, unsigned grid_z, unsigned block_x,
					unsigned block_y, unsigned block_z, unsigned shared_bytes,
					struct gantry_hip_stream *stream, void **params,
					void **extra)
{
	const struct gantry_hip_size grid = { grid_x, grid_y, grid_z };
	const struct gantry_hip_size block = { block_x, block_y, block_z };
	struct fake_op *op;
	gantry_hip_result r;

	if (extra)
		return GANTRY_HIP_INVALID_VALUE;
	r = fake_launch_new(function, grid, block, shared_bytes, params, &op);
	return r == GANTRY_HIP_SUCCESS ? fake_put(stream, op) : r;
}
