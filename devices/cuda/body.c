/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed kernels: their host functions run here, on the device thread, and enqueue. What they are
 * offered is in devices/module.h and devices/cuda/module.h.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "devices/cuda/backend.h"
#include "devices/cuda/libraries.h"
#include "devices/installed.h"

#define SCRATCH_ALIGN 256u
#define SCRATCH_FIRST (1ull << 20)
#define NRETIRED      (sizeof(((struct gantry_cuda_scratch *)0)->retired) / sizeof(CUdeviceptr))

static struct gantry_stream *stream_of(struct gantry_env *env)
{
	return gantry_container_of(env, struct gantry_stream, env);
}

/* The result of a call that enqueues, as a host function gets it. */
static int outcome(struct gantry_stream *stream, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return gantry_cuda_check(stream->dev, result, "", NULL) == -EINVAL ? -EINVAL : -EIO;
}

/* ---- struct gantry_env ---- */

static int env_cancelled(struct gantry_env *env)
{
	struct gantry_stream *stream = stream_of(env);
	const struct gantry_device_host *host = stream->dev->host;

	return host->cancelled(host->cookie, stream->tag);
}

/* A larger arena for the rest of the run; what was given out of the old one stays until the run's end. */
static bool scratch_grow(struct gantry_stream *stream, uint64_t bytes)
{
	struct gantry_cuda_scratch *scratch = &stream->scratch;
	uint64_t len = gantry_max_u64(SCRATCH_FIRST, 2 * scratch->len);
	CUdeviceptr address;
	CUresult result;

	len = gantry_min_u64(gantry_max_u64(len, bytes), stream->dev->scratch_bytes);
	if (bytes > len || (scratch->len && scratch->nretired == NRETIRED))
		return false;
	result = stream->dev->driver->MemAllocAsync(&address, len, stream->native);
	if (outcome(stream, result) < 0)
		return false;
	if (scratch->len)
		scratch->retired[scratch->nretired++] = scratch->address;
	scratch->address = address;
	scratch->len = len;
	scratch->used = 0;
	return true;
}

/* In the order of the stream: after the run's work, before that of the next. */
static void scratch_end(struct gantry_stream *stream)
{
	struct gantry_cuda_scratch *scratch = &stream->scratch;

	while (scratch->nretired > 0) /* can only fail with a fault, which the next call tells */
		(void)stream->dev->driver->MemFreeAsync(scratch->retired[--scratch->nretired],
							stream->native);
	scratch->used = 0;
}

static void *env_scratch(struct gantry_env *env, size_t bytes)
{
	struct gantry_stream *stream = stream_of(env);
	struct gantry_cuda_scratch *scratch = &stream->scratch;
	uint64_t rounded;
	uint64_t off;

	if (gantry_align_up(bytes ? bytes : 1, SCRATCH_ALIGN, &rounded) < 0 ||
	    rounded > stream->dev->scratch_bytes)
		return NULL;
	if (!gantry_range_inside(scratch->used, rounded, scratch->len) &&
	    !scratch_grow(stream, rounded))
		return NULL;
	off = scratch->used;
	scratch->used += rounded;
	return (void *)(uintptr_t)(scratch->address + off);
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	struct gantry_stream *stream = stream_of(env);

	if (strcmp(library, "cuda") == 0)
		return &stream->calls;
	if (!stream->libraries)
		stream->libraries = gantry_cuda_libraries_open(stream->native,
							       stream->dev->libraries);
	return stream->libraries ? gantry_cuda_libraries_get(stream->libraries, library) : NULL;
}

/* ---- struct gantry_cuda_calls ---- */

static int call_launch(struct gantry_env *env, const struct gantry_cuda_launch *launch)
{
	struct gantry_stream *stream = stream_of(env);
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	const uint32_t *grid = launch->grid;
	const uint32_t *block = launch->block;
	void **params = (void **)(uintptr_t)launch->params; /* the driver reads them only */
	CUfunction function;

	if (launch->function >= stream->image->nfunctions)
		return -EINVAL;
	function = stream->image->functions[launch->function];
	if (launch->flags & GANTRY_CUDA_TOGETHER)
		return outcome(stream,
			       driver->LaunchCooperativeKernel(
				       function, grid[0], grid[1], grid[2], block[0], block[1],
				       block[2], launch->shared_bytes, stream->native, params));
	return outcome(stream, driver->LaunchKernel(function, grid[0], grid[1], grid[2], block[0],
						    block[1], block[2], launch->shared_bytes,
						    stream->native, params, NULL));
}

/* A place that a body names by its address. */
struct place {
	struct gantry_mem plain; /* stands for device memory */
	struct gantry_range range;
};

/*
 * Whether @place is in host memory, which is pinned in pieces and used one by one. Few bodies have such arguments; what
 * others name is the device's.
 */
static bool find_place(struct gantry_stream *stream, const void *ptr, uint64_t len,
		       struct place *ret_place)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
	struct gantry_mem *mem = stream->on_host ? gantry_cuda_mem_host_at(stream->dev, address)
						 : NULL;

	ret_place->plain = (struct gantry_mem){ .dev = stream->dev, .address = address };
	ret_place->range = mem ? (struct gantry_range){ mem, address - mem->address, len }
			       : (struct gantry_range){ &ret_place->plain, 0, len };
	return mem;
}

static int moved(int r)
{
	return r >= 0 ? 0 : r == -EINVAL ? -EINVAL : -EIO;
}

static int call_set(struct gantry_env *env, void *dst, uint32_t value, uint32_t elem_bytes,
		    uint64_t count)
{
	struct gantry_stream *stream = stream_of(env);
	struct place place;
	uint64_t len;

	if ((elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4) ||
	    gantry_mul_u64(count, elem_bytes, &len) < 0)
		return -EINVAL;
	if (find_place(stream, dst, len, &place))
		return moved(gantry_cuda_fill(
			stream, &(const struct gantry_cmd_fill){ .dst = place.range,
								 .pattern = value,
								 .pattern_bytes = elem_bytes }));
	return outcome(stream, gantry_cuda_fill_device(stream, (CUdeviceptr)(uintptr_t)dst, len,
						       value, elem_bytes));
}

static int call_copy(struct gantry_env *env, void *dst, const void *src, uint64_t bytes)
{
	struct gantry_stream *stream = stream_of(env);
	struct place to, from;
	bool host;

	if (bytes == 0)
		return 0;
	host = find_place(stream, dst, bytes, &to);
	host = find_place(stream, src, bytes, &from) || host;
	if (host)
		return moved(gantry_cuda_copy(
			stream,
			&(const struct gantry_cmd_copy){ .dst = to.range, .src = from.range }));
	return outcome(stream, stream->dev->driver->MemcpyDtoDAsync((CUdeviceptr)(uintptr_t)dst,
								    (CUdeviceptr)(uintptr_t)src,
								    bytes, stream->native));
}

static struct gantry_cuda_occupancy *occupancy_find(struct gantry_image *image, uint32_t function,
						    uint32_t nthreads, uint32_t shared_bytes)
{
	for (uint32_t i = 0; i < GANTRY_CUDA_OCCUPANCIES; i++) {
		struct gantry_cuda_occupancy *known = &image->occupancies[i];

		if (known->nblocks && known->function == function && known->nthreads == nthreads &&
		    known->shared_bytes == shared_bytes)
			return known;
	}
	return NULL;
}

static int call_occupancy(struct gantry_env *env, uint32_t function, uint32_t nthreads,
			  uint32_t shared_bytes)
{
	struct gantry_stream *stream = stream_of(env);
	struct gantry_image *image = stream->image;
	const struct gantry_cuda_occupancy *known;
	int nblocks = 0;
	int r;

	if (function >= image->nfunctions || nthreads == 0 || nthreads > stream->dev->max_threads)
		return -EINVAL;
	known = occupancy_find(image, function, nthreads, shared_bytes);
	if (known)
		return (int)known->nblocks;
	r = outcome(stream,
		    stream->dev->driver->OccupancyMaxActiveBlocks(
			    &nblocks, image->functions[function], (int)nthreads, shared_bytes));
	if (r < 0)
		return r;
	if (nblocks < 1)
		return -EINVAL;
	image->occupancies[image->next_occupancy++ % GANTRY_CUDA_OCCUPANCIES] =
		(struct gantry_cuda_occupancy){ function, nthreads, shared_bytes,
						(uint32_t)nblocks };
	return nblocks;
}

/* Each slot has a cell, so there always is one; its last user has finished. */
static struct gantry_cuda_verdict *call_verdict(struct gantry_env *env)
{
	struct gantry_stream *stream = stream_of(env);
	struct gantry_cuda_verdict *verdict =
		&stream->cell->verdicts[stream->submitted % GANTRY_CUDA_DEPTH];

	if (!stream->judged)
		*verdict = (struct gantry_cuda_verdict){ 0 };
	stream->judged = true;
	return verdict;
}

static void *call_host(struct gantry_env *env, void *ptr, uint64_t bytes)
{
	struct gantry_stream *stream = stream_of(env);
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
	struct gantry_mem *mem = gantry_cuda_mem_host_at(stream->dev, address);

	if (!mem || !gantry_range_inside(address - mem->address, bytes, mem->len))
		return NULL;
	return mem->base + (address - mem->address);
}

static int call_reaches(struct gantry_env *env, uint64_t address)
{
	gantry_list_for_each(&stream_of(env)->dev->mems, struct gantry_mem, link, mem)
		if (address - mem->address < mem->len)
			return 1;
	return 0;
}

static void *call_library(struct gantry_env *env, const char *soname)
{
	return gantry_cuda_libraries_load(stream_of(env)->dev->libraries, soname);
}

static int no_settle(struct gantry_env *env)
{
	(void)env;
	return -EINVAL;
}

static int no_compile(struct gantry_env *env, const void *text, uint64_t bytes, void **ret_made,
		      uint64_t *ret_bytes)
{
	(void)env;
	(void)text;
	(void)bytes;
	(void)ret_made;
	(void)ret_bytes;
	return -EOPNOTSUPP;
}

/* ---- running one ---- */

int gantry_cuda_body_args(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  union gantry_value *args)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	stream->on_host = false;
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode) {
			args[i] = launch->args[i].value;
			continue;
		}
		args[i].span = (struct gantry_span){ NULL, 0 };
		if (!range->mem)
			continue;
		/* As in launch.c: an address that the device does not reach would end the context. */
		if (!gantry_cuda_mem_reach(stream->dev, range))
			return -EOPNOTSUPP;
		stream->on_host = stream->on_host || range->mem->base;
		args[i].span.ptr = (void *)(uintptr_t)(range->mem->address + range->off);
		args[i].span.len_bytes = range->len;
	}
	return 0;
}

int gantry_cuda_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			 struct gantry_cuda_slot *slot)
{
	union gantry_value args[GANTRY_MAX_CMD_ARGS];
	struct gantry_call call = { .nargs = launch->nargs, .args = args };
	int r = gantry_cuda_body_args(stream, launch, args);

	if (r < 0)
		return r;
	memcpy(call.grid, launch->grid, sizeof(call.grid));
	memcpy(call.block, launch->block, sizeof(call.block));
	stream->image = launch->kernel->image;
	stream->tag = slot->done.tag;
	stream->judged = false;
	r = launch->kernel->body(&stream->env, &call);
	scratch_end(stream);
	slot->judged = stream->judged;
	/* The verdict of what it may have enqueued, if there is one, must not replace its own. */
	if (r != 0 && !gantry_load_relaxed(&stream->dev->fault))
		slot->judged = false;
	gantry_cuda_body_ended(stream, slot, r);
	return 0;
}

void gantry_cuda_body_ended(struct gantry_stream *stream, struct gantry_cuda_slot *slot, int result)
{
	if (result == 0 || gantry_load_relaxed(&stream->dev->fault))
		return;
	gantry_installed_ended(&slot->done, result);
}

void gantry_cuda_body_init(struct gantry_stream *stream)
{
	stream->env = (struct gantry_env){
		.size = sizeof(stream->env),
		.abi = GANTRY_MODULE_ABI,
		.nlanes = 1,
		.parallel = gantry_installed_serial,
		.cancelled = env_cancelled,
		.scratch = env_scratch,
		.handle = env_handle,
		.stream = stream->native,
	};
	stream->calls = (struct gantry_cuda_calls){
		.size = sizeof(stream->calls),
		.nunits = stream->dev->units,
		.launch = call_launch,
		.set = call_set,
		.copy = call_copy,
		.occupancy = call_occupancy,
		.verdict = call_verdict,
		.host = call_host,
		.reaches = call_reaches,
		.library = call_library,
		.device = stream->dev,
		.ordinal = stream->dev->device,
		.part = gantry_cuda_part(stream->dev),
		.settle = no_settle,
		.compile = no_compile,
	};
}

void gantry_cuda_body_fini(struct gantry_stream *stream)
{
	gantry_cuda_libraries_close(stream->libraries);
	/* Refused after a fault only, when the end of the process does it. */
	if (stream->scratch.len)
		(void)stream->dev->driver->MemFreeAsync(stream->scratch.address, stream->native);
}
