/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/thread.h"
#include "host-agent/mover/mover.h"
#include "migration/sum.h"

#define ALONE_BYTES (1u << 20) /* for fewer no thread is made */

/*
 * A round under way. Who looks for what the other host lacks fills runs, who sends empties them: two threads, or one after the other, run
 * by run, where @send is set.
 */
struct walk {
	struct gantry_pages *p;
	uint64_t from, to;
	uint64_t sum_of_zero;
	uint64_t looked;
	struct gantry_run *run; /* being filled; pages */
	uint64_t zero_begin;
	uint64_t zero_bytes;
	int (*send)(void *cookie); /* a run was put; 0, or the walk ends with it */
	void *cookie;
};

static void *map_table(uint64_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int gantry_pages_open(struct gantry_pages *p, uint32_t region, int fd, uint64_t off, uint64_t bytes,
		      uint64_t skip)
{
	void *map = MAP_FAILED, *sums = MAP_FAILED;
	int r = 0;

	*p = (struct gantry_pages){
		.fd = fd, .region = region, .off = off, .bytes = bytes, .skip = skip
	};
	p->looks_ahead = gantry_cpus_allowed() > GANTRY_MOVER_CPUS;
	if (bytes == 0)
		return 0;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)off);
	sums = map == MAP_FAILED ? MAP_FAILED : map_table(bytes / GANTRY_PAGE * sizeof(*p->sums));
	r = gantry_runs_init(&p->runs);
	p->map = map == MAP_FAILED ? NULL : map;
	p->sums = sums == MAP_FAILED ? NULL : sums;
	if (p->map && p->sums && r == 0)
		return 0;
	gantry_pages_close(p);
	return -ENOMEM;
}

void gantry_pages_close(struct gantry_pages *p)
{
	/* Mappings of ours: unmapping cannot fail. */
	if (p->map)
		(void)munmap((void *)(uintptr_t)p->map, p->bytes);
	if (p->sums)
		(void)munmap(p->sums, p->bytes / GANTRY_PAGE * sizeof(*p->sums));
	gantry_runs_fini(&p->runs);
	*p = (struct gantry_pages){ 0 };
}

/* ---- looking ---- */

static int put_run(struct walk *k)
{
	gantry_runs_put(&k->p->runs);
	return k->send ? k->send(k->cookie) : 0;
}

static int begin_run(struct walk *k, uint64_t at, bool is_zero, struct gantry_run **ret_run)
{
	struct gantry_run *run = gantry_runs_fill(&k->p->runs);

	if (!run)
		return -ECANCELED; /* who sends has said why */
	run->begin = at;
	run->bytes = 0;
	run->is_zero = is_zero;
	*ret_run = run;
	return 0;
}

static int flush_run(struct walk *k)
{
	if (!k->run)
		return 0;
	k->run = NULL;
	return put_run(k);
}

/* One run is filled at a time: that of pages goes first. */
static int flush_zero(struct walk *k)
{
	struct gantry_run *run;
	int r;

	if (k->zero_bytes == 0)
		return 0;
	r = flush_run(k);
	r = r < 0 ? r : begin_run(k, k->zero_begin, true, &run);
	if (r < 0)
		return r;
	run->bytes = k->zero_bytes;
	k->zero_bytes = 0;
	return put_run(k);
}

/* The other host has something else there. */
static int put_zero(struct walk *k, uint64_t at)
{
	int r = 0;

	if (k->zero_bytes == 0 || k->zero_begin + k->zero_bytes != at) {
		r = flush_zero(k);
		k->zero_begin = at;
	}
	k->zero_bytes += GANTRY_PAGE;
	k->p->sums[at / GANTRY_PAGE] = 0;
	return r;
}

/* The copy is what is summed and what goes. */
static int put_page(struct walk *k, uint64_t at)
{
	uint64_t sum;
	int r = 0;

	if (k->run && (k->run->bytes == GANTRY_IMAGE_CHUNK || k->run->begin + k->run->bytes != at))
		r = flush_run(k);
	if (r == 0 && !k->run)
		r = begin_run(k, at, false, &k->run);
	if (r < 0)
		return r;
	sum = gantry_sum64_copy(k->run->copy + k->run->bytes, k->p->map + at, GANTRY_PAGE);
	k->run->sums[k->run->bytes / GANTRY_PAGE] = sum;
	k->run->bytes += GANTRY_PAGE;
	k->p->sums[at / GANTRY_PAGE] = sum ^ k->sum_of_zero;
	k->p->end = gantry_max_u64(k->p->end, at + GANTRY_PAGE);
	return 0;
}

static bool is_zero(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, GANTRY_PAGE - 1) == 0;
}

static int look_at(struct walk *k, uint64_t at)
{
	const uint8_t *page = k->p->map + at;
	uint64_t known = k->p->sums[at / GANTRY_PAGE];
	uint64_t sum;

	k->looked += GANTRY_PAGE;
	if (at >= k->p->end && page[0] != 0) /* never sent: it need not be compared first */
		return put_page(k, at);
	sum = gantry_sum64(page, GANTRY_PAGE) ^ k->sum_of_zero;
	if (sum == known)
		return 0;
	if (sum == 0 && is_zero(page))
		return put_zero(k, at);
	return put_page(k, at);
}

/* What the file does not have reads as zero, and must not be touched: that would make it. */
static int skip_hole(struct walk *k, uint64_t from, uint64_t to)
{
	int r = 0;

	to = gantry_min_u64(to, k->p->end);
	for (uint64_t at = from; at < to && r == 0; at += GANTRY_PAGE)
		if (k->p->sums[at / GANTRY_PAGE])
			r = put_zero(k, at);
	return r;
}

/* Where data, or a hole, begins at or after @at. */
static uint64_t seek(const struct gantry_pages *p, uint64_t at, int whence)
{
	off_t found = lseek(p->fd, (off_t)(p->off + at), whence);

	if (found < 0)
		return whence == SEEK_DATA && errno != ENXIO ? at : p->bytes;
	return gantry_min_u64((uint64_t)found - p->off, p->bytes) & ~(uint64_t)(GANTRY_PAGE - 1);
}

/* 0, or what ended it. */
static int look(struct walk *k)
{
	static const uint8_t zero_page[GANTRY_PAGE];
	uint64_t at = k->from, to = k->to;
	int r = 0;

	k->sum_of_zero = gantry_sum64(zero_page, GANTRY_PAGE);
	while (at < to && r == 0) {
		uint64_t data = gantry_min_u64(seek(k->p, at, SEEK_DATA), to);
		uint64_t end = data < to ? gantry_min_u64(seek(k->p, data, SEEK_HOLE), to) : to;

		r = skip_hole(k, at, data);
		/* A hole may be a part of a page that is not one: then the page is looked at. */
		end = gantry_max_u64(end, data + (data < to ? GANTRY_PAGE : 0));
		for (at = data; at < end && r == 0; at += GANTRY_PAGE)
			r = look_at(k, at);
	}
	r = r ? r : flush_run(k);
	return r ? r : flush_zero(k);
}

static void *look_ahead(void *arg)
{
	struct walk *k = arg;

	(void)look(k); /* it ends early where who sends wants no more */
	gantry_runs_end(&k->p->runs);
	return NULL;
}

/* ---- sending ---- */

struct sending {
	struct gantry_pages *p;
	struct gantry_image_writer *w;
	int (*pace)(void *cookie, uint64_t bytes);
	void *cookie;
	struct gantry_pages_round *round;
};

static int send_one(const struct sending *s, const struct gantry_run *run)
{
	uint32_t region = s->p->region;
	int r;

	if (run->is_zero) {
		r = gantry_image_write_zero(s->w, region, run->begin, run->bytes);
		s->round->zero += run->bytes;
		return r < 0 ? r : s->pace(s->cookie, sizeof(struct gantry_image_zero));
	}
	r = gantry_image_write_pages(s->w, region, run->begin, run->copy, (uint32_t)run->bytes,
				     run->sums);
	s->round->bytes += run->bytes;
	return r < 0 ? r : s->pace(s->cookie, run->bytes);
}

static int send_next(void *cookie)
{
	const struct sending *s = cookie;
	int r = send_one(s, gantry_runs_take(&s->p->runs));

	gantry_runs_done(&s->p->runs);
	return r;
}

/* All that @thread finds, until one fails. */
static int send_found(const struct sending *s, pthread_t thread)
{
	const struct gantry_run *run;
	int r = 0;

	while (r == 0 && (run = gantry_runs_take(&s->p->runs))) {
		r = send_one(s, run);
		gantry_runs_done(&s->p->runs);
	}
	gantry_runs_stop(&s->p->runs);
	(void)pthread_join(thread, NULL); /* it is ours, and was not joined */
	return r;
}

int gantry_pages_send(struct gantry_pages *p, struct gantry_image_writer *w,
		      int (*pace)(void *cookie, uint64_t bytes), void *cookie,
		      struct gantry_pages_round *round)
{
	return gantry_pages_send_part(p, w, pace, cookie, round, p->skip, p->bytes);
}

int gantry_pages_send_part(struct gantry_pages *p, struct gantry_image_writer *w,
			   int (*pace)(void *cookie, uint64_t bytes), void *cookie,
			   struct gantry_pages_round *round, uint64_t from, uint64_t to)
{
	struct sending s = { .p = p, .w = w, .pace = pace, .cookie = cookie, .round = round };
	struct walk k = { .p = p, .from = from, .to = to };
	pthread_t thread;
	bool is_ahead;
	int r;

	if (from > to || to > p->bytes || from % GANTRY_PAGE || to % GANTRY_PAGE)
		return -ERANGE;
	is_ahead = p->looks_ahead && to - from > ALONE_BYTES;
	gantry_runs_reset(&p->runs, !is_ahead);
	if (is_ahead && pthread_create(&thread, NULL, look_ahead, &k) == 0) {
		r = send_found(&s, thread);
	} else {
		k.send = send_next;
		k.cookie = &s;
		r = look(&k);
	}
	round->looked += k.looked;
	return r;
}
