/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/failures.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"

#define FIRST_CAP 64u

void gantry_failures_init(struct gantry_failures *f)
{
	*f = (struct gantry_failures){ 0 };
	pthread_mutex_init(&f->lock, NULL);
}

void gantry_failures_fini(struct gantry_failures *f)
{
	free(f->kept);
	pthread_mutex_destroy(&f->lock);
}

void gantry_failures_restart(struct gantry_failures *f, const struct gantry_ring_map *map,
			     uint64_t tail)
{
	pthread_mutex_lock(&f->lock);
	f->seen = tail;
	f->nfailed = gantry_ring_nfailed(map);
	pthread_mutex_unlock(&f->lock);
}

void gantry_failures_adopt(struct gantry_failures *f, const struct gantry_ring_map *map,
			   uint64_t tail)
{
	/* Before done: a count that is too low costs a look at statuses, one that is too high would hide one. */
	uint64_t nfailed = gantry_ring_nfailed(map);
	uint64_t done = gantry_ring_done(map);
	uint64_t from = tail > map->nslots ? tail - map->nslots : 0;
	uint64_t n = 0;

	/* Statuses below @from may be overwritten by tasks that are in the ring. */
	for (uint64_t pos = from; pos < done; pos++)
		n += gantry_ring_status(map, pos) != 0;
	pthread_mutex_lock(&f->lock);
	f->seen = from;
	f->nfailed = nfailed > n ? nfailed - n : 0;
	pthread_mutex_unlock(&f->lock);
}

static void grow_locked(struct gantry_failures *f)
{
	uint32_t cap = f->cap ? f->cap * 2 : FIRST_CAP;
	struct gantry_failure *kept;

	if (cap > GANTRY_FAILURES_MAX)
		return;
	kept = malloc(cap * sizeof(*kept));
	if (!kept)
		return; /* the oldest is forgotten instead */
	for (uint32_t i = 0; i < f->n; i++)
		kept[i] = f->kept[(f->first + i) & (f->cap - 1)];
	free(f->kept);
	f->kept = kept;
	f->cap = cap;
	f->first = 0;
}

static void keep_locked(struct gantry_failures *f, uint64_t pos, int status)
{
	if (f->n == f->cap)
		grow_locked(f);
	if (f->cap == 0)
		return; /* not even the first few bytes: nothing can be remembered */
	if (f->n == f->cap)
		f->first = (f->first + 1) & (f->cap - 1);
	else
		gantry_store_relaxed(&f->n, f->n + 1);
	f->kept[(f->first + f->n - 1) & (f->cap - 1)] = (struct gantry_failure){ pos, status };
}

static int harvest_locked(struct gantry_failures *f, const struct gantry_ring_map *map,
			  const uint64_t *tail)
{
	uint64_t done = gantry_ring_done(map);
	uint64_t nfailed = gantry_ring_nfailed(map);

	/*
	 * Acquire: pairs with the release in gantry_batch_flush(); tail is at least what the host
	 * saw.
	 */
	if (done > gantry_load_acquire(tail))
		return -EPROTO;
	if (done <= f->seen)
		return 0;
	/*
	 * The count may be ahead of done, never behind it: equal counts mean that nothing failed in
	 * between. done - seen is at most nslots, so the statuses are all still there.
	 */
	for (uint64_t pos = f->seen; nfailed != f->nfailed && pos < done; pos++) {
		int status = gantry_ring_status(map, pos);

		if (status == 0)
			continue;
		keep_locked(f, pos, status);
		f->nfailed++;
	}
	f->seen = done;
	return 0;
}

int gantry_failures_harvest(struct gantry_failures *f, const struct gantry_ring_map *map,
			    const uint64_t *tail, uint64_t *ret_seen)
{
	int r;

	pthread_mutex_lock(&f->lock);
	r = harvest_locked(f, map, tail);
	if (r == 0)
		*ret_seen = f->seen;
	pthread_mutex_unlock(&f->lock);
	return r;
}

static int find_locked(const struct gantry_failures *f, uint64_t pos)
{
	uint32_t low = 0, high = f->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct gantry_failure *failure = &f->kept[(f->first + mid) & (f->cap - 1)];

		if (failure->pos == pos)
			return failure->status;
		if (failure->pos < pos)
			low = mid + 1;
		else
			high = mid;
	}
	return 0;
}

int gantry_failures_find(struct gantry_failures *f, const struct gantry_ring_map *map,
			 const uint64_t *tail, uint64_t pos)
{
	int status;

	pthread_mutex_lock(&f->lock);
	(void)harvest_locked(f, map, tail); /* a host that lies is found out where room is sought */
	status = find_locked(f, pos);
	pthread_mutex_unlock(&f->lock);
	return status;
}
