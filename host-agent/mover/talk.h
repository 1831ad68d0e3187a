/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent and its mover say to each other (one packet each, over a SOCK_SEQPACKET pair), and what two movers
 * say to each other before and after the image (inside TLS, the same fixed struct).
 *
 * Trust: a mover reads what another host sends and is confined: its agent believes nothing but sizes, and checks
 * what has arrived itself. A mover believes its agent.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_TALK_H
#define GANTRY_HOST_AGENT_MOVER_TALK_H

#include <assert.h>
#include <stdint.h>

#include "migration/image.h"

#define GANTRY_MOVER_MAGIC    0x52564f4du /* "MOVR" */
#define GANTRY_MOVER_PROTOCOL 1u
#define GANTRY_MOVER_PORT     16601u
#define GANTRY_MOVER_TEXT     176u

enum gantry_mover_kind {
	/* agent to mover */
	GANTRY_MOVER_START = 1, /* struct gantry_mover_start follows in the packet; descriptors */
	GANTRY_MOVER_ACCEPT =
		2, /* descriptors: where the session is to go; value: bytes of the slab that may have pages */
	GANTRY_MOVER_FROZEN = 3, /* nobody writes the session's memory or ledger any more */
	GANTRY_MOVER_CANCEL = 4,
	GANTRY_MOVER_AGAIN = 5, /* instead of FROZEN: another round first, there is more to send */
	/* mover to agent */
	GANTRY_MOVER_CONNECTED = 10, /* certificates are good; text: the other host */
	GANTRY_MOVER_PROGRESS =
		11, /* round; code: 1: it is over; value: bytes of it, bytes so far, pages so far, ns */
	GANTRY_MOVER_FREEZE = 12,  /* the last round is to follow: hold it still */
	GANTRY_MOVER_SESSION = 13, /* struct gantry_image_session follows in the packet */
	GANTRY_MOVER_ARRIVED = 14, /* the whole image is in place */
	GANTRY_MOVER_FAILED = 15,  /* code, text: why; the mover ends */
	GANTRY_MOVER_READY =
		16, /* of a lazy hand-over: it can be asked for buffers, one at a time */
	/* on the link, and passed on to and from agents */
	GANTRY_MOVER_HELLO = 20,    /* value[0]: protocol; text: the sender's host name */
	GANTRY_MOVER_ACCEPTED = 21, /* go on; to an agent: that was all that was asked */
	GANTRY_MOVER_REFUSED = 22,  /* code, text */
	GANTRY_MOVER_PREPARED = 23,
	GANTRY_MOVER_COMMIT = 24,
	GANTRY_MOVER_OWNED = 25,
	GANTRY_MOVER_UNKNOWN = 26,
	GANTRY_MOVER_ASK = 27,
	GANTRY_MOVER_FORGET = 28,
	GANTRY_MOVER_IMAGE =
		29, /* what follows is an image; code: 1: its session only, which asks */
	/* of a lazy hand-over, see pull.c; value: offset in the slab, bytes */
	GANTRY_MOVER_PULL = 30,
	GANTRY_MOVER_PART = 31,
	GANTRY_MOVER_PULLED = 32,
};

struct gantry_mover_msg {
	uint32_t magic;
	uint32_t kind;
	uint32_t code; /* an exit code of gantryctl */
	uint32_t round;
	uint64_t value[4];
	uint8_t token[16];
	char text[GANTRY_MOVER_TEXT]; /* terminated */
	uint64_t reserved;
};
static_assert(sizeof(struct gantry_mover_msg) == 248, "movers of two builds talk");

/* What the mover does. */
enum gantry_mover_role {
	GANTRY_MOVER_SEND = 1, /* descriptors: segment, slab, ledger, then store where it has one */
	GANTRY_MOVER_RECEIVE = 2, /* descriptor: the connection */
	GANTRY_MOVER_QUERY = 3,	  /* ask after a token */
};

struct gantry_mover_start {
	struct gantry_mover_msg msg;
	uint32_t role;
	uint32_t port;
	uint32_t confine;
	uint32_t uid;
	uint32_t gid;
	uint32_t rounds_max;
	uint64_t bandwidth;   /* bytes a second; 0: as fast as it goes */
	uint64_t segment_off; /* in its descriptor */
	uint64_t pause_ns;    /* the last round should take no longer */
	char host[256];	   /* of the other side: a name or an address; its certificate is for it */
	char own_host[64]; /* ours: our certificate is for it */
	char certificates[192]; /* folder: ca.pem, cert.pem, key.pem */
	struct gantry_image_session session;
};

/* A session that arrives, as the agent is told of it. */
struct gantry_mover_session {
	struct gantry_mover_msg msg;
	struct gantry_image_session session;
};

#endif
