/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake agent behind an ivshmem device: a door memory in a sealed file, in a folder that looks like a PCI device.
 *
 * The folder: resource2 is a link to the file, doorbell a datagram socket that the agent's thread reads.
 */
#ifndef GANTRY_TESTS_FAKE_IVSHMEM_H
#define GANTRY_TESTS_FAKE_IVSHMEM_H

#include "proto/doormem.h"
#include "tests/unit/guest-shim/fake_host.h"

#define FAKE_NDESKS   4u
#define FAKE_DATA_OFF (2ull << 20)
#define FAKE_NVECTORS 2u
#define FAKE_BELL     1u /* vector of sessions' bells */

struct fake_ivshmem {
	char folder[64];
	uint8_t *base; /* the whole door memory */
	uint64_t bytes;
	struct gantry_doormem_header *header;
	int doorbell;
	uint32_t is_deaf;  /* atomic, 1: claims are not looked at */
	uint32_t is_still; /* atomic, 1: and the last look is over */
	uint32_t nforgets; /* so many claims are forgotten when they say HELLO */
	uint32_t nclaims;  /* atomic: served so far */
	uint32_t serving;  /* atomic: index of the desk that has the session */
	bool is_greeted[FAKE_NDESKS];
	uint64_t
		forgotten[FAKE_NDESKS]; /* the generation that was given up before it was greeted */
	uint32_t posted_seen[FAKE_NDESKS];
};

/* Its state, of a host that was started. */
struct fake_ivshmem *fake_ivshmem_of(struct fake_host *h);
struct gantry_doormem_desk *fake_ivshmem_desk(struct fake_host *h, uint32_t index);

/* The desk that has the session, or had it last. */
struct gantry_doormem_desk *fake_ivshmem_served(struct fake_host *h);

#endif
