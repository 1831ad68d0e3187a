/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices with windows: slabs come and go, bytes stay whole, charges are exact. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/inproc/bytes.h"

static const char *const one_window[] = { "cpu cores=1 window=yes" };
static const char *const two_windows[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes" };
static const char *const cpu_and_window[] = { "cpu cores=1", "cpu cores=1 window=yes" };
static const char *const window_and_cpu[] = { "cpu cores=2 window=yes", "cpu cores=1" };

START_TEST(test_buffers_of_all_sizes_keep_their_bytes)
{
	static const uint64_t sizes[] = {
		64, 4096, 5000, 100000, MIB, 2 * MIB, 3 * MIB + 4, 9 * MIB
	};
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b[8];
	uint64_t charged = 0;

	for (uint32_t i = 0; i < 8; i++) {
		b[i] = make_buffer(&f, sizes[i], GANTRY_ALLOC_DEVICE);
		check_zero(&f, f.q, b[i], sizes[i]);
		paint(&f, f.q, b[i], sizes[i], i);
		charged += (sizes[i] + 4095) & ~4095ull;
		ck_assert_uint_eq(ledger_object(&f, b[i])->buffer.place, GANTRY_PLACE_WINDOW);
		ck_assert_uint_eq(header(&f)->resident_used, charged);
	}
	for (uint32_t i = 0; i < 8; i++)
		check(&f, f.q, b[i], sizes[i], i);
	ck_assert_uint_eq(f.h->pages[0]->hdr.mem_used, charged);
	ck_assert_uint_ge(header(&f)->window_bytes, charged);
	fixture_end(&f);
}
END_TEST

START_TEST(test_memory_of_a_freed_buffer_comes_back_zero)
{
	struct fixture f = fixture_start(one_window, 1);

	for (uint32_t i = 0; i < 200; i++) {
		uint64_t bytes = (i % 7 + 1) * 700000 & ~3ull;
		gantry_buffer b = make_buffer(&f, bytes, GANTRY_ALLOC_DEVICE);

		if (i % 3)
			check_zero(&f, f.q, b, bytes);
		paint(&f, f.q, b, bytes, i);
		if (i % 5 == 0)
			check(&f, f.q, b, bytes, i);
		ck_ok(gantry_free(f.s, b));
	}
	eventually(gantry_load_relaxed(&header(&f)->resident_used) == 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_slabs_that_nobody_uses_go_back)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b[4];

	for (uint32_t i = 0; i < 4; i++) {
		b[i] = make_buffer(&f, 64 * MIB, GANTRY_ALLOC_DEVICE);
		paint(&f, f.q, b[i], 4096, i);
	}
	ck_assert_uint_ge(inproc_slab_bytes(f.h, f.index), 256 * MIB);
	for (uint32_t i = 0; i < 4; i++)
		ck_ok(gantry_free(f.s, b[i]));
	eventually(inproc_slab_bytes(f.h, f.index) <= 32 * MIB);
	eventually(gantry_load_relaxed(&header(&f)->window_bytes) ==
		   inproc_slab_bytes(f.h, f.index));
	fixture_end(&f);
}
END_TEST

START_TEST(test_next_allocation_needs_no_agent)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b;

	eventually(inproc_slab_bytes(f.h, f.index) >= 4 * MIB &&
		   gantry_load_relaxed(&header(&f)->window_bytes) >= 4 * MIB);
	inproc_pause_slabs(f.h, true);
	b = make_buffer(&f, 2 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, f.q, b, 2 * MIB, 1);
	check(&f, f.q, b, 2 * MIB, 1);
	inproc_pause_slabs(f.h, false);
	fixture_end(&f);
}
END_TEST

static uint32_t nasked(struct inproc_host *h)
{
	uint32_t n;

	pthread_mutex_lock(&h->slabs.lock);
	n = h->slabs.nasked + h->slabs.ndropped;
	pthread_mutex_unlock(&h->slabs.lock);
	return n;
}

/* A processor washes more slowly than a device, and gets a moment for it. */
static void make_use_and_free(const struct fixture *f, uint32_t n, uint64_t bytes)
{
	gantry_buffer b[8];

	for (uint32_t i = 0; i < n; i++) {
		b[i] = make_buffer(f, bytes, GANTRY_ALLOC_DEVICE);
		ck_assert_int_eq(outcome(f, put_fill(f, f->q, b[i], 4096, 7)), GANTRY_OK);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_ok(gantry_free(f->s, b[i]));
	(void)usleep(1000);
}

/* To map a slab costs far more than to use a buffer. */
START_TEST(test_buffers_made_and_freed_in_turn_need_no_agent)
{
	static const struct {
		uint32_t n;
		uint64_t bytes;
	} uses[] = { { 1, 2 * MIB }, { 1, 5 * MIB }, { 5, 2 * MIB }, { 8, 100000 } };

	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(uses); i++) {
		struct fixture f = fixture_start(one_window, 1);

		for (uint32_t round = 0; round < 200; round++)
			make_use_and_free(&f, uses[i].n, uses[i].bytes);
		ck_assert_msg(nasked(f.h) <= 16, "use %u: %u slabs were asked for or given back", i,
			      nasked(f.h));
		fixture_end(&f);
	}
}
END_TEST

/* What ends in the middle of a slab is washed as well, and its place is used again. */
START_TEST(test_places_of_small_buffers_are_used_again)
{
	struct fixture f = fixture_start(one_window, 1);
	uint64_t mapped;

	for (uint32_t round = 0; round < 50; round++)
		make_use_and_free(&f, 8, 300000);
	mapped = gantry_load_relaxed(&header(&f)->window_bytes);
	ck_assert_msg(mapped <= 32 * MIB, "%llu bytes are mapped", (unsigned long long)mapped);
	fixture_end(&f);
}
END_TEST

START_TEST(test_task_waits_for_slabs_and_others_go_on)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_queue other = queue_on(&f, 0);
	gantry_buffer b;
	gantry_ticket t;

	eventually(gantry_load_relaxed(&header(&f)->window_bytes) >= 4 * MIB);
	inproc_pause_slabs(f.h, true);
	b = make_buffer(&f, 32 * MIB, GANTRY_ALLOC_DEVICE);
	t = put_fill(&f, f.q, b, 8 * MIB, 7);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(outcome(&f, put_empty(&f, other)), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 0), GANTRY_E_TIMEOUT);
	inproc_pause_slabs(f.h, false);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_refusal_of_slabs_is_no_memory)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	gantry_buffer small, large;

	f.h->slabs.limit_bytes = 16 * MIB;
	fixture_session(&f, NULL);
	large = make_buffer(&f, 32 * MIB, GANTRY_ALLOC_DEVICE);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, large, 16, 7)), GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(header(&f)->resident_used, 0);
	ck_assert_uint_eq(f.h->pages[0]->hdr.mem_used, 0);
	small = make_buffer(&f, 8 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, f.q, small, 8 * MIB, 3);
	check(&f, f.q, small, 8 * MIB, 3);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, large, 16, 7)), GANTRY_E_NO_MEMORY);
	check(&f, f.q, small, 8 * MIB, 3);
	fixture_end(&f);
}
END_TEST

/* What was freed before is on its way back while more is asked for, and the refusal is of the time before it came. */
START_TEST(test_refusal_that_crosses_slabs_on_their_way_back_is_none)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	const unsigned int flags = GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED;
	gantry_buffer before, after;
	gantry_ticket t;

	/* More than may stay mapped when nobody uses it. */
	f.h->slabs.limit_bytes = 192 * MIB;
	fixture_session(&f, NULL);
	before = make_buffer(&f, 128 * MIB, flags);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, before, 4096, 7)), GANTRY_OK);
	f.h->slabs.late_refusals = true;
	after = make_buffer(&f, 128 * MIB, flags);
	/* While it runs the one goes and the other is wanted: slabs are asked for before those of the first are let go. */
	(void)put_spin(&f, f.q, 50 * GANTRY_NS_PER_MS);
	ck_ok(gantry_free(f.s, before));
	t = put_fill(&f, f.q, after, 4096, 8);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	f.h->slabs.late_refusals = false;
	fixture_end(&f);
}
END_TEST

/* A buffer whose address is told cannot go to host memory for a while, but what is mapped and nobody's goes back for it. */
START_TEST(test_fixed_buffer_gets_what_is_mapped_for_nobody)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	const unsigned int flags = GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED;
	gantry_buffer first, between, last, large;

	fixture_session(&f, NULL);
	first = make_buffer(&f, 24 * MIB, flags);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, first, 4096, 7)), GANTRY_OK);
	between = make_buffer(&f, 4 * MIB, flags);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, between, 4096, 7)), GANTRY_OK);
	last = make_buffer(&f, 24 * MIB, flags);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, last, 4096, 7)), GANTRY_OK);
	ck_ok(gantry_free(f.s, first));
	f.h->slabs.limit_bytes = 60 * MIB;
	large = make_buffer(&f, 32 * MIB, flags);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, large, 4096, 8)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_limit_of_the_tenant_is_exact)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	gantry_buffer b[17];

	f.h->quota->mem_bytes = 16 * MIB;
	fixture_session(&f, NULL);
	for (uint32_t i = 0; i < 16; i++) {
		b[i] = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE);
		ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b[i], 16, 1)), GANTRY_OK);
	}
	b[16] = make_buffer(&f, 4, GANTRY_ALLOC_DEVICE);
	ck_assert_int_eq(try_paint(&f, f.q, b[16], 4, 1), GANTRY_E_LIMIT);
	ck_ok(gantry_free(f.s, b[3]));
	eventually(gantry_load_relaxed(&f.h->quota->mem_used) == 15 * MIB);
	paint(&f, f.q, b[16], 4, 1);
	fixture_end(&f);
}
END_TEST

/* Between a device with host memory and one with windows, to and fro. */
static void to_and_fro(const char *const *devices)
{
	struct fixture f = fixture_start(devices, 2);
	gantry_queue q[2] = { queue_on(&f, 0), queue_on(&f, 1) };
	gantry_buffer b[6];

	for (uint32_t i = 0; i < 6; i++) {
		b[i] = make_buffer(&f, (i + 1) * 777216, GANTRY_ALLOC_DEVICE);
		paint(&f, q[i % 2], b[i], (i + 1) * 777216, i);
	}
	for (uint32_t round = 0; round < 6; round++)
		for (uint32_t i = 0; i < 6; i++) {
			uint64_t bytes = (i + 1) * 777216;
			gantry_queue there = q[(i + round + 1) % 2];

			check(&f, there, b[i], bytes, i + 100 * round);
			paint(&f, there, b[i], bytes, i + 100 * (round + 1));
		}
	ck_assert_uint_gt(header(&f)->moved_bytes, 6 * MIB);
	ck_assert_uint_eq(header(&f)->resident_used,
			  f.h->pages[0]->hdr.mem_used + f.h->pages[1]->hdr.mem_used);
	ck_assert_uint_eq(header(&f)->host_used, 0);
	for (uint32_t i = 0; i < 6; i++)
		ck_ok(gantry_free(f.s, b[i]));
	eventually(gantry_load_relaxed(&header(&f)->resident_used) == 0);
	fixture_end(&f);
}

START_TEST(test_move_between_host_and_window_keeps_bytes)
{
	to_and_fro(cpu_and_window);
}
END_TEST

START_TEST(test_move_between_wide_window_and_host_keeps_bytes)
{
	to_and_fro(window_and_cpu);
}
END_TEST

START_TEST(test_move_between_windows_keeps_bytes)
{
	to_and_fro(two_windows);
}
END_TEST

START_TEST(test_tasks_on_two_devices_that_want_the_same_buffers_all_finish)
{
	struct fixture f = fixture_start(cpu_and_window, 2);
	gantry_queue q[2] = { queue_on(&f, 0), queue_on(&f, 1) };
	gantry_buffer a = make_buffer(&f, MIB, 0), b = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE);
	gantry_ticket last[2];

	ck_assert_int_eq(outcome(&f, put_fill(&f, q[0], a, MIB / 4, 1)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, q[1], b, MIB / 4, 2)), GANTRY_OK);
	for (uint32_t i = 0; i < 50; i++) {
		ck_ok(gantry_submit_copy(f.s, q[0], i % 2 ? a : b, 0, i % 2 ? b : a, 0, MIB,
					 &last[0]));
		ck_ok(gantry_submit_copy(f.s, q[1], i % 2 ? b : a, 0, i % 2 ? a : b, 0, MIB,
					 &last[1]));
	}
	ck_assert_int_eq(outcome(&f, last[0]), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, last[1]), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* Twice as much as the pool holds. */
static void over_commit(const char *const *devices, uint32_t ndevices, uint64_t pool,
			uint64_t slabs)
{
	enum {
		N = 24
	};
	struct fixture f = { .h = inproc_start(devices, ndevices) };
	gantry_buffer b[N];

	f.h->pages[0]->hdr.mem_bytes = pool;
	f.h->slabs.limit_bytes = slabs;
	fixture_session(&f, NULL);
	for (uint32_t i = 0; i < N; i++) {
		b[i] = make_buffer(&f, 2 * MIB, GANTRY_ALLOC_DEVICE);
		paint(&f, f.q, b[i], 2 * MIB, i);
		ck_assert_uint_le(f.h->pages[0]->hdr.mem_used, pool);
	}
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < N; i++) {
			uint32_t k = round == 1 ? N - 1 - i : i;

			check(&f, f.q, b[k], 2 * MIB, k + 1000 * round);
			paint(&f, f.q, b[k], 2 * MIB, k + 1000 * (round + 1));
			ck_assert_uint_le(f.h->pages[0]->hdr.mem_used, pool);
		}
	ck_assert_uint_gt(header(&f)->host_used, 0);
	ck_assert_uint_ge(header(&f)->host_used + header(&f)->resident_used, N * 2 * MIB);
	ck_assert_uint_le(inproc_slab_bytes(f.h, UINT32_MAX), slabs);
	for (uint32_t i = 0; i < N; i++)
		ck_ok(gantry_free(f.s, b[i]));
	eventually(gantry_load_relaxed(&header(&f)->resident_used) == 0 &&
		   gantry_load_relaxed(&header(&f)->host_used) == 0);
	fixture_end(&f);
}

START_TEST(test_over_commit_of_the_pool_keeps_bytes)
{
	over_commit(one_window, 1, 24 * MIB, 4096 * MIB);
}
END_TEST

START_TEST(test_over_commit_of_the_machine_keeps_bytes)
{
	over_commit(one_window, 1, 4096 * MIB, 24 * MIB);
}
END_TEST

START_TEST(test_buffers_that_were_read_only_go_without_a_copy)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	gantry_buffer b[8];
	uint64_t moved;

	f.h->pages[0]->hdr.mem_bytes = 10 * MIB;
	fixture_session(&f, NULL);
	for (uint32_t i = 0; i < 8; i++) {
		b[i] = make_buffer(&f, 2 * MIB, GANTRY_ALLOC_DEVICE);
		paint(&f, f.q, b[i], 2 * MIB, i);
	}
	for (uint32_t i = 0; i < 8; i++)
		check(&f, f.q, b[i], 2 * MIB, i);
	/* From here on each round fetches all and spills nothing. */
	moved = header(&f)->moved_bytes;
	for (uint32_t i = 0; i < 8; i++)
		check(&f, f.q, b[i], 2 * MIB, i);
	ck_assert_uint_le(header(&f)->moved_bytes - moved, 8 * 2 * MIB);
	fixture_end(&f);
}
END_TEST

START_TEST(test_task_that_needs_more_than_the_pool_is_refused)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	gantry_buffer a, b;
	gantry_ticket t;

	f.h->pages[0]->hdr.mem_bytes = 6 * MIB;
	fixture_session(&f, NULL);
	a = make_buffer(&f, 4 * MIB, GANTRY_ALLOC_DEVICE);
	b = make_buffer(&f, 4 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, f.q, a, 4 * MIB, 1);
	paint(&f, f.q, b, 4 * MIB, 2);
	ck_ok(gantry_submit_copy(f.s, f.q, a, 0, b, 0, 4 * MIB, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_E_NO_MEMORY);
	check(&f, f.q, a, 4 * MIB, 1);
	check(&f, f.q, b, 4 * MIB, 2);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_finds_buffers_in_their_slabs)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b[20], fresh;

	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < 20; i++) {
			if (round)
				check(&f, f.q, b[i], 100000 * (i + 1), i + round - 1);
			else
				b[i] = make_buffer(&f, 100000 * (i + 1), GANTRY_ALLOC_DEVICE);
			paint(&f, f.q, b[i], 100000 * (i + 1), i + round);
		}
		/* What an unfinished free leaves must not be seen by whoever comes next. */
		fresh = make_buffer(&f, 3 * MIB, GANTRY_ALLOC_DEVICE);
		paint(&f, f.q, fresh, 3 * MIB, 99);
		ck_ok(gantry_free(f.s, fresh));
		crash_and_recover(&f);
		fresh = make_buffer(&f, 3 * MIB, GANTRY_ALLOC_DEVICE);
		check_zero(&f, f.q, fresh, 3 * MIB);
		ck_ok(gantry_free(f.s, fresh));
	}
	fixture_end(&f);
}
END_TEST

/* Addresses for the session's window, which nothing has at the moment. */
static void *window_place(const struct fixture *f)
{
	void *place = mmap(NULL, header(f)->slab_bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(place, MAP_FAILED);
	return place;
}

/* As if the device of the worker that is gone had told the guest so. */
static void told_address(const struct fixture *f, gantry_buffer b, const void *window)
{
	struct gantry_ledger_buffer *led = &ledger_object(f, b)->buffer;

	led->address = (uintptr_t)window + led->off;
}

START_TEST(test_recovery_opens_a_window_where_its_program_knows_it)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED);
	void *nearest, *place;

	paint(&f, f.q, b, MIB, 3);
	inproc_crash(f.h, f.index);
	/* Not where the kernel would put it by itself. */
	nearest = window_place(&f);
	place = window_place(&f);
	ck_assert_int_eq(munmap(nearest, header(&f)->slab_bytes), 0);
	ck_assert_int_eq(munmap(place, header(&f)->slab_bytes), 0);
	told_address(&f, b, place);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	check(&f, f.q, b, MIB, 3);
	ck_assert_ptr_eq(mmap(place, GANTRY_PAGE, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 MAP_FAILED);
	ck_assert_int_eq(errno, EEXIST);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_ends_a_session_whose_addresses_are_taken)
{
	struct fixture f = fixture_start(one_window, 1);
	gantry_buffer b = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED);
	void *place;

	paint(&f, f.q, b, MIB, 3);
	inproc_crash(f.h, f.index);
	place = window_place(&f);
	told_address(&f, b, place);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire((uint32_t *)&host_session(&f)->ended));
	ck_assert_int_eq(host_session(&f)->ended, GANTRY_E_INTERNAL);
	ck_assert_int_eq(munmap(place, header(&f)->slab_bytes), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_finds_spilled_buffers)
{
	struct fixture f = { .h = inproc_start(one_window, 1) };
	gantry_buffer b[10];

	f.h->pages[0]->hdr.mem_bytes = 10 * MIB;
	fixture_session(&f, NULL);
	for (uint32_t i = 0; i < 10; i++) {
		b[i] = make_buffer(&f, 2 * MIB, GANTRY_ALLOC_DEVICE);
		paint(&f, f.q, b[i], 2 * MIB, i);
	}
	for (uint32_t round = 0; round < 3; round++) {
		uint64_t host, resident;

		crash_and_recover(&f);
		host = header(&f)->host_used;
		resident = header(&f)->resident_used;
		ck_assert_uint_ge(host + resident, 20 * MIB);
		ck_assert_uint_le(f.h->pages[0]->hdr.mem_used, 10 * MIB);
		for (uint32_t i = 0; i < 10; i++)
			check(&f, f.q, b[i], 2 * MIB, i);
	}
	fixture_end(&f);
}
END_TEST

START_TEST(test_many_sessions_keep_apart)
{
	enum {
		N = 10
	};
	struct inproc_host *h = inproc_start(one_window, 1);
	struct fixture f[N];
	gantry_buffer b[N];

	for (uint32_t i = 0; i < N; i++) {
		f[i].h = h;
		fixture_session(&f[i], NULL);
		b[i] = make_buffer(&f[i], 3000000, GANTRY_ALLOC_DEVICE);
		paint(&f[i], f[i].q, b[i], 3000000, i);
	}
	for (uint32_t i = 0; i < N; i++)
		check(&f[i], f[i].q, b[i], 3000000, i);
	for (uint32_t i = 0; i < N; i += 2) {
		gantry_close(f[i].s);
		inproc_detach(h, f[i].index);
		ck_assert_uint_eq(inproc_slab_bytes(h, f[i].index), 0);
	}
	for (uint32_t i = 1; i < N; i += 2) {
		check(&f[i], f[i].q, b[i], 3000000, i);
		gantry_close(f[i].s);
	}
	inproc_stop(h);
}
END_TEST

START_TEST(test_shared_buffer_lies_in_host_memory_and_is_charged_there)
{
	struct inproc_host *h = inproc_start(one_window, 1);
	struct fixture owner = { .h = h }, user = { .h = h };
	gantry_buffer b, adopted;
	int fd;

	fixture_session(&owner, NULL);
	fixture_session(&user, NULL);
	b = make_buffer(&owner, MIB, GANTRY_ALLOC_SHARED);
	paint(&owner, owner.q, b, MIB, 5);
	ck_ok(gantry_share(owner.s, b, GANTRY_RW, &fd));
	ck_ok(gantry_adopt(user.s, fd, &adopted, NULL));
	gantry_fd_close(fd);
	check(&user, user.q, adopted, MIB, 5);
	ck_assert_int_eq(outcome(&user, put_fill(&user, user.q, adopted, MIB / 4, 9)), GANTRY_OK);
	ck_assert_uint_eq(header(&owner)->host_used, MIB);
	ck_assert_uint_eq(header(&owner)->resident_used, 0);
	ck_assert_uint_eq(header(&user)->host_used, 0);
	ck_assert_uint_eq(h->quota->host_used, MIB);
	ck_assert_uint_eq(h->pages[0]->hdr.mem_used, 0);
	gantry_close(owner.s);
	gantry_close(user.s);
	inproc_stop(h);
}
END_TEST

START_TEST(test_session_may_end_in_the_middle_of_moves)
{
	for (uint32_t i = 0; i < 20; i++) {
		struct fixture f = fixture_start(two_windows, 2);
		gantry_queue q[2] = { queue_on(&f, 0), queue_on(&f, 1) };
		gantry_buffer b = make_buffer(&f, 24 * MIB, GANTRY_ALLOC_DEVICE);
		gantry_ticket t;

		t = put_fill(&f, q[0], b, 1024, 1);
		if (i % 2)
			ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
		t = put_fill(&f, q[1], b, 1024, 2);
		if (i % 3 == 0)
			ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
		(void)put_fill(&f, q[0], b, 1024, 3);
		fixture_end(&f);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("windows");
	TCase *memory = gantry_unit_case(suite, "memory");
	TCase *moves = gantry_unit_case(suite, "moves");
	TCase *recovery = gantry_unit_case(suite, "recovery");

	tcase_set_timeout(memory, 60);
	tcase_set_timeout(moves, 60);
	tcase_set_timeout(recovery, 60);
	tcase_add_test(memory, test_buffers_of_all_sizes_keep_their_bytes);
	tcase_add_test(memory, test_memory_of_a_freed_buffer_comes_back_zero);
	tcase_add_test(memory, test_slabs_that_nobody_uses_go_back);
	tcase_add_test(memory, test_next_allocation_needs_no_agent);
	tcase_add_test(memory, test_buffers_made_and_freed_in_turn_need_no_agent);
	tcase_add_test(memory, test_places_of_small_buffers_are_used_again);
	tcase_add_test(memory, test_task_waits_for_slabs_and_others_go_on);
	tcase_add_test(memory, test_refusal_of_slabs_is_no_memory);
	tcase_add_test(memory, test_refusal_that_crosses_slabs_on_their_way_back_is_none);
	tcase_add_test(memory, test_fixed_buffer_gets_what_is_mapped_for_nobody);
	tcase_add_test(memory, test_limit_of_the_tenant_is_exact);
	tcase_add_test(memory, test_many_sessions_keep_apart);
	tcase_add_test(memory, test_shared_buffer_lies_in_host_memory_and_is_charged_there);
	tcase_add_test(moves, test_move_between_host_and_window_keeps_bytes);
	tcase_add_test(moves, test_move_between_wide_window_and_host_keeps_bytes);
	tcase_add_test(moves, test_move_between_windows_keeps_bytes);
	tcase_add_test(moves, test_tasks_on_two_devices_that_want_the_same_buffers_all_finish);
	tcase_add_test(moves, test_over_commit_of_the_pool_keeps_bytes);
	tcase_add_test(moves, test_over_commit_of_the_machine_keeps_bytes);
	tcase_add_test(moves, test_buffers_that_were_read_only_go_without_a_copy);
	tcase_add_test(moves, test_task_that_needs_more_than_the_pool_is_refused);
	tcase_add_test(moves, test_session_may_end_in_the_middle_of_moves);
	tcase_add_test(recovery, test_recovery_finds_buffers_in_their_slabs);
	tcase_add_test(recovery, test_recovery_opens_a_window_where_its_program_knows_it);
	tcase_add_test(recovery, test_recovery_ends_a_session_whose_addresses_are_taken);
	tcase_add_test(recovery, test_recovery_finds_spilled_buffers);
	return gantry_unit_run(suite);
}
