/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far two processors are from each other: how long a line of cache takes from the first that we may use to the second and back.
 *
 *   bench-line      prints nanoseconds, the least of some; 0 where there is one processor
 *
 * In a virtual machine that is its host's choice, anew at any time: on two threads of one core some 50, on cores that share no cache some
 * 300, and a stream between two processes goes half as fast there.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"

#define TRIES 20
#define TURNS 2000

static _Alignas(128) atomic_int turn; /* 0: ours, 1: the other's, 2: the end */

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set); /* it was in our set */
}

static void *answer(void *cpu)
{
	int seen;

	stay_on(*(int *)cpu);
	while ((seen = atomic_load(&turn)) != 2)
		if (seen == 1)
			atomic_store(&turn, 0);
	return NULL;
}

static double try(void)
{
	uint64_t start_ns = gantry_now_ns();

	for (int i = 0; i < TURNS; i++) {
		atomic_store(&turn, 1);
		while (atomic_load(&turn) == 1)
			;
	}
	return (double)(gantry_now_ns() - start_ns) / TURNS;
}

static int find(int *ret_cpus, int max)
{
	cpu_set_t set;
	int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 0;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < max; cpu++)
		if (CPU_ISSET(cpu, &set))
			ret_cpus[n++] = cpu;
	return n;
}

int main(void)
{
	double best = 0;
	pthread_t thread;
	int cpus[2];

	if (find(cpus, 2) < 2) {
		printf("0\n");
		return 0;
	}
	if (pthread_create(&thread, NULL, answer, &cpus[1]) != 0) {
		fprintf(stderr, "bench-line: no thread\n");
		return 1;
	}
	stay_on(cpus[0]);
	for (int i = 0; i < TRIES; i++) {
		double took_ns = try();

		best = i == 0 || took_ns < best ? took_ns : best;
	}
	atomic_store(&turn, 2);
	(void)pthread_join(thread, NULL); /* it is ours */
	printf("%.0f\n", best);
	return 0;
}
