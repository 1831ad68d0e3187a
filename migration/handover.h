/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs a session that goes from one host to another: at any time at most one of both, whichever process, machine
 * or link dies when, and in the end exactly one that still lives.
 *
 * The source decides to offer, the destination decides to own. Each decision is written down before anything follows
 * from it. From its offer on the source does not run the session until the destination has said that it does not have
 * it; once it has said so, the destination never takes it under this token. A token names one hand-over for good.
 *
 *   source:       OWNER --prepared--> OFFERED --owned--> GONE
 *                   |cancel, lost        |unknown
 *                   v                    v
 *                  KEPT <----------------+
 *
 *   destination:  NONE --arrived--> PREPARED --commit--> OWNER --ended--> OVER --forget--> NONE
 *                                      |discard, ask        |forget
 *                                      v                    v
 *                                    NONE                 SETTLED
 *
 * Invariants, by state of the source: OWNER, KEPT: the source runs the session, the destination does not and never
 * will under this token (KEPT). OFFERED: the source does not run it. GONE: the destination has or had it.
 *
 * Pure: tables. Messages may be lost, late, twice or out of order. Threads: any.
 */
#ifndef GANTRY_MIGRATION_HANDOVER_H
#define GANTRY_MIGRATION_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

enum gantry_handover_source {
	GANTRY_SOURCE_OWNER = 0, /* the session runs here, or is held still to be copied */
	GANTRY_SOURCE_OFFERED =
		1, /* written down. Whether it is there is asked until there is an answer */
	GANTRY_SOURCE_GONE = 2, /* written down */
	GANTRY_SOURCE_KEPT = 3, /* it stays here; this hand-over is over */
	GANTRY_SOURCE_NSTATES,
};

enum gantry_handover_destination {
	GANTRY_DESTINATION_NONE = 0,
	GANTRY_DESTINATION_PREPARED = 1, /* all is here, nothing runs; may be dropped at any time */
	GANTRY_DESTINATION_OWNER = 2,	 /* written down; it runs here */
	GANTRY_DESTINATION_OVER =
		3, /* written down; it ran here and ended, the source may ask yet */
	GANTRY_DESTINATION_SETTLED = 4, /* it runs here, and the source knows */
	GANTRY_DESTINATION_NSTATES,
};

enum gantry_handover_event {
	/* to the source */
	GANTRY_HANDOVER_PREPARED, /* message: all is there */
	GANTRY_HANDOVER_OWNED,	  /* message: it has it, or had it */
	GANTRY_HANDOVER_UNKNOWN,  /* message: it does not have it, and will not */
	GANTRY_HANDOVER_CANCEL, /* somebody changed their mind, or the link died, or it was refused */
	/* to the destination */
	GANTRY_HANDOVER_ARRIVED, /* the whole image, checked */
	GANTRY_HANDOVER_COMMIT,	 /* message */
	GANTRY_HANDOVER_ASK,	 /* message: do you have it? */
	GANTRY_HANDOVER_FORGET,	 /* message: the source knows */
	GANTRY_HANDOVER_DISCARD, /* the link died, or nobody committed in time */
	GANTRY_HANDOVER_ENDED,	 /* the session is over */
	/* to both: what was written down is all that is left */
	GANTRY_HANDOVER_CRASH,
	GANTRY_HANDOVER_NEVENTS,
};

/* What follows, in this order. */
#define GANTRY_HANDOVER_RECORD	     1u /* write the new state down; nothing further before that */
#define GANTRY_HANDOVER_SEND_COMMIT  2u
#define GANTRY_HANDOVER_SEND_OWNED   4u
#define GANTRY_HANDOVER_SEND_UNKNOWN 8u
#define GANTRY_HANDOVER_SEND_FORGET  16u
#define GANTRY_HANDOVER_RUN	     32u /* destination: adopt it; source: go on with it */
#define GANTRY_HANDOVER_RELEASE	     64u /* the bytes here are nobody's any more */
#define GANTRY_HANDOVER_SEND_ASK     128u

struct gantry_handover_step {
	uint8_t to;
	uint8_t actions;
};

/* false: the event means nothing in this state, and is passed over. */
bool gantry_handover_source_step(uint32_t state, enum gantry_handover_event event,
				 struct gantry_handover_step *ret_step);
bool gantry_handover_destination_step(uint32_t state, enum gantry_handover_event event,
				      struct gantry_handover_step *ret_step);

/* For people: "offered". */
const char *gantry_handover_source_name(uint32_t state);

#endif
