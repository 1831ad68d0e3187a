/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. It is the program's own output, so it goes where the program's stdio goes, in order with what the program prints
 * itself. These are the only bytes that any of our libraries writes there, and none of them is ours.
 *
 * The host puts them into a buffer of the session (struct gantry_output) before it tells that the kernels have finished: to look
 * there costs no round trip, but behind a stream, where it is one. The drop-in libraries have one of these for each session; when they show it is theirs to say. Not exported.
 *
 * Trust: the host's counts are taken once each, and lead nowhere but into the ring.
 * Threads: any, with no lock of the caller's: to show waits for whoever reads the program's output.
 */
#ifndef GANTRY_GUEST_SHIM_OUTPUT_H
#define GANTRY_GUEST_SHIM_OUTPUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "guest-shim/gantry.h"

struct gantry_output;

/* Of one session, and no longer there than it. */
struct gantry_printed {
	pthread_mutex_t lock;	    /* also keeps what is written in order; behind a stream's own */
	uint32_t is_wanted;	    /* atomic; a buffer was asked for: it is there, or cannot be */
	struct gantry_output *head; /* atomic; NULL: there is none */
	uint8_t *ring[2];
	uint64_t bytes;	   /* of a ring */
	uint64_t shown[2]; /* atomic */
	/* Behind a stream head and ring are a copy, which is brought when something is to be shown. NULL: they are what the host writes. */
	struct gantry_session *far;
	gantry_buffer buffer;
};
#define GANTRY_PRINTED_INIT                       \
	{                                         \
		.lock = PTHREAD_MUTEX_INITIALIZER \
	}

/*
 * Kernels that may print are about to be loaded: asks for the buffer, once. An older host knows no such buffer, and a heap may be
 * full: then what they print is lost. Waits for the host.
 */
void gantry_printed_want(struct gantry_printed *p, struct gantry_session *s);
bool gantry_printed_is_wanted(const struct gantry_printed *p);
/* There is a buffer: something may come. */
bool gantry_printed_comes(const struct gantry_printed *p);
/* Something has come that was not shown, or may have: behind a stream nobody knows before it is shown. */
bool gantry_printed_is_news(const struct gantry_printed *p);
/* All that has come goes to stdout and stderr. Waits for the host behind a stream. */
void gantry_printed_show(struct gantry_printed *p);
/* gantry_wait() without limit; shows what comes meanwhile, so that it does not outgrow the buffer. */
int gantry_printed_wait(struct gantry_printed *p, struct gantry_session *s,
			const gantry_ticket *tickets, unsigned int n);
/* What ended the device's context, as its driver numbers it; 0: nothing, or nobody knows. */
uint32_t gantry_printed_fault(const struct gantry_printed *p);

#endif
