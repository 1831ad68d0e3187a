/* SPDX-License-Identifier: Apache-2.0 */
/* A session that another library began: what it is to know of the heap, of buffers, queues and tasks that have not run. */
#include "guest-shim/memory.h"
#include "guest-shim/session.h"
#include "tests/inproc/fixture.h"

#define NACCESS 7u /* as records, these are longer than what lies beside a descriptor */
#define WORDS	16u
#define MB	(1ull << 20)

/* Another library at the session of @f, whose own uses it no more. */
static struct gantry_session *adopt(const struct fixture *f)
{
	struct gantry_session *s = NULL;

	ck_ok(inproc_adopt(f->h, f->index, &s));
	return s;
}

/* A task whose record is in the heap: sets the words of @buffer, and reads the others. */
static gantry_ticket put_long(const struct fixture *f, gantry_buffer buffer, gantry_buffer other,
			      uint32_t value)
{
	struct {
		uint64_t buffer;
		uint64_t n;
		uint32_t value;
		uint32_t pad;
	} args = { .n = WORDS, .value = value };
	struct gantry_access access[NACCESS] = { { .buffer = buffer, .mode = GANTRY_W } };
	struct gantry_task task = {
		.kernel = find(f, "fill"),
		.args = &args,
		.args_bytes = sizeof(args),
		.access = access,
		.naccess = NACCESS,
	};
	gantry_ticket t;

	for (unsigned i = 1; i < NACCESS; i++)
		access[i] = (struct gantry_access){ .buffer = other,
						    .mode = GANTRY_R,
						    .arg_off = GANTRY_NO_ARG };
	ck_ok(gantry_submit(f->s, f->q, &task, 1, &t));
	return t;
}

static gantry_buffer make(struct gantry_session *s, uint64_t bytes, unsigned flags)
{
	gantry_buffer b = 0;

	ck_ok(gantry_alloc(s, bytes, flags, &b));
	return b;
}

static uint32_t word_of(struct gantry_session *s, gantry_buffer b, uint64_t at)
{
	uint32_t word = 0;

	ck_ok(gantry_read(s, b, at * sizeof(word), &word, sizeof(word)));
	return word;
}

#define NPIECES 4096u

/* A buffer in the heap, if there is room now: nothing is waited for. */
static bool take_piece(struct gantry_session *s, uint64_t bytes, gantry_buffer *ret_buffer)
{
	struct gantry_buffer_info info;

	ck_ok(gantry_alloc(s, bytes, 0, ret_buffer));
	ck_ok(gantry_memory_find(s, *ret_buffer, &info));
	if (info.flags == GANTRY_ALLOC_HOST)
		return true;
	ck_ok(gantry_free(s, *ret_buffer));
	return false;
}

/* Takes all of the heap that is free, writes over it, and gives it back. Returns how much that was. */
static uint64_t scribble(struct gantry_session *s)
{
	static gantry_buffer pieces[NPIECES];
	static uint8_t all[MB];
	uint64_t sum = 0;
	unsigned n = 0;

	memset(all, 0xee, sizeof(all));
	for (uint64_t bytes = MB; bytes >= GANTRY_LINE; bytes /= 2)
		while (n < NPIECES && take_piece(s, bytes, &pieces[n])) {
			ck_ok(gantry_write(s, pieces[n++], 0, all, bytes));
			sum += bytes;
		}
	while (n > 0)
		ck_ok(gantry_free(s, pieces[--n]));
	return sum;
}

START_TEST(test_adopted_session_runs_the_tasks_it_came_with_whatever_is_allocated)
{
	const struct gantry_limits ask = { .heap_bytes = 4 * MB };
	struct fixture f = { .h = inproc_start(one_cpu, 1) };
	gantry_buffer device, host, other;
	gantry_ticket first, second;
	struct gantry_session *next;

	fixture_session(&f, &ask);
	device = make(f.s, WORDS * sizeof(uint32_t), GANTRY_ALLOC_DEVICE);
	host = make(f.s, WORDS * sizeof(uint32_t), GANTRY_ALLOC_HOST);
	other = make(f.s, 4096, GANTRY_ALLOC_HOST);
	pause_queue(&f, f.q, 1);
	first = put_long(&f, device, other, 11);
	second = put_long(&f, host, other, 22);
	await_taken(&f, f.q, GANTRY_TICKET_SEQ(second));

	next = adopt(&f);
	ck_assert_int_eq(gantry_test(next, first), 0);
	ck_assert_uint_gt(scribble(next), MB);
	ck_ok(gantry_queue_set(next, f.q, GANTRY_QUEUE_PAUSED, 0));
	ck_ok(gantry_wait(next, (gantry_ticket[]){ first, second }, 2, LONG_NS));
	for (unsigned i = 0; i < WORDS; i++) {
		ck_assert_uint_eq(word_of(next, device, i), 11);
		ck_assert_uint_eq(word_of(next, host, i), 22);
	}
	gantry_close(next);
	fixture_end(&f);
}
END_TEST

START_TEST(test_adopted_session_lists_buffers_and_queues_in_order_of_handles)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct gantry_buffer_found b = { 0 };
	struct gantry_queue_found q = { 0 };
	struct gantry_session *next;
	gantry_buffer made[3], gone;
	gantry_queue second;
	uint8_t bytes[100] = { 1 };

	made[0] = make(f.s, 100, GANTRY_ALLOC_DEVICE);
	gone = make(f.s, 4096, GANTRY_ALLOC_HOST);
	made[1] = make(f.s, 200, GANTRY_ALLOC_HOST);
	ck_ok(gantry_free(f.s, gone));
	ck_ok(gantry_write(f.s, made[0], 0, bytes,
			   sizeof(bytes))); /* has a queue of the library's opened */
	ck_ok(gantry_queue_open(f.s, &(struct gantry_queue_options){ .kind = GANTRY_KIND_CPU },
				&second));
	made[2] = make(f.s, 5 * MB, 0);
	ck_ok(gantry_wait(f.s, (gantry_ticket[]){ put_empty(&f, f.q) }, 1, LONG_NS));

	next = adopt(&f);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(gantry_buffer_next(next, b.buffer, &b), 1);
		ck_assert(b.buffer == made[0] || b.buffer == made[1] || b.buffer == made[2]);
		ck_assert_uint_eq(b.bytes, b.buffer == made[0]	 ? 100
					   : b.buffer == made[1] ? 200
								 : 5 * MB);
	}
	ck_assert_int_eq(gantry_buffer_next(next, b.buffer, &b), 0);
	ck_assert_int_eq(gantry_queue_next(next, 0, &q), 1);
	ck_assert_uint_eq(q.queue, f.q);
	ck_assert_uint_eq(q.submitted, 1);
	ck_assert_uint_eq(q.finished, 1);
	ck_assert_int_eq(gantry_queue_next(next, q.queue, &q), 1);
	ck_assert_uint_eq(q.queue, second);
	ck_assert_uint_eq(q.kind, GANTRY_KIND_CPU);
	ck_assert_int_eq(gantry_queue_next(next, q.queue, &q), 0);
	ck_assert_int_eq(gantry_read(next, gone, 0, bytes, 1), GANTRY_E_HANDLE);
	gantry_close(next);
	fixture_end(&f);
}
END_TEST

START_TEST(test_adopted_session_knows_how_the_last_tasks_ended)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_ticket failed = put_fail(&f, f.q), good = put_empty(&f, f.q);
	struct gantry_session *next;

	ck_assert_int_lt(outcome(&f, failed), 0);
	ck_ok(gantry_wait(f.s, &good, 1, LONG_NS));
	next = adopt(&f);
	ck_assert_int_lt(gantry_test(next, failed), 0);
	ck_assert_int_eq(gantry_test(next, good), 1);
	ck_assert_int_eq(gantry_test(next, good + 1), GANTRY_E_HANDLE); /* nobody put that */
	gantry_close(next);
	fixture_end(&f);
}
END_TEST

START_TEST(test_calls_with_nothing_to_write_to_are_refused)
{
	struct fixture f = fixture_start(one_cpu, 1);
	uint8_t key[GANTRY_KEY_BYTES] = { 1 };
	struct gantry_session *s = NULL;

	ck_assert_int_eq(gantry_session_key(f.s, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_session_key(f.s, key), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_session_key(NULL, key), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_session_adopt("/nowhere", NULL, 0, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_session_adopt("/nowhere", key, 0, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_session_adopt("/nowhere", key, -2, &s), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_session_adopt("/nowhere", key, 0, &s), GANTRY_E_NO_AGENT);
	ck_assert_int_eq(gantry_buffer_next(f.s, 0, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_queue_next(f.s, 0, NULL), GANTRY_E_ARG);
	ck_assert_ptr_null(s);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adopt");
	TCase *tc = gantry_unit_case(suite, "adopt");

	tcase_add_test(tc, test_adopted_session_runs_the_tasks_it_came_with_whatever_is_allocated);
	tcase_add_test(tc, test_adopted_session_lists_buffers_and_queues_in_order_of_handles);
	tcase_add_test(tc, test_adopted_session_knows_how_the_last_tasks_ended);
	tcase_add_test(tc, test_calls_with_nothing_to_write_to_are_refused);
	return gantry_unit_run(suite);
}
