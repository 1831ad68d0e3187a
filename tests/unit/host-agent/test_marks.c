/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "host-agent/worker/marks.h"
#include "tests/unit/runner.h"

static struct wmarks m;

/* All runs from the start, as a copy takes them, in pieces of @most; how many bytes. */
static uint64_t walk(uint64_t most, uint8_t *seen)
{
	uint64_t at = 0, off, len, bytes = 0;

	for (unsigned n = 0; worker_marks_next(&m, at, most, &off, &len); n++) {
		ck_assert_uint_lt(n, 100000);
		ck_assert_uint_gt(len, 0);
		ck_assert_uint_le(len, most);
		ck_assert_uint_ge(off, at);
		ck_assert_uint_le(off + len, m.len_bytes);
		if (seen)
			memset(seen + off, 1, len);
		bytes += len;
		at = off + len;
	}
	return bytes;
}

START_TEST(test_marks_next_ends_behind_a_partial_last_chunk)
{
	static const uint64_t lengths[] = { 1, 4096, 65536, 65537, 100000, 5 << 20, 1ull << 40 };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		worker_marks_init(&m, lengths[i], true);
		ck_assert_uint_eq(worker_marks_bytes(&m), lengths[i]);
		ck_assert_uint_eq(walk(UINT64_MAX / 4, NULL), lengths[i]);
		worker_marks_init(&m, lengths[i], false);
		ck_assert_uint_eq(worker_marks_bytes(&m), 0);
		ck_assert_uint_eq(walk(4096, NULL), 0);
	}
}
END_TEST

START_TEST(test_marks_add_marks_what_is_written_and_little_more)
{
	const uint64_t len = 3 << 20;
	uint8_t *seen = malloc(len);
	uint64_t nmissed;

	srandom(1);
	for (unsigned round = 0; round < 30; round++) {
		uint64_t off = (uint64_t)random() % (len + 10);
		uint64_t n = (uint64_t)random() % (len / 4);

		worker_marks_init(&m, len, false);
		worker_marks_add(&m, off, n);
		memset(seen, 0, len);
		(void)walk(4096 + (uint64_t)random() % 200000, seen);
		nmissed = 0;
		for (uint64_t i = off; i < off + n && i < len; i++)
			nmissed += !seen[i];
		for (uint64_t i = 0; i + m.chunk_bytes < off && off < len; i++)
			nmissed += seen[i];
		ck_assert_uint_eq(nmissed, 0);
	}
	free(seen);
}
END_TEST

START_TEST(test_marks_take_moves_them)
{
	struct wmarks from;

	worker_marks_init(&m, 1 << 20, false);
	worker_marks_init(&from, 1 << 20, false);
	worker_marks_add(&m, 0, 1);
	worker_marks_add(&from, 500000, 1);
	worker_marks_take(&m, &from);
	ck_assert_uint_eq(worker_marks_bytes(&m), 2 * m.chunk_bytes);
	ck_assert_uint_eq(worker_marks_bytes(&from), 0);
	worker_marks_add(&m, UINT64_MAX, 5);
	worker_marks_add(&m, 1 << 20, 5);
	worker_marks_add(&m, 5, 0);
	ck_assert_uint_eq(worker_marks_bytes(&m), 2 * m.chunk_bytes);
}
END_TEST

/* As walk(), downwards. */
static uint64_t climb_down(uint64_t most, uint8_t *seen)
{
	uint64_t before = m.len_bytes, off, len, bytes = 0;

	for (unsigned n = 0; worker_marks_last(&m, before, most, &off, &len); n++) {
		ck_assert_uint_lt(n, 100000);
		ck_assert_uint_gt(len, 0);
		ck_assert_uint_le(len, most);
		ck_assert_uint_le(off + len, before);
		memset(seen + off, 1, len);
		bytes += len;
		before = off;
	}
	return bytes;
}

START_TEST(test_marks_last_goes_down_over_what_next_goes_up_over)
{
	static const uint64_t mosts[] = { 1000, 4096, 65536, 100000, 1 << 20, UINT64_MAX / 4 };
	const uint64_t len = (3 << 20) + 4096;
	uint8_t *up = malloc(len), *down = malloc(len);

	srandom(2);
	for (unsigned round = 0; round < 60; round++) {
		worker_marks_init(&m, len, round == 0);
		for (unsigned i = 0; i < round; i++)
			worker_marks_add(&m, (uint64_t)random() % len, 1);
		memset(up, 0, len);
		memset(down, 0, len);
		ck_assert_uint_eq(walk(mosts[round % 6], up), worker_marks_bytes(&m));
		ck_assert_uint_eq(climb_down(mosts[round % 6], down), worker_marks_bytes(&m));
		ck_assert_mem_eq(up, down, len);
	}
	free(up);
	free(down);
}
END_TEST

START_TEST(test_marks_forget_leaves_what_the_other_lacks_and_what_lies_above)
{
	struct wmarks of;
	const uint64_t chunk = WMARKS_CHUNK_BYTES;

	worker_marks_init(&m, 10 * chunk + 1, true);
	worker_marks_init(&of, 10 * chunk + 1, false);
	worker_marks_add(&of, 0, 1);
	worker_marks_add(&of, 5 * chunk, 2 * chunk);
	worker_marks_forget(&m, &of, 6 * chunk + chunk / 2); /* the half one stays */
	ck_assert_uint_eq(worker_marks_bytes(&m), 8 * chunk + 1);
	worker_marks_forget(&m, &of, 7 * chunk);
	ck_assert_uint_eq(worker_marks_bytes(&m), 7 * chunk + 1);
	worker_marks_add(&of, 10 * chunk, 1);
	worker_marks_forget(&m, &of, 10 * chunk);
	ck_assert_uint_eq(worker_marks_bytes(&m), 7 * chunk + 1);
	worker_marks_forget(&m, &of, 10 * chunk + 1); /* the last is a part of one */
	ck_assert_uint_eq(worker_marks_bytes(&m), 7 * chunk);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("marks");
	TCase *tc = gantry_unit_case(suite, "marks");

	tcase_add_test(tc, test_marks_next_ends_behind_a_partial_last_chunk);
	tcase_add_test(tc, test_marks_add_marks_what_is_written_and_little_more);
	tcase_add_test(tc, test_marks_take_moves_them);
	tcase_add_test(tc, test_marks_last_goes_down_over_what_next_goes_up_over);
	tcase_add_test(tc, test_marks_forget_leaves_what_the_other_lacks_and_what_lies_above);
	return gantry_unit_run(suite);
}
