/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of launches (devices/rows.c), over each backend that has them: as graphs, and one by one where a graph is refused. */
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "devices/rows.h"
#include "tests/unit/devices/steps.h"
#include "tests/unit/runner.h"

#define ROUNDS	  12u
#define PER_ROUND 41u /* 32, 8 and 1 */

/* Each test runs on each backend. */
static void begin(int i, const char *fail)
{
	steps_begin((enum steps_backend)(i % STEPS_BACKENDS), fail, NULL);
}

/* Rounds of launches that depend on each other, put as fast as they go: the result shows order and arguments. */
static void run_rounds(void)
{
	struct gantry_done done[PER_ROUND];
	uint32_t expected = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 0; i < PER_ROUND; i++) {
			uint32_t factor = round % 3 ? 3 + i * round : 5;

			steps_submit(steps_step(factor), i);
			expected = expected * factor + 1;
		}
		steps.device.backend->flush(steps.stream);
		steps_wait(done, PER_ROUND);
		for (unsigned int i = 0; i < PER_ROUND; i++) {
			ck_assert_uint_eq(done[i].tag, i);
			ck_assert_int_eq(done[i].status, GANTRY_OK);
		}
	}
	ck_assert_uint_eq(steps_word(), expected);
}

START_TEST(test_launches_of_a_batch_run_in_order_with_their_arguments)
{
	begin(_i, NULL);
	run_rounds();
	steps_end();
}
END_TEST

/* The driver's refusals come at different points of a graph's life. */
static const char *const refusals[] = {
	"cuGraphCreate:1+:801",
	"cuGraphAddKernelNode:9:1",
	"cuGraphInstantiateWithFlags:1+:2",
	"cuGraphInstantiateWithFlags:3:2",
	"cuGraphExecKernelNodeSetParams:20:1",
	"cuGraphExecKernelNodeSetParams:1+:801",
	"cuGraphLaunch:2:1",
	"cuGraphLaunch:1+:801",
};

START_TEST(test_refused_graph_leaves_its_launches_to_be_launched_one_by_one)
{
	begin(_i, refusals[_i / STEPS_BACKENDS]);
	run_rounds();
	steps_end();
}
END_TEST

/* After as many launches as a graph is worth they are graphs: a sticky error there is met. */
START_TEST(test_repeated_batches_become_graphs)
{
	struct gantry_done done[PER_ROUND];
	unsigned int nfaults = 0;

	begin(_i, "cuGraphLaunch:2:719");
	for (unsigned int round = 0; round < ROUNDS && nfaults == 0; round++) {
		for (unsigned int i = 0; i < PER_ROUND; i++)
			steps_submit(steps_step(2), i);
		steps_wait(done, PER_ROUND);
		for (unsigned int i = 0; i < PER_ROUND; i++)
			/* None of them has the fault where all that ran had ended before. */
			nfaults += done[i].blast == GANTRY_BLAST_CONTEXT;
	}
	ck_assert_uint_gt(nfaults, 0);
	/* What was kept when that happened never began. */
	ck_assert(done[PER_ROUND - 1].status == GANTRY_E_DEVICE_FAULT ||
		  done[PER_ROUND - 1].status == GANTRY_E_INTERRUPTED);
	ck_assert_uint_eq(done[PER_ROUND - 1].blast, GANTRY_BLAST_CONTEXT);
	_exit(0); /* as a worker does: what the driver holds of a broken context goes with the process */
}
END_TEST

/* The error of a kernel that ran before says that the launch did not; others leave open whether it did. */
static const struct stop {
	const char *fail;
	unsigned int nlaunches;
	unsigned int nbegan; /* at most */
	bool on_hip;	     /* there it means the same */
} stops[] = {
	{ "cuLaunchKernel:7:700", 8, 5, true },
	{ "cuLaunchKernel:7:999", 8, 6, false },
	{ "cuGraphLaunch:1:719", GANTRY_ROWS_MAX, GANTRY_ROWS_MAX, true },
};

static unsigned int count_failed(const struct gantry_done *done, unsigned int n)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < n; i++)
		count += done[i].blast == GANTRY_BLAST_CONTEXT;
	return count;
}

START_TEST(test_launches_that_a_failed_context_refused_never_began)
{
	struct gantry_done done[GANTRY_ROWS_MAX];
	const struct stop *stop = &stops[_i / STEPS_BACKENDS];
	unsigned int n = stop->nlaunches, none_from = n, nfailed = 0;

	if (!stop->on_hip && _i % STEPS_BACKENDS == STEPS_HIP)
		return;

	begin(_i, stop->fail);
	steps_submit(steps_step(1), 99); /* a kernel's first launch is told apart */
	steps_wait(done, 1);
	/* So are those that are thought long, as all may be on a busy machine: then there are no graphs yet. */
	for (unsigned int round = 0; round < 100 && nfailed == 0; round++) {
		for (unsigned int i = 0; i < n; i++)
			steps_submit(steps_step(1), i);
		steps_wait(done, n);
		nfailed = count_failed(done, n);
	}
	ck_assert_uint_gt(nfailed, 0);
	for (unsigned int i = 0; i < n; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		if (done[i].status == GANTRY_E_INTERRUPTED)
			none_from = i < none_from ? i : none_from;
		else if (i >= none_from || i >= stop->nbegan || i < n - nfailed)
			ck_assert_int_eq(done[i].status, GANTRY_OK);
		else
			ck_assert_int_eq(done[i].status, GANTRY_E_DEVICE_FAULT);
	}
	ck_assert_uint_lt(none_from, n);
	_exit(0);
}
END_TEST

/* A fault where there must be none: calls of the driver that would be too many. */
static void run_alike(unsigned int nrounds, uint32_t shared_bytes, void (*between)(void))
{
	struct gantry_done done[GANTRY_ROWS_MAX];

	for (unsigned int round = 0; round < nrounds; round++) {
		struct gantry_cmd step = steps_step(1);

		step.launch.shared_bytes = round % 2 ? shared_bytes : 0;
		for (unsigned int i = 0; i < GANTRY_ROWS_MAX; i++)
			steps_submit(step, i);
		steps_wait(done, GANTRY_ROWS_MAX);
		for (unsigned int i = 0; i < GANTRY_ROWS_MAX; i++)
			ck_assert_int_eq(done[i].status, GANTRY_OK);
		if (between)
			between();
	}
}

START_TEST(test_rows_that_differ_in_shared_memory_have_graphs_of_their_own)
{
	begin(_i, "cuGraphExecKernelNodeSetParams:1000+:719");
	run_alike(100, 1024, NULL);
	steps_end();
}
END_TEST

/* Not every time: a graph is made when some rows have missed it. */
static void load_and_unload(void)
{
	static unsigned int round;

	if (++round % 4 == 0)
		steps.device.backend->image_unload(steps_image());
}

START_TEST(test_graphs_outlive_the_unloading_of_other_images)
{
	begin(_i, "cuGraphInstantiateWithFlags:8+:719");
	run_alike(12, 0, NULL);
	run_alike(60, 0, load_and_unload);
	steps_end();
}
END_TEST

/* A function may come back at the address of one that went: the graphs know neither. */
static void other_image(unsigned int round)
{
	struct gantry_image *old = steps.image;

	if (round % 4 != 3)
		return;
	steps.image = steps_image();
	(void)steps_launch_of("nap", "u32");
	steps.device.backend->image_unload(old);
	steps_forget();
}

static struct gantry_cmd fresh_step(uint32_t factor)
{
	struct gantry_cmd step = steps_launch_of("step", "rw:u32*,u32");

	step.launch.args[0].range = (struct gantry_range){ steps.mem, 0, 4 };
	step.launch.args[1].value.u64 = factor;
	return step;
}

START_TEST(test_unloaded_image_is_in_no_graph)
{
	struct gantry_done done[PER_ROUND];
	uint32_t expected = 0;

	begin(_i, NULL);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		struct gantry_cmd step = fresh_step(3);

		for (unsigned int i = 0; i < PER_ROUND; i++) {
			steps_submit(step, i);
			expected = expected * 3 + 1;
		}
		steps_wait(done, PER_ROUND);
		other_image(round);
	}
	ck_assert_uint_eq(steps_word(), expected);
	steps_end();
}
END_TEST

/* The fake driver refuses one call of many: that launch fails, those before and after it do not. */
START_TEST(test_launch_refused_in_a_batch_hurts_itself_only)
{
	struct gantry_done done[8];

	begin(_i, "cuLaunchKernel:6:1");
	for (unsigned int i = 0; i < 8; i++)
		steps_submit(steps_step(1), i);
	steps.device.backend->flush(steps.stream);
	steps_wait(done, 8);
	for (unsigned int i = 0; i < 8; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		ck_assert_int_eq(done[i].status, i == 5 ? GANTRY_E_ARG : GANTRY_OK);
	}
	ck_assert_uint_eq(steps_word(), 7);
	steps_end();
}
END_TEST

/* Commands of other kinds find done what was put before them. */
START_TEST(test_copies_and_fills_between_launches_keep_the_order)
{
	struct gantry_cmd fill = { .kind = GANTRY_CMD_FILL, .fill = { { NULL, 0, 4 }, 2, 4 } };
	struct gantry_done done[12];

	begin(_i, NULL);
	fill.fill.dst.mem = steps.mem;
	for (unsigned int round = 0; round < 20; round++) {
		fill.fill.pattern = round;
		for (unsigned int i = 0; i < 5; i++)
			steps_submit(steps_step(7), i); /* overwritten */
		steps_submit(fill, 5);
		for (unsigned int i = 6; i < 12; i++)
			steps_submit(steps_step(1), i);
		steps_wait(done, 12);
		ck_assert_uint_eq(steps_word(), round + 6);
	}
	steps_end();
}
END_TEST

/* A device that is told so has none, and works all the same. */
START_TEST(test_graphs_that_are_not_wanted_are_not_made)
{
	steps_begin(STEPS_HIP, "cuGraphCreate:1+:719", "graphs=no");
	run_rounds();
	steps_end();
}
END_TEST

/* What cannot be used where it lies is staged around its launch, which waits for nothing and passes nothing. */
START_TEST(test_staged_launch_keeps_the_order)
{
	struct gantry_cmd here, back;
	struct gantry_done done[10];
	uint32_t expected = 0;

	steps_begin(STEPS_HIP, "cuMemHostRegister:1+:801", NULL);
	memset(steps.bytes, 0, 4);
	here = steps_launch_of("step", "rw:u32*,u32");
	here.launch.args[0].range = (struct gantry_range){ steps.of_host, 0, 4 };
	here.launch.args[1].value.u64 = 3;
	back = (struct gantry_cmd){ .kind = GANTRY_CMD_COPY,
				    .copy = { { steps.mem, 0, 4 }, { steps.of_host, 0, 4 } } };
	for (unsigned int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < 4; i++)
			steps_submit(steps_step(5), i); /* overwritten */
		steps_submit(here, 4);
		steps_submit(back, 5);
		for (unsigned int i = 6; i < 10; i++)
			steps_submit(steps_step(2), i);
		steps_wait(done, 10);
		for (unsigned int i = 0; i < 10; i++)
			ck_assert_int_eq(done[i].status, GANTRY_OK);
		expected = expected * 3 + 1;
		for (unsigned int i = 0; i < 4; i++)
			expected = expected * 2 + 1;
		ck_assert_uint_eq(steps_word(), expected); /* into the host's word, too */
	}
	steps_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rows");
	TCase *rows = gantry_unit_case(suite, "rows");
	TCase *hip = gantry_unit_case(suite, "hip");

	tcase_add_loop_test(rows, test_launches_of_a_batch_run_in_order_with_their_arguments, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_refused_graph_leaves_its_launches_to_be_launched_one_by_one,
			    0, STEPS_BACKENDS * (int)GANTRY_ARRAY_SIZE(refusals));
	tcase_add_loop_test(rows, test_repeated_batches_become_graphs, 0, STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_launches_that_a_failed_context_refused_never_began, 0,
			    STEPS_BACKENDS * (int)GANTRY_ARRAY_SIZE(stops));
	tcase_add_loop_test(rows, test_rows_that_differ_in_shared_memory_have_graphs_of_their_own,
			    0, STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_graphs_outlive_the_unloading_of_other_images, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_unloaded_image_is_in_no_graph, 0, STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_launch_refused_in_a_batch_hurts_itself_only, 0,
			    STEPS_BACKENDS);
	tcase_add_loop_test(rows, test_copies_and_fills_between_launches_keep_the_order, 0,
			    STEPS_BACKENDS);
	tcase_add_test(hip, test_graphs_that_are_not_wanted_are_not_made);
	tcase_add_test(hip, test_staged_launch_keeps_the_order);
	return gantry_unit_run(suite);
}
