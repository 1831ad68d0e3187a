/* SPDX-License-Identifier: Apache-2.0 */
/* A session's memory comes to the host for its way to another one; where that does not happen, all is as it was. */
#include <errno.h>

#include "base/array.h"
#include "base/fd.h"
#include "tests/inproc/fixture.h"

#define MIB (UINT64_C(1) << 20)

static const char *const wide_window[] = { "cpu cores=2 window=yes" };
static const char *const two_windows[] = { "cpu cores=2 window=yes", "cpu cores=2 window=yes" };

enum tag {
	ASKED = 1,
	TAKEN_BACK = 2,
};

static void hold(const struct fixture *f)
{
	for (uint32_t i = 1; i < host_session(f)->ledger.nqueues; i++)
		(void)gantry_fetch_or(&host_session(f)->ledger.queues[i].paused,
				      GANTRY_LEDGER_HELD);
}

static void let_go(const struct fixture *f)
{
	for (uint32_t i = 1; i < host_session(f)->ledger.nqueues; i++)
		(void)gantry_fetch_and(&host_session(f)->ledger.queues[i].paused,
				       ~GANTRY_LEDGER_HELD);
	gantry_engine_nudge(f->h->engine);
}

static void ask(const struct fixture *f, enum gantry_gather what, enum tag tag)
{
	gantry_store_release(&f->h->gathered[tag], 0u);
	ck_assert_int_eq(gantry_engine_gather(f->h->engine, host_session(f)->id, what, tag), 0);
}

static int answer(const struct fixture *f, enum tag tag)
{
	uint32_t said;

	eventually((said = gantry_load_acquire(&f->h->gathered[tag])) != 0);
	return said == 1 ? GANTRY_OK : -(int)said;
}

static uint32_t place_of(const struct fixture *f, gantry_buffer b)
{
	return gantry_load_acquire(&ledger_object(f, b)->buffer.place);
}

static int export(const struct fixture *f, gantry_buffer b)
{
	uint64_t bytes, share_id;
	int fd = -EBADF;
	int status = gantry_engine_export(f->h->engine, host_session(f)->id, b, GANTRY_RW, &fd,
					  &bytes, &share_id);

	gantry_fd_close(fd);
	return status;
}

static uint32_t first_word(const struct fixture *f, gantry_buffer b)
{
	uint32_t word = 0;

	ck_ok(gantry_read(f->s, b, 0, &word, sizeof(word)));
	return word;
}

START_TEST(test_gather_all_that_is_taken_back_leaves_buffers_to_be_shared)
{
	struct fixture f = fixture_start(wide_window, 1);
	gantry_buffer used = make_buffer(&f, MIB, GANTRY_ALLOC_SHARED);
	gantry_buffer unused = make_buffer(&f, MIB, GANTRY_ALLOC_SHARED);
	gantry_buffer plain = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE);

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, used, 16, 7)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, plain, 16, 9)), GANTRY_OK);
	ck_assert_int_eq(export(&f, used), GANTRY_OK);
	hold(&f);
	ask(&f, GANTRY_GATHER_ALL, ASKED);
	ck_assert_int_eq(answer(&f, ASKED), GANTRY_OK);
	ck_assert_uint_eq(place_of(&f, used), GANTRY_PLACE_SLAB);
	ck_assert_uint_eq(place_of(&f, plain), GANTRY_PLACE_SLAB);
	ask(&f, GANTRY_GATHER_NONE, TAKEN_BACK);
	ck_assert_int_eq(answer(&f, TAKEN_BACK), GANTRY_OK);
	let_go(&f);
	ck_assert_int_eq(export(&f, used), GANTRY_OK);
	ck_assert_int_eq(export(&f, unused), GANTRY_OK);
	ck_assert_uint_eq(first_word(&f, used), 7);
	ck_assert_uint_eq(first_word(&f, plain), 9);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, used, 16, 8)), GANTRY_OK);
	ck_assert_uint_eq(first_word(&f, used), 8);
	ck_ok(gantry_free(f.s, used));
	fixture_end(&f);
}
END_TEST

/* It waits for a task that runs. */
static void take_back_while_it_waits(const char *const *devices, uint32_t n,
				     enum gantry_gather what)
{
	struct fixture f = fixture_start(devices, n);
	struct fixture g = { .h = f.h };
	gantry_buffer b = make_buffer(&f, 4 * MIB, GANTRY_ALLOC_DEVICE);
	gantry_buffer shared = make_buffer(&f, MIB, GANTRY_ALLOC_SHARED);

	fixture_session(&g, NULL);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, MIB, 7)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, shared, 16, 7)), GANTRY_OK);
	(void)put_flags(&f, f.q, "endless", NULL, 0, 0);
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->issued) == 3);
	ask(&f, what, ASKED);
	ask(&f, GANTRY_GATHER_NONE, TAKEN_BACK);
	ck_assert_int_eq(answer(&f, ASKED), GANTRY_E_CANCELLED);
	ck_assert_int_eq(answer(&f, TAKEN_BACK), GANTRY_OK);
	ck_assert_uint_eq(place_of(&f, b), GANTRY_PLACE_WINDOW);
	ck_assert_uint_eq(place_of(&f, shared), GANTRY_PLACE_OWN);
	ck_assert_uint_eq(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 2);
	/* Another time nothing of that is in the way. */
	ck_assert_int_eq(outcome(&g, put_empty(&g, g.q)), GANTRY_OK);
	ask(&g, GANTRY_GATHER_ALL, ASKED);
	ck_assert_int_eq(answer(&g, ASKED), GANTRY_OK);
	inproc_detach(f.h, f.index);
	gantry_close(g.s);
	fixture_end(&f);
}

START_TEST(test_gather_all_ends_when_it_is_taken_back)
{
	take_back_while_it_waits(wide_window, GANTRY_ARRAY_SIZE(wide_window), GANTRY_GATHER_ALL);
}
END_TEST

START_TEST(test_gather_ahead_ends_when_it_is_taken_back)
{
	take_back_while_it_waits(two_windows, GANTRY_ARRAY_SIZE(two_windows), GANTRY_GATHER_AHEAD);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gather");
	TCase *tc = gantry_unit_case(suite, "gather");

	tcase_add_test(tc, test_gather_all_that_is_taken_back_leaves_buffers_to_be_shared);
	tcase_add_test(tc, test_gather_all_ends_when_it_is_taken_back);
	tcase_add_test(tc, test_gather_ahead_ends_when_it_is_taken_back);
	return gantry_unit_run(suite);
}
