/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: version, position of the ring's tail against its head, heap length; then slots (descriptor and inline block)
 * in turn: control or task queue, 64 bytes, up to 192 bytes. What the host does before it knows any
 * object: take, copy, decode, find the variable part, check the accesses. tests/fuzz/intake.c goes on from there.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/codec.h"
#include "proto/ring.h"
#include "tests/fuzz/fuzz.h"

#define NSLOTS	   GANTRY_MIN_SLOTS
#define HEAP_BYTES 16384u

static uint8_t segment[1 << 17] __attribute__((aligned(4096)));
static uint8_t heap[HEAP_BYTES] __attribute__((aligned(4096)));

/* The variable part as the intake gets it: copied, from where the descriptor says. */
static bool get_var(const struct gantry_desc *desc, const struct gantry_inline *inl, uint8_t *dst)
{
	const struct gantry_region region = { heap, sizeof(heap) };
	void *src;

	if (desc->flags & GANTRY_DESC_INLINE) {
		memcpy(dst, inl->bytes, desc->len_bytes);
		return true;
	}
	if (gantry_region_span(&region, desc->off_bytes, desc->len_bytes, 8, &src) < 0)
		return false;
	gantry_region_copy_out(dst, src, desc->len_bytes);
	return true;
}

static void check_accesses(const struct gantry_op_launch *launch, const uint8_t *var)
{
	for (uint32_t i = 0; i < launch->naccess; i++) {
		struct gantry_wire_access access;

		memcpy(&access, var + i * sizeof(access), sizeof(access));
		if (gantry_wire_access_check(&access, launch->args_bytes) != GANTRY_OK)
			continue;
		assert(access.mode >= GANTRY_R && access.mode <= GANTRY_C);
		if (access.arg_off != GANTRY_ARG_NONE)
			assert(access.arg_off + 8u <= launch->args_bytes);
	}
}

static void decode(const struct gantry_desc *desc, const struct gantry_inline *inl, bool control,
		   uint32_t version)
{
	static uint8_t var[GANTRY_MAX_VAR_BYTES];
	union gantry_op_any args;
	int status = gantry_desc_decode(desc, control, version, &args);

	assert(status == GANTRY_OK || status == GANTRY_E_ARG || status == GANTRY_E_HANDLE ||
	       status == GANTRY_E_UNSUPPORTED);
	if (status != GANTRY_OK)
		return;
	assert(desc->len_bytes <= sizeof(var));
	assert(!(desc->flags & GANTRY_DESC_INLINE) || desc->len_bytes <= sizeof(inl->bytes));
	if (!get_var(desc, inl, var))
		return;
	if (desc->op == GANTRY_OP_launch) {
		assert(desc->len_bytes == args.launch.naccess * sizeof(struct gantry_wire_access) +
						  args.launch.args_bytes);
		check_accesses(&args.launch, var);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const struct gantry_region region = { segment, sizeof(segment) };
	struct fuzz_input in = { data, len };
	uint32_t version = fuzz_u8(&in);
	uint64_t ahead = fuzz_u8(&in);
	struct gantry_ring_consumer c;
	struct gantry_ring_map map;

	if (gantry_ring_map_init(&map, &region, 0, 0, NSLOTS) < 0)
		abort();
	fuzz_take(&in, heap, fuzz_u8(&in));
	gantry_ring_consumer_init(&c, &map, 40, 40);
	map.area->tail = 40 + ahead; /* within the ring or not */
	for (int64_t left = gantry_ring_ready(&c); left > 0; left--) {
		bool control = fuzz_u8(&in) & 1;
		uint32_t slot = (uint32_t)c.head & map.mask;
		struct gantry_desc desc;
		struct gantry_inline inl;

		assert(left <= NSLOTS);
		fuzz_take(&in, &map.desc[slot], sizeof(desc));
		fuzz_take(&in, &map.inl[slot], map.desc[slot].flags & GANTRY_DESC_INLINE ? 192 : 0);
		gantry_ring_peek(&c, &desc, &inl);
		decode(&desc, &inl, control, version);
		gantry_ring_advance(&c);
	}
	return 0;
}
