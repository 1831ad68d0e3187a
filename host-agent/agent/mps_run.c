/* SPDX-License-Identifier: Apache-2.0 */
/* The control program as a child: as daemon, or to say a few lines to one and hear what it answers. */
#include "host-agent/agent/mps_run.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/run.h"

#define PROGRAM	   "nvidia-cuda-mps-control"
#define ANSWER_MAX 1024u

struct run {
	struct gantry_list link; /* agent->mps_runs */
	pid_t pid;
	int pidfd;
	int answer_fd;
	struct event *event;
	struct event *timer;
	gantry_mps_run_fn *fn; /* NULL: nobody waits */
	void *arg;
};

/* ---- the program ---- */

int gantry_mps_program(const struct gantry_agent *a, char path[PATH_MAX])
{
	const char *conf = a->config->agent.mps;
	const char *dirs = getenv("PATH");

	if (conf[0] == '/')
		return gantry_str_copy(path, PATH_MAX, conf);
	while (dirs && *dirs) {
		int len = (int)strcspn(dirs, ":");

		if (gantry_str_format(path, PATH_MAX, "%.*s/" PROGRAM, len, dirs) == 0 &&
		    path[0] == '/' && access(path, X_OK) == 0)
			return 0;
		dirs += len + (dirs[len] == ':');
	}
	return -ENOENT;
}

void gantry_mps_set_dirs(const char *dir)
{
	char path[PATH_MAX];

	/* It fits, as the folders were made; without memory the driver finds no daemon. */
	if (gantry_str_format(path, sizeof(path), "%s/pipe", dir) == 0)
		(void)setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1);
	if (gantry_str_format(path, sizeof(path), "%s/log", dir) == 0)
		(void)setenv("CUDA_MPS_LOG_DIRECTORY", path, 1);
}

/* In the child. */
static void become(const char *program, const char *dir, const char *arg1, const char *arg2, int in,
		   int out)
{
	char *const argv[] = { (char *)(uintptr_t)PROGRAM, (char *)(uintptr_t)arg1,
			       (char *)(uintptr_t)arg2, NULL };
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	(void)signal(SIGPIPE, SIG_DFL);		     /* nor this */
	gantry_mps_set_dirs(dir);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(out, STDERR_FILENO) < 0)
		_exit(126);
	/* Whatever else is open is the agent's. */
	(void)close_range(STDERR_FILENO + 1, ~0u, 0);
	execv(program, argv);
	_exit(127);
}

static int start(struct gantry_agent *a, const char *dir, const char *arg1, const char *arg2,
		 int in, int out, pid_t *ret_pid, int *ret_pidfd)
{
	char program[PATH_MAX];
	int r = gantry_mps_program(a, program);
	pid_t pid;
	int pidfd;

	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0)
		become(program, dir, arg1, arg2, in, out);
	if (pid < 0)
		return -errno;
	pidfd = pidfd_open(pid, 0);
	if (pidfd < 0) {
		r = -errno;
		(void)kill(pid, SIGKILL); /* our child, not reaped: the pid is still its own */
		(void)waitpid(pid, NULL, 0);
		return r;
	}
	*ret_pid = pid;
	*ret_pidfd = pidfd;
	return 0;
}

int gantry_mps_run_daemon(struct gantry_agent *a, const char *dir, bool multiuser, pid_t *ret_pid,
			  int *ret_pidfd, struct gantry_err *err)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = null < 0 ? -errno
			 : start(a, dir, "-f", multiuser ? "-multiuser-server" : NULL, null, null,
				 ret_pid, ret_pidfd);

	return r < 0 ? gantry_err_set_errno(err, r, "starting " PROGRAM) : 0;
}

/* ---- a few lines ---- */

static void free_run(struct run *r)
{
	gantry_list_remove(&r->link);
	gantry_event_free(&r->event);
	gantry_event_free(&r->timer);
	gantry_fd_close(r->pidfd);
	gantry_fd_close(r->answer_fd);
	free(r);
}

static void ended(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;
	gantry_mps_run_fn *fn = r->fn;
	void *fn_arg = r->arg;
	char answer[ANSWER_MAX + 1];
	int status = -1;
	ssize_t n;
	bool ok;

	(void)fd;
	(void)what;
	ok = waitpid(r->pid, &status, WNOHANG) == r->pid && WIFEXITED(status) &&
	     WEXITSTATUS(status) == 0;
	n = pread(r->answer_fd, answer, ANSWER_MAX, 0);
	answer[n > 0 ? n : 0] = '\0';
	free_run(r);
	if (fn)
		fn(fn_arg, ok, answer);
}

static void too_long(evutil_socket_t fd, short what, void *arg)
{
	const struct run *r = arg;

	(void)fd;
	(void)what;
	(void)pidfd_send_signal(r->pidfd, SIGKILL, NULL, 0); /* or it has just ended */
}

static int text_fd(const char *text, int *ret_fd)
{
	_cleanup_close_ int fd = memfd_create("gantry-mps", MFD_CLOEXEC);
	size_t len = strlen(text);

	if (fd < 0)
		return -errno;
	if (pwrite(fd, text, len, 0) != (ssize_t)len)
		return -EIO;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_mps_run(struct gantry_agent *a, const char *dir, const char *text, uint64_t timeout_ns,
		   gantry_mps_run_fn *fn, void *arg)
{
	_cleanup_close_ int in = -EBADF;
	struct run *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return -ENOMEM;
	gantry_list_push_back(&a->mps_runs, &r->link);
	r->fn = fn;
	r->arg = arg;
	r->pidfd = -EBADF;
	r->answer_fd = -EBADF;
	code = text_fd(text, &in);
	if (code == 0)
		code = text_fd("", &r->answer_fd);
	if (code == 0)
		code = start(a, dir, NULL, NULL, in, r->answer_fd, &r->pid, &r->pidfd);
	if (code < 0) {
		free_run(r);
		return code;
	}
	r->event = event_new(a->base, r->pidfd, EV_READ, ended, r);
	if (r->event && event_add(r->event, NULL) == 0 &&
	    gantry_timer_set(a, &r->timer, timeout_ns, too_long, r) == 0)
		return 0;
	(void)pidfd_send_signal(r->pidfd, SIGKILL, NULL, 0); /* it is our child */
	(void)waitpid(r->pid, NULL, 0);
	free_run(r);
	return -ENOMEM;
}

void gantry_mps_run_forget(struct gantry_agent *a, const void *arg)
{
	gantry_list_for_each(&a->mps_runs, struct run, link, r)
		if (r->arg == arg)
			r->fn = NULL;
}

void gantry_mps_run_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->mps_runs, struct run, link, r) {
		(void)pidfd_send_signal(r->pidfd, SIGKILL, NULL, 0); /* or it has just ended */
		free_run(r);
	}
}
