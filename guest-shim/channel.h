/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Being woken by bytes of a channel beside an ivshmem device (proto/doormem.h): a virtio-serial port, which no other
 * process has open, and that the host answers at; else a stream to the host's vsock port, which each process has its own of.
 * For kernels without a virtual IOMMU, where interrupts are nobody's.
 *
 * A device that looks like one has a stream socket named wake in its folder instead.
 * Trust: bytes are the host's, and only say that there may be something.
 * Threads: sleep from any; the others while nobody else uses it. Blocking: open, for a moment; sleep.
 */
#ifndef GANTRY_GUEST_SHIM_CHANNEL_H
#define GANTRY_GUEST_SHIM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-shim/listener.h"
#include "guest-shim/pcidev.h"

struct gantry_channel {
	int fd;		     /* -EBADF: there is none */
	uint32_t number;     /* as the host calls it */
	uint32_t is_open;    /* to be listened to */
	uint32_t *listening; /* the segment's word, to be told when a wait begins; NULL: not yet */
	struct gantry_listener listener;
};

/* One that is closed. */
void gantry_channel_init(struct gantry_channel *c);

/* 0; -errno where there is none, which is no failure: @c stays closed then. */
int gantry_channel_open(const struct gantry_pcidev *dev, struct gantry_channel *c);

/* Also of one that is closed, and in a forked child. */
void gantry_channel_close(struct gantry_channel *c);

/* From now on it wakes. */
void gantry_channel_use(struct gantry_channel *c, uint32_t *listening);

/*
 * One sleep while *@word is @seen; may come back early. False, at once, where nobody is woken by it.
 */
bool gantry_channel_sleep(struct gantry_channel *c, const uint64_t *word, uint64_t seen,
			  uint64_t deadline_ns);

#endif
