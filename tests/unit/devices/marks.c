/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that end in copies are told by events (devices/marks.h), and that backends do so. */
#include "devices/marks.h"

#include <string.h>

#include "base/array.h"
#include "tests/unit/devices/steps.h"
#include "tests/unit/runner.h"

#define KIB 1024u
#define US  1000u

/* ---- the rule ---- */

static const struct {
	bool from_host, to_host;
	uint64_t len;
	bool wants;
} rows[] = {
	{ false, true, 1, true },	   /* out */
	{ true, false, 256 * KIB, true },  /* in, by a copy engine */
	{ true, false, 255 * KIB, false }, /* in, with the commands */
	{ true, true, 256 * KIB, false },  /* no engine copies that */
	{ false, false, 1 << 30, false },
};

START_TEST(test_copies_by_the_copy_engines_want_one)
{
	ck_assert_int_eq(gantry_marks_want(rows[_i].from_host, rows[_i].to_host, rows[_i].len),
			 rows[_i].wants);
}
END_TEST

/* ---- by themselves ---- */

static struct gantry_watch watch;
static struct gantry_marks marks;
static bool refuses;
static enum gantry_mark state[GANTRY_MARKS];
static unsigned int nmade, nended;

static bool put(struct gantry_stream *stream, void **event)
{
	(void)stream;
	if (refuses)
		return false;
	if (!*event)
		*event = &state[nmade++];
	*(enum gantry_mark *)*event = GANTRY_MARK_AHEAD;
	return true;
}

static enum gantry_mark look(struct gantry_stream *stream, void *event)
{
	(void)stream;
	return *(enum gantry_mark *)event;
}

static void destroy(struct gantry_stream *stream, void *event)
{
	(void)stream;
	(void)event;
	nended++;
}

static const struct gantry_marks_driver driver = { put, look, destroy };

static void begin(void)
{
	marks = (struct gantry_marks){ .driver = &driver, .watch = &watch, .wanted = true };
}

START_TEST(test_marks_tell_in_their_order)
{
	begin();
	for (uint32_t i = 1; i <= 3; i++)
		ck_assert(gantry_marks_put(&marks, 10 * i));
	state[1] = state[2] = GANTRY_MARK_PASSED;
	ck_assert_uint_eq(gantry_marks_look(&marks, 4), 4);
	state[0] = GANTRY_MARK_PASSED;
	ck_assert_uint_eq(gantry_marks_look(&marks, 4), 30);
	ck_assert_uint_eq(gantry_marks_look(&marks, 30), 30);
	/* Free-running numbers wrap. */
	ck_assert(gantry_marks_put(&marks, 3));
	ck_assert_uint_eq(gantry_marks_look(&marks, UINT32_MAX - 5), UINT32_MAX - 5);
	state[3] = GANTRY_MARK_PASSED;
	ck_assert_uint_eq(gantry_marks_look(&marks, UINT32_MAX - 5), 3);
	gantry_marks_fini(&marks);
	ck_assert_uint_eq(nmade, GANTRY_MARKS);
	ck_assert_uint_eq(nended, GANTRY_MARKS);
}
END_TEST

START_TEST(test_what_a_word_has_told_no_mark_is_asked_for)
{
	begin();
	ck_assert(gantry_marks_put(&marks, 1));
	ck_assert(gantry_marks_put(&marks, 2));
	state[1] = GANTRY_MARK_PASSED;
	ck_assert_uint_eq(gantry_marks_look(&marks, 1), 2); /* the first is as it was */
}
END_TEST

START_TEST(test_none_is_put_where_that_cannot_be)
{
	begin();
	marks.wanted = false;
	ck_assert(!gantry_marks_put(&marks, 1));
	marks.wanted = true;
	refuses = true;
	ck_assert(!gantry_marks_put(&marks, 1));
	refuses = false;
	for (uint32_t i = 1; i <= GANTRY_MARKS; i++)
		ck_assert(gantry_marks_put(&marks, i));
	ck_assert(!gantry_marks_put(&marks, 9));
	state[0] = GANTRY_MARK_PASSED;
	ck_assert_uint_eq(gantry_marks_look(&marks, 0), 1);
	ck_assert(gantry_marks_put(&marks, 9));
	ck_assert_uint_eq(nmade, GANTRY_MARKS);
}
END_TEST

/* A failed one tells nothing, nor do those behind it; and what failed is looked at no more. */
START_TEST(test_failed_one_ends_the_look)
{
	begin();
	for (uint32_t i = 1; i <= 3; i++)
		ck_assert(gantry_marks_put(&marks, i));
	state[0] = state[2] = GANTRY_MARK_PASSED;
	state[1] = GANTRY_MARK_FAILED;
	ck_assert_uint_eq(gantry_marks_look(&marks, 0), 1);
	gantry_marks_sent(&marks, true);
	gantry_marks_drop(&marks);
	ck_assert_uint_eq(gantry_marks_look(&marks, 1), 1);
	ck_assert_uint_eq(watch.nunwritten, 0);
}
END_TEST

/* Or a thread that sleeps would be woken for nothing, again and again; or not at all. */
START_TEST(test_watcher_knows_what_no_word_will_tell)
{
	begin();
	gantry_marks_sent(&marks, true);
	gantry_marks_sent(&marks, true);
	ck_assert_uint_eq(watch.nunwritten, 1);
	gantry_marks_seen(&marks, 2, 5, 6, false);
	ck_assert_uint_eq(watch.nunwritten, 1);
	ck_assert_uint_eq(watch.seen[2], 0); /* no word was ever put: none is news */
	gantry_marks_seen(&marks, 2, 5, 7, true);
	ck_assert_uint_eq(watch.nunwritten, 0);
	/* A mark was faster than the word: when that comes it is seen already. */
	marks.written = 9;
	gantry_marks_seen(&marks, 2, 5, 9, true);
	ck_assert_uint_eq(watch.seen[2], 9);
	/* And one that is still to tell something is news. */
	gantry_marks_seen(&marks, 2, 5, 8, false);
	ck_assert_uint_eq(watch.seen[2], 5);
}
END_TEST

/* ---- backends ---- */

static struct gantry_cmd nap_of(uint32_t ms, uint32_t expected_us)
{
	struct gantry_cmd nap = steps_launch_of("nap", "u32");

	nap.launch.args[0].value.u64 = ms;
	steps_expect(nap.launch.kernel, expected_us * US);
	return nap;
}

/* Between the halves of the bytes, by way of the device. */
static struct gantry_cmd copy_cmd(bool out)
{
	struct gantry_range host = { steps.of_host, out ? 2 * KIB : 0, 2 * KIB };
	struct gantry_range there = { steps.mem, 0, 2 * KIB };
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY };

	cmd.copy.dst = out ? host : there;
	cmd.copy.src = out ? there : host;
	return cmd;
}

START_TEST(test_copy_out_behind_a_kernel_has_a_mark_alone)
{
	struct gantry_done done;

	steps_begin_bare((enum steps_backend)_i);
	steps_submit(nap_of(50, 20), 0);
	steps.device.backend->flush(steps.stream);
	ck_assert(!steps_marked());
	steps_submit(copy_cmd(true), 1);
	steps.device.backend->flush(steps.stream);
	ck_assert_uint_eq(steps_nkept(), 0);
	ck_assert(steps_marked());
	for (unsigned int i = 0; i < 2; i++) {
		steps_sleep(&done);
		ck_assert_uint_eq(done.tag, i);
	}
	ck_assert(!steps_marked());
	/* Alone a word is the faster. */
	steps_submit(copy_cmd(true), 2);
	steps.device.backend->flush(steps.stream);
	ck_assert(!steps_marked());
	steps_wait(&done, 1);
	steps_end();
}
END_TEST

/* Who waits so long may sleep, and is woken by a word. */
START_TEST(test_copy_out_behind_a_long_kernel_has_a_word_too)
{
	struct gantry_done done;

	steps_begin_bare((enum steps_backend)_i);
	steps_submit(nap_of(50, 2000), 0);
	steps.device.backend->flush(steps.stream);
	steps_submit(copy_cmd(true), 1);
	steps.device.backend->flush(steps.stream);
	ck_assert(!steps_marked());
	for (unsigned int i = 0; i < 2; i++) {
		steps_sleep(&done);
		ck_assert_uint_eq(done.tag, i);
	}
	steps_end();
}
END_TEST

/* Copies out are told by marks, kernels by words; of both in any order each is told in its turn, to sleepers too. */
START_TEST(test_copies_between_kernels_are_told_in_their_turn)
{
	struct gantry_cmd nap, in, out;

	steps_begin((enum steps_backend)_i, NULL, NULL);
	nap = steps_launch_of("nap", "u32");
	in = copy_cmd(false);
	out = copy_cmd(true);
	for (unsigned int round = 0; round < 40; round++) {
		const struct gantry_cmd *cmds[] = { &out, &in, &nap };
		unsigned int n = 1 + round % 9; /* more than there are marks, too */

		memset(steps.bytes, (int)round + 1, 2 * KIB);
		for (unsigned int i = 0; i < n; i++) {
			nap.launch.args[0].value.u64 = round % 3;
			steps_submit(i + 1 == n ? out : *cmds[(round + i) % 3], i);
			if (round % 2 || i + 1 == n)
				steps.device.backend->flush(steps.stream);
		}
		for (unsigned int i = 0; i < n; i++) {
			struct gantry_done done;

			steps_sleep(&done);
			ck_assert_uint_eq(done.tag, i);
			ck_assert_int_eq(done.status, GANTRY_OK);
		}
	}
	for (unsigned int i = 0; i < 2; i++) {
		struct gantry_done done;

		steps_submit(copy_cmd(i), i);
		steps_wait(&done, 1);
	}
	ck_assert_mem_eq(steps.bytes, steps.bytes + 2 * KIB, 2 * KIB);
	steps_end();
}
END_TEST

/* The word of a stream is another's next: what a mark was faster than must not be written there. */
START_TEST(test_stream_that_ends_behind_a_mark_leaves_nothing_to_come)
{
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be;
	struct gantry_cmd nap, out;

	steps_begin((enum steps_backend)_i, NULL, NULL);
	be = steps.device.backend;
	nap = steps_launch_of("nap", "u32");
	nap.launch.args[0].value.u64 = 3;
	out = copy_cmd(true);
	for (unsigned int i = 0; i < 20; i++) {
		struct gantry_done done[2];

		/* From the second on it is known to take long: a word follows the mark. */
		steps_submit(nap, 0);
		steps_submit(out, 1);
		be->flush(steps.stream);
		steps_wait(done, 2);
		ck_assert_uint_eq(done[1].tag, 1);
		be->stream_destroy(steps.stream);
		ck_assert_int_eq(
			be->stream_create(steps.device.dev, &attr, &steps.stream, &steps.err), 0);
		steps_submit(out, 2);
		steps_wait(done, 1);
	}
	steps_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("marks");
	TCase *rule = gantry_unit_case(suite, "rule");
	TCase *alone = gantry_unit_case(suite, "alone");
	TCase *backends = gantry_unit_case(suite, "backends");

	tcase_add_loop_test(rule, test_copies_by_the_copy_engines_want_one, 0,
			    (int)GANTRY_ARRAY_SIZE(rows));
	tcase_add_test(alone, test_marks_tell_in_their_order);
	tcase_add_test(alone, test_what_a_word_has_told_no_mark_is_asked_for);
	tcase_add_test(alone, test_none_is_put_where_that_cannot_be);
	tcase_add_test(alone, test_failed_one_ends_the_look);
	tcase_add_test(alone, test_watcher_knows_what_no_word_will_tell);
	tcase_add_loop_test(backends, test_copy_out_behind_a_kernel_has_a_mark_alone, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_copy_out_behind_a_long_kernel_has_a_word_too, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_copies_between_kernels_are_told_in_their_turn, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(backends, test_stream_that_ends_behind_a_mark_leaves_nothing_to_come, 0,
			    STEPS_BACKENDS);
	return gantry_unit_run(suite);
}
