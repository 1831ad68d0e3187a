/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs and windows, over the runtime's virtual memory management (ROCm 6 and newer).
 *
 * A slab is physical memory behind a descriptor and nothing else: the handle it came from is released at once, so that the
 * memory lives exactly as long as the descriptor and the mappings do, whoever of its users dies.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/fd.h"
#include "devices/hip/backend.h"

#define SLAB_ALIGN (2ull << 20)

/* What one window_map() mapped. */
struct map {
	struct gantry_list link; /* gantry_mem.maps */
	uint64_t off;
	uint64_t len;
};

static struct gantry_hip_prop slab_prop(const struct gantry_dev *dev)
{
	return (struct gantry_hip_prop){
		.type = GANTRY_HIP_PINNED,
		.handle_type = GANTRY_HIP_HANDLE_FD,
		.location = { .type = GANTRY_HIP_ON_DEVICE, .id = dev->device },
	};
}

int gantry_hip_slab_align(struct gantry_dev *dev, struct gantry_err *err)
{
	struct gantry_hip_prop prop = slab_prop(dev);
	size_t granularity = 0;
	int r = gantry_hip_err(dev->hip->MemGetAllocationGranularity(&granularity, &prop, 0),
			       "hipMemGetAllocationGranularity", err);

	if (r == 0)
		dev->slab_align = gantry_max_u64(granularity, SLAB_ALIGN);
	return r;
}

static int map_handle(struct gantry_dev *dev, struct gantry_hip_handle *handle, char *address,
		      uint64_t len, struct gantry_err *err)
{
	const struct gantry_hip_access access = {
		.location = { .type = GANTRY_HIP_ON_DEVICE, .id = dev->device },
		.flags = GANTRY_HIP_READ_WRITE,
	};
	int r = gantry_hip_err(dev->hip->MemMap(address, len, 0, handle, 0), "hipMemMap", err);

	if (r < 0)
		return r;
	r = gantry_hip_err(dev->hip->MemSetAccess(address, len, &access, 1), "hipMemSetAccess",
			   err);
	if (r < 0)
		(void)dev->hip->MemUnmap(address, len); /* the first failure is the one to tell */
	return r;
}

static int clear(struct gantry_dev *dev, char *address, uint64_t len, struct gantry_err *err)
{
	int r = gantry_hip_err(dev->hip->MemsetAsync(address, 0, len, dev->own), "clearing a slab",
			       err);

	return r < 0 ? r
		     : gantry_hip_err(dev->hip->StreamSynchronize(dev->own), "clearing a slab",
				      err);
}

/* Maps the slab for as long as it takes to clear it. */
static int clear_handle(struct gantry_dev *dev, struct gantry_hip_handle *handle, uint64_t len,
			struct gantry_err *err)
{
	void *address = NULL;
	int r = gantry_hip_err(dev->hip->MemAddressReserve(&address, len, dev->slab_align, NULL, 0),
			       "hipMemAddressReserve", err);

	if (r < 0)
		return r;
	r = map_handle(dev, handle, address, len, err);
	if (r == 0) {
		r = clear(dev, address, len, err);
		(void)dev->hip->MemUnmap(address, len); /* was mapped just now */
	}
	(void)dev->hip->MemAddressFree(address, len); /* was reserved just now */
	return r;
}

int gantry_hip_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			   struct gantry_err *err)
{
	struct gantry_hip_prop prop = slab_prop(dev);
	struct gantry_hip_handle *handle = NULL;
	int fd = -EBADF;
	int r = gantry_hip_err(dev->hip->MemCreate(&handle, len, &prop, 0), "hipMemCreate", err);

	if (r < 0)
		return r;
	/* The runtime does not promise that what it gives out is clean. */
	r = clear_handle(dev, handle, len, err);
	if (r == 0)
		r = gantry_hip_err(dev->hip->MemExport(&fd, handle, GANTRY_HIP_HANDLE_FD, 0),
				   "hipMemExportToShareableHandle", err);
	/* The descriptor holds the memory from here on. */
	(void)dev->hip->MemRelease(handle);
	if (r < 0)
		return r;
	/* It belongs to whom it is given to, and not to programs that somebody starts. */
	(void)gantry_fd_cloexec(fd, true);
	*ret_fd = fd;
	return 0;
}

static int import(struct gantry_dev *dev, int fd, struct gantry_hip_handle **ret_handle,
		  struct gantry_err *err)
{
	gantry_hip_result result = gantry_hip_import(dev->hip, fd, ret_handle);

	if (result == GANTRY_HIP_UNKNOWN || result == GANTRY_HIP_INVALID_VALUE)
		return gantry_err_set(err, -EINVAL, "the descriptor is no memory of a device: %s",
				      gantry_hip_error(result));
	return gantry_hip_err(result, "hipMemImportFromShareableHandle", err);
}

int gantry_hip_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_hip_handle *handle = NULL;
	int r = import(dev, fd, &handle, err);

	if (r < 0)
		return r;
	r = clear_handle(dev, handle, len, err);
	(void)dev->hip->MemRelease(handle); /* was imported just now */
	return r;
}

/* The address is a wish to the runtime; to us it is not. */
static int reserve(struct gantry_dev *dev, uint64_t address, uint64_t len, char **ret_address,
		   struct gantry_err *err)
{
	void *got = NULL;
	void *wish = (void *)(uintptr_t)address;
	gantry_hip_result result = dev->hip->MemAddressReserve(&got, len, dev->slab_align, wish, 0);

	if (result == GANTRY_HIP_SUCCESS && (!wish || got == wish)) {
		*ret_address = got;
		return 0;
	}
	if (result == GANTRY_HIP_SUCCESS)
		(void)dev->hip->MemAddressFree(got, len); /* was reserved just now */
	if (wish && (result == GANTRY_HIP_SUCCESS || result == GANTRY_HIP_OUT_OF_MEMORY ||
		     result == GANTRY_HIP_INVALID_VALUE))
		return gantry_err_set(err, -EADDRINUSE,
				      "%zu bytes of device addresses at %#zx are not free",
				      (size_t)len, (size_t)address);
	return gantry_hip_err(result, "hipMemAddressReserve", err);
}

int gantry_hip_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	struct gantry_mem *mem;
	char *got = NULL;
	int r;

	if (!dev->windows)
		return gantry_err_set(err, -EOPNOTSUPP, "the device has no windows");
	r = reserve(dev, address, len, &got, err);
	if (r < 0)
		return r;
	r = gantry_hostmem_new(sizeof(*mem), &dev->mems, NULL, len, &host, err);
	if (r < 0) {
		(void)dev->hip->MemAddressFree(got, len); /* was reserved just now */
		return r;
	}
	mem = gantry_container_of(host, struct gantry_mem, host);
	mem->dev = dev;
	mem->address = got;
	mem->is_window = true;
	gantry_list_init(&mem->maps);
	*ret_mem = mem;
	return 0;
}

int gantry_hip_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			  struct gantry_err *err)
{
	struct gantry_dev *dev = window->dev;
	struct gantry_hip_handle *handle = NULL;
	struct map *map = calloc(1, sizeof(*map));
	int r;

	if (!map)
		return gantry_err_set(err, -ENOMEM, "no memory for a mapping");
	*map = (struct map){ .off = off, .len = len };
	r = import(dev, fd, &handle, err);
	if (r == 0) {
		r = map_handle(dev, handle, window->address + off, len, err);
		/* The mapping holds the memory from here on. */
		(void)dev->hip->MemRelease(handle);
	}
	if (r < 0) {
		free(map);
		return r;
	}
	gantry_list_push_back(&window->maps, &map->link);
	return 0;
}

static void unmap(struct gantry_mem *window, struct map *map)
{
	/* Refused after a fault only, when the end of the process does it. */
	(void)window->dev->hip->MemUnmap(window->address + map->off, map->len);
	gantry_list_remove(&map->link);
	free(map);
}

void gantry_hip_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len)
{
	gantry_list_for_each(&window->maps, struct map, link, map) {
		if (map->off == off && map->len == len) {
			unmap(window, map);
			return;
		}
	}
}

void gantry_hip_window_close(struct gantry_mem *window)
{
	gantry_list_for_each_safe(&window->maps, struct map, link, map)
		unmap(window, map);
	(void)window->dev->hip->MemAddressFree(window->address, window->host.len); /* as unmap() */
}
