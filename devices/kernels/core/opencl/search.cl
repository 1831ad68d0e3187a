/* The nearest of many places, and breadth first through a graph. */

/* A place as one number, by which the nearer comes first and of equally near ones the one with the lower index. */
static ulong place_key(__global const float *places, ulong i, float x, float y)
{
	float dx = places[2 * i] - x, dy = places[2 * i + 1] - y;
	/* Rounded once: so many more bits give the root that f32's own would have. */
	float distance = (float)sqrt((double)(dx * dx + dy * dy));

	/* A place that is nowhere is far: NaN would have no order. */
	return (ulong)as_uint(isnan(distance) ? INFINITY : distance) << 32 | (uint)i;
}

/* Lets heap[at] sink until no child of its is greater. */
static void heap_sink(__global ulong *heap, ulong held, ulong at)
{
	ulong moving = heap[at];

	for (ulong child = 2 * at + 1; child < held; child = 2 * at + 1) {
		if (child + 1 < held && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= moving)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moving;
}

/* Keeps the @k least of all keys offered; the greatest of them is heap[0]. Returns how many are held. */
static ulong heap_offer(__global ulong *heap, ulong held, ulong k, ulong key)
{
	ulong at = held;

	if (held == k) {
		if (heap[0] > key) {
			heap[0] = key;
			heap_sink(heap, k, 0);
		}
		return held;
	}
	for (; at > 0 && heap[(at - 1) / 2] < key; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = key;
	return held + 1;
}

/* A work-item finds the nearest of a block: its k keys, or fewer with all bits set behind them. */
__kernel void core_nearest(__global const float *places, __global ulong *heaps, ulong n, ulong block,
			   ulong nblocks, ulong k, float x, float y)
{
	FOR_ITEMS(b, nblocks) {
		__global ulong *heap = heaps + b * k;
		ulong end = min(n, (b + 1) * block), held = 0;

		for (ulong i = b * block; i < end; i++)
			held = heap_offer(heap, held, k, place_key(places, i, x, y));
		for (; held < k; held++)
			heap[held] = ULONG_MAX;
	}
}

/* One work-item joins the blocks' into the first one's heap, and sorts it: the greatest goes to the end, again and again. */
__kernel void core_nearest_join(__global ulong *heaps, __global float *distance, __global uint *index,
				ulong nblocks, ulong k)
{
	if (get_global_id(0) != 0)
		return;
	/* What is padded with the greatest of all keys has that on top once more. */
	for (ulong at = k / 2; at-- > 0;)
		heap_sink(heaps, k, at);
	for (ulong i = k; i < nblocks * k; i++)
		(void)heap_offer(heaps, k, k, heaps[i]);
	for (ulong i = k; i-- > 0;) {
		ulong key = heaps[0];

		distance[i] = as_float((uint)(key >> 32));
		index[i] = (uint)key;
		heaps[0] = heaps[i];
		heap_sink(heaps, i, 0);
	}
}

/*
 * One group, level by level. @offsets is our copy; a node is visited once, so the queues have room for all, and the
 * search ends whatever the guest does to its buffers.
 */
__kernel void core_bfs(__global const uint *from, __global const volatile uint *targets,
		       __global int *level, __global uint *offsets, __global uint *queues,
		       __global volatile uint *visited, __global volatile int *verdict, ulong nnodes,
		       ulong nedges, ulong source)
{
	__global uint *queue = queues, *next = queues + nnodes;
	__local int said;
	__local uint wrong, nqueued, nfound;

	if (get_local_id(0) == 0) {
		wrong = 0;
		nqueued = 1;
		nfound = 0;
		queue[0] = (uint)source;
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	FOR_LOCALS(i, nnodes + 1) {
		uint offset = ((__global const volatile uint *)from)[i];

		if (offset > nedges)
			wrong = 1;
		offsets[i] = offset > nedges ? 0 : offset;
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	FOR_LOCALS(i, nnodes)
		level[i] = i == source ? 0 : -1;
	barrier(CLK_GLOBAL_MEM_FENCE);
	FOR_LOCALS(i, (nnodes + 31) / 32)
		visited[i] = i == source / 32 ? 1u << (source % 32) : 0;
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	FOR_LOCALS(i, nnodes)
		if (offsets[i] > offsets[i + 1])
			wrong = 1;
	for (int depth = 1;; depth++) {
		uint count, failed;
		__global uint *swap = queue;

		if (group_stops(verdict, &said))
			return;
		failed = wrong;
		count = failed ? 0 : nqueued;
		/* All have read before one writes. */
		barrier(CLK_LOCAL_MEM_FENCE);
		if (failed && get_local_id(0) == 0)
			verdict[0] = -ERANGE;
		if (count == 0)
			return;
		FOR_LOCALS(q, count) {
			uint node = queue[q], end = offsets[node + 1];

			for (uint e = offsets[node]; e < end; e++) {
				uint target = targets[e], bit = 1u << (target % 32);

				if (target >= nnodes) {
					wrong = 1;
					continue;
				}
				if ((visited[target / 32] & bit) ||
				    (atomic_or(&visited[target / 32], bit) & bit))
					continue;
				next[atomic_inc(&nfound)] = target;
				level[target] = depth;
			}
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		if (get_local_id(0) == 0) {
			nqueued = nfound;
			nfound = 0;
		}
		queue = next;
		next = swap;
	}
}
