/* SPDX-License-Identifier: Apache-2.0 */
/* Launches behind each other on one unit: begun by the board itself, with the results that they have one after the other. */
#include "tests/fpga/backend.h"

#include <string.h>
#include <unistd.h>

#include "base/atomic.h"

/* Long enough for all launches of a test to be queued while their image is loaded: what is behind the first one follows it. */
#define SLOW "load_ms=300 "

static struct gantry_kernel *scale;
static struct gantry_stream *stream;
static struct gantry_mem *m[2];
static uint64_t buffer_bytes = BYTES;

static void begin(const char *board, const char *more)
{
	put("scale", SCALE);
	device_open(board, more);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	for (uint32_t i = 0; i < 2; i++)
		m[i] = shared(i, buffer_bytes / BYTES);
}

static uint64_t count_followed(void)
{
	struct gantry_device_health now;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(health_of_board(&now, &err), 0);
	return now.followed;
}

/*
 * Of launches back and forth between two buffers, which have contents 1 and 2 at first, number @i: it reads what the one before wrote, and
 * writes what that one read.
 */
static struct gantry_cmd link_of(uint32_t i)
{
	struct gantry_cmd cmd = known_scale(scale, m[i % 2], m[1 - i % 2], i ? 9 + i : 1,
					    i > 1 ? 8 + i : 2 - i, 10 + i);

	cmd.launch.args[0].range.len = cmd.launch.args[1].range.len = buffer_bytes;
	return cmd;
}

static uint64_t run_of(struct gantry_cmd cmd)
{
	struct gantry_done done = run(stream, &cmd);

	ck_assert_int_eq(done.status, GANTRY_OK);
	return done.device_ns;
}

static void put_links(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct gantry_cmd cmd = link_of(i);

		ck_assert_int_eq(submit(stream, &cmd), 0);
	}
}

/* Each element of buffer @i has been made so many times its triple. */
static void check_power(uint32_t i, uint32_t n)
{
	uint32_t power = 1;

	while (n--)
		power *= 3;
	for (uint32_t at = 0; at < N; at++)
		if ((uint32_t)kept[i][at] != (uint32_t)in_a[at] * power)
			ck_abort_msg("element %u of buffer %u is %d", at, i, kept[i][at]);
}

START_TEST(test_launches_of_a_stream_follow_each_other_on_the_board)
{
	struct gantry_done done[16];
	uint64_t last = 0;

	begin(SLOW, NULL);
	put_links(16);
	wait_for(done, 16);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(done[i].status, GANTRY_OK);
		ck_assert_uint_gt(done[i].tag, last); /* in the order of their stream */
		ck_assert_uint_gt(done[i].device_ns, 0);
		last = done[i].tag;
	}
	check_power(0, 16);
	check_power(1, 15);
	/* One that has ended before the next pass has none behind it: at least every other one has. */
	ck_assert_uint_ge(count_followed(), 8);
	check_copies(2 * BYTES, 15 * 2 * BYTES, 16 * BYTES);
	device_close();
}
END_TEST

/* What is behind it has worked on what is nobody's, and begins anew. */
START_TEST(test_launch_behind_one_that_is_cancelled_on_the_board_reads_what_the_host_has)
{
	struct gantry_done done[2];
	struct gantry_cmd cmd;
	uint64_t alone;

	begin("", NULL);
	/* Its image is there, and both buffers are. */
	run_well(stream, known_scale(scale, m[0], m[1], 1, 0, 2));
	memcpy(kept[1], in_a, BYTES);
	gantry_store_release(&cancel_tag, last_tag + 1);
	cmd = known_scale(scale, m[0], m[1], 1, 3, 10);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = link_of(1);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	gantry_store_release(&cancel_gate, 1u);
	wait_for(done, 2);
	gantry_store_release(&cancel_tag, 0);
	ck_assert_int_eq(done[1].status, GANTRY_OK);
	/* Nobody keeps a seat's from ending before it is asked for again. */
	if (is_seated() && done[0].status == GANTRY_OK) {
		device_close();
		return;
	}
	ck_assert_int_eq(done[0].status, GANTRY_E_CANCELLED);
	check_power(1, 0);
	check_power(0, 1); /* not 2 */
	/* Its tenant has had the board's time twice. */
	alone = run_of(known_scale(scale, m[1], m[0], 10, 11, 11));
	if (!is_seated())
		ck_assert_uint_ge(done[1].device_ns, 2 * alone);
	if (!is_seated()) /* a seat's may be cancelled before it begins */
		ck_assert_uint_eq(count_followed(), 1);
	/* The stream and the unit go on. */
	run_well(stream, known_scale(scale, m[0], m[1], 12, 0, 20));
	check_power(1, 2);
	device_close();
}
END_TEST

START_TEST(test_launch_behind_one_that_is_refused_is_not_hurt)
{
	struct gantry_done done[2];
	struct gantry_cmd cmd;

	begin(SLOW, NULL);
	cmd = link_of(0);
	cmd.launch.args[3].value.u64 = N + 1;
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = link_of(1);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	wait_for(done, 2);
	ck_assert_int_eq(done[0].status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done[0].blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(done[1].status, GANTRY_OK);
	ck_assert_uint_eq(count_followed(), 1);
	check_power(1, 0);
	check_power(0, 1);
	device_close();
}
END_TEST

START_TEST(test_launch_behind_one_whose_result_cannot_be_copied_is_not_hurt)
{
	struct gantry_done done[2];

	/* Two copies to the board, and then the one between the two launches. */
	begin(SLOW "spare_copies=2 fail_copies=1", NULL);
	put_links(2);
	wait_for(done, 2);
	ck_assert_int_eq(done[0].status, GANTRY_E_DEVICE_FAULT);
	ck_assert_uint_eq(done[0].blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(done[1].status, GANTRY_OK);
	ck_assert_uint_eq(count_followed(), 1);
	check_power(1, 0);
	check_power(0, 1);
	device_close();
}
END_TEST

/* A driver that finds out behind copies that it has no room for the next: they are spoilt, and both launches are not. */
START_TEST(test_launch_whose_next_is_refused_ends_by_itself)
{
	struct gantry_done done[16];

	begin(SLOW "refuse_next=3", NULL);
	put_links(16);
	wait_for(done, 16);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	check_power(0, 16);
	check_power(1, 15);
	/* Three have none behind them, and of the others at least every other one has. */
	ck_assert_uint_ge(count_followed(), 6);
	ck_assert_uint_le(count_followed(), 12);
	device_close();
}
END_TEST

/* The next has not begun, and may begin elsewhere. */
START_TEST(test_launch_behind_one_that_does_not_end_is_told_that_it_was_interrupted)
{
	struct gantry_done done[2];
	unsigned int ntold = is_seated() ? 1
					 : 2; /* through a seat, its worker's successor finds out */

	begin(SLOW "hang=1", "longest=300ms");
	put_links(2);
	wait_for(done, ntold);
	ck_assert_int_eq(done[0].status, GANTRY_E_DEADLINE);
	if (ntold == 2)
		ck_assert_int_eq(done[1].status, GANTRY_E_INTERRUPTED);
	ck_assert_uint_eq(count_followed(), 1);
	check_power(0, 0);
	device_close();
}
END_TEST

START_TEST(test_close_does_not_wait_for_launches_behind_each_other)
{
	begin(SLOW "hang=1", NULL);
	put_links(2);
	while (count_followed() == 0)
		(void)usleep(1000);
	device_close();
	check_power(0, 0);
}
END_TEST

/* Beside the results of one launch so much memory of the host's would be needed that the turn is the smaller cost. */
START_TEST(test_launches_with_large_results_have_none_behind_them)
{
	struct gantry_done done[6];

	buffer_bytes = 2ull << 20;
	begin(SLOW, NULL);
	put_links(6);
	wait_for(done, 6);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	check_power(0, 6);
	ck_assert_uint_eq(count_followed(), 0);
	device_close();
	buffer_bytes = BYTES;
}
END_TEST

/* Contents that are not known, another kernel, or one buffer twice, of which one is written. */
START_TEST(test_launches_that_need_something_first_follow_none)
{
	struct gantry_done done[4];
	struct gantry_cmd cmd;

	begin(SLOW, NULL);
	cmd = link_of(0);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = known_scale(scale, m[1], m[0], 0, 1, 11); /* whoever wrote what it reads */
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = known_scale(scale, m[0], m[0], 11, 11, 12);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = known_scale(scale, m[1], m[0], 10, 13, 14); /* what it writes is not that */
	ck_assert_int_eq(submit(stream, &cmd), 0);
	wait_for(done, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	check_power(1, 1);
	check_power(0, 2);
	ck_assert_uint_eq(count_followed(), 0);
	device_close();
}
END_TEST

/* A driver that takes no grid of that size would say so behind copies that wait for the first. */
START_TEST(test_launches_of_another_size_follow_none)
{
	struct gantry_done done[3];
	struct gantry_cmd cmd;

	begin(SLOW, NULL);
	cmd = link_of(0);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = link_of(1);
	cmd.launch.block[2]++;
	ck_assert_int_eq(submit(stream, &cmd), 0);
	cmd = link_of(2);
	cmd.launch.grid[0]++;
	cmd.launch.block[2]++;
	ck_assert_int_eq(submit(stream, &cmd), 0);
	wait_for(done, 3);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	ck_assert_uint_eq(count_followed(), 0);
	device_close();
}
END_TEST

void backend_follow_tests(TCase *tc)
{
	tcase_add_test(tc, test_launches_of_another_size_follow_none);
	tcase_add_test(tc, test_launches_of_a_stream_follow_each_other_on_the_board);
	tcase_add_test(
		tc, test_launch_behind_one_that_is_cancelled_on_the_board_reads_what_the_host_has);
	tcase_add_test(tc, test_launch_behind_one_that_is_refused_is_not_hurt);
	tcase_add_test(tc, test_launch_behind_one_whose_result_cannot_be_copied_is_not_hurt);
	tcase_add_test(tc, test_launch_whose_next_is_refused_ends_by_itself);
	tcase_add_test(tc,
		       test_launch_behind_one_that_does_not_end_is_told_that_it_was_interrupted);
	if (!is_seated()) /* where the whole process ends */
		tcase_add_test(tc, test_close_does_not_wait_for_launches_behind_each_other);
	tcase_add_test(tc, test_launches_with_large_results_have_none_behind_them);
	tcase_add_test(tc, test_launches_that_need_something_first_follow_none);
}
