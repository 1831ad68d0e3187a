/* SPDX-License-Identifier: Apache-2.0 */
#include "migration/handover.h"

#include <stddef.h>

#include "base/array.h"

struct move {
	uint8_t from;
	uint8_t event;
	struct gantry_handover_step step;
};

#define RECORD	     GANTRY_HANDOVER_RECORD
#define SEND(what)   GANTRY_HANDOVER_SEND_##what
#define ON(event)    GANTRY_HANDOVER_##event
#define S(state)     GANTRY_SOURCE_##state
#define D(state)     GANTRY_DESTINATION_##state
#define RUN	     GANTRY_HANDOVER_RUN
#define RELEASE_COPY GANTRY_HANDOVER_RELEASE

static const struct move source_moves[] = {
	{ S(OWNER), ON(PREPARED), { S(OFFERED), RECORD | SEND(COMMIT) } },
	{ S(OWNER), ON(CANCEL), { S(KEPT), RUN } },
	/* Nothing was written down: nobody could have been told to run it. */
	{ S(OWNER), ON(CRASH), { S(KEPT), RUN } },
	{ S(OWNER), ON(UNKNOWN), { S(KEPT), RUN } },
	{ S(OFFERED), ON(OWNED), { S(GONE), RECORD | SEND(FORGET) | RELEASE_COPY } },
	{ S(OFFERED), ON(UNKNOWN), { S(KEPT), RECORD | RUN } },
	/* The link may have died with the offer or with its answer. */
	{ S(OFFERED), ON(CANCEL), { S(OFFERED), SEND(ASK) } },
	{ S(OFFERED), ON(CRASH), { S(OFFERED), SEND(ASK) } },
	{ S(GONE), ON(OWNED), { S(GONE), SEND(FORGET) } },
	{ S(GONE), ON(CRASH), { S(GONE), 0 } },
	{ S(KEPT), ON(CRASH), { S(KEPT), RUN } },
};

static const struct move destination_moves[] = {
	{ D(NONE), ON(ARRIVED), { D(PREPARED), 0 } },
	{ D(NONE), ON(COMMIT), { D(NONE), SEND(UNKNOWN) } },
	{ D(NONE), ON(ASK), { D(NONE), SEND(UNKNOWN) } },
	{ D(PREPARED), ON(COMMIT), { D(OWNER), RECORD | SEND(OWNED) | RUN } },
	{ D(PREPARED), ON(ASK), { D(NONE), RELEASE_COPY | SEND(UNKNOWN) } },
	{ D(PREPARED), ON(DISCARD), { D(NONE), RELEASE_COPY } },
	{ D(PREPARED), ON(CRASH), { D(NONE), RELEASE_COPY } },
	{ D(OWNER), ON(COMMIT), { D(OWNER), SEND(OWNED) } },
	{ D(OWNER), ON(ASK), { D(OWNER), SEND(OWNED) } },
	{ D(OWNER), ON(FORGET), { D(SETTLED), RECORD } },
	{ D(OWNER), ON(ENDED), { D(OVER), RECORD | RELEASE_COPY } },
	{ D(OWNER), ON(CRASH), { D(OWNER), RUN } },
	{ D(OVER), ON(COMMIT), { D(OVER), SEND(OWNED) } },
	{ D(OVER), ON(ASK), { D(OVER), SEND(OWNED) } },
	{ D(OVER), ON(FORGET), { D(NONE), RECORD } },
	{ D(OVER), ON(CRASH), { D(OVER), 0 } },
	{ D(SETTLED), ON(ENDED), { D(NONE), RELEASE_COPY } },
	{ D(SETTLED), ON(CRASH), { D(SETTLED), RUN } },
};

static bool find(const struct move *moves, size_t n, uint32_t state,
		 enum gantry_handover_event event, struct gantry_handover_step *ret_step)
{
	for (size_t i = 0; i < n; i++) {
		if (moves[i].from != state || moves[i].event != event)
			continue;
		*ret_step = moves[i].step;
		return true;
	}
	return false;
}

bool gantry_handover_source_step(uint32_t state, enum gantry_handover_event event,
				 struct gantry_handover_step *ret_step)
{
	return find(source_moves, GANTRY_ARRAY_SIZE(source_moves), state, event, ret_step);
}

bool gantry_handover_destination_step(uint32_t state, enum gantry_handover_event event,
				      struct gantry_handover_step *ret_step)
{
	return find(destination_moves, GANTRY_ARRAY_SIZE(destination_moves), state, event,
		    ret_step);
}

const char *gantry_handover_source_name(uint32_t state)
{
	static const char *const names[] = {
		[S(OWNER)] = "owner",
		[S(OFFERED)] = "offered",
		[S(GONE)] = "gone",
		[S(KEPT)] = "kept",
	};

	return state < GANTRY_ARRAY_SIZE(names) ? names[state] : "unknown";
}
