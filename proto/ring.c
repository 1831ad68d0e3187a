/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/ring.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

/* The futex of done is its low half: little-endian machines only, which the magic also asserts. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

static uint64_t status_bytes(uint32_t nslots)
{
	uint64_t bytes = (uint64_t)nslots * sizeof(uint32_t);

	return (bytes + GANTRY_LINE - 1) & ~(uint64_t)(GANTRY_LINE - 1);
}

uint64_t gantry_ring_stride_bytes(uint32_t nslots)
{
	uint64_t bytes;

	if (nslots < GANTRY_MIN_SLOTS || nslots > GANTRY_MAX_SLOTS || (nslots & (nslots - 1)))
		return 0;
	bytes = sizeof(struct gantry_queue_area) + status_bytes(nslots) +
		(uint64_t)nslots * (sizeof(struct gantry_desc) + sizeof(struct gantry_inline));
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

int gantry_ring_map_init(struct gantry_ring_map *map, const struct gantry_region *segment,
			 uint64_t queues_off, uint32_t slot, uint32_t nslots)
{
	uint64_t stride = gantry_ring_stride_bytes(nslots);
	uint64_t off;
	void *base;
	int r;

	if (stride == 0 || slot >= GANTRY_MAX_QUEUES)
		return -EINVAL;
	if (__builtin_add_overflow(queues_off, slot * stride, &off))
		return -ERANGE;
	r = gantry_region_span(segment, off, stride, GANTRY_LINE, &base);
	if (r < 0)
		return r;

	map->area = base;
	map->status = (uint32_t *)((uint8_t *)base + sizeof(struct gantry_queue_area));
	map->desc = (struct gantry_desc *)((uint8_t *)map->status + status_bytes(nslots));
	map->inl = (struct gantry_inline *)(map->desc + nslots);
	map->nslots = nslots;
	map->mask = nslots - 1;
	return 0;
}

/* ---- guest end ---- */

void gantry_ring_producer_init(struct gantry_ring_producer *p, const struct gantry_ring_map *map)
{
	p->map = *map;
	p->tail = gantry_load_relaxed(&map->area->tail);
	/* Acquire: pairs with the release in gantry_ring_advance(); the slots before head are ours. */
	p->head = gantry_load_acquire(&map->area->head);
}

int gantry_ring_reserve(struct gantry_ring_producer *p, uint32_t n)
{
	if (p->tail - p->head <= p->map.nslots && p->tail + n - p->head <= p->map.nslots)
		return 0;
	/* Acquire: pairs with the release in gantry_ring_advance(); the host has read the slots before head. */
	p->head = gantry_load_acquire(&p->map.area->head);
	if (p->tail - p->head > p->map.nslots)
		return -EPROTO;
	return p->tail + n - p->head <= p->map.nslots ? 0 : -EAGAIN;
}

int gantry_ring_status(const struct gantry_ring_map *map, uint64_t pos)
{
	uint32_t status = gantry_load_relaxed(&map->status[pos & map->mask]);

	return status > INT32_MAX ? GANTRY_E_INTERNAL : -(int)status;
}

void gantry_ring_wait_enter(const struct gantry_ring_map *map)
{
	(void)gantry_fetch_add(&map->area->waiters, 1);
	/* Full fence: pairs with the one in gantry_ring_wake(). The host sees the waiter or we see done. */
	gantry_fence_full();
}

void gantry_ring_wait_leave(const struct gantry_ring_map *map)
{
	(void)gantry_fetch_sub(&map->area->waiters, 1);
}

int gantry_ring_wait_sleep(const struct gantry_ring_map *map, uint64_t seq, uint64_t deadline_ns)
{
	uint64_t done = gantry_load_acquire(&map->area->done);
	int r;

	if (done >= seq)
		return 0;
	r = gantry_futex_wait((const uint32_t *)&map->area->done, (uint32_t)done, deadline_ns);
	return r == -ETIMEDOUT ? r : 0;
}

/* ---- host end ---- */

void gantry_ring_consumer_init(struct gantry_ring_consumer *c, const struct gantry_ring_map *map,
			       uint64_t head, uint64_t done)
{
	c->map = *map;
	c->head = head;
	gantry_store_release(&map->area->head, head);
	gantry_store_release(&map->area->done, done);
	/* The worker before us may have died between publishing done and waking. */
	(void)gantry_ring_wake(c);
}

int64_t gantry_ring_ready(const struct gantry_ring_consumer *c)
{
	/* Acquire: pairs with the release in gantry_ring_publish(). */
	uint64_t tail = gantry_load_acquire(&c->map.area->tail);
	uint64_t ready = tail - c->head;

	return ready > c->map.nslots ? -EPROTO : (int64_t)ready;
}

void gantry_ring_peek(const struct gantry_ring_consumer *c, struct gantry_desc *ret_desc,
		      struct gantry_inline *ret_inl)
{
	uint32_t slot = (uint32_t)c->head & c->map.mask;
	uint32_t len;

	gantry_region_copy_out(ret_desc, &c->map.desc[slot], sizeof(*ret_desc));
	if (!(ret_desc->flags & GANTRY_DESC_INLINE))
		return;
	len = ret_desc->len_bytes;
	if (len > sizeof(ret_inl->bytes))
		len = sizeof(ret_inl->bytes);
	gantry_region_copy_out(ret_inl->bytes, c->map.inl[slot].bytes, len);
}

void gantry_ring_step(struct gantry_ring_consumer *c)
{
	c->head++;
}

void gantry_ring_publish_head(struct gantry_ring_consumer *c)
{
	/* Release: pairs with the acquire in gantry_ring_reserve(); our reads of the slots are over. */
	gantry_store_release(&c->map.area->head, c->head);
}

void gantry_ring_advance(struct gantry_ring_consumer *c)
{
	gantry_ring_step(c);
	gantry_ring_publish_head(c);
}

void gantry_ring_complete(struct gantry_ring_consumer *c, uint64_t done)
{
	/* Release: pairs with the acquire in gantry_ring_done(); effects come before the news of them. */
	gantry_store_release(&c->map.area->done, done);
}

void gantry_ring_set_status(struct gantry_ring_consumer *c, uint64_t pos, int status,
			    uint64_t nfailed)
{
	gantry_store_relaxed(&c->map.status[pos & c->map.mask], (uint32_t)-status);
	gantry_store_relaxed(&c->map.area->nfailed, nfailed);
}

void gantry_ring_reply(struct gantry_ring_consumer *c, uint64_t pos,
		       const struct gantry_reply *reply)
{
	gantry_region_copy_in(c->map.inl[pos & c->map.mask].bytes, reply, sizeof(*reply));
}

bool gantry_ring_must_wake(const struct gantry_ring_consumer *c)
{
	/* Full fence: pairs with the one in gantry_ring_wait_enter(). */
	gantry_fence_full();
	return gantry_load_relaxed(&c->map.area->waiters) != 0;
}

bool gantry_ring_wake(struct gantry_ring_consumer *c)
{
	if (!gantry_ring_must_wake(c))
		return false;
	(void)gantry_futex_wake((uint32_t *)&c->map.area->done, INT32_MAX);
	return true;
}

void gantry_ring_park(struct gantry_ring_consumer *c)
{
	gantry_store_relaxed(&c->map.area->parked, 1);
	/* Full fence: pairs with the one in gantry_ring_must_kick(). */
	gantry_fence_full();
}

void gantry_ring_unpark(struct gantry_ring_consumer *c)
{
	gantry_store_relaxed(&c->map.area->parked, 0);
}
