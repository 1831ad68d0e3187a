/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's events as devices/devtime.h has them. */
#include "devices/hip/backend.h"

static bool record(struct gantry_stream *stream, void **event)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	struct gantry_hip_event *made;

	if (!*event && hip->EventCreateWithFlags(&made, 0) == GANTRY_HIP_SUCCESS)
		*event = made;
	return *event && hip->EventRecord(*event, stream->native) == GANTRY_HIP_SUCCESS;
}

static bool elapsed(struct gantry_stream *stream, void *begin, void *end, float *ret_ms)
{
	return stream->dev->hip->EventElapsedTime(ret_ms, begin, end) == GANTRY_HIP_SUCCESS;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream->dev->hip->EventDestroy(event);
}

static struct gantry_devtime_cmd cmd_at(struct gantry_stream *stream, uint32_t position)
{
	struct gantry_hip_slot *slot = gantry_hip_slot_at(stream, position);

	return (struct gantry_devtime_cmd){
		.estimate_ns = slot->estimate_ns,
		.mean_ns = slot->kernel ? &slot->kernel->mean_ns : NULL,
		.device_ns = &slot->done.device_ns,
		.closes = slot->closed,
	};
}

const struct gantry_devtime_driver gantry_hip_devtime = {
	.record = record,
	.elapsed = elapsed,
	.destroy = destroy,
	.cmd_at = cmd_at,
};
