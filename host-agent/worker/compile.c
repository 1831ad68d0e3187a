/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of compiling: hands a text to the forge and waits for what comes of it. */
#include "host-agent/worker/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/registry.h"
#include "host-agent/worker/forge.h"

#define LOOK_MS	   20
#define ACCEPT_MS  10000 /* the forge may be loading compilers */
#define PATIENCE_S 10	 /* past the limit that the forge keeps by itself */

const struct worker_compile_limits worker_compile_defaults = {
	.wall_ms = 20000,
	.cpu_s = 20,
	.mem_bytes = 4ull << 30,
	.out_bytes = 64ull << 20,
};

struct worker_compiler {
	pthread_mutex_t lock; /* one request is made at a time */
	int sock;
	pid_t pid;
	struct worker_compile_limits limits;
};

/* ---- start and stop ---- */

static bool fill_forge(struct forge *f, const struct gantry_device_conf *devices, uint32_t ndevices)
{
	bool any = false;

	for (uint32_t i = 0; i < ndevices && i < FORGE_MAX_DEVICES; i++) {
		const struct gantry_backend *be = gantry_backend_find(devices[i].backend);

		f->devices[i] = devices[i];
		f->backends[i] = be && be->compile && (!be->compiles || be->compiles(&devices[i]))
					 ? be
					 : NULL;
		f->ndevices = i + 1;
		any = any || f->backends[i];
	}
	return any;
}

int worker_compiler_start(const struct gantry_device_conf *devices, uint32_t ndevices,
			  const struct worker_compile_limits *limits,
			  struct worker_compiler **ret_compiler, struct gantry_err *err)
{
	struct forge f = { .limits = *limits };
	struct worker_compiler *c;
	int pair[2];

	if (!fill_forge(&f, devices, ndevices)) {
		*ret_compiler = NULL;
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return gantry_err_set(err, -ENOMEM, "no memory for the compiler");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(c);
		return gantry_err_set_errno(err, -errno, "a pair of sockets for the compiler");
	}
	c->pid = fork();
	if (c->pid == 0) {
		/* The strings of @devices are the forge's own copy now. */
		f.sock = pair[1];
		forge_main(&f);
	}
	gantry_fd_close(pair[1]);
	c->sock = pair[0];
	if (c->pid < 0) {
		int r = gantry_err_set_errno(err, -errno, "starting the compiler's process");

		gantry_fd_close(c->sock);
		free(c);
		return r;
	}
	c->limits = *limits;
	pthread_mutex_init(&c->lock, NULL);
	*ret_compiler = c;
	return 0;
}

void worker_compiler_stop(struct worker_compiler *c)
{
	if (!c)
		return;
	gantry_fd_close(c->sock); /* and the forge leaves */
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		;
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* ---- one text ---- */

static bool wait_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) > 0;
}

/* The descriptor by which the compilation lives and answers; or -errno. */
static int request(struct worker_compiler *c, const struct forge_request *req, const int fds[2])
{
	int got[1] = { -EBADF };
	unsigned int ngot = 0;
	uint32_t magic = 0;
	ssize_t n;

	n = gantry_fd_send(c->sock, req, sizeof(*req), fds, 2, 0);
	if (n < 0)
		return (int)n;
	if (!wait_readable(c->sock, ACCEPT_MS))
		return -ETIMEDOUT;
	n = gantry_fd_recv(c->sock, &magic, sizeof(magic), got, 1, &ngot, 0);
	if (n == sizeof(magic) && magic == FORGE_MAGIC && ngot == 1)
		return got[0];
	for (unsigned int i = 0; i < ngot; i++)
		gantry_fd_close(got[i]);
	return n < 0 ? (int)n : -EPROTO;
}

static int make_text(const struct worker_compilation *what, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	int r = gantry_memfd_create("gantry-text", what->nbytes, GANTRY_MEMFD_SEALED, &fd);

	if (r == 0)
		r = gantry_write_all(fd, what->text, what->nbytes);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		*ret_fd = GANTRY_TAKE_FD(fd);
	return r;
}

/* 0: *a is there; else a status. */
static int await(const struct worker_compiler *c, const struct worker_compilation *what, int life,
		 struct forge_answer *a)
{
	uint64_t until_ns = gantry_now_ns() + (uint64_t)c->limits.wall_ms * GANTRY_NS_PER_MS +
			    PATIENCE_S * GANTRY_NS_PER_S;
	ssize_t n;

	while (!wait_readable(life, LOOK_MS)) {
		if (what->stop && what->stop(what->cookie))
			return GANTRY_E_CANCELLED;
		if (gantry_now_ns() > until_ns)
			return GANTRY_E_INTERNAL;
	}
	/* recvmsg(): the one call of its kind that a confined worker has. */
	n = gantry_fd_recv(life, a, sizeof(*a), NULL, 0, NULL, 0);
	if (n != sizeof(*a) || a->magic != FORGE_MAGIC || a->nbytes > c->limits.out_bytes)
		return GANTRY_E_INTERNAL;
	/* It comes from where a guest's text may have taken over. */
	a->text[sizeof(a->text) - 1] = '\0';
	a->log[sizeof(a->log) - 1] = '\0';
	return GANTRY_OK;
}

static int verdict(const struct forge_answer *a, struct gantry_err *err)
{
	switch (a->status) {
	case GANTRY_OK:
		if (a->nbytes > 0)
			return GANTRY_OK;
		(void)gantry_err_set(err, -EPROTO, "the compiler gave nothing");
		return GANTRY_E_IMAGE;
	case GANTRY_E_LIMIT:
	case GANTRY_E_UNSUPPORTED:
	case GANTRY_E_NO_MEMORY:
		(void)gantry_err_set(err, -EIO, "%s", a->text);
		return a->status;
	default:
		(void)gantry_err_set(err, -ENOEXEC, "%s", a->text);
		return GANTRY_E_IMAGE;
	}
}

static int compile_with(struct worker_compiler *c, const struct worker_compilation *what,
			struct forge_answer *a, int *ret_fd, struct gantry_err *err)
{
	struct forge_request req = { .magic = FORGE_MAGIC,
				     .device = what->device,
				     .nbytes = what->nbytes };
	_cleanup_close_ int text = -EBADF;
	_cleanup_close_ int out = -EBADF;
	_cleanup_close_ int life = -EBADF;
	int status;

	(void)gantry_str_copy(req.arch, sizeof(req.arch), what->arch); /* it fits */
	if (make_text(what, &text) < 0 ||
	    gantry_memfd_create("gantry-compiled", c->limits.out_bytes, GANTRY_MEMFD_SEALED, &out) <
		    0) {
		(void)gantry_err_set(err, -ENOMEM, "no memory to compile");
		return GANTRY_E_NO_MEMORY;
	}
	pthread_mutex_lock(&c->lock);
	life = request(c, &req, (const int[]){ text, out });
	pthread_mutex_unlock(&c->lock);
	if (life < 0) {
		(void)gantry_err_set(err, life, "the compiler's process does not answer");
		return GANTRY_E_INTERNAL;
	}
	status = await(c, what, life, a);
	if (status != GANTRY_OK) {
		(void)gantry_err_set(err, -EIO, "the compiler did not answer");
		return status;
	}
	status = verdict(a, err);
	if (status == GANTRY_OK)
		*ret_fd = GANTRY_TAKE_FD(out);
	return status;
}

int worker_compile(struct worker_compiler *c, const struct worker_compilation *what, int *ret_fd,
		   uint64_t *ret_bytes, char *log, struct gantry_err *err)
{
	struct forge_answer *a;
	int status;

	log[0] = '\0';
	if (!c) {
		(void)gantry_err_set(err, -EOPNOTSUPP, "this host compiles nothing: load a binary");
		return GANTRY_E_UNSUPPORTED;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return GANTRY_E_NO_MEMORY;
	status = compile_with(c, what, a, ret_fd, err);
	if (status == GANTRY_OK)
		*ret_bytes = a->nbytes;
	memcpy(log, a->log, WORKER_COMPILE_LOG);
	free(a);
	return status;
}
