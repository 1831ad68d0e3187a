/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fpga backend: host memory, mapped or the worker's own. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "devices/fpga/fpga.h"

static int mem_new(struct gantry_dev *dev, void *base, uint64_t len, bool mapped,
		   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = calloc(1, sizeof(*mem));

	if (!mem) {
		if (mapped)
			(void)munmap(base, len); /* cannot fail for what mmap() returned */
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	}
	mem->base = base;
	mem->len = len;
	mem->mapped = mapped;
	gantry_list_push_back(&dev->mems, &mem->link);
	*ret_mem = mem;
	return 0;
}

int gantry_fpga_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	/* NORESERVE: the caller decides which pages are backed, and answers for them. */
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			  (off_t)off);

	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping %zu bytes at %zu", (size_t)len,
					    (size_t)off);
	return mem_new(dev, base, len, true, ret_mem, err);
}

int gantry_fpga_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	return mem_new(dev, base, len, false, ret_mem, err);
}

void gantry_fpga_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	gantry_list_remove(&mem->link);
	if (mem->mapped)
		(void)munmap(mem->base, mem->len); /* cannot fail for what mmap() returned */
	free(mem);
}
