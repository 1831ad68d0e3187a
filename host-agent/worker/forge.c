/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/forge.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "proto/vocab.h"

#define MAX_JOBS 64u

/* Where a child finds what it needs; nothing else is open in it but 0, 1 and 2, which lead nowhere. */
#define CHILD_TEXT 3
#define CHILD_OUT  4
#define CHILD_LIFE 5

struct job {
	pid_t pid;
	int pidfd;
	int life; /* the answer's end; the worker's hanging up ends the job */
	uint64_t deadline_ns;
	bool too_long;
};

struct forging {
	struct forge *f;
	bool opened[FORGE_MAX_DEVICES];
	struct gantry_err open_err[FORGE_MAX_DEVICES];
	int open_r[FORGE_MAX_DEVICES];
	uint32_t njobs;
	struct job jobs[MAX_JOBS];
};

/* ---- answers ---- */

static void answer(int life, struct forge_answer *a)
{
	a->magic = FORGE_MAGIC;
	/* Never waits: the packet fits an empty socket, and a worker that hung up needs none. */
	(void)send(life, a, sizeof(*a), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answer_text(int life, int status, const char *text)
{
	struct forge_answer *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	a->status = status;
	(void)gantry_str_copy(a->text, sizeof(a->text), text);
	answer(life, a);
	free(a);
}

static int status_of(int r)
{
	switch (r) {
	case 0:
		return GANTRY_OK;
	case -EOPNOTSUPP:
		return GANTRY_E_UNSUPPORTED;
	case -ENOMEM:
		return GANTRY_E_NO_MEMORY;
	default:
		return GANTRY_E_IMAGE;
	}
}

/* ---- a child ---- */

static void limit(int what, uint64_t soft, uint64_t hard)
{
	const struct rlimit l = { .rlim_cur = soft, .rlim_max = hard };

	(void)setrlimit(what, &l); /* one that was lower already stays */
}

static uint64_t address_bytes(void)
{
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void set_limits(const struct worker_compile_limits *l)
{
	uint64_t mem_bytes = l->mem_bytes + address_bytes();

	limit(RLIMIT_CPU, l->cpu_s, l->cpu_s + 1);
	limit(RLIMIT_CORE, 0, 0);
	limit(RLIMIT_FSIZE, l->out_bytes, l->out_bytes);
	/* A sanitizer's shadow is larger than any limit that means something. */
	if (mem_bytes < 1ull << 42)
		limit(RLIMIT_AS, mem_bytes, mem_bytes);
}

/* Only what this text needs stays open. */
static void keep_three(int text, int out, int life)
{
	int moved[] = { fcntl(text, F_DUPFD, 16), fcntl(out, F_DUPFD, 16),
			fcntl(life, F_DUPFD, 16) };

	for (int i = 0; i < 3; i++)
		if (moved[i] < 0 || dup2(moved[i], CHILD_TEXT + i) < 0)
			_exit(3);
	(void)close_range(CHILD_LIFE + 1, ~0u, 0);
}

static void *read_text(uint64_t nbytes)
{
	void *text = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, CHILD_TEXT, 0);

	if (text == MAP_FAILED)
		_exit(3);
	(void)close(CHILD_TEXT);
	return text;
}

static _Noreturn void child_main(const struct forge *f, const struct forge_request *req, int text,
				 int out, int life)
{
	const struct gantry_backend *be = f->backends[req->device];
	struct forge_answer *a = calloc(1, sizeof(*a));
	struct gantry_err err = GANTRY_ERR_NONE;
	void *image = NULL;
	size_t nbytes = 0;
	void *bytes;
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!a)
		_exit(3);
	keep_three(text, out, life);
	set_limits(&f->limits);
	bytes = read_text(req->nbytes);
	/* A compiler may ask where it is, and write it down. */
	if (chdir("/") < 0)
		_exit(3);
	if (f->limits.confine)
		f->limits.confine();
	r = be->compile(&f->devices[req->device], req->arch, bytes, req->nbytes, &image, &nbytes,
			a->log, sizeof(a->log), &err);
	if (r == 0 &&
	    (nbytes > f->limits.out_bytes || gantry_write_all(CHILD_OUT, image, nbytes) < 0))
		r = gantry_err_set(&err, -ENOEXEC, "what was compiled is larger than %llu MiB",
				   (unsigned long long)(f->limits.out_bytes >> 20));
	a->status = status_of(r);
	a->nbytes = r == 0 ? nbytes : 0;
	(void)gantry_str_copy(a->text, sizeof(a->text), err.text);
	answer(CHILD_LIFE, a);
	_exit(0);
}

/* ---- jobs ---- */

static void job_close(struct job *job)
{
	gantry_fd_close(job->pidfd);
	gantry_fd_close(job->life);
}

static void tell_end(const struct forging *w, const struct job *job, int status)
{
	char text[96];

	if (job->too_long) {
		(void)snprintf(text, sizeof(text), "compiling took more than %u s",
			       (w->f->limits.wall_ms + 999) / 1000);
		answer_text(job->life, GANTRY_E_LIMIT, text);
	} else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) {
		(void)snprintf(text, sizeof(text),
			       "compiling took more than %u s of processor time",
			       w->f->limits.cpu_s);
		answer_text(job->life, GANTRY_E_LIMIT, text);
	} else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		answer_text(job->life, GANTRY_E_LIMIT, "the compiler was killed: it took too much");
	} else if (WIFSIGNALED(status)) {
		(void)snprintf(text, sizeof(text), "the compiler crashed (signal %d)",
			       WTERMSIG(status));
		answer_text(job->life, GANTRY_E_IMAGE, text);
	} else if (WEXITSTATUS(status) != 0) {
		(void)snprintf(text, sizeof(text), "the compiler gave up (status %d)",
			       WEXITSTATUS(status));
		answer_text(job->life, GANTRY_E_IMAGE, text);
	}
}

/* Its process ended. */
static void job_end(struct forging *w, uint32_t i)
{
	struct job *job = &w->jobs[i];
	int status = 0;

	if (waitpid(job->pid, &status, 0) == job->pid)
		tell_end(w, job, status);
	job_close(job);
	w->jobs[i] = w->jobs[--w->njobs];
}

static void kill_all(struct forging *w)
{
	for (uint32_t i = 0; i < w->njobs; i++)
		(void)kill(w->jobs[i].pid, SIGKILL);
}

static int pidfd_of(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void job_start(struct forging *w, const struct forge_request *req, int text, int out,
		      int life)
{
	struct job *job = &w->jobs[w->njobs];
	pid_t pid = fork();

	if (pid == 0)
		child_main(w->f, req, text, out, life);
	if (pid < 0) {
		answer_text(life, GANTRY_E_NO_MEMORY, "no process to compile in");
		gantry_fd_close(life);
		return;
	}
	*job = (struct job){
		.pid = pid,
		.pidfd = pidfd_of(pid),
		.life = life,
		.deadline_ns = gantry_now_ns() + w->f->limits.wall_ms * GANTRY_NS_PER_MS,
	};
	w->njobs++;
}

/* ---- requests ---- */

/* Compilers are loaded once, and here: what they need of files they open before any text is near. */
static int open_compiler(struct forging *w, uint32_t device)
{
	const struct gantry_backend *be = w->f->backends[device];

	if (!w->opened[device]) {
		w->opened[device] = true;
		w->open_r[device] = be->compiler_open(&w->f->devices[device], &w->open_err[device]);
	}
	return w->open_r[device];
}

static void begin(struct forging *w, const struct forge_request *req, int text, int out, int life)
{
	if (req->device >= w->f->ndevices || !w->f->backends[req->device])
		answer_text(life, GANTRY_E_UNSUPPORTED, "the device has no compiler");
	else if (w->njobs == MAX_JOBS)
		answer_text(life, GANTRY_E_LIMIT, "too much is being compiled");
	else if (open_compiler(w, req->device) < 0)
		answer_text(life, status_of(w->open_r[req->device]), w->open_err[req->device].text);
	else {
		job_start(w, req, text, out, life);
		return;
	}
	gantry_fd_close(life);
}

static void take_request(struct forging *w)
{
	int fds[FORGE_NFDS];
	unsigned int nfds = 0;
	struct forge_request req;
	uint32_t magic = FORGE_MAGIC;
	int pair[2];
	ssize_t n = gantry_fd_recv(w->f->sock, &req, sizeof(req), fds, FORGE_NFDS, &nfds, 0);

	if (n <= 0) { /* the worker is gone */
		kill_all(w);
		_exit(0);
	}
	req.arch[sizeof(req.arch) - 1] = '\0';
	if (n == sizeof(req) && req.magic == FORGE_MAGIC && nfds == FORGE_NFDS &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		(void)gantry_fd_send(w->f->sock, &magic, sizeof(magic), &pair[0], 1, MSG_DONTWAIT);
		gantry_fd_close(pair[0]);
		begin(w, &req, fds[0], fds[1], pair[1]);
	} else {
		(void)gantry_fd_send(w->f->sock, &magic, sizeof(magic), NULL, 0, MSG_DONTWAIT);
	}
	for (unsigned int i = 0; i < nfds; i++)
		gantry_fd_close(fds[i]);
}

/* ---- the loop ---- */

static int next_timeout_ms(const struct forging *w)
{
	uint64_t now = gantry_now_ns();
	uint64_t least = 60 * GANTRY_NS_PER_S;

	for (uint32_t i = 0; i < w->njobs; i++) {
		uint64_t left = w->jobs[i].deadline_ns > now ? w->jobs[i].deadline_ns - now : 0;

		if (!w->jobs[i].too_long && left < least)
			least = left;
	}
	return (int)(least / GANTRY_NS_PER_MS) + 1;
}

static void look_at_jobs(struct forging *w, const struct pollfd *polls, uint32_t njobs)
{
	/* Backwards: the end of one moves the last into its place. */
	for (uint32_t i = njobs; i-- > 0;) {
		struct job *job = &w->jobs[i];
		bool ended = polls[2 * i].revents != 0;
		bool left = polls[2 * i + 1].revents & (POLLHUP | POLLERR);

		if (!ended && !job->too_long && gantry_now_ns() >= job->deadline_ns)
			job->too_long = true;
		if (!ended && (left || job->too_long))
			(void)kill(job->pid, SIGKILL);
		if (ended || left) /* after the kill it does not wait long */
			job_end(w, i);
	}
}

static void lead_nowhere(int keep)
{
	int null_fd = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null_fd, fd);
	if (keep != 3 && dup2(keep, 3) < 0)
		_exit(3);
	(void)close_range(4, ~0u, 0);
}

_Noreturn void forge_main(struct forge *f)
{
	static struct forging w;
	struct pollfd polls[2 * MAX_JOBS + 1];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "gantry-forge");
	lead_nowhere(f->sock);
	f->sock = 3;
	(void)fcntl(f->sock, F_SETFD, FD_CLOEXEC);
	w.f = f;
	for (;;) {
		uint32_t njobs = w.njobs;

		for (uint32_t i = 0; i < njobs; i++) {
			polls[2 * i] = (struct pollfd){ .fd = w.jobs[i].pidfd, .events = POLLIN };
			polls[2 * i + 1] = (struct pollfd){ .fd = w.jobs[i].life };
		}
		polls[2 * njobs] = (struct pollfd){ .fd = f->sock, .events = POLLIN };
		if (poll(polls, 2 * njobs + 1, next_timeout_ms(&w)) < 0 && errno != EINTR)
			_exit(4);
		look_at_jobs(&w, polls, njobs);
		if (polls[2 * njobs].revents)
			take_request(&w);
	}
}
