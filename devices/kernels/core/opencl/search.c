/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the searches and the particles. */
#include <math.h>

#include "devices/kernels/core/opencl/body.h"

/* Bounds the scratch memory of one call, as on the cpu. */
#define NEAREST_MAX 1024u

KERNEL(nearest_neighbors)
{
	uint64_t n = call->args[3].u32, k = call->args[4].u32;
	float x = call->args[5].f32, y = call->args[6].f32;
	struct reduce_blocks rb = reduce_blocks(n);
	ocl_buffer places = ARG(float, call, 0, 2 * n), distance = ARG(float, call, 1, k);
	ocl_buffer index = ARG(uint32_t, call, 2, k), heaps;
	int r;

	if (!places || !distance || !index || k > n || k > NEAREST_MAX)
		return -EINVAL;
	if (k == 0)
		return 0;
	heaps = SCRATCH(uint64_t, env, rb.nblocks * k);
	if (!heaps)
		return -ENOMEM;
	r = LAUNCH_ITEMS(env, OCL_nearest, rb.nblocks, BUF(places), BUF(heaps), VAL(rb.n),
			 VAL(rb.block), VAL(rb.nblocks), VAL(k), VAL(x), VAL(y));
	if (r < 0)
		return r;
	return LAUNCH_GROUP(env, OCL_nearest_join, BUF(heaps), BUF(distance), BUF(index),
			    VAL(rb.nblocks), VAL(k));
}

KERNEL(bfs)
{
	uint64_t nnodes = call->args[3].u32, nedges = call->args[4].u32, source = call->args[5].u32;
	ocl_buffer from = ARG(uint32_t, call, 0, nnodes + 1);
	ocl_buffer targets = ARG(uint32_t, call, 1, nedges);
	ocl_buffer level = ARG(int32_t, call, 2, nnodes);
	ocl_buffer offsets, queues, visited, verdict;

	if (!from || !targets || !level || source >= nnodes)
		return -EINVAL;
	offsets = SCRATCH(uint32_t, env, nnodes + 1);
	queues = SCRATCH(uint32_t, env, 2 * nnodes);
	visited = SCRATCH(uint32_t, env, (nnodes + 31) / 32);
	verdict = ocl_calls(env)->verdict(env);
	if (!offsets || !queues || !visited || !verdict)
		return -ENOMEM;
	return LAUNCH_GROUP(env, OCL_bfs, BUF(from), BUF(targets), BUF(level), BUF(offsets),
			    BUF(queues), BUF(visited), BUF(verdict), VAL(nnodes), VAL(nedges),
			    VAL(source));
}

/* 16 M boxes: far past what memory holds, and their count fits every type here. */
#define BOXES1D_MAX 256u

/* A particle is four numbers. */
struct particle {
	double x, y, z, charge;
};

KERNEL(lavamd)
{
	uint64_t side = call->args[2].u32, per_box = call->args[3].u32;
	uint64_t nparticles = side * side * side * per_box;
	double alpha = call->args[4].f64;
	ocl_buffer particles, forces, verdict;

	if (side > BOXES1D_MAX)
		return -EINVAL;
	particles = ARG(struct particle, call, 0, nparticles);
	forces = ARG(struct particle, call, 1, nparticles);
	if (!particles || !forces)
		return -EINVAL;
	if (nparticles == 0)
		return 0;
	verdict = ocl_calls(env)->verdict(env);
	if (!verdict)
		return -ENOMEM;
	return LAUNCH_ITEMS(env, OCL_lava, nparticles, BUF(particles), BUF(forces), BUF(verdict),
			    VAL(side), VAL(per_box), VAL(alpha));
}

/* Numbers that the filter keeps of each particle. */
#define FILTER_NUMBERS 6u

KERNEL(particle_filter)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	uint64_t nframes = call->args[4].u32, n = call->args[5].u32, seed = call->args[6].u64;
	float x = call->args[7].f32, y = call->args[8].f32;
	ocl_buffer estimates = ARG(float, call, 1, 2 * nframes);
	ocl_buffer frames, memory, verdict;
	uint64_t nbytes;

	if (width == 0 || height == 0 || n == 0 || !isfinite(x) || !isfinite(y) ||
	    !product3(width, height, nframes, &nbytes))
		return -EINVAL;
	frames = ARG(uint8_t, call, 0, nbytes);
	if (!frames || !estimates)
		return -EINVAL;
	memory = SCRATCH(double, env, FILTER_NUMBERS *n);
	verdict = ocl_calls(env)->verdict(env);
	if (!memory || !verdict)
		return -ENOMEM;
	return LAUNCH_GROUP(env, OCL_filter, BUF(frames), BUF(estimates), BUF(memory), BUF(verdict),
			    VAL(width), VAL(height), VAL(nframes), VAL(n), VAL(seed), VAL(x),
			    VAL(y));
}
