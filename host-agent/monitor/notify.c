/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define PATIENCE_S 1

static int open_socket(int flags, struct sockaddr_un *addr, socklen_t *ret_len)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len;
	int fd;

	if (!path || !path[0])
		return -ENOTCONN;
	len = strlen(path);
	if (len >= sizeof(addr->sun_path))
		return -ENAMETOOLONG;
	*addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(addr->sun_path, path, len);
	if (path[0] == '@')
		addr->sun_path[0] = '\0';
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);
	return fd < 0 ? -errno : fd;
}

int gantry_notify(const char *state)
{
	struct sockaddr_un addr;
	socklen_t len;
	_cleanup_close_ int fd = open_socket(SOCK_NONBLOCK, &addr, &len);

	if (fd < 0)
		return fd == -ENOTCONN ? 0 : fd;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr, len) < 0)
		return -errno;
	return 1;
}

int gantry_notify_fd(const char *state, int passed)
{
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	struct sockaddr_un addr;
	socklen_t len;
	_cleanup_close_ int fd = open_socket(0, &addr, &len);
	ssize_t n;

	if (fd < 0)
		return fd == -ENOTCONN ? 0 : fd;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, (struct sockaddr *)&addr, len) < 0)
		return -errno;
	n = gantry_fd_send(fd, state, strlen(state), &passed, passed >= 0 ? 1 : 0, 0);
	return n < 0 ? (int)n : 1;
}
