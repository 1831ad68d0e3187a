/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the fpga backend: host memory, mapped or the worker's own. */
#include "devices/fpga/fpga.h"

static int made(struct gantry_dev *dev, struct gantry_hostmem *host, struct gantry_mem **ret_mem)
{
	*ret_mem = gantry_container_of(host, struct gantry_mem, host);
	(*ret_mem)->id = ++dev->nmems;
	return 0;
}

int gantry_fpga_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r = gantry_hostmem_import(sizeof(struct gantry_mem), &dev->mems, fd, off, len, &host,
				      err);

	return r == 0 ? made(dev, host, ret_mem) : r;
}

int gantry_fpga_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r = gantry_hostmem_new(sizeof(struct gantry_mem), &dev->mems, base, len, &host, err);

	return r == 0 ? made(dev, host, ret_mem) : r;
}

void gantry_fpga_mem_free(struct gantry_mem *mem)
{
	gantry_hostmem_free(mem ? &mem->host : NULL);
}
