/* SPDX-License-Identifier: Apache-2.0 */
/* The builder's process: takes work, has a child do it, keeps the time, and tidies up. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/opencl/builder.h"

#define SOCK_FD	       3
#define LIMIT_MS       300000 /* an installed module may be large, and the machine busy */
#define GUEST_LIMIT_MS 120000 /* of waiting; what works has a limit of processor time (build.c) */
#define NDESCRIPTORS   16     /* that nftw() may use */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st;
	(void)type;
	(void)where;
	(void)remove(path); /* what cannot be removed stays, and the folder with it */
	return 0;
}

static void say(struct gantry_opencl_builder_answer *answer, int r, const char *text)
{
	answer->r = r;
	(void)gantry_str_copy(answer->text, sizeof(answer->text), text); /* may be cut short */
}

/* The answer lies in memory of both processes. */
static struct gantry_opencl_builder_answer *shared_answer(void)
{
	void *at = mmap(NULL, sizeof(struct gantry_opencl_builder_answer), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static _Noreturn void child_main(const struct gantry_opencl_builder_request *req, const int *fds,
				 const char *folder, struct gantry_opencl_builder_answer *answer)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)close(SOCK_FD);
	gantry_opencl_build(req, fds[0], fds[1], folder, answer);
	/* Without the exit handlers of compilers. */
	_exit(0);
}

/* Until the child ends, its time is over, or nobody waits any more. */
static void wait_for(pid_t pid, int limit_ms, struct gantry_opencl_builder_answer *answer)
{
	int pidfd = pidfd_open(pid, 0);
	struct pollfd fds[] = { { .fd = pidfd, .events = POLLIN },
				{ .fd = SOCK_FD, .events = POLLRDHUP } };
	uint64_t deadline = gantry_deadline_ns(limit_ms * (int64_t)GANTRY_NS_PER_MS);
	bool late = false;
	int status = 0;

	while (pidfd >= 0 && !(fds[0].revents & POLLIN)) {
		late = gantry_deadline_passed(deadline);
		if (late || (fds[1].revents & (POLLRDHUP | POLLHUP)))
			break;
		(void)poll(fds, 2, 100);
	}
	(void)kill(pid, SIGKILL); /* ours, and not waited for: it is still this one */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	gantry_fd_close(pidfd);
	if (late)
		say(answer, -ETIMEDOUT, "OpenCL took too long to compile or load it");
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
		say(answer, -ETIMEDOUT,
		    "OpenCL took too much processor time to compile or load it");
	else if (WIFSIGNALED(status) && answer->r == -EINPROGRESS)
		say(answer, -ENOEXEC, "the vendor's compiler or loader crashed on it");
	else if (answer->r == -EINPROGRESS)
		say(answer, -ENOEXEC, "the vendor's compiler or loader ended its process");
}

/* What the child has made counts, however it ended: a kernel may crash where its arguments mean nothing. */
static void take_fit(const struct gantry_opencl_fit *fit, const char *folder,
		     struct gantry_opencl_builder_answer *answer)
{
	char apart[256];
	int r = gantry_str_format(apart, sizeof(apart), "%s/" GANTRY_OPENCL_APART, folder);

	if (r == 0)
		r = gantry_opencl_fit_take(fit, apart, folder);
	if (r == 0 || answer->r == 0)
		say(answer, r, r == 0 ? "" : "OpenCL made no code for this size of a work-group");
}

static void work(const struct gantry_opencl_builder_request *req, const int *fds,
		 const char *folder)
{
	struct gantry_opencl_builder_answer none = { .magic = GANTRY_OPENCL_BUILDER_MAGIC };
	struct gantry_opencl_builder_answer *answer = shared_answer();
	pid_t pid;

	if (!answer) {
		say(&none, -ENOMEM, "no memory to compile in");
	} else {
		*answer = none;
		answer->r = -EINPROGRESS;
		pid = fork();
		if (pid == 0)
			child_main(req, fds, folder, answer);
		if (pid < 0)
			say(answer, -EAGAIN, "no process to compile in");
		else
			wait_for(pid, req->of_guest ? GUEST_LIMIT_MS : LIMIT_MS, answer);
		if (pid >= 0 && req->op == GANTRY_OPENCL_FIT)
			take_fit(&req->fit, folder, answer);
		/* A copy: whoever is left of a child may still write to it. */
		none = *answer;
		none.magic = GANTRY_OPENCL_BUILDER_MAGIC;
		(void)munmap(answer, sizeof(*answer)); /* ours, so it cannot fail */
	}
	(void)gantry_fd_send(SOCK_FD, &none, sizeof(none), NULL, 0, MSG_NOSIGNAL);
}

/* Whatever else is open is its parent's; nobody shall find it kept open here. */
static void keep_socket(int sock)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int moved = fcntl(sock, F_DUPFD_CLOEXEC, SOCK_FD + 1);

	if (moved < 0 || null < 0)
		_exit(1);
	for (int fd = 0; fd < SOCK_FD; fd++)
		if (dup2(null, fd) < 0)
			_exit(1);
	if (dup2(moved, SOCK_FD) < 0)
		_exit(1);
	(void)close_range(SOCK_FD + 1, ~0u, 0);
}

void gantry_opencl_builder_main(int sock, const char *folder)
{
	struct gantry_opencl_builder_request req;
	sigset_t none;
	int fds[2];
	unsigned int nfds;
	ssize_t n;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	(void)setsid();				     /* the terminal's signals are for others */
	(void)prctl(PR_SET_NAME, "gantry-opencl");
	keep_socket(sock);
	(void)setenv("POCL_CACHE_DIR", folder, 1);
	(void)setenv("POCL_KERNEL_CACHE", "1", 1);
	for (;;) {
		nfds = 0;
		n = gantry_fd_recv(SOCK_FD, &req, sizeof(req), fds, 2, &nfds, 0);
		if (n <= 0) /* the device's process is gone */
			break;
		req.library[sizeof(req.library) - 1] = '\0';
		req.platform[sizeof(req.platform) - 1] = '\0';
		req.device[sizeof(req.device) - 1] = '\0';
		req.keep[sizeof(req.keep) - 1] = '\0';
		req.fit.kernel[sizeof(req.fit.kernel) - 1] = '\0';
		if (n == sizeof(req) && req.magic == GANTRY_OPENCL_BUILDER_MAGIC && nfds == 2)
			work(&req, fds, folder);
		for (unsigned int i = 0; i < nfds; i++)
			(void)close(fds[i]);
	}
	(void)nftw(folder, remove_one, NDESCRIPTORS, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}
