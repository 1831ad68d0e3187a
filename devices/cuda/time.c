/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's events as devices/devtime.h has them. */
#include "devices/cuda/backend.h"

static bool record(struct gantry_stream *stream, void **event)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUevent made;

	if (!*event && driver->EventCreate(&made, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
		*event = made;
	return *event && driver->EventRecord(*event, stream->native) == CUDA_SUCCESS;
}

static bool elapsed(struct gantry_stream *stream, void *begin, void *end, float *ret_ms)
{
	return stream->dev->driver->EventElapsedTime(ret_ms, begin, end) == CUDA_SUCCESS;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream->dev->driver->EventDestroy(event);
}

static struct gantry_devtime_cmd cmd_at(struct gantry_stream *stream, uint32_t position)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, position);

	return (struct gantry_devtime_cmd){
		.estimate_ns = slot->estimate_ns,
		.mean_ns = slot->kernel ? &slot->kernel->mean_ns : NULL,
		.device_ns = &slot->done.device_ns,
		.closes = slot->closed,
	};
}

const struct gantry_devtime_driver gantry_cuda_devtime = {
	.record = record,
	.elapsed = elapsed,
	.destroy = destroy,
	.cmd_at = cmd_at,
};
