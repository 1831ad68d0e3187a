/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: events that tell the end of a batch whose last command is a copy behind others.
 *
 * The word that tells the end of other batches is written by the engine that launches kernels, which first has to learn
 * from the copy engine that the copy is done; what is submitted next waits for the write. An event belongs to the engine
 * that copies. But to look at it takes a call of the driver, and the watcher does not; so kernels keep the word, and so do
 * copies that come alone, for which it is the faster one, and those small enough to go in with the commands themselves.
 */
#include "devices/cuda/backend.h"

static CUevent *event_at(struct gantry_stream *stream, uint32_t i)
{
	return &stream->marks.events[i % GANTRY_CUDA_MARKS];
}

bool gantry_cuda_mark_put(struct gantry_stream *stream)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	struct gantry_cuda_marks *marks = &stream->marks;
	CUevent *event = event_at(stream, marks->next);

	/* Without stream memory operations a word is written by a call that must not outlive its slot. */
	if (!stream->dev->mem_ops || marks->next - marks->first == GANTRY_CUDA_MARKS)
		return false;
	if (!*event && driver->EventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
		*event = NULL;
		return false;
	}
	if (driver->EventRecord(*event, stream->native) != CUDA_SUCCESS)
		return false; /* what is sticky the write meets, too */
	marks->at[marks->next++ % GANTRY_CUDA_MARKS] = stream->submitted;
	return true;
}

uint32_t gantry_cuda_mark_look(struct gantry_stream *stream)
{
	struct gantry_cuda_marks *marks = &stream->marks;
	uint32_t end = stream->finished;

	for (; marks->first != marks->next; marks->first++) {
		uint32_t at = marks->at[marks->first % GANTRY_CUDA_MARKS];
		CUresult result;

		if ((int32_t)(at - end) <= 0)
			continue; /* a word has told it */
		result = stream->dev->driver->EventQuery(*event_at(stream, marks->first));
		if (result == CUDA_ERROR_NOT_READY)
			break;
		if (result != CUDA_SUCCESS) {
			/* Nothing else may ever tell that the batch has finished: as bad as a fault. */
			gantry_cuda_fault_note(stream->dev, result);
			break;
		}
		end = at;
	}
	return end;
}

void gantry_cuda_mark_drop(struct gantry_stream *stream)
{
	stream->marks.first = stream->marks.next;
}

void gantry_cuda_mark_fini(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_CUDA_MARKS; i++)
		if (*event_at(stream, i)) /* recorded and done, or of a context that failed */
			(void)stream->dev->driver->EventDestroy(*event_at(stream, i));
}
