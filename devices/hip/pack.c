/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/hip/pack.h"

/* Things that may be open inside each other. */
#define MOST_DEPTH 32u

static bool take(struct gantry_pack *pack, uint32_t nbytes, uint64_t *ret_value)
{
	uint64_t value = 0;

	if ((size_t)(pack->end - pack->at) < nbytes)
		return false;
	for (uint32_t i = 0; i < nbytes; i++)
		value = value << 8 | *pack->at++;
	*ret_value = value;
	return true;
}

/* The count of a map, array or text: in the low bits of the first byte, or in the bytes after it. */
static bool take_count(struct gantry_pack *pack, uint8_t fixed, uint8_t mask, uint8_t first,
		       uint32_t first_bytes, uint32_t nforms, uint32_t *ret_count)
{
	struct gantry_pack at = *pack;
	uint64_t tag = 0, count = 0;

	if (!take(&at, 1, &tag))
		return false;
	if ((tag & (uint8_t)~mask) == fixed)
		count = tag & mask;
	else if (tag < first || tag >= first + nforms ||
		 !take(&at, first_bytes << (tag - first), &count))
		return false;
	*pack = at;
	*ret_count = (uint32_t)count;
	return true;
}

bool gantry_pack_map(struct gantry_pack *pack, uint32_t *ret_count)
{
	return take_count(pack, 0x80, 0x0f, 0xde, 2, 2, ret_count);
}

bool gantry_pack_array(struct gantry_pack *pack, uint32_t *ret_count)
{
	return take_count(pack, 0x90, 0x0f, 0xdc, 2, 2, ret_count);
}

bool gantry_pack_text(struct gantry_pack *pack, const char **ret_text, uint32_t *ret_len)
{
	struct gantry_pack at = *pack;
	uint32_t len = 0;

	if (!take_count(&at, 0xa0, 0x1f, 0xd9, 1, 3, &len) || (size_t)(at.end - at.at) < len)
		return false;
	*ret_text = (const char *)at.at;
	*ret_len = len;
	at.at += len;
	*pack = at;
	return true;
}

bool gantry_pack_uint(struct gantry_pack *pack, uint64_t *ret_value)
{
	struct gantry_pack at = *pack;
	uint64_t tag = 0, value = 0;

	if (!take(&at, 1, &tag))
		return false;
	if (tag < 0x80)
		value = tag;
	else if (tag < 0xcc || tag > 0xcf || !take(&at, 1u << (tag - 0xcc), &value))
		return false;
	*pack = at;
	*ret_value = value;
	return true;
}

/* Bytes of a thing that is neither map, array nor text; UINT32_MAX: no such thing. */
static uint32_t plain_bytes(uint8_t tag)
{
	if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3)
		return 0;
	if (tag == 0xca)
		return 4;
	if (tag == 0xcb)
		return 8;
	if (tag >= 0xcc && tag <= 0xcf)
		return 1u << (tag - 0xcc);
	if (tag >= 0xd0 && tag <= 0xd3)
		return 1u << (tag - 0xd0);
	return UINT32_MAX; /* binary and extensions too: metadata has none */
}

static bool skip_one(struct gantry_pack *pack, uint64_t *ret_inside)
{
	const char *text;
	uint32_t count = 0;
	uint64_t tag = 0;
	uint32_t n;

	*ret_inside = 0;
	if (gantry_pack_map(pack, &count)) {
		*ret_inside = 2 * (uint64_t)count;
		return true;
	}
	if (gantry_pack_array(pack, &count)) {
		*ret_inside = count;
		return true;
	}
	if (gantry_pack_text(pack, &text, &count))
		return true;
	if (!take(pack, 1, &tag))
		return false;
	n = plain_bytes((uint8_t)tag);
	if (n == UINT32_MAX || (size_t)(pack->end - pack->at) < n)
		return false;
	pack->at += n;
	return true;
}

/* Each thing takes a byte at least, so what is left bounds the loop. */
bool gantry_pack_skip(struct gantry_pack *pack)
{
	uint64_t left[MOST_DEPTH] = { 1 };
	uint32_t depth = 0;

	for (;;) {
		uint64_t inside;

		while (left[depth] == 0) {
			if (depth == 0)
				return true;
			depth--;
		}
		left[depth]--;
		if (!skip_one(pack, &inside))
			return false;
		if (inside == 0)
			continue;
		if (depth + 1 == MOST_DEPTH)
			return false;
		left[++depth] = inside;
	}
}
