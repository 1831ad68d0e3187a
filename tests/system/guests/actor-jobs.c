/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/actor.h"

#define NELEMENTS 4096u
#define NFLYING	  256u /* tasks between submission and a look at their status */
#define NWORDS	  512u
#define STEP	  0x9e3779b97f4a7c15ull
#define WAIT_NS	  INT64_C(60000000000)

struct flying {
	gantry_ticket ticket;
	uint64_t idx;
	uint64_t sum; /* pairs: what the answer must be; 0: no answer is expected */
};

struct job {
	pthread_t thread;
	struct gantry_session *s;
	char kind[8];
	uint64_t limit;
	_Atomic uint64_t rounds;
	atomic_bool stop;
	gantry_queue queue;
	gantry_kernel kernel;
	gantry_buffer a, b;
	struct flying flying[NFLYING];
	uint64_t nput, nlooked;
	struct tally tally;
	uint64_t nwrong; /* answers that are not what they must be */
	uint64_t certain[NELEMENTS];
	uint64_t doubtful[NELEMENTS];
	int error; /* what ended it */
	char sentence[256];
};

static struct job *jobs[ACTOR_NJOBS];

/* ---- tally ---- */

void tally_add(struct tally *t, int status)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->of[i].status == status) {
			t->of[i].count++;
			return;
		}
	if (t->n < 16) {
		t->of[t->n].status = status;
		t->of[t->n++].count = 1;
	}
}

void tally_print(const struct tally *t, char *text, size_t cap)
{
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < t->n && len < cap; i++)
		len += (size_t)snprintf(text + len, cap - len, "%s%d=%llu", i ? " " : "",
					t->of[i].status, (unsigned long long)t->of[i].count);
}

/* ---- tasks ---- */

static uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t checksum_of(const uint64_t *words, uint64_t n)
{
	uint64_t sum = 8 * n;

	for (uint64_t i = 0; i < n; i++)
		sum += mix64(words[i] + (i + 1) * STEP);
	return sum;
}

static uint64_t checksum_of_filled(uint64_t word)
{
	uint64_t words[NWORDS];

	for (unsigned i = 0; i < NWORDS; i++)
		words[i] = word;
	return checksum_of(words, NWORDS);
}

static void launch_finish(struct launch *l, uint32_t args_bytes)
{
	l->task = (struct gantry_task){
		.kernel = l->kernel,
		.args = &l->args,
		.args_bytes = args_bytes,
		.naccess = 2,
		.access = l->access,
	};
}

void launch_add(struct launch *l, gantry_kernel saxpy, gantry_buffer one, gantry_buffer y,
		uint64_t idx)
{
	*l = (struct launch){ .kernel = saxpy, .args.saxpy = { .alpha = 1.0f, .n = 1 } };
	l->access[0] =
		(struct gantry_access){ .buffer = one, .len = 4, .mode = GANTRY_R, .arg_off = 8 };
	l->access[1] = (struct gantry_access){
		.buffer = y,
		.off = 4 * idx,
		.len = 4,
		.mode = GANTRY_RW,
		.arg_off = 16,
	};
	launch_finish(l, 32);
}

void launch_checksum(struct launch *l, gantry_kernel checksum, gantry_buffer bytes, uint64_t len,
		     gantry_buffer sums, uint64_t idx)
{
	*l = (struct launch){ .kernel = checksum, .args.checksum = { .n = len } };
	l->access[0] = (struct gantry_access){
		.buffer = bytes, .len = len, .mode = GANTRY_R, .arg_off = 0
	};
	l->access[1] = (struct gantry_access){
		.buffer = sums,
		.off = 8 * idx,
		.len = 8,
		.mode = GANTRY_W,
		.arg_off = 8,
	};
	launch_finish(l, 24);
}

/* ---- rounds ---- */

/* A full ring while no worker serves it is nothing to give up for. */
static int put(struct job *j, const struct launch *l, gantry_ticket *ret)
{
	int r;

	do
		r = gantry_submit(j->s, j->queue, &l->task, 1, ret);
	while (r == GANTRY_E_AGAIN && !j->stop);
	return r;
}

static int look_at_oldest(struct job *j)
{
	const struct flying *f = &j->flying[j->nlooked++ % NFLYING];
	int r = gantry_wait(j->s, &f->ticket, 1, WAIT_NS);
	uint64_t sum;

	tally_add(&j->tally, r);
	if (r <= GANTRY_E_PROTOCOL && r > GANTRY_E_DEVICE_FAULT)
		return r;
	if (r == GANTRY_E_TIMEOUT)
		return r;
	if (strcmp(j->kind, "adds") == 0) {
		if (r == 0)
			j->certain[f->idx]++;
		else
			j->doubtful[f->idx]++;
	} else if (f->sum && r == 0) {
		do
			r = gantry_read(j->s, j->b, 8 * f->idx, &sum, sizeof(sum));
		while (r == GANTRY_E_IN_DOUBT);
		if (r < 0)
			return r;
		if (sum != f->sum)
			j->nwrong++;
	}
	return 0;
}

static int remember(struct job *j, gantry_ticket ticket, uint64_t idx, uint64_t sum)
{
	j->flying[j->nput++ % NFLYING] = (struct flying){ ticket, idx, sum };
	return j->nput - j->nlooked == NFLYING ? look_at_oldest(j) : 0;
}

static int round_adds(struct job *j, uint64_t i)
{
	struct launch l;
	gantry_ticket ticket;
	int r;

	launch_add(&l, j->kernel, j->a, j->b, i % NELEMENTS);
	r = put(j, &l, &ticket);
	return r < 0 ? r : remember(j, ticket, i % NELEMENTS, 0);
}

static int round_pairs(struct job *j, uint64_t i)
{
	struct launch l;
	gantry_ticket fill, sum;
	int r;

	do
		r = gantry_submit_fill(j->s, j->queue, j->a, 0, NWORDS * 8, i * STEP, 8, &fill);
	while (r == GANTRY_E_AGAIN && !j->stop);
	if (r < 0)
		return r;
	launch_checksum(&l, j->kernel, j->a, NWORDS * 8, j->b, i % NELEMENTS);
	r = put(j, &l, &sum);
	if (r == 0)
		r = remember(j, fill, 0, 0);
	return r < 0 ? r : remember(j, sum, i % NELEMENTS, checksum_of_filled(i * STEP));
}

static int round_loop(struct job *j, uint64_t i)
{
	int r = round_pairs(j, i);

	while (r == 0 && j->nlooked < j->nput)
		r = look_at_oldest(j);
	return r;
}

/* What only the control queue does. A failure of the worker is no reason to stop, only to count. */
static int round_churn(struct job *j, uint64_t i)
{
	gantry_buffer buffer;
	gantry_queue queue;
	gantry_ticket ticket;
	int r = gantry_alloc(j->s, 65536, i % 2 ? GANTRY_ALLOC_DEVICE : GANTRY_ALLOC_SHARED,
			     &buffer);

	tally_add(&j->tally, r);
	if (r < 0)
		return r;
	r = gantry_submit_fill(j->s, j->queue, buffer, 0, 65536, i, 8, &ticket);
	if (r == 0)
		r = remember(j, ticket, 0, 0);
	if (r == 0)
		r = gantry_free(j->s, buffer);
	if (r == 0 && i % 8 == 0)
		r = gantry_queue_open(j->s, NULL, &queue);
	if (r == 0 && i % 8 == 0)
		r = gantry_queue_close(j->s, queue);
	return r;
}

static int round_of(struct job *j, uint64_t i)
{
	switch (j->kind[0]) {
	case 'a':
		return round_adds(j, i);
	case 'p':
		return round_pairs(j, i);
	case 'c':
		return round_churn(j, i);
	default:
		return round_loop(j, i);
	}
}

static void *job_main(void *arg)
{
	struct job *j = arg;
	int r = 0;

	for (uint64_t i = 0; r == 0 && !j->stop && (j->limit == 0 || i < j->limit); i++) {
		r = round_of(j, i);
		j->rounds = i + 1;
	}
	while (r == 0 && j->nlooked < j->nput)
		r = look_at_oldest(j);
	j->error = r;
	(void)snprintf(j->sentence, sizeof(j->sentence), "%s", r < 0 ? gantry_last_error() : "");
	return NULL;
}

/* ---- start and end ---- */

static int prepare(struct job *j)
{
	bool adds = j->kind[0] == 'a';
	float one = 1.0f;
	int r = gantry_queue_open(j->s, NULL, &j->queue);

	if (r == 0)
		r = gantry_kernel_find(j->s, adds ? "saxpy" : "checksum", NULL, &j->kernel);
	if (r == 0)
		r = gantry_alloc(j->s, NWORDS * 8, GANTRY_ALLOC_DEVICE, &j->a);
	if (r == 0)
		r = gantry_alloc(j->s, 8 * NELEMENTS, GANTRY_ALLOC_DEVICE, &j->b);
	if (r == 0 && adds)
		r = gantry_write(j->s, j->a, 0, &one, sizeof(one));
	if (r == 0 && adds)
		r = gantry_submit_fill(j->s, j->queue, j->b, 0, 8 * NELEMENTS, 0, 8, NULL);
	return r;
}

int job_start(struct gantry_session *s, unsigned job, const char *kind, uint64_t limit)
{
	struct job *j = calloc(1, sizeof(*j));
	int r;

	if (!j || job >= ACTOR_NJOBS || jobs[job]) {
		free(j);
		return GANTRY_E_ARG;
	}
	j->s = s;
	j->limit = limit;
	(void)snprintf(j->kind, sizeof(j->kind), "%s", kind);
	r = prepare(j);
	if (r == 0 && pthread_create(&j->thread, NULL, job_main, j) != 0)
		r = GANTRY_E_NO_MEMORY;
	if (r < 0)
		free(j);
	else
		jobs[job] = j;
	return r;
}

uint64_t job_rounds(unsigned job)
{
	return job < ACTOR_NJOBS && jobs[job] ? jobs[job]->rounds : 0;
}

/* Elements that were added to less often than said, and more often than possible. */
static int count_adds(struct job *j, uint64_t *ret_lost, uint64_t *ret_twice)
{
	static float y[NELEMENTS];
	int r;

	*ret_lost = *ret_twice = 0;
	do
		r = gantry_read(j->s, j->b, 0, y, sizeof(y));
	while (r == GANTRY_E_IN_DOUBT);
	for (unsigned i = 0; r == 0 && i < NELEMENTS; i++) {
		*ret_lost += y[i] < (float)j->certain[i];
		*ret_twice += y[i] > (float)(j->certain[i] + j->doubtful[i]);
	}
	return r;
}

int job_end(unsigned job, int at_once, char *text, size_t cap)
{
	struct job *j = job < ACTOR_NJOBS ? jobs[job] : NULL;
	uint64_t lost = 0, twice = 0;
	char counts[256];
	int r;

	if (!j)
		return GANTRY_E_ARG;
	j->stop = at_once;
	pthread_join(j->thread, NULL);
	r = j->error;
	if (r == 0 && j->kind[0] == 'a')
		r = count_adds(j, &lost, &twice);
	tally_print(&j->tally, counts, sizeof(counts));
	(void)snprintf(text, cap, "rounds=%llu wrong=%llu lost=%llu twice=%llu %s %s",
		       (unsigned long long)j->rounds, (unsigned long long)j->nwrong,
		       (unsigned long long)lost, (unsigned long long)twice, counts,
		       r < 0 ? j->sentence : "");
	jobs[job] = NULL;
	free(j);
	return r;
}
