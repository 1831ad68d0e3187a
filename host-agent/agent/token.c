/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/token.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void gantry_tokens_fini(struct gantry_tokens *table)
{
	free(table->tokens);
	*table = (struct gantry_tokens){ 0 };
}

static size_t count_of_tenant(const struct gantry_tokens *table, uint32_t tenant_slot)
{
	size_t n = 0;

	for (size_t i = 0; i < table->ntokens; i++)
		n += table->tokens[i].tenant_slot == tenant_slot;
	return n;
}

int gantry_tokens_restore(struct gantry_tokens *table, const struct gantry_token *token)
{
	if (count_of_tenant(table, token->tenant_slot) >= GANTRY_TOKENS_PER_TENANT)
		return -EDQUOT;
	if (table->ntokens == table->cap) {
		size_t cap = table->cap ? table->cap * 2 : 16;
		struct gantry_token *tokens = realloc(table->tokens, cap * sizeof(*tokens));

		if (!tokens)
			return -ENOMEM;
		table->tokens = tokens;
		table->cap = cap;
	}
	table->tokens[table->ntokens++] = *token;
	return 0;
}

int gantry_tokens_add(struct gantry_tokens *table, const struct gantry_token *like,
		      uint8_t ret_bytes[GANTRY_DOOR_TOKEN])
{
	struct gantry_token token = *like;
	int r = gantry_random_bytes(token.bytes, sizeof(token.bytes));

	if (r == 0)
		r = gantry_tokens_restore(table, &token);
	if (r == 0)
		memcpy(ret_bytes, token.bytes, sizeof(token.bytes));
	return r;
}

/* Takes the same time wherever the first difference is. */
static bool same_bytes(const uint8_t *a, const uint8_t *b)
{
	uint8_t difference = 0;

	for (size_t i = 0; i < GANTRY_DOOR_TOKEN; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

const struct gantry_token *gantry_tokens_find(const struct gantry_tokens *table,
					      const uint8_t bytes[GANTRY_DOOR_TOKEN])
{
	for (size_t i = 0; i < table->ntokens; i++)
		if (same_bytes(table->tokens[i].bytes, bytes))
			return &table->tokens[i];
	return NULL;
}

void gantry_tokens_drop_session(struct gantry_tokens *table, uint64_t session_id)
{
	size_t i = 0;

	while (i < table->ntokens) {
		if (table->tokens[i].session_id == session_id)
			table->tokens[i] = table->tokens[--table->ntokens];
		else
			i++;
	}
}

bool gantry_tokens_sweep(struct gantry_tokens *table,
			 bool (*fn)(const struct gantry_token *token, void *arg), void *arg)
{
	size_t before = table->ntokens, i = 0;

	while (i < table->ntokens) {
		if (fn(&table->tokens[i], arg))
			table->tokens[i] = table->tokens[--table->ntokens];
		else
			i++;
	}
	return table->ntokens < before;
}
