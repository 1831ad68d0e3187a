/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that stay in the guest until another one goes: their requests, as they lie in its buffer before its own (GANTRY_CALLS_MORE), and
 * their objects. All of them would go to one queue.
 *
 * Threads: one at a time.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_STAY_H
#define GANTRY_GUEST_SHIM_CUDALIBS_STAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest-shim/cudalibs/call.h"
#include "guest-shim/gantry.h"
#include "proto/calls.h"

#define GANTRY_STAY_BYTES   (8u << 10)
#define GANTRY_STAY_HANDLES 64u

struct gantry_stay_call {
	struct gantry_call_library *library;
	const char *name;
	uint32_t first; /* of its handles */
	uint32_t nhandles;
	bool drops;
};

/* Zero: empty. */
struct gantry_stay {
	uint32_t n;
	uint32_t nhandles;
	size_t bytes;
	size_t last;	    /* where the last request lies */
	size_t end;	    /* of it, without padding */
	gantry_queue queue; /* of the device, for what is apart from streams */
	struct gantry_stay_call calls[GANTRY_CALLS_TOGETHER];
	uint64_t handles[GANTRY_STAY_HANDLES];
	_Alignas(8) uint8_t requests[GANTRY_STAY_BYTES];
};

void gantry_stay_clear(struct gantry_stay *stay);
/* Whether one more call has room, and one after it that takes them along. */
bool gantry_stay_has_room(const struct gantry_stay *stay, size_t bytes, uint32_t nhandles);
/* The others' queue is the caller's to set. There is room. */
void gantry_stay_add(struct gantry_stay *stay, struct gantry_call_library *library,
		     const struct gantry_call_route *route, const void *request, size_t bytes);
/* Puts the requests to @to: so many bytes. @more: another comes behind them. */
size_t gantry_stay_take(const struct gantry_stay *stay, uint8_t *to, bool more);

/*
 * Whether two have an object in common. One that has ended and one that has its place now are one here: the place is to be free
 * first.
 */
bool gantry_stay_share(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb);
bool gantry_stay_shares(const struct gantry_stay *stay, const uint64_t *handles, uint32_t n);
/* Whether each of the calls is about one of these objects, or about one that ends. */
bool gantry_stay_is_about(const struct gantry_stay *stay, const uint64_t *handles, uint32_t n);

#endif
