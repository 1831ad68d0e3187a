/* SPDX-License-Identifier: Apache-2.0 */
/* The manager of bitstreams, one step at a time. Whole runs of it are in tests/fpga. */
#include "devices/board/board.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tests/unit/runner.h"

#define MS   1000000ull
#define LOAD (100 * MS)
#define SOON (15 * MS) /* more than an eighth of any loading */
#define HASH "0000000000000000000000000000000000000000000000000000000000000000"

/* The kernels' images: a, b of one region each; ab has both for half again as long; whole is of the whole board and loses its memory. */
static const char *const texts[] = {
	"bitstream a 1\nboard m\nload 0 f " HASH "\nload 1 f " HASH
	"\nconfigure 100ms\nmemory kept\nkernel a r:u8* window 0 run 10ms\n",
	"bitstream b 1\nboard m\nload 0 f " HASH "\nload 1 f " HASH
	"\nconfigure 100ms\nmemory kept\nkernel b void window 0 run 10ms\n",
	"bitstream ab 1\nboard m\nload 0 f " HASH
	"\nconfigure 100ms\nmemory kept\nkernel a r:u8* window 0 slower 50%\nkernel b void window 1 slower 50%\n",
	"bitstream whole 1\nboard m\nload whole f " HASH
	"\nconfigure 100ms\nmemory lost\nkernel c void window 0 units 2 run 10ms\n",
};

enum {
	A = 0,
	B = 1,
	AB = 2,
	WHOLE = 3
};

static struct gantry_bitstream *images[GANTRY_ARRAY_SIZE(texts)];
static struct gantry_board *board;
static uint32_t a, b, c;

static uint32_t number(const char *kernel)
{
	int k = gantry_board_kernel(board, kernel);

	return k < 0 ? UINT32_MAX : (uint32_t)k;
}

/* A board of @nregions with the images that @which names, bit by bit; AB is the last but one. */
static void board_of(uint32_t nregions, uint32_t which, uint32_t nretries)
{
	const struct gantry_board_conf conf = {
		.model = "m", .nregions = nregions, .save_ns = 5 * MS, .nretries = nretries
	};
	const struct gantry_bitstream *chosen[GANTRY_ARRAY_SIZE(texts)];
	struct gantry_err err = GANTRY_ERR_NONE;
	uint32_t n = 0;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(texts); i++) {
		ck_assert_msg(gantry_bitstream_parse(texts[i], strlen(texts[i]), &images[i],
						     &err) == 0,
			      "%s", err.text);
		if (which >> i & 1)
			chosen[n++] = images[i];
	}
	ck_assert_msg(gantry_board_new(&conf, chosen, n, &board, &err) == 0, "%s", err.text);
	a = number("a");
	b = number("b");
	c = number("c");
}

static void board_end(void)
{
	gantry_board_free(board);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(texts); i++)
		free(images[i]);
}

/* The next action is this. */
static void expect(enum gantry_board_do what, uint64_t now_ns)
{
	ck_assert_int_eq(gantry_board_step(board, now_ns).what, what);
}

/* Loads something for @kernel, from nothing; it ends at @now_ns + LOAD. Returns where. */
static uint32_t load_for(uint32_t kernel, uint64_t now_ns)
{
	struct gantry_board_action action;

	gantry_board_demand(board, kernel, 1, 1, now_ns);
	expect(GANTRY_BOARD_NOTHING, now_ns); /* others may come with it */
	action = gantry_board_step(board, now_ns + SOON);
	ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
	gantry_board_did(board, 0, now_ns + LOAD);
	return action.place;
}

static void run(uint32_t kernel, uint64_t now_ns)
{
	struct gantry_board_unit unit;

	ck_assert_int_eq(gantry_board_begin(board, kernel, now_ns, &unit), 0);
	gantry_board_demand(board, kernel, 0, 0, now_ns);
	gantry_board_end(board, &unit, 10 * MS, now_ns + 10 * MS);
}

START_TEST(test_board_new_refuses_images_of_another_board)
{
	struct gantry_board_conf conf = { .model = "other", .nregions = 2 };
	const struct gantry_bitstream *image[2];
	struct gantry_board *other = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	board_of(2, 1 << A, 0);
	image[0] = image[1] = images[A];
	ck_assert_int_eq(gantry_board_new(&conf, image, 1, &other, &err), -EINVAL);
	ck_assert_str_eq(err.text, "image a: it is for boards m, not other");
	conf.model = "m";
	conf.nregions = 1;
	ck_assert_int_eq(gantry_board_new(&conf, image, 1, &other, &err), -EINVAL);
	ck_assert_str_eq(err.text, "image a: it is for region 1 of a board with 1");
	conf.nregions = 2;
	ck_assert_int_eq(gantry_board_new(&conf, image, 2, &other, &err), -EINVAL);
	ck_assert_str_eq(err.text, "image a: there is another of that name");
	ck_assert_ptr_null(other);
	board_end();
}
END_TEST

START_TEST(test_board_new_refuses_two_meanings_of_a_kernel)
{
	static const char text[] = "bitstream z 1\nboard m\nload 0 f " HASH
				   "\nconfigure 1s\nkernel a w:u8* window 0\n";
	const struct gantry_board_conf conf = { .model = "m", .nregions = 2 };
	const struct gantry_bitstream *both[2];
	struct gantry_bitstream *z;
	struct gantry_board *other = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	board_of(2, 1 << A, 0);
	ck_assert_int_eq(gantry_bitstream_parse(text, strlen(text), &z, NULL), 0);
	both[0] = images[A];
	both[1] = z;
	ck_assert_int_eq(gantry_board_new(&conf, both, 2, &other, &err), -EINVAL);
	ck_assert_str_eq(err.text, "image z: kernel a has another signature in another image");
	ck_assert_ptr_null(other);
	free(z);
	board_end();
}
END_TEST

START_TEST(test_board_loads_nothing_until_something_is_wanted)
{
	struct gantry_board_unit unit;

	board_of(2, 1 << A | 1 << B, 0);
	expect(GANTRY_BOARD_NOTHING, 0);
	ck_assert_uint_eq(gantry_board_due_ns(board), UINT64_MAX);
	ck_assert_int_eq(gantry_board_begin(board, a, 0, &unit), -EAGAIN);
	ck_assert_uint_eq(load_for(a, MS), 0);
	ck_assert_int_eq(gantry_board_resident(board, 0), 0);
	ck_assert_int_eq(gantry_board_resident(board, 1), -1);
	run(a, LOAD + MS);
	expect(GANTRY_BOARD_NOTHING, 10 * LOAD);
	board_end();
}
END_TEST

START_TEST(test_board_loads_a_region_while_the_other_works)
{
	struct gantry_board_unit unit, second;
	struct gantry_board_action action;

	board_of(2, 1 << A | 1 << B, 0);
	(void)load_for(a, 0);
	ck_assert_int_eq(gantry_board_begin(board, a, LOAD, &unit), 0);
	gantry_board_demand(board, a, 0, 0, LOAD);
	gantry_board_demand(board, b, 1, 1, LOAD);
	action = gantry_board_step(board, LOAD + SOON);
	ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
	ck_assert_uint_eq(action.image, 1);
	ck_assert_uint_eq(action.place, 1);
	/* Asked but not answered: nothing else comes, and region 0 goes on. */
	expect(GANTRY_BOARD_NOTHING, LOAD + SOON);
	gantry_board_end(board, &unit, 10 * MS, LOAD + 20 * MS);
	ck_assert_int_eq(gantry_board_begin(board, a, LOAD + 20 * MS, &unit), 0);
	ck_assert_int_eq(gantry_board_begin(board, b, LOAD + 20 * MS, &second), -EAGAIN);
	gantry_board_did(board, 0, 2 * LOAD);
	ck_assert_int_eq(gantry_board_begin(board, b, 2 * LOAD, &second), 0);
	ck_assert_uint_eq(second.place, 1);
	ck_assert_uint_eq(gantry_board_counts(board)->nloads, 2);
	board_end();
}
END_TEST

START_TEST(test_board_sees_what_comes_at_the_same_time_together)
{
	struct gantry_board_action action;

	board_of(2, 1 << A | 1 << B | 1 << AB, 0);
	gantry_board_demand(board, a, 90, 1, 0);
	expect(GANTRY_BOARD_NOTHING, 0);
	gantry_board_demand(board, a, 90, 1, MS);
	gantry_board_demand(board, b, 90, 1, MS);
	expect(GANTRY_BOARD_NOTHING, MS);
	/* What comes later does not put it off once more. */
	action = gantry_board_step(board, SOON);
	ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
	ck_assert_uint_eq(action.image, 2);
	board_end();
}
END_TEST

START_TEST(test_board_gives_each_unit_once)
{
	struct gantry_board_unit one, two, three;

	board_of(2, 1 << WHOLE, 0);
	gantry_board_demand(board, c, 3, 3, 0);
	expect(GANTRY_BOARD_SAVE, SOON);
	gantry_board_did(board, 0, SOON);
	expect(GANTRY_BOARD_LOAD, SOON);
	gantry_board_did(board, 0, LOAD);
	expect(GANTRY_BOARD_RESTORE, LOAD);
	gantry_board_did(board, 0, LOAD);
	ck_assert_int_eq(gantry_board_begin(board, c, LOAD, &one), 0);
	ck_assert_int_eq(gantry_board_begin(board, c, LOAD, &two), 0);
	ck_assert_uint_ne(one.unit, two.unit);
	ck_assert_uint_eq(one.place, GANTRY_BOARD_WHOLE);
	ck_assert_int_eq(gantry_board_begin(board, c, LOAD, &three), -EAGAIN);
	gantry_board_end(board, &one, MS, LOAD + MS);
	ck_assert_int_eq(gantry_board_begin(board, c, LOAD + MS, &three), 0);
	ck_assert_uint_eq(three.unit, one.unit);
	board_end();
}
END_TEST

START_TEST(test_board_lets_a_launch_follow_where_nobody_else_waits)
{
	struct gantry_board_unit unit;
	uint64_t now_ns = LOAD;

	board_of(1, 1 << AB | 1 << WHOLE, 0);
	(void)load_for(a, 0);
	ck_assert_int_eq(gantry_board_begin(board, a, now_ns, &unit), 0);
	/* The one that began waits no more; of what is queued behind it nothing could begin. */
	ck_assert(gantry_board_may_follow(board, a));
	gantry_board_demand(board, a, 3, 0, now_ns);
	ck_assert(gantry_board_may_follow(board, a));
	/* Another stream wants the unit: it has its turn. */
	gantry_board_demand(board, a, 4, 1, now_ns);
	ck_assert(!gantry_board_may_follow(board, a));
	gantry_board_demand(board, a, 3, 0, now_ns);
	/* A kernel that is not loaded does not wait for a launch more. */
	gantry_board_demand(board, c, 1, 1, now_ns);
	ck_assert(!gantry_board_may_follow(board, a));
	gantry_board_demand(board, c, 0, 0, now_ns);
	ck_assert(gantry_board_may_follow(board, a));
	board_end();
}
END_TEST

START_TEST(test_board_waits_for_a_launch_that_follows_another)
{
	struct gantry_board_unit unit, none;
	uint64_t now_ns = LOAD;

	board_of(1, 1 << AB | 1 << WHOLE, 0);
	(void)load_for(a, 0);
	ck_assert_int_eq(gantry_board_begin(board, a, now_ns, &unit), 0);
	gantry_board_demand(board, a, 0, 0, now_ns);
	/* While a change waits for the unit it is passed on all the same: the next has begun. */
	gantry_board_demand(board, c, 100, 1, now_ns);
	expect(GANTRY_BOARD_NOTHING, now_ns + LOAD);
	ck_assert(gantry_board_is_changing(board));
	ck_assert(!gantry_board_may_follow(board, a));
	gantry_board_pass_on(board, &unit, 10 * MS, now_ns + LOAD);
	ck_assert_uint_eq(gantry_board_counts(board)->nlaunches, 2);
	ck_assert_int_eq(gantry_board_begin(board, a, now_ns + LOAD, &none), -EAGAIN);
	expect(GANTRY_BOARD_NOTHING, now_ns + LOAD);
	gantry_board_end(board, &unit, 10 * MS, now_ns + LOAD + MS);
	expect(GANTRY_BOARD_SAVE, now_ns + LOAD + MS);
	board_end();
}
END_TEST

START_TEST(test_board_drains_and_saves_before_what_loses_the_memory)
{
	struct gantry_board_unit unit, other;

	board_of(2, 1 << A | 1 << WHOLE, 0);
	(void)load_for(a, 0);
	ck_assert_int_eq(gantry_board_begin(board, a, LOAD, &unit), 0);
	gantry_board_demand(board, a, 0, 0, LOAD);
	gantry_board_demand(board, c, 50, 2, LOAD);
	expect(GANTRY_BOARD_NOTHING, LOAD); /* a is at work, and worth more than loading */
	gantry_board_end(board, &unit, 10 * MS, LOAD + 10 * MS);
	/* Not before a's program had its moment to ask for more. */
	expect(GANTRY_BOARD_SAVE, LOAD + 20 * MS);
	ck_assert(gantry_board_is_changing(board));
	gantry_board_demand(board, a, 1, 1, LOAD + 21 * MS);
	ck_assert_int_eq(gantry_board_begin(board, a, LOAD + 21 * MS, &other), -EAGAIN);
	gantry_board_did(board, 0, LOAD + 25 * MS);
	expect(GANTRY_BOARD_LOAD, LOAD + 25 * MS);
	ck_assert_int_eq(gantry_board_resident(board, 0), -1);
	gantry_board_did(board, 0, 2 * LOAD);
	/* What is loaded may not work before the memory is back. */
	ck_assert_int_eq(gantry_board_begin(board, c, 2 * LOAD, &other), -EAGAIN);
	expect(GANTRY_BOARD_RESTORE, 2 * LOAD);
	gantry_board_did(board, 0, 2 * LOAD);
	ck_assert_int_eq(gantry_board_begin(board, c, 2 * LOAD, &other), 0);
	board_end();
}
END_TEST

START_TEST(test_board_waits_for_what_runs_in_the_region)
{
	struct gantry_board_unit unit;
	uint64_t now_ns = LOAD;

	board_of(1, 0, 0);
	board_end();
	/* One region, images a and b: b's turn comes by its age. */
	ck_assert_int_eq(gantry_bitstream_parse(texts[AB], strlen(texts[AB]), &images[AB], NULL),
			 0);
	free(images[AB]);
	board_of(2, 1 << A | 1 << B, 0);
	(void)load_for(a, 0);
	gantry_board_demand(board, a, 0, 0, now_ns);
	(void)load_for(b, now_ns);
	now_ns += LOAD;
	/* Both regions are taken; a has work for ever, in one stream, and b's is over. */
	ck_assert_int_eq(gantry_board_begin(board, a, now_ns, &unit), 0);
	gantry_board_demand(board, b, 0, 0, now_ns);
	gantry_board_demand(board, a, 60, 1, now_ns);
	/* A second place for a costs a loading and its one other stream is worth it: region 1, which is idle. */
	expect(GANTRY_BOARD_LOAD, now_ns + 50 * MS);
	gantry_board_did(board, 0, now_ns + 50 * MS + LOAD);
	ck_assert_int_eq(gantry_board_resident(board, 1), 0);
	board_end();
}
END_TEST

START_TEST(test_board_tries_a_failed_loading_again_and_then_reports_and_rests)
{
	struct gantry_board_action action;
	struct gantry_board_unit unit;

	board_of(2, 1 << WHOLE, 2);
	gantry_board_demand(board, c, 1, 1, 0);
	expect(GANTRY_BOARD_SAVE, SOON);
	gantry_board_did(board, 0, SOON + MS);
	for (uint32_t i = 1; i <= 3; i++) {
		action = gantry_board_step(board, i * LOAD);
		ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
		ck_assert_uint_eq(action.ntries, i);
		gantry_board_did(board, -EIO, i * LOAD + MS);
	}
	action = gantry_board_step(board, 4 * LOAD);
	ck_assert_int_eq(action.what, GANTRY_BOARD_REPORT);
	ck_assert_int_eq(action.error, -EIO);
	ck_assert_uint_eq(action.ntries, 3);
	ck_assert(!action.saving);
	expect(GANTRY_BOARD_NOTHING, 4 * LOAD);
	ck_assert_int_eq(gantry_board_begin(board, c, 4 * LOAD, &unit), -ENXIO);
	ck_assert_uint_eq(gantry_board_counts(board)->nfailures, 3);
	ck_assert_uint_eq(gantry_board_counts(board)->ngiven_up, 1);
	/* After its rest it has another chance; what was saved is still with the host and comes back then. */
	expect(GANTRY_BOARD_LOAD, 61000 * MS);
	gantry_board_did(board, 0, 61100 * MS);
	expect(GANTRY_BOARD_RESTORE, 61100 * MS);
	gantry_board_did(board, 0, 61100 * MS);
	ck_assert_int_eq(gantry_board_begin(board, c, 61100 * MS, &unit), 0);
	board_end();
}
END_TEST

START_TEST(test_board_loads_another_image_with_the_kernel_when_one_fails)
{
	struct gantry_board_action action;
	struct gantry_board_unit unit;
	uint32_t tried = 0;
	uint64_t now_ns = SOON;

	board_of(2, 1 << A | 1 << AB, 0);
	gantry_board_demand(board, a, 1, 1, 0);
	/* a in two regions, ab in one: the last works. */
	for (unsigned int i = 0; i < 2; i++, now_ns += LOAD) {
		action = gantry_board_step(board, now_ns);
		ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
		ck_assert(!(tried >> (2 * action.image + action.place) & 1));
		tried |= 1u << (2 * action.image + action.place);
		gantry_board_did(board, -EIO, now_ns);
		expect(GANTRY_BOARD_REPORT, now_ns);
		ck_assert_int_eq(gantry_board_begin(board, a, now_ns, &unit), -EAGAIN);
	}
	action = gantry_board_step(board, now_ns);
	ck_assert_int_eq(action.what, GANTRY_BOARD_LOAD);
	ck_assert_uint_eq(action.image, 1);
	gantry_board_did(board, 0, now_ns + LOAD);
	ck_assert_int_eq(gantry_board_begin(board, a, now_ns + LOAD, &unit), 0);
	board_end();
}
END_TEST

START_TEST(test_board_keeps_what_it_has_when_the_memory_cannot_be_saved)
{
	struct gantry_board_action action;
	struct gantry_board_unit unit;

	board_of(2, 1 << A | 1 << WHOLE, 2);
	(void)load_for(a, 0);
	run(a, LOAD);
	gantry_board_demand(board, c, 9, 2, 2 * LOAD);
	expect(GANTRY_BOARD_SAVE, 2 * LOAD + SOON);
	gantry_board_did(board, -EIO, 2 * LOAD + SOON);
	action = gantry_board_step(board, 2 * LOAD + SOON);
	ck_assert_int_eq(action.what, GANTRY_BOARD_REPORT);
	ck_assert(action.saving);
	ck_assert_int_eq(gantry_board_resident(board, 0), 0);
	ck_assert_int_eq(gantry_board_begin(board, a, 2 * LOAD + SOON, &unit), 0);
	ck_assert_int_eq(gantry_board_begin(board, c, 2 * LOAD + SOON, &unit), -ENXIO);
	board_end();
}
END_TEST

START_TEST(test_board_does_not_change_between_the_tasks_of_a_program_that_waits_for_each)
{
	uint64_t now_ns = LOAD;

	board_of(1 + 1, 1 << WHOLE | 1 << A, 0);
	(void)load_for(a, 0);
	gantry_board_demand(board, a, 0, 0, 0);
	gantry_board_demand(board, c, 1, 1, LOAD);
	/* One task of a after the other, with moments between; c waits, but not for ever. */
	for (unsigned int i = 0; i < 20; i++, now_ns += 12 * MS) {
		gantry_board_demand(board, a, 1, 1, now_ns);
		run(a, now_ns);
		expect(GANTRY_BOARD_NOTHING, now_ns + 11 * MS);
	}
	expect(GANTRY_BOARD_SAVE, now_ns + LOAD);
	board_end();
}
END_TEST

START_TEST(test_mode_of_name_knows_three)
{
	ck_assert_int_eq(gantry_plan_mode_of_name("auto"), GANTRY_PLAN_AUTO);
	ck_assert_int_eq(gantry_plan_mode_of_name("single"), GANTRY_PLAN_SINGLE);
	ck_assert_int_eq(gantry_plan_mode_of_name("spatial"), GANTRY_PLAN_SPATIAL);
	ck_assert_int_eq(gantry_plan_mode_of_name("fast"), -EINVAL);
}
END_TEST

START_TEST(test_board_add_gives_a_kernel_that_was_asked_for_in_vain)
{
	struct gantry_board_unit unit;
	struct gantry_err err = GANTRY_ERR_NONE;

	board_of(2, 1u << A, 0);
	ck_assert_uint_eq(b, UINT32_MAX);
	ck_assert_int_eq(gantry_board_add(board, images[B], &err), 1);
	b = number("b");
	ck_assert_uint_ne(b, UINT32_MAX);
	ck_assert_uint_eq(load_for(b, 0), 0);
	ck_assert_int_eq(gantry_board_resident(board, 0), 1);
	run(b, LOAD);
	/* One name twice, and nothing has changed. */
	ck_assert_int_eq(gantry_board_add(board, images[B], &err), -EINVAL);
	ck_assert_int_eq(gantry_board_begin(board, b, 2 * LOAD, &unit), 0);
	gantry_board_end(board, &unit, 0, 2 * LOAD);
	board_end();
}
END_TEST

START_TEST(test_board_retire_leaves_what_is_loaded_and_loads_it_no_more)
{
	struct gantry_board_unit unit;
	struct gantry_err err = GANTRY_ERR_NONE;

	board_of(2, 1u << A | 1u << WHOLE, 0);
	ck_assert_uint_eq(load_for(a, 0), 0);
	gantry_board_demand(board, a, 0, 0, LOAD);
	gantry_board_retire(board, 0);
	ck_assert_int_eq(gantry_board_begin(board, a, LOAD, &unit), 0);
	gantry_board_end(board, &unit, 0, LOAD);
	/* Something else takes its place, and it does not come back. */
	gantry_board_demand(board, c, 1, 1, 100 * LOAD);
	expect(GANTRY_BOARD_SAVE, 100 * LOAD + SOON);
	gantry_board_did(board, 0, 100 * LOAD + SOON);
	expect(GANTRY_BOARD_LOAD, 100 * LOAD + SOON);
	gantry_board_did(board, 0, 101 * LOAD);
	expect(GANTRY_BOARD_RESTORE, 101 * LOAD);
	gantry_board_did(board, 0, 101 * LOAD);
	gantry_board_demand(board, c, 0, 0, 101 * LOAD);
	ck_assert_int_eq(gantry_board_resident(board, GANTRY_BOARD_WHOLE), 1);
	ck_assert_int_eq(gantry_board_begin(board, a, 102 * LOAD, &unit), -ENXIO);
	/* Its name is free. */
	ck_assert_int_eq(gantry_board_add(board, images[A], &err), 2);
	ck_assert_int_eq(gantry_board_begin(board, a, 103 * LOAD, &unit), -EAGAIN);
	board_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("board");
	TCase *tc = gantry_unit_case(suite, "board");

	tcase_add_test(tc, test_board_new_refuses_images_of_another_board);
	tcase_add_test(tc, test_board_new_refuses_two_meanings_of_a_kernel);
	tcase_add_test(tc, test_board_add_gives_a_kernel_that_was_asked_for_in_vain);
	tcase_add_test(tc, test_board_retire_leaves_what_is_loaded_and_loads_it_no_more);
	tcase_add_test(tc, test_board_loads_nothing_until_something_is_wanted);
	tcase_add_test(tc, test_board_loads_a_region_while_the_other_works);
	tcase_add_test(tc, test_board_sees_what_comes_at_the_same_time_together);
	tcase_add_test(tc, test_board_gives_each_unit_once);
	tcase_add_test(tc, test_board_lets_a_launch_follow_where_nobody_else_waits);
	tcase_add_test(tc, test_board_waits_for_a_launch_that_follows_another);
	tcase_add_test(tc, test_board_drains_and_saves_before_what_loses_the_memory);
	tcase_add_test(tc, test_board_waits_for_what_runs_in_the_region);
	tcase_add_test(tc, test_board_tries_a_failed_loading_again_and_then_reports_and_rests);
	tcase_add_test(tc, test_board_loads_another_image_with_the_kernel_when_one_fails);
	tcase_add_test(tc, test_board_keeps_what_it_has_when_the_memory_cannot_be_saved);
	tcase_add_test(
		tc, test_board_does_not_change_between_the_tasks_of_a_program_that_waits_for_each);
	tcase_add_test(tc, test_mode_of_name_knows_three);
	return gantry_unit_run(suite);
}
