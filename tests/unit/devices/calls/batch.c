/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of one task, against a library that the test plays. */
#include "devices/cuda/calls/batch.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/runner.h"

#define CALLS_MAX 64u

enum {
	NOTE = 1, /* a mark, and what it returns */
	ASK = 2,  /* answers a number */
};

static uint64_t marks[CALLS_MAX];
static uint32_t nmarks;

static void serve_note(struct gantry_calls_run *run)
{
	uint64_t mark, ret;

	gantry_calls_take(run, &mark, sizeof(mark));
	gantry_calls_take(run, &ret, sizeof(ret));
	if (!gantry_calls_may_run(run))
		return;
	ck_assert_uint_lt(nmarks, CALLS_MAX);
	marks[nmarks++] = mark;
	gantry_calls_ran(run, ret, ret == 0);
}

static void serve_ask(struct gantry_calls_run *run)
{
	uint64_t *at = gantry_calls_take_out(run, sizeof(*at));

	if (!gantry_calls_may_run(run))
		return;
	*at = nmarks;
	gantry_calls_ran(run, 0, true);
}

static const struct gantry_calls_function functions[] = {
	{ .id = NOTE, .name = "note", .serve = serve_note },
	{ .id = ASK, .name = "ask", .serve = serve_ask },
};
static const struct gantry_calls_ender enders[] = { { 0 } };
static const struct gantry_calls_library library = { .name = "played",
						     .functions = functions,
						     .nfunctions = 2,
						     .enders = enders };
static const struct gantry_calls_library *const libraries[] = { &library, NULL };

static void *symbol(void *cookie, const struct gantry_calls_library *l, const char *name)
{
	(void)cookie;
	(void)l;
	return (void *)(uintptr_t)name;
}

static struct gantry_calls_site site = { .symbol = symbol };
static _Alignas(8) uint8_t requests[1 << 14];
static size_t len;
static struct gantry_pack reply;

static struct gantry_calls_request *put(uint64_t function, uint32_t flags, const uint64_t *items,
					uint32_t nitems)
{
	struct gantry_calls_request *request = (void *)(requests + len);

	*request = (struct gantry_calls_request){ .version = GANTRY_CALLS_VERSION,
						  .flags = flags,
						  .function = function,
						  .bytes = nitems * sizeof(*items) };
	memcpy(request + 1, items, request->bytes);
	len += sizeof(*request) + request->bytes;
	ck_assert_uint_le(len, sizeof(requests));
	return request;
}

static struct gantry_calls_request *note(uint64_t mark, uint64_t ret)
{
	return put(NOTE, GANTRY_CALLS_MORE, (const uint64_t[]){ mark, ret }, 2);
}

static struct gantry_calls_request *ask(void)
{
	struct gantry_calls_request *request = put(ASK, 0, (const uint64_t[]){ 8 }, 1);

	request->reply_bytes = 64;
	return request;
}

static const struct gantry_calls_reply *serve(struct gantry_quick *quick)
{
	uint32_t state;

	gantry_pack_init(&reply, 1 << 16);
	state = gantry_calls_serve_all(&site, libraries, NULL, requests, len, quick, &reply);
	ck_assert(!reply.failed);
	ck_assert_uint_eq(((const struct gantry_calls_reply *)(void *)reply.bytes)->state, state);
	return (const void *)reply.bytes;
}

static const struct gantry_calls_failure *failure(uint32_t i)
{
	const struct gantry_calls_reply *header = (const void *)reply.bytes;

	ck_assert_uint_lt(i, header->nfailures);
	ck_assert_uint_eq(reply.len,
			  sizeof(*header) + header->bytes +
				  header->nfailures * sizeof(struct gantry_calls_failure));
	return (const struct gantry_calls_failure *)(const void *)(reply.bytes + sizeof(*header) +
								   header->bytes) +
	       i;
}

static void expect_refused(void)
{
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(nmarks, 0);
	gantry_pack_fini(&reply);
}

START_TEST(test_requests_of_a_task_are_served_in_their_order_and_the_last_answered)
{
	const struct gantry_calls_reply *header;
	uint64_t answered;

	for (uint64_t i = 0; i < 5; i++)
		(void)note(10 + i, 0);
	(void)ask();
	header = serve(NULL);
	ck_assert_uint_eq(header->state, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(header->nfailures, 0);
	ck_assert_uint_eq(header->bytes, sizeof(answered));
	memcpy(&answered, header + 1, sizeof(answered));
	ck_assert_uint_eq(answered, 5);
	for (uint64_t i = 0; i < 5; i++)
		ck_assert_uint_eq(marks[i], 10 + i);
	gantry_pack_fini(&reply);
}
END_TEST

START_TEST(test_what_failed_is_told_behind_the_answer_and_holds_up_nothing)
{
	(void)note(1, 0);
	(void)note(2, 7);
	put(NOTE, GANTRY_CALLS_MORE, (const uint64_t[]){ 3 }, 1); /* an item too few */
	put(99, GANTRY_CALLS_MORE, NULL, 0);
	(void)note(4, 0);
	(void)ask();
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(nmarks, 3);
	ck_assert_uint_eq(failure(0)->place, 1);
	ck_assert_uint_eq(failure(0)->state, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(failure(0)->ret, 7);
	ck_assert_uint_eq(failure(1)->place, 2);
	ck_assert_uint_eq(failure(1)->state, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(failure(2)->place, 3);
	ck_assert_uint_eq(failure(2)->state, GANTRY_CALLS_UNKNOWN);
	ck_assert_uint_eq(((const struct gantry_calls_reply *)(void *)reply.bytes)->nfailures, 3);
	gantry_pack_fini(&reply);
}
END_TEST

START_TEST(test_answer_that_is_refused_tells_what_failed_before_it)
{
	(void)note(2, 7);
	ask()->reply_bytes = 0;
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(failure(0)->ret, 7);
	gantry_pack_fini(&reply);
}
END_TEST

START_TEST(test_as_many_requests_as_there_may_be_are_served_and_one_more_none)
{
	for (uint32_t i = 0; i + 1 < GANTRY_CALLS_TOGETHER; i++)
		(void)note(i, 1);
	(void)ask();
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(failure(GANTRY_CALLS_TOGETHER - 2)->place, GANTRY_CALLS_TOGETHER - 2);
	gantry_pack_fini(&reply);
	nmarks = 0;
	len = 0;
	for (uint32_t i = 0; i < GANTRY_CALLS_TOGETHER; i++)
		(void)note(i, 0);
	(void)ask();
	expect_refused();
}
END_TEST

START_TEST(test_requests_that_do_not_lie_as_they_must_are_all_refused)
{
	struct gantry_calls_request *first, *last;
	const size_t whole = 2 * (sizeof(*first) + 16) + sizeof(*last) + 8;

	first = note(1, 0);
	(void)note(2, 0);
	last = ask();
	ck_assert_uint_eq(len, whole);
	/* Nothing behind the one that says that there is. */
	len = 2 * (sizeof(*first) + 16);
	expect_refused();
	/* Less than a head, and a part of one. */
	for (size_t some = 1; some < sizeof(*last); some += 7) {
		len = 2 * (sizeof(*first) + 16) + some;
		expect_refused();
	}
	len = whole;
	/* Lengths that lead into another, past the end, and round. */
	first->bytes = 8;
	expect_refused();
	for (int i = 3; i < 64; i++) {
		first->bytes = 1ull << i;
		if (first->bytes != 16)
			expect_refused();
	}
	first->bytes = UINT64_MAX;
	expect_refused();
	first->bytes = UINT64_MAX - sizeof(*first) + 1;
	expect_refused();
	first->bytes = 16;
	/* What would keep its request, wants an answer, or has flags that there are not. */
	first->flags = GANTRY_CALLS_MORE | GANTRY_CALLS_KEEPS;
	expect_refused();
	first->flags = GANTRY_CALLS_MORE | 4;
	expect_refused();
	first->flags = GANTRY_CALLS_MORE;
	first->reply_bytes = 8;
	expect_refused();
	first->reply_bytes = 0;
	last->flags = GANTRY_CALLS_KEEPS;
	expect_refused();
	last->flags = GANTRY_CALLS_MORE;
	expect_refused();
	last->flags = 0;
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_RAN);
	gantry_pack_fini(&reply);
}
END_TEST

START_TEST(test_request_inside_another_s_items_is_not_served)
{
	struct gantry_calls_request *first = note(1, 0);

	/* Its items are a request: they are items, and too many. */
	(void)note(2, 0);
	first->bytes += sizeof(*first) + 16;
	(void)ask();
	ck_assert_uint_eq(serve(NULL)->state, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(nmarks, 0);
	ck_assert_uint_eq(failure(0)->state, GANTRY_CALLS_REFUSED);
	gantry_pack_fini(&reply);
}
END_TEST

START_TEST(test_functions_of_a_task_are_known_before_it_is_served)
{
	uint64_t found[GANTRY_CALLS_TOGETHER];

	ck_assert_uint_eq(gantry_calls_functions(requests, 0, found), 0);
	(void)note(1, 0);
	ck_assert_uint_eq(gantry_calls_functions(requests, len, found), 0);
	(void)ask();
	ck_assert_uint_eq(gantry_calls_functions(requests, len, found), 2);
	ck_assert_uint_eq(found[0], NOTE);
	ck_assert_uint_eq(found[1], ASK);
}
END_TEST

START_TEST(test_each_of_a_task_is_learnt_about)
{
	static struct gantry_quick quick;

	for (uint32_t i = 0; i < 2 * GANTRY_QUICK_RUNS_MAX; i++) {
		len = nmarks = 0;
		(void)note(1, 0);
		(void)ask();
		(void)serve(&quick);
		gantry_pack_fini(&reply);
	}
	ck_assert(gantry_quick_is(&quick, NOTE));
	ck_assert(gantry_quick_is(&quick, ASK));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("batch");
	TCase *tc = gantry_unit_case(suite, "batch");

	tcase_add_test(tc, test_requests_of_a_task_are_served_in_their_order_and_the_last_answered);
	tcase_add_test(tc, test_what_failed_is_told_behind_the_answer_and_holds_up_nothing);
	tcase_add_test(tc, test_answer_that_is_refused_tells_what_failed_before_it);
	tcase_add_test(tc, test_as_many_requests_as_there_may_be_are_served_and_one_more_none);
	tcase_add_test(tc, test_requests_that_do_not_lie_as_they_must_are_all_refused);
	tcase_add_test(tc, test_request_inside_another_s_items_is_not_served);
	tcase_add_test(tc, test_functions_of_a_task_are_known_before_it_is_served);
	tcase_add_test(tc, test_each_of_a_task_is_learnt_about);
	return gantry_unit_run(suite);
}
