/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of one queue: single producer (guest), single consumer (the device thread of a worker), both
 * ends in ring.c. Positions are 64-bit counts of tasks and never wrap in practice; position n lives in
 * slot n % nslots and its ticket's sequence number is n + 1.
 *
 * Memory order (the model in tests/model/ring.pml checks the wake-ups):
 *   put:      fill slot; tail release; full fence; read parked      | pairs with park
 *   take:     tail acquire; copy slot out; (record); head release   | pairs with put and reserve
 *   complete: status; done release; full fence; read waiters       | pairs with wait
 *   park:     parked = 1; full fence; read tail again               | a put sees parked or park sees the put
 *   wait:     waiters++; full fence; read done again; futex on done | complete sees the waiter or it sees done
 *
 * Trust: the consumer believes nothing the producer wrote: tail is bounded before use, descriptors are
 * copied once. The producer bounds what the consumer wrote too (a corrupt host must not crash a guest).
 * Threads: each end is used by one thread at a time; guest threads that share a queue take a lock of their
 * own. gantry_ring_done(), _failed() and the wait calls may be used by any guest thread.
 */
#ifndef GANTRY_PROTO_RING_H
#define GANTRY_PROTO_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "proto/region.h"
#include "proto/wire.h"

/* Where one queue's parts lie; made once, from validated numbers. */
struct gantry_ring_map {
	struct gantry_queue_area *area;
	uint32_t *status;
	struct gantry_desc *desc;
	struct gantry_inline *inl;
	uint32_t nslots;
	uint32_t mask;
};

/* Bytes of one queue area with its arrays, a multiple of a page; 0 if nslots is not allowed. */
uint64_t gantry_ring_stride_bytes(uint32_t nslots);

/*
 * Lays @slot's parts out over @segment. -EINVAL: nslots is no power of two within the format's limits;
 * -ERANGE: the area does not fit.
 */
int gantry_ring_map_init(struct gantry_ring_map *map, const struct gantry_region *segment,
			 uint64_t queues_off, uint32_t slot, uint32_t nslots);

/* ---- guest end ---- */

struct gantry_ring_producer {
	struct gantry_ring_map map;
	uint64_t tail; /* private: next position to fill */
	uint64_t head; /* last head seen */
};

/* Continues at the tail that the area holds (a fresh area holds 0). */
void gantry_ring_producer_init(struct gantry_ring_producer *p, const struct gantry_ring_map *map);

/* Room for @n more tasks: 0, -EAGAIN (full now) or -EPROTO (the host's head makes no sense). */
int gantry_ring_reserve(struct gantry_ring_producer *p, uint32_t n);

/* The slot of the @i-th reserved task, to be filled before publish. */
static inline struct gantry_desc *gantry_ring_desc(struct gantry_ring_producer *p, uint32_t i)
{
	return &p->map.desc[(p->tail + i) & p->map.mask];
}

static inline struct gantry_inline *gantry_ring_inline(struct gantry_ring_producer *p, uint32_t i)
{
	return &p->map.inl[(p->tail + i) & p->map.mask];
}

/*
 * Gives @n filled slots to the host. Returns the sequence number of the last. The caller then adds 1 to the
 * segment's bell and asks gantry_ring_must_kick().
 */
static inline uint64_t gantry_ring_publish(struct gantry_ring_producer *p, uint32_t n)
{
	p->tail += n;
	/* Release: pairs with the acquire in gantry_ring_ready(); the slots before tail are filled. */
	gantry_store_release(&p->map.area->tail, p->tail);
	return p->tail;
}

/* Full fence, then whether the host sleeps and has to be woken through the session's bell descriptor. */
static inline bool gantry_ring_must_kick(const struct gantry_ring_map *map)
{
	/*
	 * Full fence: pairs with the one in gantry_ring_park(). Either the host sees our tail after it
	 * announced sleep, or we see the announcement here.
	 */
	gantry_fence_full();
	return gantry_load_relaxed(&map->area->parked) != 0;
}

/* Tasks finished so far (acquire: their effects are visible). */
static inline uint64_t gantry_ring_done(const struct gantry_ring_map *map)
{
	/* Acquire: pairs with the release in gantry_ring_complete(); results and statuses are visible. */
	return gantry_load_acquire(&map->area->done);
}

/* Status of finished position @pos (seq - 1): 0 or negative; only while its slot was not filled again. */
int gantry_ring_status(const struct gantry_ring_map *map, uint64_t pos);

/* How many of the finished tasks failed; may be ahead of done, never behind it. */
static inline uint64_t gantry_ring_nfailed(const struct gantry_ring_map *map)
{
	return gantry_load_relaxed(&map->area->nfailed);
}

/*
 * Sleeps until done may have reached @seq or @deadline_ns (CLOCK_MONOTONIC) passes. @waiters_delta is kept
 * by the caller's lock-free guest-local count: enter before, leave after, around any number of sleeps.
 * 0: look again; -ETIMEDOUT.
 */
void gantry_ring_wait_enter(const struct gantry_ring_map *map);
void gantry_ring_wait_leave(const struct gantry_ring_map *map);
int gantry_ring_wait_sleep(const struct gantry_ring_map *map, uint64_t seq, uint64_t deadline_ns);

/* ---- host end ---- */

struct gantry_ring_consumer {
	struct gantry_ring_map map;
	uint64_t
		head; /* tasks taken; the authority is here and in the ledger, never in the segment */
};

/*
 * Takes over at @head and @done (0 for a new queue, the ledger's numbers after a fault), publishes them and
 * wakes guest threads, whom the owner before may have left asleep.
 */
void gantry_ring_consumer_init(struct gantry_ring_consumer *c, const struct gantry_ring_map *map,
			       uint64_t head, uint64_t done);

/* Tasks put and not taken: 0 or more, or -EPROTO when tail makes no sense (condemn the session). */
int64_t gantry_ring_ready(const struct gantry_ring_consumer *c);

/*
 * Copies the next descriptor and, if it says so, its inline block out. Does not give the slot back.
 * The copy is the caller's, unchecked. Call only when gantry_ring_ready() returned more than 0.
 */
void gantry_ring_peek(const struct gantry_ring_consumer *c, struct gantry_desc *ret_desc,
		      struct gantry_inline *ret_inl);

/* Gives the peeked slot back to the guest (release; pairs with reserve). */
void gantry_ring_advance(struct gantry_ring_consumer *c);

/*
 * The two halves of gantry_ring_advance(), for batches: step over the peeked slot in private, and later give
 * all slots stepped over back at once. head shares its cache line with done, which a waiting guest polls: one
 * publication less a task is one trip of that line less.
 */
void gantry_ring_step(struct gantry_ring_consumer *c);
void gantry_ring_publish_head(struct gantry_ring_consumer *c);

/* Publishes that everything up to @done has finished. gantry_ring_wake() must follow, once per batch. */
void gantry_ring_complete(struct gantry_ring_consumer *c, uint64_t done);

/* Sets the status of position @pos before it is completed; @nfailed is the queue's count after it. */
void gantry_ring_set_status(struct gantry_ring_consumer *c, uint64_t pos, int status,
			    uint64_t nfailed);

/* Writes the reply of control operation @pos before it is completed. */
void gantry_ring_reply(struct gantry_ring_consumer *c, uint64_t pos,
		       const struct gantry_reply *reply);

/* Full fence, then whether guest threads sleep on done. */
bool gantry_ring_must_wake(const struct gantry_ring_consumer *c);

/* The same, and wakes them by futex. Never blocks. Returns whether it woke. */
bool gantry_ring_wake(struct gantry_ring_consumer *c);

/*
 * Announces sleep. After it the caller must look at gantry_ring_ready() of every ring once more before it
 * sleeps, because a put that came before the announcement rings no bell.
 */
void gantry_ring_park(struct gantry_ring_consumer *c);
void gantry_ring_unpark(struct gantry_ring_consumer *c);

#endif
