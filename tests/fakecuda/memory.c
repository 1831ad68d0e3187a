/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices and of the host, and virtual memory management. All of it is host memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define DIRT 0x5a
/* Addresses that nothing else takes by itself, nor the address sanitizer; and where in them a process begins. */
#define PLACE	     0x200000000000ull
#define PLACE_SPREAD (1ull << 44)

struct fake_range *fake_range_add(enum fake_range_kind kind, uint64_t base, uint64_t len,
				  struct CUctx_st *ctx)
{
	struct fake_range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	range->kind = kind;
	range->base = base;
	range->len = len;
	range->ctx = ctx;
	range->ordinal = ctx ? ctx->ordinal : 0;
	range->next = fake.ranges;
	fake.ranges = range;
	return range;
}

struct fake_range *fake_range_around(enum fake_range_kind kind, uint64_t addr)
{
	struct fake_range *range = fake.ranges;

	while (range && (range->kind != kind || addr - range->base >= range->len))
		range = range->next;
	return range;
}

struct fake_range *fake_range_at(enum fake_range_kind kind, uint64_t base)
{
	struct fake_range *range = fake_range_around(kind, base);

	return range && range->base == base ? range : NULL;
}

static void slab_put(struct fake_slab *slab)
{
	if (--slab->nrefs > 0)
		return;
	if (slab->counted)
		fake.used[slab->ordinal] -= slab->len;
	(void)close(slab->fd);
	free(slab);
}

void fake_range_drop(struct fake_range *range)
{
	struct fake_range **at = &fake.ranges;
	void *base = (void *)(uintptr_t)range->base;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	if (range->kind == FAKE_ALLOC)
		fake.used[range->ordinal] -= range->len;
	if (range->kind == FAKE_MAP) {
		(void)mmap(base, range->len, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		slab_put(range->slab);
	} else if (range->kind != FAKE_REGISTER) {
		(void)munmap(base, range->len);
	}
	free(range);
}

/* What belongs to a context ends with it; reservations and their mappings are the process's. */
void fake_memory_end(struct CUctx_st *ctx)
{
	struct fake_range *range = fake.ranges;

	while (range) {
		struct fake_range *next = range->next;

		if (range->ctx == ctx)
			fake_range_drop(range);
		range = next;
	}
}

bool fake_reaches(uint64_t addr, uint64_t len, uint32_t devices)
{
	uint64_t end = addr + len;

	if (end < addr)
		return false;
	while (addr < end) {
		struct fake_range *map = fake_range_around(FAKE_MAP, addr);

		if (map && !(map->access & devices))
			return false;
		if (map) {
			addr = map->base + map->len;
			continue;
		}
		if (fake_range_around(FAKE_RESERVE, addr))
			return false;
		/* Outside reservations: whole, as nothing of ours is beside it. */
		return true;
	}
	return true;
}

CUresult fake_charge(CUdevice ordinal, uint64_t len)
{
	if (len > fake.mem_bytes || fake.used[ordinal] > fake.mem_bytes - len)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fake.used[ordinal] += len;
	return CUDA_SUCCESS;
}

static CUresult alloc_locked(struct CUctx_st *ctx, size_t bytes, uint64_t *ret_base)
{
	/* Granules of 512 bytes are the device's; pages are ours. */
	uint64_t len = (bytes + 4095) & ~4095ull;
	CUresult r = bytes ? fake_charge(ctx->ordinal, len) : CUDA_ERROR_INVALID_VALUE;
	void *base;

	if (r != CUDA_SUCCESS)
		return r;
	base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (base == MAP_FAILED || !fake_range_add(FAKE_ALLOC, (uintptr_t)base, len, ctx)) {
		fake.used[ctx->ordinal] -= len;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (fake.dirty)
		memset(base, DIRT, len);
	*ret_base = (uintptr_t)base;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *ret_ptr, size_t bytes)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	uint64_t base;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	r = alloc_locked(ctx, bytes, &base);
	pthread_mutex_unlock(&fake.lock);
	if (r == CUDA_SUCCESS)
		*ret_ptr = base;
	return r;
}

CUresult cuMemAllocAsync(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream)
{
	(void)stream;
	return cuMemAlloc(ret_ptr, bytes);
}

static CUresult free_kind(const char *call, enum fake_range_kind kind, uint64_t base)
{
	struct fake_range *range;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);

	if (r != CUDA_SUCCESS || base == 0)
		return r;
	r = cuCtxSynchronize();
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	range = fake_range_at(kind, base);
	if (range)
		fake_range_drop(range);
	pthread_mutex_unlock(&fake.lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree(CUdeviceptr ptr)
{
	return free_kind(__func__, FAKE_ALLOC, ptr);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	struct fake_cmd *cmd;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	cmd = fake_cmd_new(FAKE_FREE);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->free_at = ptr;
	return fake_put(stream, ctx, cmd);
}

CUresult cuMemGetInfo(size_t *ret_free, size_t *ret_total)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	*ret_total = fake.mem_bytes;
	*ret_free = fake.mem_bytes - fake.used[ctx->ordinal];
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr ptr)
{
	static const enum fake_range_kind kinds[] = { FAKE_ALLOC, FAKE_MAP, FAKE_HOST };
	struct fake_range *range = NULL;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	for (unsigned int i = 0; i < 3 && !range; i++)
		range = fake_range_around(kinds[i], ptr);
	if (range && ret_base)
		*ret_base = range->base;
	if (range && ret_bytes)
		*ret_bytes = range->len;
	pthread_mutex_unlock(&fake.lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Host memory. */

CUresult cuMemHostAlloc(void **ret_ptr, size_t bytes, unsigned int flags)
{
	uint64_t len = (bytes + 4095) & ~4095ull;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	void *base;

	(void)flags;
	if (r != CUDA_SUCCESS)
		return r;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	if (!fake_range_add(FAKE_HOST, (uintptr_t)base, len, ctx))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&fake.lock);
	if (r == CUDA_SUCCESS)
		*ret_ptr = base;
	return r;
}

CUresult cuMemAllocHost(void **ret_ptr, size_t bytes)
{
	return cuMemHostAlloc(ret_ptr, bytes, 0);
}

CUresult cuMemFreeHost(void *ptr)
{
	return free_kind(__func__, FAKE_HOST, (uintptr_t)ptr);
}

static bool overlaps_registered(uint64_t base, uint64_t len)
{
	for (struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_REGISTER && base < range->base + range->len &&
		    range->base < base + len)
			return true;
	return false;
}

CUresult cuMemHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
	uint64_t base = (uintptr_t)ptr;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	if (bytes == 0 || base == 0 || base + bytes < base || flags > 0xf)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (overlaps_registered(base, bytes))
		r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (!fake_range_add(FAKE_REGISTER, base, bytes, ctx))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuMemHostUnregister(void *ptr)
{
	struct fake_range *range;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	range = fake_range_at(FAKE_REGISTER, (uintptr_t)ptr);
	if (range)
		fake_range_drop(range);
	pthread_mutex_unlock(&fake.lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *ret_ptr, void *ptr, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	bool known;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	known = fake_range_around(FAKE_REGISTER, (uintptr_t)ptr) ||
		fake_range_around(FAKE_HOST, (uintptr_t)ptr);
	pthread_mutex_unlock(&fake.lock);
	if (!known || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_ptr = (uintptr_t)ptr;
	return CUDA_SUCCESS;
}

#define NMANAGED 64u
static uint64_t managed[NMANAGED];

void fake_managed_add(uint64_t addr)
{
	unsigned int i = 0;

	pthread_mutex_lock(&fake.lock);
	while (i < NMANAGED && managed[i] && managed[i] != addr)
		i++;
	if (i < NMANAGED)
		managed[i] = addr;
	pthread_mutex_unlock(&fake.lock);
}

static bool is_managed(uint64_t addr)
{
	bool is = false;

	for (unsigned int i = 0; i < NMANAGED && managed[i]; i++)
		is |= managed[i] == addr;
	return is;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr)
{
	static const enum fake_range_kind kinds[] = { FAKE_ALLOC, FAKE_MAP, FAKE_HOST,
						      FAKE_REGISTER };
	struct fake_range *range = NULL;
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	for (unsigned int i = 0; i < 4 && !range; i++)
		range = fake_range_around(kinds[i], ptr);
	if (attr == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
		*(unsigned int *)data = is_managed(ptr);
	} else if (!range) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else if (attr == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
		*(unsigned int *)data = range->kind == FAKE_ALLOC || range->kind == FAKE_MAP
						? CU_MEMORYTYPE_DEVICE
						: CU_MEMORYTYPE_HOST;
	} else if (attr == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
		*(int *)data = range->ordinal;
	} else if (attr == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
		   attr == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
		*(uint64_t *)data = ptr;
	} else if (attr == CU_POINTER_ATTRIBUTE_CONTEXT) {
		*(CUcontext *)data = range->ctx;
	} else {
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

/* Virtual memory management. */

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	return prop->location.id >= 0 && prop->location.id < fake.ndevices
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult r = fake_enter(__func__);

	(void)option;
	if (r == CUDA_SUCCESS)
		r = check_prop(prop);
	if (r == CUDA_SUCCESS)
		*ret_bytes = FAKE_GRANULARITY;
	return r;
}

static struct fake_slab *slab_new(int fd, uint64_t len, CUdevice ordinal, bool counted)
{
	struct fake_slab *slab = calloc(1, sizeof(*slab));

	if (slab)
		*slab = (struct fake_slab){ fd, len, ordinal, 1, counted };
	return slab;
}

static void make_dirty(int fd, uint64_t len)
{
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return;
	memset(base, DIRT, len);
	(void)munmap(base, len);
}

static CUresult make_slab(CUdevice ordinal, uint64_t len, struct fake_slab **ret_slab)
{
	int fd = memfd_create("fakecuda", MFD_CLOEXEC);

	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (ftruncate(fd, (off_t)len) == 0)
		*ret_slab = slab_new(fd, len, ordinal, true);
	else
		*ret_slab = NULL;
	if (!*ret_slab) {
		(void)close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (fake.dirty)
		make_dirty(fd, len);
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct fake_slab *slab = NULL;
	CUresult r = fake_enter(__func__);

	if (r == CUDA_SUCCESS)
		r = check_prop(prop);
	if (r == CUDA_SUCCESS && (bytes == 0 || bytes % FAKE_GRANULARITY || flags))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	r = fake_is_lost(prop->location.id) ? CUDA_ERROR_UNKNOWN
					    : fake_charge(prop->location.id, bytes);
	if (r == CUDA_SUCCESS) {
		r = make_slab(prop->location.id, bytes, &slab);
		if (r != CUDA_SUCCESS)
			fake.used[prop->location.id] -= bytes;
	}
	pthread_mutex_unlock(&fake.lock);
	if (r == CUDA_SUCCESS)
		*ret_handle = (uintptr_t)slab;
	return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	slab_put((struct fake_slab *)(uintptr_t)handle);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *ret_fd, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = fake_enter(__func__);
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(((struct fake_slab *)(uintptr_t)handle)->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)ret_fd = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *handle,
					CUmemAllocationHandleType type)
{
	CUresult r = fake_enter(__func__);
	struct fake_slab *slab;
	struct stat st;
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl((int)(intptr_t)handle, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 0 ||
	    st.st_size == 0 || (uint64_t)st.st_size % FAKE_GRANULARITY) {
		if (fd >= 0)
			(void)close(fd);
		return CUDA_ERROR_UNKNOWN; /* as the real one; the context is well */
	}
	slab = slab_new(fd, (uint64_t)st.st_size, 0, false);
	if (!slab) {
		(void)close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_handle = (uintptr_t)slab;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	memset(prop, 0, sizeof(*prop));
	prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop->location.id = ((struct fake_slab *)(uintptr_t)handle)->ordinal;
	return CUDA_SUCCESS;
}

/*
 * Apart from what else the process maps: addresses of a worker that has gone are free for the next, also where both are of one
 * process, and a sanitizer's allocator, which takes new places all the time, is of it too. Where that is depends on where the
 * loader has put us, so processes differ. The kernel takes another place where it is no good.
 */
static void *reserve_apart(size_t bytes)
{
	static uint64_t used;
	uint64_t first = PLACE +
			 (uintptr_t)&used % PLACE_SPREAD / FAKE_GRANULARITY * FAKE_GRANULARITY;
	uint64_t place = first + __atomic_fetch_add(&used, bytes, __ATOMIC_RELAXED);

	return mmap((void *)(uintptr_t)place, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* @addr is a hint, as the real driver takes it: where it is taken the answer is another place. */
CUresult cuMemAddressReserve(CUdeviceptr *ret_ptr, size_t bytes, size_t align, CUdeviceptr addr,
			     unsigned long long flags)
{
	CUresult r = fake_enter(__func__);
	size_t slack = addr ? 0 : FAKE_GRANULARITY;
	void *base = MAP_FAILED;

	if (r != CUDA_SUCCESS)
		return r;
	if (bytes == 0 || bytes % FAKE_GRANULARITY || flags || (align & (align - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (addr && addr % FAKE_GRANULARITY == 0)
		base = mmap((void *)(uintptr_t)addr, bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
			    0);
	if (base == MAP_FAILED) {
		slack = FAKE_GRANULARITY;
		base = reserve_apart(bytes + slack);
	}
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (slack) {
		uintptr_t start = ((uintptr_t)base + slack - 1) & ~(uintptr_t)(slack - 1);

		if (start > (uintptr_t)base)
			(void)munmap(base, start - (uintptr_t)base);
		if (start < (uintptr_t)base + slack)
			(void)munmap((void *)(start + bytes), (uintptr_t)base + slack - start);
		base = (void *)start;
	}
	pthread_mutex_lock(&fake.lock);
	if (!fake_range_add(FAKE_RESERVE, (uintptr_t)base, bytes, NULL))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&fake.lock);
	if (r == CUDA_SUCCESS)
		*ret_ptr = (uintptr_t)base;
	return r;
}

static bool any_map_in(uint64_t base, uint64_t len)
{
	for (struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_MAP && base < range->base + range->len &&
		    range->base < base + len)
			return true;
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	CUresult r = fake_enter(__func__);
	struct fake_range *range;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	range = fake_range_at(FAKE_RESERVE, ptr);
	if (!range || range->len != bytes || any_map_in(ptr, bytes))
		r = CUDA_ERROR_INVALID_VALUE;
	else
		fake_range_drop(range);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static CUresult map_locked(uint64_t ptr, size_t bytes, struct fake_slab *slab)
{
	struct fake_range *around = fake_range_around(FAKE_RESERVE, ptr);
	struct fake_range *range;

	if (!around || ptr + bytes > around->base + around->len || bytes != slab->len ||
	    ptr % FAKE_GRANULARITY || any_map_in(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	range = fake_range_add(FAKE_MAP, ptr, bytes, NULL);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	slab->nrefs++;
	range->slab = slab;
	range->ordinal = slab->ordinal;
	if (mmap((void *)(uintptr_t)ptr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, slab->fd, 0) ==
	    MAP_FAILED) {
		fake_range_drop(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	r = map_locked(ptr, bytes, (struct fake_slab *)(uintptr_t)handle);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

/* Whether mappings cover all of it, without cutting one; each then gets @protection (-1: is dropped) for @devices. */
static CUresult over_maps(uint64_t ptr, uint64_t bytes, int protection, uint32_t devices)
{
	uint64_t at = ptr;

	while (at < ptr + bytes) {
		struct fake_range *map = fake_range_at(FAKE_MAP, at);

		if (!map || at + map->len > ptr + bytes)
			return CUDA_ERROR_INVALID_VALUE;
		at += map->len;
	}
	for (at = ptr; at < ptr + bytes;) {
		struct fake_range *map = fake_range_at(FAKE_MAP, at);

		at += map->len;
		if (protection < 0) {
			fake_range_drop(map);
			continue;
		}
		if (mprotect((void *)(uintptr_t)map->base, map->len, protection) < 0)
			return CUDA_ERROR_OPERATING_SYSTEM;
		map->access = protection != PROT_NONE ? devices : 0;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	r = bytes ? over_maps(ptr, bytes, -1, 0) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	int protection = PROT_NONE;
	uint32_t devices = 0;
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    desc[i].location.id < 0 || desc[i].location.id >= fake.ndevices)
			return CUDA_ERROR_INVALID_DEVICE;
		devices |= 1u << desc[i].location.id;
		if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			protection = PROT_READ | PROT_WRITE;
		else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
			protection |= PROT_READ;
	}
	pthread_mutex_lock(&fake.lock);
	r = bytes ? over_maps(ptr, bytes, protection, devices) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&fake.lock);
	return r;
}
