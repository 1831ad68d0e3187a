/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest program on strings: each line on standard input is a command, each answer one line, "ok WORD..." or
 * "err STATUS SENTENCE". It ends when its input does. See tests/system/puppet.py.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guest-shim/gantry.h"

#define NQUEUES	     16u
#define NBUFFERS     64u
#define NWORDS	     8u
#define CHAIN_FLOATS 1024u
#define FLOOD_MAX    64u
#define RTT_MAX	     4096u

static struct gantry_session *session;
static gantry_queue queues[NQUEUES];
static gantry_ticket last[NQUEUES];
static gantry_buffer buffers[NBUFFERS];
static gantry_kernel kernel;

static int answer(int status)
{
	if (status < 0)
		printf("err %d %s\n", status,
		       *gantry_last_error() ? gantry_last_error() : gantry_strerror(status));
	return status;
}

static uint64_t number(const char *word)
{
	return word ? strtoull(word, NULL, 0) : 0;
}

static unsigned slot(const char *word, unsigned n)
{
	uint64_t value = number(word);

	if (value >= n) {
		fprintf(stderr, "no slot %s\n", word);
		exit(2);
	}
	return (unsigned)value;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* open [HEAP [MEM [VIRTUAL [NQUEUES [NSLOTS]]]]] */
static void do_open(char **w)
{
	const struct gantry_limits ask = {
		.heap_bytes = number(w[1]),
		.mem_bytes = number(w[1] ? w[2] : NULL),
		.virtual_bytes = number(w[1] && w[2] ? w[3] : NULL),
		.call_timeout_ns = 30 * INT64_C(1000000000),
	};
	struct gantry_props props;

	if (answer(gantry_open(NULL, &ask, &session)) < 0 ||
	    answer(gantry_props_get(session, GANTRY_KIND_ANY, &props)) < 0)
		return;
	printf("ok %" PRIu64 " %u %" PRIi32 "\n", props.session_id, props.ndevices,
	       props.priority_max);
}

/* queue SLOT [PRIORITY [MASK]] */
static void do_queue(char **w)
{
	const struct gantry_queue_options options = {
		.priority = w[2] ? atoi(w[2]) : 0,
		.device_mask = number(w[2] ? w[3] : NULL),
	};
	unsigned q = slot(w[1], NQUEUES);

	if (answer(gantry_queue_open(session, &options, &queues[q])) == 0)
		printf("ok %u\n", GANTRY_HANDLE_SLOT(queues[q]));
}

/* set SLOT KEY VALUE */
static void do_set(char **w)
{
	if (answer(gantry_queue_set(session, queues[slot(w[1], NQUEUES)], atoi(w[2]),
				    atoll(w[3]))) == 0)
		printf("ok\n");
}

/* alloc SLOT BYTES [FLAGS] */
static void do_alloc(char **w)
{
	if (answer(gantry_alloc(session, number(w[2]), (unsigned)number(w[3]),
				&buffers[slot(w[1], NBUFFERS)])) == 0)
		printf("ok\n");
}

/* free SLOT */
static void do_free(char **w)
{
	if (answer(gantry_free(session, buffers[slot(w[1], NBUFFERS)])) == 0)
		printf("ok\n");
}

/* fill QUEUE BUFFER BYTES PATTERN: a task; it backs the memory */
static void do_fill(char **w)
{
	unsigned q = slot(w[1], NQUEUES);

	if (answer(gantry_submit_fill(session, queues[q], buffers[slot(w[2], NBUFFERS)], 0,
				      number(w[3]), number(w[4]), 8, &last[q])) == 0)
		printf("ok\n");
}

/* peek BUFFER OFF: the 64-bit word there */
static void do_peek(char **w)
{
	uint64_t word;

	if (answer(gantry_read(session, buffers[slot(w[1], NBUFFERS)], number(w[2]), &word,
			       sizeof(word))) == 0)
		printf("ok %" PRIu64 "\n", word);
}

/* kernel NAME: the one that launch launches */
static void do_kernel(char **w)
{
	if (answer(gantry_kernel_find(session, w[1], NULL, &kernel)) == 0)
		printf("ok\n");
}

static int launch(unsigned q, gantry_kernel k, const void *args, uint32_t args_bytes,
		  const struct gantry_access *access, unsigned naccess)
{
	const struct gantry_task task = {
		.kernel = k,
		.args = args,
		.args_bytes = args_bytes,
		.access = access,
		.naccess = naccess,
	};

	return gantry_submit(session, queues[q], &task, 1, &last[q]);
}

/* launch QUEUE [NUMBER [BYTES [COUNT]]]: tasks of the kernel with no argument, or one of BYTES */
static void do_launch(char **w)
{
	uint64_t value = number(w[2]);
	uint32_t bytes = w[2] && w[3] ? (uint32_t)number(w[3]) : w[2] ? 8 : 0;
	uint64_t count = w[2] && w[3] && w[4] ? number(w[4]) : 1;

	for (uint64_t i = 0; i < count; i++)
		if (answer(launch(slot(w[1], NQUEUES), kernel, bytes ? &value : NULL, bytes, NULL,
				  0)) < 0)
			return;
	printf("ok\n");
}

static int find_spin(gantry_kernel *ret_spin)
{
	static gantry_kernel spin;
	int r = spin ? 0 : gantry_kernel_find(session, "spin", "u64", &spin);

	*ret_spin = spin;
	return r;
}

/* spin QUEUE NS [COUNT] */
static void do_spin(char **w)
{
	uint64_t ns = number(w[2]), count = w[3] ? number(w[3]) : 1;
	gantry_kernel spin;
	int r = find_spin(&spin);

	for (uint64_t i = 0; i < count && r == 0; i++)
		r = launch(slot(w[1], NQUEUES), spin, &ns, sizeof(ns), NULL, 0);
	if (answer(r) == 0)
		printf("ok\n");
}

/* wait QUEUE [MS] */
static void do_wait(char **w)
{
	int64_t timeout_ns = w[2] ? (int64_t)number(w[2]) * 1000000 : GANTRY_FOREVER;

	if (answer(gantry_wait(session, &last[slot(w[1], NQUEUES)], 1, timeout_ns)) == 0)
		printf("ok\n");
}

/* One buffer of @bytes with @value in its first CHAIN_FLOATS elements. */
static int chain_buffer(uint64_t bytes, float value, gantry_buffer *ret_buffer)
{
	float values[CHAIN_FLOATS];
	int r = gantry_alloc(session, bytes, GANTRY_ALLOC_DEVICE, ret_buffer);

	for (unsigned i = 0; i < CHAIN_FLOATS; i++)
		values[i] = value;
	return r < 0 ? r : gantry_write(session, *ret_buffer, 0, values, sizeof(values));
}

struct chain {
	gantry_buffer a, b, ones;
	gantry_kernel scale, saxpy, spin;
};
static struct chain chains[NQUEUES];

static int chain_make(struct chain *c, uint64_t bytes)
{
	int r = chain_buffer(bytes, 0, &c->a);

	r = r < 0 ? r : chain_buffer(bytes, 0, &c->b);
	r = r < 0 ? r : chain_buffer(sizeof(float) * CHAIN_FLOATS, 1, &c->ones);
	r = r < 0 ? r : gantry_kernel_find(session, "vscale", "f32,r:f32*,w:f32*,u64", &c->scale);
	r = r < 0 ? r : gantry_kernel_find(session, "saxpy", "f32,r:f32*,rw:f32*,u64", &c->saxpy);
	return r < 0 ? r : find_spin(&c->spin);
}

/* b = -a; b += step: not the same in any other order */
static int chain_step(struct chain *c, unsigned q, float step, uint64_t spin_ns)
{
	struct {
		float alpha;
		uint64_t x, y, n;
	} args = { .alpha = -1, .n = CHAIN_FLOATS };
	struct gantry_access access[2] = {
		{ .buffer = c->a, .mode = GANTRY_R, .arg_off = 8 },
		{ .buffer = c->b, .mode = GANTRY_W, .arg_off = 16 },
	};
	gantry_buffer swap = c->a;
	int r = launch(q, c->scale, &args, sizeof(args), access, 2);

	if (r == 0 && spin_ns)
		r = launch(q, c->spin, &spin_ns, sizeof(spin_ns), NULL, 0);
	if (r < 0)
		return r;
	args.alpha = step;
	access[0].buffer = c->ones;
	access[1].mode = GANTRY_RW;
	r = launch(q, c->saxpy, &args, sizeof(args), access, 2);
	c->a = c->b;
	c->b = swap;
	return r;
}

/* chain QUEUE STEPS SPIN_NS [BYTES]: submits; the value becomes step - value at each step */
static void do_chain(char **w)
{
	unsigned q = slot(w[1], NQUEUES);
	uint64_t steps = number(w[2]), spin_ns = number(w[3]);
	int r = chains[q].a ? 0 : chain_make(&chains[q], w[4] ? number(w[4]) : 4 * CHAIN_FLOATS);

	for (uint64_t i = 1; i <= steps && r == 0; i++)
		r = chain_step(&chains[q], q, (float)i, spin_ns);
	if (answer(r) == 0)
		printf("ok\n");
}

/* value QUEUE: that of the chain, after all that was submitted; all elements have to be equal */
static void do_value(char **w)
{
	float values[CHAIN_FLOATS];

	if (answer(gantry_read(session, chains[slot(w[1], NQUEUES)].a, 0, values, sizeof(values))) <
	    0)
		return;
	for (unsigned i = 1; i < CHAIN_FLOATS; i++)
		if (values[i] != values[0]) {
			printf("ok different\n");
			return;
		}
	printf("ok %.0f\n", (double)values[0]);
}

static int told_to_stop(void)
{
	struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

/* flood QUEUE NS DEPTH: "ok", then keeps DEPTH tasks in flight until the next line, then "ok COUNT" */
static void do_flood(char **w)
{
	unsigned q = slot(w[1], NQUEUES), depth = slot(w[3], FLOOD_MAX);
	gantry_ticket pending[FLOOD_MAX] = { 0 };
	uint64_t ns = number(w[2]), count = 0;
	gantry_kernel spin;
	int r = find_spin(&spin);

	if (answer(r) < 0)
		return;
	printf("ok\n");
	fflush(stdout);
	for (unsigned i = 0; r == 0 && !told_to_stop(); i = (i + 1) % depth, count++) {
		r = gantry_wait(session, &pending[i], 1, GANTRY_FOREVER);
		if (r == 0)
			r = launch(q, spin, &ns, sizeof(ns), NULL, 0);
		pending[i] = last[q];
	}
	if (answer(r) == 0)
		printf("ok %" PRIu64 "\n", count);
}

/* The next task of a fleet's queue, when its oldest has finished. 1: submitted; 0: not yet. */
static int fleet_step(unsigned q, gantry_kernel spin, uint64_t ns, gantry_ticket *oldest)
{
	int r = *oldest ? gantry_test(session, *oldest) : 1;

	if (r <= 0)
		return r;
	r = launch(q, spin, &ns, sizeof(ns), NULL, 0);
	*oldest = last[q];
	return r < 0 ? r : 1;
}

/* fleet N NS COUNT [DEPTH]: COUNT tasks in each of the queues from 0 on, DEPTH in flight; "ok NS", of all of it */
static void do_fleet(char **w)
{
	static gantry_ticket pending[NQUEUES][FLOOD_MAX];
	uint64_t ns = number(w[2]), count = number(w[3]), put[NQUEUES] = { 0 }, start = now_ns();
	unsigned n = slot(w[1], NQUEUES + 1), depth = w[4] ? slot(w[4], FLOOD_MAX) : 8;
	unsigned left = n;
	gantry_kernel spin;
	int r = find_spin(&spin);

	memset(pending, 0, sizeof(pending));
	while (r >= 0 && left > 0) {
		unsigned moved = 0;

		for (unsigned q = 0; q < n && r >= 0; q++) {
			if (put[q] == count)
				continue;
			r = fleet_step(q, spin, ns, &pending[q][put[q] % depth]);
			moved += r > 0;
			put[q] += r > 0;
			left -= r > 0 && put[q] == count;
		}
		if (r >= 0 && !moved)
			(void)poll(NULL, 0, 1);
	}
	for (unsigned q = 0; q < n && r >= 0; q++)
		r = gantry_wait(session, &last[q], 1, GANTRY_FOREVER);
	if (answer(r) == 0)
		printf("ok %" PRIu64 "\n", now_ns() - start);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* rtt QUEUE NS COUNT: "ok MEDIAN MAX" in ns, of spin tasks one after the other */
static void do_rtt(char **w)
{
	static uint64_t times[RTT_MAX];
	unsigned q = slot(w[1], NQUEUES), count = slot(w[3], RTT_MAX);
	uint64_t ns = number(w[2]);
	gantry_kernel spin;
	int r = find_spin(&spin);

	for (unsigned i = 0; i < count && r == 0; i++) {
		uint64_t start = now_ns();

		r = launch(q, spin, &ns, sizeof(ns), NULL, 0);
		if (r == 0)
			r = gantry_wait(session, &last[q], 1, GANTRY_FOREVER);
		times[i] = now_ns() - start;
	}
	if (answer(r) < 0)
		return;
	qsort(times, count, sizeof(times[0]), ascending);
	printf("ok %" PRIu64 " %" PRIu64 "\n", times[count / 2], times[count - 1]);
}

/* stats: tasks finished, failed, device time in ns, resident bytes */
static void do_stats(char **w)
{
	struct gantry_stats stats;

	(void)w;
	if (answer(gantry_stats_get(session, &stats)) == 0)
		printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", stats.tasks_finished,
		       stats.tasks_failed, stats.device_ns, stats.resident_bytes);
}

/* key: of the session, in hex */
static void do_key(char **w)
{
	uint8_t key[GANTRY_KEY_BYTES];

	(void)w;
	if (answer(gantry_session_key(session, key)) < 0)
		return;
	printf("ok ");
	for (unsigned i = 0; i < sizeof(key); i++)
		printf("%02x", key[i]);
	printf("\n");
}

/* adopt KEY MS: the session with that key; "ok SESSION" */
static void do_adopt(char **w)
{
	struct gantry_session *adopted;
	uint8_t key[GANTRY_KEY_BYTES];
	struct gantry_props props;

	for (unsigned i = 0; i < sizeof(key); i++)
		if (sscanf(w[1] + 2 * i, "%2hhx", &key[i]) != 1) {
			printf("err 0 a key has %zu digits\n", 2 * sizeof(key));
			return;
		}
	if (answer(gantry_session_adopt(NULL, key, (int64_t)number(w[2]) * 1000000, &adopted)) < 0)
		return;
	gantry_close(session);
	session = adopted;
	if (answer(gantry_props_get(session, GANTRY_KIND_ANY, &props)) == 0)
		printf("ok %" PRIu64 "\n", props.session_id);
}

/* found: the session's queues become 0, 1 ...; "ok SLOT:SUBMITTED:FINISHED ..." */
static void do_found(char **w)
{
	struct gantry_queue_found q = { 0 };
	unsigned n = 0;
	int r;

	(void)w;
	printf("ok");
	while ((r = gantry_queue_next(session, q.queue, &q)) > 0 && n < NQUEUES) {
		printf(" %u:%" PRIu64 ":%" PRIu64, q.slot, q.submitted, q.finished);
		queues[n] = q.queue;
		last[n++] = GANTRY_TICKET(q.slot, q.submitted);
	}
	printf("\n");
}

/* buffers: the session's buffers become 0, 1 ...; "ok BYTES:FLAGS ..." */
static void do_buffers(char **w)
{
	struct gantry_buffer_found b = { 0 };
	unsigned n = 0;

	(void)w;
	printf("ok");
	while (gantry_buffer_next(session, b.buffer, &b) > 0 && n < NBUFFERS) {
		printf(" %" PRIu64 ":%u", b.bytes, b.flags);
		buffers[n++] = b.buffer;
	}
	printf("\n");
}

/* ticket QUEUE: of its last task */
static void do_ticket(char **w)
{
	printf("ok %" PRIu64 "\n", last[slot(w[1], NQUEUES)]);
}

/* test TICKET: what gantry_test() says */
static void do_test(char **w)
{
	int r = gantry_test(session, number(w[1]));

	if (answer(r) >= 0)
		printf("ok %d\n", r);
}

/* holds QUEUE [A B ONES]: the handles of its chain, to say or to set */
static void do_holds(char **w)
{
	struct chain *c = &chains[slot(w[1], NQUEUES)];
	int r = 0;

	if (w[2] && w[3] && w[4]) {
		*c = (struct chain){ .a = number(w[2]), .b = number(w[3]), .ones = number(w[4]) };
		r = gantry_kernel_find(session, "vscale", "f32,r:f32*,w:f32*,u64", &c->scale);
		r = r < 0 ? r
			  : gantry_kernel_find(session, "saxpy", "f32,r:f32*,rw:f32*,u64",
					       &c->saxpy);
		r = r < 0 ? r : find_spin(&c->spin);
	}
	if (answer(r) == 0)
		printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", c->a, c->b, c->ones);
}

/* poke BUFFER OFF WORD: writes a 64-bit word there */
static void do_poke(char **w)
{
	uint64_t word = number(w[3]);

	if (answer(gantry_write(session, buffers[slot(w[1], NBUFFERS)], number(w[2]), &word,
				sizeof(word))) == 0)
		printf("ok\n");
}

static void do_close(char **w)
{
	(void)w;
	gantry_close(session);
	session = NULL;
	printf("ok\n");
}

static const struct command {
	const char *name;
	unsigned nargs;
	void (*run)(char **words);
} commands[] = {
	{ "open", 0, do_open },	    { "close", 0, do_close },	{ "queue", 1, do_queue },
	{ "set", 3, do_set },	    { "alloc", 2, do_alloc },	{ "free", 1, do_free },
	{ "fill", 4, do_fill },	    { "peek", 2, do_peek },	{ "kernel", 1, do_kernel },
	{ "launch", 1, do_launch }, { "spin", 2, do_spin },	{ "wait", 1, do_wait },
	{ "chain", 3, do_chain },   { "value", 1, do_value },	{ "flood", 3, do_flood },
	{ "rtt", 3, do_rtt },	    { "stats", 0, do_stats },	{ "fleet", 3, do_fleet },
	{ "key", 0, do_key },	    { "adopt", 2, do_adopt },	{ "found", 0, do_found },
	{ "holds", 1, do_holds },   { "test", 1, do_test },	{ "buffers", 0, do_buffers },
	{ "poke", 3, do_poke },	    { "ticket", 1, do_ticket },
};

static void obey(char *line)
{
	char *words[NWORDS] = { NULL };
	unsigned n = 0;
	char *save = NULL;

	for (char *word = strtok_r(line, " \n", &save); word && n < NWORDS - 1;
	     word = strtok_r(NULL, " \n", &save))
		words[n++] = word;
	for (size_t i = 0; n > 0 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, words[0]) == 0 && n > commands[i].nargs) {
			commands[i].run(words);
			return;
		}
	printf("err 0 no such command, or too few words\n");
}

int main(void)
{
	char line[256];
	size_t len = 0;

	/* Not stdio: poll() has to see what has not been read. */
	while (len < sizeof(line) - 1 && read(STDIN_FILENO, &line[len], 1) == 1) {
		if (line[len++] != '\n')
			continue;
		line[len] = '\0';
		len = 0;
		obey(line);
		fflush(stdout);
	}
	gantry_close(session);
	return 0;
}
