/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first program of a test's virtual machine: runs what the host asks for, over a virtio-serial port.
 *
 *   vm-agent PORT          PORT is a device, such as /dev/vport0p1; "-N" is descriptor N (for tests of itself)
 *
 * Both directions carry frames: type, job, length (32 bits each, little endian), then the bytes. The host numbers
 * its jobs. It says RUN (strings that end in NUL: flags, user, working folder, number of variables, variables,
 * arguments), IN (input for the job; no bytes: its end) and KILL (a signal's number). We say OUT and ERR (what a
 * job printed) and EXIT (its exit status, or minus the signal that ended it). Before the first frame comes HELLO,
 * by which the host also knows that the machine was reset.
 *
 * Trust: the host is the test; its frames are not checked beyond what keeps this program from faults.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO	  "GANTRY-VM-HELLO\n"
#define MAX_JOBS  64
#define FRAME_MAX (1u << 20)
#define CHUNK	  16384u
/* A job's output is read only while less than this waits for the host. */
#define BACKLOG (256u << 10)

enum {
	RUN = 1,
	IN = 2,
	KILL = 3
};
enum {
	OUT = 1,
	ERR = 2,
	EXIT = 3
};

struct frame {
	uint32_t type, job, len;
};

struct bytes {
	char *data;
	size_t len, room;
};

struct job {
	uint32_t id;
	pid_t pid; /* 0: the slot is free */
	int in, out, err;
	bool in_ends;
	struct bytes input;
};

static struct job jobs[MAX_JOBS];
static struct bytes to_host, from_host;

static void die(const char *what)
{
	fprintf(stderr, "vm-agent: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* --- bytes -------------------------------------------------------------------------------------------- */

static void bytes_add(struct bytes *b, const void *data, size_t len)
{
	if (b->len + len > b->room) {
		size_t room = 2 * (b->len + len);
		char *grown = realloc(b->data, room);

		if (!grown)
			die("no memory");
		b->data = grown;
		b->room = room;
	}
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void bytes_drop(struct bytes *b, size_t len)
{
	b->len -= len;
	if (b->len > 0)
		memmove(b->data, b->data + len, b->len);
}

/* Writes what @fd takes. Returns false when it takes no more for ever. */
static bool bytes_write(struct bytes *b, int fd)
{
	ssize_t n;

	while (b->len > 0) {
		n = write(fd, b->data, b->len);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		bytes_drop(b, (size_t)n);
	}
	return true;
}

static void tell(uint32_t type, uint32_t job, const void *data, uint32_t len)
{
	struct frame frame = { type, job, len };

	bytes_add(&to_host, &frame, sizeof(frame));
	bytes_add(&to_host, data, len);
}

/* --- jobs --------------------------------------------------------------------------------------------- */

static struct job *find_job(uint32_t id)
{
	for (unsigned i = 0; i < MAX_JOBS; i++)
		if (jobs[i].pid && jobs[i].id == id)
			return &jobs[i];
	return NULL;
}

static struct job *free_job(void)
{
	for (unsigned i = 0; i < MAX_JOBS; i++)
		if (!jobs[i].pid)
			return &jobs[i];
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* a pipe: there is nothing to learn */
	*fd = -1;
}

/* A request's strings, one after the other; "" past its end. */
static char *next_string(char **at, char *end)
{
	char *string = *at;

	if (string >= end)
		return end; /* which is a NUL */
	*at = string + strlen(string) + 1;
	return string;
}

static void become(const char *user)
{
	struct passwd *who;

	if (!*user)
		return;
	errno = ENOENT;
	who = getpwnam(user);
	if (!who || initgroups(user, who->pw_gid) || setgid(who->pw_gid) || setuid(who->pw_uid))
		die(user);
	if (setenv("HOME", who->pw_dir, 1) || setenv("USER", user, 1))
		die("setenv");
}

/* In the child: never returns. */
static void start_program(const char *user, const char *folder, char *at, char *end)
{
	int nenv = atoi(next_string(&at, end));
	char *argv[256];
	int argc = 0;
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	(void)signal(SIGPIPE, SIG_DFL);
	(void)setsid(); /* a child leads no group yet: cannot fail */
	become(user);
	if (*folder && chdir(folder))
		die(folder);
	for (int i = 0; i < nenv; i++)
		if (putenv(next_string(&at, end)))
			die("putenv");
	while (at < end && argc < 255)
		argv[argc++] = next_string(&at, end);
	argv[argc] = NULL;
	execvp(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void start_job(uint32_t id, char *at, char *end)
{
	const char *flags = next_string(&at, end);
	const char *user = next_string(&at, end);
	const char *folder = next_string(&at, end);
	bool merged = strchr(flags, 'm') != NULL;
	struct job *job = free_job();
	int in[2], out[2], err[2];
	int32_t refused = 125;

	if (!job || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
		tell(EXIT, id, &refused, sizeof(refused));
		return;
	}
	job->pid = fork();
	if (job->pid < 0)
		die("fork");
	if (job->pid == 0) {
		if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 ||
		    dup2(merged ? out[1] : err[1], 2) < 0)
			_exit(125);
		start_program(user, folder, at, end);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(err[1]);
	job->id = id;
	job->in = in[1];
	job->out = out[0];
	job->err = err[0];
	job->in_ends = false;
	if (fcntl(job->in, F_SETFL, O_NONBLOCK) || fcntl(job->out, F_SETFL, O_NONBLOCK) ||
	    fcntl(job->err, F_SETFL, O_NONBLOCK))
		die("fcntl");
}

static void feed_job(struct job *job)
{
	if (job->in < 0)
		return;
	if (!bytes_write(&job->input, job->in)) {
		job->input.len = 0;
		close_fd(&job->in);
	}
	if (job->in_ends && job->input.len == 0)
		close_fd(&job->in);
}

/* Passes on what a job printed. Returns whether there was something. */
static bool read_job(struct job *job, int *fd, uint32_t type)
{
	char chunk[CHUNK];
	ssize_t n;

	if (*fd < 0)
		return false;
	n = read(*fd, chunk, sizeof(chunk));
	if (n > 0)
		tell(type, job->id, chunk, (uint32_t)n);
	else if (n == 0)
		close_fd(fd);
	return n > 0;
}

static void end_job(struct job *job, int status)
{
	int32_t code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);

	/* Whatever it left in its pipes; a child of its own may hold them open, which we do not wait for. */
	while (read_job(job, &job->out, OUT) || read_job(job, &job->err, ERR))
		;
	tell(EXIT, job->id, &code, sizeof(code));
	close_fd(&job->in);
	close_fd(&job->out);
	close_fd(&job->err);
	free(job->input.data);
	memset(job, 0, sizeof(*job));
}

static void reap(int signals)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(signals, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (unsigned i = 0; i < MAX_JOBS; i++)
			if (jobs[i].pid == pid)
				end_job(&jobs[i], status);
}

/* --- the host ----------------------------------------------------------------------------------------- */

static void obey(const struct frame *frame, char *data)
{
	struct job *job = find_job(frame->job);
	uint32_t number;

	if (frame->type == RUN)
		start_job(frame->job, data, data + frame->len);
	if (!job)
		return;
	if (frame->type == IN) {
		bytes_add(&job->input, data, frame->len);
		job->in_ends |= frame->len == 0;
		feed_job(job);
	}
	if (frame->type == KILL && frame->len == sizeof(number)) {
		memcpy(&number, data, sizeof(number));
		if (kill(-job->pid, (int)number) && kill(job->pid, (int)number))
			fprintf(stderr, "vm-agent: kill: %s\n", strerror(errno));
	}
}

static void hear(int port)
{
	char chunk[CHUNK];
	struct frame frame;
	char *data;
	ssize_t n = read(port, chunk, sizeof(chunk));

	if (n > 0)
		bytes_add(&from_host, chunk, (size_t)n);
	while (from_host.len >= sizeof(frame)) {
		memcpy(&frame, from_host.data, sizeof(frame));
		if (frame.len > FRAME_MAX) {
			errno = EPROTO;
			die("a frame of the host");
		}
		if (from_host.len < sizeof(frame) + frame.len)
			return;
		data = malloc(frame.len + 1);
		if (!data)
			die("no memory");
		memcpy(data, from_host.data + sizeof(frame), frame.len);
		data[frame.len] = 0; /* strings end within the frame, whatever the host said */
		obey(&frame, data);
		free(data);
		bytes_drop(&from_host, sizeof(frame) + frame.len);
	}
}

static nfds_t what_to_wait_for(struct pollfd *fds, int port, int signals)
{
	bool room = to_host.len < BACKLOG;
	nfds_t n = 0;

	fds[n++] = (struct pollfd){ .fd = signals, .events = POLLIN };
	fds[n++] = (struct pollfd){
		.fd = port,
		.events = (short)(POLLIN | (to_host.len ? POLLOUT : 0)),
	};
	for (unsigned i = 0; i < MAX_JOBS; i++) {
		const struct job *job = &jobs[i];

		if (!job->pid)
			continue;
		if (job->in >= 0 && job->input.len)
			fds[n++] = (struct pollfd){ .fd = job->in, .events = POLLOUT };
		if (room && job->out >= 0)
			fds[n++] = (struct pollfd){ .fd = job->out, .events = POLLIN };
		if (room && job->err >= 0)
			fds[n++] = (struct pollfd){ .fd = job->err, .events = POLLIN };
	}
	return n;
}

static void serve(int port, int signals)
{
	struct pollfd fds[2 + 3 * MAX_JOBS];

	for (;;) {
		nfds_t n = what_to_wait_for(fds, port, signals);

		if (poll(fds, n, -1) < 0 && errno != EINTR)
			die("poll");
		if (fds[1].revents & (POLLIN | POLLHUP))
			hear(port);
		for (unsigned i = 0; i < MAX_JOBS; i++) {
			if (!jobs[i].pid)
				continue;
			feed_job(&jobs[i]);
			if (to_host.len < BACKLOG) {
				read_job(&jobs[i], &jobs[i].out, OUT);
				read_job(&jobs[i], &jobs[i].err, ERR);
			}
		}
		reap(signals);
		if (!bytes_write(&to_host, port))
			die("the port");
		/* No host at the other end: a port says so at once and again and again. */
		if ((fds[1].revents & POLLHUP) && !(fds[1].revents & POLLIN))
			(void)usleep(10000); /* early return does no harm */
	}
}

int main(int argc, char **argv)
{
	sigset_t mask;
	int port, signals;

	if (argc != 2) {
		fprintf(stderr, "usage: vm-agent PORT\n");
		return 2;
	}
	port = argv[1][0] == '-' ? atoi(argv[1] + 1) : open(argv[1], O_RDWR | O_CLOEXEC);
	if (port < 0 || fcntl(port, F_SETFL, O_NONBLOCK))
		die(argv[1]);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &mask, NULL))
		die("sigprocmask");
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		die("signalfd");
	bytes_add(&to_host, HELLO, strlen(HELLO));
	serve(port, signals);
}
