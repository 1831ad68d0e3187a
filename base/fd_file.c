/* SPDX-License-Identifier: Apache-2.0 */
/* Small whole files: gantry_file_read() and gantry_file_replace() of fd.h. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"

#define READ_FIRST_BYTES 4096u

/*
 * Files of /proc have size 0, so the size is learnt by reading; one byte past the cap tells "too
 * large".
 */
static int read_to_end(int fd, size_t max_bytes, char **ret_data, size_t *ret_len)
{
	_cleanup_free_ char *data = NULL;
	size_t cap = 0, len = 0;

	for (;;) {
		ssize_t n;

		if (len + 1 >= cap) {
			size_t bigger = cap ? cap * 2 : READ_FIRST_BYTES;
			char *grown = realloc(data, bigger);

			if (!grown)
				return -ENOMEM;
			data = grown;
			cap = bigger;
		}
		n = read(fd, data + len, GANTRY_MIN(cap - len - 1, max_bytes - len + 1));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max_bytes)
			return -EFBIG;
	}
	data[len] = '\0';
	*ret_data = GANTRY_TAKE_PTR(data);
	*ret_len = len;
	return 0;
}

int gantry_file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_len)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t len = 0;
	int r;

	if (fd < 0)
		return -errno;
	if (max_bytes > SSIZE_MAX - 1)
		max_bytes = SSIZE_MAX - 1;
	r = read_to_end(fd, max_bytes, ret_data, &len);
	if (r == 0 && ret_len)
		*ret_len = len;
	return r;
}

static int sync_directory_of(const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	_cleanup_close_ int fd = -EBADF;

	if (!copy)
		return -ENOMEM;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

static int fill_file(int fd, const void *data, size_t len, mode_t mode)
{
	int r = gantry_write_all(fd, data, len);

	if (r < 0)
		return r;
	if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int gantry_file_replace(const char *path, const void *data, size_t len, mode_t mode)
{
	_cleanup_free_ char *temporary = NULL;
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
		temporary = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fill_file(fd, data, len, mode);
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlink(temporary); /* the failure being reported is the one that matters */
		return r;
	}
	return sync_directory_of(path);
}

uint64_t gantry_file_identity(int fd)
{
	struct stat st;
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a, over words */

	if (fstat(fd, &st) < 0)
		return 0;
	const uint64_t parts[] = {
		(uint64_t)st.st_dev,	     (uint64_t)st.st_ino,	   (uint64_t)st.st_size,
		(uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
	};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		hash = (hash ^ parts[i]) * 0x100000001b3ull;
	return hash ? hash : 1;
}
