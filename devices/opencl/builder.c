/* SPDX-License-Identifier: Apache-2.0 */
/* The device process's side of the builder. */
#include "devices/opencl/builder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define MAX_BINARY_BYTES (256ull << 20)

/* The one builder of the process; @lock protects all of it. */
static struct {
	pthread_mutex_t lock;
	pid_t owner; /* whose builder it is: a child of that process has none */
	int sock;
	char folder[128];
} process = { .lock = PTHREAD_MUTEX_INITIALIZER, .sock = -EBADF };

static int make_folder(char *folder, size_t cap, struct gantry_err *err)
{
	const char *tmp = getenv("TMPDIR");

	if (gantry_str_format(folder, cap, "%s/gantry-opencl-XXXXXX",
			      tmp && tmp[0] == '/' ? tmp : "/tmp") < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "TMPDIR: the path is too long");
	if (!mkdtemp(folder))
		return gantry_err_set_errno(err, -errno, "making %s, for what OpenCL compiles",
					    folder);
	return 0;
}

/*
 * Through a process between, so that the builder is nobody's child here: who waits for children of its own need not
 * know of it, and it outlives this process long enough to tidy up.
 */
static int start_process(int sock, int other, const char *folder)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)close(other);
		pid = fork();
		if (pid == 0)
			gantry_opencl_builder_main(sock, folder);
		_exit(pid < 0 ? 1 : 0);
	}
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EAGAIN;
}

static int start_locked(struct gantry_err *err)
{
	int pair[2];
	int r;

	if (process.sock >= 0 && process.owner == getpid())
		return 0;
	r = make_folder(process.folder, sizeof(process.folder), err);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = gantry_err_set_errno(err, -errno, "a pair of sockets for the builder");
	} else {
		r = start_process(pair[1], pair[0], process.folder);
		gantry_fd_close(pair[1]);
		if (r < 0) {
			gantry_fd_close(pair[0]);
			(void)gantry_err_set_errno(err, r, "starting OpenCL's builder");
		}
	}
	if (r < 0) {
		(void)rmdir(process.folder); /* nothing is in it */
		return r;
	}
	/* PoCL reads these when the first platform is asked for; other drivers know nothing of them. */
	(void)setenv("POCL_CACHE_DIR", process.folder, 1);
	(void)setenv("POCL_KERNEL_CACHE", "1", 1);
	(void)setenv("GANTRY_OPENCL", "off",
		     1); /* our own driver for guests: no device of a host's */
	process.sock = pair[0];
	process.owner = getpid();
	return 0;
}

int gantry_opencl_builder_start(struct gantry_err *err)
{
	int r;

	(void)pthread_mutex_lock(&process.lock);
	r = start_locked(err);
	(void)pthread_mutex_unlock(&process.lock);
	return r;
}

/* ---- one piece of work ---- */

static int fill_request(const struct gantry_opencl_work *work, enum gantry_opencl_builder_op op,
			uint64_t nbytes, struct gantry_opencl_builder_request *req,
			struct gantry_err *err)
{
	*req = (struct gantry_opencl_builder_request){
		.magic = GANTRY_OPENCL_BUILDER_MAGIC,
		.op = op,
		.of_guest = work->of_guest,
		.of_gpu = work->of_gpu,
		.nbytes = nbytes,
	};
	if (gantry_str_copy(req->library, sizeof(req->library),
			    work->library ? work->library : "") < 0 ||
	    gantry_str_copy(req->platform, sizeof(req->platform),
			    work->choice.platform ? work->choice.platform : "") < 0 ||
	    gantry_str_copy(req->device, sizeof(req->device),
			    work->choice.device ? work->choice.device : "") < 0 ||
	    gantry_str_copy(req->keep, sizeof(req->keep), work->keep ? work->keep : "") < 0)
		return gantry_err_set(err, -EINVAL, "library, platform, device or cache: too long");
	return 0;
}

static int make_input(const void *bytes, size_t nbytes, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	int r = gantry_memfd_create("opencl-in", 0, 0, &fd);

	if (r == 0)
		r = gantry_write_all(fd, bytes, nbytes);
	if (r == 0)
		*ret_fd = GANTRY_TAKE_FD(fd);
	return r;
}

static int exchange_locked(const struct gantry_opencl_builder_request *req, const int fds[2],
			   struct gantry_opencl_builder_answer *answer)
{
	unsigned int nfds = 0;
	ssize_t n = gantry_fd_send(process.sock, req, sizeof(*req), fds, 2, 0);

	if (n < 0)
		return (int)n;
	/* It keeps the time. */
	n = gantry_fd_recv(process.sock, answer, sizeof(*answer), NULL, 0, &nfds, 0);
	if (n < 0)
		return (int)n;
	answer->text[sizeof(answer->text) - 1] = '\0';
	return n == sizeof(*answer) && answer->magic == GANTRY_OPENCL_BUILDER_MAGIC ? 0 : -EPIPE;
}

/* What the compiler said; whoever has broken into it may have written it. */
static void take_log(int out, const struct gantry_opencl_builder_answer *answer, char *log)
{
	uint64_t len = gantry_min_u64(answer->log_bytes, GANTRY_OPENCL_LOG_BYTES - 1);
	ssize_t n = answer->nbytes <= MAX_BINARY_BYTES ? pread(out, log, len, (off_t)answer->nbytes)
						       : 0;

	log[n > 0 ? n : 0] = '\0';
}

/* @fit: of GANTRY_OPENCL_FIT, else NULL. */
static int work_on(const struct gantry_opencl_work *work, enum gantry_opencl_builder_op op,
		   const void *bytes, size_t nbytes, const struct gantry_opencl_fit *fit,
		   int *ret_out, uint64_t *ret_nbytes, char *log, struct gantry_err *err)
{
	struct gantry_opencl_builder_request req;
	struct gantry_opencl_builder_answer answer = { 0 };
	_cleanup_close_ int in = -EBADF, out = -EBADF;
	int r = fill_request(work, op, nbytes, &req, err);

	if (r < 0)
		return r;
	if (fit)
		req.fit = *fit;
	r = make_input(bytes, nbytes, &in);
	if (r == 0)
		r = gantry_memfd_create("opencl-out", 0, 0, &out);
	if (r < 0)
		return gantry_err_set_errno(err, r, "memory for OpenCL's builder");
	(void)pthread_mutex_lock(&process.lock);
	r = exchange_locked(&req, (const int[]){ in, out }, &answer);
	(void)pthread_mutex_unlock(&process.lock);
	if (r < 0)
		return gantry_err_set_errno(err, -EIO, "OpenCL's builder is gone");
	if (log)
		take_log(out, &answer, log);
	if (answer.r < 0)
		return gantry_err_set(err, answer.r, "%s", answer.text);
	*ret_nbytes = answer.nbytes;
	*ret_out = GANTRY_TAKE_FD(out);
	return 0;
}

int gantry_opencl_builder_compile(const struct gantry_opencl_work *work, const void *text,
				  size_t nbytes, void **ret_binary, size_t *ret_nbytes, char *log,
				  struct gantry_err *err)
{
	_cleanup_close_ int out = -EBADF;
	uint64_t n = 0;
	void *binary;
	int r;

	if (log)
		log[0] = '\0';
	r = work_on(work, GANTRY_OPENCL_COMPILE, text, nbytes, NULL, &out, &n, log, err);

	if (r < 0)
		return r;
	if (n == 0 || n > MAX_BINARY_BYTES)
		return gantry_err_set(err, -ENOEXEC, "what was compiled has %llu bytes",
				      (unsigned long long)n);
	binary = malloc(n);
	if (!binary)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	if (pread(out, binary, n, 0) != (ssize_t)n) {
		free(binary);
		return gantry_err_set(err, -EIO, "reading what was compiled");
	}
	*ret_binary = binary;
	*ret_nbytes = n;
	return 0;
}

int gantry_opencl_builder_try(const struct gantry_opencl_work *work, const void *binary,
			      size_t nbytes, struct gantry_err *err)
{
	_cleanup_close_ int out = -EBADF;
	uint64_t n = 0;

	return work_on(work, GANTRY_OPENCL_TRY, binary, nbytes, NULL, &out, &n, NULL, err);
}

int gantry_opencl_builder_fit(const struct gantry_opencl_work *work, const void *binary,
			      size_t nbytes, const struct gantry_opencl_fit *fit,
			      struct gantry_err *err)
{
	_cleanup_close_ int out = -EBADF;
	uint64_t n = 0;

	return work_on(work, GANTRY_OPENCL_FIT, binary, nbytes, fit, &out, &n, NULL, err);
}
