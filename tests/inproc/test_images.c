/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that guests load: kept, found, launched, freed, compiled within limits, there again after a worker's death.
 * On a null device (devices/null/image.h): everything but the running of code.
 */
#include <stdio.h>

#include "host-agent/worker/compile.h"
#include "tests/inproc/fixture.h"

static const char *const null_images[] = { "null images=yes" };
static const char *const null_plain[] = { "null" };
static const char *const cpu_and_null[] = { "cpu cores=1", "null images=yes" };
static const char *const two_nulls[] = { "null images=yes", "null images=yes" };

#define ADD_IMAGE "null-image 1\nkernel add 8 8 4\nkernel none\nend\n"
#define ADD_SIG	  "r:f32*,rw:f32*,u32"

static int load_status(const struct fixture *f, const char *text, gantry_image *ret)
{
	return gantry_image_load(f->s, GANTRY_KIND_NULL, text, strlen(text), ret);
}

static gantry_image load(const struct fixture *f, const char *text)
{
	gantry_image image = 0;

	ck_ok(load_status(f, text, &image));
	return image;
}

static int load_log(const struct fixture *f, const char *text, char *log, uint64_t log_bytes)
{
	gantry_image image;

	return gantry_image_load_log(f->s, GANTRY_KIND_NULL, text, strlen(text), log, log_bytes,
				     &image);
}

static gantry_kernel kernel_of(const struct fixture *f, gantry_image image, const char *name,
			       const char *sig)
{
	gantry_kernel k = 0;

	ck_ok(gantry_kernel_from(f->s, image, name, sig, &k));
	return k;
}

static int run_none(const struct fixture *f, gantry_kernel k)
{
	struct gantry_task task = { .kernel = k };
	gantry_ticket t;

	ck_ok(gantry_submit(f->s, f->q, &task, 1, &t));
	return outcome(f, t);
}

static uint64_t tenant_virtual(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->quota->virtual_used);
}

static int run_add(const struct fixture *f, gantry_kernel k, gantry_buffer x, gantry_buffer y)
{
	struct {
		uint64_t x, y;
		uint32_t n, pad;
	} args = { .n = 4 };
	struct gantry_access access[] = { { .buffer = x, .mode = GANTRY_R },
					  { .buffer = y, .mode = GANTRY_RW, .arg_off = 8 } };
	struct gantry_task task = {
		.kernel = k,
		.grid = { 1, 1, 1 },
		.block = { 32, 1, 1 },
		.args = &args,
		.args_bytes = sizeof(args),
		.access = access,
		.naccess = 2,
	};
	gantry_ticket t;

	ck_ok(gantry_submit(f->s, f->q, &task, 1, &t));
	return outcome(f, t);
}

START_TEST(test_image_is_loaded_its_kernels_run)
{
	struct fixture f = fixture_start(null_images, 1);
	gantry_buffer x = make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);
	gantry_buffer y = make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);
	gantry_image image = load(&f, ADD_IMAGE);
	gantry_kernel k = kernel_of(&f, image, "add", ADD_SIG);

	ck_assert_int_eq(run_add(&f, k, x, y), GANTRY_OK);
	ck_ok(gantry_image_free(f.s, image));
	ck_assert_int_eq(run_add(&f, k, x, y), GANTRY_OK); /* the kernel keeps what it needs */
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "none", "void", &k), GANTRY_E_HANDLE);
	fixture_end(&f);
}
END_TEST

START_TEST(test_image_refusals_say_what_is_wrong)
{
	struct fixture f = fixture_start(null_images, 1);
	gantry_image image = load(&f, ADD_IMAGE), none = 7;
	gantry_kernel k = 9;

	ck_assert_int_eq(load_status(&f, "noise", &none), GANTRY_E_IMAGE);
	ck_assert_str_eq(gantry_last_error(), "this is no image for a null device");
	ck_assert_int_eq(load_status(&f, "null-image 1\nkernel a 4\n", &none), GANTRY_E_IMAGE);
	ck_assert_str_eq(gantry_last_error(), "the image is cut short");
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "sub", "void", &k), GANTRY_E_NO_KERNEL);
	ck_assert_str_eq(gantry_last_error(), "the image has no kernel sub");
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "add", "r:f32*,rw:f32*,u64", &k),
			 GANTRY_E_SIGNATURE);
	ck_assert_str_eq(gantry_last_error(), "parameter 3 has 4 bytes, the signature says 8");
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "add", "r:f32*", &k), GANTRY_E_SIGNATURE);
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "add", NULL, &k), GANTRY_E_SIGNATURE);
	ck_assert_int_eq(gantry_kernel_from(f.s, image, "add", "junk", &k), GANTRY_E_SIGNATURE);
	ck_assert_uint_eq(none, 7);
	ck_assert_uint_eq(k, 9);
	fixture_end(&f);
}
END_TEST

START_TEST(test_image_for_devices_that_take_none_is_refused)
{
	struct fixture plain = fixture_start(null_plain, 1);
	gantry_image image;

	ck_assert_int_eq(load_status(&plain, ADD_IMAGE, &image), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_image_load(plain.s, GANTRY_KIND_CUDA, "x", 1, &image),
			 GANTRY_E_NO_DEVICE);
	ck_assert_int_eq(gantry_image_load(plain.s, GANTRY_KIND_CPU, "x", 1, &image),
			 GANTRY_E_UNSUPPORTED);
	fixture_end(&plain);
}
END_TEST

START_TEST(test_images_are_charged_and_given_back)
{
	struct fixture f = fixture_start(null_images, 1);
	uint64_t before = tenant_virtual(&f);
	gantry_image a = load(&f, ADD_IMAGE), b = load(&f, ADD_IMAGE);
	gantry_kernel k = kernel_of(&f, a, "none", "void");
	gantry_image c;

	ck_assert_uint_eq(tenant_virtual(&f), before + 2 * strlen(ADD_IMAGE));
	ck_ok(gantry_image_free(f.s, a));
	ck_ok(gantry_image_free(f.s, b));
	eventually(tenant_virtual(&f) == before + strlen(ADD_IMAGE)); /* the kernel's */
	ck_ok(gantry_kernel_free(f.s, k));
	eventually(tenant_virtual(&f) == before);
	gantry_store_relaxed(&f.h->quota->virtual_bytes, before + 8);
	ck_assert_int_eq(load_status(&f, ADD_IMAGE, &c), GANTRY_E_LIMIT);
	ck_assert_uint_eq(tenant_virtual(&f), before);
	fixture_end(&f);
}
END_TEST

START_TEST(test_images_by_the_thousand_come_and_go)
{
	struct fixture f = fixture_start(null_images, 1);
	uint64_t before = tenant_virtual(&f);
	char text[128];

	for (int i = 0; i < 2000; i++) {
		gantry_image image;
		gantry_kernel k;

		(void)snprintf(text, sizeof(text), "null-image 1\nkernel k%d 4\nend\n", i);
		image = load(&f, text);
		(void)snprintf(text, sizeof(text), "k%d", i);
		k = kernel_of(&f, image, text, "u32");
		ck_ok(gantry_image_free(f.s, image));
		ck_ok(gantry_kernel_free(f.s, k));
	}
	eventually(tenant_virtual(&f) == before);
	fixture_end(&f);
}
END_TEST

START_TEST(test_images_fill_the_table_and_no_more)
{
	struct fixture f = fixture_start(null_images, 1);
	gantry_image image;
	int status = GANTRY_OK;
	int n = 0;

	gantry_store_relaxed(&f.h->quota->nobjects, 50u);
	while (status == GANTRY_OK && ++n < 100)
		status = load_status(&f, ADD_IMAGE, &image);
	ck_assert_int_eq(status, GANTRY_E_LIMIT);
	ck_assert_int_eq(n, 51);
	fixture_end(&f);
}
END_TEST

START_TEST(test_image_freed_while_its_kernel_is_in_flight_goes_after_it)
{
	struct fixture f = fixture_start(null_images, 1);
	uint64_t before = tenant_virtual(&f);

	for (int i = 0; i < 200; i++) {
		gantry_image image = load(&f, ADD_IMAGE);
		gantry_kernel k = kernel_of(&f, image, "none", "void");
		struct gantry_task tasks[8];
		gantry_ticket t;
		int status;

		for (int n = 0; n < 8; n++)
			tasks[n] = (struct gantry_task){ .kernel = k };
		ck_ok(gantry_submit(f.s, f.q, tasks, 8, &t));
		ck_ok(gantry_kernel_free(f.s, k));
		ck_ok(gantry_image_free(f.s, image));
		status = outcome(&f, t);
		ck_assert(status == GANTRY_OK || status == GANTRY_E_HANDLE);
	}
	eventually(tenant_virtual(&f) == before);
	fixture_end(&f);
}
END_TEST

START_TEST(test_variant_of_an_image_serves_its_kind_of_device)
{
	struct fixture f = fixture_start(cpu_and_null, 2);
	struct gantry_queue_options on_null = { .kind = GANTRY_KIND_NULL };
	gantry_image image = load(&f, "null-image 1\nkernel other\nkernel wrong 8\nend\n");
	gantry_kernel k = find(&f, "empty");
	struct gantry_task task = { .kernel = k };
	gantry_queue q;
	gantry_ticket t;

	ck_ok(gantry_queue_open(f.s, &on_null, &q));
	ck_ok(gantry_submit(f.s, q, &task, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_E_NO_DEVICE);
	ck_assert_int_eq(gantry_kernel_variant(f.s, k, image, "wrong", GANTRY_KIND_NULL),
			 GANTRY_E_SIGNATURE);
	ck_assert_int_eq(gantry_kernel_variant(f.s, k, image, "other", GANTRY_KIND_CPU),
			 GANTRY_E_NO_KERNEL);
	ck_ok(gantry_kernel_variant(f.s, k, image, "other", GANTRY_KIND_NULL));
	ck_ok(gantry_image_free(f.s, image));
	ck_ok(gantry_submit(f.s, q, &task, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	/* The recipe of the variant is in the ledger. */
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_ok(gantry_submit(f.s, q, &task, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_ok(gantry_kernel_free(f.s, k));
	fixture_end(&f);
}
END_TEST

START_TEST(test_images_of_two_devices_load_where_they_are_used)
{
	struct fixture f = fixture_start(two_nulls, 2);
	struct gantry_queue_options second = { .device_mask = 2 };
	gantry_image image = load(&f, ADD_IMAGE);
	struct gantry_task task = { .kernel = kernel_of(&f, image, "none", "void") };
	gantry_queue q;
	gantry_ticket t;

	ck_ok(gantry_queue_open(f.s, &second, &q));
	ck_ok(gantry_submit(f.s, q, &task, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_int_eq(run_none(&f, task.kernel), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* ---- after a death ---- */

START_TEST(test_recovery_images_and_their_kernels_are_there_again)
{
	struct fixture f = fixture_start(null_images, 1);
	gantry_image image = load(&f, ADD_IMAGE), twin = load(&f, ADD_IMAGE);
	gantry_image freed = load(&f, "null-image 1\nkernel solo\nend\n");
	gantry_kernel none = kernel_of(&f, image, "none", "void");
	gantry_kernel solo = kernel_of(&f, freed, "solo", "void");
	uint64_t charged;

	ck_ok(gantry_image_free(f.s, freed));
	charged = tenant_virtual(&f);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(tenant_virtual(&f), charged);
	ck_assert_int_eq(run_none(&f, none), GANTRY_OK);
	ck_assert_int_eq(run_none(&f, solo), GANTRY_OK);
	(void)kernel_of(&f, twin, "add", ADD_SIG);
	ck_ok(gantry_image_free(f.s, image));
	ck_ok(gantry_kernel_free(f.s, solo));
	ck_assert_int_eq(run_none(&f, none), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_images_whose_store_is_lost_are_stale)
{
	struct fixture f = fixture_start(null_images, 1);
	uint64_t before = tenant_virtual(&f);
	gantry_image image = load(&f, ADD_IMAGE);
	gantry_kernel k = kernel_of(&f, image, "none", "void");

	inproc_crash(f.h, f.index);
	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++)
		if (f.h->kept[i].used)
			f.h->kept[i].bytes = 1;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(run_none(&f, k), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_image_free(f.s, image), GANTRY_E_HANDLE);
	ck_assert_uint_eq(tenant_virtual(&f), before);
	(void)kernel_of(&f, load(&f, ADD_IMAGE), "none", "void");
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_recipes_that_cannot_be_are_dropped)
{
	struct fixture f = fixture_start(null_images, 1);
	gantry_image image = load(&f, ADD_IMAGE);
	gantry_kernel a = kernel_of(&f, image, "none", "void");
	gantry_kernel b = kernel_of(&f, image, "add", ADD_SIG);
	gantry_image other = load(&f, "null-image 1\nkernel x\nend\n");

	inproc_crash(f.h, f.index);
	ledger_object(&f, a)->kernel.own.off += 32;	    /* between grains */
	ledger_object(&f, b)->kernel.own.symbol_bytes -= 1; /* no NUL there */
	ledger_object(&f, other)->image.own.off = ledger_object(&f, image)->image.own.off;
	ledger_object(&f, other)->image.own.bytes = 4096; /* on another image */
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(run_none(&f, a), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_kernel_free(f.s, b), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_image_free(f.s, other), GANTRY_E_HANDLE);
	(void)kernel_of(&f, image, "none", "void");
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_half_made_image_is_undone)
{
	struct fixture f = fixture_start(null_images, 1);
	uint64_t before = tenant_virtual(&f);
	gantry_image image = load(&f, ADD_IMAGE);

	inproc_crash(f.h, f.index);
	ledger_object(&f, image)->made_by = host_session(&f)->ledger.queues[0].done + 1;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(tenant_virtual(&f), before);
	ck_assert_int_eq(gantry_image_free(f.s, image), GANTRY_E_HANDLE);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_kernel_found_by_name_keeps_every_modules_images)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_kernel k = find(&f, "empty");

	/* Not bound to the first module that had it. */
	ck_assert_str_eq(ledger_object(&f, k)->kernel.name, "/empty");
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(run_none(&f, k), GANTRY_OK);
	inproc_crash(f.h, f.index);
	ledger_object(&f, k)->kernel.sig_hash ^= 1; /* another signature by now */
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(run_none(&f, k), GANTRY_E_NO_KERNEL);
	fixture_end(&f);
}
END_TEST

/* ---- compiling ---- */

START_TEST(test_source_is_compiled_and_its_log_comes_back)
{
	struct fixture f = fixture_start(null_images, 1);
	static const char good[] = "null-source 1\nlog a warning\nkernel k 4\n";
	static const char bad[] = "null-source 1\nkernel k 4\nerror line 3: no such thing\n";
	char log[64] = "untouched";
	gantry_image image;

	ck_ok(gantry_image_load_log(f.s, GANTRY_KIND_NULL, good, strlen(good), log, sizeof(log),
				    &image));
	ck_assert_str_eq(log, "a warning\n");
	(void)kernel_of(&f, image, "k", "u32");
	ck_assert_int_eq(load_log(&f, bad, log, sizeof(log)), GANTRY_E_IMAGE);
	ck_assert_str_eq(log, "error line 3: no such thing\n");
	ck_assert_str_eq(gantry_last_error(), "error line 3: no such thing");
	ck_assert_int_eq(load_log(&f, bad, log, 6), GANTRY_E_IMAGE);
	ck_assert_str_eq(log, "error");
	ck_assert_int_eq(load_log(&f, bad, log, 1), GANTRY_E_IMAGE);
	ck_assert_str_eq(log, "");
	fixture_end(&f);
}
END_TEST

START_TEST(test_compile_bombs_are_ended_and_others_go_on)
{
	struct fixture f = fixture_start(null_images, 1);
	static const struct {
		const char *line;
		int status;
		const char *text;
	} bombs[] = {
		{ "spin", GANTRY_E_LIMIT,
		  "compiling took more than " }, /* processor time, or time */
		{ "sleep", GANTRY_E_LIMIT, "compiling took more than 3 s" },
		{ "crash", GANTRY_E_IMAGE, "the compiler crashed (signal 6)" },
		{ "exit", GANTRY_E_IMAGE, "the compiler gave up (status 9)" },
		{ "grow", GANTRY_E_IMAGE, "what was compiled is larger than 1 MiB" },
	};
	gantry_image image = load(&f, ADD_IMAGE);
	gantry_kernel k = kernel_of(&f, image, "none", "void");
	char text[64];

	for (size_t i = 0; i < sizeof(bombs) / sizeof(bombs[0]); i++) {
		(void)snprintf(text, sizeof(text), "null-source 1\n%s\n", bombs[i].line);
		ck_assert_int_eq(load_status(&f, text, &image), bombs[i].status);
		ck_assert_msg(strstr(gantry_last_error(), bombs[i].text), "%s: %s", bombs[i].line,
			      gantry_last_error());
		ck_assert_int_eq(run_none(&f, k), GANTRY_OK);
	}
	fixture_end(&f);
}
END_TEST

struct loader {
	struct fixture *f;
	uint32_t ended;
	int status;
};

static void *load_slowly(void *arg)
{
	struct loader *l = arg;
	gantry_image image;

	l->status = load_status(l->f, "null-source 1\nsleep\n", &image);
	gantry_store_release(&l->ended, 1u);
	return NULL;
}

START_TEST(test_compiling_holds_up_neither_tasks_nor_control_operations)
{
	struct fixture f = fixture_start(null_images, 1);
	struct loader l = { .f = &f };
	gantry_kernel k = kernel_of(&f, load(&f, ADD_IMAGE), "none", "void");
	pthread_t thread;
	unsigned int n = 0;

	ck_assert_int_eq(pthread_create(&thread, NULL, load_slowly, &l), 0);
	while (!gantry_load_acquire(&l.ended)) {
		gantry_buffer b = make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);

		ck_assert_int_eq(run_none(&f, k), GANTRY_OK);
		ck_ok(gantry_free(f.s, b));
		n++;
	}
	(void)pthread_join(thread, NULL);
	ck_assert_int_eq(l.status, GANTRY_E_LIMIT);
	ck_assert_uint_gt(n, 100);
	fixture_end(&f);
}
END_TEST

START_TEST(test_session_that_ends_while_it_compiles_is_gone_at_once)
{
	struct fixture f = fixture_start(null_images, 1);
	struct loader l = { .f = &f };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, load_slowly, &l), 0);
	while (gantry_load_acquire(&host_session(&f)->ledger.queues[0].done) < 4)
		sched_yield();
	inproc_detach(f.h, f.index);
	(void)pthread_join(thread, NULL);
	ck_assert_int_eq(l.status, GANTRY_E_DETACHED);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("images");
	TCase *tc = gantry_unit_case(suite, "images");

	tcase_add_test(tc, test_image_is_loaded_its_kernels_run);
	tcase_add_test(tc, test_image_refusals_say_what_is_wrong);
	tcase_add_test(tc, test_image_for_devices_that_take_none_is_refused);
	tcase_add_test(tc, test_images_are_charged_and_given_back);
	tcase_add_test(tc, test_images_by_the_thousand_come_and_go);
	tcase_add_test(tc, test_images_fill_the_table_and_no_more);
	tcase_add_test(tc, test_image_freed_while_its_kernel_is_in_flight_goes_after_it);
	tcase_add_test(tc, test_variant_of_an_image_serves_its_kind_of_device);
	tcase_add_test(tc, test_images_of_two_devices_load_where_they_are_used);
	tcase_add_test(tc, test_recovery_images_and_their_kernels_are_there_again);
	tcase_add_test(tc, test_recovery_images_whose_store_is_lost_are_stale);
	tcase_add_test(tc, test_recovery_recipes_that_cannot_be_are_dropped);
	tcase_add_test(tc, test_recovery_half_made_image_is_undone);
	tcase_add_test(tc, test_recovery_kernel_found_by_name_keeps_every_modules_images);
	tcase_add_test(tc, test_source_is_compiled_and_its_log_comes_back);
	tcase_add_test(tc, test_compile_bombs_are_ended_and_others_go_on);
	tcase_add_test(tc, test_compiling_holds_up_neither_tasks_nor_control_operations);
	tcase_add_test(tc, test_session_that_ends_while_it_compiles_is_gone_at_once);
	return gantry_unit_run(suite);
}
