/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets by path: gantry_unix_listen() and gantry_unix_connect() of fd.h. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

static bool is_abstract(const char *path)
{
	return path[0] == '@';
}

static int make_address(const char *path, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = strlen(path);

	if (len == 0)
		return -EINVAL;
	if (len >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	if (is_abstract(path)) {
		addr.sun_path[0] = '\0';
		(*ret_len)--; /* the name of an abstract socket ends with its length */
	}
	*ret_addr = addr;
	return 0;
}

static int connect_address(const struct sockaddr_un *addr, socklen_t len, int type, int *ret_fd)
{
	_cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	do {
		r = connect(fd, (const struct sockaddr *)addr, len);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_unix_connect(const char *path, int type, int *ret_fd)
{
	struct sockaddr_un addr;
	socklen_t len;
	int r = make_address(path, &addr, &len);

	return r < 0 ? r : connect_address(&addr, len, type, ret_fd);
}

/*
 * Something is at @path. Unlink it when it is a socket that refuses connections: its owner died.
 * A full backlog (-EAGAIN, as the probe does not block) or another socket type (-EPROTOTYPE) means
 * that somebody is alive.
 */
static int remove_stale(const char *path, const struct sockaddr_un *addr, socklen_t len, int type)
{
	_cleanup_close_ int probe = -EBADF;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EADDRINUSE;
	if (connect_address(addr, len, type | SOCK_NONBLOCK, &probe) != -ECONNREFUSED)
		return -EADDRINUSE;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

static int bind_address(int fd, const char *path, const struct sockaddr_un *addr, socklen_t len,
			int type)
{
	int r;

	if (bind(fd, (const struct sockaddr *)addr, len) == 0)
		return 0;
	if (errno != EADDRINUSE || is_abstract(path))
		return -errno;
	r = remove_stale(path, addr, len, type);
	if (r < 0)
		return r;
	return bind(fd, (const struct sockaddr *)addr, len) < 0 ? -errno : 0;
}

int gantry_unix_listen(const char *path, int type, mode_t mode, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	struct sockaddr_un addr;
	socklen_t len;
	int r = make_address(path, &addr, &len);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/*
	 * On Linux the mode of the unbound socket is what bind() gives the file, less the umask: so
	 * nobody whom @mode keeps out can connect in the moment before chmod() adds what the umask
	 * took.
	 */
	if (!is_abstract(path) && fchmod(fd, mode) < 0)
		return -errno;
	r = bind_address(fd, path, &addr, len, type);
	if (r < 0)
		return r;
	if ((!is_abstract(path) && chmod(path, mode) < 0) || listen(fd, SOMAXCONN) < 0) {
		r = -errno;
		if (!is_abstract(path))
			(void)unlink(path); /* the failure being reported is the one that matters */
		return r;
	}
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}
