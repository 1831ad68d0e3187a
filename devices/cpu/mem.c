/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the cpu backend: mappings, and pointers into what the worker has mapped. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "devices/cpu/cpu.h"
#include "devices/hostmem.h"

static int mem_new(struct gantry_dev *dev, void *base, uint64_t len, struct gantry_mem **ret_mem,
		   struct gantry_err *err)
{
	struct gantry_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->dev = dev;
	mem->base = base;
	mem->len = len;
	gantry_list_push_back(&dev->mems, &mem->link);
	*ret_mem = mem;
	return 0;
}

/* As mem_new(), of a mapping that becomes the object's, or is undone. */
static int mem_adopt(struct gantry_dev *dev, void *base, uint64_t len, struct gantry_mem **ret_mem,
		     struct gantry_err *err)
{
	int r = mem_new(dev, base, len, ret_mem, err);

	if (r < 0)
		(void)munmap(base, len); /* cannot fail for what mmap() returned */
	else
		(*ret_mem)->mapped = true;
	return r;
}

int gantry_cpu_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err)
{
	void *base;
	int r;

	if (dev->windows)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "the device has windows and imports nothing");
	r = gantry_hostmem_map(fd, off, len, &base, err);
	return r < 0 ? r : mem_adopt(dev, base, len, ret_mem, err);
}

int gantry_cpu_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			 struct gantry_err *err)
{
	void *base;
	int r;

	if (!gantry_range_inside(dev->mem_used, len, dev->mem_bytes))
		return gantry_err_set(err, -ENOMEM, "the device has %zu of %zu bytes left",
				      (size_t)(dev->mem_bytes - dev->mem_used),
				      (size_t)dev->mem_bytes);
	/* POPULATE: backed now, so that a shortage shows here and not in a command. */
	base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		    -1, 0);
	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping %zu bytes", (size_t)len);
	r = mem_adopt(dev, base, len, ret_mem, err);
	if (r < 0)
		return r;
	(*ret_mem)->charged = len;
	dev->mem_used += len;
	return 0;
}

int gantry_cpu_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err)
{
	return mem_new(dev, base, len, ret_mem, err);
}

void gantry_cpu_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	mem->dev->mem_used -= mem->charged;
	gantry_list_remove(&mem->link);
	if (mem->mapped)
		(void)munmap(mem->base, mem->len); /* cannot fail for what mmap() returned */
	free(mem);
}

/* ---- window=yes: memory as if it were the device's own, behind descriptors that a window maps ---- */

static int no_windows(struct gantry_err *err)
{
	return gantry_err_set(err, -EOPNOTSUPP, "the device was not configured with window=yes");
}

/* Pages are taken now: a slab that exists is there. */
static int back(int fd, uint64_t len, struct gantry_err *err)
{
	int r = fallocate(fd, 0, 0, (off_t)len) < 0 ? -errno : 0;

	if (r == -ENOSPC || r == -ENOMEM)
		return gantry_err_set(err, -ENOMEM, "the host has no %zu bytes left", (size_t)len);
	return r < 0 ? gantry_err_set_errno(err, r, "backing a slab of %zu bytes", (size_t)len) : 0;
}

int gantry_cpu_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			   struct gantry_err *err)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (!dev->windows)
		return no_windows(err);
	assert(len > 0 && len % GANTRY_CPU_SLAB_ALIGN == 0);
	r = gantry_memfd_create("gantry-cpu-slab", len, GANTRY_MEMFD_SEALED, &fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "making a slab of %zu bytes", (size_t)len);
	r = back(fd, len, err);
	if (r < 0)
		return r;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_cpu_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	if (!dev->windows)
		return no_windows(err);
	if (gantry_memfd_check(fd, len) < 0)
		return gantry_err_set(err, -EINVAL, "the descriptor is no slab of %zu bytes",
				      (size_t)len);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)len) < 0)
		return gantry_err_set_errno(err, -errno, "scrubbing a slab of %zu bytes",
					    (size_t)len);
	return back(fd, len, err);
}

int gantry_cpu_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	void *want = (void *)(uintptr_t)address;
	void *base;

	if (!dev->windows)
		return no_windows(err);
	base = mmap(want, len, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (want ? MAP_FIXED_NOREPLACE : 0),
		    -1, 0);
	if (base == MAP_FAILED && errno != EEXIST)
		return gantry_err_set_errno(err, -errno, "a window of %zu bytes", (size_t)len);
	if (want && base != want) {
		if (base != MAP_FAILED) /* kernels that take the flag for a hint */
			(void)munmap(base, len);
		return gantry_err_set(err, -EADDRINUSE, "a window of %zu bytes at %p: taken",
				      (size_t)len, want);
	}
	return mem_adopt(dev, base, len, ret_mem, err);
}

int gantry_cpu_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			  struct gantry_err *err)
{
	assert(gantry_range_inside(off, len, window->len));
	if (gantry_memfd_check(fd, len) < 0)
		return gantry_err_set(err, -EINVAL, "the descriptor is no slab of %zu bytes",
				      (size_t)len);
	if (mmap(window->base + off, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a slab of %zu bytes",
					    (size_t)len);
	return 0;
}

void gantry_cpu_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len)
{
	/* Nothing else may come to lie there. Where the kernel has no room to note a hole, the slab stays. */
	(void)mmap(window->base + off, len, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
