/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders (B: a buffer's number, Q: a queue's, J: a job's; all small):
 *   open [MS] | close | exit          a session, with a call timeout; exit leaves without closing
 *   queue Q | endqueue Q | cancel Q
 *   alloc B BYTES [host|device|shared] | free B | map B | unmap
 *   fill B WORD                       the whole buffer, and waits
 *   count B WORD                      "words=N same=N zero=N": how much of it is WORD, or zero
 *   sum B                             its checksum by the device, and by us
 *   put Q KERNEL [NUMBER] [TIMES]     empty, spin NS, endless, stuck, crash, fail N, add B (to its elements in turn),
 *                                     sum B (its checksum into buffer 15, the I-th of a row to the I-th word)
 *   pattern Q B WORD                  a fill of the buffer, not waited for
 *   answer I B WORD                   whether the I-th checksum is that of the buffer full of WORD
 *   wait Q MS                         for what was put: "0=95 -15=3", by status
 *   status Q N                        of the N-th task put, as gantry_test() says
 *   many Q N                          N empty tasks, 64 at a time, waited for
 *   kind N                            opens a queue for devices of that kind
 *   share B r|rw FD | adopt B FD      through a socket
 *   fork                              what the calls answer in a child
 *   job J adds|pairs|churn|loop [LIMIT] | rounds J | end J [now]
 *   stats
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/guests/actor.h"

#define NBUFFERS 16u
#define NQUEUES	 16u
#define NTICKETS 8192u
#define NKERNELS 16u
#define SUMS	 15u
#define MS	 INT64_C(1000000)

struct queue {
	gantry_queue handle;
	gantry_ticket *tickets;
	unsigned n;
};

static struct gantry_session *session;
static gantry_buffer buffers[NBUFFERS];
static uint64_t buffer_bytes[NBUFFERS];
static struct queue queues[NQUEUES];
static void *mapped;
static gantry_buffer one; /* holds 1.0f */
static char said[512];
static unsigned nknown;
static struct {
	char name[32];
	gantry_kernel kernel;
} known[NKERNELS];

/* ---- words of an order ---- */

static const char *word(char **words, unsigned i)
{
	return words[i] ? words[i] : "";
}

static uint64_t number(char **words, unsigned i)
{
	return strtoull(word(words, i), NULL, 0);
}

static unsigned index_of(char **words, unsigned i)
{
	return (unsigned)number(words, i) % NBUFFERS;
}

/* ---- orders ---- */

static int do_open(char **w)
{
	struct gantry_limits ask = { .call_timeout_ns = (int64_t)number(w, 1) * MS };
	struct gantry_props props;
	int r = gantry_open(NULL, &ask, &session);

	if (r == 0)
		r = gantry_props_get(session, 0, &props);
	if (r == 0)
		(void)snprintf(said, sizeof(said), "%llu", (unsigned long long)props.session_id);
	return r;
}

static int do_close(char **w)
{
	(void)w;
	gantry_close(session);
	session = NULL;
	one = buffers[SUMS] = 0;
	nknown = 0;
	return 0;
}

static int do_exit(char **w)
{
	(void)w;
	exit(0);
}

static int do_queue(char **w)
{
	struct queue *q = &queues[index_of(w, 1)];

	q->n = 0;
	if (!q->tickets)
		q->tickets = calloc(NTICKETS, sizeof(*q->tickets));
	return q->tickets ? gantry_queue_open(session, NULL, &q->handle) : GANTRY_E_NO_MEMORY;
}

static int do_endqueue(char **w)
{
	return gantry_queue_close(session, queues[index_of(w, 1)].handle);
}

static int do_cancel(char **w)
{
	return gantry_cancel(session, queues[index_of(w, 1)].handle);
}

static int do_kind(char **w)
{
	struct gantry_queue_options options = { .kind = (uint32_t)number(w, 1) };
	gantry_queue queue;

	return gantry_queue_open(session, &options, &queue);
}

static int do_alloc(char **w)
{
	unsigned b = index_of(w, 1);
	const char *how = word(w, 3);
	unsigned flags = strcmp(how, "host") == 0     ? GANTRY_ALLOC_HOST
			 : strcmp(how, "device") == 0 ? GANTRY_ALLOC_DEVICE
			 : strcmp(how, "shared") == 0 ? GANTRY_ALLOC_SHARED
						      : 0;

	buffer_bytes[b] = number(w, 2);
	return gantry_alloc(session, buffer_bytes[b], flags, &buffers[b]);
}

static int do_free(char **w)
{
	return gantry_free(session, buffers[index_of(w, 1)]);
}

static int do_map(char **w)
{
	unsigned b = index_of(w, 1);

	return gantry_map(session, buffers[b], 0, buffer_bytes[b], GANTRY_RW, 30000 * MS, &mapped);
}

static int do_unmap(char **w)
{
	(void)w;
	return gantry_unmap(session, mapped);
}

static int do_fill(char **w)
{
	unsigned b = index_of(w, 1);
	uint64_t *words = malloc(buffer_bytes[b]);
	int r;

	if (!words)
		return GANTRY_E_NO_MEMORY;
	for (uint64_t i = 0; i < buffer_bytes[b] / 8; i++)
		words[i] = number(w, 2);
	r = gantry_write(session, buffers[b], 0, words, buffer_bytes[b]);
	free(words);
	return r;
}

static int do_count(char **w)
{
	unsigned b = index_of(w, 1);
	uint64_t *words = malloc(buffer_bytes[b]);
	uint64_t wanted = number(w, 2), same = 0, zero = 0, n = buffer_bytes[b] / 8;
	int r;

	if (!words)
		return GANTRY_E_NO_MEMORY;
	r = gantry_read(session, buffers[b], 0, words, buffer_bytes[b]);
	for (uint64_t i = 0; r == 0 && i < n; i++) {
		same += words[i] == wanted;
		zero += words[i] == 0;
	}
	(void)snprintf(said, sizeof(said), "words=%llu same=%llu zero=%llu", (unsigned long long)n,
		       (unsigned long long)same, (unsigned long long)zero);
	free(words);
	return r;
}

static int need_sums(void)
{
	if (buffers[SUMS])
		return 0;
	buffer_bytes[SUMS] = 8 * NTICKETS;
	return gantry_alloc(session, buffer_bytes[SUMS], GANTRY_ALLOC_DEVICE, &buffers[SUMS]);
}

static int need_one(void)
{
	const float value = 1.0f;
	int r;

	if (one)
		return 0;
	r = gantry_alloc(session, sizeof(value), GANTRY_ALLOC_DEVICE, &one);
	return r == 0 ? gantry_write(session, one, 0, &value, sizeof(value)) : r;
}

/* The kernel and its arguments for the @i-th of a row of tasks. */
static int prepare(struct launch *l, const char *name, char **w, unsigned i, gantry_kernel kernel)
{
	int r = 0;

	if (strcmp(name, "add") == 0) {
		r = need_one();
		launch_add(l, kernel, one, buffers[index_of(w, 3)],
			   i % (buffer_bytes[index_of(w, 3)] / 4));
		return r;
	}
	if (strcmp(name, "sum") == 0) {
		unsigned b = index_of(w, 3);

		r = need_sums();
		launch_checksum(l, kernel, buffers[b], buffer_bytes[b], buffers[SUMS],
				i % NTICKETS);
		return r;
	}
	*l = (struct launch){ .task.kernel = kernel, .args.ns = number(w, 3) };
	if (strcmp(name, "spin") == 0 || strcmp(name, "gpu_spin") == 0 ||
	    strcmp(name, "gpu_again") == 0 || strncmp(name, "gpu_code", strlen("gpu_code")) == 0)
		l->task.args_bytes = 8;
	if (strcmp(name, "fail") == 0) {
		l->args.answer = (int32_t)number(w, 3);
		l->task.args_bytes = 4;
	}
	l->task.args = l->task.args_bytes ? &l->args : NULL;
	return 0;
}

/* By name, looked for once: while the only core of a device computes, nobody answers. */
static int find_kernel(const char *name, gantry_kernel *ret_kernel)
{
	int r;

	for (unsigned i = 0; i < nknown; i++)
		if (strcmp(known[i].name, name) == 0) {
			*ret_kernel = known[i].kernel;
			return 0;
		}
	r = gantry_kernel_find(session, name, NULL, ret_kernel);
	if (r == 0 && nknown < NKERNELS) {
		(void)snprintf(known[nknown].name, sizeof(known[nknown].name), "%s", name);
		known[nknown++].kernel = *ret_kernel;
	}
	return r;
}

static int do_find(char **w)
{
	gantry_kernel kernel;

	return find_kernel(word(w, 1), &kernel);
}

static int do_pattern(char **w)
{
	struct queue *q = &queues[index_of(w, 1)];
	unsigned b = index_of(w, 2);
	int r = q->n < NTICKETS
			? gantry_submit_fill(session, q->handle, buffers[b], 0, buffer_bytes[b],
					     number(w, 3), 8, &q->tickets[q->n])
			: GANTRY_E_ARG;

	q->n += r == 0;
	return r;
}

static int do_answer(char **w)
{
	unsigned b = index_of(w, 2);
	uint64_t n = buffer_bytes[b] / 8, sum;
	uint64_t *words = malloc(buffer_bytes[b]);
	int r = words ? gantry_read(session, buffers[SUMS], 8 * number(w, 1), &sum, sizeof(sum))
		      : GANTRY_E_NO_MEMORY;

	for (uint64_t i = 0; r == 0 && i < n; i++)
		words[i] = number(w, 3);
	if (r == 0)
		(void)snprintf(said, sizeof(said), "%s",
			       sum == checksum_of(words, n) ? "same" : "different");
	free(words);
	return r;
}

static int do_put(char **w)
{
	struct queue *q = &queues[index_of(w, 1)];
	const char *name = word(w, 2);
	const char *kernel_name = strcmp(name, "add") == 0   ? "saxpy"
				  : strcmp(name, "sum") == 0 ? "checksum"
							     : name;
	unsigned times = w[3] && w[4] ? (unsigned)number(w, 4) : 1;
	gantry_kernel kernel;
	struct launch l;
	int r = find_kernel(kernel_name, &kernel);

	for (unsigned i = 0; r == 0 && i < times && q->n < NTICKETS; i++) {
		r = prepare(&l, name, w, i, kernel);
		if (r == 0)
			r = gantry_submit(session, q->handle, &l.task, 1, &q->tickets[q->n]);
		if (r == 0)
			q->n++;
	}
	return r;
}

static int do_wait(char **w)
{
	const struct queue *q = &queues[index_of(w, 1)];
	struct tally tally = { 0 };
	int r = 0;

	for (unsigned i = 0; i < q->n; i++) {
		r = gantry_wait(session, &q->tickets[i], 1, (int64_t)number(w, 2) * MS);
		if (r == GANTRY_E_TIMEOUT || (r <= GANTRY_E_PROTOCOL && r > GANTRY_E_DEVICE_FAULT))
			return r;
		tally_add(&tally, r);
	}
	tally_print(&tally, said, sizeof(said));
	return 0;
}

static int do_status(char **w)
{
	const struct queue *q = &queues[index_of(w, 1)];

	if (number(w, 2) >= q->n)
		return GANTRY_E_ARG;
	(void)snprintf(said, sizeof(said), "%d", gantry_test(session, q->tickets[number(w, 2)]));
	return 0;
}

static int do_sum(char **w)
{
	unsigned b = index_of(w, 1);
	uint64_t *words = malloc(buffer_bytes[b]);
	uint64_t theirs = 0;
	gantry_kernel kernel;
	gantry_queue queue;
	gantry_ticket ticket = 0;
	struct launch l;
	int r = words ? need_sums() : GANTRY_E_NO_MEMORY;

	if (r == 0)
		r = gantry_kernel_find(session, "checksum", NULL, &kernel);
	if (r == 0)
		r = gantry_queue_open(session, NULL, &queue);
	if (r == 0) {
		launch_checksum(&l, kernel, buffers[b], buffer_bytes[b], buffers[SUMS], 0);
		r = gantry_submit(session, queue, &l.task, 1, &ticket);
	}
	if (r == 0)
		r = gantry_wait(session, &ticket, 1, 30000 * MS);
	if (r == 0)
		r = gantry_read(session, buffers[SUMS], 0, &theirs, sizeof(theirs));
	if (r == 0)
		r = gantry_read(session, buffers[b], 0, words, buffer_bytes[b]);
	if (r == 0)
		(void)snprintf(said, sizeof(said), "%s",
			       theirs == checksum_of(words, buffer_bytes[b] / 8) ? "same"
										 : "different");
	free(words);
	return r;
}

static int do_many(char **w)
{
	const struct queue *q = &queues[index_of(w, 1)];
	struct gantry_task tasks[64] = { 0 };
	gantry_kernel kernel;
	int r = find_kernel("empty", &kernel);

	for (unsigned i = 0; i < 64; i++)
		tasks[i].kernel = kernel;
	for (uint64_t done = 0; r == 0 && done < number(w, 2); done += 64) {
		gantry_ticket last;

		r = gantry_submit(session, q->handle, tasks, 64, &last);
		if (r == 0)
			r = gantry_wait(session, &last, 1, 30000 * MS);
	}
	return r;
}

/* ---- two processes ---- */

static int send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = said, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) < 0 ? GANTRY_E_INTERNAL : 0;
}

static int receive_fd(int sock, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return GANTRY_E_INTERNAL;
	memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*ret_fd));
	return 0;
}

static int do_share(char **w)
{
	int fd;
	int r = gantry_share(session, buffers[index_of(w, 1)],
			     strcmp(word(w, 2), "rw") == 0 ? GANTRY_RW : GANTRY_R, &fd);

	if (r < 0)
		return r;
	r = send_fd((int)number(w, 3), fd);
	(void)close(fd);
	return r;
}

static int do_adopt(char **w)
{
	unsigned b = index_of(w, 1);
	int fd;
	int r = receive_fd((int)number(w, 2), &fd);

	if (r < 0)
		return r;
	r = gantry_adopt(session, fd, &buffers[b], &buffer_bytes[b]);
	(void)close(fd);
	return r;
}

static void in_child(int to)
{
	struct gantry_task task = { 0 };
	gantry_buffer buffer = 0;
	gantry_ticket ticket = 0;
	char text[128];
	int alloc = gantry_alloc(session, 4096, 0, &buffer);
	int submit = gantry_submit(session, queues[0].handle, &task, 1, &ticket);
	int wait = gantry_wait(session, queues[0].tickets, 1, 0);
	int n;

	gantry_close(session);
	n = snprintf(text, sizeof(text), "alloc=%d submit=%d wait=%d closed", alloc, submit, wait);
	_exit(write(to, text, (size_t)n) == n ? 0 : 1);
}

static int do_fork(char **w)
{
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	(void)w;
	if (pipe(fds) < 0)
		return GANTRY_E_INTERNAL;
	pid = fork();
	if (pid == 0)
		in_child(fds[1]);
	(void)close(fds[1]);
	n = read(fds[0], said, sizeof(said) - 1);
	said[n > 0 ? n : 0] = '\0';
	(void)close(fds[0]);
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : GANTRY_E_INTERNAL;
}

/* ---- jobs ---- */

static int do_job(char **w)
{
	return job_start(session, (unsigned)number(w, 1), word(w, 2), number(w, 3));
}

static int do_rounds(char **w)
{
	(void)snprintf(said, sizeof(said), "%llu",
		       (unsigned long long)job_rounds((unsigned)number(w, 1)));
	return 0;
}

static int do_end(char **w)
{
	return job_end((unsigned)number(w, 1), strcmp(word(w, 2), "now") == 0, said, sizeof(said));
}

static int do_stats(char **w)
{
	struct gantry_stats stats;
	int r = gantry_stats_get(session, &stats);

	(void)w;
	if (r == 0)
		(void)snprintf(
			said, sizeof(said),
			"submitted=%llu finished=%llu failed=%llu resident=%llu restarts=%llu",
			(unsigned long long)stats.tasks_submitted,
			(unsigned long long)stats.tasks_finished,
			(unsigned long long)stats.tasks_failed,
			(unsigned long long)stats.resident_bytes,
			(unsigned long long)stats.worker_restarts);
	return r;
}

/* ---- standard input ---- */

static const struct {
	const char *name;
	int (*fn)(char **words);
} orders[] = {
	{ "open", do_open },	 { "close", do_close },	      { "exit", do_exit },
	{ "queue", do_queue },	 { "endqueue", do_endqueue }, { "cancel", do_cancel },
	{ "kind", do_kind },	 { "alloc", do_alloc },	      { "free", do_free },
	{ "map", do_map },	 { "unmap", do_unmap },	      { "fill", do_fill },
	{ "count", do_count },	 { "put", do_put },	      { "wait", do_wait },
	{ "status", do_status }, { "sum", do_sum },	      { "many", do_many },
	{ "share", do_share },	 { "adopt", do_adopt },	      { "fork", do_fork },
	{ "job", do_job },	 { "rounds", do_rounds },     { "end", do_end },
	{ "stats", do_stats },	 { "find", do_find },	      { "pattern", do_pattern },
	{ "answer", do_answer },
};

static int obey(char **words)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (strcmp(words[0], orders[i].name) == 0)
			return orders[i].fn(words);
	return GANTRY_E_UNSUPPORTED;
}

int main(void)
{
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		char *words[8] = { 0 }, *save = NULL;
		unsigned n = 0;
		int r;

		for (char *w = strtok_r(line, " \n", &save); w && n < 7;
		     w = strtok_r(NULL, " \n", &save))
			words[n++] = w;
		if (n == 0)
			continue;
		said[0] = '\0';
		r = obey(words);
		if (r < 0)
			printf("err %d %s %s\n", r, gantry_last_error(), said);
		else
			printf("ok %s\n", said);
		fflush(stdout);
	}
	return 0;
}
