/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: fixed structs that a guest and the agent exchange before and beside the shared memory.
 *
 * Over a Unix socket (SOCK_SEQPACKET) each struct is one message, descriptors ride with it; over a stream
 * the header's len_bytes frames it. Every message starts with struct gantry_door_header; reserved fields
 * are zero; a message of another length than its kind's, or of an unknown kind, ends the connection.
 * The guest speaks first (HELLO). The connection is the session's life: its end ends the session.
 *
 * Trust: each side treats the other's messages as input. Identity is the door and the kernel's peer
 * credentials, never a field.
 */
#ifndef GANTRY_PROTO_DOOR_H
#define GANTRY_PROTO_DOOR_H

#include <stddef.h>

#include "proto/wire.h"

#define GANTRY_DOOR_MAGIC   0x52444e47u /* "GNDR" */
#define GANTRY_DOOR_TEXT    160u
#define GANTRY_DOOR_TOKEN   16u
#define GANTRY_DOOR_MAX_FDS 2u

enum gantry_door_kind {
	GANTRY_DOOR_HELLO = 1,	 /* guest: struct gantry_door_hello */
	GANTRY_DOOR_WELCOME = 2, /* agent: struct gantry_door_welcome, descriptors: segment, bell */
	GANTRY_DOOR_REFUSE = 3,	 /* agent: struct gantry_door_refuse; the agent closes after it */
	GANTRY_DOOR_SHARE = 4,	 /* guest: struct gantry_door_share */
	GANTRY_DOOR_SHARED = 5,	 /* agent: struct gantry_door_shared */
	GANTRY_DOOR_ADOPT = 6,	 /* guest: struct gantry_door_adopt */
	GANTRY_DOOR_ADOPTED = 7, /* agent: struct gantry_door_adopted */
	GANTRY_DOOR_NOTICE =
		8, /* agent, any time: struct gantry_door_refuse as news (detached, why) */
	GANTRY_DOOR_KEY = 9,	/* guest: struct gantry_door_key; only where GANTRY_PROP_KEYS is */
	GANTRY_DOOR_KEYED = 10, /* agent: struct gantry_door_keyed */
	GANTRY_DOOR_MISSING =
		11, /* guest: struct gantry_door_missing; only where GANTRY_PROP_NOTES is */
	GANTRY_DOOR_NOTED = 12, /* agent: struct gantry_door_noted */
};

struct gantry_door_header {
	uint32_t magic;
	uint16_t kind;
	uint16_t reserved;
	uint32_t len_bytes; /* of the whole message, this header included */
	uint32_t tag;	    /* of a request; its answer repeats it. HELLO and WELCOME: 0 */
};
static_assert(sizeof(struct gantry_door_header) == 16, "gantry_door_header is wire format");

/* What HELLO wants other than a session of its own. An agent that knows none of them refuses it as PROTOCOL. */
#define GANTRY_HELLO_ADOPT \
	1u /* the session that waits for the key in nonce; sizes are passed over */
#define GANTRY_HELLO_WAIT      2u /* with ADOPT: until one that does has come from another host */
#define GANTRY_HELLO_FLAGS_ALL 3u

struct gantry_door_hello {
	struct gantry_door_header h;
	uint32_t version_min; /* protocol versions this guest library speaks */
	uint32_t version_max;
	uint64_t
		heap_bytes; /* wanted; 0: the tenant's default. The agent may give less, never more */
	uint64_t virtual_bytes; /* device memory wanted; 0: all that the tenant may have */
	uint64_t mem_bytes;	/* resident device memory wanted; 0: likewise */
	uint32_t nqueues;	/* wanted, control queue included; 0: default */
	uint32_t nslots;	/* wanted; 0: default */
	uint32_t flags;		/* GANTRY_HELLO_*; unknown bits are refused */
	uint32_t pid;		/* as the guest sees itself; for the administrator's eyes only */
	uint8_t nonce
		[16]; /* zero for a new session; reconnecting transports name theirs; ADOPT: the key */
	char name[32]; /* program name, for the administrator's eyes only; NUL-terminated */
};
static_assert(sizeof(struct gantry_door_hello) == 112, "gantry_door_hello is wire format");

struct gantry_door_welcome {
	struct gantry_door_header h;
	uint32_t version; /* chosen: the highest both speak */
	uint32_t props;	  /* GANTRY_PROP_* */
	uint64_t session_id;
	uint64_t segment_bytes;
	uint64_t
		address; /* where the worker has the segment mapped; 0: nowhere that a guest could share */
	uint32_t nqueues;
	uint32_t nslots;
	uint8_t nonce[16];
};
static_assert(sizeof(struct gantry_door_welcome) == 72, "gantry_door_welcome is wire format");

struct gantry_door_refuse {
	struct gantry_door_header h;
	int32_t status;
	uint32_t version_min; /* what the agent speaks */
	uint32_t version_max;
	uint32_t reserved;
	char text[GANTRY_DOOR_TEXT]; /* one sentence, NUL-terminated */
};
static_assert(sizeof(struct gantry_door_refuse) == 192, "gantry_door_refuse is wire format");

/* Makes a token that lets the bearer adopt the buffer with these rights. */
struct gantry_door_share {
	struct gantry_door_header h;
	uint64_t buffer;
	uint32_t mode; /* GANTRY_R or GANTRY_RW */
	uint32_t reserved;
};
static_assert(sizeof(struct gantry_door_share) == 32, "gantry_door_share is wire format");

struct gantry_door_shared {
	struct gantry_door_header h;
	int32_t status;
	uint32_t reserved;
	uint8_t token[GANTRY_DOOR_TOKEN];
};
static_assert(sizeof(struct gantry_door_shared) == 40, "gantry_door_shared is wire format");

struct gantry_door_adopt {
	struct gantry_door_header h;
	uint8_t token[GANTRY_DOOR_TOKEN];
};
static_assert(sizeof(struct gantry_door_adopt) == 32, "gantry_door_adopt is wire format");

struct gantry_door_adopted {
	struct gantry_door_header h;
	int32_t status;
	uint32_t mode;
	uint64_t buffer; /* the adopter's own handle */
	uint64_t bytes;
};
static_assert(sizeof(struct gantry_door_adopted) == 40, "gantry_door_adopted is wire format");

/* Makes the session's key: whoever has it may adopt the session on the host that it has gone to. The latest counts. */
struct gantry_door_key {
	struct gantry_door_header h;
	uint64_t reserved;
};
static_assert(sizeof(struct gantry_door_key) == 24, "gantry_door_key is wire format");

struct gantry_door_keyed {
	struct gantry_door_header h;
	int32_t status;
	uint32_t reserved;
	uint8_t key[GANTRY_DOOR_TOKEN];
};
static_assert(sizeof(struct gantry_door_keyed) == 40, "gantry_door_keyed is wire format");

/* A function of the interface that a drop-in library stands for was called and is not there: for the administrator's eyes. */
#define GANTRY_DOOR_NAME 64u
struct gantry_door_missing {
	struct gantry_door_header h;
	uint64_t calls;		     /* so far in this session, of this name */
	char name[GANTRY_DOOR_NAME]; /* printable ASCII, NUL-terminated, not empty */
};
static_assert(sizeof(struct gantry_door_missing) == 88, "gantry_door_missing is wire format");

struct gantry_door_noted {
	struct gantry_door_header h;
	int32_t status; /* LIMIT: the session has as many names as are kept; the calls are counted */
	uint32_t reserved;
};
static_assert(sizeof(struct gantry_door_noted) == 24, "gantry_door_noted is wire format");

/* Bytes of a message of @kind, 0 for an unknown kind. */
size_t gantry_door_len(uint16_t kind);

/* Fills the header of a message of @kind. The rest of the struct is the caller's. */
void gantry_door_header_init(struct gantry_door_header *h, uint16_t kind, uint32_t tag);

/*
 * Checks a received message of @len bytes at an 8-byte aligned address: magic, kind, lengths, reserved
 * fields, terminated texts, a refusal's status being one. 0 and the kind, or -EPROTO. Whether that kind may come
 * from this side, and now, is the caller's question.
 */
int gantry_door_check(const void *msg, size_t len, uint16_t *ret_kind);

/* The version both speak, or 0. */
uint32_t gantry_version_choose(uint32_t min_a, uint32_t max_a, uint32_t min_b, uint32_t max_b);

#endif
