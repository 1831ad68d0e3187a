/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses that a guest reserves, and memory that lies there too: over the fake driver, whose devices have their memory in this process, so
 * that a look is a load.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "guest-shim/device.h"
#include "tests/inproc/bytes.h"

#define GRANULE (2 * MIB)
#define WHOLE	(GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED | GANTRY_ALLOC_WHOLE)

static const char *const one_gpu[] = { "cuda gpu=0 driver=" FAKE_DRIVER };
static const char *const one_cpu_window[] = { "cpu cores=1 window=yes" };

/* Slabs of one granule each: nothing is one piece. */
static struct fixture begin(void)
{
	struct fixture f = { .h = inproc_start(one_gpu, 1) };

	f.h->slabs.slab_bytes = GRANULE;
	fixture_session(&f, NULL);
	return f;
}

static struct gantry_reply_variable reserve(const struct fixture *f, uint64_t bytes)
{
	struct gantry_reply_variable range = { 0 };

	ck_ok(gantry_device_range(f->s, 0, bytes, GRANULE, 0, &range));
	ck_assert_uint_eq(range.bytes, bytes);
	ck_assert_uint_eq(range.address % GRANULE, 0);
	return range;
}

static int locate(const struct fixture *f, gantry_buffer b)
{
	struct gantry_reply_address at;

	return gantry_device_ask(f->s, GANTRY_ASK_ADDRESS, 0, b,
				 (struct gantry_ask_numbers){ { 0 } }, &at, sizeof(at));
}

static gantry_buffer make_whole(const struct fixture *f, uint64_t bytes)
{
	gantry_buffer b = make_buffer(f, bytes, WHOLE);

	ck_assert_int_eq(locate(f, b), sizeof(struct gantry_reply_address));
	return b;
}

static int map(const struct fixture *f, gantry_buffer b, gantry_buffer range, uint64_t off)
{
	const struct gantry_op_map op = {
		.what = GANTRY_MAP_MAP, .buffer = b, .range = range, .off = off
	};

	return gantry_device_map(f->s, &op);
}

static int unmap(const struct fixture *f, gantry_buffer b)
{
	const struct gantry_op_map op = { .what = GANTRY_MAP_UNMAP, .buffer = b };

	return gantry_device_map(f->s, &op);
}

static int rights(const struct fixture *f, gantry_buffer b, uint32_t rights)
{
	const struct gantry_op_map op = { .what = GANTRY_MAP_RIGHTS,
					  .buffer = b,
					  .rights = rights };

	return gantry_device_map(f->s, &op);
}

/* What a kernel would see at @at, painted with @seed; in both directions. */
static void look(uint64_t at, uint64_t bytes, uint32_t seed)
{
	const uint32_t *words = (const uint32_t *)(uintptr_t)at;

	for (uint64_t i = 0; i < bytes / 4; i += 97)
		ck_assert_uint_eq(words[i], word(seed, i));
}

/* Whether a kernel may at least read there. */
static bool is_readable(uint64_t at)
{
	unsigned char byte;
	int fd[2];
	ssize_t n;

	ck_assert_int_eq(pipe(fd), 0);
	n = write(fd[1], (const void *)(uintptr_t)at, 1);
	if (n == 1)
		ck_assert_int_eq(read(fd[0], &byte, 1), 1);
	close(fd[0]);
	close(fd[1]);
	return n == 1;
}

START_TEST(test_range_memory_lies_at_both_its_addresses)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 64 * MIB);
	gantry_buffer b = make_whole(&f, 3 * GRANULE), c = make_whole(&f, GRANULE);

	paint(&f, f.q, b, 3 * GRANULE, 1);
	paint(&f, f.q, c, GRANULE, 2);
	ck_ok(map(&f, b, range.handle, 2 * GRANULE));
	ck_ok(map(&f, c, range.handle, 5 * GRANULE));
	/* Nobody may use it before that is said. */
	ck_assert(!is_readable(range.address + 2 * GRANULE));
	ck_ok(rights(&f, b, GANTRY_RW));
	ck_ok(rights(&f, c, GANTRY_R));
	look(range.address + 2 * GRANULE, 3 * GRANULE, 1);
	look(range.address + 5 * GRANULE, GRANULE, 2);
	*(uint32_t *)(uintptr_t)(range.address + 2 * GRANULE) = word(3, 0);
	paint(&f, f.q, c, GRANULE, 4);
	look(range.address + 5 * GRANULE, GRANULE, 4);
	*(uint32_t *)(uintptr_t)(range.address + 2 * GRANULE) = word(1, 0);
	check(&f, f.q, b, 3 * GRANULE, 1);
	ck_ok(rights(&f, c, 0));
	ck_assert(!is_readable(range.address + 5 * GRANULE));
	ck_ok(unmap(&f, b));
	ck_ok(unmap(&f, c));
	ck_ok(unmap(&f, c)); /* as after a worker that did it and did not say so */
	ck_assert(!is_readable(range.address + 2 * GRANULE));
	/* Somewhere else now, with what it holds. */
	ck_ok(map(&f, b, range.handle, 9 * GRANULE));
	ck_ok(rights(&f, b, GANTRY_R));
	look(range.address + 9 * GRANULE, 3 * GRANULE, 1);
	ck_ok(unmap(&f, b));
	ck_ok(gantry_free(f.s, b));
	ck_ok(gantry_free(f.s, c));
	ck_ok(gantry_free(f.s, range.handle));
	eventually(gantry_load_acquire(&f.h->quota->virtual_used) == 0);
	ck_assert_uint_eq(gantry_load_acquire(&f.h->quota->mem_used), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_range_begins_where_it_was_asked_for)
{
	struct fixture f = begin();
	struct gantry_reply_variable range;

	for (uint64_t align = GRANULE; align <= 1024 * MIB; align *= 8) {
		ck_ok(gantry_device_range(f.s, 0, 3 * GRANULE, align, 0, &range));
		ck_assert_uint_eq(range.address % align, 0);
		ck_assert(!is_readable(range.address));
	}
	fixture_end(&f);
}
END_TEST

START_TEST(test_range_charges_are_those_of_the_memory_alone)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 64ull << 30);
	gantry_buffer b = make_whole(&f, 2 * GRANULE);

	ck_assert_uint_eq(f.h->quota->virtual_used, 2 * GRANULE);
	ck_assert_uint_eq(f.h->quota->mem_used, 2 * GRANULE);
	ck_ok(map(&f, b, range.handle, 0));
	ck_assert_uint_eq(f.h->quota->mem_used, 2 * GRANULE);
	ck_ok(unmap(&f, b));
	ck_ok(gantry_free(f.s, b));
	eventually(gantry_load_acquire(&f.h->quota->mem_used) == 0);
	/* The same slabs again, with nothing in them. */
	b = make_whole(&f, 2 * GRANULE);
	check_zero(&f, f.q, b, 2 * GRANULE);
	fixture_end(&f);
}
END_TEST

static uint64_t device_ns(const struct fixture *f)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < GANTRY_SHARE_NSESSIONS; i++)
		sum += gantry_load_relaxed(&f->h->pages[0]->sessions[i].device_ns);
	return sum;
}

/* No lane is taken for it, but the driver's time is the session's. */
START_TEST(test_range_operations_are_charged_as_device_time)
{
	struct fixture f = begin();
	gantry_buffer b = make_whole(&f, 8 * GRANULE);
	uint64_t ns = device_ns(&f);
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE);

	ck_assert_uint_gt(device_ns(&f), ns);
	ns = device_ns(&f);
	ck_ok(map(&f, b, range.handle, 0));
	ck_assert_uint_gt(device_ns(&f), ns);
	ns = device_ns(&f);
	ck_ok(rights(&f, b, GANTRY_RW));
	ck_assert_uint_gt(device_ns(&f), ns);
	ns = device_ns(&f);
	ck_ok(unmap(&f, b));
	ck_assert_uint_gt(device_ns(&f), ns);
	/* What takes none is not. */
	ns = device_ns(&f);
	ck_assert_int_eq(locate(&f, b), sizeof(struct gantry_reply_address));
	ck_assert_uint_eq(device_ns(&f), ns);
	fixture_end(&f);
}
END_TEST

/* A worker of a trust group: what one tenant's sessions reserve leaves addresses to others. */
START_TEST(test_range_of_one_tenants_many_sessions_leaves_addresses_to_others)
{
#ifdef GANTRY_ATOMIC_UNDER_TSAN
	gantry_unit_skip("the thread sanitizer leaves a program 1.5 TiB of addresses");
#else
	struct fixture f[4] = { begin() };
	struct gantry_reply_variable range, none;

	for (unsigned int i = 1; i < 4; i++) {
		f[i].h = f[0].h;
		if (i == 3)
			f[0].h->next_tenant = 1;
		fixture_session(&f[i], NULL);
	}
	for (unsigned int i = 0; i < 2; i++)
		range = reserve(&f[i], 4ull << 40);
	ck_assert_int_eq(gantry_device_range(f[2].s, 0, GRANULE, GRANULE, 0, &none),
			 GANTRY_E_LIMIT);
	ck_assert_msg(strstr(gantry_last_error(), "in a shared worker") != NULL, "%s",
		      gantry_last_error());
	(void)reserve(&f[3], 4ull << 40);
	ck_ok(gantry_free(f[1].s, range.handle));
	(void)reserve(&f[2], 4ull << 40);
	for (unsigned int i = 1; i < 4; i++)
		gantry_close(f[i].s);
	fixture_end(&f[0]);
#endif
}
END_TEST

/* Whatever a guest asks for, the answer is a status, and the session goes on. */
START_TEST(test_range_wrong_requests_are_refused)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE), none;
	gantry_buffer plain = make_buffer(&f, GRANULE, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED);
	gantry_buffer unborn = make_buffer(&f, GRANULE, WHOLE), odd = make_buffer(&f, 4096, WHOLE);
	gantry_buffer b = make_whole(&f, 2 * GRANULE), c = make_whole(&f, 2 * GRANULE);
	gantry_ticket t;

	ck_assert_int_eq(gantry_device_range(f.s, 0, 4096, GRANULE, 0, &none), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_device_range(f.s, 0, 1ull << 45, GRANULE, 0, &none),
			 GANTRY_E_LIMIT);
	ck_assert_int_eq(gantry_device_range(f.s, 0, GRANULE, 3, 0, &none), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_device_range(f.s, 0, GRANULE, 1ull << 45, 0, &none),
			 GANTRY_E_LIMIT);
	ck_assert_int_eq(gantry_device_range(f.s, 7, GRANULE, GRANULE, 0, &none),
			 GANTRY_E_NO_DEVICE);
	ck_assert_int_eq(locate(&f, odd), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(f.s, GRANULE, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_WHOLE, &odd),
			 GANTRY_E_ARG);
	/* What is no memory to be mapped, and what is no range. */
	ck_assert_int_eq(locate(&f, plain), sizeof(struct gantry_reply_address));
	ck_assert_int_eq(map(&f, plain, range.handle, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, unborn, range.handle, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, range.handle, range.handle, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, b, c, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, b, b, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, b, 0, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(map(&f, b, range.handle + (1ull << 24), 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(map(&f, b + (1ull << 24), range.handle, 0), GANTRY_E_HANDLE);
	/* Where it has no room. */
	ck_assert_int_eq(map(&f, b, range.handle, 4096), GANTRY_E_SPAN);
	ck_assert_int_eq(map(&f, b, range.handle, 7 * GRANULE), GANTRY_E_SPAN);
	ck_assert_int_eq(map(&f, b, range.handle, UINT64_MAX - GRANULE + 1), GANTRY_E_SPAN);
	ck_assert_int_eq(rights(&f, b, GANTRY_RW), GANTRY_E_ARG);
	ck_ok(map(&f, b, range.handle, 2 * GRANULE));
	ck_ok(map(&f, b, range.handle, 2 * GRANULE)); /* the same again is done already */
	ck_assert_int_eq(map(&f, b, range.handle, 0), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, c, range.handle, GRANULE), GANTRY_E_ACCESS);
	ck_assert_int_eq(map(&f, c, range.handle, 3 * GRANULE), GANTRY_E_ACCESS);
	ck_assert_int_eq(rights(&f, b, 2), GANTRY_E_ARG);
	ck_assert_int_eq(rights(&f, b, 4), GANTRY_E_ARG);
	/* A range is no memory, and neither goes while the other needs it. */
	ck_ok(gantry_submit_copy(f.s, f.q, range.handle, 0, c, 0, 4096, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_E_ACCESS);
	ck_ok(gantry_submit_fill(f.s, f.q, range.handle, 2 * GRANULE, 64, 0, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_E_ACCESS);
	ck_assert_int_eq(locate(&f, range.handle), GANTRY_E_ACCESS);
	paint(&f, f.q, b, 2 * GRANULE, 6);
	ck_ok(rights(&f, b, GANTRY_R));
	look(range.address + 2 * GRANULE, 2 * GRANULE, 6);
	fixture_end(&f);
}
END_TEST

/* By the operation itself: the library's own bookkeeping would not go so far. */
static int free_by_hand(const struct fixture *f, gantry_buffer b)
{
	return gantry_free(f->s, b);
}

START_TEST(test_range_and_memory_that_is_mapped_are_not_freed)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE);
	gantry_buffer b = make_whole(&f, 2 * GRANULE);

	paint(&f, f.q, b, 2 * GRANULE, 1);
	ck_ok(map(&f, b, range.handle, 0));
	ck_ok(rights(&f, b, GANTRY_R));
	(void)free_by_hand(&f, range.handle);
	(void)free_by_hand(&f, b);
	/* Other memory gets neither its slabs nor its address. */
	for (uint32_t i = 0; i < 4; i++) {
		gantry_buffer other = make_whole(&f, 2 * GRANULE);

		paint(&f, f.q, other, 2 * GRANULE, 10 + i);
	}
	look(range.address, 2 * GRANULE, 1);
	ck_assert_uint_eq(ledger_object(&f, range.handle)->state, GANTRY_OBJECT_LIVE);
	ck_assert_uint_eq(ledger_object(&f, b)->state, GANTRY_OBJECT_LIVE);
	fixture_end(&f);
}
END_TEST

START_TEST(test_range_is_where_it_was_after_a_worker_with_what_lay_there)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 64 * MIB);
	gantry_buffer b = make_whole(&f, 3 * GRANULE), c = make_whole(&f, GRANULE);

	paint(&f, f.q, b, 3 * GRANULE, 1);
	paint(&f, f.q, c, GRANULE, 2);
	ck_ok(map(&f, b, range.handle, GRANULE));
	ck_ok(rights(&f, b, GANTRY_R));
	ck_ok(map(&f, c, range.handle, 8 * GRANULE));
	for (uint32_t round = 0; round < 2; round++) {
		inproc_crash(f.h, f.index);
		ck_assert(!is_readable(range.address + GRANULE));
		ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
		ck_ok(rights(&f, b, GANTRY_RW));
		look(range.address + GRANULE, 3 * GRANULE, 1);
		/* Of one whose slabs nobody has asked for yet. */
		ck_ok(rights(&f, c, GANTRY_R));
		look(range.address + 8 * GRANULE, GRANULE, 2);
		check(&f, f.q, b, 3 * GRANULE, 1);
	}
	/* Nothing has to be there again for it to go. */
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_ok(unmap(&f, c));
	ck_ok(unmap(&f, b));
	ck_ok(gantry_free(f.s, c));
	ck_ok(gantry_free(f.s, range.handle));
	check(&f, f.q, b, 3 * GRANULE, 1);
	ck_ok(gantry_free(f.s, b));
	eventually(gantry_load_acquire(&f.h->quota->virtual_used) == 0);
	fixture_end(&f);
}
END_TEST

/* What the worker before wrote is checked as what a guest asks for: that worker may have been broken into. */
START_TEST(test_places_that_a_ledger_makes_up_are_not_mapped)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE);
	gantry_buffer b = make_whole(&f, 3 * GRANULE), c = make_whole(&f, GRANULE);

	paint(&f, f.q, b, 3 * GRANULE, 1);
	ck_ok(map(&f, b, range.handle, GRANULE));
	ck_ok(map(&f, c, range.handle, 4 * GRANULE));
	for (uint32_t i = 0; i < 6; i++) {
		struct gantry_ledger_buffer *made_up = &ledger_object(&f, b)->buffer, was;

		inproc_crash(f.h, f.index);
		was = *made_up;
		if (i == 0)
			made_up->range_off = 6 * GRANULE; /* beyond its end */
		else if (i == 1)
			made_up->range_off = GRANULE + 4096;
		else if (i == 2)
			made_up->range_off = 2 * GRANULE; /* where the other is */
		else if (i == 3)
			made_up->range = c;
		else if (i == 4)
			made_up->range = range.handle + (1ull << 24); /* an older one's */
		ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
		ck_assert((rights(&f, b, GANTRY_R) == 0) == (i == 5));
		ck_assert(!is_readable(range.address + 8 * GRANULE));
		if (i == 5)
			break;
		inproc_crash(f.h, f.index);
		*made_up = was;
		ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	}
	look(range.address + GRANULE, 3 * GRANULE, 1);
	ck_ok(unmap(&f, c));
	ck_ok(unmap(&f, b));
	fixture_end(&f);
}
END_TEST

START_TEST(test_range_that_nobody_was_told_of_is_undone_in_recovery)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE);
	const struct gantry_ledger_object *obj = ledger_object(&f, range.handle);

	inproc_crash(f.h, f.index);
	ledger_object(&f, range.handle)->made_by = GANTRY_LEDGER_POSITION_MAX;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire(&obj->state) == GANTRY_OBJECT_FREE);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_ends_a_session_whose_reserved_addresses_are_taken)
{
	struct fixture f = begin();
	struct gantry_reply_variable range = reserve(&f, 8 * GRANULE);
	void *place;

	inproc_crash(f.h, f.index);
	place = mmap((void *)(uintptr_t)range.address, GRANULE, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_ne(place, MAP_FAILED);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire((uint32_t *)&host_session(&f)->ended));
	ck_assert_int_eq(host_session(&f)->ended, GANTRY_E_INTERNAL);
	ck_assert_int_eq(munmap(place, GRANULE), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_range_of_a_device_that_has_none_is_not_supported)
{
	struct fixture f = fixture_start(one_cpu_window, 1);
	struct gantry_reply_variable range;
	uint64_t granule;

	ck_assert_int_eq(gantry_device_ask(f.s, GANTRY_ASK_GRANULE, 0, 0,
					   (struct gantry_ask_numbers){ { 0 } }, &granule,
					   sizeof(granule)),
			 GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_device_range(f.s, 0, GRANULE, GRANULE, 0, &range),
			 GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(unmap(&f, make_buffer(&f, GRANULE, WHOLE)), GANTRY_E_UNSUPPORTED);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ranges");
	TCase *tc = gantry_unit_case(suite, "ranges");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_range_memory_lies_at_both_its_addresses);
	tcase_add_test(tc, test_range_begins_where_it_was_asked_for);
	tcase_add_test(tc, test_range_operations_are_charged_as_device_time);
	tcase_add_test(tc, test_range_of_one_tenants_many_sessions_leaves_addresses_to_others);
	tcase_add_test(tc, test_range_charges_are_those_of_the_memory_alone);
	tcase_add_test(tc, test_range_wrong_requests_are_refused);
	tcase_add_test(tc, test_range_and_memory_that_is_mapped_are_not_freed);
	tcase_add_test(tc, test_range_is_where_it_was_after_a_worker_with_what_lay_there);
	tcase_add_test(tc, test_places_that_a_ledger_makes_up_are_not_mapped);
	tcase_add_test(tc, test_range_that_nobody_was_told_of_is_undone_in_recovery);
	tcase_add_test(tc, test_recovery_ends_a_session_whose_reserved_addresses_are_taken);
	tcase_add_test(tc, test_range_of_a_device_that_has_none_is_not_supported);
	return gantry_unit_run(suite);
}
