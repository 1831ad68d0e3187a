/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed kernels: their host functions run here, on the device thread, and enqueue. What they are offered is in
 * devices/module.h and devices/opencl/module.h.
 */
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "devices/hip/backend.h"
#include "devices/installed.h"

#define MAX_PARAMS 64u

static struct gantry_stream *stream_of(struct gantry_env *env)
{
	return gantry_container_of(env, struct gantry_stream, env);
}

static struct gantry_hip_place *place_of(struct gantry_opencl_buffer *buffer)
{
	return gantry_container_of(buffer, struct gantry_hip_place, buffer);
}

/* ---- struct gantry_env ---- */

static int env_cancelled(struct gantry_env *env)
{
	struct gantry_stream *stream = stream_of(env);
	const struct gantry_device_host *host = stream->dev->host;

	return host->cancelled(host->cookie, stream->slot->done.tag);
}

static void *env_scratch(struct gantry_env *env, size_t bytes)
{
	struct gantry_hip_place *place;

	return gantry_hip_place_scratch(stream_of(env), bytes, &place) < 0 ? NULL : &place->buffer;
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	return strcmp(library, "opencl") == 0 ? &stream_of(env)->calls : NULL;
}

/* ---- struct gantry_opencl_calls ---- */

static int call_launch(struct gantry_env *env, const struct gantry_opencl_launch *launch)
{
	struct gantry_stream *stream = stream_of(env);
	void *params[MAX_PARAMS];
	uint64_t nthreads;

	if (launch->function >= stream->image->nfunctions || launch->nparams > MAX_PARAMS ||
	    launch->groups == 0 || launch->local == 0 || launch->local > stream->dev->max_threads ||
	    gantry_mul_u64(launch->groups, launch->local, &nthreads) < 0 || nthreads > UINT32_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < launch->nparams; i++) {
		const struct gantry_opencl_param *p = &launch->params[i];

		if (!p->buffer && !p->value)
			return -EINVAL; /* local memory is the kernel's own here */
		params[i] = p->buffer ? (void *)&place_of(p->buffer)->address
				      : (void *)(uintptr_t)p->value;
	}
	return gantry_hip_outcome(stream->dev->hip->ModuleLaunchKernel(
		stream->image->functions[launch->function], (unsigned)launch->groups, 1, 1,
		(unsigned)launch->local, 1, 1, 0, stream->native, params, NULL));
}

static int call_set(struct gantry_env *env, struct gantry_opencl_buffer *dst, uint64_t off,
		    uint64_t value, uint32_t elem_bytes, uint64_t count)
{
	uint64_t len;

	if ((elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8) ||
	    gantry_mul_u64(count, elem_bytes, &len) < 0 ||
	    !gantry_range_inside(off, len, dst->len_bytes))
		return -EINVAL;
	return gantry_hip_set(stream_of(env), place_of(dst)->address + off, len, value, elem_bytes);
}

static int call_copy(struct gantry_env *env, struct gantry_opencl_buffer *dst,
		     struct gantry_opencl_buffer *src, uint64_t bytes)
{
	if (bytes > dst->len_bytes || bytes > src->len_bytes)
		return -EINVAL;
	return gantry_hip_move(stream_of(env), place_of(dst)->address, place_of(src)->address,
			       bytes);
}

/* Each slot has a cell; its last user has finished. */
static struct gantry_opencl_buffer *call_verdict(struct gantry_env *env)
{
	struct gantry_stream *stream = stream_of(env);
	uint64_t at = (uint64_t)(stream->slot - stream->slots);
	struct gantry_hip_place *place;

	if (stream->nplaces == GANTRY_HIP_PLACES)
		return NULL;
	place = &stream->places[stream->nplaces++];
	*place = (struct gantry_hip_place){
		.buffer = { .len_bytes = sizeof(stream->cells->verdict), .align = 128 },
		.address = stream->cells_address + at * sizeof(*stream->cells),
	};
	stream->slot->judged = true;
	return &place->buffer;
}

/* ---- running one ---- */

static int take(struct gantry_stream *stream, const struct gantry_range *range, uint32_t mode,
		struct gantry_opencl_buffer **ret_buffer)
{
	struct gantry_hip_place *place;
	int r = gantry_hip_place_take(stream, range, mode, &place);

	if (r == 0)
		*ret_buffer = &place->buffer;
	return r;
}

int gantry_hip_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	const struct gantry_kernel *kernel = launch->kernel;
	int result, r;

	stream->image = kernel->image;
	stream->calls.rounds_per_ms = stream->image->rounds_per_ms;
	r = gantry_installed_run(stream, &stream->env, kernel->body, kernel->sig, launch, take,
				 &result);
	if (r < 0 || result == 0)
		return r;
	/* Told in order, behind what it may have enqueued before it failed, whose verdict must not replace this. */
	stream->slot->judged = false;
	gantry_installed_ended(&stream->slot->done, result);
	return 0;
}

void gantry_hip_body_init(struct gantry_stream *stream)
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
	stream->calls = (struct gantry_opencl_calls){
		.size = sizeof(stream->calls),
		.nunits = stream->dev->units,
		.max_local = stream->dev->max_threads,
		.cancels = true,
		.launch = call_launch,
		.set = call_set,
		.copy = call_copy,
		.verdict = call_verdict,
	};
}
