/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forge: the process that compiles for a worker (compile.h), and what the two say to each other.
 *
 * Over a SOCK_SEQPACKET pair the worker sends requests, each with two descriptors: the text, and a memfd for the result.
 * The forge returns one end of a new pair at once, over which the answer comes, one packet. The worker closing that end
 * ends the compilation.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_FORGE_H
#define GANTRY_HOST_AGENT_WORKER_FORGE_H

#include <stdint.h>

#include "host-agent/worker/compile.h"

#define FORGE_MAGIC	  0x4547524fu
#define FORGE_NFDS	  2u
#define FORGE_MAX_DEVICES 8u

struct forge_request {
	uint32_t magic;
	uint32_t device;
	uint64_t nbytes;
	char arch[160];
};

struct forge_answer {
	uint32_t magic;
	int32_t status;
	uint64_t nbytes; /* of the result */
	char text[GANTRY_ERR_TEXT_MAX];
	char log[WORKER_COMPILE_LOG];
};

/* What the forge has of the worker that it was forked from. */
struct forge {
	int sock;
	uint32_t ndevices;
	struct gantry_device_conf devices[FORGE_MAX_DEVICES];
	const struct gantry_backend *backends[FORGE_MAX_DEVICES]; /* NULL: has no compiler */
	struct worker_compile_limits limits;
};

/* The forge's whole life: in the forked process, never returns. */
_Noreturn void forge_main(struct forge *f);

#endif
