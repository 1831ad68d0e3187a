/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's events as devices/marks.h has them. */
#include "base/atomic.h"
#include "devices/hip/backend.h"

static bool put(struct gantry_stream *stream, void **event)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	struct gantry_hip_event *made;

	/* A callback wakes who waits; nobody would look at an event. */
	if (!stream->dev->writes || !hip->EventQuery)
		return false;
	if (!*event &&
	    hip->EventCreateWithFlags(&made, GANTRY_HIP_EVENT_NO_TIME) == GANTRY_HIP_SUCCESS)
		*event = made;
	/* What stays of an error the write meets, too. */
	return *event && hip->EventRecord(*event, stream->native) == GANTRY_HIP_SUCCESS;
}

static enum gantry_mark look(struct gantry_stream *stream, void *event)
{
	gantry_hip_result result = stream->dev->hip->EventQuery(event);

	if (result == GANTRY_HIP_SUCCESS)
		return GANTRY_MARK_PASSED;
	if (result == GANTRY_HIP_NOT_READY)
		return GANTRY_MARK_AHEAD;
	gantry_store_relaxed(&stream->broken, result);
	return GANTRY_MARK_FAILED;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream->dev->hip->EventDestroy(event);
}

const struct gantry_marks_driver gantry_hip_marks = {
	.put = put,
	.look = look,
	.destroy = destroy,
};
