/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

int gantry_link_pair(int ret_fds[2])
{
	const struct timeval timeout = { .tv_sec = GANTRY_LINK_SEND_TIMEOUT_S };
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		if (setsockopt(fds[i], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0) {
			int r = -errno;

			gantry_fd_close(fds[0]);
			gantry_fd_close(fds[1]);
			return r;
		}
	memcpy(ret_fds, fds, sizeof(fds));
	return 0;
}

int gantry_link_send(int sock, uint32_t op, int32_t value, int32_t status, const char *name, int fd)
{
	struct gantry_monitor_msg msg = { .op = op, .value = value, .status = status };
	ssize_t n;

	if (name && gantry_str_copy(msg.name, sizeof(msg.name), name) < 0)
		return -EINVAL;
	n = gantry_fd_send(sock, &msg, sizeof(msg), &fd, fd >= 0 ? 1 : 0, 0);
	return n < 0 ? (int)n : 0;
}

int gantry_link_recv(int sock, struct gantry_monitor_msg *ret_msg, int *ret_fd, int flags)
{
	struct gantry_monitor_msg msg;
	_cleanup_close_ int fd = -EBADF;
	unsigned int nfds = 0;
	ssize_t n = gantry_fd_recv(sock, &msg, sizeof(msg), &fd, 1, &nfds, flags);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -ENODATA;
	if (n != sizeof(msg) || !memchr(msg.name, '\0', sizeof(msg.name)))
		return -EPROTO;
	*ret_msg = msg;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_link_recv_by(int sock, uint64_t deadline_ns, struct gantry_monitor_msg *ret_msg,
			int *ret_fd)
{
	for (;;) {
		struct pollfd pfd = { .fd = sock, .events = POLLIN };
		int r = poll(&pfd, 1, gantry_deadline_poll_ms(deadline_ns));

		if (r == 0)
			return -ETIMEDOUT;
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r < 0)
			continue;
		r = gantry_link_recv(sock, ret_msg, ret_fd, MSG_DONTWAIT);
		if (r != -EAGAIN)
			return r;
	}
}

int gantry_link_hand_over(int sock, const struct gantry_store *store, int32_t restarts)
{
	for (size_t i = 0; i < store->nentries; i++) {
		const struct gantry_store_entry *entry = &store->entries[i];
		int r = gantry_link_send(sock, GANTRY_MONITOR_HAND, 0, 0, entry->name, entry->fd);

		if (r < 0)
			return r;
	}
	return gantry_link_send(sock, GANTRY_MONITOR_HANDED, restarts, 0, NULL, -EBADF);
}

int gantry_link_take_over(int sock, int timeout_ms, struct gantry_store *store,
			  int32_t *ret_restarts)
{
	uint64_t deadline_ns = gantry_deadline_ns((int64_t)timeout_ms * (int64_t)GANTRY_NS_PER_MS);

	for (;;) {
		_cleanup_close_ int fd = -EBADF;
		struct gantry_monitor_msg msg;
		int r = gantry_link_recv_by(sock, deadline_ns, &msg, &fd);

		if (r < 0)
			return r;
		if (msg.op == GANTRY_MONITOR_HANDED) {
			*ret_restarts = msg.value;
			return 0;
		}
		if (msg.op != GANTRY_MONITOR_HAND || fd < 0)
			return -EPROTO;
		r = gantry_store_put(store, msg.name, fd);
		if (r < 0)
			return r;
		fd = -EBADF;
	}
}
