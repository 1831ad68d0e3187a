/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts allocations of a process: preload it. The count is in the first eight bytes of $GANTRY_BENCH_ALLOCS/PID, and
 * bench_allocations() tells it to the program itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"

/* glibc's own allocator, below the names that are replaced here. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

unsigned long long bench_allocations(void);

static uint64_t until_mapped;
static uint64_t *count = &until_mapped;

unsigned long long bench_allocations(void)
{
	return gantry_load_relaxed(count);
}

__attribute__((constructor)) static void map_count(void)
{
	const char *folder = getenv("GANTRY_BENCH_ALLOCS");
	char path[4096];
	uint64_t *word;
	int fd;

	if (!folder ||
	    snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid()) >= (int)sizeof(path))
		return;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof(*word)) == 0) {
		word = mmap(NULL, sizeof(*word), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (word != MAP_FAILED)
			count = word;
	}
	(void)close(fd);
}

void *malloc(size_t bytes)
{
	gantry_count_add(count, 1);
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	gantry_count_add(count, 1);
	return __libc_calloc(n, bytes);
}

void *realloc(void *ptr, size_t bytes)
{
	gantry_count_add(count, 1);
	return __libc_realloc(ptr, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	gantry_count_add(count, 1);
	return __libc_memalign(align, bytes);
}

int posix_memalign(void **ret_ptr, size_t align, size_t bytes)
{
	void *ptr;

	gantry_count_add(count, 1);
	ptr = __libc_memalign(align, bytes);
	if (!ptr)
		return ENOMEM;
	*ret_ptr = ptr;
	return 0;
}
