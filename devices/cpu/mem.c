/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the cpu backend: mappings, and pointers into what the worker has mapped. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "devices/cpu/cpu.h"

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

	/* NORESERVE: the caller decides which pages are backed, and answers for them. */
	base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)off);
	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping %zu bytes at %zu", (size_t)len,
					    (size_t)off);
	return mem_adopt(dev, base, len, ret_mem, err);
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
