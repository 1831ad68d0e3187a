/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of tensors over the fake driver, in which what was asked for can be read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/device.h"
#include "devices/registry.h"
#include "tests/fakecuda/tensor.h"
#include "tests/unit/runner.h"

#define LEN ((uint64_t)1 << 20)

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_mem *mem;
static uint64_t address;

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static int ask(const struct gantry_wire_tensor *spec, uint64_t part, uint8_t *answer)
{
	const struct gantry_question question = { .what = GANTRY_QUESTION_TENSOR,
						  .tensor = spec,
						  .number = { part } };

	return device.backend->ask(device.dev, &question, answer, &err);
}

static void begin(void)
{
	const char *const opts[] = { "driver=" FAKE_DRIVER, "nvml=none", "filters=contract" };
	const struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 3
	};
	struct gantry_question where = { .what = GANTRY_QUESTION_ADDRESS };
	uint8_t answer[GANTRY_ANSWER_BYTES];

	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, LEN, &mem, &err), 0);
	where.range = (struct gantry_range){ mem, 0, LEN };
	ck_assert_int_eq(device.backend->ask(device.dev, &where, answer, &err), sizeof(address));
	memcpy(&address, answer, sizeof(address));
}

static void end(void)
{
	device.backend->mem_free(mem);
	gantry_device_close(&device);
}

/* 512 rows of 1 KiB, 128 numbers of each. */
static struct gantry_wire_tensor good(void)
{
	return (struct gantry_wire_tensor){ .address = address,
					    .dims = { 128, 512 },
					    .strides = { 1024 },
					    .mode = GANTRY_TENSOR_TILED,
					    .type = 7, /* float */
					    .rank = 2,
					    .steps = { 1, 1 },
					    .box = { 64, 8 } };
}

START_TEST(test_tensor_is_answered_in_its_parts)
{
	uint8_t answer[GANTRY_ANSWER_BYTES];
	struct gantry_wire_tensor spec;
	struct fakecuda_tensor got;

	begin();
	spec = good();
	for (uint64_t part = 0; part < GANTRY_TENSOR_PARTS; part++) {
		ck_assert_int_eq(ask(&spec, part, answer), GANTRY_TENSOR_PART_BYTES);
		memcpy((uint8_t *)&got + part * GANTRY_TENSOR_PART_BYTES, answer,
		       GANTRY_TENSOR_PART_BYTES);
	}
	ck_assert_uint_eq(got.magic, FAKECUDA_TENSOR);
	ck_assert_uint_eq(got.kind, FAKECUDA_TENSOR_TILED);
	ck_assert_uint_eq(got.address, address);
	ck_assert_uint_eq(got.dims[1], 511);
	ck_assert_uint_eq(got.strides[0], 1024);
	ck_assert_uint_eq(got.box[0], 64);
	end();
}
END_TEST

START_TEST(test_hostile_numbers_of_tensors_are_refused)
{
	uint8_t answer[GANTRY_ANSWER_BYTES];
	struct gantry_wire_tensor spec;

	begin();
#define REFUSED(change)                                           \
	do {                                                      \
		spec = good();                                    \
		change;                                           \
		ck_assert_int_eq(ask(&spec, 0, answer), -EINVAL); \
	} while (0)
	ck_assert_int_eq(ask(NULL, 0, answer), -EINVAL);
	spec = good();
	ck_assert_int_eq(ask(&spec, GANTRY_TENSOR_PARTS, answer), -EINVAL);
	ck_assert_int_eq(ask(&spec, UINT64_MAX, answer), -EINVAL);
	REFUSED(spec.rank = 0);
	REFUSED(spec.rank = 6);
	REFUSED(spec.rank = UINT32_MAX);
	REFUSED(spec.mode = 2);
	REFUSED(spec.type = 16);
	REFUSED(spec.type = UINT32_MAX);
	REFUSED(spec.dims[1] = 0);
	REFUSED(spec.dims[0] = UINT64_MAX);
	REFUSED(spec.strides[0] = UINT64_MAX - 15);
	REFUSED(spec.box[1] = -1);
	REFUSED(spec.steps[1] = 0);
	REFUSED(spec.swizzle = UINT32_MAX);
	/* It lies in memory of the device's, to its end. */
	REFUSED(spec.address = 0);
	REFUSED(spec.address = UINT64_MAX - 15);
	REFUSED(spec.address = address + LEN);
	REFUSED(spec.dims[1] = 1025);
	REFUSED(spec.strides[0] = 1ull << 30);
	spec = good();
	spec.dims[1] = 1024;
	ck_assert_int_eq(ask(&spec, 0, answer), GANTRY_TENSOR_PART_BYTES);
	/* Of another sort, which wants three sides. */
	REFUSED(spec.mode = GANTRY_TENSOR_IM2COL);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_tensor");
	TCase *tensors = gantry_unit_case(suite, "tensors");

	tcase_add_test(tensors, test_tensor_is_answered_in_its_parts);
	tcase_add_test(tensors, test_hostile_numbers_of_tensors_are_refused);
	return gantry_unit_run(suite);
}
