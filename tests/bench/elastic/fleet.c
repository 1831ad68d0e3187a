/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of equal work, through Gantry and natively: prices of options (kernel black_scholes), ELEMENTS of them a task.
 *
 *   native PATH THREADS QUEUES TASKS ELEMENTS   the same kernel out of the object at PATH, on threads of this process
 *   open QUEUES PRIORITY ELEMENTS               a session with queues of that priority, and a buffer each
 *   run TASKS SKIP_MS                           TASKS in each queue: the time, and the pace after the first SKIP_MS
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/module.h"
#include "guest-shim/gantry.h"
#include "tests/bench/bench.h"

#define NQUEUES_MAX 16u
#define DEPTH	    32u
#define PATIENCE_NS 10000000 /* less than half a full queue takes */
#define SPOT	    55.0
#define RATE	    0.08
#define VOLATILITY  0.3
#define YEARS	    1.0
#define STRIKE	    60.0

/* ---- native ---- */

static void serially(struct gantry_env *env, uint64_t n, uint64_t grain,
		     void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
	(void)env;
	(void)grain;
	fn(arg, 0, n);
}

/* As many pairs of buffers as the queues have, each filled as theirs are: the caches see the same. */
struct native {
	gantry_body *body;
	uint64_t nlanes; /* of this thread */
	uint64_t ntasks; /* of each of them */
	uint64_t elements;
	double *memory;	 /* borrowed */
	uint64_t cpu_ns; /* that the thread took */
};

static void native_task(const struct native *job, uint64_t lane)
{
	struct gantry_env env = { .size = sizeof(env), .nlanes = 1, .parallel = serially };
	uint64_t bytes = job->elements * sizeof(double);
	double *spot = job->memory + 2 * lane * job->elements;
	union gantry_value args[7] = {
		{ .span = { spot, bytes } }, { .span = { spot + job->elements, bytes } },
		{ .u64 = job->elements },    { .f64 = RATE },
		{ .f64 = VOLATILITY },	     { .f64 = YEARS },
		{ .f64 = STRIKE },
	};
	const struct gantry_call call = { .nargs = 7, .args = args };

	if (job->body(&env, &call) < 0)
		abort();
}

static void *native_thread(void *arg)
{
	struct native *job = arg;

	for (uint64_t i = 0; i < job->ntasks; i++)
		for (uint64_t lane = 0; lane < job->nlanes; lane++)
			native_task(job, lane);
	job->cpu_ns = gantry_thread_cpu_ns();
	return NULL;
}

static double *native_memory(uint64_t nlanes, uint64_t n)
{
	double *memory = calloc(nlanes * n, 2 * sizeof(*memory));

	for (uint64_t i = 0; memory && i < 2 * nlanes * n; i++)
		memory[i] = i / n % 2 == 0 ? SPOT : 0; /* a price is written: its page is there */
	return memory;
}

/* The same tasks on threads of this process; how long they took. Adds up their processor time in @all. */
static uint64_t native_run(struct native *all, uint64_t nthreads)
{
	pthread_t threads[NQUEUES_MAX];
	struct native jobs[NQUEUES_MAX];
	uint64_t began_ns = gantry_now_ns(), per = all->nlanes / nthreads;

	for (uint64_t i = 0; i < nthreads; i++) {
		jobs[i] = *all;
		jobs[i].nlanes = per;
		jobs[i].memory += 2 * i * per * all->elements;
		if (pthread_create(&threads[i], NULL, native_thread, &jobs[i]) != 0)
			abort();
	}
	for (uint64_t i = 0; i < nthreads; i++) {
		(void)pthread_join(threads[i], NULL);
		all->cpu_ns += jobs[i].cpu_ns;
	}
	return gantry_now_ns() - began_ns;
}

static void do_native(const struct bench_args *args)
{
	uint64_t nthreads = bench_arg(args, 1, 1);
	void *object = args->n ? dlopen(args->words[0], RTLD_NOW) : NULL;
	struct native all = { .nlanes = bench_arg(args, 2, 8),
			      .ntasks = bench_arg(args, 3, 100),
			      .elements = bench_arg(args, 4, 16384) };
	uint64_t took_ns;

	if (object)
		*(void **)&all.body = dlsym(object, "gantry_kernel_black_scholes");
	if (!all.body) {
		bench_fail("no kernel: %s", dlerror());
		return;
	}
	if (nthreads == 0 || nthreads > NQUEUES_MAX || all.nlanes % nthreads) {
		bench_fail("queues that threads cannot share evenly");
		return;
	}
	all.memory = native_memory(all.nlanes, all.elements);
	took_ns = all.memory ? native_run(&all, nthreads) : 0;
	if (all.memory)
		printf("{\"s\":%.6f,\"cpu_s\":%.6f}\n", (double)took_ns / 1e9,
		       (double)all.cpu_ns / 1e9);
	else
		bench_fail("no memory");
	free(all.memory);
}

/* ---- through Gantry ---- */

static struct gantry_session *session;
static gantry_kernel kernel;
static uint32_t nqueues;
static uint64_t elements;
static struct lane {
	gantry_queue queue;
	gantry_buffer spot, price;
	gantry_ticket pending[DEPTH];
	uint64_t nput;
} lanes[NQUEUES_MAX];

static int lane_open(struct lane *lane, int32_t priority)
{
	const struct gantry_queue_options options = { .priority = priority };
	const double value = SPOT;
	uint64_t pattern;
	int r = gantry_queue_open(session, &options, &lane->queue);

	memcpy(&pattern, &value, sizeof(pattern));
	r = r < 0 ? r
		  : gantry_alloc(session, elements * sizeof(double), GANTRY_ALLOC_DEVICE,
				 &lane->spot);
	r = r < 0 ? r
		  : gantry_alloc(session, elements * sizeof(double), GANTRY_ALLOC_DEVICE,
				 &lane->price);
	r = r < 0 ? r
		  : gantry_submit_fill(session, lane->queue, lane->spot, 0,
				       elements * sizeof(double), pattern, 8, &lane->pending[0]);
	return r < 0 ? r : gantry_wait(session, &lane->pending[0], 1, GANTRY_FOREVER);
}

static void do_open(const struct bench_args *args)
{
	struct gantry_props props;
	int r = gantry_open(NULL, NULL, &session);

	nqueues = (uint32_t)bench_arg(args, 0, 1);
	elements = bench_arg(args, 2, 16384);
	if (nqueues > NQUEUES_MAX)
		nqueues = NQUEUES_MAX;
	r = r < 0 ? r
		  : gantry_kernel_find(session, "black_scholes",
				       "r:f64*,w:f64*,u64,f64,f64,f64,f64", &kernel);
	for (uint32_t i = 0; i < nqueues && r >= 0; i++)
		r = lane_open(&lanes[i], (int32_t)bench_arg(args, 1, 0));
	r = r < 0 ? r : gantry_props_get(session, GANTRY_KIND_ANY, &props);
	if (r < 0)
		bench_fail("%s", gantry_last_error());
	else
		printf("{\"session\":%llu}\n", (unsigned long long)props.session_id);
}

static int put(struct lane *lane)
{
	struct {
		uint64_t spot, price, n;
		double rate, volatility, years, strike;
	} values = { 0, 0, elements, RATE, VOLATILITY, YEARS, STRIKE };
	const struct gantry_access access[2] = {
		{ .buffer = lane->spot, .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = lane->price, .mode = GANTRY_W, .arg_off = 8 },
	};
	const struct gantry_task task = {
		.kernel = kernel,
		.args = &values,
		.args_bytes = sizeof(values),
		.access = access,
		.naccess = 2,
	};

	return gantry_submit(session, lane->queue, &task, 1, &lane->pending[lane->nput++ % DEPTH]);
}

/* 1: the queue has got another task; 0: it is full. */
static int feed(struct lane *lane)
{
	gantry_ticket oldest = lane->pending[lane->nput % DEPTH];
	int r = lane->nput < DEPTH ? 1 : gantry_test(session, oldest);

	if (r <= 0)
		return r;
	r = put(lane);
	return r < 0 ? r : 1;
}

static int feed_all(uint64_t ntasks)
{
	int moved = 0;

	for (uint32_t i = 0; i < nqueues; i++) {
		int r = lanes[i].nput < ntasks ? feed(&lanes[i]) : 0;

		if (r < 0)
			return r;
		moved += r;
	}
	return moved;
}

/*
 * Sleeps until a queue that is full is half empty: the plain program that this is compared with has no thread that looks after each
 * task. The others have as much left then, or the sleep ends before they run dry.
 */
static int wait_for_room(uint64_t ntasks)
{
	int r = 0;

	for (uint32_t i = 0; i < nqueues; i++)
		if (lanes[i].nput < ntasks) {
			uint64_t half = lanes[i].nput + DEPTH / 2;

			r = gantry_wait(session, &lanes[i].pending[half % DEPTH], 1, PATIENCE_NS);
			break;
		}
	return r == GANTRY_E_TIMEOUT ? 0 : r;
}

static uint64_t count_put(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < nqueues; i++)
		n += lanes[i].nput;
	return n;
}

static void do_run(const struct bench_args *args)
{
	uint64_t ntasks = bench_arg(args, 0, 100), skip_ns = bench_arg(args, 1, 0) * 1000000;
	uint64_t began_ns = gantry_now_ns(), from_ns = began_ns, from = 0, end_ns;
	int r = 0;

	for (uint32_t i = 0; i < nqueues; i++)
		lanes[i].nput = 0;
	while (r >= 0 && count_put() < ntasks * nqueues) {
		r = feed_all(ntasks);
		if (from == 0 && gantry_now_ns() - began_ns >= skip_ns) {
			from = count_put();
			from_ns = gantry_now_ns();
		}
		if (r == 0)
			r = wait_for_room(ntasks);
	}
	for (uint32_t i = 0; i < nqueues && r >= 0; i++)
		r = gantry_wait(session, &lanes[i].pending[(lanes[i].nput - 1) % DEPTH], 1,
				GANTRY_FOREVER);
	end_ns = gantry_now_ns();
	if (r < 0) {
		bench_fail("%s", gantry_last_error());
		return;
	}
	/* What was put and had not run yet when the count began is as much as at any other time. */
	printf("{\"s\":%.6f,\"per_s\":%.3f}\n", (double)(end_ns - began_ns) / 1e9,
	       (double)(ntasks * nqueues - from +
			(from > DEPTH * nqueues ? DEPTH * nqueues : from)) *
		       1e9 / (double)(end_ns - from_ns));
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "native", do_native },
		{ "open", do_open },
		{ "run", do_run },
		{ "pin", bench_pin },
		{ 0 },
	};

	return bench_serve(commands);
}
