/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors over a socket (SCM_RIGHTS): gantry_fd_send() and gantry_fd_recv() of fd.h. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/fd.h"

/* The most that one message can carry, so that the kernel never has to cut descriptors off. */
union control {
	struct cmsghdr align;
	/* SCM_RIGHTS, and room for SCM_CREDENTIALS should the socket have SO_PASSCRED set. */
	char space[CMSG_SPACE(GANTRY_FD_MSG_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

ssize_t gantry_fd_send(int sock, const void *buf, size_t len, const int *fds, unsigned int nfds,
		       int flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control;
	ssize_t n;

	if (nfds > GANTRY_FD_MSG_MAX || (nfds > 0 && len == 0))
		return -EINVAL;
	if (nfds > 0) {
		struct cmsghdr *cmsg;

		memset(&control, 0, CMSG_SPACE(nfds * sizeof(int)));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
	}
	do {
		n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Collect every descriptor of the message; whatever else it carries is ignored. */
static unsigned int collect_fds(struct msghdr *msg, int fds[GANTRY_FD_MSG_MAX])
{
	unsigned int nfds = 0;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t n;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		/*
		 * The kernel wrote this header and limits the count, so there is no overflow to
		 * fear.
		 */
		n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds + nfds, CMSG_DATA(cmsg), n * sizeof(int));
		nfds += (unsigned int)n;
	}
	return nfds;
}

static void close_from(const int *fds, unsigned int first, unsigned int nfds)
{
	for (unsigned int i = first; i < nfds; i++)
		gantry_fd_close(fds[i]);
}

/*
 * A peer that ends with something of ours unread resets a Unix socket, and of a seqpacket one the kernel tells that ahead of what the
 * peer had said before, and once: its last words are behind it, and then the end.
 */
static bool is_to_ask_again(int errnum, bool *was_reset)
{
	if (errnum == ECONNRESET && !*was_reset) {
		*was_reset = true;
		return true;
	}
	return errnum == EINTR;
}

ssize_t gantry_fd_recv(int sock, void *buf, size_t cap, int *fds, unsigned int max_fds,
		       unsigned int *ret_nfds, int flags)
{
	struct iovec iov = { .iov_base = buf, .iov_len = cap };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int got[GANTRY_FD_MSG_MAX];
	unsigned int ngot, kept;
	bool was_reset = false;
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && is_to_ask_again(errno, &was_reset));
	if (n < 0)
		return -errno;

	ngot = collect_fds(&msg, got);
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		close_from(got, 0, ngot);
		return (msg.msg_flags & MSG_TRUNC) ? -EMSGSIZE : -EMFILE;
	}
	kept = ngot < max_fds ? ngot : max_fds;
	close_from(got, kept, ngot);
	if (kept > 0)
		memcpy(fds, got, kept * sizeof(int));
	if (ret_nfds)
		*ret_nfds = kept;
	return n;
}
