/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program to measure with, the same over native.c and over guest.c. A command a line:
 *
 *   open IMAGE [PRIORITY]             how long until the first kernel was done
 *   close
 *   submit N BATCH                    time of a launch call while the device has room
 *   rate N                            N empty launches and their end: sustained launches a second, cycles each
 *   trip N                            launch and wait, N times
 *   pinned in|out BYTES N             copies of pinned memory, the best and the median rate
 *   pageable in|out BYTES N           copies of ordinary memory, and the processor time they took
 *   alloc BYTES N                     allocate, touch by a kernel, free; and the same launch on memory that is there
 *   prepare APP SCALE / run APP [AT_NS]   a whole program (apps.h); starts at AT_NS where given
 *   load AT_NS RUN_NS BLOCKS US DEPTH spin kernels of US microseconds, DEPTH in flight: how many ended
 *   request AT_NS RUN_NS BLOCKS US GAP_US   one spin kernel at a time, with a pause: its latencies
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/gpu/apps.h"
#include "tests/bench/gpu/gpu.h"

static struct gpu_kernel empty, spin, touch;

static uint64_t cpu_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail with these arguments */
	return (uint64_t)ts.tv_sec * GANTRY_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int launch_empty(void)
{
	const struct gpu_dim one = { 1, 1, 1 };

	return gpu_launch(&empty, one, one, NULL);
}

static int launch_spin(uint32_t blocks, uint64_t us)
{
	union gpu_arg ns = { .u64 = us * 1000 };

	return gpu_launch(&spin, (struct gpu_dim){ blocks, 1, 1 }, (struct gpu_dim){ 128, 1, 1 },
			  &ns);
}

static void cmd_open(const struct bench_args *args)
{
	uint64_t ns;

	if (args->n < 1) {
		bench_fail("open what image?");
		return;
	}
	if (gpu_open(args->words[0], (int)bench_arg(args, 1, 0), &ns) < 0 ||
	    gpu_kernel("empty", "void", &empty) < 0 || gpu_kernel("spin", "u64", &spin) < 0 ||
	    gpu_kernel("touch", "rw:u32*,u64", &touch) < 0)
		return;
	printf("{\"first_kernel_ns\":%llu}\n", (unsigned long long)ns);
}

static void cmd_close(const struct bench_args *args)
{
	(void)args;
	gpu_close();
	printf("{\"closed\":true}\n");
}

/* ---- launches ---- */

static void cmd_submit(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 200), batch = bench_arg(args, 1, 64);
	struct bench_samples s;
	int r = 0;

	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n + 10 && r == 0; i++) {
		uint64_t start = gantry_cycles();

		for (uint64_t j = 0; j < batch && r == 0; j++)
			r = launch_empty();
		if (i >= 10)
			bench_sample(&s, gantry_cycles() - start);
		if (r == 0)
			r = gpu_sync();
	}
	if (r == 0)
		printf("{\"ns\":%.1f,\"cycles\":%.0f}\n", bench_quantile(&s, .5) / (double)batch,
		       bench_quantile(&s, .5) * (double)gantry_cycles_per_us() / 1000 /
			       (double)batch);
	bench_samples_fini(&s);
}

static void cmd_rate(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 200000), start, cpu;
	int r = 0;

	for (uint64_t i = 0; i < 1000 && r == 0; i++)
		r = launch_empty();
	if (r == 0)
		r = gpu_sync();
	start = gantry_now_ns();
	cpu = cpu_now_ns();
	for (uint64_t i = 0; i < n && r == 0; i++)
		r = launch_empty();
	if (r == 0)
		r = gpu_sync();
	if (r == 0)
		printf("{\"per_s\":%.0f,\"cpu_ns\":%.1f}\n",
		       (double)n * 1e9 / (double)(gantry_now_ns() - start),
		       (double)(cpu_now_ns() - cpu) / (double)n);
}

static void cmd_trip(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 10000);
	struct bench_samples s;
	int r = 0;

	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n + 500 && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = launch_empty();
		if (r == 0)
			r = gpu_sync();
		if (i >= 500)
			bench_sample(&s, gantry_cycles() - start);
	}
	if (r == 0) {
		printf("{");
		bench_samples_print(&s);
		printf("}\n");
	}
	bench_samples_fini(&s);
}

/* ---- copies ---- */

static void say_rates(struct bench_samples *s, uint64_t bytes, uint64_t cpu_ns, uint64_t n)
{
	printf("{\"bytes_per_s\":%.4g,\"best_bytes_per_s\":%.4g,\"ns\":%.0f,\"cpu_ns\":%.0f}\n",
	       (double)bytes * 1e9 / bench_quantile(s, .5),
	       (double)bytes * 1e9 / bench_quantile(s, 0), bench_quantile(s, .5),
	       (double)cpu_ns / (double)n);
}

static bool goes_in(const struct bench_args *args)
{
	return args->n > 0 && strcmp(args->words[0], "in") == 0;
}

static int pinned_copies(gpu_buffer b, const struct gpu_pinned *p, bool in, uint64_t n,
			 struct bench_samples *s)
{
	int r = 0;

	for (uint64_t i = 0; i < n + 3 && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = in ? gpu_write_pinned(b, p, p->bytes) : gpu_read_pinned(b, p, p->bytes);
		if (r == 0)
			r = gpu_sync();
		if (i >= 3)
			bench_sample(s, gantry_cycles() - start);
	}
	return r;
}

static void cmd_pinned(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 1, 1 << 20), n = bench_arg(args, 2, 20), cpu;
	struct gpu_pinned p;
	struct bench_samples s;
	gpu_buffer b;

	if (gpu_pin(bytes, &p) < 0 || gpu_alloc(bytes, &b) < 0)
		return;
	bench_samples_init(&s, n);
	cpu = cpu_now_ns();
	if (pinned_copies(b, &p, goes_in(args), n, &s) == 0 && gpu_free(b) == 0 &&
	    gpu_unpin(&p) == 0)
		say_rates(&s, bytes, cpu_now_ns() - cpu, n);
	bench_samples_fini(&s);
}

static void cmd_pageable(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 1, 1 << 20), n = bench_arg(args, 2, 20), cpu;
	void *memory = malloc(bytes);
	struct bench_samples s;
	gpu_buffer b;
	int r = 0;

	if (!memory || gpu_alloc(bytes, &b) < 0) {
		free(memory);
		return;
	}
	memset(memory, 1, bytes);
	bench_samples_init(&s, n);
	cpu = cpu_now_ns();
	for (uint64_t i = 0; i < n + 2 && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = goes_in(args) ? gpu_write(b, memory, bytes) : gpu_read(b, memory, bytes);
		if (i >= 2)
			bench_sample(&s, gantry_cycles() - start);
	}
	cpu = cpu_now_ns() - cpu;
	if (r == 0 && gpu_free(b) == 0)
		say_rates(&s, bytes, cpu, n + 2);
	bench_samples_fini(&s);
	free(memory);
}

/* ---- memory ---- */

static int touch_and_wait(gpu_buffer b)
{
	if (gpu_launch(&touch, (struct gpu_dim){ 1, 1, 1 }, (struct gpu_dim){ 128, 1, 1 },
		       (const union gpu_arg[]){ { .buffer = b }, { .u64 = 128 } }) < 0)
		return -1;
	return gpu_sync();
}

static int alloc_and_use(uint64_t bytes, uint64_t *ret_alloc_ticks)
{
	uint64_t start = gantry_cycles();
	gpu_buffer b;

	if (gpu_alloc(bytes, &b) < 0)
		return -1;
	*ret_alloc_ticks = gantry_cycles() - start;
	return touch_and_wait(b) < 0 ? -1 : gpu_free(b);
}

/* One after the other, and then the same launch on memory that is there: what is more is what the memory costs. */
static void cmd_alloc(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 0, 2 << 20), n = bench_arg(args, 1, 200);
	struct bench_samples whole, call, trip;
	gpu_buffer kept;
	int r = 0;

	bench_samples_init(&whole, n);
	bench_samples_init(&call, n);
	bench_samples_init(&trip, n);
	for (uint64_t i = 0; i < n + 5 && r == 0; i++) {
		uint64_t start = gantry_cycles(), ticks = 0;

		r = alloc_and_use(bytes, &ticks);
		if (i < 5)
			continue;
		bench_sample(&whole, gantry_cycles() - start);
		bench_sample(&call, ticks);
	}
	if (r == 0)
		r = gpu_alloc(bytes, &kept);
	for (uint64_t i = 0; i < n + 5 && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = touch_and_wait(kept);
		if (i >= 5)
			bench_sample(&trip, gantry_cycles() - start);
	}
	if (r == 0 && gpu_free(kept) == 0)
		printf("{\"used_ns\":%.0f,\"used_p90_ns\":%.0f,\"call_ns\":%.0f,\"trip_ns\":%.0f}\n",
		       bench_quantile(&whole, .5), bench_quantile(&whole, .9),
		       bench_quantile(&call, .5), bench_quantile(&trip, .5));
	bench_samples_fini(&trip);
	bench_samples_fini(&call);
	bench_samples_fini(&whole);
}

/* ---- programs ---- */

static const struct app *app_of(const struct bench_args *args)
{
	for (const struct app *app = apps; args->n > 0 && app->name; app++)
		if (strcmp(app->name, args->words[0]) == 0)
			return app;
	bench_fail("no such program");
	return NULL;
}

static void cmd_prepare(const struct bench_args *args)
{
	const struct app *app = app_of(args);

	if (app && app->prepare((uint32_t)bench_arg(args, 1, 1)) == 0)
		printf("{\"prepared\":true}\n");
}

static void cmd_run(const struct bench_args *args)
{
	const struct app *app = app_of(args);
	uint64_t start, cpu, checksum;

	if (!app)
		return;
	if (args->n > 1)
		bench_wait_until(bench_arg(args, 1, 0));
	start = gantry_now_ns();
	cpu = cpu_now_ns();
	if (app->run(&checksum) == 0)
		printf("{\"ns\":%llu,\"cpu_ns\":%llu,\"checksum\":%llu,\"end_ns\":%llu}\n",
		       (unsigned long long)(gantry_now_ns() - start),
		       (unsigned long long)(cpu_now_ns() - cpu), (unsigned long long)checksum,
		       (unsigned long long)gantry_now_ns());
}

/* ---- load ---- */

static void cmd_load(const struct bench_args *args)
{
	uint64_t at = bench_arg(args, 0, 0), run_ns = bench_arg(args, 1, GANTRY_NS_PER_S);
	uint32_t blocks = (uint32_t)bench_arg(args, 2, 8);
	uint64_t us = bench_arg(args, 3, 90), depth = bench_arg(args, 4, 16), ended = 0, end;
	int r = 0;

	bench_wait_until(at);
	end = gantry_now_ns() + run_ns;
	while (gantry_now_ns() < end && r == 0) {
		for (uint64_t i = 0; i < depth && r == 0; i++)
			r = launch_spin(blocks, us);
		if (r == 0)
			r = gpu_sync();
		if (gantry_now_ns() < end)
			ended += depth;
	}
	if (r == 0)
		printf("{\"ended\":%llu}\n", (unsigned long long)ended);
}

static void cmd_request(const struct bench_args *args)
{
	uint64_t at = bench_arg(args, 0, 0), run_ns = bench_arg(args, 1, GANTRY_NS_PER_S);
	uint32_t blocks = (uint32_t)bench_arg(args, 2, 8);
	uint64_t us = bench_arg(args, 3, 100), gap_us = bench_arg(args, 4, 1000), end;
	struct bench_samples s;
	int r = 0;

	bench_samples_init(&s, 1 << 20);
	bench_wait_until(at);
	end = gantry_now_ns() + run_ns;
	while (gantry_now_ns() < end && r == 0) {
		uint64_t start = gantry_cycles();

		r = launch_spin(blocks, us);
		if (r == 0)
			r = gpu_sync();
		bench_sample(&s, gantry_cycles() - start);
		if (gap_us)
			(void)usleep((useconds_t)gap_us);
	}
	if (r == 0) {
		printf("{");
		bench_samples_print(&s);
		printf("}\n");
	}
	bench_samples_fini(&s);
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "open", cmd_open },	    { "close", cmd_close },
		{ "pin", bench_pin },	    { "submit", cmd_submit },
		{ "rate", cmd_rate },	    { "trip", cmd_trip },
		{ "pinned", cmd_pinned },   { "pageable", cmd_pageable },
		{ "alloc", cmd_alloc },	    { "prepare", cmd_prepare },
		{ "run", cmd_run },	    { "load", cmd_load },
		{ "request", cmd_request }, { NULL, NULL },
	};

	return bench_serve(commands);
}
