/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/channel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/sockets.h"
#include "proto/stream.h"

#define PORTS	       "/sys/class/virtio-ports"
#define NAME_MAX_BYTES 256u
/* A host that is there answers in less than a millisecond; one that is not costs each program this much, once. */
#define ANSWER_NS (250 * GANTRY_NS_PER_MS)

/* ---- the host's answer ---- */

/* Bytes that woke the one before us may lie before it. */
static bool find_answer(uint8_t *bytes, uint32_t *nbytes, uint64_t nonce, uint32_t *ret_number)
{
	struct gantry_wake_welcome answer;

	while (*nbytes >= sizeof(answer)) {
		memcpy(&answer, bytes, sizeof(answer));
		if (answer.magic == GANTRY_WAKE_MAGIC && answer.nonce == nonce &&
		    answer.number != 0) {
			*ret_number = answer.number;
			return true;
		}
		memmove(bytes, bytes + 1, --*nbytes);
	}
	return false;
}

static int hear_answer(int fd, uint64_t nonce, uint32_t *ret_number)
{
	uint64_t deadline_ns = gantry_deadline_ns(ANSWER_NS);
	uint8_t bytes[256];
	uint32_t nbytes = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, gantry_deadline_poll_ms(deadline_ns)) == 0)
			return -ETIMEDOUT;
		n = read(fd, bytes + nbytes, sizeof(bytes) - nbytes);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0)
			nbytes += (uint32_t)n;
		if (find_answer(bytes, &nbytes, nonce, ret_number))
			return 0;
		if (gantry_deadline_passed(deadline_ns))
			return -ETIMEDOUT;
	}
}

/* A port is no socket, and takes no flags; a socket whose other end is gone would signal. */
static ssize_t say(int fd, const void *data, size_t len)
{
	ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 && errno == ENOTSOCK ? write(fd, data, len) : n;
}

static int greet(int fd, uint64_t epoch, uint32_t *ret_number)
{
	const struct gantry_wake_hello hello = {
		.magic = GANTRY_WAKE_MAGIC,
		.epoch = epoch,
		.nonce = gantry_now_ns() ^ (uint64_t)getpid() << 40,
	};

	if (say(fd, &hello, sizeof(hello)) != (ssize_t)sizeof(hello))
		return -EIO; /* nobody is behind it */
	return hear_answer(fd, hello.nonce, ret_number);
}

/* ---- finding one ---- */

/* Programs that closed theirs print into whatever takes its place. */
static int moved(int fd)
{
	if (gantry_fd_above_stdio(&fd) == 0)
		return fd;
	gantry_fd_close(fd);
	return -EMFILE;
}

static int open_socket(const struct gantry_pcidev *dev)
{
	char path[sizeof(dev->folder) + 8];
	int fd, r;

	if (gantry_str_format(path, sizeof(path), "%s/wake", dev->folder) < 0)
		return -ENAMETOOLONG;
	r = gantry_unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK, &fd);
	return r < 0 ? r : moved(fd);
}

/* Without a claim to it by somebody else: then EBUSY. */
static int open_port(const char *port)
{
	_cleanup_free_ char *name = NULL;
	char path[NAME_MAX_BYTES];
	int fd;

	if (gantry_str_format(path, sizeof(path), PORTS "/%s/name", port) < 0 ||
	    gantry_file_read(path, NAME_MAX_BYTES, &name, NULL) < 0 ||
	    !gantry_str_starts(name, GANTRY_WAKE_PORT_NAME) ||
	    gantry_str_format(path, sizeof(path), "/dev/%s", port) < 0)
		return -ENOENT;
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : moved(fd);
}

static int use(struct gantry_channel *c, int fd, uint64_t epoch)
{
	int r = fd < 0 ? fd : greet(fd, epoch, &c->number);

	if (r < 0) {
		gantry_fd_close(fd);
		return r;
	}
	c->fd = fd;
	c->is_open = 1;
	return 0;
}

static int search_ports(struct gantry_channel *c, uint64_t epoch)
{
	DIR *dir = opendir(PORTS);
	const struct dirent *entry;
	int r = -ENOENT;

	if (!dir)
		return -errno;
	while (r < 0 && r != -ETIMEDOUT && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			r = use(c, open_port(entry->d_name), epoch);
	(void)closedir(dir); /* nothing was written */
	return r;
}

/* ---- a stream to the host, where there is no port ---- */

static int connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int errnum = 0;
	socklen_t len = sizeof(errnum);

	if (poll(&p, 1, (int)(ANSWER_NS / GANTRY_NS_PER_MS)) <= 0)
		return -ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0 ? -errno : -errnum;
}

/* The file is there when the device is: to ask for a socket might have the kernel load a module for nothing. */
static int open_vsock(void)
{
	const struct sockaddr_vm host = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_HOST,
		.svm_port = GANTRY_STREAM_PORT,
	};
	int fd, r = 0;

	if (access("/dev/vsock", F_OK) < 0)
		return -ENODEV;
	fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&host, sizeof(host)) < 0)
		r = errno == EINPROGRESS ? connected(fd) : -errno;
	if (r == 0)
		return moved(fd);
	gantry_fd_close(fd);
	return r;
}

void gantry_channel_init(struct gantry_channel *c)
{
	*c = (struct gantry_channel){ .fd = -EBADF };
	gantry_listener_init(&c->listener);
}

int gantry_channel_open(const struct gantry_pcidev *dev, struct gantry_channel *c)
{
	uint64_t epoch = dev->header.epoch;

	if (!dev->is_sysfs)
		return use(c, open_socket(dev), epoch);
	return search_ports(c, epoch) == 0 ? 0 : use(c, open_vsock(), epoch);
}

void gantry_channel_close(struct gantry_channel *c)
{
	c->is_open = 0;
	c->fd = gantry_fd_close(c->fd);
}

void gantry_channel_use(struct gantry_channel *c, uint32_t *listening)
{
	c->listening = listening;
}

/* ---- sleeping ---- */

static void listen_once(void *arg, const struct gantry_listening *what)
{
	struct gantry_channel *c = arg;
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	uint8_t bytes[64];
	ssize_t n;

	gantry_store_relaxed(c->listening, gantry_load_relaxed(c->listening) + 1);
	/* Full fence: pairs with the host's between done and listening. It sees us listen, or we see done. */
	gantry_fence_full();
	if (gantry_load_relaxed(what->word) != what->seen)
		return;
	if (poll(&p, 1, gantry_deadline_poll_ms(what->deadline_ns)) <= 0)
		return;
	n = read(c->fd, bytes, sizeof(bytes));
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		gantry_store_relaxed(&c->is_open,
				     0); /* the host has hung up: nobody is woken by it */
}

bool gantry_channel_sleep(struct gantry_channel *c, const uint64_t *word, uint64_t seen,
			  uint64_t deadline_ns)
{
	const struct gantry_listening what = { word, seen, deadline_ns };

	if (!gantry_load_relaxed(&c->is_open) || !c->listening)
		return false;
	gantry_listener_sleep(&c->listener, what, listen_once, c);
	return true;
}
