/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/session.h"
#include "tests/unit/guest-shim/fake_host.h"
#include "tests/unit/runner.h"

/* Where an answer is asked for, a busy machine has time for it. */
static const struct gantry_limits hasty = { .call_timeout_ns = 200000000 };
static const struct gantry_limits patient = { .call_timeout_ns = 10000000000 };

/* What gantry_open() answers at a host that is set up so. */
static int open_at(struct fake_host *h)
{
	bool is_waited_for = h->answer == FAKE_SILENCE || h->answer == FAKE_HANG_UP;
	struct gantry_session *s = NULL;
	int r;

	fake_host_start(h);
	r = gantry_open(h->where, is_waited_for ? &hasty : &patient, &s);
	gantry_close(s);
	fake_host_stop(h);
	return r;
}

static int open_answered(enum fake_answer answer)
{
	struct fake_host h;

	fake_host_init(&h);
	h.answer = answer;
	return open_at(&h);
}

START_TEST(test_open_welcome_succeeds_and_says_hello)
{
	struct gantry_limits ask = { .heap_bytes = 4096, .nqueues = 3, .nslots = 32 };
	struct gantry_session *s;
	struct fake_host h;

	fake_host_init(&h);
	fake_host_start(&h);
	ck_assert_int_eq(gantry_open(h.where, &ask, &s), 0);
	ck_assert_uint_eq(h.hello.heap_bytes, 4096);
	ck_assert_uint_eq(h.hello.nqueues, 5); /* control and copy queue on top */
	ck_assert_uint_eq(h.hello.nslots, 32);
	ck_assert_uint_eq(s->session_id, 42);
	gantry_close(s);
	fake_host_stop(&h);
}
END_TEST

START_TEST(test_open_null_takes_door_from_environment)
{
	struct gantry_session *s;
	struct fake_host h;

	fake_host_init(&h);
	fake_host_start(&h);
	setenv("GANTRY_DOOR", h.where, 1);
	ck_assert_int_eq(gantry_open(NULL, NULL, &s), 0);
	gantry_close(s);
	fake_host_stop(&h);
}
END_TEST

START_TEST(test_open_nobody_there_returns_no_agent)
{
	struct gantry_session *s = (void *)1;

	ck_assert_int_eq(gantry_open("unix:@gantry-unit-nobody", NULL, &s), GANTRY_E_NO_AGENT);
	ck_assert_int_eq(gantry_open("/nonexistent/door", NULL, &s), GANTRY_E_NO_AGENT);
	ck_assert_ptr_eq(s, (void *)1);
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "/nonexistent/door"));
}
END_TEST

START_TEST(test_open_bad_arguments_are_refused)
{
	struct gantry_limits slots = { .nslots = 33 }, reserved = { .reserved = { 1 } };
	struct gantry_limits queues = { .nqueues = 63 }, timeout = { .call_timeout_ns = -1 };
	struct gantry_session *s;
	char path[200];

	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(gantry_open("unix:@x", NULL, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open("unix:@x", &slots, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open("unix:@x", &reserved, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open("unix:@x", &queues, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open("unix:@x", &timeout, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open(path, NULL, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_open("pigeon:home", NULL, &s), GANTRY_E_UNSUPPORTED);
}
END_TEST

START_TEST(test_open_refusal_returns_its_status_and_sentence)
{
	ck_assert_int_eq(open_answered(FAKE_REFUSE), GANTRY_E_FULL);
	ck_assert_str_eq(gantry_last_error(), "the fake agent refuses");
}
END_TEST

START_TEST(test_open_refusal_with_a_status_that_is_none_is_refused)
{
	struct fake_host h;

	fake_host_init(&h);
	h.answer = FAKE_REFUSE;
	h.refuse_status = 7;
	ck_assert_int_eq(open_at(&h), GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_open_misbehaving_agent_is_refused)
{
	ck_assert_int_eq(open_answered(FAKE_GARBAGE), GANTRY_E_PROTOCOL);
	ck_assert_int_eq(open_answered(FAKE_WRONG_KIND), GANTRY_E_PROTOCOL);
	if (fake_host_shares_memory()) {
		ck_assert_int_eq(open_answered(FAKE_NO_SEGMENT), GANTRY_E_PROTOCOL);
		ck_assert_int_eq(open_answered(FAKE_BAD_BELL), GANTRY_E_PROTOCOL);
		ck_assert_int_eq(open_answered(FAKE_BAD_SEGMENT), GANTRY_E_PROTOCOL);
	}
	ck_assert_int_eq(open_answered(FAKE_HANG_UP), GANTRY_E_NO_AGENT);
}
END_TEST

START_TEST(test_open_silent_agent_times_out)
{
	uint64_t before = gantry_now_ns(), took;

	ck_assert_int_eq(open_answered(FAKE_SILENCE), GANTRY_E_NO_AGENT);
	took = gantry_now_ns() - before;
	ck_assert_uint_ge(took, 200000000);
	ck_assert_uint_le(took, 5000000000);
}
END_TEST

/* ---- welcomes and segments whose numbers lie ---- */

static void lie_version(struct fake_host *h, struct gantry_door_welcome *w)
{
	(void)h;
	w->version = 9;
}

START_TEST(test_open_unknown_version_returns_version)
{
	struct fake_host h;

	fake_host_init(&h);
	h.mangle = lie_version;
	ck_assert_int_eq(open_at(&h), GANTRY_E_VERSION);
}
END_TEST

#define LIE(name, statement)                                                       \
	static void lie_##name(struct fake_host *h, struct gantry_door_welcome *w) \
	{                                                                          \
		(void)h;                                                           \
		(void)w;                                                           \
		statement;                                                         \
	}
LIE(size_small, w->segment_bytes = 4096)
LIE(size_odd, w->segment_bytes -= 1)
LIE(size_large, w->segment_bytes += 1 << 20)
LIE(size_huge, w->segment_bytes = UINT64_MAX)
LIE(queues_none, w->nqueues = 0)
LIE(queues_many, w->nqueues = 65)
LIE(slots_odd, w->nslots = 17)
LIE(slots_many, w->nslots = 8192)
LIE(address_odd, w->address = 123)
LIE(address_wraps, w->address = UINT64_MAX & ~4095ull)
LIE(session, w->session_id = 43)
LIE(magic, h->header->magic++)
LIE(header_version, h->header->version = 2)
LIE(header_queues, h->header->nqueues++)
LIE(header_slots, h->header->nslots *= 2)
LIE(header_bytes, h->header->segment_bytes += 4096)
LIE(stride, h->header->queue_stride_bytes = 64)
LIE(queues_on_header, h->header->queues_off = 0)
LIE(queues_far, h->header->queues_off = UINT64_MAX & ~63ull)
LIE(queues_crooked, h->header->queues_off += 8)
LIE(heap_none, h->header->heap_bytes = 0)
LIE(heap_long, h->header->heap_bytes += 4096)
LIE(heap_far, h->header->heap_off = UINT64_MAX & ~4095ull)
LIE(heap_on_queues, h->header->heap_off = h->header->queues_off)
LIE(heap_on_header, (h->header->heap_off = 0, h->header->heap_bytes = 4096))
LIE(used_tail, gantry_store_relaxed(&h->rings[1].map.area->tail, 3))
LIE(used_done, gantry_store_relaxed(&h->rings[1].map.area->done, 3))

typedef void lie_fn(struct fake_host *h, struct gantry_door_welcome *w);
static lie_fn *const lies[] = {
	lie_size_small,	    lie_size_odd,	  lie_size_large,   lie_size_huge,
	lie_queues_none,    lie_queues_many,	  lie_slots_odd,    lie_slots_many,
	lie_address_odd,    lie_address_wraps,	  lie_session,	    lie_magic,
	lie_header_version, lie_header_queues,	  lie_header_slots, lie_header_bytes,
	lie_stride,	    lie_queues_on_header, lie_queues_far,   lie_queues_crooked,
	lie_heap_none,	    lie_heap_long,	  lie_heap_far,	    lie_heap_on_queues,
	lie_heap_on_header, lie_used_tail,	  lie_used_done,
};

START_TEST(test_open_numbers_that_lie_are_refused)
{
	struct fake_host h;

	fake_host_init(&h);
	h.mangle = lies[_i];
	ck_assert_int_eq(open_at(&h), GANTRY_E_PROTOCOL);
}
END_TEST

/* ---- where the segment goes ---- */

#define FREE_ADDRESS 0x7e8000000000ull

START_TEST(test_open_free_address_is_taken)
{
	struct gantry_session *s;
	struct fake_host h;

	fake_host_init(&h);
	h.address = FREE_ADDRESS;
	fake_host_start(&h);
	ck_assert_int_eq(gantry_open(h.where, NULL, &s), 0);
	ck_assert_uint_eq((uintptr_t)s->segment.base, FREE_ADDRESS);
	ck_assert_uint_eq(s->props & GANTRY_PROP_TRANSLATED, 0);
	gantry_close(s);
	fake_host_stop(&h);
}
END_TEST

START_TEST(test_open_taken_address_is_left_alone_and_translated)
{
	struct gantry_session *s;
	struct fake_host h;
	char *mine = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	strcpy(mine, "mine");
	fake_host_init(&h);
	h.address = (uintptr_t)mine;
	fake_host_start(&h);
	ck_assert_int_eq(gantry_open(h.where, NULL, &s), 0);
	ck_assert_ptr_ne(s->segment.base, mine);
	ck_assert_uint_ne(s->props & GANTRY_PROP_TRANSLATED, 0);
	ck_assert_str_eq(mine, "mine");
	gantry_close(s);
	fake_host_stop(&h);
	munmap(mine, 4096);
}
END_TEST

START_TEST(test_close_null_is_harmless)
{
	gantry_close(NULL);
}
END_TEST

START_TEST(test_strerror_covers_every_status)
{
#define CHECK(name, value, text) ck_assert_str_eq(gantry_strerror(GANTRY_E_##name), text);
	GANTRY_STATUS_LIST(CHECK)
#undef CHECK
	ck_assert_ptr_nonnull(gantry_strerror(12345));
	ck_assert_str_eq(gantry_version(), "0.1.0");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/open");
	TCase *tc = gantry_unit_case(suite, "open");

	tcase_add_test(tc, test_open_welcome_succeeds_and_says_hello);
	tcase_add_test(tc, test_open_null_takes_door_from_environment);
	tcase_add_test(tc, test_open_nobody_there_returns_no_agent);
	tcase_add_test(tc, test_open_bad_arguments_are_refused);
	tcase_add_test(tc, test_open_refusal_returns_its_status_and_sentence);
	tcase_add_test(tc, test_open_refusal_with_a_status_that_is_none_is_refused);
	tcase_add_test(tc, test_open_misbehaving_agent_is_refused);
	tcase_add_test(tc, test_open_silent_agent_times_out);
	tcase_add_test(tc, test_open_unknown_version_returns_version);
	if (fake_host_shares_memory())
		tcase_add_loop_test(tc, test_open_numbers_that_lie_are_refused, 0,
				    (int)(sizeof(lies) / sizeof(lies[0])));
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_open_free_address_is_taken);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_open_taken_address_is_left_alone_and_translated);
	tcase_add_test(tc, test_close_null_is_harmless);
	tcase_add_test(tc, test_strerror_covers_every_status);
	return gantry_unit_run(suite);
}
