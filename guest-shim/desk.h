/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A desk of a door memory (proto/doormem.h): its claim, and the boxes that messages go through.
 *
 * Trust: all that the host writes there is input; numbers are compared, messages are copied once and checked.
 * Threads: post and take by one thread at a time; take_notice by one thread at a time, which may be another; lost and
 * ring by any.
 */
#ifndef GANTRY_GUEST_SHIM_DESK_H
#define GANTRY_GUEST_SHIM_DESK_H

#include "guest-shim/handshake.h"
#include "guest-shim/pcidev.h"

struct gantry_desk {
	const struct gantry_pcidev *dev;
	uint8_t *base; /* door memory up to the end of the desks */
	uint64_t mapped_bytes;
	struct gantry_doormem_desk *desk;
	uint32_t index;
	uint64_t generation; /* of our claim */
	uint32_t posted;
	uint32_t host_taken;
	uint32_t notice_taken;
};

/*
 * Maps @dev's desks, clears what dead processes left and claims a desk that is free; @dev stays the caller's and
 * where it is. @wake and @vector go into the claim. FULL: none is free; DENIED, NO_AGENT: as gantry_pcidev_open().
 */
int gantry_desk_open(const struct gantry_pcidev *dev, uint32_t wake, uint32_t vector,
		     struct gantry_desk *ret_desk);

/* Gives the claim back. In a forked child nothing is touched: mappings and claim are the parent's. */
void gantry_desk_close(struct gantry_desk *d, bool is_child);

/* A new claim of the same desk, for when the host forgot the old one. */
void gantry_desk_reclaim(struct gantry_desk *d);

/* NULL while the device is there and the door open or draining; else a sentence. */
const char *gantry_desk_gone(const struct gantry_desk *d);

/* Before the interrupt is given back because the device is unplugged: to every process of this machine it is gone from here on. */
void gantry_desk_depart(struct gantry_desk *d);

/* Whether the host serves this claim. */
bool gantry_desk_is_served(const struct gantry_desk *d);

/* Before the first post: what lies in the host's box is somebody else's. */
void gantry_desk_begin(struct gantry_desk *d);

/* Puts @msg into the box and rings. -EBUSY: the one before was not taken. */
int gantry_desk_post(struct gantry_desk *d, const struct gantry_door_header *msg);

/* The host's next message. -EAGAIN: none; -EPROTO: no message. */
int gantry_desk_take(struct gantry_desk *d, union gantry_message *msg, uint16_t *ret_kind);
int gantry_desk_take_notice(struct gantry_desk *d, union gantry_message *msg, uint16_t *ret_kind);

#endif
