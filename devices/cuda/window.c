/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs and windows, over the driver's virtual memory management.
 *
 * A slab is physical memory behind a descriptor and nothing else: the handle it came from is released at
 * once, so that the memory lives exactly as long as the descriptor and the mappings do, whoever of its
 * users dies.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "devices/cuda/backend.h"

#define SLAB_ALIGN (2ull << 20)

/* What one window_map() or window_alias() mapped. */
struct map {
	struct gantry_list link; /* gantry_mem.maps */
	uint64_t off;
	uint64_t len;
	CUmemGenericAllocationHandle
		handle; /* of a slab, to map it elsewhere too; 0: of an alias */
};

/* The open devices of the process: what one of them maps, the others may be able to reach. */
static struct gantry_list sisters = GANTRY_LIST_INIT(sisters);
static pthread_mutex_t sisters_lock = PTHREAD_MUTEX_INITIALIZER;
#define MAX_SISTERS 64u

void gantry_cuda_sisters_join(struct gantry_dev *dev)
{
	(void)pthread_mutex_lock(&sisters_lock);
	gantry_list_push_back(&sisters, &dev->sisters);
	(void)pthread_mutex_unlock(&sisters_lock);
}

void gantry_cuda_sisters_leave(struct gantry_dev *dev)
{
	(void)pthread_mutex_lock(&sisters_lock);
	gantry_list_remove(&dev->sisters);
	(void)pthread_mutex_unlock(&sisters_lock);
}

static CUmemAllocationProp slab_prop(const struct gantry_dev *dev)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device },
	};
}

int gantry_cuda_slab_align(struct gantry_dev *dev, uint64_t *ret_align, struct gantry_err *err)
{
	CUmemAllocationProp prop = slab_prop(dev);
	size_t granularity = 0;
	int r = gantry_cuda_check(dev,
				  dev->driver->MemGetAllocationGranularity(
					  &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
				  "cuMemGetAllocationGranularity", err);

	if (r < 0)
		return r;
	*ret_align = gantry_max_u64(granularity, SLAB_ALIGN);
	return 0;
}

bool gantry_cuda_has_twin(const struct gantry_dev *dev)
{
	bool found = false;

	(void)pthread_mutex_lock(&sisters_lock);
	gantry_list_for_each(&sisters, struct gantry_dev, sisters, sister)
		found = found || (sister != dev && sister->device == dev->device);
	(void)pthread_mutex_unlock(&sisters_lock);
	return found;
}

uint32_t gantry_cuda_part(const struct gantry_dev *dev)
{
	uint32_t part = 0;

	(void)pthread_mutex_lock(&sisters_lock);
	/* In the order in which they were opened, which is that of the configuration. */
	gantry_list_for_each(&sisters, struct gantry_dev, sisters, sister) {
		if (sister == dev)
			break;
		part += sister->device == dev->device;
	}
	(void)pthread_mutex_unlock(&sisters_lock);
	return part;
}

/* Of a GPU and itself, two parts of which are two devices, the driver says no. */
static bool can_access(const struct gantry_cuda_driver *driver, CUdevice who, CUdevice whose)
{
	int can = 0;

	return who == whose ||
	       (driver->DeviceCanAccessPeer(&can, who, whose) == CUDA_SUCCESS && can);
}

bool gantry_cuda_sees(const struct gantry_mem *mine, const struct gantry_mem *its)
{
	return mine->kind == GANTRY_CUDA_MEM_WINDOW && its->kind == GANTRY_CUDA_MEM_WINDOW &&
	       can_access(mine->dev->driver, mine->dev->device, its->dev->device) &&
	       can_access(mine->dev->driver, its->dev->device, mine->dev->device);
}

static bool is_named(const CUmemAccessDesc *access, size_t count, CUdevice device)
{
	for (size_t i = 0; i < count; i++)
		if (access[i].location.id == device)
			return true;
	return false;
}

/* What this device may do there, and so may its sisters that can; each GPU is named once. */
static int allow(struct gantry_dev *dev, CUdeviceptr address, uint64_t len, CUmemAccess_flags flags,
		 bool sisters_too, struct gantry_err *err)
{
	CUmemAccessDesc access[MAX_SISTERS];
	size_t count = 0;

	access[count++] = (CUmemAccessDesc){
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device },
		.flags = flags,
	};
	(void)pthread_mutex_lock(&sisters_lock);
	gantry_list_for_each(&sisters, struct gantry_dev, sisters, sister) {
		if (!sisters_too || count == MAX_SISTERS || is_named(access, count, sister->device))
			continue;
		if (can_access(dev->driver, sister->device, dev->device)) {
			access[count] = access[0];
			access[count++].location.id = sister->device;
		}
	}
	(void)pthread_mutex_unlock(&sisters_lock);
	return gantry_cuda_check(dev, dev->driver->MemSetAccess(address, len, access, count),
				 "cuMemSetAccess", err);
}

static int map_handle(struct gantry_dev *dev, CUmemGenericAllocationHandle handle,
		      CUdeviceptr address, uint64_t len, bool sisters_too, struct gantry_err *err)
{
	int r = gantry_cuda_check(dev, dev->driver->MemMap(address, len, 0, handle, 0), "cuMemMap",
				  err);

	if (r < 0)
		return r;
	r = allow(dev, address, len, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sisters_too, err);
	if (r < 0)
		(void)dev->driver->MemUnmap(address,
					    len); /* the first failure is the one to tell */
	return r;
}

static int clear(struct gantry_dev *dev, CUdeviceptr address, uint64_t len, struct gantry_err *err)
{
	int r = gantry_cuda_check(dev, dev->driver->MemsetD8Async(address, 0, len, dev->own),
				  "clearing a slab", err);

	if (r < 0)
		return r;
	return gantry_cuda_check(dev, dev->driver->StreamSynchronize(dev->own), "clearing a slab",
				 err);
}

/* Maps the slab for as long as it takes to clear it. */
static int clear_handle(struct gantry_dev *dev, CUmemGenericAllocationHandle handle, uint64_t len,
			struct gantry_err *err)
{
	CUdeviceptr address = 0;
	int r;

	r = gantry_cuda_check(dev, dev->driver->MemAddressReserve(&address, len, 0, 0, 0),
			      "cuMemAddressReserve", err);
	if (r < 0)
		return r;
	r = map_handle(dev, handle, address, len, false, err);
	if (r == 0) {
		r = clear(dev, address, len, err);
		(void)dev->driver->MemUnmap(address, len); /* was mapped just now */
	}
	(void)dev->driver->MemAddressFree(address, len); /* was reserved just now */
	return r;
}

static int create(struct gantry_dev *dev, uint64_t len, CUmemGenericAllocationHandle *ret_handle,
		  struct gantry_err *err)
{
	CUmemAllocationProp prop = slab_prop(dev);

	return gantry_cuda_check(dev, dev->driver->MemCreate(ret_handle, len, &prop, 0),
				 "cuMemCreate", err);
}

int gantry_cuda_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			    struct gantry_err *err)
{
	CUmemGenericAllocationHandle handle;
	int fd = -EBADF;
	int r = create(dev, len, &handle, err);

	if (r < 0)
		return r;
	/* The driver does not promise that what it gives out is clean. */
	r = clear_handle(dev, handle, len, err);
	if (r == 0)
		r = gantry_cuda_check(dev,
				      dev->driver->MemExportToShareableHandle(
					      &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0),
				      "cuMemExportToShareableHandle", err);
	/* The descriptor holds the memory from here on. */
	(void)dev->driver->MemRelease(handle);
	if (r < 0)
		return r;
	/* It belongs to whom it is given to, and not to programs that somebody starts. */
	(void)gantry_fd_cloexec(fd, true);
	*ret_fd = fd;
	return 0;
}

static int import(struct gantry_dev *dev, int fd, CUmemGenericAllocationHandle *ret_handle,
		  struct gantry_err *err)
{
	CUresult result = dev->driver->MemImportFromShareableHandle(
		ret_handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	/* So it says of a descriptor that is none of its own, and the context is well (H100, driver 580). */
	if (result == CUDA_ERROR_UNKNOWN)
		return gantry_err_set(err, -EINVAL,
				      "the descriptor is no memory of a device: "
				      "cuMemImportFromShareableHandle does not know it");
	return gantry_cuda_check(dev, result, "cuMemImportFromShareableHandle", err);
}

int gantry_cuda_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	CUmemGenericAllocationHandle handle;
	int r = import(dev, fd, &handle, err);

	if (r < 0)
		return r;
	r = clear_handle(dev, handle, len, err);
	(void)dev->driver->MemRelease(handle); /* was imported just now */
	return r;
}

static int reserve(struct gantry_dev *dev, uint64_t address, uint64_t len, CUdeviceptr *ret_address,
		   struct gantry_err *err)
{
	CUdeviceptr got = 0;
	CUresult result = dev->driver->MemAddressReserve(&got, len, dev->slab_align, address, 0);

	/* The address is a wish to the driver; to us it is not. */
	if (result == CUDA_SUCCESS && address && got != address)
		(void)dev->driver->MemAddressFree(got, len); /* was reserved just now */
	if (address && ((result == CUDA_SUCCESS && got != address) ||
			result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_INVALID_VALUE))
		return gantry_err_set(err, -EADDRINUSE,
				      "%zu bytes of device addresses at %#zx are not free",
				      (size_t)len, (size_t)address);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuMemAddressReserve", err);
	*ret_address = got;
	return 0;
}

int gantry_cuda_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			    struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_WINDOW, len);
	int r;

	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a window");
	r = reserve(dev, address, len, &mem->address, err);
	if (r < 0) {
		gantry_list_remove(&mem->link);
		free(mem);
		return r;
	}
	mem->reachable = true;
	*ret_mem = mem;
	return 0;
}

int gantry_cuda_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			   struct gantry_err *err)
{
	struct gantry_dev *dev = window->dev;
	CUmemGenericAllocationHandle handle;
	struct map *map = calloc(1, sizeof(*map));
	int r;

	if (!map)
		return gantry_err_set(err, -ENOMEM, "no memory for a mapping");
	*map = (struct map){ .off = off, .len = len };
	r = import(dev, fd, &handle, err);
	if (r == 0) {
		r = map_handle(dev, handle, window->address + off, len, true, err);
		if (r < 0)
			(void)dev->driver->MemRelease(
				handle); /* the first failure is the one to tell */
	}
	if (r < 0) {
		free(map);
		return r;
	}
	/* It lives as long as the mapping does. */
	map->handle = handle;
	gantry_list_push_back(&window->maps, &map->link);
	return 0;
}

static struct map *find_map(const struct gantry_mem *window, uint64_t off, uint64_t len)
{
	gantry_list_for_each(&window->maps, struct map, link, map)
		if (map->off == off && map->len == len)
			return map;
	return NULL;
}

int gantry_cuda_window_alias(struct gantry_mem *range, uint64_t off, struct gantry_mem *window,
			     uint64_t from, uint64_t len, struct gantry_err *err)
{
	const struct map *slab = find_map(window, from, len);
	struct gantry_dev *dev = range->dev;
	struct map *map;
	int r;

	if (!slab || !slab->handle)
		return gantry_err_set(err, -EINVAL,
				      "no slab of %zu bytes lies at %#zx of the window",
				      (size_t)len, (size_t)from);
	map = calloc(1, sizeof(*map));
	if (!map)
		return gantry_err_set(err, -ENOMEM, "no memory for a mapping");
	*map = (struct map){ .off = off, .len = len };
	r = gantry_cuda_check(dev,
			      dev->driver->MemMap(range->address + off, len, 0, slab->handle, 0),
			      "cuMemMap", err);
	if (r < 0) {
		free(map);
		return r;
	}
	gantry_list_push_back(&range->maps, &map->link);
	return 0;
}

int gantry_cuda_window_rights(struct gantry_mem *range, uint64_t off, uint64_t len, uint32_t rights,
			      struct gantry_err *err)
{
	return allow(range->dev, range->address + off, len,
		     rights == GANTRY_RW  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		     : rights == GANTRY_R ? CU_MEM_ACCESS_FLAGS_PROT_READ
					  : CU_MEM_ACCESS_FLAGS_PROT_NONE,
		     true, err);
}

/* ---- windows that exchange their addresses ---- */

/* The slabs of @window at @address; how many of them are there. */
static uint32_t lay(struct gantry_mem *window, CUdeviceptr address, int *ret_r,
		    struct gantry_err *err)
{
	uint32_t n = 0;

	*ret_r = 0;
	gantry_list_for_each(&window->maps, struct map, link, map) {
		*ret_r = map_handle(window->dev, map->handle, address + map->off, map->len, true,
				    err);
		if (*ret_r < 0)
			break;
		n++;
	}
	return n;
}

/* The first @n of them lie at @address no more, and live on by their handles. */
static void lift(const struct gantry_mem *window, CUdeviceptr address, uint32_t n)
{
	gantry_list_for_each(&window->maps, struct map, link, map)
		if (n-- == 0)
			break;
		else /* was mapped there, and nothing runs that uses it */
			(void)window->dev->driver->MemUnmap(address + map->off, map->len);
}

/* Both at each other's addresses, or neither anywhere. */
static int lay_both(struct gantry_mem *a, CUdeviceptr of_a, struct gantry_mem *b, CUdeviceptr of_b,
		    struct gantry_err *err)
{
	uint32_t na, nb;
	int r;

	na = lay(a, of_a, &r, err);
	if (r == 0) {
		nb = lay(b, of_b, &r, err);
		if (r == 0)
			return 0;
		lift(b, of_b, nb);
	}
	lift(a, of_a, na);
	return r;
}

static bool has_aliases(const struct gantry_mem *window)
{
	gantry_list_for_each(&window->maps, struct map, link, map)
		if (!map->handle)
			return true;
	return false;
}

int gantry_cuda_window_swap(struct gantry_mem *mine, struct gantry_mem *its, struct gantry_err *err)
{
	CUdeviceptr was = mine->address;
	struct gantry_err again = GANTRY_ERR_NONE;
	int r;

	if (mine->len != its->len || has_aliases(mine) || has_aliases(its) ||
	    !gantry_cuda_sees(mine, its))
		return gantry_err_set(err, -EINVAL,
				      "these windows cannot have each other's addresses");
	lift(mine, mine->address, UINT32_MAX);
	lift(its, its->address, UINT32_MAX);
	r = lay_both(mine, its->address, its, was, err);
	if (r == 0) {
		mine->address = its->address;
		its->address = was;
		/* Its thread, which made the list of what is where, finds that out when it needs it. */
		gantry_store_release(&mine->dev->reach_is_old, 1u);
		gantry_store_release(&its->dev->reach_is_old, 1u);
		return 0;
	}
	if (lay_both(mine, was, its, its->address, &again) < 0)
		return gantry_err_set(err, -ENOTRECOVERABLE,
				      "windows that lost their addresses: %.150s", again.text);
	return r;
}

static void unmap(struct gantry_mem *window, struct map *map)
{
	const struct gantry_cuda_driver *driver = window->dev->driver;

	/* Refused after a fault only, when the end of the process does it. */
	(void)driver->MemUnmap(window->address + map->off, map->len);
	if (map->handle)
		(void)driver->MemRelease(map->handle);
	gantry_list_remove(&map->link);
	free(map);
}

void gantry_cuda_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len)
{
	struct map *map = find_map(window, off, len);

	if (map)
		unmap(window, map);
}

void gantry_cuda_window_close(struct gantry_mem *window)
{
	gantry_list_for_each_safe(&window->maps, struct map, link, map)
		unmap(window, map);
	(void)window->dev->driver->MemAddressFree(window->address, window->len); /* as unmap() */
}
