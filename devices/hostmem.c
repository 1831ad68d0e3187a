/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/hostmem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int gantry_hostmem_map(int fd, uint64_t off, uint64_t len, void **ret_base, struct gantry_err *err)
{
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			  (off_t)off);

	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping %zu bytes at %zu", (size_t)len,
					    (size_t)off);
	*ret_base = base;
	return 0;
}

int gantry_hostmem_new(size_t object_bytes, struct gantry_list *mems, void *base, uint64_t len,
		       struct gantry_hostmem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *mem;

	assert(object_bytes >= sizeof(*mem));
	mem = calloc(1, object_bytes);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->base = base;
	mem->len = len;
	gantry_list_push_back(mems, &mem->link);
	*ret_mem = mem;
	return 0;
}

int gantry_hostmem_import(size_t object_bytes, struct gantry_list *mems, int fd, uint64_t off,
			  uint64_t len, struct gantry_hostmem **ret_mem, struct gantry_err *err)
{
	void *base;
	int r = gantry_hostmem_map(fd, off, len, &base, err);

	if (r < 0)
		return r;
	r = gantry_hostmem_new(object_bytes, mems, base, len, ret_mem, err);
	if (r < 0)
		(void)munmap(base, len); /* cannot fail for what mmap() returned */
	else
		(*ret_mem)->mapped = true;
	return r;
}

void gantry_hostmem_free(struct gantry_hostmem *mem)
{
	if (!mem)
		return;
	gantry_list_remove(&mem->link);
	if (mem->mapped)
		(void)munmap(mem->base, mem->len); /* cannot fail for what mmap() returned */
	free(mem);
}

static unsigned char *bytes_of(const struct gantry_range *range)
{
	/* Every such backend's objects begin with one. */
	const struct gantry_hostmem *mem = (const struct gantry_hostmem *)range->mem;

	return mem->base + range->off;
}

static void fill(const struct gantry_cmd_fill *cmd)
{
	unsigned char *to = bytes_of(&cmd->dst);

	if (cmd->pattern_bytes == 1) {
		memset(to, (int)(cmd->pattern & 0xff), cmd->dst.len);
		return;
	}
	for (uint64_t off = 0; off < cmd->dst.len; off += cmd->pattern_bytes)
		memcpy(to + off, &cmd->pattern, cmd->pattern_bytes);
}

void gantry_hostmem_move(const struct gantry_cmd *cmd)
{
	if (cmd->kind == GANTRY_CMD_COPY)
		memmove(bytes_of(&cmd->copy.dst), bytes_of(&cmd->copy.src), cmd->copy.dst.len);
	else
		fill(&cmd->fill);
}
