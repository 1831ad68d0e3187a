/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker in steward mode: it opens the devices of one backend and makes and scrubs slabs, and says how devices
 * are, as the agent asks. It takes no session and no byte of a guest's.
 *
 * Threads: one caller thread (the control thread); answers come from device threads, a thread per device: what one
 * device takes its time over keeps no other waiting.
 * Blocking: start opens the devices, with their threads. The requests do not wait: their answers do.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_STEWARD_H
#define GANTRY_HOST_AGENT_WORKER_STEWARD_H

#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"

#define GANTRY_STEWARD_MAX_DEVICES 8u
/* Requests of one device that wait; the agent has fewer outstanding. */
#define GANTRY_STEWARD_MAX_WAITING 64u

struct gantry_steward;

/*
 * From a device's thread. @fd is the callee's from the call on; -1: none. lost: a device that the steward holds; it should end. @worker:
 * whose launch is why; 0: no launch.
 */
struct gantry_steward_events {
	void (*lost)(void *cookie, const char *device, uint64_t worker, const char *why);
	void (*made)(void *cookie, uint64_t tag, int status, const char *text, int fd);
	void (*scrubbed)(void *cookie, uint64_t tag, int status, const char *text);
	void *cookie;
};

struct gantry_steward_device {
	struct gantry_device_info info;
	char error[160]; /* not empty: could not be opened, or has no name: another steward's */
};

struct gantry_steward_health {
	struct gantry_device_health health;
	char error[160]; /* not empty: the device should not be used */
};

/*
 * Opens those of @confs that have a name. One with the option "holder=steward" is held: it serves workers' seats, and makes no
 * slabs. One that fails to open, or offers no slabs, is told in @ret_devices; so are devices of one board, all of them, where
 * they have no mem each or more of it than the board.
 * -ENOMEM, -EAGAIN (threads).
 */
int gantry_steward_start(const struct gantry_device_conf *confs, uint32_t n,
			 const struct gantry_steward_events *events,
			 struct gantry_steward **ret_steward,
			 struct gantry_steward_device *ret_devices, struct gantry_err *err);
/* Ends the threads and closes the devices; what waits is not answered. NULL is allowed. */
void gantry_steward_stop(struct gantry_steward *steward);

/*
 * Answered by events->made, by events->scrubbed (@fd is taken over on success). -ENODEV: no such device;
 * -EBUSY: too many wait; -ENOMEM. No answer follows then.
 */
int gantry_steward_make(struct gantry_steward *steward, uint32_t device, uint64_t bytes,
			uint64_t tag);
int gantry_steward_scrub(struct gantry_steward *steward, uint32_t device, uint64_t bytes, int fd,
			 uint64_t tag);
/* A seat of worker @worker at a held device: the holder's end of a socket, taken over also after a failure. -ENODEV, -EMFILE, -ENOMEM. */
int gantry_steward_seat(struct gantry_steward *steward, uint32_t device, int sock, uint64_t worker);
/* How device @device is, at once: a device's health() may be asked by any thread. */
void gantry_steward_health(struct gantry_steward *steward, uint32_t device,
			   struct gantry_steward_health *ret_health);

#endif
