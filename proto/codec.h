/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoder and checked decoder of ring operations, generated from ops.def.
 *
 * Trust: the decoder takes a private copy of a descriptor (gantry_ring_peek()) and never sees shared
 * memory; what it returned may be used without further checks of single fields. Handles are typed but not
 * resolved, spans not yet inside their objects: that is the intake's part, which knows the objects.
 */
#ifndef GANTRY_PROTO_CODEC_H
#define GANTRY_PROTO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "proto/wire.h"

enum gantry_op_flags {
	GANTRY_OPF_CTL = 1,  /* control queue only */
	GANTRY_OPF_TASK = 2, /* other queues only */
	GANTRY_OPF_VAR = 4,  /* may have a variable part */
};

struct gantry_op_field {
	const char *name;
	const char *rule; /* as written in ops.def */
	uint32_t len_bytes;
};

/* One row of the table, for tools, traces and the fuzz dictionary. */
struct gantry_op_info {
	uint16_t id;
	uint16_t since; /* first protocol version that has it */
	uint32_t flags;
	const char *name;
	uint32_t imm_bytes;
	uint32_t nfields;
	const struct gantry_op_field *fields;
};

extern const struct gantry_op_info gantry_op_table[];
extern const size_t gantry_op_count;

/* NULL for an id that no version has. */
const struct gantry_op_info *gantry_op_info(uint16_t id);

union gantry_op_any {
#define GANTRY_OP_BEGIN(id, name, since, flags) struct gantry_op_##name name;
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END
};

/*
 * Checks a descriptor that was read from the control queue (@control) or another one, under protocol
 * @version: known operation for that queue and version, known flags, every field by its rule, nothing
 * after the fields, a variable part only where allowed, within limits, aligned, and of exactly the
 * length that the fields announce.
 * GANTRY_OK and *ret_args, or the status to answer with (GANTRY_E_ARG, _HANDLE, _UNSUPPORTED). None of
 * them is fatal to the session: a descriptor is one call.
 */
int gantry_desc_decode(const struct gantry_desc *desc, bool control, uint32_t version,
		       union gantry_op_any *ret_args);

/*
 * Bytes of the variable part that fields which passed their rules announce; 0 where they announce none. image_load by
 * name is the exception: its variable part is a name of 1 to GANTRY_MAX_NAME bytes.
 */
uint32_t gantry_op_var_bytes(uint16_t op, const union gantry_op_any *args);

/* gantry_desc_put_NAME(desc, args): a descriptor without a variable part, ready to publish. */
#define GANTRY_OP_BEGIN(id, name, since, opflags)                                           \
	static inline void gantry_desc_put_##name(struct gantry_desc *desc,                 \
						  const struct gantry_op_##name *args)      \
	{                                                                                   \
		desc->op = id;                                                              \
		desc->flags = 0;                                                            \
		desc->len_bytes = 0;                                                        \
		desc->off_bytes = 0;                                                        \
		/* Not by memcpy(): then each field is stored once, straight into @desc. */ \
		*(struct gantry_op_##name *)desc->imm = *args;                              \
		memset(desc->imm + sizeof(*args), 0, sizeof(desc->imm) - sizeof(*args));    \
	}
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END

/* Adds the variable part: inline in the slot's block, or at @heap_off. */
static inline void gantry_desc_set_inline(struct gantry_desc *desc, uint32_t len_bytes)
{
	desc->flags |= GANTRY_DESC_INLINE;
	desc->len_bytes = len_bytes;
	desc->off_bytes = 0;
}

static inline void gantry_desc_set_heap(struct gantry_desc *desc, uint64_t heap_off,
					uint32_t len_bytes)
{
	desc->len_bytes = len_bytes;
	desc->off_bytes = heap_off;
}

/* Checks one access of a launch: mode, reserved field, argument slot inside @args_bytes and aligned. */
static inline int gantry_wire_access_check(const struct gantry_wire_access *access,
					   uint32_t args_bytes)
{
	if (GANTRY_HANDLE_TYPE(access->buffer) != GANTRY_HANDLE_BUFFER)
		return GANTRY_E_HANDLE;
	if (access->mode < GANTRY_R || access->mode > GANTRY_C || access->reserved != 0)
		return GANTRY_E_ARG;
	if (access->arg_off == GANTRY_ARG_NONE)
		return GANTRY_OK;
	if (access->arg_off % 8 || access->arg_off + 8u > args_bytes)
		return GANTRY_E_ARG;
	return GANTRY_OK;
}

#endif
