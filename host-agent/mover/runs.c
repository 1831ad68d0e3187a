/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/runs.h"

#include <errno.h>
#include <stdlib.h>

int gantry_runs_init(struct gantry_runs *r)
{
	*r = (struct gantry_runs){ .memory = malloc(GANTRY_NRUNS * GANTRY_IMAGE_CHUNK) };
	if (!r->memory)
		return -ENOMEM;
	/* Default ones: initializing them cannot fail. */
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->put, NULL);
	(void)pthread_cond_init(&r->taken, NULL);
	for (uint32_t i = 0; i < GANTRY_NRUNS; i++)
		r->runs[i].copy = r->memory + (size_t)i * GANTRY_IMAGE_CHUNK;
	return 0;
}

void gantry_runs_fini(struct gantry_runs *r)
{
	if (!r->memory)
		return;
	(void)pthread_cond_destroy(&r->taken);
	(void)pthread_cond_destroy(&r->put);
	(void)pthread_mutex_destroy(&r->lock);
	free(r->memory);
	r->memory = NULL;
}

void gantry_runs_reset(struct gantry_runs *r, bool is_alone)
{
	r->nruns = is_alone ? 1 : GANTRY_NRUNS;
	r->is_ended = r->is_stopped = false;
	r->nput = r->ndone = 0;
}

struct gantry_run *gantry_runs_fill(struct gantry_runs *r)
{
	struct gantry_run *run;

	pthread_mutex_lock(&r->lock);
	while (r->nput - r->ndone == r->nruns && !r->is_stopped)
		pthread_cond_wait(&r->taken, &r->lock);
	run = r->is_stopped ? NULL : &r->runs[r->nput % r->nruns];
	pthread_mutex_unlock(&r->lock);
	return run;
}

static void count(struct gantry_runs *r, uint32_t *counter, pthread_cond_t *cond)
{
	pthread_mutex_lock(&r->lock);
	(*counter)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(&r->lock);
}

static void set_flag(struct gantry_runs *r, bool *flag, pthread_cond_t *cond)
{
	pthread_mutex_lock(&r->lock);
	*flag = true;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(&r->lock);
}

void gantry_runs_put(struct gantry_runs *r)
{
	count(r, &r->nput, &r->put);
}

void gantry_runs_end(struct gantry_runs *r)
{
	set_flag(r, &r->is_ended, &r->put);
}

const struct gantry_run *gantry_runs_take(struct gantry_runs *r)
{
	const struct gantry_run *run;

	pthread_mutex_lock(&r->lock);
	while (r->nput == r->ndone && !r->is_ended)
		pthread_cond_wait(&r->put, &r->lock);
	run = r->nput == r->ndone ? NULL : &r->runs[r->ndone % r->nruns];
	pthread_mutex_unlock(&r->lock);
	return run;
}

void gantry_runs_done(struct gantry_runs *r)
{
	count(r, &r->ndone, &r->taken);
}

void gantry_runs_stop(struct gantry_runs *r)
{
	set_flag(r, &r->is_stopped, &r->taken);
}
