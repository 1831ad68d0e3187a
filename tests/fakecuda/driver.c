/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, devices, contexts, and what every call does first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define MAX_STACK 8

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Contexts of this thread, the current one last. */
static __thread struct {
	struct CUctx_st *ctx[MAX_STACK];
	unsigned int depth;
} stack;

uint64_t fake_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct CUctx_st *current(void)
{
	return stack.depth ? stack.ctx[stack.depth - 1] : NULL;
}

struct CUctx_st *fake_ctx_current(void)
{
	return current();
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static bool any_context(void)
{
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		if (fake.primary[i].nrefs > 0)
			return true;
	return fake.created != NULL;
}

static void read_environment(void)
{
	const char *lost = getenv("FAKECUDA_LOST");
	uint64_t ndevices = env_number("FAKECUDA_DEVICES", 1);

	fake.ndevices = ndevices > FAKE_MAX_DEVICES ? FAKE_MAX_DEVICES : (int)ndevices;
	fake.mem_bytes = env_number("FAKECUDA_MEM", 4ull << 30);
	fake.peers = env_number("FAKECUDA_PEERS", 1) != 0;
	fake.dirty = env_number("FAKECUDA_DIRTY", 0) != 0;
	fake.switch_us = env_number("FAKECUDA_SWITCH_US", 0);
	fake_fail_load(getenv("FAKECUDA_FAIL"));
	(void)snprintf(fake.lost_path, sizeof(fake.lost_path), "%s", lost ? lost : "");
	for (int i = 0; i < FAKE_MAX_DEVICES; i++)
		fake.primary[i].ordinal = i;
}

bool fake_is_lost(CUdevice ordinal)
{
	int listed = -1;
	bool lost = false;
	FILE *file;

	if (!fake.lost_path[0] || access(fake.lost_path, F_OK) != 0)
		return false;
	file = fopen(fake.lost_path, "re");
	if (!file)
		return false;
	while (!lost && fscanf(file, "%d", &listed) == 1)
		lost = listed == ordinal;
	(void)fclose(file);
	return lost || listed < 0;
}

CUresult fake_enter(const char *call)
{
	CUresult r = fake_fail_ask(call);
	struct CUctx_st *ctx = current();

	if (r != CUDA_SUCCESS)
		return r;
	if (!fake.inited)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!ctx)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&fake.lock);
	if (ctx->sticky == CUDA_SUCCESS && fake_is_lost(ctx->ordinal))
		fake_fail_locked(ctx, CUDA_ERROR_UNKNOWN);
	r = ctx->sticky;
	fake_print_assert_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult fake_enter_ctx(const char *call, struct CUctx_st **ret_ctx)
{
	CUresult r = fake_enter(call);

	if (r != CUDA_SUCCESS)
		return r;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_ctx = current();
	return CUDA_SUCCESS;
}

void fake_fail_locked(struct CUctx_st *ctx, CUresult code)
{
	CUresult unused;

	if (ctx->sticky == CUDA_SUCCESS)
		ctx->sticky = code;
	ctx->group_faults = fake_group_faults(&unused);
	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		pthread_cond_broadcast(&s->work);
	pthread_cond_broadcast(&fake.changed);
}

CUresult cuInit(unsigned int flags)
{
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (!any_context())
		read_environment();
	fake.inited = fake.ndevices > 0 && !fake_is_lost(-1);
	r = fake.inited ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
	pthread_mutex_unlock(&fake.lock);
	return r == CUDA_SUCCESS ? fake_fail_ask("cuInit-end") : r;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

/* Devices. */

static bool is_device(CUdevice dev)
{
	return dev >= 0 && dev < fake.ndevices;
}

/* Not of the current context: of the device that was named. */
static CUresult enter_device(const char *call, CUdevice dev)
{
	CUresult r = fake_fail_ask(call);

	if (r != CUDA_SUCCESS)
		return r;
	if (!fake.inited)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return fake_is_lost(dev) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!fake.inited)
		return CUDA_ERROR_NOT_INITIALIZED;
	*count = fake.ndevices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult r = enter_device(__func__, ordinal);

	if (r == CUDA_SUCCESS || r == CUDA_ERROR_DEVICE_UNAVAILABLE)
		*device = ordinal;
	return r == CUDA_ERROR_DEVICE_UNAVAILABLE ? CUDA_SUCCESS : r;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS)
		(void)snprintf(name, (size_t)len, "Fake GPU");
	return r;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS) {
		memset(uuid, 0, sizeof(*uuid));
		memcpy(uuid->bytes, "fake", 4);
		uuid->bytes[15] = (char)dev;
	}
	return r;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS)
		*bytes = fake.mem_bytes;
	return r;
}

CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS)
		(void)snprintf(text, (size_t)len, "0000:%02X:00.0", 0xf0 + dev);
	return r;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *text)
{
	unsigned int domain, bus, slot;
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 || domain != 0 || slot != 0 ||
	    !is_device((int)bus - 0xf0))
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (int)bus - 0xf0;
	return CUDA_SUCCESS;
}

static const struct {
	CUdevice_attribute attr;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472 },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144 },
	{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560 },
	{ CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, FAKE_ARCH_MAJOR },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, FAKE_ARCH_MINOR },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1 },
	{ CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0 },
	{ CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0 },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_NUMA_ID, -1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0 },
};

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r != CUDA_SUCCESS)
		return r;
	if (attr < 1 || attr >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attr == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 0xf0 + dev : 0;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attr == attr)
			*value = attributes[i].value;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS)
		r = enter_device(__func__, peer);
	if (r == CUDA_SUCCESS)
		*can = dev != peer && fake.peers;
	return r;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attr, CUdevice src, CUdevice dst)
{
	(void)attr;
	return cuDeviceCanAccessPeer(value, src, dst);
}

/* Contexts. */

/* A process without a server, or whose server's folder is not there, is nobody's client. */
static bool group_path(char *path, size_t cap)
{
	const char *named = getenv("FAKECUDA_MPS_GROUP");
	const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");

	if (!named || !*named)
		return false;
	if (strcmp(named, "pipes") != 0) {
		(void)snprintf(path, cap, "%s", named);
		return true;
	}
	(void)snprintf(path, cap, "%s/fakecuda-group", pipes ? pipes : "");
	return pipes && access(pipes, W_OK) == 0;
}

static CUresult begin_ctx_locked(struct CUctx_st *ctx)
{
	char path[256];
	CUresult unused;

	ctx->sticky = CUDA_SUCCESS;
	ctx->ending = false;
	ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	if (group_path(path, sizeof(path)) && !fake_in_group()) {
		int r;

		pthread_mutex_unlock(&fake.lock);
		r = fake_group_join(path);
		pthread_mutex_lock(&fake.lock);
		if (r < 0)
			return r == -2 ? CUDA_ERROR_MPS_SERVER_NOT_READY
				       : CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	ctx->group_faults = fake_group_faults(&unused);
	ctx->nrefs = 1;
	return CUDA_SUCCESS;
}

void fake_ctx_end_locked(struct CUctx_st *ctx)
{
	ctx->ending = true;
	fake_streams_end_locked(ctx);
	fake_memory_end(ctx);
	fake_modules_end(ctx);
	fake_textures_end(ctx);
	fake_print_flush_locked(ctx);
	ctx->nrefs = 0;
	if (!any_context()) {
		pthread_mutex_unlock(&fake.lock);
		fake_group_leave();
		pthread_mutex_lock(&fake.lock);
	}
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	if (fake.primary[dev].nrefs > 0 && fake.primary[dev].sticky != CUDA_SUCCESS)
		r = fake.primary[dev].sticky;
	else if (fake.primary[dev].nrefs > 0)
		fake.primary[dev].nrefs++;
	else
		r = begin_ctx_locked(&fake.primary[dev]);
	pthread_mutex_unlock(&fake.lock);
	if (r == CUDA_SUCCESS)
		*ret_ctx = &fake.primary[dev];
	return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.lock);
	if (fake.primary[dev].nrefs == 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (fake.primary[dev].nrefs == 1)
		fake_ctx_end_locked(&fake.primary[dev]);
	else
		fake.primary[dev].nrefs--;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.lock);
	if (fake.primary[dev].nrefs > 0)
		fake_ctx_end_locked(&fake.primary[dev]);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS)
		fake.primary[dev].flags = flags;
	return r;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult r = enter_device(__func__, dev);

	if (r == CUDA_SUCCESS) {
		*flags = fake.primary[dev].flags;
		*active = fake.primary[dev].nrefs > 0;
	}
	return r;
}

CUresult cuCtxCreate(CUcontext *ret_ctx, CUctxCreateParams *params, unsigned int flags,
		     CUdevice dev)
{
	CUresult r = enter_device(__func__, dev);
	struct CUctx_st *ctx;

	(void)params;
	if (r != CUDA_SUCCESS)
		return r;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->ordinal = dev;
	ctx->flags = flags;
	pthread_mutex_lock(&fake.lock);
	r = begin_ctx_locked(ctx);
	if (r == CUDA_SUCCESS) {
		ctx->next = fake.created;
		fake.created = ctx;
	}
	pthread_mutex_unlock(&fake.lock);
	if (r != CUDA_SUCCESS) {
		free(ctx);
		return r;
	}
	*ret_ctx = ctx;
	return cuCtxPushCurrent(ctx);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	struct CUctx_st **at = &fake.created;

	pthread_mutex_lock(&fake.lock);
	while (*at && *at != ctx)
		at = &(*at)->next;
	if (!*at) {
		pthread_mutex_unlock(&fake.lock);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	*at = ctx->next;
	fake_ctx_end_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
	if (current() == ctx)
		stack.depth--;
	free(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (stack.depth == 0)
		stack.depth = 1;
	stack.ctx[stack.depth - 1] = ctx;
	if (!ctx)
		stack.depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = current();
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	if (!ctx || stack.depth == MAX_STACK)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.ctx[stack.depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
	if (stack.depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth--;
	if (ctx)
		*ctx = stack.ctx[stack.depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = current()->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*flags = current()->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	current()->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS && least)
		*least = 0;
	if (r == CUDA_SUCCESS && greatest)
		*greatest = -5;
	return r;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	return peer == ctx || flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS && limit >= CU_LIMIT_MAX)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		ctx->limits[limit] = (value + 15) & ~(size_t)15;
	return r;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS && limit >= CU_LIMIT_MAX)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*value = ctx->limits[limit];
	return r;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct CUctx_st *ctx;

	(void)config;
	return fake_enter_ctx(__func__, &ctx);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	(void)ctx;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

static struct CUstream_st *busy_stream(struct CUctx_st *ctx)
{
	struct CUstream_st *s = ctx->streams;

	while (s && !s->head && !s->busy)
		s = s->next;
	return s;
}

CUresult cuCtxSynchronize(void)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	for (struct CUstream_st *s = busy_stream(ctx); s && r == CUDA_SUCCESS; s = busy_stream(ctx))
		r = fake_drain_locked(s);
	if (r == CUDA_SUCCESS)
		r = ctx->sticky;
	fake_print_flush_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
	return r;
}
