/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/door.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

size_t gantry_door_len(uint16_t kind)
{
	switch (kind) {
	case GANTRY_DOOR_HELLO:
		return sizeof(struct gantry_door_hello);
	case GANTRY_DOOR_WELCOME:
		return sizeof(struct gantry_door_welcome);
	case GANTRY_DOOR_REFUSE:
	case GANTRY_DOOR_NOTICE:
		return sizeof(struct gantry_door_refuse);
	case GANTRY_DOOR_SHARE:
		return sizeof(struct gantry_door_share);
	case GANTRY_DOOR_SHARED:
		return sizeof(struct gantry_door_shared);
	case GANTRY_DOOR_ADOPT:
		return sizeof(struct gantry_door_adopt);
	case GANTRY_DOOR_ADOPTED:
		return sizeof(struct gantry_door_adopted);
	case GANTRY_DOOR_KEY:
		return sizeof(struct gantry_door_key);
	case GANTRY_DOOR_KEYED:
		return sizeof(struct gantry_door_keyed);
	case GANTRY_DOOR_MISSING:
		return sizeof(struct gantry_door_missing);
	case GANTRY_DOOR_NOTED:
		return sizeof(struct gantry_door_noted);
	default:
		return 0;
	}
}

void gantry_door_header_init(struct gantry_door_header *h, uint16_t kind, uint32_t tag)
{
	h->magic = GANTRY_DOOR_MAGIC;
	h->kind = kind;
	h->reserved = 0;
	h->len_bytes = (uint32_t)gantry_door_len(kind);
	h->tag = tag;
}

static bool is_text(const char *text, size_t cap)
{
	return memchr(text, '\0', cap) != NULL;
}

/* A terminal shows it as it is. */
static bool is_printable(const char *text, size_t cap)
{
	size_t n = strnlen(text, cap);

	for (size_t i = 0; i < n; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return n > 0 && n < cap;
}

/* Only ADOPT has something to wait for, and it has a key. */
static bool flags_ok(const struct gantry_door_hello *hello)
{
	static const uint8_t none[sizeof(hello->nonce)];

	if (hello->flags & ~GANTRY_HELLO_FLAGS_ALL)
		return false;
	if (hello->flags & GANTRY_HELLO_ADOPT)
		return memcmp(hello->nonce, none, sizeof(none)) != 0;
	return hello->flags == 0;
}

static bool body_ok(uint16_t kind, const void *msg)
{
	const struct gantry_door_hello *hello = msg;
	const struct gantry_door_refuse *refuse = msg;
	const struct gantry_door_share *share = msg;
	const struct gantry_door_shared *shared = msg;
	const struct gantry_door_key *key = msg;
	const struct gantry_door_keyed *keyed = msg;
	const struct gantry_door_missing *missing = msg;
	const struct gantry_door_noted *noted = msg;

	switch (kind) {
	case GANTRY_DOOR_HELLO:
		return hello->version_min <= hello->version_max && flags_ok(hello) &&
		       is_text(hello->name, sizeof(hello->name));
	case GANTRY_DOOR_REFUSE:
	case GANTRY_DOOR_NOTICE:
		return refuse->status < 0 && refuse->reserved == 0 &&
		       is_text(refuse->text, sizeof(refuse->text));
	case GANTRY_DOOR_SHARE:
		return share->reserved == 0 &&
		       (share->mode == GANTRY_R || share->mode == GANTRY_RW);
	case GANTRY_DOOR_SHARED:
		return shared->reserved == 0;
	case GANTRY_DOOR_KEY:
		return key->reserved == 0;
	case GANTRY_DOOR_KEYED:
		return keyed->reserved == 0;
	case GANTRY_DOOR_MISSING:
		return is_printable(missing->name, sizeof(missing->name));
	case GANTRY_DOOR_NOTED:
		return noted->reserved == 0;
	default:
		return true;
	}
}

int gantry_door_check(const void *msg, size_t len, uint16_t *ret_kind)
{
	struct gantry_door_header h;

	if (len < sizeof(h))
		return -EPROTO;
	memcpy(&h, msg, sizeof(h));
	if (h.magic != GANTRY_DOOR_MAGIC || h.reserved != 0 || h.len_bytes != len)
		return -EPROTO;
	if (gantry_door_len(h.kind) != len || !body_ok(h.kind, msg))
		return -EPROTO;

	*ret_kind = h.kind;
	return 0;
}

uint32_t gantry_version_choose(uint32_t min_a, uint32_t max_a, uint32_t min_b, uint32_t max_b)
{
	uint32_t low = min_a > min_b ? min_a : min_b;
	uint32_t high = max_a < max_b ? max_a : max_b;

	return low <= high ? high : 0;
}
