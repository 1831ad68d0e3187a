/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder against the operation table: what a rule allows passes unchanged, what it forbids is
 * refused, for every field of every operation. The rules are read here once more, from ops.def, in a
 * way of their own.
 */
#include "proto/codec.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/runner.h"

/* ---- every field's rule, in the order of the table ---- */

enum rule_kind {
	ANY,
	ZERO,
	HANDLE,
	OPTIONAL,
	RANGE,
	POW2,
	FLAGS
};

struct rule {
	enum rule_kind kind;
	uint64_t low;
	uint64_t high;
};

#define RULE_ANY          \
	{                 \
		ANY, 0, 0 \
	}
#define RULE_ZERO          \
	{                  \
		ZERO, 0, 0 \
	}
#define RULE_HANDLE(type)                       \
	{                                       \
		HANDLE, GANTRY_HANDLE_##type, 0 \
	}
#define RULE_OPTIONAL(type)                       \
	{                                         \
		OPTIONAL, GANTRY_HANDLE_##type, 0 \
	}
#define RULE_MAX(limit)           \
	{                         \
		RANGE, 0, (limit) \
	}
#define RULE_RANGE(low, high)        \
	{                            \
		RANGE, (low), (high) \
	}
#define RULE_POW2(limit)         \
	{                        \
		POW2, 1, (limit) \
	}
#define RULE_FLAGS(mask)         \
	{                        \
		FLAGS, (mask), 0 \
	}

static const struct rule rules[] = {
#define GANTRY_OP_BEGIN(id, name, since, flags)
#define GANTRY_FIELD(type, name, rule) RULE_##rule,
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END
};

/* The table is laid out operation by operation: the rules of the @op-th begin here. */
static const struct rule *rules_of(size_t op)
{
	size_t first = 0;

	for (size_t i = 0; i < op; i++)
		first += gantry_op_table[i].nfields;
	return &rules[first];
}

static uint32_t field_off(const struct gantry_op_info *info, uint32_t field)
{
	uint32_t off = 0;

	for (uint32_t i = 0; i < field; i++)
		off += info->fields[i].len_bytes;
	return off;
}

static uint64_t get_field(const struct gantry_desc *desc, const struct gantry_op_info *info,
			  uint32_t field)
{
	uint64_t value = 0;

	memcpy(&value, desc->imm + field_off(info, field), info->fields[field].len_bytes);
	return value;
}

static void set_field(struct gantry_desc *desc, const struct gantry_op_info *info, uint32_t field,
		      uint64_t value)
{
	memcpy(desc->imm + field_off(info, field), &value, info->fields[field].len_bytes);
}

static uint64_t field_max(const struct gantry_op_info *info, uint32_t field)
{
	uint32_t bits = info->fields[field].len_bytes * 8;

	return bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

static uint64_t good_value(const struct rule *rule, uint64_t max)
{
	switch (rule->kind) {
	case ANY:
		return max;
	case HANDLE:
	case OPTIONAL:
		return GANTRY_HANDLE(rule->low, 7, 3);
	case RANGE:
		return rule->high;
	case POW2:
		return rule->high;
	case FLAGS:
		return rule->low;
	default:
		return 0;
	}
}

/* Gives @desc the variable part that its fields announce. */
static void announce_var(struct gantry_desc *desc)
{
	const struct gantry_op_info *info = gantry_op_info(desc->op);
	union gantry_op_any args;
	uint32_t len;

	memcpy(&args, desc->imm, info->imm_bytes);
	len = gantry_op_var_bytes(desc->op, &args);
	if (desc->op == GANTRY_OP_image_load && args.image_load.by_name)
		len = GANTRY_MAX_NAME;
	desc->flags = 0;
	desc->len_bytes = len;
	desc->off_bytes = len ? 4096 : 0;
}

static struct gantry_desc good_desc(size_t op)
{
	const struct gantry_op_info *info = &gantry_op_table[op];
	struct gantry_desc desc = { .op = info->id };

	for (uint32_t i = 0; i < info->nfields; i++)
		set_field(&desc, info, i, good_value(&rules_of(op)[i], field_max(info, i)));
	announce_var(&desc);
	return desc;
}

static int decode(const struct gantry_desc *desc)
{
	const struct gantry_op_info *info = gantry_op_info(desc->op);
	union gantry_op_any args;

	return gantry_desc_decode(desc, info && (info->flags & GANTRY_OPF_CTL),
				  GANTRY_WIRE_VERSION_MAX, &args);
}

/* ---- the table itself ---- */

START_TEST(test_table_ids_ascend_and_names_differ)
{
	ck_assert_uint_gt(gantry_op_count, 0);
	for (size_t i = 1; i < gantry_op_count; i++) {
		ck_assert_uint_lt(gantry_op_table[i - 1].id, gantry_op_table[i].id);
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(gantry_op_table[i].name, gantry_op_table[j].name);
	}
	ck_assert_uint_gt(gantry_op_table[0].id, 0);
}
END_TEST

START_TEST(test_table_fields_leave_no_holes)
{
	const struct gantry_op_info *info = &gantry_op_table[_i];

	ck_assert_uint_eq(field_off(info, info->nfields), info->imm_bytes);
	ck_assert_uint_le(info->imm_bytes, sizeof(((struct gantry_desc *)0)->imm));
	for (uint32_t i = 0; i < info->nfields; i++)
		ck_assert_uint_eq(field_off(info, i) % info->fields[i].len_bytes, 0);
}
END_TEST

START_TEST(test_table_each_operation_is_for_one_sort_of_queue)
{
	uint32_t flags = gantry_op_table[_i].flags;

	ck_assert_int_ne(!(flags & GANTRY_OPF_CTL), !(flags & GANTRY_OPF_TASK));
	ck_assert_uint_ge(gantry_op_table[_i].since, GANTRY_WIRE_VERSION_MIN);
	ck_assert_uint_le(gantry_op_table[_i].since, GANTRY_WIRE_VERSION_MAX);
	ck_assert_ptr_eq(gantry_op_info(gantry_op_table[_i].id), &gantry_op_table[_i]);
}
END_TEST

START_TEST(test_op_info_unknown_id_is_null)
{
	ck_assert_ptr_null(gantry_op_info(0));
	ck_assert_ptr_null(gantry_op_info(UINT16_MAX));
}
END_TEST

/* ---- what passes ---- */

START_TEST(test_decode_good_descriptor_returns_its_fields)
{
	struct gantry_desc desc = good_desc((size_t)_i);
	const struct gantry_op_info *info = &gantry_op_table[_i];
	union gantry_op_any args;

	memset(&args, 0xa5, sizeof(args));
	ck_assert_int_eq(gantry_desc_decode(&desc, info->flags & GANTRY_OPF_CTL,
					    GANTRY_WIRE_VERSION_MAX, &args),
			 GANTRY_OK);
	ck_assert_mem_eq(&args, desc.imm, info->imm_bytes);
}
END_TEST

/* Encode with each operation's own function, decode, compare: a field of its own value each. */
#define GANTRY_OP_BEGIN(id, opname, since, opflags)                                  \
	START_TEST(test_put_##opname##_decodes_to_the_same)                          \
	{                                                                            \
		size_t op = (size_t)(gantry_op_info(id) - gantry_op_table);          \
		struct gantry_desc from = good_desc(op);                             \
		struct gantry_op_##opname args;                                      \
		union gantry_op_any got;                                             \
		struct gantry_desc desc;                                             \
                                                                                     \
		memcpy(&args, from.imm, sizeof(args));                               \
		memset(&desc, 0xff, sizeof(desc));                                   \
		gantry_desc_put_##opname(&desc, &args);                              \
		if (from.len_bytes)                                                  \
			gantry_desc_set_heap(&desc, 4096, from.len_bytes);           \
		ck_assert_mem_eq(&desc, &from, sizeof(desc));                        \
		ck_assert_int_eq(gantry_desc_decode(&desc, (opflags)&GANTRY_OPF_CTL, \
						    GANTRY_WIRE_VERSION_MAX, &got),  \
				 GANTRY_OK);                                         \
		ck_assert_mem_eq(&got.opname, &args, sizeof(args));                  \
	}                                                                            \
	END_TEST
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_OP_END

START_TEST(test_decode_both_ends_of_each_range_pass)
{
	const struct gantry_op_info *info = &gantry_op_table[_i];

	for (uint32_t i = 0; i < info->nfields; i++) {
		const struct rule *rule = &rules_of((size_t)_i)[i];
		struct gantry_desc desc = good_desc((size_t)_i);

		set_field(&desc, info, i,
			  rule->kind == RANGE || rule->kind == POW2 ? rule->low : 0);
		if (rule->kind == HANDLE)
			continue;
		announce_var(&desc);
		ck_assert_msg(decode(&desc) == GANTRY_OK, "%s.%s: the low end is refused",
			      info->name, info->fields[i].name);
	}
}
END_TEST

/* ---- what is refused ---- */

static void expect_refused(size_t op, uint32_t field, uint64_t value, int status)
{
	const struct gantry_op_info *info = &gantry_op_table[op];
	struct gantry_desc desc = good_desc(op);
	union gantry_op_any args;
	int got;

	set_field(&desc, info, field, value);
	ck_assert_uint_eq(get_field(&desc, info, field), value);
	announce_var(&desc);
	memset(&args, 0xa5, sizeof(args));
	got = gantry_desc_decode(&desc, info->flags & GANTRY_OPF_CTL, GANTRY_WIRE_VERSION_MAX,
				 &args);
	ck_assert_msg(got == status, "%s.%s = %#lx (%s): %s, not %s", info->name,
		      info->fields[field].name, (unsigned long)value, info->fields[field].rule,
		      gantry_status_name(got), gantry_status_name(status));
	for (size_t i = 0; i < sizeof(args); i++)
		ck_assert_uint_eq(((uint8_t *)&args)[i], 0xa5);
}

static void expect_range_refused(size_t op, uint32_t field, const struct rule *rule, uint64_t max)
{
	if (rule->low > 0)
		expect_refused(op, field, rule->low - 1, GANTRY_E_ARG);
	if (rule->high < max) {
		expect_refused(op, field, rule->high + 1, GANTRY_E_ARG);
		expect_refused(op, field, max, GANTRY_E_ARG);
	}
}

static void expect_handles_refused(size_t op, uint32_t field, const struct rule *rule)
{
	for (uint64_t type = 0; type < 256; type++)
		if (type != rule->low)
			expect_refused(op, field, GANTRY_HANDLE(type, 7, 3), GANTRY_E_HANDLE);
	if (rule->kind == HANDLE)
		expect_refused(op, field, 0, GANTRY_E_HANDLE);
}

START_TEST(test_decode_each_rule_broken_is_refused)
{
	size_t op = (size_t)_i;
	const struct gantry_op_info *info = &gantry_op_table[op];

	for (uint32_t i = 0; i < info->nfields; i++) {
		const struct rule *rule = &rules_of(op)[i];
		uint64_t max = field_max(info, i);

		switch (rule->kind) {
		case ANY:
			break;
		case ZERO:
			expect_refused(op, i, 1, GANTRY_E_ARG);
			expect_refused(op, i, max, GANTRY_E_ARG);
			break;
		case HANDLE:
		case OPTIONAL:
			expect_handles_refused(op, i, rule);
			break;
		case RANGE:
			expect_range_refused(op, i, rule, max);
			break;
		case POW2:
			expect_range_refused(op, i, rule, max);
			expect_refused(op, i, rule->high - 1, GANTRY_E_ARG);
			expect_refused(op, i, rule->high * 2, GANTRY_E_ARG);
			break;
		case FLAGS:
			for (uint64_t bit = 1; bit && bit <= max; bit <<= 1)
				if (!(rule->low & bit))
					expect_refused(op, i, bit, GANTRY_E_ARG);
			break;
		}
	}
}
END_TEST

START_TEST(test_decode_bytes_after_the_fields_are_refused)
{
	struct gantry_desc desc = good_desc((size_t)_i);

	for (size_t i = gantry_op_table[_i].imm_bytes; i < sizeof(desc.imm); i++) {
		desc.imm[i] = 1;
		ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
		desc.imm[i] = 0;
	}
	ck_assert_int_eq(decode(&desc), GANTRY_OK);
}
END_TEST

START_TEST(test_decode_unknown_flags_are_refused)
{
	struct gantry_desc desc = good_desc((size_t)_i);

	for (uint32_t bit = 2; bit <= 0x8000; bit <<= 1) {
		desc.flags = (uint16_t)bit;
		ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
	}
}
END_TEST

START_TEST(test_decode_variable_part_of_another_length_is_refused)
{
	struct gantry_desc desc = good_desc((size_t)_i);
	uint32_t len = desc.len_bytes;

	desc.off_bytes = 4096;
	for (uint32_t wrong = 1; wrong <= GANTRY_MAX_VAR_BYTES + 1; wrong++) {
		if (wrong == len)
			continue;
		/* Names of modules have no length field: any length up to the limit is one. */
		if (desc.op == GANTRY_OP_image_load && wrong <= GANTRY_MAX_NAME)
			continue;
		desc.len_bytes = wrong;
		ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
	}
	desc.len_bytes = UINT32_MAX;
	ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
	desc.len_bytes = 0;
	ck_assert_int_eq(decode(&desc), GANTRY_E_ARG); /* an offset of nothing */
	desc.off_bytes = 0;
	ck_assert_int_eq(decode(&desc), len ? GANTRY_E_ARG : GANTRY_OK);
}
END_TEST

START_TEST(test_decode_variable_part_misplaced_is_refused)
{
	struct gantry_op_kernel_get args = { .name_bytes = 8 };
	struct gantry_desc desc;

	gantry_desc_put_kernel_get(&desc, &args);
	gantry_desc_set_heap(&desc, 8, 8);
	ck_assert_int_eq(decode(&desc), GANTRY_OK);
	for (uint64_t off = 1; off < 8; off++) {
		desc.off_bytes = off;
		ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
	}
	gantry_desc_set_inline(&desc, 8);
	ck_assert_int_eq(decode(&desc), GANTRY_OK);
	desc.off_bytes = 8; /* in two places at once */
	ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_decode_inline_part_larger_than_its_block_is_refused)
{
	struct gantry_op_launch args = { .args_bytes = GANTRY_INLINE_BYTES };
	struct gantry_desc desc;

	gantry_desc_put_launch(&desc, &args);
	gantry_desc_set_inline(&desc, GANTRY_INLINE_BYTES);
	ck_assert_int_eq(decode(&desc), GANTRY_OK);
	args.args_bytes++;
	gantry_desc_put_launch(&desc, &args);
	gantry_desc_set_inline(&desc, GANTRY_INLINE_BYTES + 1);
	ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_decode_inline_flag_without_a_part_is_refused)
{
	struct gantry_op_marker args = { 0 };
	struct gantry_desc desc;

	gantry_desc_put_marker(&desc, &args);
	desc.flags = GANTRY_DESC_INLINE;
	ck_assert_int_eq(decode(&desc), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_decode_on_the_wrong_queue_is_unsupported)
{
	struct gantry_desc desc = good_desc((size_t)_i);
	union gantry_op_any args;

	ck_assert_int_eq(gantry_desc_decode(&desc, !(gantry_op_table[_i].flags & GANTRY_OPF_CTL),
					    GANTRY_WIRE_VERSION_MAX, &args),
			 GANTRY_E_UNSUPPORTED);
}
END_TEST

START_TEST(test_decode_older_version_does_not_know_it)
{
	struct gantry_desc desc = good_desc((size_t)_i);
	const struct gantry_op_info *info = &gantry_op_table[_i];
	union gantry_op_any args;

	ck_assert_int_eq(gantry_desc_decode(&desc, info->flags & GANTRY_OPF_CTL, info->since - 1u,
					    &args),
			 GANTRY_E_UNSUPPORTED);
}
END_TEST

START_TEST(test_decode_unknown_operations_are_unsupported)
{
	struct gantry_desc desc = { 0 };
	union gantry_op_any args;

	for (uint32_t id = 0; id <= UINT16_MAX; id++) {
		desc.op = (uint16_t)id;
		if (gantry_op_info(desc.op))
			continue;
		ck_assert_int_eq(gantry_desc_decode(&desc, id & 1, GANTRY_WIRE_VERSION_MAX, &args),
				 GANTRY_E_UNSUPPORTED);
	}
}
END_TEST

/* ---- accesses ---- */

static struct gantry_wire_access good_access(void)
{
	return (struct gantry_wire_access){
		.buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, 1),
		.mode = GANTRY_RW,
		.arg_off = 8,
	};
}

START_TEST(test_access_good_ones_pass)
{
	struct gantry_wire_access a = good_access();

	for (uint16_t mode = GANTRY_R; mode <= GANTRY_C; mode++) {
		a.mode = mode;
		ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_OK);
	}
	a.arg_off = GANTRY_ARG_NONE;
	ck_assert_int_eq(gantry_wire_access_check(&a, 0), GANTRY_OK);
	a.arg_off = 0;
	ck_assert_int_eq(gantry_wire_access_check(&a, 8), GANTRY_OK);
}
END_TEST

START_TEST(test_access_each_rule_broken_is_refused)
{
	struct gantry_wire_access a = good_access();

	a.buffer = GANTRY_HANDLE(GANTRY_HANDLE_KERNEL, 1, 1);
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_HANDLE);
	a.buffer = 0;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_HANDLE);
	a = good_access();
	a.mode = 0;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_ARG);
	a.mode = GANTRY_C + 1;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_ARG);
	a.mode = UINT16_MAX;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_ARG);
	a = good_access();
	a.reserved = 1;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_access_argument_slot_outside_the_arguments_is_refused)
{
	struct gantry_wire_access a = good_access();

	ck_assert_int_eq(gantry_wire_access_check(&a, 15), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_wire_access_check(&a, 0), GANTRY_E_ARG);
	a.arg_off = 4;
	ck_assert_int_eq(gantry_wire_access_check(&a, 16), GANTRY_E_ARG);
	a.arg_off = 0xfff8; /* the last aligned one */
	ck_assert_int_eq(gantry_wire_access_check(&a, GANTRY_MAX_ARGS_BYTES), GANTRY_E_ARG);
}
END_TEST

static void add_table_tests(TCase *tc)
{
	int n = (int)gantry_op_count;

	tcase_add_test(tc, test_table_ids_ascend_and_names_differ);
	tcase_add_loop_test(tc, test_table_fields_leave_no_holes, 0, n);
	tcase_add_loop_test(tc, test_table_each_operation_is_for_one_sort_of_queue, 0, n);
	tcase_add_test(tc, test_op_info_unknown_id_is_null);
}

static void add_pass_tests(TCase *tc)
{
	tcase_add_loop_test(tc, test_decode_good_descriptor_returns_its_fields, 0,
			    (int)gantry_op_count);
	tcase_add_loop_test(tc, test_decode_both_ends_of_each_range_pass, 0, (int)gantry_op_count);
#define GANTRY_OP_BEGIN(id, opname, since, opflags) \
	tcase_add_test(tc, test_put_##opname##_decodes_to_the_same);
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_OP_END
#undef GANTRY_FIELD
}

static void add_refusal_tests(TCase *tc)
{
	int n = (int)gantry_op_count;

	tcase_add_loop_test(tc, test_decode_each_rule_broken_is_refused, 0, n);
	tcase_add_loop_test(tc, test_decode_bytes_after_the_fields_are_refused, 0, n);
	tcase_add_loop_test(tc, test_decode_unknown_flags_are_refused, 0, n);
	tcase_add_loop_test(tc, test_decode_variable_part_of_another_length_is_refused, 0, n);
	tcase_add_test(tc, test_decode_variable_part_misplaced_is_refused);
	tcase_add_test(tc, test_decode_inline_part_larger_than_its_block_is_refused);
	tcase_add_test(tc, test_decode_inline_flag_without_a_part_is_refused);
	tcase_add_loop_test(tc, test_decode_on_the_wrong_queue_is_unsupported, 0, n);
	tcase_add_loop_test(tc, test_decode_older_version_does_not_know_it, 0, n);
	tcase_add_test(tc, test_decode_unknown_operations_are_unsupported);
}

int main(void)
{
	Suite *suite = suite_create("codec");
	TCase *access = gantry_unit_case(suite, "access");

	add_table_tests(gantry_unit_case(suite, "table"));
	add_pass_tests(gantry_unit_case(suite, "pass"));
	add_refusal_tests(gantry_unit_case(suite, "refuse"));
	tcase_add_test(access, test_access_good_ones_pass);
	tcase_add_test(access, test_access_each_rule_broken_is_refused);
	tcase_add_test(access, test_access_argument_slot_outside_the_arguments_is_refused);
	return gantry_unit_run(suite);
}
