/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include <string.h>

/* ---- the table ---- */

#define GANTRY_OP_BEGIN(id, opname, since, opflags) \
	static const struct gantry_op_field opname##_fields[] = {
#define GANTRY_FIELD(type, name, rule) { #name, #rule, sizeof(type) },
#define GANTRY_OP_END(name) \
	}                   \
	;
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END

const struct gantry_op_info gantry_op_table[] = {
#define GANTRY_OP_BEGIN(id, opname, since, opflags)             \
	{ id,                                                   \
	  since,                                                \
	  opflags,                                              \
	  #opname,                                              \
	  sizeof(struct gantry_op_##opname),                    \
	  sizeof(opname##_fields) / sizeof(opname##_fields[0]), \
	  opname##_fields },
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END
};
const size_t gantry_op_count = sizeof(gantry_op_table) / sizeof(gantry_op_table[0]);

static_assert(sizeof(union gantry_op_any) <= sizeof(((struct gantry_desc *)0)->imm),
	      "every operation fits");

const struct gantry_op_info *gantry_op_info(uint16_t id)
{
	for (size_t i = 0; i < gantry_op_count; i++)
		if (gantry_op_table[i].id == id)
			return &gantry_op_table[i];
	return NULL;
}

/* ---- decoding ---- */

static_assert((GANTRY_TASK_TOGETHER | GANTRY_TASK_CLUSTER(31, 31, 31)) == GANTRY_TASK_GROUPS &&
		      (GANTRY_TASK_GROUPS | GANTRY_TASK_IDEMPOTENT) == GANTRY_TASK_FLAGS,
	      "the flags of tasks are these");

/* What each rule of ops.def means for a field whose value is the local variable v. */
#define RULE_ANY	      GANTRY_OK
#define RULE_ZERO	      check_range(v, 0, 0)
#define RULE_HANDLE(type)     check_handle(v, GANTRY_HANDLE_##type)
#define RULE_OPTIONAL(type)   (v == 0 ? GANTRY_OK : check_handle(v, GANTRY_HANDLE_##type))
#define RULE_MAX(limit)	      check_range(v, 0, (limit))
#define RULE_RANGE(low, high) check_range(v, (low), (high))
#define RULE_POW2(limit)      check_pow2(v, (limit))
#define RULE_FLAGS(mask)      check_range(v & ~(uint64_t)(mask), 0, 0)

static int check_handle(uint64_t v, uint32_t type)
{
	return GANTRY_HANDLE_TYPE(v) == type ? GANTRY_OK : GANTRY_E_HANDLE;
}

static int check_range(uint64_t v, uint64_t low, uint64_t high)
{
	return v >= low && v <= high ? GANTRY_OK : GANTRY_E_ARG;
}

static int check_pow2(uint64_t v, uint64_t limit)
{
	return v != 0 && (v & (v - 1)) == 0 && v <= limit ? GANTRY_OK : GANTRY_E_ARG;
}

#define GANTRY_OP_BEGIN(id, opname, since, opflags)                      \
	static int check_##opname(const struct gantry_op_##opname *args) \
	{                                                                \
		int status = GANTRY_OK;
#define GANTRY_FIELD(type, name, rule)             \
	if (status == GANTRY_OK) {                 \
		uint64_t v = (uint64_t)args->name; \
		(void)v;                           \
		status = RULE_##rule;              \
	}
#define GANTRY_OP_END(name) \
	return status;      \
	}
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END

static int check_fields(uint16_t op, const union gantry_op_any *args)
{
	switch (op) {
#define GANTRY_OP_BEGIN(id, opname, since, opflags) \
	case id:                                    \
		return check_##opname(&args->opname);
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END
	default:
		return GANTRY_E_UNSUPPORTED;
	}
}

static int check_var(const struct gantry_desc *desc, uint32_t op_flags)
{
	if (desc->flags & ~GANTRY_DESC_FLAGS_ALL)
		return GANTRY_E_ARG;
	if (desc->len_bytes == 0)
		return desc->flags == 0 && desc->off_bytes == 0 ? GANTRY_OK : GANTRY_E_ARG;
	if (!(op_flags & GANTRY_OPF_VAR) || desc->len_bytes > GANTRY_MAX_VAR_BYTES)
		return GANTRY_E_ARG;
	if (!(desc->flags & GANTRY_DESC_INLINE))
		return desc->off_bytes % 8 == 0 ? GANTRY_OK : GANTRY_E_ARG;
	return desc->len_bytes <= GANTRY_INLINE_BYTES && desc->off_bytes == 0 ? GANTRY_OK
									      : GANTRY_E_ARG;
}

uint32_t gantry_op_var_bytes(uint16_t op, const union gantry_op_any *args)
{
	switch (op) {
	case GANTRY_OP_launch:
		return args->launch.naccess * (uint32_t)sizeof(struct gantry_wire_access) +
		       args->launch.args_bytes;
	case GANTRY_OP_kernel_get:
		return (uint32_t)args->kernel_get.name_bytes + args->kernel_get.sig_bytes;
	case GANTRY_OP_kernel_variant:
		return args->kernel_variant.symbol_bytes;
	case GANTRY_OP_image_variable:
		return args->image_variable.name_bytes;
	case GANTRY_OP_texture:
		return sizeof(struct gantry_wire_texture);
	default:
		return 0;
	}
}

/* An installed module's name has no field for its length: the variable part is the name. */
static bool var_fits(const struct gantry_desc *desc, const union gantry_op_any *args)
{
	if (desc->op == GANTRY_OP_image_load && args->image_load.by_name)
		return desc->len_bytes > 0 && desc->len_bytes <= GANTRY_MAX_NAME;
	return desc->len_bytes == gantry_op_var_bytes(desc->op, args);
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

int gantry_desc_decode(const struct gantry_desc *desc, bool control, uint32_t version,
		       union gantry_op_any *ret_args)
{
	const struct gantry_op_info *info = gantry_op_info(desc->op);
	union gantry_op_any args;
	int status;

	if (!info || info->since > version)
		return GANTRY_E_UNSUPPORTED;
	if (!(info->flags & (control ? GANTRY_OPF_CTL : GANTRY_OPF_TASK)))
		return GANTRY_E_UNSUPPORTED;
	status = check_var(desc, info->flags);
	if (status != GANTRY_OK)
		return status;
	if (!is_zero(desc->imm + info->imm_bytes, sizeof(desc->imm) - info->imm_bytes))
		return GANTRY_E_ARG;
	/* Of a size known here these copies are a few instructions; what is behind imm_bytes is zero. */
	memcpy(&args, desc->imm, sizeof(args));
	status = check_fields(desc->op, &args);
	if (status != GANTRY_OK)
		return status;
	if (!var_fits(desc, &args))
		return GANTRY_E_ARG;

	*ret_args = args;
	return GANTRY_OK;
}
