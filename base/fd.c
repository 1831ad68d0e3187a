/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

int gantry_fd_close(int fd)
{
	int saved_errno = errno;

	if (fd >= 0)
		(void)close(fd); /* not retried: after EINTR the descriptor is gone on Linux */
	errno = saved_errno;
	return -EBADF;
}

#define FREEZE_TRIES 200u /* 10 ms apart */

int gantry_memfd_create(const char *name, uint64_t bytes, unsigned int flags, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;

	if (flags & ~GANTRY_MEMFD_SEALED)
		return -EINVAL;
	if (bytes > INT64_MAX)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	if ((flags & GANTRY_MEMFD_SEALED) &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_memfd_freeze(int fd)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	int r = 0;

	for (unsigned int i = 0; i < FREEZE_TRIES; i++) {
		r = fcntl(fd, F_ADD_SEALS,
			  F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0
			    ? -errno
			    : 0;
		if (r != -EBUSY)
			return r;
		(void)nanosleep(&pause, NULL);
	}
	return r;
}

int gantry_memfd_check(int fd, uint64_t min_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0)
		return -errno;
	if (!(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_GROW))
		return -EPERM;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (fs.f_type != TMPFS_MAGIC)
		return -EMEDIUMTYPE;
	return (uint64_t)st.st_size < min_bytes ? -ERANGE : 0;
}

static int change_flags(int fd, int get, int set, int bit, bool on)
{
	int flags = fcntl(fd, get);
	int wanted;

	if (flags < 0)
		return -errno;
	wanted = on ? flags | bit : flags & ~bit;
	if (wanted != flags && fcntl(fd, set, wanted) < 0)
		return -errno;
	return 0;
}

int gantry_fd_nonblock(int fd, bool on)
{
	return change_flags(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int gantry_fd_cloexec(int fd, bool on)
{
	return change_flags(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int gantry_fd_peer_cred(int sock, struct ucred *ret_cred)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	*ret_cred = cred;
	return 0;
}

int gantry_write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int gantry_write_all_at(int fd, const void *buf, size_t len, uint64_t off)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int gantry_read_all(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len > 0) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}
