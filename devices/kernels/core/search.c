/* SPDX-License-Identifier: Apache-2.0 */
/* Searches: the nearest of many places, and breadth first through a graph. */
#include <math.h>
#include <string.h>

#include "devices/kernels/kernel.h"

/*
 * Bounds the scratch memory of one call: REDUCE_BLOCKS_MAX * NEAREST_MAX places of 8 bytes are 4
 * MiB.
 */
#define NEAREST_MAX 1024u

struct place {
	float distance;
	uint32_t idx;
};

struct nearest {
	struct reduce_blocks rb;
	const float *records; /* pairs of coordinates */
	float x, y;
	uint64_t k;
	struct place *heaps;		  /* k places per block */
	uint32_t held[REDUCE_BLOCKS_MAX]; /* places in each heap */
};

/* Equal distances go by index, so that the answer is one. */
static inline bool farther(struct place a, struct place b)
{
	return a.distance > b.distance || (a.distance == b.distance && a.idx > b.idx);
}

/* Lets heap[at] sink until no child of its is farther. */
static void sink(struct place *heap, uint64_t held, uint64_t at)
{
	struct place moving = heap[at];

	for (uint64_t child = 2 * at + 1; child < held; child = 2 * at + 1) {
		if (child + 1 < held && farther(heap[child + 1], heap[child]))
			child++;
		if (!farther(heap[child], moving))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moving;
}

static void rise(struct place *heap, uint64_t at)
{
	struct place moving = heap[at];

	while (at > 0 && farther(moving, heap[(at - 1) / 2])) {
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap[at] = moving;
}

/* Keeps the @k nearest of all places offered; the farthest of them is heap[0]. */
static inline void offer(struct place *heap, uint32_t *held, uint64_t k, struct place place)
{
	if (*held < k) {
		heap[*held] = place;
		rise(heap, (*held)++);
	} else if (farther(heap[0], place)) {
		heap[0] = place;
		sink(heap, k, 0);
	}
}

static void nearest_blocks(void *arg, uint64_t begin, uint64_t end)
{
	struct nearest *ns = arg;

	for (uint64_t b = begin; b < end; b++) {
		struct place *heap = ns->heaps + b * ns->k;
		uint64_t last = reduce_end(&ns->rb, b);
		uint32_t held = 0;

		for (uint64_t i = reduce_begin(&ns->rb, b); i < last; i++) {
			float dx = ns->records[2 * i] - ns->x, dy = ns->records[2 * i + 1] - ns->y;
			float distance = sqrtf(dx * dx + dy * dy);
			/* A place that is nowhere is far: NaN would have no order. */
			struct place place = {
				.distance = isnan(distance) ? INFINITY : distance,
				.idx = (uint32_t)i,
			};

			offer(heap, &held, ns->k, place);
		}
		ns->held[b] = held;
	}
}

KERNEL(nearest_neighbors)
{
	uint64_t n = call->args[3].u32, k = call->args[4].u32;
	struct nearest ns = {
		.rb = reduce_blocks(n),
		.records = ARG(float, call, 0, 2 * n),
		.x = call->args[5].f32,
		.y = call->args[6].f32,
		.k = k,
	};
	float *ret_distance = ARG(float, call, 1, k);
	uint32_t *ret_idx = ARG(uint32_t, call, 2, k), held = 0;
	struct place *best;

	if (!ns.records || !ret_distance || !ret_idx || k > n || k > NEAREST_MAX)
		return -EINVAL;
	if (k == 0)
		return 0;
	ns.heaps = SCRATCH(struct place, env, ns.rb.nblocks * k);
	best = SCRATCH(struct place, env, k);
	if (!ns.heaps || !best)
		return -ENOMEM;

	env->parallel(env, ns.rb.nblocks, 1, nearest_blocks, &ns);
	for (uint64_t b = 0; b < ns.rb.nblocks; b++)
		for (uint32_t i = 0; i < ns.held[b]; i++)
			offer(best, &held, k, ns.heaps[b * k + i]);
	/* Heap sort: the farthest goes to the end, again and again. */
	for (uint64_t i = k; i-- > 0;) {
		ret_distance[i] = best[0].distance;
		ret_idx[i] = best[0].idx;
		best[0] = best[i];
		sink(best, i, 0);
	}
	return 0;
}

#define NODE_GRAIN 8192u

/*
 * The masks are scratch memory, so the search ends whatever the guest does to its buffers: a node
 * enters the frontier once. Lanes meet in next[], nfound and status alone; parallel() orders
 * everything else.
 */
struct bfs {
	const uint32_t *offsets; /* our copy: rising, at most nedges */
	const uint32_t *targets;
	int32_t *cost;
	uint8_t *frontier, *next, *visited;
	uint64_t nnodes;
	int32_t level;
	uint64_t nfound;
	int status;
};

static void expand_range(void *arg, uint64_t begin, uint64_t end)
{
	struct bfs *s = arg;

	for (uint64_t node = begin; node < end; node++) {
		if (!s->frontier[node])
			continue;
		s->frontier[node] = 0;
		for (uint32_t e = s->offsets[node]; e < s->offsets[node + 1]; e++) {
			uint32_t target = GANTRY_LOAD_ONCE(s->targets[e]);

			/* Relaxed: the value is the message; parallel() publishes it. */
			if (target >= s->nnodes)
				__atomic_store_n(&s->status, -ERANGE, __ATOMIC_RELAXED);
			else if (!s->visited[target])
				__atomic_store_n(&s->next[target], 1, __ATOMIC_RELAXED);
		}
	}
}

static void settle_range(void *arg, uint64_t begin, uint64_t end)
{
	struct bfs *s = arg;
	uint64_t nfound = 0;

	for (uint64_t node = begin; node < end; node++) {
		if (!s->next[node])
			continue;
		s->next[node] = 0;
		s->frontier[node] = 1;
		s->visited[node] = 1;
		s->cost[node] = s->level;
		nfound++;
	}
	/* Relaxed: a count only; parallel() publishes it. */
	(void)__atomic_fetch_add(&s->nfound, nfound, __ATOMIC_RELAXED);
}

static int bfs_run(struct gantry_env *env, struct bfs *s, uint64_t source)
{
	for (uint64_t i = 0; i < s->nnodes; i++)
		s->cost[i] = -1;
	memset(s->frontier, 0, s->nnodes);
	memset(s->next, 0, s->nnodes);
	memset(s->visited, 0, s->nnodes);
	s->frontier[source] = 1;
	s->visited[source] = 1;
	s->cost[source] = 0;

	do {
		if (env->cancelled(env))
			return -ECANCELED;
		s->level++;
		s->nfound = 0;
		env->parallel(env, s->nnodes, NODE_GRAIN, expand_range, s);
		if (s->status < 0)
			return s->status;
		env->parallel(env, s->nnodes, NODE_GRAIN, settle_range, s);
	} while (s->nfound > 0);
	return 0;
}

/*
 * Copies the offsets while checking that they rise and end inside the edges: this bounds the whole
 * search.
 */
static int offsets_copy(const uint32_t *from, uint32_t *to, uint64_t n, uint64_t nedges)
{
	uint32_t before = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t offset = GANTRY_LOAD_ONCE(from[i]);

		if (offset < before || offset > nedges)
			return -ERANGE;
		to[i] = before = offset;
	}
	return 0;
}

KERNEL(bfs)
{
	uint64_t nnodes = call->args[3].u32, nedges = call->args[4].u32, source = call->args[5].u32;
	const uint32_t *from = ARG(uint32_t, call, 0, nnodes + 1);
	struct bfs s = {
		.targets = ARG(uint32_t, call, 1, nedges),
		.cost = ARG(int32_t, call, 2, nnodes),
		.nnodes = nnodes,
	};
	uint32_t *offsets;
	uint8_t *masks;
	int r;

	if (!from || !s.targets || !s.cost || source >= nnodes)
		return -EINVAL;
	offsets = SCRATCH(uint32_t, env, nnodes + 1);
	masks = SCRATCH(uint8_t, env, 3 * nnodes);
	if (!offsets || !masks)
		return -ENOMEM;
	r = offsets_copy(from, offsets, nnodes + 1, nedges);
	if (r < 0)
		return r;

	s.offsets = offsets;
	s.frontier = masks;
	s.next = masks + nnodes;
	s.visited = masks + 2 * nnodes;
	return bfs_run(env, &s, source);
}
