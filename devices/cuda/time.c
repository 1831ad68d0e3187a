/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device time of batches by the device's own clock: two events around the batch.
 *
 * What the device thread sees includes how late it looks, and behind commands that take long it sleeps. An event costs most
 * of a microsecond, so batches have them that begin with a command which takes long; the others are
 * watched closely.
 */
#include "base/clock.h"
#include "devices/cuda/backend.h"

#define LONG_NS 200000u
/* To an idle stream. Another process may have had the device: how long that takes to change is not the first command's. */
#define FIRST_LONG_NS 50000u
/* Two events make a copy some 4 us longer (H200). */
#define COPY_LONG_NS 1000000u

static uint32_t long_ns(const struct gantry_stream *stream, bool copies)
{
	if (copies)
		return COPY_LONG_NS;
	return stream->finished == stream->submitted ? FIRST_LONG_NS : LONG_NS;
}

static struct gantry_cuda_span *span_at(struct gantry_stream *stream, uint32_t i)
{
	return &stream->times.spans[i % GANTRY_CUDA_SPANS];
}

static bool record(struct gantry_stream *stream, CUevent *event)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;

	if (!*event && driver->EventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		*event = NULL;
	return *event && driver->EventRecord(*event, stream->native) == CUDA_SUCCESS;
}

void gantry_cuda_time_begin(struct gantry_stream *stream, uint32_t estimate_ns, bool copies)
{
	struct gantry_cuda_times *times = &stream->times;
	struct gantry_cuda_span *span;

	times->open = false;
	if (estimate_ns < long_ns(stream, copies) ||
	    times->next - times->first == GANTRY_CUDA_SPANS)
		return;
	span = span_at(stream, times->next);
	span->from = stream->submitted;
	times->open = record(stream, &span->begin);
}

void gantry_cuda_time_end(struct gantry_stream *stream)
{
	struct gantry_cuda_times *times = &stream->times;
	struct gantry_cuda_span *span = span_at(stream, times->next);

	if (!times->open)
		return;
	times->open = false;
	if (!record(stream, &span->end))
		return; /* the batch has no time of its own, that is all */
	span->to = stream->submitted;
	times->next++;
}

bool gantry_cuda_time_next(struct gantry_stream *stream, uint32_t end, uint32_t *ret_from,
			   uint32_t *ret_to, uint64_t *ret_ns)
{
	struct gantry_cuda_times *times = &stream->times;

	while (times->first != times->next) {
		struct gantry_cuda_span *span = span_at(stream, times->first);
		float ms;

		if ((int32_t)(span->to - end) > 0)
			return false;
		times->first++;
		if (stream->dev->driver->EventElapsedTime(&ms, span->begin, span->end) !=
		    CUDA_SUCCESS)
			continue;
		*ret_from = span->from;
		*ret_to = span->to;
		*ret_ns = (uint64_t)((double)ms * GANTRY_NS_PER_MS);
		return true;
	}
	return false;
}

void gantry_cuda_time_drop(struct gantry_stream *stream)
{
	stream->times.first = stream->times.next;
	stream->times.open = false;
}

void gantry_cuda_time_fini(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_CUDA_SPANS; i++) {
		CUevent events[] = { span_at(stream, i)->begin, span_at(stream, i)->end };

		for (unsigned int k = 0; k < 2; k++)
			if (events[k]) /* recorded and done, or of a context that failed */
				(void)stream->dev->driver->EventDestroy(events[k]);
	}
}
