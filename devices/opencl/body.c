/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed kernels: their host functions run here, on the device thread, and enqueue. What they are offered is in
 * devices/module.h and devices/opencl/module.h.
 */
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "devices/installed.h"
#include "devices/opencl/backend.h"

static struct gantry_stream *stream_of(struct gantry_env *env)
{
	return gantry_container_of(env, struct gantry_stream, env);
}

static struct gantry_opencl_place *place_of(struct gantry_opencl_buffer *buffer)
{
	return gantry_container_of(buffer, struct gantry_opencl_place, buffer);
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
	struct gantry_opencl_place *place;

	if (gantry_opencl_place_scratch(stream_of(env), bytes ? bytes : 1, &place) < 0)
		return NULL;
	return &place->buffer;
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	return strcmp(library, "opencl") == 0 ? &stream_of(env)->calls : NULL;
}

/* ---- struct gantry_opencl_calls ---- */

static int call_launch(struct gantry_env *env, const struct gantry_opencl_launch *launch)
{
	struct gantry_stream *stream = stream_of(env);
	const struct gantry_opencl_driver *cl = stream->dev->cl;
	size_t local = launch->local, global;
	cl_kernel kernel;
	int r = 0;

	if (launch->function >= stream->image->nfunctions || launch->groups == 0 || local == 0 ||
	    local > stream->dev->max_local ||
	    gantry_mul_u64(launch->groups, launch->local, &global) < 0)
		return -EINVAL;
	kernel = gantry_opencl_kernel_of(stream, stream->image, launch->function);
	if (!kernel)
		return -ENOMEM;
	for (uint32_t i = 0; i < launch->nparams && r == 0; i++) {
		const struct gantry_opencl_param *p = &launch->params[i];
		const void *value = p->buffer ? &place_of(p->buffer)->mem : p->value;

		r = gantry_opencl_outcome(stream, cl->SetKernelArg(kernel, i, p->bytes, value));
	}
	if (r < 0)
		return r;
	return gantry_opencl_outcome(
		stream, cl->EnqueueNDRangeKernel(stream->queue, kernel, 1, NULL, &global, &local, 0,
						 NULL, gantry_opencl_event_slot(stream)));
}

static int call_set(struct gantry_env *env, struct gantry_opencl_buffer *dst, uint64_t off,
		    uint64_t value, uint32_t elem_bytes, uint64_t count)
{
	uint64_t len;

	if ((elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8) ||
	    gantry_mul_u64(count, elem_bytes, &len) < 0 ||
	    !gantry_range_inside(off, len, dst->len_bytes))
		return -EINVAL;
	if (count == 0)
		return 0;
	return gantry_opencl_set(stream_of(env), place_of(dst), off, len, value, elem_bytes);
}

static int call_copy(struct gantry_env *env, struct gantry_opencl_buffer *dst,
		     struct gantry_opencl_buffer *src, uint64_t bytes)
{
	if (bytes > dst->len_bytes || bytes > src->len_bytes)
		return -EINVAL;
	return gantry_opencl_move(stream_of(env), place_of(dst), place_of(src), bytes);
}

static struct gantry_opencl_buffer *call_verdict(struct gantry_env *env)
{
	struct gantry_opencl_place *place;

	if (gantry_opencl_place_verdict(stream_of(env), &place) < 0)
		return NULL;
	return &place->buffer;
}

/* ---- running one ---- */

static int take(struct gantry_stream *stream, const struct gantry_range *range, uint32_t mode,
		struct gantry_opencl_buffer **ret_buffer)
{
	struct gantry_opencl_place *place;
	int r = gantry_opencl_place_take(stream, range, mode, &place);

	if (r == 0)
		*ret_buffer = &place->buffer;
	return r;
}

int gantry_opencl_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
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

void gantry_opencl_body_init(struct gantry_stream *stream)
{
	stream->env = (struct gantry_env){
		.size = sizeof(stream->env),
		.abi = GANTRY_MODULE_ABI,
		.nlanes = 1,
		.parallel = gantry_installed_serial,
		.cancelled = env_cancelled,
		.scratch = env_scratch,
		.handle = env_handle,
		.stream = stream->queue,
	};
	stream->calls = (struct gantry_opencl_calls){
		.size = sizeof(stream->calls),
		.nunits = stream->dev->units,
		.max_local = stream->dev->max_local,
		.cancels = stream->dev->direct,
		.launch = call_launch,
		.set = call_set,
		.copy = call_copy,
		.verdict = call_verdict,
	};
}
