/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pack.h"

#include <stdlib.h>
#include <string.h>

#define FIRST 512u

static size_t padded(size_t len)
{
	return (len + GANTRY_PACK_ALIGN - 1) & ~(size_t)(GANTRY_PACK_ALIGN - 1);
}

void gantry_pack_init(struct gantry_pack *pack, size_t max)
{
	*pack = (struct gantry_pack){ .max = max };
}

void gantry_pack_init_in(struct gantry_pack *pack, void *room, size_t cap, size_t max)
{
	*pack = (struct gantry_pack){ .bytes = room, .cap = cap, .max = max, .is_lent = true };
}

void gantry_pack_fini(struct gantry_pack *pack)
{
	if (!pack->is_lent)
		free(pack->bytes);
	pack->bytes = NULL;
}

static bool grow(struct gantry_pack *pack, size_t wanted)
{
	size_t cap = pack->cap > FIRST ? pack->cap : FIRST;
	uint8_t *bytes;

	while (cap < wanted)
		cap *= 2;
	bytes = realloc(pack->is_lent ? NULL : pack->bytes, cap);
	if (!bytes)
		return false;
	if (pack->is_lent)
		memcpy(bytes, pack->bytes, pack->len);
	pack->is_lent = false;
	pack->bytes = bytes;
	pack->cap = cap;
	return true;
}

/* Room for @len bytes, of which the padding is zero; NULL after a failure. */
static uint8_t *take_room(struct gantry_pack *pack, size_t len)
{
	size_t wants = padded(len);
	uint8_t *room;

	/* The first comparison makes sure that neither padding nor the sum wraps. */
	if (pack->failed || len > pack->max || wants > pack->max - pack->len ||
	    ((pack->len + wants > pack->cap || !pack->bytes) && !grow(pack, pack->len + wants))) {
		pack->failed = true;
		return NULL;
	}
	room = pack->bytes + pack->len;
	if (wants != len)
		memset(room + len, 0, wants - len);
	pack->len += wants;
	return room;
}

void *gantry_pack_room(struct gantry_pack *pack, size_t len)
{
	uint8_t *room = take_room(pack, len);

	if (room)
		memset(room, 0, len);
	return room;
}

void gantry_pack_bytes(struct gantry_pack *pack, const void *src, size_t len)
{
	uint8_t *room = take_room(pack, len);

	if (room && len > 0)
		memcpy(room, src, len);
}

void gantry_pack_u64(struct gantry_pack *pack, uint64_t value)
{
	uint8_t *room = take_room(pack, sizeof(value));

	if (room)
		memcpy(room, &value, sizeof(value));
}

const void *gantry_unpack_bytes(struct gantry_unpack *unpack, size_t len)
{
	const uint8_t *at = unpack->bytes + unpack->pos;

	if (unpack->failed || len > unpack->len - unpack->pos ||
	    padded(len) > unpack->len - unpack->pos) {
		unpack->failed = true;
		return NULL;
	}
	unpack->pos += padded(len);
	return at;
}

void gantry_unpack_into(struct gantry_unpack *unpack, void *dst, size_t len)
{
	const void *at = gantry_unpack_bytes(unpack, len);

	if (at)
		memcpy(dst, at, len);
	else
		memset(dst, 0, len);
}

uint64_t gantry_unpack_u64(struct gantry_unpack *unpack)
{
	uint64_t value;

	gantry_unpack_into(unpack, &value, sizeof(value));
	return value;
}
