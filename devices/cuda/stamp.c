/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps: the device's clock, by events. An event tells how long after another one it was, as a float of milliseconds,
 * which is exact to some nanoseconds for a second or so: then the newest becomes what the next are counted from.
 */
#include <errno.h>

#include "base/clock.h"
#include "devices/cuda/backend.h"

#define REBASE_MS 500.0f

int gantry_cuda_stamp_put(struct gantry_stream *stream, struct gantry_cuda_slot *slot)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUresult result = CUDA_SUCCESS;

	if (!slot->stamp)
		result = driver->EventCreate(&slot->stamp, CU_EVENT_DEFAULT);
	if (result != CUDA_SUCCESS)
		slot->stamp = NULL;
	else
		result = driver->EventRecord(slot->stamp, stream->native);
	slot->stamped = result == CUDA_SUCCESS;
	return slot->stamped || gantry_cuda_sticky(result)
		       ? 0
		       : gantry_cuda_check(stream->dev, result, "", NULL);
}

/* @slot's event is what stamps count from; the one before becomes the slot's. */
static void rebase(struct gantry_dev *dev, struct gantry_cuda_slot *slot, uint64_t now_ns)
{
	CUevent before = dev->stamp_base;

	dev->stamp_base = slot->stamp;
	dev->stamp_base_ns = now_ns;
	slot->stamp = before;
}

void gantry_cuda_stamp_read(struct gantry_stream *stream, struct gantry_cuda_slot *slot)
{
	struct gantry_dev *dev = stream->dev;
	float ms = 0;

	slot->stamped = false;
	if (slot->done.status != GANTRY_OK)
		return;
	if (!dev->stamp_base) {
		/* So that a later worker's stamps are not far from where these would be. */
		rebase(dev, slot, gantry_now_ns());
		slot->done.stamp_ns = dev->stamp_base_ns;
		return;
	}
	if (dev->driver->EventElapsedTime(&ms, dev->stamp_base, slot->stamp) != CUDA_SUCCESS) {
		slot->done.status = GANTRY_E_INTERNAL;
		slot->done.blast = GANTRY_BLAST_CMD;
		return;
	}
	/* Streams are looked at one after the other: one may be from before the base. */
	slot->done.stamp_ns = dev->stamp_base_ns +
			      (uint64_t)(int64_t)((double)ms * GANTRY_NS_PER_MS);
	if (ms > REBASE_MS)
		rebase(dev, slot, slot->done.stamp_ns);
}

void gantry_cuda_stamp_fini(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_CUDA_DEPTH; i++)
		if (stream->slots[i].stamp) /* refused after a fault only */
			(void)stream->dev->driver->EventDestroy(stream->slots[i].stamp);
}
