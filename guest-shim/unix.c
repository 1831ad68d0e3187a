/* SPDX-License-Identifier: Apache-2.0 */
/* The door of containers and processes: a SOCK_SEQPACKET Unix socket; the bell is an eventfd. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "guest-shim/forks.h"
#include "guest-shim/handshake.h"
#include "guest-shim/sockets.h"
#include "guest-shim/transport.h"

/*
 * Messages that nobody waits for, read in one go: an agent that sends without end must not hold a
 * guest up.
 */
#define STRAY_MAX 16

struct door {
	struct gantry_fork_watch fork_watch;
	pthread_mutex_t recv_lock; /* whoever reads the socket; notices are kept under it */
	struct gantry_door_refuse notice;
	int sock;
	int bell;
	bool bell_is_socket;
	uint32_t tag;
};

/* ---- connect ---- */

static int connect_failed(const char *path, int errnum)
{
	int status = errnum == EACCES || errnum == EPERM ? GANTRY_E_DENIED : GANTRY_E_NO_AGENT;
	char what[128];

	(void)gantry_str_format(what, sizeof(what), "connecting to %.108s", path);
	return gantry_fail_errno(status, errnum, what);
}

static int connect_socket(int sock, const char *path, uint64_t deadline_ns)
{
	uint64_t left_us = gantry_deadline_left_ns(deadline_ns) / GANTRY_NS_PER_US + 1;
	struct timeval left = { (time_t)(left_us / 1000000), (suseconds_t)(left_us % 1000000) };
	struct sockaddr_un addr;
	socklen_t len = 0;
	int r;

	r = gantry_unix_address(path, &addr, &len);
	if (r < 0)
		return r;
	/* connect() waits for room in the agent's backlog as long as a send would. */
	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0)
		return connect_failed(path, errno);
	do {
		r = connect(sock, (const struct sockaddr *)&addr, len);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? connect_failed(path, errno) : 0;
}

/* The session lasts as long as any copy of its socket: a child keeps none. */
static void close_copies(void *cookie)
{
	struct door *d = cookie;

	d->sock = gantry_fd_close(d->sock);
	d->bell = gantry_fd_close(d->bell);
}

static int open_socket(struct door *d)
{
	int r;

	gantry_forks_lock();
	d->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	r = d->sock < 0 ? -errno : gantry_fd_above_stdio(&d->sock);
	gantry_forks_watch_locked(&d->fork_watch, close_copies, d);
	gantry_forks_unlock();
	return r < 0 ? gantry_fail_errno(GANTRY_E_NO_MEMORY, -r, "making a socket") : 0;
}

static void unix_close(void *cookie)
{
	struct door *d = cookie;

	gantry_forks_forget(&d->fork_watch);
	gantry_fd_close(d->sock);
	gantry_fd_close(d->bell);
	free(d);
}

static int unix_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	struct door *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	d->bell = -EBADF;
	pthread_mutex_init(&d->recv_lock, NULL);
	r = open_socket(d);
	if (r == 0)
		r = connect_socket(d->sock, where, deadline_ns);
	if (r < 0) {
		unix_close(d);
		return r;
	}
	*ret_cookie = d;
	return 0;
}

/* ---- messages ---- */

/* The deadline as poll() wants it; for polls that may not wait, a deadline in the past. */
static int poll_readable(int sock, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	int n;

	do {
		n = poll(&pfd, 1, gantry_deadline_poll_ms(deadline_ns));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

/*
 * One whole, checked message. -EAGAIN: none there; -ECONNRESET: hung up, or not worth talking to
 * any more. Descriptors beyond @max_fds are closed.
 */
static int receive(struct door *d, union gantry_message *msg, int *fds, unsigned int max_fds,
		   unsigned int *ret_nfds, uint16_t *ret_kind)
{
	unsigned int nfds = 0;
	ssize_t n = gantry_fd_recv(d->sock, msg->bytes, sizeof(msg->bytes), fds, max_fds, &nfds,
				   MSG_DONTWAIT);

	if (n == -EAGAIN)
		return -EAGAIN;
	if (n <= 0)
		return n == -EMSGSIZE || n == -EMFILE ? -EPROTO : -ECONNRESET;
	if (gantry_door_check(msg->bytes, (size_t)n, ret_kind) < 0) {
		for (unsigned int i = 0; i < nfds; i++)
			gantry_fd_close(fds[i]);
		return -EPROTO;
	}
	*ret_nfds = nfds;
	return 0;
}

static int send_message(const struct door *d, const void *msg, size_t len)
{
	ssize_t n = gantry_fd_send(d->sock, msg, len, NULL, 0, 0); /* SO_SNDTIMEO bounds it */

	return n < 0 ? (int)n : 0;
}

/* ---- handshake ---- */

/*
 * Takes the bell only if a write to it can neither block nor raise a signal: an anonymous inode
 * (eventfd), or a socket, which has flags for that.
 */
static int take_bell(struct door *d, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -EPROTO;
	d->bell_is_socket = S_ISSOCK(st.st_mode);
	if (!d->bell_is_socket && (st.st_mode & S_IFMT) != 0)
		return -EPROTO;
	if (gantry_fd_nonblock(fd, true) < 0)
		return -EPROTO;
	d->bell = fd;
	return 0;
}

static int take_welcome(struct door *d, const struct gantry_door_welcome *welcome, int *fds,
			unsigned int nfds, struct gantry_attachment *ret_attachment)
{
	if (nfds != 2)
		return gantry_fail(GANTRY_E_PROTOCOL,
				   "the agent's welcome brought %u descriptors, not 2", nfds);
	if (gantry_memfd_check(fds[0], welcome->segment_bytes) < 0)
		return gantry_fail(GANTRY_E_PROTOCOL,
				   "the agent's segment could shrink, or is too small");
	if (gantry_fd_above_stdio(&fds[1]) < 0 || take_bell(d, fds[1]) < 0)
		return gantry_fail(GANTRY_E_PROTOCOL, "the agent's bell is no eventfd");
	fds[1] = -EBADF;

	*ret_attachment = (struct gantry_attachment){
		.welcome = *welcome,
		.segment_fd = GANTRY_TAKE_FD(fds[0]),
	};
	return 0;
}

static int receive_welcome(struct door *d, uint64_t deadline_ns,
			   struct gantry_attachment *ret_attachment)
{
	int fds[2] = { -EBADF, -EBADF };
	unsigned int nfds = 0;
	union gantry_message msg;
	uint16_t kind;
	int r;

	do {
		r = poll_readable(d->sock, deadline_ns);
		if (r == 0)
			r = receive(d, &msg, fds, 2, &nfds, &kind);
	} while (r == -EAGAIN);
	if (r < 0)
		return gantry_handshake_failed(r);

	r = gantry_handshake_answer(&msg, kind);
	if (r == 0)
		r = take_welcome(d, &msg.welcome, fds, nfds, ret_attachment);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
	return r;
}

static int unix_handshake(void *cookie, const struct gantry_door_hello *hello, uint64_t deadline_ns,
			  struct gantry_attachment *ret_attachment)
{
	struct door *d = cookie;
	int r = send_message(d, hello, sizeof(*hello));

	/*
	 * An agent that refuses at sight may have hung up already; what it said can still be read.
	 */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return gantry_fail_errno(GANTRY_E_NO_AGENT, -r, "greeting the agent");
	return receive_welcome(d, deadline_ns, ret_attachment);
}

/* ---- beside the segment ---- */

static void unix_kick(void *cookie)
{
	static const uint64_t one = 1;
	const struct door *d = cookie;
	long n;

	/* By syscall(): send() and write() would end a thread that is cancelled here, with its queue's lock held. */
	if (d->bell_is_socket)
		n = syscall(SYS_sendto, d->bell, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL,
			    NULL, 0);
	else
		n = syscall(SYS_write, d->bell, &one, sizeof(one));
	(void)n; /* full: the host has been woken often enough; closed: the door says so */
}

/* Keeps a notice; anything else out of turn is an answer that came too late. */
static void keep_notice_locked(struct door *d, const union gantry_message *msg, uint16_t kind)
{
	if (kind == GANTRY_DOOR_NOTICE)
		d->notice = msg->refuse;
}

/* Reads until the answer with @tag is there, or nothing (-EAGAIN), or the agent is gone. */
static int receive_answer_locked(struct door *d, union gantry_message *msg, uint16_t wanted)
{
	unsigned int nfds = 0;
	uint16_t kind;
	int fds[2], r;

	for (int i = 0; i < STRAY_MAX; i++) {
		r = receive(d, msg, fds, 2, &nfds, &kind);
		if (r < 0)
			return r == -EPROTO ? -ECONNRESET : r;
		/* Of a WELCOME said twice, by an agent and by the one after it. */
		for (unsigned int k = 0; k < nfds; k++)
			gantry_fd_close(fds[k]);
		if (kind == wanted && msg->h.tag == d->tag)
			return 0;
		keep_notice_locked(d, msg, kind);
	}
	return -EAGAIN;
}

static int unix_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	struct door *d = cookie;
	union gantry_message msg;
	int r = -EAGAIN;

	*ret_notice = (struct gantry_door_refuse){ 0 };
	/* Whoever holds it is reading, and will notice what there is to notice. */
	if (pthread_mutex_trylock(&d->recv_lock) != 0)
		return 0;
	r = receive_answer_locked(d, &msg, 0);
	*ret_notice = d->notice;
	pthread_mutex_unlock(&d->recv_lock);
	return r == -ECONNRESET ? r : 0;
}

static int wait_answer_locked(struct door *d, union gantry_message *msg, uint16_t kind,
			      uint64_t deadline_ns)
{
	int r;

	do {
		r = poll_readable(d->sock, deadline_ns);
		if (r == 0)
			r = receive_answer_locked(d, msg, kind);
	} while (r == -EAGAIN);
	return r;
}

static int unix_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			uint64_t deadline_ns)
{
	struct gantry_door_header *h = msg;
	struct door *d = cookie;
	union gantry_message answer;
	int r;

	pthread_mutex_lock(&d->recv_lock);
	h->tag = ++d->tag;
	r = send_message(d, msg, h->len_bytes);
	if (r == 0)
		r = wait_answer_locked(d, &answer, kind, deadline_ns);
	pthread_mutex_unlock(&d->recv_lock);

	if (r < 0)
		return gantry_request_failed(r);
	memcpy(ret_answer, &answer, gantry_door_len(kind));
	return 0;
}

const struct gantry_transport_ops gantry_transport_unix = {
	.prefix = "unix:",
	.connect = unix_connect,
	.handshake = unix_handshake,
	.kick = unix_kick,
	.request = unix_request,
	.peek = unix_peek,
	.close = unix_close,
};
