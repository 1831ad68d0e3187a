/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/pack.h"
#include "tests/unit/runner.h"

START_TEST(test_pack_what_was_written_is_read_again)
{
	struct gantry_pack pack;
	struct gantry_unpack unpack;
	uint16_t value = 0;

	gantry_pack_init(&pack, 1000);
	gantry_pack_u64(&pack, 7);
	gantry_pack_bytes(&pack, "abc", 3);
	gantry_pack_bytes(&pack, &(uint16_t){ 513 }, 2);
	ck_assert(!pack.failed);
	ck_assert_uint_eq(pack.len, 24);
	unpack = (struct gantry_unpack){ .bytes = pack.bytes, .len = pack.len };
	ck_assert_uint_eq(gantry_unpack_u64(&unpack), 7);
	ck_assert_mem_eq(gantry_unpack_bytes(&unpack, 3), "abc\0\0\0\0", 8);
	gantry_unpack_into(&unpack, &value, sizeof(value));
	ck_assert_uint_eq(value, 513);
	ck_assert(!unpack.failed && unpack.pos == unpack.len);
	gantry_pack_fini(&pack);
}
END_TEST

START_TEST(test_pack_past_the_limit_fails_and_stays_so)
{
	struct gantry_pack pack;

	gantry_pack_init(&pack, 16);
	gantry_pack_bytes(&pack, "0123456789abcdef", 9);
	ck_assert(!pack.failed);
	gantry_pack_u64(&pack, 1);
	ck_assert(pack.failed);
	ck_assert_ptr_null(gantry_pack_room(&pack, 0));
	ck_assert_uint_eq(pack.len, 16);
	gantry_pack_fini(&pack);
	gantry_pack_init(&pack, 16);
	ck_assert_ptr_null(gantry_pack_room(&pack, SIZE_MAX));
	ck_assert(pack.failed);
	gantry_pack_fini(&pack);
}
END_TEST

START_TEST(test_pack_in_the_caller_s_bytes_leaves_them_when_they_no_longer_suffice)
{
	_Alignas(8) uint8_t room[16], rest[600] = { 0 };
	struct gantry_pack pack;

	memset(room, 0xff, sizeof(room));
	gantry_pack_init_in(&pack, room, sizeof(room), 1000);
	gantry_pack_u64(&pack, 7);
	gantry_pack_bytes(&pack, "abc", 3);
	ck_assert_ptr_eq(pack.bytes, room);
	ck_assert_mem_eq(room + 8, "abc\0\0\0\0", 8);
	rest[599] = 9;
	gantry_pack_bytes(&pack, rest, sizeof(rest));
	ck_assert(!pack.failed);
	ck_assert_ptr_ne(pack.bytes, room);
	ck_assert_uint_eq(pack.len, 616);
	ck_assert_mem_eq(pack.bytes, room, sizeof(room));
	ck_assert_mem_eq(pack.bytes + 16, rest, sizeof(rest));
	gantry_pack_bytes(&pack, rest, sizeof(rest));
	ck_assert(pack.failed);
	gantry_pack_fini(&pack);
	/* The limit is below what there is of them. */
	gantry_pack_init_in(&pack, room, sizeof(room), 8);
	gantry_pack_bytes(&pack, "0123456789", 9);
	ck_assert(pack.failed);
	gantry_pack_fini(&pack);
}
END_TEST

START_TEST(test_unpack_what_is_not_there_is_zero_and_a_failure)
{
	const uint64_t words[2] = { 1, 2 };
	struct gantry_unpack unpack = { .bytes = (const uint8_t *)words, .len = 12 };

	ck_assert_uint_eq(gantry_unpack_u64(&unpack), 1);
	ck_assert_uint_eq(gantry_unpack_u64(&unpack), 0);
	ck_assert(unpack.failed);
	unpack = (struct gantry_unpack){ .bytes = (const uint8_t *)words, .len = 16 };
	ck_assert_ptr_null(gantry_unpack_bytes(&unpack, SIZE_MAX));
	ck_assert(unpack.failed);
	/* Nor what was there before. */
	ck_assert_uint_eq(gantry_unpack_u64(&unpack), 0);
	/* Padding that is cut off. */
	unpack = (struct gantry_unpack){ .bytes = (const uint8_t *)words, .len = 12, .pos = 8 };
	ck_assert_ptr_null(gantry_unpack_bytes(&unpack, 4));
}
END_TEST

START_TEST(test_pack_span_of_numbers_without_sense)
{
	ck_assert_uint_eq(gantry_pack_span(3, 4), 12);
	ck_assert_uint_eq(gantry_pack_span(-1, 4), 0);
	ck_assert_uint_eq(gantry_pack_span(INT64_MAX, 4), UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pack");
	TCase *tc = gantry_unit_case(suite, "pack");

	tcase_add_test(tc, test_pack_what_was_written_is_read_again);
	tcase_add_test(tc, test_pack_past_the_limit_fails_and_stays_so);
	tcase_add_test(tc, test_pack_in_the_caller_s_bytes_leaves_them_when_they_no_longer_suffice);
	tcase_add_test(tc, test_unpack_what_is_not_there_is_zero_and_a_failure);
	tcase_add_test(tc, test_pack_span_of_numbers_without_sense);
	return gantry_unit_run(suite);
}
