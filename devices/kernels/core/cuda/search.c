/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the searches and the particles. */
#include <math.h>
#include <stddef.h>

#include "devices/kernels/core/cuda/body.h"

/* The keys all ones, the rest zero. */
static int nearest_scratch_make(struct gantry_env *env, struct gpu_nearest_scratch **ret_scratch)
{
	const struct gantry_cuda_calls *calls = gpu_calls(env);
	struct gpu_nearest_scratch *scratch = SCRATCH(struct gpu_nearest_scratch, env, 1);
	int r;

	if (!scratch)
		return -ENOMEM;
	r = calls->set(env, scratch, 0, sizeof(uint32_t),
		       offsetof(struct gpu_nearest_scratch, keys) / sizeof(uint32_t));
	if (r < 0)
		return r;
	/* The address only: the memory is the device's. A key is two words. */
	r = calls->set(env, scratch->keys, UINT32_MAX, sizeof(uint32_t), 2 * GPU_NEAREST_MAX);
	if (r < 0)
		return r;
	*ret_scratch = scratch;
	return 0;
}

KERNEL(nearest_neighbors)
{
	uint64_t n = call->args[3].u32, k = call->args[4].u32;
	struct gpu_nearest ns = {
		.records = ARG(float, call, 0, 2 * n),
		.distance = ARG(float, call, 1, k),
		.idx = ARG(uint32_t, call, 2, k),
		.n = (uint32_t)n,
		.k = (uint32_t)k,
		.x = call->args[5].f32,
		.y = call->args[6].f32,
	};
	int r;

	if (!ns.records || !ns.distance || !ns.idx || k > n || k > GPU_NEAREST_MAX)
		return -EINVAL;
	if (k == 0)
		return 0;
	r = nearest_scratch_make(env, &ns.scratch);
	if (r < 0)
		return r;
	return gpu_launch_together(env, GPU_nearest, gpu_parts(n, 4 * GPU_THREADS), GPU_THREADS,
				   &ns);
}

static int bfs_memory(struct gantry_env *env, struct gpu_bfs *s)
{
	s->offsets = SCRATCH(uint32_t, env, s->nnodes + 1);
	s->queues[0] = SCRATCH(uint32_t, env, s->nnodes);
	s->queues[1] = SCRATCH(uint32_t, env, s->nnodes);
	s->visited = SCRATCH(uint32_t, env, gpu_parts(s->nnodes, 32));
	s->nqueued = SCRATCH(uint32_t, env, 3);
	if (!s->offsets || !s->queues[0] || !s->queues[1] || !s->visited || !s->nqueued)
		return -ENOMEM;
	return gpu_stop_make(env, &s->stop, &s->verdict);
}

KERNEL(bfs)
{
	uint64_t nnodes = call->args[3].u32, nedges = call->args[4].u32;
	struct gpu_bfs s = {
		.from = ARG(uint32_t, call, 0, nnodes + 1),
		.targets = ARG(uint32_t, call, 1, nedges),
		.level = ARG(int32_t, call, 2, nnodes),
		.nnodes = nnodes,
		.nedges = nedges,
		.source = call->args[5].u32,
	};
	int r;

	if (!s.from || !s.targets || !s.level || s.source >= nnodes)
		return -EINVAL;
	r = bfs_memory(env, &s);
	if (r < 0)
		return r;
	return gpu_launch_together(env, GPU_bfs, gpu_parts(nnodes, GPU_THREADS), GPU_THREADS, &s);
}

/* 16 M boxes: far past what memory holds, and their count fits every type here. */
#define BOXES1D_MAX 256u

KERNEL(lavamd)
{
	uint64_t boxes1d = call->args[2].u32, nboxes = boxes1d * boxes1d * boxes1d;
	struct gpu_lava lv = {
		.boxes1d = call->args[2].u32,
		.per_box = call->args[3].u32,
		.alpha = call->args[4].f64,
	};

	if (boxes1d > BOXES1D_MAX)
		return -EINVAL;
	lv.particles = ARG(struct gpu_particle, call, 0, nboxes * lv.per_box);
	lv.forces = ARG(struct gpu_particle, call, 1, nboxes * lv.per_box);
	if (!lv.particles || !lv.forces)
		return -EINVAL;
	if (nboxes == 0 || lv.per_box == 0)
		return 0;
	lv.verdict = gpu_calls(env)->verdict(env);
	if (!lv.verdict)
		return -EAGAIN;
	return gpu_launch(env, GPU_lava, nboxes, GPU_LAVA_THREADS, &lv);
}

static int filter_memory(struct gantry_env *env, struct gpu_filter *f)
{
	double **of_particles[] = { &f->x[0], &f->x[1], &f->y[0], &f->y[1], &f->weight, &f->cdf };
	double **of_chunks[] = { &f->best, &f->sum, &f->sum_x, &f->sum_y };

	for (size_t i = 0; i < sizeof(of_particles) / sizeof(of_particles[0]); i++) {
		*of_particles[i] = SCRATCH(double, env, f->n);
		if (!*of_particles[i])
			return -ENOMEM;
	}
	for (size_t i = 0; i < sizeof(of_chunks) / sizeof(of_chunks[0]); i++) {
		*of_chunks[i] = SCRATCH(double, env, gpu_parts(f->n, GPU_FILTER_CHUNK));
		if (!*of_chunks[i])
			return -ENOMEM;
	}
	return gpu_stop_make(env, &f->stop, &f->verdict);
}

KERNEL(particle_filter)
{
	struct gpu_filter f = {
		.width = call->args[2].u32,
		.height = call->args[3].u32,
		.nframes = call->args[4].u32,
		.n = call->args[5].u32,
		.seed = call->args[6].u64,
		.start_x = call->args[7].f32,
		.start_y = call->args[8].f32,
	};
	uint64_t nbytes;
	int r;

	if (f.width == 0 || f.height == 0 || f.n == 0 || !isfinite(f.start_x) ||
	    !isfinite(f.start_y) || !product3(f.width, f.height, f.nframes, &nbytes))
		return -EINVAL;
	f.frames = ARG(uint8_t, call, 0, nbytes);
	f.estimates = ARG(float, call, 1, 2 * f.nframes);
	if (!f.frames || !f.estimates)
		return -EINVAL;
	r = filter_memory(env, &f);
	if (r < 0)
		return r;
	return gpu_launch_together(env, GPU_filter, gpu_parts(f.n, GPU_THREADS), GPU_THREADS, &f);
}
