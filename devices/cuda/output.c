/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. The driver keeps it in a buffer of the context's and writes it to the standard output of the process, of
 * assertions to standard error, when it synchronises (CUDA C++ Programming Guide, formatted output and assertions). Nothing here
 * synchronises otherwise, so the driver is asked to, where the session wants it.
 */
#include "base/atomic.h"
#include "base/clock.h"
#include "devices/cuda/backend.h"

/* While a stream has more to do, the driver is asked so often at most. */
#define PRINT_US 10000u
/* How long after its word the end of a stream's work may come. */
#define MOMENT_US 100u

/* Whether it is time; to ask takes some microseconds of the thread that all launches wait for. */
static bool is_due(const struct gantry_stream *stream, bool idle)
{
	uint64_t now = gantry_load_relaxed(&stream->dev->watch.polled_at);

	return idle ||
	       (int64_t)(now - stream->printed_at) >= (int64_t)(PRINT_US * gantry_cycles_per_us());
}

/*
 * Of a stream that has nothing to do: nobody waits. The driver may learn of the end a moment after the word that tells it. A kernel
 * can say of itself that it has finished, and go on: so the moment is short.
 */
static CUresult synchronise(const struct gantry_dev *dev, CUstream native)
{
	uint64_t began = gantry_cycles();
	CUresult result;

	if (gantry_load_relaxed(&dev->fault))
		native = dev->own;
	do
		result = dev->driver->StreamQuery(native);
	while (result == CUDA_ERROR_NOT_READY &&
	       gantry_cycles() - began < MOMENT_US * gantry_cycles_per_us());
	/* After a fault too: what a failed assertion says comes then. */
	return result == CUDA_ERROR_NOT_READY ? result : dev->driver->StreamSynchronize(native);
}

void gantry_cuda_output_tell(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	const struct gantry_device_host *host = dev->host;
	uint64_t tag = gantry_cuda_slot_at(stream, stream->finished - 1)->done.tag;
	bool idle = stream->finished == stream->submitted;
	CUresult result;

	if (!is_due(stream, idle))
		return;
	stream->printed_at = gantry_load_relaxed(&dev->watch.polled_at);
	stream->launched = !idle;
	if (!host->print_begin || !host->print_begin(host->cookie, tag))
		return;
	result = synchronise(dev, idle ? stream->native : dev->own);
	if (gantry_cuda_sticky(result))
		gantry_cuda_fault_note(dev, result);
	host->print_end(host->cookie, tag, gantry_load_relaxed(&dev->fault));
}
