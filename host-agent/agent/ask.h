/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest asks for in its HELLO, bounded by what its tenant may have: the shape of a session.
 *
 * Trust: the HELLO is a guest's. Pure arithmetic: no state, no system call. Threads: any.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_ASK_H
#define GANTRY_HOST_AGENT_AGENT_ASK_H

#include <stdint.h>

#include "base/err.h"
#include "host-agent/agent/config.h"
#include "proto/door.h"
#include "proto/segment.h"

struct gantry_address_range {
	uint64_t begin;
	uint64_t end;
};

struct gantry_shape {
	struct gantry_segment_layout segment;
	uint64_t virtual_bytes;
	uint64_t mem_bytes;
	uint64_t slab_bytes;
	uint64_t address; /* where worker and guest are to map the segment; 0: anywhere */
};

/*
 * The shape that @hello gets from @tenant, of whose host memory @host_mem_used is in use. 0; else a
 * status
 * (GANTRY_E_LIMIT, GANTRY_E_VERSION) and a sentence. @ret_version: the protocol version both speak.
 */
int gantry_ask_bound(const struct gantry_door_hello *hello, const struct gantry_tenant_conf *tenant,
		     uint64_t host_mem_used, struct gantry_shape *ret_shape, uint32_t *ret_version,
		     struct gantry_err *err);

/* Memory that segments are cut out of, as a virtual machine's door has it. */
struct gantry_ask_room {
	uint64_t largest_bytes; /* that one segment can have now */
	uint64_t share_bytes;	/* that one which does not say what it wants has at most */
};

/* The same for a segment within @room, which is charged already: it is smaller where the room is. */
int gantry_ask_within(const struct gantry_door_hello *hello,
		      const struct gantry_tenant_conf *tenant, const struct gantry_ask_room *room,
		      struct gantry_shape *ret_shape, uint32_t *ret_version,
		      struct gantry_err *err);

/*
 * The lowest place for a segment of @bytes in @range that none of @taken overlaps; 0: there is none. Spans are bytes
 * from begin to before end; an empty range starts at 0.
 */
uint64_t gantry_ask_address(const struct gantry_address_range *range,
			    const struct gantry_address_range *taken, uint32_t ntaken,
			    uint64_t bytes);

#endif
