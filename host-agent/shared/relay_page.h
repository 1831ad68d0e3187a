/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a relay has moved so far: counted by the relay, read by the agent for metrics, also by one that comes after it.
 *
 * Trust: a relay speaks with a guest; its counts are for administrators' eyes, and decide nothing.
 */
#ifndef GANTRY_HOST_AGENT_SHARED_RELAY_PAGE_H
#define GANTRY_HOST_AGENT_SHARED_RELAY_PAGE_H

#include <stdint.h>

#define GANTRY_RELAY_PAGE_BYTES 4096u

struct gantry_relay_page {
	uint64_t tasks;
	uint64_t bytes_in; /* of the heap, from the guest */
	uint64_t bytes_out;
	uint64_t reconnects;
};

#endif
