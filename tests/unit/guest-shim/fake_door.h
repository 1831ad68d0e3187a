/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kind of door of the fake agent: how its messages travel. What they say is fake_host.c's.
 *
 * Threads: step runs in the agent's thread, hang_up and send also in a test's.
 */
#ifndef GANTRY_TESTS_FAKE_DOOR_H
#define GANTRY_TESTS_FAKE_DOOR_H

#include <stddef.h>

#include "guest-shim/transport.h"
#include "tests/unit/guest-shim/fake_host.h"

struct fake_door {
	const char *name;
	const struct gantry_transport_ops *ops; /* the guest's side of it */
	bool shares_memory; /* so that a welcome brings a segment and a bell, which may be wrong */

	/* Makes the file that the segment lies in (h->segment_fd, h->segment_off) and the door itself (h->where). */
	void (*open)(struct fake_host *h);
	void (*close)(struct fake_host *h);

	/* One turn: waits a tick at most for what guests do, and serves it by greet and answer. */
	void (*step)(struct fake_host *h);

	/* A message, or what is none; the segment and the bell, by the door's own means, as h->answer says. */
	void (*send)(struct fake_host *h, const void *msg, size_t len);
	void (*welcome)(struct fake_host *h, const struct gantry_door_welcome *msg);

	/* Ends the session as a dying agent does. */
	void (*hang_up)(struct fake_host *h);
};

extern const struct fake_door fake_door_unix;
extern const struct fake_door fake_door_ivshmem;
extern const struct fake_door fake_door_stream;

/* What step calls: h->hello is there; a request is. */
void fake_host_greet(struct fake_host *h);
void fake_host_answer(struct fake_host *h, const void *msg, size_t len);

#define FAKE_TICK_MS 20

#endif
