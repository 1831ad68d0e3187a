/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract checker must notice: each test breaks one rule, as caller or as backend, and must
 * end in the checker's abort().
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "devices/contract.h"
#include "tests/contract/devices/fixture.h"
#include "tests/unit/runner.h"

static const struct dut_row null_row = { "null", "null", false, { "filters=contract" } };

static uint32_t host[64];

/* The caller breaks a rule. */

START_TEST(test_span_past_its_memory_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_fill(dut_host(dut, host, 64), 60, 8, 0, 8);

	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_copy_of_unequal_lengths_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_mem *mem = dut_host(dut, host, 64);
	struct gantry_cmd cmd = dut_copy(mem, 0, mem, 8, 8);

	cmd.copy.src.len = 4;
	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_memory_after_free_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_mem *mem = dut_host(dut, host, 64);
	struct gantry_cmd cmd = dut_fill(mem, 0, 8, 0, 8);

	dut->device.backend->mem_free(mem);
	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_free_of_memory_in_use_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_mem *mem = dut_host(dut, host, 64);
	struct gantry_cmd cmd = dut_fill(mem, 0, 8, 0, 8);

	ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), 0);
	dut->device.backend->mem_free(mem);
}
END_TEST

START_TEST(test_destroy_of_a_busy_stream_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_fill(dut_host(dut, host, 64), 0, 8, 0, 8);

	ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), 0);
	dut->device.backend->stream_destroy(dut->stream);
}
END_TEST

START_TEST(test_tag_in_use_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_fill(dut_host(dut, host, 64), 0, 8, 0, 8);

	ck_assert_int_eq(dut->device.backend->submit(dut->stream, &cmd), 0);
	dut->device.backend->submit(dut->stream, &cmd);
}
END_TEST

START_TEST(test_kernel_of_an_unloaded_image_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "set", "void"), 0);

	dut->device.backend->image_unload(dut->image);
	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_wrong_count_of_arguments_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_launch(dut_kernel(dut, "set", "u32,u32"), 1);

	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_guest_image_without_the_capability_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_err err = GANTRY_ERR_NONE;

	dut->device.backend->image_load(dut->device.dev, NULL, "x", 1, &dut->image, &err);
}
END_TEST

START_TEST(test_object_of_another_device_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	struct gantry_cmd cmd = dut_fill(dut_host(dut_open(&null_row), host, 64), 0, 8, 0, 8);

	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_submit_after_a_device_fault_is_noticed)
{
	static const struct dut_row row = {
		"null", "null", false, { "filters=contract,error", "error.done=1:DEVICE_FAULT" }
	};
	struct dut *dut = dut_open(&row);
	struct gantry_cmd cmd = dut_fill(dut_host(dut, host, 64), 0, 8, 0, 8);
	struct gantry_done done = dut_run(dut, &cmd);

	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	dut_submit(dut, dut->stream, &cmd);
}
END_TEST

START_TEST(test_submit_before_thread_enter_is_noticed)
{
	const struct gantry_device_conf conf = { .name = "dut", .backend = "cpu" };
	struct gantry_device_host nobody = { 0 };
	struct gantry_stream_attr attr = { 0 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream *stream;
	struct gantry_device device;

	if (gantry_device_open(&conf, &nobody, &device, &err) < 0)
		abort(); /* a build without it has nothing to show here */
	ck_assert_int_eq(gantry_contract_wrap(&device, &err), 0);
	device.backend->stream_create(device.dev, &attr, &stream, &err);
}
END_TEST

static void *poll_elsewhere(void *arg)
{
	struct dut *dut = arg;
	struct gantry_done done;

	dut->device.backend->poll(dut->device.dev, &done, 1);
	return NULL;
}

START_TEST(test_call_from_another_thread_is_noticed)
{
	struct dut *dut = dut_open(&null_row);
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, poll_elsewhere, dut), 0);
	pthread_join(thread, NULL);
}
END_TEST

/* The backend breaks a rule: a null device with one member replaced. */

static struct gantry_backend broken;
static struct gantry_device below;
static struct gantry_done told[3];
static unsigned int ntold;

/* Puts the checker on a null device whose table is in `broken`, for the test to spoil before. */
static struct dut *open_broken(void)
{
	struct dut *dut = calloc(1, sizeof(*dut));
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_ptr_nonnull(dut);
	dut->row = &null_row;
	below.backend = &broken;
	dut->device = below;
	ck_assert_int_eq(gantry_contract_wrap(&dut->device, &err), 0);
	dut->stream = dut_stream(dut, 0);
	return dut;
}

static void make_null(void)
{
	static const struct gantry_device_host nobody;
	const struct gantry_device_conf conf = { .name = "dut", .backend = "null" };
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_device_open(&conf, &nobody, &below, &err), 0);
	broken = *below.backend;
}

static unsigned poll_told(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned int count = ntold;

	(void)dev;
	(void)n;
	ntold = 0;
	memcpy(ret_done, told, count * sizeof(*told));
	return count;
}

/* Submits @nsubmitted commands to a device whose poll() says what `told` has. */
static void run_told(unsigned int nsubmitted)
{
	struct gantry_done done[8];
	struct dut *dut;

	broken.poll = poll_told;
	dut = open_broken();
	struct gantry_mem *mem = dut_host(dut, host, 64);
	for (unsigned int i = 0; i < nsubmitted; i++) {
		struct gantry_cmd cmd = dut_fill(mem, 0, 8, 0, 8);

		ck_assert_int_eq(dut_submit(dut, dut->stream, &cmd), 0);
	}
	dut->device.backend->poll(dut->device.dev, done, 8);
}

START_TEST(test_completion_told_twice_is_noticed)
{
	make_null();
	told[0].tag = told[1].tag = 1;
	ntold = 2;
	run_told(2);
}
END_TEST

START_TEST(test_completion_of_nothing_is_noticed)
{
	make_null();
	told[0].tag = 99;
	ntold = 1;
	run_told(1);
}
END_TEST

START_TEST(test_completions_out_of_order_are_noticed)
{
	make_null();
	told[0].tag = 2;
	ntold = 1;
	run_told(2);
}
END_TEST

START_TEST(test_unknown_status_is_noticed)
{
	make_null();
	told[0] = (struct gantry_done){ .tag = 1, .status = -77, .blast = GANTRY_BLAST_CMD };
	ntold = 1;
	run_told(1);
}
END_TEST

START_TEST(test_failure_without_blast_is_noticed)
{
	make_null();
	told[0] = (struct gantry_done){ .tag = 1, .status = GANTRY_E_KERNEL };
	ntold = 1;
	run_told(1);
}
END_TEST

START_TEST(test_more_units_than_the_device_has_are_noticed)
{
	make_null();
	told[0] = (struct gantry_done){ .tag = 1, .units = 100000 };
	ntold = 1;
	run_told(1);
}
END_TEST

static unsigned poll_too_many(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	(void)dev;
	(void)ret_done;
	return n + 1;
}

START_TEST(test_more_completions_than_asked_are_noticed)
{
	struct gantry_done done;
	struct dut *dut;

	make_null();
	broken.poll = poll_too_many;
	dut = open_broken();
	dut->device.backend->poll(dut->device.dev, &done, 1);
}
END_TEST

static int mute_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	(void)dev;
	(void)base;
	(void)len;
	(void)ret_mem;
	(void)err;
	return -ENOMEM;
}

START_TEST(test_failure_without_a_sentence_is_noticed)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;
	struct dut *dut;

	make_null();
	broken.mem_host = mute_mem_host;
	dut = open_broken();
	dut->device.backend->mem_host(dut->device.dev, host, 64, &mem, &err);
}
END_TEST

static int clobbering_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			       struct gantry_mem **ret_mem, struct gantry_err *err)
{
	(void)dev;
	(void)base;
	(void)len;
	*ret_mem = NULL;
	return gantry_err_set(err, -ENOMEM, "none");
}

START_TEST(test_failure_that_writes_its_output_is_noticed)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem;
	struct dut *dut;

	make_null();
	broken.mem_host = clobbering_mem_host;
	dut = open_broken();
	dut->device.backend->mem_host(dut->device.dev, host, 64, &mem, &err);
}
END_TEST

START_TEST(test_missing_member_is_noticed)
{
	make_null();
	broken.poll = NULL;
	open_broken();
}
END_TEST

START_TEST(test_another_abi_is_noticed)
{
	make_null();
	broken.abi++;
	open_broken();
}
END_TEST

START_TEST(test_info_without_a_kind_is_noticed)
{
	make_null();
	below.info.kind = GANTRY_KIND_ANY;
	open_broken();
}
END_TEST

static void add(TCase *tc, const TTest *test)
{
	tcase_add_test_raise_signal(tc, test, SIGABRT);
}

int main(void)
{
	Suite *suite = suite_create("devices contract violations");
	TCase *caller = gantry_unit_case(suite, "caller");
	TCase *backend = gantry_unit_case(suite, "backend");

	add(caller, test_span_past_its_memory_is_noticed);
	add(caller, test_copy_of_unequal_lengths_is_noticed);
	add(caller, test_memory_after_free_is_noticed);
	add(caller, test_free_of_memory_in_use_is_noticed);
	add(caller, test_destroy_of_a_busy_stream_is_noticed);
	add(caller, test_tag_in_use_is_noticed);
	add(caller, test_kernel_of_an_unloaded_image_is_noticed);
	add(caller, test_wrong_count_of_arguments_is_noticed);
	add(caller, test_guest_image_without_the_capability_is_noticed);
	add(caller, test_object_of_another_device_is_noticed);
	add(caller, test_submit_after_a_device_fault_is_noticed);
	add(caller, test_submit_before_thread_enter_is_noticed);
	add(caller, test_call_from_another_thread_is_noticed);
	add(backend, test_completion_told_twice_is_noticed);
	add(backend, test_completion_of_nothing_is_noticed);
	add(backend, test_completions_out_of_order_are_noticed);
	add(backend, test_unknown_status_is_noticed);
	add(backend, test_failure_without_blast_is_noticed);
	add(backend, test_more_units_than_the_device_has_are_noticed);
	add(backend, test_more_completions_than_asked_are_noticed);
	add(backend, test_failure_without_a_sentence_is_noticed);
	add(backend, test_failure_that_writes_its_output_is_noticed);
	add(backend, test_missing_member_is_noticed);
	add(backend, test_another_abi_is_noticed);
	add(backend, test_info_without_a_kind_is_noticed);
	return gantry_unit_run(suite);
}
