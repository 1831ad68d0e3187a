/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest to measure with: a program of libgantry that does what it is told, a command a line.
 *
 *   open / close                    a session at $GANTRY_DOOR; how long each step took
 *   rtt N                           submit an empty task, wait for it, N times
 *   parked N GAP_US                 the same with a pause before each, in which both sides fall asleep
 *   submit N BATCH                  the time of gantry_submit() alone
 *   rate AT_NS RUN_NS DEPTH BATCH   empty tasks, DEPTH in flight, from AT_NS (0: now) for RUN_NS
 *   count N DEPTH BATCH WINDOWS     N tasks a window, each window between two calls of getppid() (seen by strace)
 *   rung N DEPTH BATCH WINDOWS      the same without them; how often the host was woken in each
 *   copy BYTES N                    write and read of a buffer, by turns with memcpy()
 *   mapped BYTES                    a mapped buffer: where it is, and what was copied
 *   load AT_NS RUN_NS DEPTH NS...   spin tasks of these lengths by turns, DEPTH in flight; device time as it grows
 *   recover N NS                    N spin tasks; says {"queued":N}, then when each finished
 *   stats
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest-shim/gantry.h"
#include "tests/bench/bench.h"

#define MAX_BATCH      256u
#define MAX_DEPTH      256u
#define MAX_LENGTHS    16
#define MAX_CURVE      512u
#define CURVE_EVERY_NS (20 * GANTRY_NS_PER_MS)
#define LONG_WAIT_NS   INT64_C(60000000000)

static struct gantry_session *session;
static gantry_queue queue;
static gantry_kernel empty;
static gantry_kernel spin;
static struct gantry_task empties[MAX_BATCH];

static void fail(const char *what)
{
	bench_fail("%s: %s", what, gantry_last_error());
}

static bool is_open(void)
{
	if (!session)
		bench_fail("open a session first");
	return session != NULL;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- a session ---- */

static void cmd_open(const struct bench_args *args)
{
	uint64_t at[5];
	gantry_ticket t;
	int r;

	(void)args;
	at[0] = gantry_now_ns();
	r = gantry_open(NULL, NULL, &session);
	at[1] = gantry_now_ns();
	if (r == 0)
		r = gantry_queue_open(session, NULL, &queue);
	at[2] = gantry_now_ns();
	if (r == 0)
		r = gantry_kernel_find(session, "empty", NULL, &empty);
	at[3] = gantry_now_ns();
	for (unsigned i = 0; i < MAX_BATCH; i++)
		empties[i].kernel = empty;
	if (r == 0)
		r = gantry_submit(session, queue, empties, 1, &t);
	if (r == 0)
		r = gantry_wait(session, &t, 1, LONG_WAIT_NS);
	at[4] = gantry_now_ns();
	if (r == 0)
		r = gantry_kernel_find(session, "spin", "u64", &spin);
	if (r < 0) {
		fail("open");
		gantry_close(session);
		session = NULL;
		return;
	}
	printf("{\"open_ns\":%llu,\"queue_ns\":%llu,\"kernel_ns\":%llu,\"task_ns\":%llu,\"total_ns\":%llu}\n",
	       (unsigned long long)(at[1] - at[0]), (unsigned long long)(at[2] - at[1]),
	       (unsigned long long)(at[3] - at[2]), (unsigned long long)(at[4] - at[3]),
	       (unsigned long long)(at[4] - at[0]));
}

static void cmd_close(const struct bench_args *args)
{
	(void)args;
	gantry_close(session);
	session = NULL;
	printf("{\"closed\":true}\n");
}

static void cmd_stats(const struct bench_args *args)
{
	struct gantry_stats st;

	(void)args;
	if (!is_open())
		return;
	if (gantry_stats_get(session, &st) < 0) {
		fail("stats");
		return;
	}
	printf("{\"finished\":%llu,\"failed\":%llu,\"device_ns\":%llu,\"bytes_in\":%llu,\"bytes_out\":%llu,"
	       "\"restarts\":%llu,\"wakeups\":%llu,\"sleeps\":%llu}\n",
	       (unsigned long long)st.tasks_finished, (unsigned long long)st.tasks_failed,
	       (unsigned long long)st.device_ns, (unsigned long long)st.bytes_in,
	       (unsigned long long)st.bytes_out, (unsigned long long)st.worker_restarts,
	       (unsigned long long)st.wakeups_sent, (unsigned long long)st.sleeps);
}

/* ---- round trips ---- */

static int trip(void)
{
	gantry_ticket t;
	int r = gantry_submit(session, queue, empties, 1, &t);

	return r < 0 ? r : gantry_wait(session, &t, 1, LONG_WAIT_NS);
}

static int trips(uint64_t n, uint64_t gap_us, struct bench_samples *s)
{
	int r = 0;

	for (uint64_t i = 0; i < n && r == 0; i++) {
		uint64_t start;

		if (gap_us)
			(void)usleep((useconds_t)gap_us);
		start = gantry_cycles();
		r = trip();
		bench_sample(s, gantry_cycles() - start);
	}
	return r;
}

static void measure_trips(uint64_t n, uint64_t gap_us, uint64_t nwarm)
{
	struct gantry_stats before, after;
	struct bench_samples s, warm;
	int r;

	if (!is_open())
		return;
	bench_samples_init(&s, n);
	bench_samples_init(&warm, 1);
	r = trips(nwarm, gap_us, &warm);
	if (r == 0)
		r = gantry_stats_get(session, &before);
	if (r == 0)
		r = trips(n, gap_us, &s);
	if (r == 0)
		r = gantry_stats_get(session, &after);
	if (r < 0) {
		fail("a round trip");
	} else {
		printf("{\"wakeups\":%llu,\"sleeps\":%llu,",
		       (unsigned long long)(after.wakeups_sent - before.wakeups_sent),
		       (unsigned long long)(after.sleeps - before.sleeps));
		bench_samples_print(&s);
		printf("}\n");
	}
	bench_samples_fini(&s);
	bench_samples_fini(&warm);
}

static void cmd_rtt(const struct bench_args *args)
{
	measure_trips(bench_arg(args, 0, 10000), 0, 1000);
}

static void cmd_parked(const struct bench_args *args)
{
	measure_trips(bench_arg(args, 0, 1000), bench_arg(args, 1, 200), 20);
}

/* ---- submission and rate ---- */

static void cmd_submit(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 1000);
	unsigned batch = (unsigned)least(bench_arg(args, 1, 64), MAX_BATCH);
	struct bench_samples s;
	int r = 0;

	if (!is_open())
		return;
	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n + 20 && r == 0; i++) {
		uint64_t start = gantry_cycles();
		gantry_ticket t;

		r = gantry_submit(session, queue, empties, batch, &t);
		if (i >= 20)
			bench_sample(&s, gantry_cycles() - start);
		if (r == 0)
			r = gantry_wait(session, &t, 1, LONG_WAIT_NS);
	}
	if (r < 0)
		fail("submit");
	else
		printf("{\"per_task_ns\":%.2f,\"p90\":%.2f,\"min\":%.2f}\n",
		       bench_quantile(&s, .5) / batch, bench_quantile(&s, .9) / batch,
		       bench_quantile(&s, 0) / batch);
	bench_samples_fini(&s);
}

/* Tasks in flight, oldest first, as the tickets of their batches. */
struct flight {
	gantry_ticket tickets[MAX_DEPTH];
	unsigned head;
	unsigned n;
};

static void flight_push(struct flight *f, gantry_ticket t)
{
	f->tickets[(f->head + f->n++) % MAX_DEPTH] = t;
}

static gantry_ticket flight_pop(struct flight *f)
{
	f->n--;
	return f->tickets[f->head++ % MAX_DEPTH];
}

static int land_one(struct flight *f)
{
	gantry_ticket t = flight_pop(f);

	return gantry_wait(session, &t, 1, LONG_WAIT_NS);
}

/* Puts a batch when there is room for one in @depth tasks; else waits for the oldest. */
static int fly(struct flight *f, unsigned depth, unsigned batch)
{
	gantry_ticket t;
	int r = 0;

	while (r == 0 && (f->n + 1) * batch > depth && f->n > 0)
		r = land_one(f);
	if (r == 0)
		r = gantry_submit(session, queue, empties, batch, &t);
	if (r == 0)
		flight_push(f, t);
	return r;
}

static int land_all(struct flight *f)
{
	int r = 0;

	while (f->n > 0 && r == 0)
		r = land_one(f);
	return r;
}

static void cmd_rate(const struct bench_args *args)
{
	uint64_t at_ns = bench_arg(args, 0, 0);
	uint64_t run_ns = bench_arg(args, 1, 200 * GANTRY_NS_PER_MS);
	unsigned depth = (unsigned)least(bench_arg(args, 2, 64), MAX_DEPTH);
	unsigned batch = (unsigned)least(bench_arg(args, 3, 32), depth);
	struct flight f = { 0 };
	uint64_t start_ns, end_ns, n = 0;
	int r = 0;

	if (!is_open())
		return;
	for (unsigned i = 0; i < 4 * depth && r == 0; i++)
		r = fly(&f, depth, batch);
	if (r == 0)
		r = land_all(&f);
	if (at_ns)
		bench_wait_until(at_ns);
	start_ns = gantry_now_ns();
	do {
		/* Some 30 batches between two looks at the clock. */
		for (unsigned i = 0; i < 30 && r == 0; i++, n += batch)
			r = fly(&f, depth, batch);
		end_ns = gantry_now_ns();
	} while (r == 0 && end_ns - start_ns < run_ns);
	if (r == 0)
		r = land_all(&f);
	end_ns = gantry_now_ns();
	if (r < 0)
		fail("rate");
	else
		printf("{\"tasks\":%llu,\"ns\":%llu,\"per_s\":%.0f}\n", (unsigned long long)n,
		       (unsigned long long)(end_ns - start_ns),
		       (double)n * 1e9 / (double)(end_ns - start_ns));
}

/* What the preloaded counter of allocations has seen in this process; -1 without one. */
static long long allocations(void)
{
	static unsigned long long (*count)(void);
	static bool looked;

	if (!looked) {
		*(void **)&count = dlsym(RTLD_DEFAULT, "bench_allocations");
		looked = true;
	}
	return count ? (long long)count() : -1;
}

static void cmd_count(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 20000);
	unsigned depth = (unsigned)least(bench_arg(args, 1, 64), MAX_DEPTH);
	unsigned batch = (unsigned)least(bench_arg(args, 2, 32), depth);
	uint64_t nwindows = least(bench_arg(args, 3, 10), 64);
	struct flight f = { 0 };
	long long allocs[65];
	int r = 0;

	if (!is_open())
		return;
	(void)allocations();
	for (uint64_t w = 0; w <= nwindows && r == 0; w++) {
		(void)syscall(SYS_getppid);
		allocs[w] = allocations();
		if (w == nwindows)
			break;
		for (uint64_t i = 0; i < n && r == 0; i += batch)
			r = fly(&f, depth, batch);
	}
	if (r == 0)
		r = land_all(&f);
	if (r < 0) {
		fail("count");
		return;
	}
	printf("{\"tasks\":%llu,\"allocs\":[", (unsigned long long)n);
	for (uint64_t w = 0; w < nwindows; w++)
		printf("%s%lld", w ? "," : "", allocs[w] < 0 ? -1 : allocs[w + 1] - allocs[w]);
	printf("]}\n");
}

static void cmd_rung(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 512);
	unsigned depth = (unsigned)least(bench_arg(args, 1, 64), MAX_DEPTH);
	unsigned batch = (unsigned)least(bench_arg(args, 2, 16), depth);
	uint64_t nwindows = least(bench_arg(args, 3, 40), 64);
	uint64_t rung[65], slept[65];
	struct gantry_stats st = { 0 };
	struct flight f = { 0 };
	int r = 0;

	if (!is_open())
		return;
	for (uint64_t w = 0; w <= nwindows && r == 0; w++) {
		/* Answered by a host that is awake: it does not end what it looks at. */
		r = gantry_stats_get(session, &st);
		rung[w] = st.wakeups_sent;
		slept[w] = st.sleeps;
		for (uint64_t i = 0; i < n && r == 0 && w < nwindows; i += batch)
			r = fly(&f, depth, batch);
	}
	if (r == 0)
		r = land_all(&f);
	if (r < 0) {
		fail("rung");
		return;
	}
	printf("{\"tasks\":%llu,\"rung\":[", (unsigned long long)n);
	for (uint64_t w = 0; w < nwindows; w++)
		printf("%s%llu", w ? "," : "", (unsigned long long)(rung[w + 1] - rung[w]));
	printf("],\"slept\":[");
	for (uint64_t w = 0; w < nwindows; w++)
		printf("%s%llu", w ? "," : "", (unsigned long long)(slept[w + 1] - slept[w]));
	printf("]}\n");
}

/* ---- memory ---- */

static unsigned char *touched(size_t bytes)
{
	unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0);

	if (p == MAP_FAILED)
		return NULL;
	memset(p, 1, bytes);
	return p;
}

/* "In and out": to the buffer and back; the baseline copies to other memory of the program and back. */
static int copy_rounds(gantry_buffer b, size_t bytes, uint64_t n, unsigned char *p[3],
		       struct bench_samples s[4])
{
	int r = 0;

	for (uint64_t i = 0; i <= n && r == 0; i++) {
		uint64_t at[5];

		p[0][i % bytes]++;
		at[0] = gantry_cycles();
		memcpy(p[1], p[0], bytes);
		at[1] = gantry_cycles();
		memcpy(p[2], p[1], bytes);
		at[2] = gantry_cycles();
		r = gantry_write(session, b, 0, p[0], bytes);
		at[3] = gantry_cycles();
		if (r == 0)
			r = gantry_read(session, b, 0, p[2], bytes);
		at[4] = gantry_cycles();
		for (int k = 0; k < 4 && i > 0; k++) /* the first round brings the pages */
			bench_sample(&s[k], at[k + 1] - at[k]);
	}
	if (r == 0 && memcmp(p[0], p[2], bytes) != 0) {
		bench_fail("what was read is not what was written");
		return 1;
	}
	return r;
}

static void cmd_copy(const struct bench_args *args)
{
	size_t bytes = bench_arg(args, 0, 64ull << 20);
	uint64_t n = bench_arg(args, 1, 3);
	unsigned char *p[3] = { touched(bytes), touched(bytes), touched(bytes) };
	struct bench_samples s[4];
	gantry_buffer b = 0;
	int r;

	if (!is_open())
		return;
	if (!p[0] || !p[1] || !p[2]) {
		bench_fail("no memory");
		return;
	}
	for (int k = 0; k < 4; k++)
		bench_samples_init(&s[k], n);
	r = gantry_alloc(session, bytes, 0, &b);
	if (r == 0)
		r = copy_rounds(b, bytes, n, p, s);
	if (r < 0)
		fail("copy");
	if (r == 0)
		printf("{\"memcpy_ns\":%.0f,\"write_ns\":%.0f,\"read_ns\":%.0f}\n",
		       bench_quantile(&s[0], .5) + bench_quantile(&s[1], .5),
		       bench_quantile(&s[2], .5), bench_quantile(&s[3], .5));
	if (b)
		(void)gantry_free(session, b);
	for (int k = 0; k < 4; k++)
		bench_samples_fini(&s[k]);
	for (int k = 0; k < 3; k++)
		(void)munmap(p[k], bytes);
}

/* Maps it, writes, lets the device add to it, maps it again and looks: the same memory, and nothing copied. */
static int map_twice(gantry_buffer b, uint64_t bytes, void *ret_at[2], bool *ret_right)
{
	uint64_t n = bytes / sizeof(float);
	struct {
		float alpha;
		uint32_t pad;
		uint64_t x;
		uint64_t y;
		uint64_t n;
	} args = { .alpha = 2, .n = n / 2 };
	struct gantry_access accesses[2] = {
		{ .buffer = b, .len = bytes / 2, .mode = GANTRY_R, .arg_off = 8 },
		{ .buffer = b,
		  .off = bytes / 2,
		  .len = bytes / 2,
		  .mode = GANTRY_RW,
		  .arg_off = 16 },
	};
	struct gantry_task task = {
		.args = &args, .args_bytes = sizeof(args), .access = accesses, .naccess = 2
	};
	const float *seen;
	gantry_ticket t;
	float *p;
	int r = gantry_kernel_find(session, "saxpy", NULL, &task.kernel);

	if (r == 0)
		r = gantry_map(session, b, 0, bytes, GANTRY_W, LONG_WAIT_NS, &ret_at[0]);
	if (r < 0)
		return r;
	p = ret_at[0];
	for (uint64_t i = 0; i < n; i++)
		p[i] = (float)(i % 1000);
	r = gantry_unmap(session, ret_at[0]);
	if (r == 0)
		r = gantry_submit(session, queue, &task, 1, &t);
	if (r == 0)
		r = gantry_wait(session, &t, 1, LONG_WAIT_NS);
	if (r == 0)
		r = gantry_map(session, b, 0, bytes, GANTRY_R, LONG_WAIT_NS, &ret_at[1]);
	if (r < 0)
		return r;
	seen = ret_at[1];
	*ret_right = true;
	for (uint64_t i = 0; i < n / 2; i++)
		if (seen[n / 2 + i] != (float)((n / 2 + i) % 1000) + 2 * (float)(i % 1000))
			*ret_right = false;
	return gantry_unmap(session, ret_at[1]);
}

static void cmd_mapped(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 0, 8ull << 20);
	struct gantry_stats before, after;
	void *at[2] = { NULL, NULL };
	bool right = false;
	gantry_buffer b;
	int r;

	if (!is_open())
		return;
	r = gantry_stats_get(session, &before);
	if (r == 0)
		r = gantry_alloc(session, bytes, 0, &b);
	if (r == 0)
		r = map_twice(b, bytes, at, &right);
	if (r == 0)
		r = gantry_stats_get(session, &after);
	if (r < 0) {
		fail("mapped");
		return;
	}
	(void)gantry_free(session, b);
	printf("{\"copied_bytes\":%llu,\"same_address\":%s,\"right\":%s}\n",
	       (unsigned long long)(after.bytes_in - before.bytes_in + after.bytes_out -
				    before.bytes_out),
	       at[0] == at[1] ? "true" : "false", right ? "true" : "false");
}

/* ---- load ---- */

struct load {
	uint64_t lengths_ns[MAX_LENGTHS];
	unsigned nlengths;
	unsigned depth;
	struct {
		gantry_ticket ticket;
		uint64_t start;
	} flight[MAX_DEPTH];
	unsigned head;
	unsigned nflying;
	uint64_t nput;
	uint64_t ndone;
	struct bench_samples trips;
	uint64_t curve[MAX_CURVE][2]; /* when, device time */
	unsigned ncurve;
};

static int load_put(struct load *l)
{
	uint64_t ns = l->lengths_ns[l->nput % l->nlengths];
	struct gantry_task task = {
		.kernel = spin,
		.args = &ns,
		.args_bytes = sizeof(ns),
		.flags = GANTRY_TASK_IDEMPOTENT,
	};
	unsigned i = (l->head + l->nflying) % MAX_DEPTH;
	int r;

	l->flight[i].start = gantry_cycles();
	r = gantry_submit(session, queue, &task, 1, &l->flight[i].ticket);
	if (r == 0) {
		l->nflying++;
		l->nput++;
	}
	return r;
}

static int load_land(struct load *l)
{
	int r = gantry_wait(session, &l->flight[l->head].ticket, 1, LONG_WAIT_NS);

	bench_sample(&l->trips, gantry_cycles() - l->flight[l->head].start);
	l->head = (l->head + 1) % MAX_DEPTH;
	l->nflying--;
	l->ndone++;
	return r;
}

static int load_look(struct load *l, uint64_t now_ns)
{
	struct gantry_stats st;
	int r;

	if (l->ncurve == MAX_CURVE ||
	    (l->ncurve && now_ns - l->curve[l->ncurve - 1][0] < CURVE_EVERY_NS))
		return 0;
	r = gantry_stats_get(session, &st);
	l->curve[l->ncurve][0] = gantry_now_ns();
	l->curve[l->ncurve++][1] = st.device_ns;
	return r;
}

static int load_run(struct load *l, uint64_t end_ns)
{
	int r = 0;

	for (uint64_t now_ns; r == 0 && (now_ns = gantry_now_ns()) < end_ns;) {
		r = load_look(l, now_ns);
		while (r == 0 && l->nflying < l->depth)
			r = load_put(l);
		if (r == 0)
			r = load_land(l);
	}
	if (r == 0)
		r = gantry_cancel(session, queue);
	while (l->nflying > 0)
		(void)load_land(l); /* some were cancelled just now */
	return r;
}

static void cmd_load(const struct bench_args *args)
{
	static struct load l;
	uint64_t at_ns = bench_arg(args, 0, 0);
	uint64_t run_ns = bench_arg(args, 1, GANTRY_NS_PER_S);
	int r;

	if (!is_open())
		return;
	memset(&l, 0, sizeof(l));
	l.depth = (unsigned)least(bench_arg(args, 2, 8), MAX_DEPTH);
	for (int i = 3; i < args->n && l.nlengths < MAX_LENGTHS; i++)
		l.lengths_ns[l.nlengths++] = bench_arg(args, i, 0);
	if (l.nlengths == 0 || l.depth == 0) {
		bench_fail("load wants a depth and lengths");
		return;
	}
	bench_samples_init(&l.trips, 1u << 20);
	if (at_ns)
		bench_wait_until(at_ns);
	r = load_run(&l, gantry_now_ns() + run_ns);
	if (r < 0) {
		fail("load");
	} else {
		printf("{\"tasks\":%llu,\"curve\":[", (unsigned long long)l.ndone);
		for (unsigned i = 0; i < l.ncurve; i++)
			printf("%s[%llu,%llu]", i ? "," : "", (unsigned long long)l.curve[i][0],
			       (unsigned long long)l.curve[i][1]);
		printf("],");
		bench_samples_print(&l.trips);
		printf("}\n");
	}
	bench_samples_fini(&l.trips);
}

static void cmd_recover(const struct bench_args *args)
{
	uint64_t n = least(bench_arg(args, 0, 100), MAX_DEPTH);
	uint64_t ns = bench_arg(args, 1, GANTRY_NS_PER_MS);
	struct gantry_task task = {
		.kernel = spin,
		.args = &ns,
		.args_bytes = sizeof(ns),
		.flags = GANTRY_TASK_IDEMPOTENT,
	};
	gantry_ticket tickets[MAX_DEPTH];
	uint64_t done_ns[MAX_DEPTH];
	uint64_t nfailed = 0;
	int r = 0;

	if (!is_open())
		return;
	for (uint64_t i = 0; i < n && r == 0; i++)
		r = gantry_submit(session, queue, &task, 1, &tickets[i]);
	if (r < 0) {
		fail("recover");
		return;
	}
	printf("{\"queued\":%llu}\n", (unsigned long long)n);
	(void)fflush(stdout);
	for (uint64_t i = 0; i < n; i++) {
		nfailed += gantry_wait(session, &tickets[i], 1, LONG_WAIT_NS) < 0;
		done_ns[i] = gantry_now_ns();
	}
	printf("{\"failed\":%llu,\"done_ns\":[", (unsigned long long)nfailed);
	for (uint64_t i = 0; i < n; i++)
		printf("%s%llu", i ? "," : "", (unsigned long long)done_ns[i]);
	printf("]}\n");
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "open", cmd_open },	  { "close", cmd_close },
		{ "rtt", cmd_rtt },	  { "parked", cmd_parked },
		{ "submit", cmd_submit }, { "rate", cmd_rate },
		{ "count", cmd_count },	  { "rung", cmd_rung },
		{ "copy", cmd_copy },	  { "mapped", cmd_mapped },
		{ "load", cmd_load },	  { "recover", cmd_recover },
		{ "stats", cmd_stats },	  { 0 },
	};
	int r = bench_serve(commands);

	gantry_close(session);
	return r;
}
