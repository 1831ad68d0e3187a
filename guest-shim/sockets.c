/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest-shim/error.h"

int gantry_fd_above_stdio(int *fd)
{
	int moved;

	if (*fd > STDERR_FILENO)
		return 0;
	moved = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (moved < 0)
		return -errno;
	gantry_fd_close(*fd);
	*fd = moved;
	return 0;
}

int gantry_open_above_stdio(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int r = fd < 0 ? -errno : gantry_fd_above_stdio(&fd);

	if (r < 0)
		gantry_fd_close(fd);
	return r < 0 ? r : fd;
}

int gantry_unix_address(const char *path, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(addr.sun_path))
		return gantry_fail(GANTRY_E_ARG, "a door's path has 1 to %zu bytes",
				   sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	if (path[0] == '@') {
		addr.sun_path[0] = '\0';
		(*ret_len)--; /* the name of an abstract socket ends with its length */
	}
	*ret_addr = addr;
	return 0;
}
