/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: faults, and whose they are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "devices/cuda/backend.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

/* ---- faults ---- */

/* As a worker does: what the driver holds of a context that is broken goes with the process. */
static void leave(void)
{
	gantry_device_close(&device);
	_exit(0);
}

static const char *const culprits[] = { "fault", "trap", "assert" };

START_TEST(test_fault_ends_everything_in_flight)
{
	struct gantry_done done[12];
	struct gantry_stream *other;

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	struct gantry_cmd culprit = launch_cmd(image, culprits[_i], "void");
	struct gantry_cmd nap = launch_cmd(image, "nap", "u32");
	nap.launch.args[0].value.u32 = 0;
	run_ok(nap);
	other = new_stream(&device, 0);
	nap.launch.args[0].value.u32 = 200;
	nap.tag = 100;
	ck_assert_int_eq(device.backend->submit(other, &nap), 0);
	ck_assert_int_eq(submit(&culprit, 1), 0);
	for (uint64_t i = 2; i < 12; i++)
		ck_assert_int_eq(submit(&nap, i), 0);
	wait_done(done, 12);
	for (unsigned int i = 0; i < 12; i++) {
		if (done[i].tag == 100 && done[i].status == GANTRY_OK)
			continue; /* its own stream, and it may have been quick */
		/* It may as well not have been given to the driver yet when the fault came. */
		if (done[i].tag != 100 || done[i].status != GANTRY_E_INTERRUPTED)
			ck_assert_int_eq(done[i].status, done[i].tag == 1 || done[i].tag == 100
								 ? GANTRY_E_DEVICE_FAULT
								 : GANTRY_E_INTERRUPTED);
		ck_assert_uint_eq(done[i].blast, GANTRY_BLAST_CONTEXT);
	}
	leave();
}
END_TEST

static void check_ends(const struct gantry_done *done, const int *wanted, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		ck_assert_uint_eq(done[i].tag, i);
		ck_assert_msg(done[i].status == wanted[i], "command %u of %u ended with %d", i, n,
			      done[i].status);
		ck_assert_uint_eq(done[i].blast, wanted[i] ? GANTRY_BLAST_CONTEXT : 0);
	}
}

static void submit_results(struct gantry_cmd *cmd, const uint32_t *codes, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		cmd->launch.args[0].value.u32 = codes[i];
		ck_assert_int_eq(submit(cmd, i), 0);
	}
	device.backend->flush(stream);
}

START_TEST(test_fault_of_a_new_kernel_is_told_from_the_rest_of_its_batch)
{
	const int wanted[] = { GANTRY_OK, GANTRY_OK, GANTRY_E_DEVICE_FAULT, GANTRY_E_INTERRUPTED,
			       GANTRY_E_INTERRUPTED };
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_image *image = ptx_image();
	struct gantry_cmd known = launch_cmd(image, "result", "u32");
	struct gantry_cmd culprit = launch_cmd(image, culprits[_i], "void");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	for (unsigned int i = 0; i < 5; i++)
		ck_assert_int_eq(submit(i == 2 ? &culprit : &known, i), 0);
	device.backend->flush(stream);
	wait_done(done, 5);
	check_ends(done, wanted, 5);
	leave();
}
END_TEST

static const uint32_t fourth_faults[] = { 0, 0, 0, CUDA_ERROR_ILLEGAL_ADDRESS, 0 };

START_TEST(test_fault_of_a_known_kernel_may_be_anyones_of_its_batch)
{
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_cmd known = launch_cmd(ptx_image(), "result", "u32");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	submit_results(&known, fourth_faults, 5);
	wait_done(done, 5);
	/* On a machine that is busy the kernel is not so quick that its launches share a batch. */
	for (unsigned int i = 0; i < 3; i++)
		ck_assert(done[i].status == GANTRY_OK || done[i].status == GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(done[3].status, GANTRY_E_DEVICE_FAULT);
	ck_assert(done[4].status == GANTRY_E_INTERRUPTED ||
		  done[4].status == GANTRY_E_DEVICE_FAULT);
	leave();
}
END_TEST

START_TEST(test_fault_of_a_known_kernel_on_a_careful_stream_is_its_own)
{
	const struct gantry_stream_attr attr = { .ncareful = 100 };
	const int wanted[] = { GANTRY_OK, GANTRY_OK, GANTRY_OK, GANTRY_E_DEVICE_FAULT,
			       GANTRY_E_INTERRUPTED };
	struct gantry_done done[5];

	open_device(NULL);
	struct gantry_cmd known = launch_cmd(ptx_image(), "result", "u32");

	known.launch.args[0].value.u32 = 0;
	run_ok(known);
	device.backend->stream_destroy(stream);
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
	submit_results(&known, fourth_faults, 5);
	wait_done(done, 5);
	check_ends(done, wanted, 5);
	leave();
}
END_TEST

START_TEST(test_fault_wakes_whoever_does_not_poll)
{
	struct gantry_done done;

	open_device(NULL);
	struct gantry_cmd culprit = launch_cmd(ptx_image(), "fault", "void");
	ck_assert_int_eq(submit(&culprit, 1), 0);
	device.backend->flush(stream);
	sleep_until_done(&done);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
	leave();
}
END_TEST

START_TEST(test_sticky_error_of_a_submission_is_told_by_poll)
{
	struct gantry_done done;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:719", 1), 0);
	open_device(NULL);
	struct gantry_cmd nap = launch_cmd(ptx_image(), "nap", "u32");
	nap.launch.args[0].value.u32 = 0;
	ck_assert_int_eq(submit(&nap, 1), 0);
	wait_done(&done, 1);
	/* The error is of what ran before, so that this did not begin. */
	ck_assert_int_eq(done.status, GANTRY_E_INTERRUPTED);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	leave();
}
END_TEST

START_TEST(test_gpu_off_the_bus_is_device_lost)
{
	char path[] = "/tmp/gantry-unit-lost-XXXXXX";
	struct gantry_device_health health;
	struct gantry_done done;

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(setenv("FAKECUDA_LOST", path, 1), 0);
	open_device(NULL);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	struct gantry_cmd stay = launch_cmd(ptx_image(), "stay", "u32");
	stay.launch.args[0].value.u32 = 0;
	ck_assert_int_eq(submit(&stay, 1), 0);
	ck_assert_int_eq(gantry_file_replace(path, "", 0, 0600), 0);
	wait_done(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_LOST);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_DEVICE);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "off the bus"));
	ck_assert_int_eq(unlink(path), 0);
	leave();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_faults");
	TCase *faults = gantry_unit_case(suite, "faults");

	tcase_add_loop_exit_test(faults,
				 test_fault_of_a_new_kernel_is_told_from_the_rest_of_its_batch, 0,
				 0, GANTRY_ARRAY_SIZE(culprits));
	tcase_add_exit_test(faults, test_fault_of_a_known_kernel_may_be_anyones_of_its_batch, 0);
	tcase_add_exit_test(faults, test_fault_of_a_known_kernel_on_a_careful_stream_is_its_own, 0);
	tcase_add_loop_exit_test(faults, test_fault_ends_everything_in_flight, 0, 0,
				 (int)GANTRY_ARRAY_SIZE(culprits));
	tcase_add_exit_test(faults, test_fault_wakes_whoever_does_not_poll, 0);
	tcase_add_exit_test(faults, test_sticky_error_of_a_submission_is_told_by_poll, 0);
	tcase_add_exit_test(faults, test_gpu_off_the_bus_is_device_lost, 0);
	return gantry_unit_run(suite);
}
