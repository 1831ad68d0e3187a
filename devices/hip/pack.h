/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of MessagePack, as far as metadata of code objects needs it.
 *
 * Trust: the bytes are a guest's. A reader never goes past its end; after the first thing that is not well-formed, every
 *   further question fails. Threads: a reader belongs to one.
 */
#ifndef GANTRY_DEVICES_HIP_PACK_H
#define GANTRY_DEVICES_HIP_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gantry_pack {
	const uint8_t *at;
	const uint8_t *end;
};

/* All: false with *@ret untouched if the next thing is not one. Texts are not terminated. */
bool gantry_pack_map(struct gantry_pack *pack, uint32_t *ret_count);
bool gantry_pack_array(struct gantry_pack *pack, uint32_t *ret_count);
bool gantry_pack_uint(struct gantry_pack *pack, uint64_t *ret_value);
bool gantry_pack_text(struct gantry_pack *pack, const char **ret_text, uint32_t *ret_len);
/* Whatever comes next, with what is inside it. */
bool gantry_pack_skip(struct gantry_pack *pack);

#endif
