/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/bench.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"

#define MAX_WORDS 32

static cpu_set_t began_with;

/* ---- commands ---- */

uint64_t bench_arg(const struct bench_args *args, int i, uint64_t otherwise)
{
	return i < args->n ? strtoull(args->words[i], NULL, 0) : otherwise;
}

static void run_line(const struct bench_command *commands, char *line)
{
	char *words[MAX_WORDS];
	struct bench_args args = { .words = words };
	const char *name;
	char *save;

	name = strtok_r(line, " \n", &save);
	if (!name)
		return;
	while (args.n < MAX_WORDS && (words[args.n] = strtok_r(NULL, " \n", &save)))
		args.n++;
	for (; commands->name; commands++) {
		if (strcmp(commands->name, name) == 0) {
			commands->run(&args);
			return;
		}
	}
	bench_fail("no command %s", name);
}

int bench_serve(const struct bench_command *commands)
{
	char line[1024];

	(void)sched_getaffinity(0, sizeof(began_with),
				&began_with); /* left empty, pinning fails and says so */
	(void)gantry_cycles_per_us();	      /* measured now, not inside a measurement */
	printf("{\"ready\":%d}\n", (int)getpid());
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		run_line(commands, line);
		(void)fflush(stdout);
	}
	return 0;
}

bool bench_run_on(int cpu)
{
	cpu_set_t set = began_with;

	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET((size_t)cpu, &set);
	}
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void bench_pin(const struct bench_args *args)
{
	int cpu = args->n > 0 ? atoi(args->words[0]) : -1;

	printf("{\"pinned\":%s}\n", bench_run_on(cpu) ? "true" : "false");
}

void bench_fail(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
			*c = '\'';
	printf("{\"error\":\"%s\"}\n", text);
}

/* ---- samples ---- */

void bench_samples_init(struct bench_samples *s, size_t cap)
{
	*s = (struct bench_samples){ .ticks = malloc(cap * sizeof(*s->ticks)), .cap = cap };
	if (!s->ticks) {
		bench_fail("no memory for %zu samples", cap);
		exit(1);
	}
	memset(s->ticks, 1, cap * sizeof(*s->ticks));
}

void bench_samples_fini(struct bench_samples *s)
{
	free(s->ticks);
	*s = (struct bench_samples){ 0 };
}

double bench_ns(uint64_t ticks)
{
	return (double)ticks * 1e3 / (double)gantry_cycles_per_us();
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double sorted_at(const struct bench_samples *s, double share)
{
	return s->n ? bench_ns(s->ticks[(size_t)(share * (double)(s->n - 1))]) : 0;
}

double bench_quantile(struct bench_samples *s, double share)
{
	qsort(s->ticks, s->n, sizeof(*s->ticks), compare);
	return sorted_at(s, share);
}

void bench_samples_print(struct bench_samples *s)
{
	static const double shares[] = { 0,  .01, .05, .1,  .2,	 .3,  .4,   .5,	  .6,	.7,
					 .8, .85, .9,  .95, .98, .99, .995, .998, .999, .9999 };
	double sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += bench_ns(s->ticks[i]);
	printf("\"n\":%zu,\"p50\":%.1f", s->n, bench_quantile(s, .5));
	printf(",\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"min\":%.1f,\"mean\":%.1f,\"cdf\":[",
	       sorted_at(s, .9), sorted_at(s, .99), sorted_at(s, .999), sorted_at(s, 0),
	       s->n ? sum / (double)s->n : 0);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		printf("%s[%.1f,%g]", i ? "," : "", sorted_at(s, shares[i]), shares[i]);
	printf("]");
}

void bench_wait_until(uint64_t at_ns)
{
	const uint64_t early_ns = 100 * GANTRY_NS_PER_US;
	struct timespec at = {
		.tv_sec = (time_t)((at_ns - early_ns) / GANTRY_NS_PER_S),
		.tv_nsec = (long)((at_ns - early_ns) % GANTRY_NS_PER_S),
	};

	while (gantry_now_ns() + early_ns < at_ns &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
	while (gantry_now_ns() < at_ns)
		gantry_cpu_relax();
}
