/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session has of a GPU besides its buffers, over the fake driver: arrays, what they are charged as memory and as time, and
 * until when; limits of the context. The session is served by a cpu device's thread, so that the GPU's can be held up.
 */
#include <cuda.h>

#include "guest-shim/device.h"
#include "host-agent/worker/worker.h"
#include "tests/fakecuda/tensor.h"
#include "tests/inproc/fixture.h"

#define GPU 1u

static const char *const cpu_and_gpu[] = { "cpu cores=1", "cuda driver=" FAKE_DRIVER " nvml=none" };
static const struct gantry_wire_texture mebibyte = { .width = 1024,
						     .height = 1024,
						     .format = CU_AD_FORMAT_UNSIGNED_INT8,
						     .channels = 1 };

static gantry_buffer make_array(const struct fixture *f)
{
	struct gantry_reply_variable made;

	ck_ok(gantry_device_texture(f->s, GPU, GANTRY_TEXTURE_ARRAY, 0, &mebibyte, &made));
	return made.handle;
}

static uint64_t tenants(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->quota->mem_used);
}

static uint64_t pools(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->pages[GPU]->hdr.mem_used);
}

/* ---- the device's thread, held up ---- */

static uint32_t stands, may_go;

static void stand(struct wdevice *d, void *arg)
{
	(void)d;
	(void)arg;
	gantry_store_release(&stands, 1u);
	eventually(gantry_load_acquire(&may_go));
}

static void hold_up(const struct fixture *f)
{
	gantry_store_relaxed(&stands, 0u);
	gantry_store_relaxed(&may_go, 0u);
	ck_assert_int_eq(worker_device_post(f->h->engine->devices[GPU], stand, NULL), 0);
	eventually(gantry_load_acquire(&stands));
}

START_TEST(test_freed_array_is_charged_until_the_device_has_let_go_of_it)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	gantry_buffer array = make_array(&f);
	uint64_t charged = tenants(&f);
	struct gantry_props props;

	ck_assert_uint_ge(charged, 1u << 20);
	ck_assert_uint_eq(pools(&f), charged);
	hold_up(&f);
	ck_ok(gantry_free(f.s, array));
	ck_ok(gantry_props_get(f.s, 0, &props)); /* after it no free is on its way */
	ck_assert_uint_eq(tenants(&f), charged);
	ck_assert_uint_eq(pools(&f), charged);
	gantry_store_release(&may_go, 1u);
	eventually(tenants(&f) == 0 && pools(&f) == 0);
	fixture_end(&f);
}
END_TEST

/* What is on its way back is waited for: a limit of one array is enough for one after the other. */
START_TEST(test_arrays_one_after_the_other_need_room_for_one)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	gantry_buffer array = make_array(&f);

	gantry_store_relaxed(&f.h->quota->mem_bytes, tenants(&f));
	for (int i = 0; i < 100; i++) {
		ck_ok(gantry_free(f.s, array));
		array = make_array(&f);
	}
	ck_ok(gantry_free(f.s, array));
	fixture_end(&f);
}
END_TEST

START_TEST(test_time_in_which_an_array_is_made_is_the_sessions)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	const struct gantry_share_session *share;

	share = &f.h->pages[GPU]->sessions[f.index];
	ck_assert_uint_eq(gantry_load_relaxed(&share->device_ns), 0);
	(void)make_array(&f);
	ck_assert_uint_gt(gantry_load_acquire(&share->device_ns), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_array_lost_with_its_worker_is_charged_to_nobody)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	gantry_buffer array = make_array(&f);
	struct gantry_reply_variable made;

	inproc_crash(f.h, f.index);
	ck_assert_uint_gt(tenants(&f), 0);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(tenants(&f), 0);
	ck_assert_uint_eq(pools(&f), 0);
	/* Its name is there until the guest frees it, and leads to nothing. */
	ck_assert_int_eq(gantry_device_texture(f.s, GPU, GANTRY_TEXTURE_SURFACE, array, &mebibyte,
					       &made),
			 GANTRY_E_NOT_FOUND);
	ck_ok(gantry_free(f.s, array));
	ck_ok(gantry_free(f.s, make_array(&f)));
	fixture_end(&f);
}
END_TEST

START_TEST(test_descriptor_of_a_tensor_is_of_the_sessions_memory_and_costs_nothing)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	struct gantry_wire_tensor tensor = { .dims = { 128, 64 },
					     .strides = { 1024 },
					     .type = 7, /* float */
					     .rank = 2,
					     .steps = { 1, 1 },
					     .box = { 64, 8 } };
	struct gantry_reply_address at;
	uint8_t bytes[128], none[128];
	struct fakecuda_tensor made;
	gantry_buffer buffer;
	uint64_t used;

	ck_ok(gantry_alloc(f.s, 1u << 20, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED, &buffer));
	ck_assert_int_eq(gantry_device_ask(f.s, GANTRY_ASK_ADDRESS, GPU, buffer,
					   (struct gantry_ask_numbers){ { 0 } }, &at, sizeof(at)),
			 sizeof(at));
	used = tenants(&f);
	tensor.address = at.address;
	ck_ok(gantry_device_tensor(f.s, GPU, &tensor, bytes));
	memcpy(&made, bytes, sizeof(made));
	ck_assert(made.magic == FAKECUDA_TENSOR && made.address == at.address && made.box[0] == 64);
	ck_assert_uint_eq(tenants(&f), used);
	memset(none, 0x11, sizeof(none));
	memcpy(bytes, none, sizeof(none));
	tensor.address = 4096;
	ck_assert_int_eq(gantry_device_tensor(f.s, GPU, &tensor, bytes), GANTRY_E_ARG);
	tensor.address = at.address;
	tensor.rank = 77;
	ck_assert_int_eq(gantry_device_tensor(f.s, GPU, &tensor, bytes), GANTRY_E_ARG);
	tensor.rank = 2;
	ck_assert_int_eq(gantry_device_tensor(f.s, 0, &tensor, bytes), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_device_tensor(f.s, 9, &tensor, bytes), GANTRY_E_NO_DEVICE);
	ck_assert_mem_eq(bytes, none, sizeof(none));
	ck_ok(gantry_free(f.s, buffer));
	fixture_end(&f);
}
END_TEST

static int ask_stack(struct gantry_session *s, uint64_t bytes, uint64_t *ret_now)
{
	return gantry_device_ask(s, GANTRY_ASK_LIMIT, GPU, 0,
				 (struct gantry_ask_numbers){ { CU_LIMIT_STACK_SIZE, bytes } },
				 ret_now, sizeof(*ret_now));
}

static uint64_t stack_of(struct gantry_session *s, uint64_t bytes)
{
	uint64_t now = 0;

	ck_assert_int_eq(ask_stack(s, bytes, &now), sizeof(now));
	return now;
}

START_TEST(test_limit_is_the_greatest_that_a_session_there_wants)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2), other = { .h = f.h };

	fixture_session(&other, NULL);
	ck_assert_uint_eq(stack_of(f.s, 4096), 4096);
	ck_assert_uint_eq(stack_of(other.s, 8192), 8192);
	/* A neighbour's kernels may need it by now. */
	ck_assert_uint_eq(stack_of(f.s, 2048), 8192);
	gantry_close(other.s);
	inproc_detach(f.h, other.index);
	ck_assert_uint_eq(stack_of(f.s, 2048), 2048);
	/* Whoever never asked counts on what it was at first. */
	ck_assert_uint_eq(stack_of(f.s, 16), 1024);
	fixture_end(&f);
}
END_TEST

/* The fake GPU holds 16384 threads. */
START_TEST(test_stacks_of_all_threads_fit_the_sessions_memory)
{
	struct fixture f = fixture_start(cpu_and_gpu, 2);
	uint64_t now = 7;

	gantry_store_relaxed(&f.h->quota->mem_bytes, (uint64_t)(64u << 20));
	ck_assert_uint_eq(stack_of(f.s, 4096), 4096);
	ck_assert_int_eq(ask_stack(f.s, 4112, &now), GANTRY_E_ARG);
	ck_assert_uint_eq(now, 7);
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "the session's memory"));
	gantry_store_relaxed(&f.h->quota->mem_bytes, (uint64_t)(1u << 20));
	/* What all have is not refused. */
	ck_assert_uint_eq(stack_of(f.s, 1024), 1024);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu");
	TCase *tc = gantry_unit_case(suite, "gpu");

	tcase_add_test(tc, test_descriptor_of_a_tensor_is_of_the_sessions_memory_and_costs_nothing);
	tcase_add_test(tc, test_freed_array_is_charged_until_the_device_has_let_go_of_it);
	tcase_add_test(tc, test_arrays_one_after_the_other_need_room_for_one);
	tcase_add_test(tc, test_time_in_which_an_array_is_made_is_the_sessions);
	tcase_add_test(tc, test_array_lost_with_its_worker_is_charged_to_nobody);
	tcase_add_test(tc, test_limit_is_the_greatest_that_a_session_there_wants);
	tcase_add_test(tc, test_stacks_of_all_threads_fit_the_sessions_memory);
	return gantry_unit_run(suite);
}
