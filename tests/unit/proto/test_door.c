/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/door.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit/runner.h"

union message {
	struct gantry_door_header h;
	struct gantry_door_hello hello;
	struct gantry_door_welcome welcome;
	struct gantry_door_refuse refuse;
	struct gantry_door_share share;
	struct gantry_door_shared shared;
	struct gantry_door_adopt adopt;
	struct gantry_door_adopted adopted;
	struct gantry_door_key key;
	struct gantry_door_keyed keyed;
	struct gantry_door_missing missing;
	struct gantry_door_noted noted;
	uint8_t bytes[512];
};

#define FIRST_KIND GANTRY_DOOR_HELLO
#define LAST_KIND  GANTRY_DOOR_NOTED

/* A message of @kind that nothing is wrong with. */
static union message good(int kind)
{
	union message m;

	memset(&m, 0, sizeof(m));
	gantry_door_header_init(&m.h, (uint16_t)kind, 7);
	if (kind == GANTRY_DOOR_HELLO) {
		m.hello.version_min = 1;
		m.hello.version_max = 1;
	} else if (kind == GANTRY_DOOR_SHARE) {
		m.share.mode = GANTRY_RW;
	} else if (kind == GANTRY_DOOR_REFUSE || kind == GANTRY_DOOR_NOTICE) {
		m.refuse.status = GANTRY_E_DENIED;
	} else if (kind == GANTRY_DOOR_MISSING) {
		strcpy(m.missing.name, "cuTexRefCreate");
	}
	return m;
}

static int check(const union message *m, size_t len)
{
	uint16_t kind;

	return gantry_door_check(m, len, &kind);
}

START_TEST(test_check_good_message_returns_its_kind)
{
	union message m = good(_i);
	uint16_t kind = 0;

	ck_assert_int_eq(gantry_door_check(&m, gantry_door_len((uint16_t)_i), &kind), 0);
	ck_assert_int_eq(kind, _i);
	ck_assert_uint_eq(m.h.len_bytes, gantry_door_len((uint16_t)_i));
	ck_assert_uint_eq(m.h.tag, 7);
}
END_TEST

START_TEST(test_check_every_other_length_is_refused)
{
	union message m = good(_i);

	for (size_t len = 0; len <= sizeof(m); len++) {
		if (len == gantry_door_len((uint16_t)_i))
			continue;
		ck_assert_int_eq(check(&m, len), -EPROTO);
		m.h.len_bytes = (uint32_t)len; /* and when the header agrees */
		ck_assert_int_eq(check(&m, len), -EPROTO);
		m.h.len_bytes = (uint32_t)gantry_door_len((uint16_t)_i);
	}
}
END_TEST

START_TEST(test_check_bad_header_is_refused)
{
	size_t len = gantry_door_len((uint16_t)_i);
	union message m = good(_i);

	m.h.magic ^= 1;
	ck_assert_int_eq(check(&m, len), -EPROTO);
	m = good(_i);
	m.h.reserved = 1;
	ck_assert_int_eq(check(&m, len), -EPROTO);
	m = good(_i);
	m.h.len_bytes++;
	ck_assert_int_eq(check(&m, len), -EPROTO);
	m.h.len_bytes = UINT32_MAX;
	ck_assert_int_eq(check(&m, len), -EPROTO);
}
END_TEST

START_TEST(test_check_unknown_kinds_are_refused)
{
	union message m = good(GANTRY_DOOR_HELLO);

	for (uint32_t kind = 0; kind <= UINT16_MAX; kind++) {
		if (kind >= FIRST_KIND && kind <= LAST_KIND)
			continue;
		ck_assert_uint_eq(gantry_door_len((uint16_t)kind), 0);
		m.h.kind = (uint16_t)kind;
		ck_assert_int_eq(check(&m, sizeof(m.hello)), -EPROTO);
		m.h.len_bytes = sizeof(m.h);
		ck_assert_int_eq(check(&m, sizeof(m.h)), -EPROTO);
	}
}
END_TEST

START_TEST(test_check_refusal_writes_no_kind)
{
	union message m = good(GANTRY_DOOR_ADOPT);
	uint16_t kind = 99;

	ck_assert_int_eq(gantry_door_check(&m, 3, &kind), -EPROTO);
	ck_assert_int_eq(gantry_door_check(NULL, 0, &kind), -EPROTO);
	ck_assert_uint_eq(kind, 99);
}
END_TEST

START_TEST(test_check_hello_rules)
{
	union message m = good(GANTRY_DOOR_HELLO);

	m.hello.version_min = 2;
	ck_assert_int_eq(check(&m, sizeof(m.hello)), -EPROTO);
	m = good(GANTRY_DOOR_HELLO);
	for (uint32_t flags = 1; flags <= 8;
	     flags++) { /* without a key there is nothing to adopt */
		m.hello.flags = flags;
		ck_assert_int_eq(check(&m, sizeof(m.hello)), -EPROTO);
	}
	m.hello.nonce[15] = 1;
	for (uint32_t flags = 0; flags <= 8; flags++) {
		bool is_good = flags == 0 || flags == GANTRY_HELLO_ADOPT ||
			       flags == (GANTRY_HELLO_ADOPT | GANTRY_HELLO_WAIT);

		m.hello.flags = flags;
		ck_assert_int_eq(check(&m, sizeof(m.hello)), is_good ? 0 : -EPROTO);
	}
	m = good(GANTRY_DOOR_HELLO);
	memset(m.hello.name, 'x', sizeof(m.hello.name));
	ck_assert_int_eq(check(&m, sizeof(m.hello)), -EPROTO);
	m.hello.name[sizeof(m.hello.name) - 1] = '\0';
	ck_assert_int_eq(check(&m, sizeof(m.hello)), 0);
}
END_TEST

START_TEST(test_check_key_rules)
{
	union message m = good(GANTRY_DOOR_KEY);

	m.key.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.key)), -EPROTO);
	m = good(GANTRY_DOOR_NOTED);
	m.noted.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.noted)), -EPROTO);
	m = good(GANTRY_DOOR_MISSING);
	m.missing.name[0] = '\0';
	ck_assert_int_eq(check(&m, sizeof(m.missing)), -EPROTO);
	strcpy(m.missing.name, "a\033[2J");
	ck_assert_int_eq(check(&m, sizeof(m.missing)), -EPROTO);
	memset(m.missing.name, 'a', sizeof(m.missing.name));
	ck_assert_int_eq(check(&m, sizeof(m.missing)), -EPROTO);
	m = good(GANTRY_DOOR_KEYED);
	m.keyed.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.keyed)), -EPROTO);
}
END_TEST

START_TEST(test_check_refusal_rules)
{
	static const uint16_t kinds[] = { GANTRY_DOOR_REFUSE, GANTRY_DOOR_NOTICE };
	union message m = good(kinds[_i]);

	memset(m.refuse.text, 'x', sizeof(m.refuse.text));
	ck_assert_int_eq(check(&m, sizeof(m.refuse)), -EPROTO);
	m.refuse.text[sizeof(m.refuse.text) - 1] = '\0';
	ck_assert_int_eq(check(&m, sizeof(m.refuse)), 0);
	m.refuse.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.refuse)), -EPROTO);
	m = good(kinds[_i]);
	m.refuse.status = 0; /* would read as success */
	ck_assert_int_eq(check(&m, sizeof(m.refuse)), -EPROTO);
	m.refuse.status = 5;
	ck_assert_int_eq(check(&m, sizeof(m.refuse)), -EPROTO);
}
END_TEST

START_TEST(test_check_share_rules)
{
	union message m = good(GANTRY_DOOR_SHARE);

	for (uint32_t mode = 0; mode < 10; mode++) {
		int expected = mode == GANTRY_R || mode == GANTRY_RW ? 0 : -EPROTO;

		m.share.mode = mode;
		ck_assert_int_eq(check(&m, sizeof(m.share)), expected);
	}
	m.share.mode = GANTRY_R;
	m.share.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.share)), -EPROTO);
	m = good(GANTRY_DOOR_SHARED);
	m.shared.reserved = 1;
	ck_assert_int_eq(check(&m, sizeof(m.shared)), -EPROTO);
}
END_TEST

START_TEST(test_version_choose_takes_the_highest_common_one)
{
	ck_assert_uint_eq(gantry_version_choose(1, 1, 1, 1), 1);
	ck_assert_uint_eq(gantry_version_choose(1, 3, 2, 5), 3); /* an older guest, a newer agent */
	ck_assert_uint_eq(gantry_version_choose(2, 5, 1, 3), 3);
	ck_assert_uint_eq(gantry_version_choose(1, 9, 4, 4), 4);
	ck_assert_uint_eq(gantry_version_choose(0, UINT32_MAX, 1, 1), 1);
}
END_TEST

START_TEST(test_version_choose_without_a_common_one_is_zero)
{
	ck_assert_uint_eq(gantry_version_choose(1, 2, 3, 4), 0);
	ck_assert_uint_eq(gantry_version_choose(3, 4, 1, 2), 0);
	ck_assert_uint_eq(gantry_version_choose(5, 4, 1, 9), 0); /* a range upside down */
	ck_assert_uint_eq(gantry_version_choose(0, 0, 1, 1), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("door");
	TCase *tc = gantry_unit_case(suite, "door");

	tcase_add_loop_test(tc, test_check_good_message_returns_its_kind, FIRST_KIND,
			    LAST_KIND + 1);
	tcase_add_loop_test(tc, test_check_every_other_length_is_refused, FIRST_KIND,
			    LAST_KIND + 1);
	tcase_add_loop_test(tc, test_check_bad_header_is_refused, FIRST_KIND, LAST_KIND + 1);
	tcase_add_test(tc, test_check_unknown_kinds_are_refused);
	tcase_add_test(tc, test_check_refusal_writes_no_kind);
	tcase_add_test(tc, test_check_hello_rules);
	tcase_add_loop_test(tc, test_check_refusal_rules, 0, 2);
	tcase_add_test(tc, test_check_share_rules);
	tcase_add_test(tc, test_check_key_rules);
	tcase_add_test(tc, test_version_choose_takes_the_highest_common_one);
	tcase_add_test(tc, test_version_choose_without_a_common_one_is_zero);
	return gantry_unit_run(suite);
}
