/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cuda/aside.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gantry_queue queues[CU_MAX_DEVICES];
static gantry_buffer buffer;
static uint8_t *piece;

void cu_aside_enter(void)
{
	(void)pthread_mutex_lock(&lock);
}

void cu_aside_leave(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static gantry_queue *queue_of(uint32_t device)
{
	for (uint32_t i = 0; i < cu.ndevices; i++)
		if (cu.devices[i].index == device)
			return &queues[i];
	return NULL;
}

int cu_aside_open(uint32_t device)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA,
						      .device_mask = 1ull << device };
	gantry_queue *queue = queue_of(device);
	void *host;
	int r = 0;

	if (!queue)
		return GANTRY_E_NO_DEVICE;
	if (cu_is_far())
		return GANTRY_E_UNSUPPORTED; /* the piece would not be the device's too */
	if (!buffer)
		r = gantry_alloc(cu.session, CU_ASIDE_BYTES, GANTRY_ALLOC_HOST, &buffer);
	if (r == 0 && !piece) {
		r = gantry_map(cu.session, buffer, 0, CU_ASIDE_BYTES, GANTRY_RW, GANTRY_FOREVER,
			       &host);
		if (r == 0)
			piece = host;
	}
	if (r == 0 && !*queue)
		r = gantry_queue_open(cu.session, &options, queue);
	return r;
}

uint8_t *cu_aside_piece(void)
{
	return piece;
}

int cu_aside_copy(uint32_t device, gantry_buffer of, uint64_t off, size_t bytes, bool to_device)
{
	gantry_queue queue = *queue_of(device);
	gantry_ticket ticket = 0;
	int r;

	do
		r = to_device ? gantry_submit_copy(cu.session, queue, of, off, buffer, 0, bytes,
						   &ticket)
			      : gantry_submit_copy(cu.session, queue, buffer, 0, of, off, bytes,
						   &ticket);
	while (r == GANTRY_E_AGAIN);
	return r == 0 ? gantry_wait(cu.session, &ticket, 1, GANTRY_FOREVER) : r;
}
