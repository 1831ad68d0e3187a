/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that does what it is told: one command a line on stdin, one answer a line on stdout.
 *
 * Answers: "ok [VALUE...]" or "error STATUS-NAME SENTENCE". Objects have names that the commands choose.
 * The table below says what there is. Only the public API is used.
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/system/progs/guest.h"

#define MAX_NAMED   64
#define MAX_WORDS   32
#define ROUND_WORDS 8192u

struct gantry_session *session;

struct named {
	char name[32];
	uint64_t value;
};

static struct named named[MAX_NAMED];

uint64_t get(const char *name)
{
	for (int i = 0; i < MAX_NAMED; i++)
		if (strcmp(named[i].name, name) == 0)
			return named[i].value;
	return strtoull(name, NULL, 0);
}

void set(const char *name, uint64_t value)
{
	int slot = -1;

	for (int i = MAX_NAMED - 1; i >= 0; i--)
		if (strcmp(named[i].name, name) == 0)
			slot = i;
		else if (!named[i].name[0] && slot < 0)
			slot = i;
	for (int i = 0; i < MAX_NAMED; i++)
		if (strcmp(named[i].name, name) == 0)
			slot = i;
	if (slot < 0)
		abort();
	(void)snprintf(named[slot].name, sizeof(named[slot].name), "%s", name);
	named[slot].value = value;
}

const char *status_name(int status)
{
	static const struct {
		int status;
		const char *name;
	} names[] = {
#define NAME(name, value, text) { value, #name },
		GANTRY_STATUS_LIST(NAME)
#undef NAME
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].status == status)
			return names[i].name;
	return "unknown";
}

void answer(int status)
{
	if (status >= 0)
		printf("ok %d\n", status);
	else
		printf("error %s %s\n", status_name(status), gantry_last_error());
}

void answer_named(int status, const char *name, uint64_t value)
{
	if (status == 0) {
		set(name, value);
		printf("ok %" PRIu64 "\n", value);
	} else {
		answer(status);
	}
}

/* ---- the honest loop ---- */

static struct {
	pthread_t thread;
	bool running;
	volatile bool stop;
	volatile uint64_t rounds;
	volatile int status;
	char what[256];
} honest;

uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t checksum_word(uint64_t word, uint64_t i)
{
	return mix64(word + (i + 1) * 0x9e3779b97f4a7c15ull);
}

uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int honest_round(gantry_queue queue, gantry_kernel kernel, gantry_buffer data,
			gantry_buffer sum)
{
	static uint64_t words[ROUND_WORDS];
	uint64_t seen = 0, wanted = sizeof(words);
	struct {
		uint64_t data, sum, n;
	} args = { .n = sizeof(words) };
	struct gantry_access access[2] = { { .buffer = data, .mode = GANTRY_R, .arg_off = 0 },
					   { .buffer = sum, .mode = GANTRY_W, .arg_off = 8 } };
	struct gantry_task task = { .kernel = kernel,
				    .args = &args,
				    .args_bytes = sizeof(args),
				    .naccess = 2,
				    .access = access,
				    .flags = GANTRY_TASK_IDEMPOTENT };
	gantry_ticket t;
	int r;

	for (uint64_t i = 0; i < ROUND_WORDS; i++) {
		words[i] = mix64(i + honest.rounds * ROUND_WORDS);
		wanted += checksum_word(words[i], i);
	}
	r = gantry_write(session, data, 0, words, sizeof(words));
	if (r == 0)
		r = gantry_submit(session, queue, &task, 1, &t);
	if (r == 0)
		r = gantry_wait(session, &t, 1, 20 * SECOND);
	if (r == 0)
		r = gantry_read(session, sum, 0, &seen, sizeof(seen));
	if (r == 0 && seen != wanted) {
		(void)snprintf(honest.what, sizeof(honest.what), "a checksum came out wrong");
		return GANTRY_E_INTERNAL;
	}
	if (r < 0)
		(void)snprintf(honest.what, sizeof(honest.what), "%s", gantry_last_error());
	return r;
}

static void *honest_work(void *arg)
{
	gantry_queue queue = 0;
	gantry_kernel kernel = 0;
	gantry_buffer data = 0, sum = 0;
	int r = gantry_queue_open(session, NULL, &queue);

	(void)arg;
	if (r == 0)
		r = gantry_kernel_find(session, "checksum", NULL, &kernel);
	if (r == 0)
		r = gantry_alloc(session, ROUND_WORDS * 8, GANTRY_ALLOC_DEVICE, &data);
	if (r == 0)
		r = gantry_alloc(session, 8, GANTRY_ALLOC_DEVICE, &sum);
	while (r == 0 && !honest.stop) {
		r = honest_round(queue, kernel, data, sum);
		if (r == 0)
			honest.rounds++;
		(void)poll(NULL, 0, 1);
	}
	if (r < 0 && !honest.what[0])
		(void)snprintf(honest.what, sizeof(honest.what), "%s", gantry_last_error());
	honest.status = r;
	return NULL;
}

/* ---- commands ---- */

static void do_open(char **w)
{
	struct gantry_limits ask = { .call_timeout_ns = 5 * SECOND };

	for (int i = 1; w[i]; i += 2) {
		uint64_t v = w[i + 1] ? strtoull(w[i + 1], NULL, 0) : 0;

		if (strcmp(w[i], "heap") == 0)
			ask.heap_bytes = v;
		else if (strcmp(w[i], "mem") == 0)
			ask.mem_bytes = v;
		else if (strcmp(w[i], "timeout_ms") == 0)
			ask.call_timeout_ns = (int64_t)v * 1000000;
		if (!w[i + 1])
			break;
	}
	answer(gantry_open(NULL, &ask, &session));
}

static void do_id(char **w)
{
	struct gantry_props p;
	int r = gantry_props_get(session, 0, &p);

	(void)w;
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 "\n", p.session_id);
}

static void do_queue(char **w) /* queue NAME [priority] [mask] [kind] */
{
	struct gantry_queue_options o = { .priority = w[2] ? atoi(w[2]) : 0,
					  .device_mask = w[2] && w[3] ? strtoull(w[3], NULL, 0) : 0,
					  .kind = w[2] && w[3] && w[4] ? (uint32_t)atoi(w[4]) : 0 };
	gantry_queue q = 0;
	int r = gantry_queue_open(session, &o, &q);

	answer_named(r, w[1], q);
}

static void do_pause(char **w) /* pause QUEUE 0|1 */
{
	answer(gantry_queue_set(session, get(w[1]), GANTRY_QUEUE_PAUSED, atoi(w[2])));
}

int find_kernel(const char *name, gantry_kernel *ret_kernel)
{
	char key[32];
	int r = 0;

	/* Found once: a later `run` asks the host for nothing. */
	(void)snprintf(key, sizeof(key), "kernel:%s", name);
	*ret_kernel = get(key);
	if (*ret_kernel == 0)
		r = gantry_kernel_find(session, name, NULL, ret_kernel);
	if (r == 0)
		set(key, *ret_kernel);
	return r;
}

/* run QUEUE TICKET KERNEL [N [ARG [idem]]]: N tasks with one 8-byte argument, or none; TICKET names the last. */
static void do_run(char **w)
{
	int n = w[4] ? atoi(w[4]) : 1;
	int64_t arg = w[4] && w[5] ? strtoll(w[5], NULL, 0) : 0;
	bool has_arg = w[4] && w[5] && strcmp(w[5], "-") != 0;
	struct gantry_task task = { .args = has_arg ? &arg : NULL, .args_bytes = has_arg ? 8 : 0 };
	gantry_ticket t = 0;
	int r = find_kernel(w[3], &task.kernel);

	if (w[4] && w[5] && w[6])
		task.flags = GANTRY_TASK_IDEMPOTENT;
	for (int i = 0; i < n && r == 0; i++)
		r = gantry_submit(session, get(w[1]), &task, 1, &t);
	answer_named(r, w[2], t);
}

static void do_wait(char **w) /* wait TICKET MILLISECONDS */
{
	gantry_ticket t = get(w[1]);
	int64_t ms = atoll(w[2]);

	answer(gantry_wait(session, &t, 1, ms < 0 ? GANTRY_FOREVER : ms * 1000000));
}

/* ends TICKET N: how the N tasks up to it ended, each waited for: "ok OK=3 IN_DOUBT=2" */
static void do_ends(char **w)
{
	static const int statuses[] = {
#define VALUE(name, value, text) value,
		GANTRY_STATUS_LIST(VALUE)
#undef VALUE
	};
	enum {
		N = sizeof(statuses) / sizeof(statuses[0])
	};
	unsigned counts[N] = { 0 }, ok = 0;
	gantry_ticket last = get(w[1]);

	for (int i = atoi(w[2]) - 1; i >= 0; i--) {
		gantry_ticket t = last - (unsigned)i;
		int r = gantry_wait(session, &t, 1, 60 * SECOND);

		ok += r == 0;
		for (int s = 0; s < N; s++)
			counts[s] += statuses[s] == r;
	}
	printf("ok OK=%u", ok);
	for (int s = 0; s < N; s++)
		if (counts[s])
			printf(" %s=%u", status_name(statuses[s]), counts[s]);
	printf("\n");
}

/* outcomes TICKET N: how the N tasks up to it ended, as counts of "ok" and statuses, each waited for. */
static void do_outcomes(char **w)
{
	gantry_ticket last = get(w[1]);
	int n = atoi(w[2]), ok = 0, doubt = 0, fault = 0, deadline = 0, other = 0;

	for (int i = n - 1; i >= 0; i--) {
		gantry_ticket t = last - (unsigned)i;
		int r = gantry_wait(session, &t, 1, 20 * SECOND);

		if (r == 0)
			ok++;
		else if (r == GANTRY_E_IN_DOUBT)
			doubt++;
		else if (r == GANTRY_E_DEVICE_FAULT)
			fault++;
		else if (r == GANTRY_E_DEADLINE)
			deadline++;
		else
			other = r;
	}
	printf("ok %d doubt %d fault %d deadline %d other %d\n", ok, doubt, fault, deadline, other);
}

static void do_test(char **w)
{
	answer(gantry_test(session, get(w[1])));
}

static void do_cancel(char **w)
{
	answer(gantry_cancel(session, get(w[1])));
}

static void do_buffer(char **w) /* buffer NAME BYTES host|device|shared */
{
	unsigned flags = w[3] && strcmp(w[3], "host") == 0 ? GANTRY_ALLOC_HOST
							   : GANTRY_ALLOC_DEVICE;
	gantry_buffer b = 0;
	int r;

	if (w[3] && strcmp(w[3], "shared") == 0)
		flags = GANTRY_ALLOC_SHARED;
	r = gantry_alloc(session, strtoull(w[2], NULL, 0), flags, &b);
	answer_named(r, w[1], b);
}

static void do_free(char **w)
{
	answer(gantry_free(session, get(w[1])));
}

static void do_fill(char **w) /* fill BUFFER BYTES WORD */
{
	uint64_t bytes = strtoull(w[2], NULL, 0), word = strtoull(w[3], NULL, 0);
	uint64_t *mem = malloc(bytes);

	for (uint64_t i = 0; i < bytes / 8; i++)
		mem[i] = word;
	answer(gantry_write(session, get(w[1]), 0, mem, bytes));
	free(mem);
}

static void do_count(char **w) /* count BUFFER BYTES WORD: how many words of it are that */
{
	uint64_t bytes = strtoull(w[2], NULL, 0), word = strtoull(w[3], NULL, 0), n = 0;
	uint64_t *mem = calloc(1, bytes);
	int r = gantry_read(session, get(w[1]), 0, mem, bytes);

	for (uint64_t i = 0; r == 0 && i < bytes / 8; i++)
		n += mem[i] == word;
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 "\n", n);
	free(mem);
}

/* add QUEUE TICKET BUFFER N [idem]: N times y += x over 1 float, x = y's neighbour (bytes 4..8): counts executions. */
static void do_add(char **w)
{
	struct {
		float a;
		uint32_t pad;
		uint64_t x, y, n;
	} args = { .a = 1, .n = 1 };
	struct gantry_access access[2] = {
		{ .buffer = get(w[3]), .off = 4, .len = 4, .mode = GANTRY_R, .arg_off = 8 },
		{ .buffer = get(w[3]), .len = 4, .mode = GANTRY_RW, .arg_off = 16 }
	};
	struct gantry_task task = { .args = &args,
				    .args_bytes = sizeof(args),
				    .naccess = 2,
				    .access = access,
				    .flags = w[5] ? GANTRY_TASK_IDEMPOTENT : 0 };
	gantry_ticket t = 0;
	int r = gantry_kernel_find(session, "saxpy", NULL, &task.kernel);

	for (int i = atoi(w[4]); i > 0 && r == 0; i--)
		r = gantry_submit(session, get(w[1]), &task, 1, &t);
	answer_named(r, w[2], t);
}

static void do_float(char **w) /* float BUFFER [VALUE]: reads y, or sets y to VALUE and x to 1 */
{
	float pair[2] = { w[2] ? strtof(w[2], NULL) : 0, 1 };
	int r = w[2] ? gantry_write(session, get(w[1]), 0, pair, 8)
		     : gantry_read(session, get(w[1]), 0, pair, 8);

	if (r < 0)
		answer(r);
	else
		printf("ok %g\n", (double)pair[0]);
}

static int unix_socket(const char *path, struct sockaddr_un *addr)
{
	*addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(addr->sun_path, sizeof(addr->sun_path), "%.107s", path);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void do_share(
	char **w) /* share BUFFER r|rw PATH: gives it to the next who adopts from PATH */
{
	struct sockaddr_un addr;
	int listener = unix_socket(w[3], &addr), fd = -1, peer;
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int r = gantry_share(session, get(w[1]), strcmp(w[2], "rw") == 0 ? GANTRY_RW : GANTRY_R,
			     &fd);

	answer(r);
	(void)fflush(stdout);
	if (r < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(listener, 1) < 0) {
		close(listener);
		return;
	}
	printf("listening\n");
	(void)fflush(stdout);
	peer = accept(listener, NULL, NULL);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	(void)!sendmsg(peer, &msg, 0);
	close(peer);
	close(listener);
	close(fd);
	(void)unlink(w[3]);
	printf("given\n");
}

static void do_adopt(char **w) /* adopt NAME PATH */
{
	struct sockaddr_un addr;
	int s = unix_socket(w[2], &addr), fd = -1, r;
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	gantry_buffer b = 0;
	uint64_t bytes = 0;

	if (connect(s, (struct sockaddr *)&addr, sizeof(addr)) < 0 || recvmsg(s, &msg, 0) <= 0 ||
	    !CMSG_FIRSTHDR(&msg)) {
		printf("error NONE nothing came over %s: %s\n", w[2], strerror(errno));
		close(s);
		return;
	}
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	close(s);
	r = gantry_adopt(session, fd, &b, &bytes);
	close(fd);
	answer_named(r, w[1], b);
}

static void do_adopt_again(char **w) /* adopt_pipe: a descriptor that is no share */
{
	int fds[2];
	gantry_buffer b;
	uint64_t bytes;

	(void)w;
	if (pipe(fds) < 0)
		abort();
	answer(gantry_adopt(session, fds[0], &b, &bytes));
	close(fds[0]);
	close(fds[1]);
}

static void do_honest(char **w) /* honest start | check | stop */
{
	if (strcmp(w[1], "start") == 0) {
		memset((void *)&honest, 0, sizeof(honest));
		honest.running = pthread_create(&honest.thread, NULL, honest_work, NULL) == 0;
		printf("ok\n");
		return;
	}
	if (strcmp(w[1], "check") == 0) {
		uint64_t wanted = honest.rounds + 3;

		for (int i = 0; i < 20000 && honest.status == 0 && honest.rounds < wanted; i++)
			(void)poll(NULL, 0, 1);
		if (honest.status < 0)
			printf("error %s %s\n", status_name(honest.status), honest.what);
		else if (honest.rounds < wanted)
			printf("error STUCK no round in twenty seconds\n");
		else
			printf("ok %" PRIu64 "\n", honest.rounds);
		return;
	}
	honest.stop = true;
	(void)pthread_join(honest.thread, NULL);
	printf("ok %" PRIu64 "\n", honest.rounds);
}

static void do_stats(char **w)
{
	struct gantry_stats st;
	int r = gantry_stats_get(session, &st);

	(void)w;
	if (r < 0)
		answer(r);
	else
		printf("ok finished %" PRIu64 " failed %" PRIu64 " device_ns %" PRIu64
		       " restarts %" PRIu64 "\n",
		       st.tasks_finished, st.tasks_failed, st.device_ns, st.worker_restarts);
}

static void do_fork(char **w) /* fork QUEUE: what a child gets from each call */
{
	gantry_ticket t = GANTRY_TICKET(1, 1);
	gantry_buffer b;
	struct gantry_props p;
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int bad = 0;

		bad += gantry_alloc(session, 64, 0, &b) != GANTRY_E_FORKED;
		bad += gantry_submit_marker(session, get(w[1]), &t) != GANTRY_E_FORKED;
		bad += gantry_wait(session, &t, 1, GANTRY_FOREVER) != GANTRY_E_FORKED;
		bad += gantry_test(session, t) != GANTRY_E_FORKED;
		bad += gantry_props_get(session, 0, &p) != GANTRY_E_FORKED;
		bad += gantry_cancel(session, get(w[1])) != GANTRY_E_FORKED;
		gantry_close(session);
		session = NULL;
		bad += gantry_open(NULL, NULL, &session) !=
		       0; /* a session of its own is the child's right */
		gantry_close(session);
		_exit(bad);
	}
	(void)waitpid(pid, &status, 0);
	printf("ok %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void do_close(char **w)
{
	(void)w;
	gantry_close(session);
	session = NULL;
	memset(named, 0, sizeof(named));
	printf("ok\n");
}

static void do_close_queue(char **w)
{
	answer(gantry_queue_close(session, get(w[1])));
}

static void do_exit(char **w)
{
	(void)fflush(stdout);
	exit(w[1] ? atoi(w[1]) : 0);
}

static const struct command {
	const char *name;
	int nwords; /* at least, itself included */
	void (*fn)(char **words);
} commands[] = {
	{ "open", 1, do_open },
	{ "id", 1, do_id },
	{ "queue", 2, do_queue },
	{ "pause", 3, do_pause },
	{ "run", 4, do_run },
	{ "wait", 3, do_wait },
	{ "outcomes", 3, do_outcomes },
	{ "ends", 3, do_ends },
	{ "props", 1, do_props },
	{ "usage", 1, do_usage },
	{ "random", 4, do_random },
	{ "same", 4, do_same },
	{ "word", 3, do_word },
	{ "expect", 3, do_expect },
	{ "sum", 4, do_sum },
	{ "pattern", 7, do_pattern },
	{ "copy", 8, do_copy },
	{ "image", 4, do_image },
	{ "image_find", 3, do_image_find },
	{ "image_free", 2, do_image_free },
	{ "kernel", 4, do_kernel },
	{ "find", 3, do_find },
	{ "launch", 8, do_launch },
	{ "first", 2, do_first },
	{ "deep", 2, do_deep },
	{ "test", 2, do_test },
	{ "cancel", 2, do_cancel },
	{ "buffer", 3, do_buffer },
	{ "free", 2, do_free },
	{ "fill", 4, do_fill },
	{ "count", 4, do_count },
	{ "add", 5, do_add },
	{ "float", 2, do_float },
	{ "share", 4, do_share },
	{ "adopt", 3, do_adopt },
	{ "adopt_pipe", 1, do_adopt_again },
	{ "honest", 2, do_honest },
	{ "stats", 1, do_stats },
	{ "fork", 2, do_fork },
	{ "close", 1, do_close },
	{ "close_queue", 2, do_close_queue },
	{ "exit", 1, do_exit },
};

static void obey(char *line)
{
	char *words[MAX_WORDS + 1] = { 0 };
	char *save;
	int n = 0;

	for (char *word = strtok_r(line, " \n", &save); word && n < MAX_WORDS;
	     word = strtok_r(NULL, " \n", &save))
		words[n++] = word;
	if (n == 0)
		return;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, words[0]) == 0 && n >= commands[i].nwords) {
			commands[i].fn(words);
			return;
		}
	printf("error NONE what is %s?\n", words[0]);
}

int main(void)
{
	char line[2048];

	(void)signal(SIGPIPE, SIG_IGN);
	while (fgets(line, sizeof(line), stdin)) {
		obey(line);
		(void)fflush(stdout);
	}
	return 0;
}
