/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping the segment that the agent sent, and checking every number in it before the first
 * pointer.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/error.h"
#include "guest-shim/session.h"

static int bad(const char *what)
{
	return gantry_fail(GANTRY_E_PROTOCOL, "the agent's welcome makes no sense: %s", what);
}

static int check_welcome(const struct gantry_door_welcome *w)
{
	uint64_t end;

	if (w->version < GANTRY_WIRE_VERSION_MIN || w->version > GANTRY_WIRE_VERSION_MAX)
		return gantry_fail(GANTRY_E_VERSION, "the agent chose protocol version %u",
				   w->version);
	if (w->segment_bytes < GANTRY_SEGMENT_MIN_BYTES ||
	    w->segment_bytes > GANTRY_SEGMENT_MAX_BYTES || w->segment_bytes % GANTRY_PAGE)
		return bad("the segment's size");
	if (w->nqueues < 2 || w->nqueues > GANTRY_MAX_QUEUES)
		return bad("the number of queues");
	if (gantry_ring_stride_bytes(w->nslots) == 0)
		return bad("the number of slots");
	if (w->address % GANTRY_PAGE || gantry_add_u64(w->address, w->segment_bytes, &end) < 0)
		return bad("the segment's address");
	return 0;
}

/* Where the heap begins, as the segment says. Checked again with the rest. -errno. */
static int look_for_heap(const struct gantry_attachment *a, uint64_t *ret_off)
{
	struct gantry_segment_header h;
	void *page = mmap(NULL, GANTRY_PAGE, PROT_READ, MAP_SHARED, a->rings_fd,
			  (off_t)a->split_off);

	if (page == MAP_FAILED)
		return -errno;
	gantry_region_copy_out(&h, page, sizeof(h));
	(void)munmap(page, GANTRY_PAGE); /* cannot fail for a mapping of ours */
	if (h.heap_off == 0 || h.heap_off % GANTRY_PAGE || h.heap_off >= a->welcome.segment_bytes)
		return -EBADMSG;
	*ret_off = h.heap_off;
	return 0;
}

/*
 * Rings from one descriptor, heap from the other, side by side. Their ranges must not overlap at any time: a kernel
 * gives a range of device memory one way of caching.
 */
static int map_split(const struct gantry_attachment *a, void *wanted, int flags, void **ret_base)
{
	uint64_t bytes = a->welcome.segment_bytes, heap_off = 0;
	int prot = PROT_READ | PROT_WRITE;
	int r = look_for_heap(a, &heap_off);
	uint8_t *base;

	if (r < 0)
		return r;
	base = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
		    -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	if (mmap(base, heap_off, prot, MAP_SHARED | MAP_FIXED, a->rings_fd, (off_t)a->split_off) ==
		    MAP_FAILED ||
	    mmap(base + heap_off, bytes - heap_off, prot, MAP_SHARED | MAP_FIXED, a->heap_fd,
		 (off_t)(a->split_off + heap_off)) == MAP_FAILED) {
		r = -errno;
		(void)munmap(base, bytes); /* cannot fail for a mapping of ours */
		return r;
	}
	*ret_base = base;
	return 0;
}

static int map_whole(const struct gantry_attachment *a, void *wanted, int flags, void **ret_base)
{
	void *base = mmap(wanted, a->welcome.segment_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | flags, a->segment_fd, (off_t)a->segment_off);

	if (base == MAP_FAILED)
		return -errno;
	*ret_base = base;
	return 0;
}

/*
 * The way that was chosen, else the other: where the same memory is mapped still, by a session that a program has not closed,
 * x86's kernel refuses (-EINVAL) a range that would be cached in another way than a part of it is there.
 */
static int map_at(const struct gantry_attachment *a, void *wanted, int flags, void **ret_base,
		  bool *ret_is_split)
{
	bool is_split = a->is_split;
	int r = is_split ? map_split(a, wanted, flags, ret_base)
			 : map_whole(a, wanted, flags, ret_base);

	if (r == -EINVAL && a->can_split) {
		is_split = !is_split;
		r = is_split ? map_split(a, wanted, flags, ret_base)
			     : map_whole(a, wanted, flags, ret_base);
	}
	if (r == 0)
		*ret_is_split = is_split;
	return r;
}

static int cannot_map(int r)
{
	if (r == -EINVAL)
		return gantry_fail(
			GANTRY_E_AGAIN,
			"the session's memory is mapped here in another way still: close "
			"the sessions that have ended (gantry_close) first");
	if (r == -EBADMSG)
		return bad("the heap's place");
	return gantry_fail_errno(GANTRY_E_NO_MEMORY, -r, "mapping the segment");
}

/*
 * At the worker's address if that is free here, so that both sides' pointers agree; else anywhere.
 */
static int map_segment(struct gantry_session *s, const struct gantry_attachment *a)
{
	void *wanted = (void *)(uintptr_t)a->welcome.address;
	size_t bytes = a->welcome.segment_bytes;
	void *base = NULL;
	int r = -EEXIST;

	if (a->mapped) {
		s->segment = (struct gantry_region){ a->mapped, bytes };
		s->segment_is_borrowed = true;
		return 0;
	}
	if (wanted)
		r = map_at(a, wanted, MAP_FIXED_NOREPLACE, &base, &s->heap_is_loose);
	if (r < 0)
		r = map_at(a, NULL, 0, &base, &s->heap_is_loose);
	if (r < 0)
		return cannot_map(r);
	s->segment = (struct gantry_region){ base, bytes };
	if (wanted && base != wanted) /* also by kernels that take MAP_FIXED_NOREPLACE for a hint */
		s->props |= GANTRY_PROP_TRANSLATED;

	/* In a child the segment would be a second, silent user of the rings. */
	if (madvise(base, bytes, MADV_DONTFORK) < 0)
		return gantry_fail_errno(GANTRY_E_UNSUPPORTED, errno, "MADV_DONTFORK");
	return 0;
}

static bool overlap(uint64_t off_a, uint64_t len_a, uint64_t off_b, uint64_t len_b)
{
	return off_a < off_b + len_b && off_b < off_a + len_a;
}

/* @h is a private copy. The sums cannot wrap: every part was found inside the segment first. */
static int check_header(const struct gantry_segment_header *h, const struct gantry_door_welcome *w)
{
	uint64_t queues_bytes = (uint64_t)w->nqueues * gantry_ring_stride_bytes(w->nslots);

	if (h->magic != GANTRY_WIRE_MAGIC || h->version != w->version)
		return bad("the segment's magic or version");
	if (h->nqueues != w->nqueues || h->nslots != w->nslots ||
	    h->segment_bytes != w->segment_bytes || h->session_id != w->session_id)
		return bad("the segment differs from what was announced");
	if (h->queue_stride_bytes != gantry_ring_stride_bytes(w->nslots))
		return bad("the distance between queues");
	if (h->queues_off % GANTRY_LINE ||
	    !gantry_range_inside(h->queues_off, queues_bytes, h->segment_bytes))
		return bad("the queues reach past the segment");
	if (h->heap_off % GANTRY_PAGE || h->heap_bytes == 0 ||
	    !gantry_range_inside(h->heap_off, h->heap_bytes, h->segment_bytes))
		return bad("the heap reaches past the segment");
	if (overlap(0, sizeof(*h), h->queues_off, queues_bytes) ||
	    overlap(0, sizeof(*h), h->heap_off, h->heap_bytes) ||
	    overlap(h->queues_off, queues_bytes, h->heap_off, h->heap_bytes))
		return bad("parts of the segment overlap");
	return 0;
}

/* A fresh segment's rings are empty; nothing else is a place to start from. */
static int begin_fresh(struct gantry_queue_end *q)
{
	if (q->ring.tail != 0 || q->ring.head != 0 || gantry_ring_done(&q->ring.map) != 0)
		return bad("a queue was used before");
	q->room_end = q->ring.map.nslots;
	return 0;
}

/* Where the guest before us was. What its library still knew of the slots is found in them: adopt.c. */
static int begin_adopted(struct gantry_queue_end *q)
{
	uint64_t done = gantry_ring_done(&q->ring.map);

	if (done > q->ring.tail || q->ring.tail - done > q->ring.map.nslots)
		return bad("a queue's positions");
	gantry_failures_adopt(&q->failures, &q->ring.map, q->ring.tail);
	q->tail = q->room_end = q->ring.tail;
	return 0;
}

static int map_queues(struct gantry_session *s, uint64_t queues_off)
{
	int r = 0;

	for (uint32_t i = 0; i < s->nqueues && r == 0; i++) {
		struct gantry_queue_end *q = &s->queues[i];
		struct gantry_ring_map map;

		if (gantry_ring_map_init(&map, &s->segment, queues_off, i, s->nslots) < 0)
			return bad("a queue lies outside the segment");
		gantry_ring_producer_init(&q->ring, &map);
		r = s->is_adopted ? begin_adopted(q) : begin_fresh(q);
	}
	return r;
}

int gantry_session_map(struct gantry_session *s, const struct gantry_attachment *attachment)
{
	const struct gantry_door_welcome *w = &attachment->welcome;
	struct gantry_segment_header h;
	int r = check_welcome(w);

	if (r < 0)
		return r;
	r = map_segment(s, attachment);
	if (r < 0)
		return r;
	s->header = (struct gantry_segment_header *)s->segment.base;
	gantry_region_copy_out(&h, s->header, sizeof(h));
	r = check_header(&h, w);
	if (r < 0)
		return r;

	s->version = w->version;
	s->takes_keys = w->props & GANTRY_PROP_KEYS;
	s->takes_notes = w->props & GANTRY_PROP_NOTES;
	s->props |= w->props & (GANTRY_PROP_HOST_DIRECT | GANTRY_PROP_TRANSLATED);
	if (s->transport->is_pumped) /* what devices would work on is not what the guest sees */
		s->props = (s->props & ~GANTRY_PROP_HOST_DIRECT) | GANTRY_PROP_TRANSLATED;
	gantry_store_relaxed(&s->header->props, s->props & GANTRY_PROP_TRANSLATED);
	if (s->transport->mapped)
		s->transport->mapped(s->cookie, s->header, s->heap_is_loose);
	s->session_id = w->session_id;
	s->nqueues = w->nqueues;
	s->nslots = w->nslots;
	s->heap_region = (struct gantry_region){ s->segment.base + h.heap_off, h.heap_bytes };
	r = map_queues(s, h.queues_off);
	if (r < 0)
		return r;
	if (gantry_heap_init(&s->heap, h.heap_bytes) < 0)
		return gantry_fail(GANTRY_E_NO_MEMORY, "no memory to manage the heap with");
	return 0;
}
