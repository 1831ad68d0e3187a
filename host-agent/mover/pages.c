/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "migration/sum.h"

#define RUN_MAX (GANTRY_IMAGE_CHUNK / GANTRY_PAGE)

/* A round under way. */
struct walk {
	struct gantry_pages *p;
	struct gantry_image_writer *w;
	int (*pace)(void *cookie, uint64_t bytes);
	void *cookie;
	struct gantry_pages_round *round;
	uint64_t sum_of_zero;
	uint64_t begin; /* of the run */
	uint32_t npages;
	uint64_t sums[RUN_MAX];
	uint64_t zero_begin;
	uint64_t zero_bytes;
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

	*p = (struct gantry_pages){
		.fd = fd, .region = region, .off = off, .bytes = bytes, .skip = skip
	};
	if (bytes == 0)
		return 0;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)off);
	sums = map == MAP_FAILED ? MAP_FAILED : map_table(bytes / GANTRY_PAGE * sizeof(*p->sums));
	p->copy = malloc(GANTRY_IMAGE_CHUNK);
	p->map = map == MAP_FAILED ? NULL : map;
	p->sums = sums == MAP_FAILED ? NULL : sums;
	if (p->map && p->sums && p->copy)
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
	free(p->copy);
	*p = (struct gantry_pages){ 0 };
}

static int flush_run(struct walk *k)
{
	uint32_t bytes = k->npages * GANTRY_PAGE;
	int r;

	if (k->npages == 0)
		return 0;
	r = gantry_image_write_pages(k->w, k->p->region, k->begin, k->p->copy, bytes, k->sums);
	k->round->bytes += bytes;
	k->npages = 0;
	return r < 0 ? r : k->pace(k->cookie, bytes);
}

static int flush_zero(struct walk *k)
{
	int r;

	if (k->zero_bytes == 0)
		return 0;
	r = gantry_image_write_zero(k->w, k->p->region, k->zero_begin, k->zero_bytes);
	k->round->zero += k->zero_bytes;
	k->zero_bytes = 0;
	return r < 0 ? r : k->pace(k->cookie, sizeof(struct gantry_image_zero));
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
	uint8_t *copy;
	int r = 0;

	if (k->npages == RUN_MAX || (k->npages > 0 && k->begin + k->npages * GANTRY_PAGE != at))
		r = flush_run(k);
	if (r < 0)
		return r;
	if (k->npages == 0)
		k->begin = at;
	copy = k->p->copy + k->npages * GANTRY_PAGE;
	k->sums[k->npages] = gantry_sum64_copy(copy, k->p->map + at, GANTRY_PAGE);
	k->p->sums[at / GANTRY_PAGE] = k->sums[k->npages] ^ k->sum_of_zero;
	k->npages++;
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

	k->round->looked += GANTRY_PAGE;
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
	static const uint8_t zero_page[GANTRY_PAGE];
	struct walk k = { .p = p, .w = w, .pace = pace, .cookie = cookie, .round = round };
	uint64_t at = from;
	int r = 0;

	if (from > to || to > p->bytes || from % GANTRY_PAGE || to % GANTRY_PAGE)
		return -ERANGE;
	k.sum_of_zero = gantry_sum64(zero_page, GANTRY_PAGE);
	while (at < to && r == 0) {
		uint64_t data = gantry_min_u64(seek(p, at, SEEK_DATA), to);
		uint64_t end = data < to ? gantry_min_u64(seek(p, data, SEEK_HOLE), to) : to;

		r = skip_hole(&k, at, data);
		/* A hole may be a part of a page that is not one: then the page is looked at. */
		end = gantry_max_u64(end, data + (data < to ? GANTRY_PAGE : 0));
		for (at = data; at < end && r == 0; at += GANTRY_PAGE)
			r = look_at(&k, at);
	}
	r = r ? r : flush_run(&k);
	return r ? r : flush_zero(&k);
}
