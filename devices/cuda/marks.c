/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's events as devices/marks.h has them. */
#include "devices/cuda/backend.h"

static bool put(struct gantry_stream *stream, void **event)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUevent made;

	/* Without stream memory operations a word is written by a call that must not outlive its slot. */
	if (!stream->dev->mem_ops)
		return false;
	if (!*event && driver->EventCreate(&made, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
		*event = made;
	/* What is sticky the write meets, too. */
	return *event && driver->EventRecord(*event, stream->native) == CUDA_SUCCESS;
}

static enum gantry_mark look(struct gantry_stream *stream, void *event)
{
	CUresult result = stream->dev->driver->EventQuery(event);

	if (result == CUDA_SUCCESS)
		return GANTRY_MARK_PASSED;
	if (result == CUDA_ERROR_NOT_READY)
		return GANTRY_MARK_AHEAD;
	gantry_cuda_fault_note(stream->dev, result);
	return GANTRY_MARK_FAILED;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream->dev->driver->EventDestroy(event);
}

const struct gantry_marks_driver gantry_cuda_marks = {
	.put = put,
	.look = look,
	.destroy = destroy,
};
