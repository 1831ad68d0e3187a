/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: what a guest shows to adopt a buffer that another session shares.
 *
 * A token names one shared buffer with one set of rights. It dies with the session that owns the
 * buffer. The
 * descriptor belongs to the table and is shared by all tokens of a buffer.
 * Trust: a guest sends tokens; 128 random bits are compared without a short cut.
 * Threads: one.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_TOKEN_H
#define GANTRY_HOST_AGENT_AGENT_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/door.h"

#define GANTRY_TOKENS_PER_TENANT 1024u

struct gantry_token {
	uint8_t bytes[GANTRY_DOOR_TOKEN];
	uint64_t session_id; /* of the owner */
	uint64_t share_id;
	uint64_t buffer_bytes;
	uint32_t tenant_slot;
	uint32_t mode; /* GANTRY_R or GANTRY_RW */
};

struct gantry_tokens {
	struct gantry_token *tokens; /* owned */
	size_t ntokens;
	size_t cap;
};

void gantry_tokens_fini(struct gantry_tokens *table);

/*
 * A new token for what @like describes (its bytes are ignored). -EDQUOT: the tenant has its limit;
 * -ENOMEM; -errno of
 * the random source.
 */
int gantry_tokens_add(struct gantry_tokens *table, const struct gantry_token *like,
		      uint8_t ret_bytes[GANTRY_DOOR_TOKEN]);
/* As known from elsewhere (a journal). */
int gantry_tokens_restore(struct gantry_tokens *table, const struct gantry_token *token);

/* NULL: no such token. Valid until the table changes. */
const struct gantry_token *gantry_tokens_find(const struct gantry_tokens *table,
					      const uint8_t bytes[GANTRY_DOOR_TOKEN]);

/* Those of which @fn says that they open nothing any more. Whether there were any. */
bool gantry_tokens_sweep(struct gantry_tokens *table,
			 bool (*fn)(const struct gantry_token *token, void *arg), void *arg);

/* The owner's session ended. */
void gantry_tokens_drop_session(struct gantry_tokens *table, uint64_t session_id);

#endif
