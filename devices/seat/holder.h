/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder of a device that admits one process: serves workers' seats (seat.h).
 *
 * Trust: workers may be taken over by their guests. What one puts into its page is copied once and checked; memory that it hands over
 *   has to be sealed, so that it cannot be cut short; an image is a file directly in the folder of option "images". A worker that
 *   breaks the rules loses its seat, and nobody else notices.
 * A worker that dies: its memory is taken away at once, so that what its launches still write reaches nobody; launches that have
 *   not begun are cancelled. Its seat's end is seen before another seat is answered that was given after its death.
 * Threads: run() makes its caller the device thread; add(), stop() and what the device calls of host() may come from any other.
 * Blocking: run() until stop(); a load of an image makes all seats wait for it as long as the device does.
 */
#ifndef GANTRY_DEVICES_SEAT_HOLDER_H
#define GANTRY_DEVICES_SEAT_HOLDER_H

#include "devices/registry.h"

#define GANTRY_SEAT_MAX_SEATS 256u

struct gantry_seat_holder;

/* @images: the folder of installed images; NULL: there are none. It stays the caller's, and valid. NULL: no memory or descriptors. */
struct gantry_seat_holder *gantry_seat_holder_new(const char *images);
/* After run() has returned. NULL is allowed. */
void gantry_seat_holder_free(struct gantry_seat_holder *holder);

/* What the device is to be opened with; lives as long as the holder. */
const struct gantry_device_host *gantry_seat_holder_host(struct gantry_seat_holder *holder);

/*
 * Serves seats of @device until stop(), and then ends them all; the device stays open. 0; -ENODEV: the device is lost, which
 * all seats have been told; or a launch did not end, which its seat has been told and no other: what they had is settled by who follows.
 */
int gantry_seat_holder_run(struct gantry_seat_holder *holder, const struct gantry_device *device);
/* A seat for worker @worker: the holder's end of a SOCK_SEQPACKET pair, which it takes over, also when it fails. 0, -EMFILE: too many; -ENOMEM. */
int gantry_seat_holder_add(struct gantry_seat_holder *holder, int sock, uint64_t worker);
/* After run() has returned -ENODEV: whose launch, of which kernel, did not end, so that the device has to be opened anew. false: it was no launch. */
bool gantry_seat_holder_blames(const struct gantry_seat_holder *holder, uint64_t *ret_worker,
			       const char **ret_kernel);
void gantry_seat_holder_stop(struct gantry_seat_holder *holder);

#endif
