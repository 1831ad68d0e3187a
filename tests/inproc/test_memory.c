/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers: charged exactly, given back when their last users have finished, shared with rights. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/device.h"
#include "guest-shim/helpers.h"
#include "guest-shim/session.h"
#include "tests/inproc/fixture.h"

#define N  1024u
#define MB (1ull << 20)

static uint64_t tenant_mem(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->quota->mem_used);
}

static uint64_t tenant_virtual(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->quota->virtual_used);
}

static uint64_t pool(const struct fixture *f)
{
	return gantry_load_acquire(&f->h->pages[0]->hdr.mem_used);
}

START_TEST(test_memory_charges_follow_use_and_free)
{
	struct fixture f = fixture_start(one_cpu, 1);
	uint64_t before = tenant_virtual(&f);
	gantry_buffer b = make_buffer(&f, 5000, GANTRY_ALLOC_DEVICE);

	ck_assert_uint_eq(tenant_virtual(&f), before + 5000);
	ck_assert_uint_eq(tenant_mem(&f), 0);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, 1250, 1)), GANTRY_OK);
	ck_assert_uint_eq(tenant_mem(&f), 8192);
	ck_assert_uint_eq(pool(&f), 8192);
	ck_ok(gantry_free(f.s, b));
	eventually(tenant_mem(&f) == 0 && pool(&f) == 0 && tenant_virtual(&f) == before);
	fixture_end(&f);
}
END_TEST

START_TEST(test_memory_limits_refuse_and_charge_nothing)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer a = make_buffer(&f, 3 * MB, GANTRY_ALLOC_DEVICE);
	gantry_buffer b = make_buffer(&f, 2 * MB, GANTRY_ALLOC_DEVICE);
	gantry_buffer c;

	gantry_store_relaxed(&f.h->quota->mem_bytes, 4 * MB);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, a, N, 1)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_E_LIMIT);
	gantry_store_relaxed(&f.h->quota->mem_bytes, 8 * MB);
	gantry_store_relaxed(&f.h->pages[0]->hdr.mem_bytes, 4 * MB);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(tenant_mem(&f), 3 * MB);
	ck_assert_uint_eq(pool(&f), 3 * MB);
	ck_assert_uint_eq(host_session(&f)->ledger.hdr->resident_used, 3 * MB);
	gantry_store_relaxed(&f.h->quota->virtual_bytes, 5 * MB);
	ck_assert_int_eq(gantry_alloc(f.s, MB, GANTRY_ALLOC_DEVICE, &c), GANTRY_E_LIMIT);
	gantry_store_relaxed(&f.h->pages[0]->hdr.mem_bytes, 8 * MB);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

static void fill_pattern(uint8_t *bytes, uint64_t n, uint64_t salt)
{
	for (uint64_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)((i * 2654435761u + salt) >> 16);
}

static void check_round_trip(const struct fixture *f, gantry_buffer b, uint64_t off, uint64_t n)
{
	uint8_t *from = malloc(n), *to = calloc(1, n);

	fill_pattern(from, n, off + n);
	ck_ok(gantry_write(f->s, b, off, from, n));
	ck_ok(gantry_read(f->s, b, off, to, n));
	ck_assert(memcmp(from, to, n) == 0);
	free(from);
	free(to);
}

START_TEST(test_copy_in_lanes_moves_the_same_bytes)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 48 * MB, GANTRY_ALLOC_DEVICE);

	for (uint32_t lanes = 1; lanes <= 4; lanes++) {
		f.s->copy_lanes = lanes;
		check_round_trip(&f, b, 0, 8 * MB);
		check_round_trip(&f, b, 12345, 17 * MB + 4097);
		check_round_trip(&f, b, 1, 40 * MB - 1);
	}
	fixture_end(&f);
}
END_TEST

START_TEST(test_copy_in_lanes_without_room_takes_the_one_way_there_is)
{
	struct fixture f = { .h = inproc_start(one_cpu, 1) };
	struct gantry_limits small = { .heap_bytes = 4 * MB };
	gantry_buffer b;

	fixture_session(&f, &small);
	b = make_buffer(&f, 16 * MB, GANTRY_ALLOC_DEVICE);
	f.s->copy_lanes = 4;
	check_round_trip(&f, b, 7, 16 * MB - 7);
	fixture_end(&f);
}
END_TEST

struct ender {
	struct fixture *f;
	uint64_t after;
};

static void *end_session(void *arg)
{
	struct ender *e = arg;

	eventually(gantry_load_acquire(&host_session(e->f)->ledger.hdr->bytes_in) >= e->after);
	inproc_detach(e->f->h, e->f->index);
	return NULL;
}

START_TEST(test_copy_in_lanes_that_fails_says_why_and_leaves_no_thread)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 48 * MB, GANTRY_ALLOC_DEVICE);
	struct ender e = { .f = &f, .after = 8 * MB };
	uint8_t *from = calloc(48, MB);
	pthread_t thread;
	int status = GANTRY_OK;

	f.s->copy_lanes = 4;
	ck_assert_int_eq(pthread_create(&thread, NULL, end_session, &e), 0);
	while (status == GANTRY_OK)
		status = gantry_write(f.s, b, 0, from, 48 * MB);
	ck_assert_int_eq(status, GANTRY_E_DETACHED);
	ck_assert_str_ne(gantry_last_error(), "");
	(void)pthread_join(thread, NULL);
	free(from);
	fixture_end(&f);
}
END_TEST

START_TEST(test_copy_knows_how_many_cpus_its_group_has)
{
	ck_assert_uint_eq(gantry_help_parse_quota("max 100000\n"), 0);
	ck_assert_uint_eq(gantry_help_parse_quota("250000 100000\n"), 2);
	ck_assert_uint_eq(gantry_help_parse_quota("50000 100000\n"), 1);
	ck_assert_uint_eq(gantry_help_parse_quota("50000 0\n"), 0);
	ck_assert_uint_eq(gantry_help_parse_quota("50000"), 0);
	ck_assert_uint_eq(gantry_help_parse_quota(""), 0);
	ck_assert_uint_ge(gantry_help_cpus(), 1);
}
END_TEST

START_TEST(test_memory_objects_have_a_limit)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b;
	gantry_image image;
	gantry_kernel k;

	gantry_store_relaxed(&f.h->quota->nobjects, 2u);
	(void)make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);
	(void)make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);
	ck_assert_int_eq(gantry_alloc(f.s, 64, GANTRY_ALLOC_DEVICE, &b), GANTRY_E_LIMIT);
	ck_assert_int_eq(gantry_alloc(f.s, 64, GANTRY_ALLOC_SHARED, &b), GANTRY_E_LIMIT);
	ck_assert_int_eq(gantry_kernel_find(f.s, "empty", NULL, &k), GANTRY_E_LIMIT);
	ck_assert_int_eq(gantry_image_find(f.s, "core", &image), GANTRY_E_LIMIT);
	ck_assert_uint_eq(tenant_virtual(&f), 128);
	fixture_end(&f);
}
END_TEST

START_TEST(test_memory_freed_buffer_serves_earlier_tasks_only)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_DEVICE);
	struct gantry_access access = { .buffer = b, .mode = GANTRY_R, .arg_off = GANTRY_NO_ARG };
	struct gantry_task use = { .access = &access, .naccess = 1 };
	const struct gantry_queue_options second = { .device_mask = 2 };
	gantry_ticket before, after;
	gantry_queue q;

	ck_ok(gantry_queue_open(f.s, &second, &q));
	pause_queue(&f, q, 1);
	before = put_fill(&f, q, b, N, 4);
	ck_ok(gantry_free(f.s, b));
	eventually(gantry_load_acquire(&ledger_object(&f, b)->state) == GANTRY_OBJECT_DYING);
	ck_ok(gantry_submit(f.s, f.q, &use, 1, &after));
	ck_assert_int_eq(outcome(&f, after), GANTRY_E_HANDLE);
	pause_queue(&f, q, 0);
	ck_assert_int_eq(outcome(&f, before), GANTRY_OK);
	eventually(gantry_load_acquire(&ledger_object(&f, b)->state) == GANTRY_OBJECT_FREE);
	ck_assert_uint_eq(tenant_mem(&f), 0);
	fixture_end(&f);
}
END_TEST

/* Handles go stale and slots are used again on one thread while another resolves them. */
START_TEST(test_memory_buffers_come_and_go_while_two_devices_use_them)
{
	struct fixture f = fixture_start(two_cpus, 2);
	const struct gantry_queue_options second = { .device_mask = 2 };
	gantry_ticket t = 0, u = 0;
	gantry_queue q;

	ck_ok(gantry_queue_open(f.s, &second, &q));
	for (uint32_t i = 0; i < 300; i++) {
		gantry_buffer b = make_buffer(&f, 8192,
					      i % 3 ? GANTRY_ALLOC_DEVICE : GANTRY_ALLOC_SHARED);

		t = put_fill(&f, f.q, b, N, i);
		u = put_fill(&f, q, b, N, i);
		ck_ok(gantry_free(f.s, b));
	}
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, u), GANTRY_OK);
	eventually(tenant_mem(&f) == 0);
	fixture_end(&f);
}
END_TEST

struct asking {
	struct fixture *f;
	uint64_t object; /* atomic */
	uint32_t stop;	 /* atomic */
	int wrong;	 /* an answer that cannot be */
};

static void *keep_asking(void *arg)
{
	struct asking *a = arg;
	uint8_t answer[112];

	while (!gantry_load_acquire(&a->stop)) {
		int r = gantry_device_ask(a->f->s, GANTRY_ASK_ADDRESS, 1,
					  gantry_load_acquire(&a->object),
					  (struct gantry_ask_numbers){ { 0 } }, answer,
					  sizeof(answer));

		if (r != GANTRY_E_UNSUPPORTED && r != GANTRY_E_HANDLE && r != GANTRY_E_ACCESS)
			a->wrong = r;
	}
	return NULL;
}

/* The question is answered on the other device's thread, which backs the buffer for it; the home thread frees it. */
START_TEST(test_memory_buffer_that_is_freed_while_its_address_is_asked_is_given_back)
{
	struct fixture f = fixture_start(two_cpus, 2);
	struct asking a = { .f = &f };
	uint64_t end_ns = gantry_now_ns() + GANTRY_NS_PER_S;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, keep_asking, &a), 0);
	while (gantry_now_ns() < end_ns) {
		gantry_buffer b = make_buffer(&f, 4096, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED);

		gantry_store_release(&a.object, b);
		ck_ok(gantry_free(f.s, b));
	}
	gantry_store_release(&a.stop, 1u);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(a.wrong, 0);
	eventually(tenant_virtual(&f) == 0);
	ck_assert_uint_eq(tenant_mem(&f), 0);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		ck_assert_uint_eq(host_session(&f)->ledger.objects[i].buffer.charged_bytes, 0);
	fixture_end(&f);
}
END_TEST

/* ---- sharing ---- */

START_TEST(test_share_two_sessions_see_the_same_bytes)
{
	struct fixture f = fixture_start(two_cpus, 2);
	struct fixture g = { .h = f.h };
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	gantry_buffer theirs;
	uint32_t out[N];
	uint64_t bytes;
	int fd;

	fixture_session(&g, NULL);
	ck_ok(gantry_share(f.s, b, GANTRY_RW, &fd));
	ck_ok(gantry_adopt(g.s, fd, &theirs, &bytes));
	ck_assert_uint_eq(bytes, N * 4);
	ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, theirs, N, 77)), GANTRY_OK);
	ck_ok(gantry_read(f.s, b, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[N - 1], 77);
	/* One that dies finds it again. */
	inproc_crash(f.h, g.index);
	ck_assert_int_eq(inproc_recover(f.h, g.index, 0), 0);
	ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, theirs, N, 78)), GANTRY_OK);
	ck_ok(gantry_read(f.s, b, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[N - 1], 78);
	gantry_fd_close(fd);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

START_TEST(test_share_is_charged_before_others_can_write)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, MB, GANTRY_ALLOC_SHARED);
	int fd;

	gantry_store_relaxed(&f.h->quota->mem_bytes, MB / 2);
	ck_assert_int_eq(gantry_share(f.s, b, GANTRY_RW, &fd), GANTRY_E_LIMIT);
	ck_assert_uint_eq(tenant_mem(&f), 0);
	gantry_store_relaxed(&f.h->quota->mem_bytes, MB);
	ck_ok(gantry_share(f.s, b, GANTRY_RW, &fd));
	ck_assert_uint_eq(tenant_mem(&f), MB);
	gantry_fd_close(fd);
	fixture_end(&f);
}
END_TEST

START_TEST(test_share_for_reading_cannot_be_written_nor_passed_on_for_writing)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture g = { .h = f.h };
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	gantry_buffer theirs;
	uint64_t bytes, share_id;
	int fd, again = -7;

	fixture_session(&g, NULL);
	ck_ok(gantry_share(f.s, b, GANTRY_R, &fd));
	ck_ok(gantry_adopt(g.s, fd, &theirs, &bytes));
	ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, theirs, N, 77)), GANTRY_E_ACCESS);
	ck_assert_int_eq(gantry_engine_export(f.h->engine, host_session(&g)->id, theirs, GANTRY_RW,
					      &again, &bytes, &share_id),
			 GANTRY_E_ACCESS);
	ck_assert_int_eq(again, -7);
	ck_assert_int_eq(gantry_engine_export(f.h->engine, host_session(&g)->id, theirs, GANTRY_R,
					      &again, &bytes, &share_id),
			 GANTRY_OK);
	gantry_fd_close(again);
	gantry_fd_close(fd);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

START_TEST(test_share_token_of_a_freed_buffer_opens_no_other)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture g = { .h = f.h };
	gantry_buffer b, next = 0, theirs;
	uint32_t slot;
	int fd;

	fixture_session(&g, NULL);
	b = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	slot = GANTRY_HANDLE_SLOT(b);
	ck_ok(gantry_share(f.s, b, GANTRY_RW, &fd));
	ck_ok(gantry_free(f.s, b));
	eventually(gantry_load_acquire(&ledger_object(&f, b)->state) == GANTRY_OBJECT_FREE);
	gantry_store_relaxed(&f.h->quota->nobjects, slot + 1);
	next = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	ck_assert_uint_eq(GANTRY_HANDLE_SLOT(next), slot);
	gantry_store_relaxed(&f.h->quota->nobjects, 0u);
	ck_assert_int_eq(gantry_adopt(g.s, fd, &theirs, NULL), GANTRY_E_NOT_FOUND);
	gantry_fd_close(fd);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

START_TEST(test_share_descriptor_is_dropped_with_the_last_handle)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture g = { .h = f.h };
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	gantry_buffer first, second;
	unsigned nkept = 0;
	int fd;

	fixture_session(&g, NULL);
	ck_ok(gantry_share(f.s, b, GANTRY_RW, &fd));
	ck_ok(gantry_adopt(g.s, fd, &first, NULL));
	ck_ok(gantry_adopt(g.s, fd, &second, NULL));
	ck_ok(gantry_free(g.s, first));
	eventually(gantry_load_acquire(&ledger_object(&g, first)->state) == GANTRY_OBJECT_FREE);
	inproc_crash(f.h, g.index);
	ck_assert_int_eq(inproc_recover(f.h, g.index, 0), 0);
	ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, second, N, 5)), GANTRY_OK);
	ck_ok(gantry_free(g.s, second));
	eventually(gantry_load_acquire(&ledger_object(&g, second)->state) == GANTRY_OBJECT_FREE);
	pthread_mutex_lock(&f.h->kept_lock);
	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++)
		nkept += f.h->kept[i].used && f.h->kept[i].session_id == host_session(&g)->id;
	pthread_mutex_unlock(&f.h->kept_lock);
	ck_assert_uint_eq(nkept, 0);
	gantry_fd_close(fd);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

/* The control thread exports and imports while device threads end the session. */
START_TEST(test_share_races_with_the_sessions_end)
{
	struct fixture f = fixture_start(two_cpus, 2);

	for (int i = 0; i < 30; i++) {
		struct fixture g = { .h = f.h };
		uint64_t bytes, share_id, id;
		gantry_buffer b;
		int fd;

		fixture_session(&g, &(struct gantry_limits){ .heap_bytes = 1 << 20, .nslots = 16 });
		b = make_buffer(&g, 4096, GANTRY_ALLOC_SHARED);
		ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, b, N, 1)), GANTRY_OK);
		id = host_session(&g)->id;
		ck_assert_int_eq(gantry_engine_detach(f.h->engine, id, GANTRY_E_DETACHED), 0);
		while (gantry_engine_export(f.h->engine, id, b, GANTRY_R, &fd, &bytes, &share_id) ==
		       GANTRY_OK) {
			uint64_t handle;

			(void)gantry_engine_import(f.h->engine, id, share_id, bytes, GANTRY_R, fd,
						   &handle);
			gantry_fd_close(fd);
		}
		eventually(gantry_load_acquire(&host_session(&g)->detached));
		inproc_detach(f.h, g.index);
		gantry_close(g.s);
	}
	fixture_end(&f);
}
END_TEST

/* ---- images ---- */

START_TEST(test_image_unknown_or_brought_along_is_refused)
{
	struct fixture f = fixture_start(one_cpu, 1);
	char bytes[64] = "\177ELF";
	gantry_image image;
	gantry_kernel k;

	ck_assert_int_eq(gantry_image_find(f.s, "nothing", &image), GANTRY_E_NOT_FOUND);
	ck_assert_int_eq(gantry_image_find(f.s, "../core", &image), GANTRY_E_NOT_FOUND);
	ck_assert_int_eq(gantry_image_load(f.s, GANTRY_KIND_CPU, bytes, sizeof(bytes), &image),
			 GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_kernel_find(f.s, "no_such_kernel", NULL, &k), GANTRY_E_NO_KERNEL);
	ck_assert_int_eq(gantry_kernel_find(f.s, "spin", "u32", &k), GANTRY_E_SIGNATURE);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");
	TCase *tc = gantry_unit_case(suite, "memory");

	tcase_add_test(tc, test_memory_charges_follow_use_and_free);
	tcase_add_test(tc, test_memory_limits_refuse_and_charge_nothing);
	tcase_add_test(tc, test_copy_in_lanes_moves_the_same_bytes);
	tcase_add_test(tc, test_copy_in_lanes_without_room_takes_the_one_way_there_is);
	tcase_add_test(tc, test_copy_in_lanes_that_fails_says_why_and_leaves_no_thread);
	tcase_add_test(tc, test_copy_knows_how_many_cpus_its_group_has);
	tcase_add_test(tc, test_memory_objects_have_a_limit);
	tcase_add_test(tc, test_memory_freed_buffer_serves_earlier_tasks_only);
	tcase_add_test(tc, test_memory_buffers_come_and_go_while_two_devices_use_them);
	tcase_add_test(tc,
		       test_memory_buffer_that_is_freed_while_its_address_is_asked_is_given_back);
	tcase_add_test(tc, test_share_two_sessions_see_the_same_bytes);
	tcase_add_test(tc, test_share_is_charged_before_others_can_write);
	tcase_add_test(tc, test_share_for_reading_cannot_be_written_nor_passed_on_for_writing);
	tcase_add_test(tc, test_share_token_of_a_freed_buffer_opens_no_other);
	tcase_add_test(tc, test_share_descriptor_is_dropped_with_the_last_handle);
	tcase_add_test(tc, test_share_races_with_the_sessions_end);
	tcase_add_test(tc, test_image_unknown_or_brought_along_is_refused);
	return gantry_unit_run(suite);
}
