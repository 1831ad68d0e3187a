/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. The driver keeps it in a buffer of the context's and writes it to the standard output of the process, of
 * assertions to standard error, when it synchronises (CUDA C++ Programming Guide, formatted output and assertions). Nothing here
 * synchronises otherwise, so the driver is asked to, where the session wants it.
 */
#include "base/atomic.h"
#include "devices/cuda/backend.h"

void gantry_cuda_output_tell(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	const struct gantry_device_host *host = dev->host;
	uint64_t tag = gantry_cuda_slot_at(stream, stream->finished - 1)->done.tag;
	bool idle = stream->finished == stream->submitted;
	CUresult result;

	stream->launched = !idle;
	if (!host->print_begin || !host->print_begin(host->cookie, tag))
		return;
	/* Neither waits: the one has finished what it had, the other has nothing. */
	result = dev->driver->StreamSynchronize(
		idle && !gantry_load_relaxed(&dev->fault) ? stream->native : dev->own);
	if (gantry_cuda_sticky(result))
		gantry_cuda_fault_note(dev, result);
	host->print_end(host->cookie, tag, gantry_load_relaxed(&dev->fault));
}
