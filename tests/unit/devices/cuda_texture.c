/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, textures and surfaces over the fake driver, whose new memory is dirty. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/futex.h"
#include "devices/cuda/backend.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define WAIT_NS (20 * GANTRY_NS_PER_S)
#define WIDTH	13u
#define HEIGHT	7u
#define DEPTH	5u
#define ELEMENT 4u
#define LEN	(WIDTH * HEIGHT * DEPTH * ELEMENT)

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static unsigned char there[LEN], here[LEN];
static struct gantry_mem *of_there, *of_here, *plain;

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

static void begin_under(const char *filters)
{
	const char *const opts[] = { "driver=" FAKE_DRIVER, "nvml=none", filters,
				     "record.file=/dev/null", "error.texture=1000000:EIO" };
	const struct gantry_device_conf conf = { .name = "cuda0",
						 .backend = "cuda",
						 .opts = opts,
						 .nopts = strchr(filters, ',') ? 5 : 3 };
	const struct gantry_stream_attr attr = { 0 };

	ck_assert_int_eq(setenv("FAKECUDA_DIRTY", "1", 1), 0);
	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
	ck_assert_int_eq(device.backend->mem_host(device.dev, there, LEN, &of_there, &err), 0);
	ck_assert_int_eq(device.backend->mem_host(device.dev, here, LEN, &of_here, &err), 0);
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, LEN, &plain, &err), 0);
}

static void begin(void)
{
	begin_under("filters=contract");
}

static void end(void)
{
	device.backend->mem_free(of_there);
	device.backend->mem_free(of_here);
	device.backend->mem_free(plain);
	device.backend->stream_destroy(stream);
	gantry_device_close(&device);
}

static int try_make(uint32_t what, const struct gantry_wire_texture *spec, struct gantry_mem *of,
		    struct gantry_mem **ret_mem, uint64_t *ret_len)
{
	uint64_t value;

	return device.backend->texture_make(device.dev, what, spec, of, ret_mem, ret_len, &value,
					    &err);
}

static struct gantry_wire_texture box(void)
{
	return (struct gantry_wire_texture){ .width = WIDTH,
					     .height = HEIGHT,
					     .depth = DEPTH,
					     .format = CU_AD_FORMAT_UNSIGNED_INT8,
					     .channels = ELEMENT,
					     .flags = CUDA_ARRAY3D_SURFACE_LDST };
}

static struct gantry_mem *make(uint32_t what, const struct gantry_wire_texture *spec,
			       struct gantry_mem *of)
{
	struct gantry_mem *mem;
	uint64_t len;

	ck_assert_msg(try_make(what, spec, of, &mem, &len) == 0, "%s", err.text);
	return mem;
}

static int copy(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src, uint64_t src_off,
		uint64_t len)
{
	static uint64_t tag = 1;
	const struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY,
					.tag = ++tag,
					.copy = { { dst, dst_off, len }, { src, src_off, len } } };
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	struct gantry_done done;
	int r = device.backend->submit(stream, &cmd);

	if (r < 0)
		return r;
	while (device.backend->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_uint_eq(done.tag, tag);
	return done.status;
}

static void number(void)
{
	for (unsigned int i = 0; i < LEN; i++)
		there[i] = (unsigned char)(i * 31 + i / 256);
	memset(here, 0xee, LEN);
}

START_TEST(test_array_is_zero_and_takes_any_span_of_its_bytes)
{
	const struct gantry_wire_texture spec = box();
	struct gantry_mem *array, *other;
	unsigned char wanted[LEN];
	uint64_t len;

	begin();
	ck_assert_msg(try_make(GANTRY_TEXTURE_ARRAY, &spec, NULL, &array, &len) == 0, "%s",
		      err.text);
	other = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	ck_assert_uint_eq(len, LEN);
	number();
	memset(wanted, 0, LEN);
	ck_assert_int_eq(copy(of_here, 0, array, 0, LEN), GANTRY_OK);
	ck_assert_mem_eq(here, wanted, LEN);
	srand(7);
	for (unsigned int i = 0; i < 200; i++) {
		uint64_t off = (uint64_t)rand() % (LEN / ELEMENT) * ELEMENT;
		uint64_t n = (1 + (uint64_t)rand() % ((LEN - off) / ELEMENT)) * ELEMENT;
		uint64_t from = (uint64_t)rand() % (LEN - n + 1);

		/* From the host, and from the device's memory. */
		ck_assert_int_eq(copy(plain, from, of_there, from, n), GANTRY_OK);
		ck_assert_int_eq(copy(array, off, i % 2 ? plain : of_there, from, n), GANTRY_OK);
		memcpy(wanted + off, there + from, n);
		ck_assert_int_eq(copy(other, off, array, off, n), GANTRY_OK);
		ck_assert_int_eq(copy(of_here, off, i % 3 ? array : other, off, n), GANTRY_OK);
		ck_assert_mem_eq(here + off, wanted + off, n);
	}
	ck_assert_int_eq(copy(of_here, 0, array, 0, LEN), GANTRY_OK);
	ck_assert_mem_eq(here, wanted, LEN);
	device.backend->mem_free(array);
	device.backend->mem_free(other);
	end();
}
END_TEST

START_TEST(test_levels_are_arrays_until_theirs_is_gone)
{
	struct gantry_wire_texture spec = box(), level = { .levels = 1 };
	struct gantry_mem *array, *mem;
	uint64_t len;

	begin();
	number();
	spec.levels = 3;
	array = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	ck_assert_int_eq(copy(array, 0, of_there, 0, 1), -EINVAL);
	level.levels = 3;
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_LEVEL, &level, array, &mem, &len), -EINVAL);
	level.levels = 1;
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_LEVEL, &level, array, &mem, &len), 0);
	ck_assert_uint_eq(len, 6 * 3 * 2 * ELEMENT);
	ck_assert_int_eq(copy(of_here, 0, mem, 0, len), GANTRY_OK);
	for (uint64_t i = 0; i < len; i++)
		ck_assert_uint_eq(here[i], 0);
	ck_assert_int_eq(copy(mem, 0, of_there, 0, len), GANTRY_OK);
	ck_assert_int_eq(copy(of_here, 0, mem, 0, len), GANTRY_OK);
	ck_assert_mem_eq(here, there, len);
	device.backend->mem_free(array);
	ck_assert_int_eq(copy(of_here, 0, mem, 0, len), -EINVAL);
	device.backend->mem_free(mem);
	end();
}
END_TEST

START_TEST(test_textures_end_with_their_array_or_before)
{
	const struct gantry_wire_texture spec = box(), none = { 0 };
	struct gantry_mem *array, *first, *second, *mem;
	uint64_t len;

	begin();
	number();
	array = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	first = make(GANTRY_TEXTURE_TEXTURE, &none, array);
	second = make(GANTRY_TEXTURE_SURFACE, &none, array);
	/* They are no memory, and no arrays. */
	ck_assert_int_eq(copy(first, 0, of_there, 0, 1), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_TEXTURE, &none, first, &mem, &len), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_LEVEL, &none, array, &mem, &len), -EINVAL);
	device.backend->mem_free(first);
	device.backend->mem_free(array);
	device.backend->mem_free(second);
	end();
}
END_TEST

START_TEST(test_hostile_numbers_are_refused)
{
	const struct gantry_wire_texture good = box();
	struct gantry_wire_texture spec;
	struct gantry_mem *array, *mem = NULL;
	uint64_t len = 0, bytes = 0;

	begin();
	array = make(GANTRY_TEXTURE_ARRAY, &good, NULL);
#define REFUSED(what, of, change, code)                                        \
	do {                                                                   \
		spec = good;                                                   \
		change;                                                        \
		ck_assert_int_eq(try_make(what, &spec, of, &mem, &len), code); \
		ck_assert_ptr_null(mem);                                       \
	} while (0)
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.width = 0, -EINVAL);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.width = UINT64_MAX, -EINVAL);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.depth = UINT64_MAX, -EINVAL);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.format = 77, -EOPNOTSUPP);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.channels = 3, -EINVAL);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.flags = CUDA_ARRAY3D_SPARSE, -EOPNOTSUPP);
	REFUSED(GANTRY_TEXTURE_ARRAY, NULL, spec.levels = 33, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, array, spec.filter = 9, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, array, spec.address_mode[2] = 9, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, array, spec.sampling = 0x8000, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, array, spec.border[3] = NAN, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, array, spec.level_max = INFINITY, -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, plain, spec.width = 1, -EINVAL);
	REFUSED(GANTRY_TEXTURE_SURFACE, NULL, spec.width = 1, -EINVAL);
	/* Linear memory that is nobody's, or more than there is. */
	REFUSED(GANTRY_TEXTURE_TEXTURE, NULL, (spec.address = 4096, spec.height = 0), -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, NULL,
		(spec.address = (uintptr_t)there, spec.width = LEN, spec.height = 0), -EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, NULL,
		(spec.address = (uintptr_t)there, spec.width = 1, spec.height = 1ull << 28,
		 spec.pitch = 1ull << 28),
		-EINVAL);
	REFUSED(GANTRY_TEXTURE_TEXTURE, NULL,
		(spec.address = (uintptr_t)there, spec.pitch = WIDTH * ELEMENT - 1), -EINVAL);
#undef REFUSED
	spec = good;
	spec.width = spec.height = spec.depth = 1ull << 28;
	ck_assert_int_eq(device.backend->texture_bytes(GANTRY_TEXTURE_ARRAY, &spec, &bytes),
			 -EINVAL);
	ck_assert_int_eq(device.backend->texture_bytes(GANTRY_TEXTURE_TEXTURE, &spec, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(device.backend->texture_bytes(GANTRY_TEXTURE_ARRAY, &good, &bytes), 0);
	ck_assert_uint_ge(bytes, LEN);
	device.backend->mem_free(array);
	end();
}
END_TEST

START_TEST(test_arrays_are_made_and_copied_under_each_filter)
{
	static const char *const each[] = { "filters=contract,delay,contract",
					    "filters=contract,record,error,contract",
					    "filters=contract,record,delay,error,contract" };
	const struct gantry_wire_texture spec = box();
	struct gantry_mem *array;

	begin_under(each[_i]);
	number();
	array = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	ck_assert_int_eq(copy(array, 0, of_there, 0, LEN), GANTRY_OK);
	ck_assert_int_eq(copy(of_here, 0, array, 0, LEN), GANTRY_OK);
	ck_assert_mem_eq(here, there, LEN);
	device.backend->mem_free(array);
	end();
}
END_TEST

START_TEST(test_making_an_array_fails_where_a_filter_says_so)
{
	static const char *const opts[] = { "driver=" FAKE_DRIVER, "nvml=none", "filters=error",
					    "error.texture=1:ENOMEM" };
	const struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = GANTRY_ARRAY_SIZE(opts)
	};
	const struct gantry_wire_texture spec = box();
	struct gantry_mem *mem = NULL;
	uint64_t len;

	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_ARRAY, &spec, NULL, &mem, &len), -ENOMEM);
	ck_assert_ptr_null(mem);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_ARRAY, &spec, NULL, &mem, &len), 0);
	device.backend->mem_free(mem);
	gantry_device_close(&device);
}
END_TEST

/* The driver takes whole elements only: what cannot be done wholly is not begun. */
START_TEST(test_parts_of_elements_are_refused_before_anything_is_copied)
{
	static const struct {
		uint64_t off, len;
	} parts[] = { { 0, WIDTH * ELEMENT + 1 },
		      { 1, ELEMENT },
		      { ELEMENT, WIDTH * HEIGHT * ELEMENT + 3 } };
	const struct gantry_wire_texture spec = box();
	const unsigned char zero[LEN] = { 0 };
	struct gantry_mem *array, *other;

	begin();
	number();
	array = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	other = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	ck_assert_int_eq(copy(other, 0, of_there, 0, LEN), GANTRY_OK);
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(parts); i++) {
		uint64_t off = parts[i].off, len = parts[i].len;

		ck_assert_int_eq(copy(array, off, of_there, 0, len), -EINVAL);
		ck_assert_int_eq(copy(array, off, plain, 0, len), -EINVAL);
		ck_assert_int_eq(copy(array, off, other, off, len), -EINVAL);
		ck_assert_int_eq(copy(of_here, 0, other, off, len), -EINVAL);
		ck_assert_int_eq(here[0], 0xee);
	}
	ck_assert_int_eq(copy(of_here, 0, array, 0, LEN), GANTRY_OK);
	ck_assert_mem_eq(here, zero, LEN);
	device.backend->mem_free(array);
	device.backend->mem_free(other);
	end();
}
END_TEST

/* The first box is with the device: the command ends when that has. */
START_TEST(test_copy_that_fails_behind_its_first_box_is_taken_and_fails_in_its_turn)
{
	const struct gantry_wire_texture spec = box();
	struct gantry_mem *array;

	/* The first clears the array. */
	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemcpy3DAsync:3:2", 1), 0);
	begin();
	number();
	array = make(GANTRY_TEXTURE_ARRAY, &spec, NULL);
	ck_assert_int_eq(copy(array, 0, of_there, 0, (WIDTH + 1) * ELEMENT), GANTRY_E_NO_MEMORY);
	ck_assert_int_eq(copy(of_here, 0, array, 0, LEN), GANTRY_OK);
	ck_assert_mem_eq(here, there, WIDTH * ELEMENT);
	device.backend->mem_free(array);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_texture");
	TCase *textures = gantry_unit_case(suite, "textures");

	tcase_add_test(textures, test_array_is_zero_and_takes_any_span_of_its_bytes);
	tcase_add_test(textures, test_levels_are_arrays_until_theirs_is_gone);
	tcase_add_test(textures, test_textures_end_with_their_array_or_before);
	tcase_add_test(textures, test_hostile_numbers_are_refused);
	tcase_add_loop_test(textures, test_arrays_are_made_and_copied_under_each_filter, 0, 3);
	tcase_add_test(textures, test_making_an_array_fails_where_a_filter_says_so);
	tcase_add_test(textures, test_parts_of_elements_are_refused_before_anything_is_copied);
	tcase_add_test(textures,
		       test_copy_that_fails_behind_its_first_box_is_taken_and_fails_in_its_turn);
	return gantry_unit_run(suite);
}
