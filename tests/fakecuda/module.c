/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and their functions, launches, occupancy. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define FATBIN_MAGIC	0xba55ed50u
#define MAX_IMAGE_BYTES (64u << 20)

static const char *const faults[] = { "fault", "trap", "assert", "endless" };

/* The driver is given no length and believes the headers; so does this. */
static size_t image_bytes(const void *image)
{
	const Elf64_Ehdr *elf = image;
	uint64_t fat[2];
	size_t bytes;

	if (memcmp(image, ELFMAG, SELFMAG) == 0) {
		bytes = elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
		return bytes < MAX_IMAGE_BYTES ? bytes : 0;
	}
	memcpy(fat, image, sizeof(uint32_t));
	if ((uint32_t)fat[0] == FATBIN_MAGIC) {
		memcpy(fat, image, sizeof(fat));
		bytes = (fat[0] >> 48) + fat[1];
		return bytes < MAX_IMAGE_BYTES ? bytes : 0;
	}
	return strlen(image) + 1;
}

static CUresult check_arch(const char *line)
{
	const char *arch = strstr(line, " arch=sm_");
	int is;

	if (!arch)
		return CUDA_SUCCESS;
	is = atoi(arch + strlen(" arch=sm_"));
	return is == FAKE_ARCH_MAJOR * 10 + FAKE_ARCH_MINOR ? CUDA_SUCCESS
							    : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult fake_image_read(const void *image, unsigned int index, char *ret_so, size_t so_bytes)
{
	static const char key[] = "FAKECUDA so=";
	size_t bytes = image_bytes(image);
	const char *at = bytes ? memmem(image, bytes, key, strlen(key)) : NULL;
	char line[PATH_MAX + 64];
	size_t len;

	for (; at && index > 0; index--) {
		const char *next = at + strlen(key);

		at = memmem(next, bytes - (size_t)(next - (const char *)image), key, strlen(key));
	}
	if (!at)
		return CUDA_ERROR_INVALID_IMAGE;
	len = bytes - (size_t)(at - (const char *)image);
	len = len < sizeof(line) - 1 ? len : sizeof(line) - 1;
	memcpy(line, at, len);
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	at = line + strlen(key);
	len = strcspn(at, " ");
	if (len == 0 || len >= so_bytes)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(ret_so, at, len);
	ret_so[len] = '\0';
	return check_arch(line);
}

static void tell_log(unsigned int nopts, CUjit_option *opts, void **values, const char *text)
{
	char *log = NULL;
	size_t bytes = 0;

	for (unsigned int i = 0; i < nopts; i++) {
		if (opts[i] == CU_JIT_ERROR_LOG_BUFFER)
			log = values[i];
		if (opts[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			bytes = (size_t)(uintptr_t)values[i];
	}
	if (log && bytes > 0)
		(void)snprintf(log, bytes, "%s", text);
}

static void module_free(struct CUmod_st *mod)
{
	while (mod->funcs) {
		struct CUfunc_st *func = mod->funcs;

		mod->funcs = func->next;
		free(func);
	}
	while (mod->nsos > 0)
		(void)dlclose(mod->sos[--mod->nsos]);
	free(mod);
}

void *fake_module_symbol(const struct CUmod_st *mod, const char *name)
{
	void *at = NULL;

	for (unsigned int i = 0; i < mod->nsos && !at; i++)
		at = dlsym(mod->sos[i], name);
	return at;
}

/* The driver loads code behind the kernels that run in the context, whatever their streams. */
static CUresult wait_for_kernels(struct CUctx_st *ctx)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	while (fake_launches_locked(ctx) && !ctx->ending && ctx->sticky == CUDA_SUCCESS &&
	       !fake.cut)
		pthread_cond_wait(&fake.changed, &fake.lock);
	r = ctx->sticky;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuModuleLoadDataEx(CUmodule *ret_module, const void *image, unsigned int nopts,
			    CUjit_option *opts, void **values)
{
	char path[PATH_MAX];
	struct CUmod_st *mod;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	fake_print_flush();
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	r = fake_image_read(image, 0, path, sizeof(path));
	if (r != CUDA_SUCCESS) {
		tell_log(nopts, opts, values, "fake ptxas: no FAKECUDA line for this device");
		return memcmp(image, ".version", 8) == 0 && r == CUDA_ERROR_INVALID_IMAGE
			       ? CUDA_ERROR_INVALID_PTX
			       : r;
	}
	r = wait_for_kernels(ctx);
	if (r != CUDA_SUCCESS)
		return r;
	mod = calloc(1, sizeof(*mod));
	if (!mod)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mod->ctx = ctx;
	do {
		mod->sos[mod->nsos] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!mod->sos[mod->nsos]) {
			module_free(mod);
			return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
		}
		mod->nsos++;
	} while (mod->nsos < FAKE_MAX_SOS &&
		 fake_image_read(image, mod->nsos, path, sizeof(path)) == CUDA_SUCCESS);
	pthread_mutex_lock(&fake.lock);
	mod->next = fake.modules;
	fake.modules = mod;
	pthread_mutex_unlock(&fake.lock);
	*ret_module = mod;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *ret_module, const void *image)
{
	return cuModuleLoadDataEx(ret_module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *ret_module, const void *image)
{
	return cuModuleLoadDataEx(ret_module, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *ret_module, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CUresult r = CUDA_ERROR_FILE_NOT_FOUND;
	struct stat st;
	char *image;

	if (fd < 0)
		return r;
	image = fstat(fd, &st) == 0 && st.st_size > 0 ? calloc(1, (size_t)st.st_size + 1) : NULL;
	if (image && pread(fd, image, (size_t)st.st_size, 0) == st.st_size)
		r = cuModuleLoadData(ret_module, image);
	free(image);
	(void)close(fd);
	return r;
}

void fake_modules_end(struct CUctx_st *ctx)
{
	struct CUmod_st **at = &fake.modules;

	while (*at) {
		struct CUmod_st *mod = *at;

		if (mod->ctx != ctx) {
			at = &mod->next;
			continue;
		}
		*at = mod->next;
		module_free(mod);
	}
}

CUresult cuModuleUnload(CUmodule mod)
{
	struct CUmod_st **at = &fake.modules;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	while (*at && *at != mod)
		at = &(*at)->next;
	if (*at)
		*at = mod->next;
	else
		mod = NULL;
	pthread_mutex_unlock(&fake.lock);
	if (!mod)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(mod);
	return CUDA_SUCCESS;
}

static bool is_fault(const char *name)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (strcmp(name, faults[i]) == 0)
			return true;
	return false;
}

static CUresult find_symbols(struct CUfunc_st *func)
{
	char symbol[sizeof(func->name) + 32];
	static const struct fakecuda_param none[1];

	(void)snprintf(symbol, sizeof(symbol), "fakecuda_%s", func->name);
	*(void **)&func->fn = fake_module_symbol(func->mod, symbol);
	if (!func->fn && !is_fault(func->name))
		return CUDA_ERROR_NOT_FOUND;
	(void)snprintf(symbol, sizeof(symbol), "fakecuda_params_%s", func->name);
	func->params = fake_module_symbol(func->mod, symbol);
	if (!func->params)
		func->params = none;
	while (func->nparams < FAKE_MAX_PARAMS && func->params[func->nparams].size) {
		const struct fakecuda_param *param = &func->params[func->nparams++];

		func->param_bytes = param->offset + param->size;
	}
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *ret_func, CUmodule mod, const char *name)
{
	struct CUfunc_st *func;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	if (!mod || !name || strlen(name) >= sizeof(func->name))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	for (func = mod->funcs; func && strcmp(func->name, name) != 0;)
		func = func->next;
	pthread_mutex_unlock(&fake.lock);
	if (func) {
		*ret_func = func;
		return CUDA_SUCCESS;
	}
	func = calloc(1, sizeof(*func));
	if (!func)
		return CUDA_ERROR_OUT_OF_MEMORY;
	func->mod = mod;
	(void)snprintf(func->name, sizeof(func->name), "%s", name);
	r = find_symbols(func);
	if (r != CUDA_SUCCESS) {
		free(func);
		return r;
	}
	pthread_mutex_lock(&fake.lock);
	func->next = mod->funcs;
	mod->funcs = func;
	pthread_mutex_unlock(&fake.lock);
	*ret_func = func;
	return CUDA_SUCCESS;
}

/*
 * fakecuda_global_NAME is the variable's place, its size is not known: 8 bytes. It is a managed one where there is a uint64_t
 * fakecuda_managed_NAME, which is its size.
 */
CUresult cuModuleGetGlobal(CUdeviceptr *ret_ptr, size_t *ret_bytes, CUmodule mod, const char *name)
{
	char symbol[160];
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	const uint64_t *managed;
	void *at;

	if (r != CUDA_SUCCESS)
		return r;
	(void)snprintf(symbol, sizeof(symbol), "fakecuda_global_%s", name);
	at = fake_module_symbol(mod, symbol);
	if (!at)
		return CUDA_ERROR_NOT_FOUND;
	(void)snprintf(symbol, sizeof(symbol), "fakecuda_managed_%s", name);
	managed = fake_module_symbol(mod, symbol);
	if (managed)
		fake_managed_add((uintptr_t)at);
	if (ret_ptr)
		*ret_ptr = (uintptr_t)at;
	if (ret_bytes)
		*ret_bytes = managed ? *managed : sizeof(uint64_t);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t idx, size_t *ret_offset, size_t *ret_size)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!func || idx >= func->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = func->params[idx].offset;
	if (ret_size)
		*ret_size = func->params[idx].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *ret_value, CUfunction_attribute attr, CUfunction func)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!func)
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret_value = 1024;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret_value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret_value = FAKE_ARCH_MAJOR * 10 + FAKE_ARCH_MINOR;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret_value = func->max_dynamic ? func->max_dynamic : 49152;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret_value = func->carveout - 1;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*ret_value = func->non_portable;
		break;
	default:
		*ret_value = 0;
	}
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction func, CUfunction_attribute attr, int value)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!func || value < -1)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value > 232448)
			return CUDA_ERROR_INVALID_VALUE;
		func->max_dynamic = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		func->carveout = value + 1;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		func->non_portable = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

CUresult cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config)
{
	(void)func;
	(void)config;
	return fake_enter(__func__);
}

CUresult cuFuncGetName(const char **ret_name, CUfunction func)
{
	CUresult r = fake_enter(__func__);

	if (r == CUDA_SUCCESS)
		*ret_name = func->name;
	return r;
}

CUresult cuFuncGetModule(CUmodule *ret_mod, CUfunction func)
{
	CUresult r = fake_enter(__func__);

	if (r == CUDA_SUCCESS)
		*ret_mod = func->mod;
	return r;
}

CUresult cuFuncLoad(CUfunction func)
{
	CUresult r = fake_enter(__func__);

	return r == CUDA_SUCCESS && !func ? CUDA_ERROR_INVALID_HANDLE : r;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, CUfunction func, int threads,
						     size_t shared)
{
	CUresult r = fake_enter(__func__);
	const int *most;

	if (r != CUDA_SUCCESS)
		return r;
	if (!func || threads < 1 || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_blocks = 2048 / threads < 32 ? 2048 / threads : 32;
	most = fake_module_symbol(func->mod, "fakecuda_occupancy");
	if (most && *most < *ret_blocks)
		*ret_blocks = *most;
	if (shared > 0 && (int)(233472 / shared) < *ret_blocks)
		*ret_blocks = (int)(233472 / shared);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *ret_blocks, CUfunction func,
							      int threads, size_t shared,
							      unsigned int flags)
{
	(void)flags;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(ret_blocks, func, threads, shared);
}

/* Clusters of 8 fit everywhere, larger ones where the function says that it may have such. */
#define MOST_CLUSTER	     8u
#define MOST_ALLOWED_CLUSTER 16u
#define UNITS		     8

CUresult cuOccupancyMaxActiveClusters(int *ret_clusters, CUfunction func,
				      const CUlaunchConfig *config)
{
	unsigned int blocks = 1;
	int per_unit;
	CUresult r;

	if (!ret_clusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			blocks = config->attrs[i].value.clusterDim.x *
				 config->attrs[i].value.clusterDim.y *
				 config->attrs[i].value.clusterDim.z;
	if (blocks < 1 ||
	    blocks > (func && func->non_portable ? MOST_ALLOWED_CLUSTER : MOST_CLUSTER))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
		&per_unit, func, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
		config->sharedMemBytes);
	if (r == CUDA_SUCCESS)
		*ret_clusters = per_unit * UNITS / (int)blocks;
	return r;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *ret_blocks, CUfunction func,
					    const CUlaunchConfig *config)
{
	int per_unit;
	CUresult r;

	if (!ret_blocks || !config)
		return CUDA_ERROR_INVALID_VALUE;
	r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
		&per_unit, func, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
		config->sharedMemBytes);
	if (r == CUDA_SUCCESS)
		*ret_blocks = (int)(func->non_portable ? MOST_ALLOWED_CLUSTER : MOST_CLUSTER);
	return r;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *ret_grid, int *ret_block, CUfunction func,
					  CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	CUresult r = fake_enter(__func__);

	(void)shared_of;
	(void)shared;
	if (r != CUDA_SUCCESS)
		return r;
	if (!func)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_block = limit > 0 && limit < 1024 ? limit : 1024;
	*ret_grid = 16;
	return CUDA_SUCCESS;
}

/* Launches. */

static CUresult copy_from_extra(const struct CUfunc_st *func, void **extra, unsigned char *bytes)
{
	const void *from = NULL;
	size_t size = 0;

	for (unsigned int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			from = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!from || size < func->param_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(bytes, from, func->param_bytes);
	return CUDA_SUCCESS;
}

CUresult fake_params_copy(const struct CUfunc_st *func, void **params, void **extra,
			  struct fake_cmd *cmd)
{
	unsigned char *bytes = NULL;

	if (func->nparams == 0)
		return CUDA_SUCCESS;
	if (!params == !extra)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = calloc(1, func->param_bytes);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->launch.bytes = bytes;
	cmd->launch.nparams = func->nparams;
	for (uint32_t i = 0; i < func->nparams; i++) {
		cmd->launch.params[i] = bytes + func->params[i].offset;
		if (params)
			memcpy(cmd->launch.params[i], params[i], func->params[i].size);
	}
	return extra ? copy_from_extra(func, extra, bytes) : CUDA_SUCCESS;
}

static CUresult check_geometry(const struct fakecuda_geometry *g)
{
	uint64_t threads = (uint64_t)g->block[0] * g->block[1] * g->block[2];

	for (unsigned int i = 0; i < 3; i++)
		if (g->grid[i] == 0 || g->block[i] == 0 || (i > 0 && g->grid[i] > 65535))
			return CUDA_ERROR_INVALID_VALUE;
	if (g->grid[0] > 0x7fffffffu || g->block[0] > 1024 || g->block[1] > 1024 ||
	    g->block[2] > 64)
		return CUDA_ERROR_INVALID_VALUE;
	return threads > 1024 || g->shared_bytes > 232448 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult fake_launch_new(CUfunction func, const struct fakecuda_geometry *geometry, void **params,
			 void **extra, struct fake_cmd **ret_cmd)
{
	struct fake_cmd *cmd;
	CUresult r;

	if (!func)
		return CUDA_ERROR_INVALID_HANDLE;
	r = check_geometry(geometry);
	if (r != CUDA_SUCCESS)
		return r;
	cmd = fake_cmd_new(FAKE_LAUNCH);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->launch.func = func;
	cmd->launch.geometry = *geometry;
	r = fake_params_copy(func, params, extra, cmd);
	if (r != CUDA_SUCCESS) {
		free(cmd->launch.bytes);
		free(cmd);
		return r;
	}
	*ret_cmd = cmd;
	return CUDA_SUCCESS;
}

static CUresult launch(const char *call, CUfunction func, const struct fakecuda_geometry *geometry,
		       CUstream stream, void **params, void **extra)
{
	struct fake_cmd *cmd;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);

	fake_print_flush();
	if (r == CUDA_SUCCESS)
		r = fake_launch_new(func, geometry, params, extra, &cmd);
	return r == CUDA_SUCCESS ? fake_put(stream, ctx, cmd) : r;
}

CUresult cuLaunchKernel(CUfunction func, unsigned int gx, unsigned int gy, unsigned int gz,
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	const struct fakecuda_geometry geometry = { { gx, gy, gz }, { bx, by, bz }, shared };

	return launch(__func__, func, &geometry, stream, params, extra);
}

/* As many as 8 multiprocessors hold of them; clusters divide the grid. */
static CUresult check_groups(const struct fakecuda_geometry *g)
{
	uint64_t nblocks = (uint64_t)g->grid[0] * g->grid[1] * g->grid[2];
	uint64_t nthreads = (uint64_t)g->block[0] * g->block[1] * g->block[2];

	if (g->cooperative && nthreads > 0 && nthreads <= 1024 && nblocks > 8 * (2048 / nthreads))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	for (unsigned int i = 0; i < 3; i++)
		if (g->cluster[i] && g->grid[i] % g->cluster[i])
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction func, void **params,
			  void **extra)
{
	struct fakecuda_geometry geometry = {
		{ config->gridDimX, config->gridDimY, config->gridDimZ },
		{ config->blockDimX, config->blockDimY, config->blockDimZ },
		config->sharedMemBytes,
	};
	CUresult r;

	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];

		if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			geometry.cooperative = a->value.cooperative;
		if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			geometry.cluster[0] = a->value.clusterDim.x;
			geometry.cluster[1] = a->value.clusterDim.y;
			geometry.cluster[2] = a->value.clusterDim.z;
		}
	}
	r = check_groups(&geometry);
	return r == CUDA_SUCCESS ? launch(__func__, func, &geometry, config->hStream, params, extra)
				 : r;
}

CUresult cuLaunchCooperativeKernel(CUfunction func, unsigned int gx, unsigned int gy,
				   unsigned int gz, unsigned int bx, unsigned int by,
				   unsigned int bz, unsigned int shared, CUstream stream,
				   void **params)
{
	const struct fakecuda_geometry geometry = {
		{ gx, gy, gz }, { bx, by, bz }, shared, .cooperative = 1
	};
	CUresult r = check_groups(&geometry);

	return r == CUDA_SUCCESS ? launch(__func__, func, &geometry, stream, params, NULL) : r;
}
