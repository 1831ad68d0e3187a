/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cuda/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* One line of /proc/self/maps. */
struct mapping {
	uintptr_t begin;
	uintptr_t end;
	bool is_writable; /* and readable */
	bool is_plain;	  /* private, no file, no stack, not to be executed */
};

static bool read_line(const char *line, struct mapping *ret_mapping)
{
	unsigned long begin, end, inode;
	char rights[8];
	int at = 0;

	if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %n", &begin, &end, rights, &inode, &at) != 4)
		return false;
	*ret_mapping = (struct mapping){
		.begin = begin,
		.end = end,
		.is_writable = rights[0] == 'r' && rights[1] == 'w',
		.is_plain = rights[2] == '-' && rights[3] == 'p' && inode == 0 &&
			    (!line[at] || line[at] == '\n' || !strncmp(line + at, "[heap]", 6) ||
			     !strncmp(line + at, "[anon:", 6)),
	};
	return true;
}

/* Whether all of it is mapped as it must be. */
static int look(const void *at, size_t bytes, bool must_be_plain)
{
	uintptr_t next = (uintptr_t)at, end;
	struct mapping mapping;
	char line[512];
	FILE *maps;

	if (bytes == 0 || __builtin_add_overflow(next, bytes, &end))
		return -EINVAL;
	maps = fopen("/proc/self/maps", "re");
	if (!maps)
		return -ENOMEM;
	/* They come in the order of addresses. */
	while (next < end && fgets(line, sizeof(line), maps)) {
		if (!read_line(line, &mapping) || mapping.end <= next)
			continue;
		if (mapping.begin > next || !mapping.is_writable ||
		    (must_be_plain && !mapping.is_plain))
			break;
		next = mapping.end;
	}
	(void)fclose(maps);
	return next >= end ? 0 : -EINVAL;
}

int cu_pages_are_there(const void *at, size_t bytes)
{
	return look(at, bytes, false);
}

int cu_pages_share(void *at, void *shared, size_t bytes)
{
	void *alias;
	int r = look(at, bytes, true);

	if (r < 0)
		return r;
	/* A second name of shared memory: mremap(2) of no bytes. Nothing is taken apart before it is there. */
	alias = mremap(shared, 0, bytes, MREMAP_MAYMOVE);
	if (alias == MAP_FAILED)
		return -EOPNOTSUPP;
	memcpy(alias, at, bytes);
	if (mremap(alias, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at) {
		(void)munmap(alias, bytes);
		return -ENOMEM;
	}
	return 0;
}

int cu_pages_unshare(void *at, size_t bytes)
{
	void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (own == MAP_FAILED)
		return -ENOMEM;
	memcpy(own, at, bytes);
	if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at) {
		(void)munmap(own, bytes);
		return -ENOMEM;
	}
	return 0;
}
