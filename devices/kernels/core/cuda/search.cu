/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches. Both launch once: the blocks meet after each pass over the places, or each level of the
 * graph.
 */
#include "devices/kernels/core/cuda/gpu.h"

/* Distance first, then index: keys are in the order of the answer, and no two are equal. */
DEVICE uint64_t place_key(const struct gpu_nearest &a, uint64_t i)
{
	float dx = a.records[2 * i] - a.x, dy = a.records[2 * i + 1] - a.y;
	float distance = sqrtf(dx * dx + dy * dy);

	/* A place that is nowhere is far. What is not negative is ordered as its bits are. */
	if (isnan(distance))
		distance = INFINITY;
	return (uint64_t)float_bits(distance) << 32 | (uint32_t)i;
}

/* How many keys that begin with @prefix have which value in the digit at @shift; by all blocks. */
DEVICE void bins_count(const struct gpu_nearest &a, uint64_t prefix, uint32_t shift, uint32_t *bins,
		       uint32_t *ret_bins)
{
	for (uint32_t b = thread_idx(); b < GPU_BINS; b += block_threads())
		bins[b] = 0;
	block_sync();
	for (uint64_t i = first_item(); i < a.n; i += item_step()) {
		uint64_t key = place_key(a, i);

		/* In two steps: a shift by 64 is undefined. */
		if (key >> shift >> 8 == prefix)
			atomic_add(&bins[key >> shift & 0xff], 1u);
	}
	block_sync();
	for (uint32_t b = thread_idx(); b < GPU_BINS; b += block_threads())
		if (bins[b] != 0)
			atomic_add(&ret_bins[b], bins[b]);
	grid_sync();
	for (uint32_t b = thread_idx(); b < GPU_BINS; b += block_threads())
		bins[b] = load_once(&ret_bins[b]);
	block_sync();
}

/* The greatest key that is taken: digit by digit from the top. All threads get the same. */
DEVICE uint64_t last_key(const struct gpu_nearest &a, uint32_t *bins)
{
	uint64_t prefix = 0;
	uint32_t wanted = a.k;

	for (uint32_t digit = 0; digit < GPU_DIGITS; digit++) {
		uint32_t shift = 8 * (GPU_DIGITS - 1 - digit), bin = 0, in_bin;

		bins_count(a, prefix, shift, bins, a.scratch->bins[digit]);
		/* Places that change meanwhile may leave too few; then the last digit it is. */
		for (; bin < GPU_BINS - 1 && bins[bin] < wanted; bin++)
			wanted -= bins[bin];
		in_bin = bins[bin];
		prefix = prefix << 8 | bin;
		/* All have read the bins before they are counted again. */
		block_sync();
		if (in_bin == wanted)
			return ((prefix + 1) << shift) - 1;
	}
	return prefix;
}

/* Rising, by pairs at distances that halve (Batcher's bitonic sort); @n is a power of two. */
DEVICE void keys_sort(uint64_t *keys, uint32_t n)
{
	for (uint32_t run = 2; run <= n; run *= 2)
		for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
			for (uint32_t t = thread_idx(); t < n / 2; t += block_threads()) {
				uint32_t low = t / distance * 2 * distance + t % distance;
				uint64_t p = keys[low], q = keys[low + distance];
				bool rising = (low & run) == 0;

				if ((p > q) == rising) {
					keys[low] = q;
					keys[low + distance] = p;
				}
			}
			block_sync();
		}
}

ENTRY(nearest, struct gpu_nearest, GPU_THREADS)
{
	uint32_t npadded = 1;
	uint64_t last;
	SHARED(uint32_t, bins, GPU_BINS);
	SHARED(uint64_t, keys, GPU_NEAREST_MAX);

	last = last_key(a, bins);
	for (uint64_t i = first_item(); i < a.n; i += item_step()) {
		uint64_t key = place_key(a, i);

		if (key <= last) {
			uint32_t at = atomic_add(&a.scratch->nfound, 1u);

			if (at < a.k)
				a.scratch->keys[at] = key;
		}
	}
	grid_sync();
	if (block_idx() != 0)
		return;
	while (npadded < a.k)
		npadded *= 2;
	/* Past those found all bits are set: they stay last. */
	for (uint32_t i = thread_idx(); i < npadded; i += block_threads())
		keys[i] = load_once(&a.scratch->keys[i]);
	block_sync();
	keys_sort(keys, npadded);
	for (uint32_t i = thread_idx(); i < a.k; i += block_threads()) {
		a.distance[i] = bits_float((uint32_t)(keys[i] >> 32));
		a.idx[i] = (uint32_t)keys[i];
	}
}

/* Step 0 of the search: our copy of the offsets, inside the edges; the first frontier. */
DEVICE void bfs_begin(const struct gpu_bfs &s)
{
	for (uint64_t i = first_item(); i <= s.nnodes; i += item_step()) {
		uint32_t offset = load_once(&s.from[i]);

		if (offset > s.nedges) {
			stop_tell(s.stop, s.verdict, 0, -ERANGE);
			offset = 0;
		}
		s.offsets[i] = offset;
	}
	for (uint64_t i = first_item(); i < s.nnodes; i += item_step())
		s.level[i] = i == s.source ? 0 : -1;
	for (uint64_t i = first_item(); i < (s.nnodes + 31) / 32; i += item_step())
		s.visited[i] = i == s.source / 32 ? 1u << (s.source % 32) : 0;
	if (first_item() == 0) {
		s.queues[0][0] = s.source;
		s.nqueued[0] = 1;
		s.nqueued[1] = 0;
		s.nqueued[2] = 0;
	}
}

/* Step 1: they rise. This bounds the whole search. */
DEVICE void bfs_check(const struct gpu_bfs &s)
{
	for (uint64_t i = first_item(); i < s.nnodes; i += item_step())
		if (s.offsets[i] > s.offsets[i + 1])
			stop_tell(s.stop, s.verdict, 1, -ERANGE);
}

/* The number of lanes whose @upto, which rises from lane to lane, is at most @at; 31 at most. */
DEVICE uint32_t lanes_up_to(uint32_t upto, uint32_t at)
{
	uint32_t lane = 0;

	for (uint32_t step = 16; step > 0; step /= 2)
		if (shuffle(upto, lane + step - 1) <= at)
			lane += step;
	return lane;
}

/* True for the one thread in the whole search that comes to @target first. */
DEVICE bool bfs_visit(const struct gpu_bfs &s, uint32_t target)
{
	uint32_t *word = &s.visited[target / 32], bit = 1u << (target % 32);

	return !(load_once(word) & bit) && !(atomic_or(word, bit) & bit);
}

/*
 * The edges of 32 nodes of the frontier, one node per lane, shared out evenly over the warp. A node
 * is visited once, so the next queue has room for all.
 */
DEVICE void bfs_expand(const struct gpu_bfs &s, uint32_t begin, uint32_t degree, uint64_t depth,
		       uint32_t *next, uint32_t *nnext)
{
	uint32_t lane = lane_idx(), upto = degree, total;

	for (uint32_t distance = 1; distance < 32; distance *= 2) {
		uint32_t below = shuffle_up(upto, distance);

		if (lane >= distance)
			upto += below;
	}
	total = shuffle(upto, 31);
	for (uint64_t first = 0; first < total; first += 32) {
		uint64_t at = first + lane;
		uint32_t owner = lanes_up_to(upto, (uint32_t)at);
		uint32_t skipped = shuffle(upto - degree, owner), edges = shuffle(begin, owner);
		uint32_t target = 0, found_by, place = 0;
		bool found = false;

		if (at < total) {
			target = load_once(&s.targets[edges + ((uint32_t)at - skipped)]);
			if (target >= s.nnodes)
				stop_tell(s.stop, s.verdict, depth + 2, -ERANGE);
			else
				found = bfs_visit(s, target);
		}
		found_by = vote(found);
		if (lane == 0 && found_by != 0)
			place = atomic_add(nnext, count_bits(found_by));
		place = shuffle(place, 0) + count_bits(found_by & ((1u << lane) - 1));
		if (found) {
			next[place] = target;
			s.level[target] = (int32_t)depth + 1;
		}
	}
}

/* Whole warps take 32 nodes at a time. */
DEVICE void bfs_level(const struct gpu_bfs &s, uint64_t depth, uint32_t count)
{
	const uint32_t *queue = s.queues[depth % 2];
	uint32_t *next = s.queues[(depth + 1) % 2], *nnext = &s.nqueued[(depth + 1) % 3];

	for (uint64_t base = first_item() - lane_idx(); base < count; base += item_step()) {
		uint64_t at = base + lane_idx();
		uint32_t begin = 0, degree = 0;

		if (at < count) {
			uint32_t node = queue[at];

			begin = s.offsets[node];
			degree = s.offsets[node + 1] - begin;
		}
		bfs_expand(s, begin, degree, depth, next, nnext);
	}
}

ENTRY(bfs, struct gpu_bfs, GPU_THREADS)
{
	stop_ask(a.stop, a.verdict, 0);
	bfs_begin(a);
	grid_sync();
	if (stopped(a.stop, 0))
		return;
	bfs_check(a);
	grid_sync();
	if (stopped(a.stop, 1))
		return;
	for (uint64_t depth = 0;; depth++) {
		uint32_t count = load_once(&a.nqueued[depth % 3]);

		if (count == 0)
			return;
		/* Nobody reads this one any more; it is filled in the level after the next. */
		if (first_item() == 0)
			a.nqueued[(depth + 2) % 3] = 0;
		stop_ask(a.stop, a.verdict, depth + 2);
		bfs_level(a, depth, count);
		grid_sync();
		if (stopped(a.stop, depth + 2))
			return;
	}
}
