/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest can do to its own segment and bell, in an engine shared with its neighbour and through gantryd. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "tests/misuse/world.h"

#define ATTACK_NS (200 * (int64_t)GANTRY_NS_PER_MS)

static struct hostile h;
static uint32_t queue;

static void begin(void)
{
	world_hostile(&h);
	ck_assert_int_eq(hostile_queue(&h, &queue, NULL), GANTRY_OK);
}

static void finish(void)
{
	world_hostile_end(&h);
}

/* Tasks that keep the device busy while the attack goes on. */
static void run_and_queue(void)
{
	uint64_t kernel, ns = 2000000;

	ck_assert_int_eq(hostile_kernel(&h, "spin", NULL, &kernel, NULL), GANTRY_OK);
	for (int i = 0; i < 20; i++)
		(void)hostile_launch(&h, queue, kernel, NULL, 0, &ns, sizeof(ns));
}

/* As the engine told its owner: the word in the segment may have been overwritten by then. */
static int ended_in_engine(void)
{
	const int32_t *ended = &world.host->sessions[h.welcome.session_id].ended;
	uint64_t deadline = gantry_deadline_ns((int64_t)HOSTILE_WAIT_MS * 1000000);

	while (!gantry_load_acquire(ended) && !gantry_deadline_passed(deadline))
		(void)poll(NULL, 0, 1);
	return gantry_load_acquire(ended) ? *ended : HOSTILE_TIMEOUT;
}

static void expect_end(int status)
{
	int seen = world.kind == WORLD_ENGINE ? ended_in_engine()
					      : hostile_ended(&h, HOSTILE_WAIT_MS);

	ck_assert_msg(seen == status, "the session ended with %s, not %s",
		      seen == HOSTILE_TIMEOUT ? "nothing" : gantry_status_name(seen),
		      gantry_status_name(status));
}

static void lie(uint32_t slot, uint64_t tail)
{
	gantry_store_release(&h.rings[slot].map.area->tail, tail);
	(void)gantry_fetch_add(&h.shared->bell, 1);
	hostile_ring(&h);
}

/* ---- positions ---- */

START_TEST(test_tail_far_ahead_ends_the_session)
{
	run_and_queue();
	lie(queue, h.rings[queue].tail + h.header.nslots + 100);
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_one_past_the_ring_ends_the_session)
{
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	lie(queue, h.rings[queue].tail + h.header.nslots + 1);
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_going_backwards_ends_the_session)
{
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	run_and_queue();
	lie(queue, 2);
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_at_the_ends_of_its_range_ends_the_session)
{
	lie(queue, _i ? UINT64_MAX : 1ull << 63);
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_of_the_control_ring_lies)
{
	lie(0, _i ? h.rings[0].tail + (1u << 20) : h.rings[0].tail - 1);
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_of_a_closed_queue_lies_until_it_is_opened)
{
	uint32_t other;
	int status;

	lie(queue + 1, 1ull << 40);
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	status = hostile_queue(&h, &other, NULL);
	if (status == GANTRY_OK)
		expect_end(GANTRY_E_PROTOCOL);
	else
		ck_assert_int_eq(status, GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_tail_over_descriptors_never_written_answers_each)
{
	uint64_t last = h.rings[queue].tail + h.header.nslots;

	lie(queue, last);
	for (uint64_t seq = last - h.header.nslots + 1; seq <= last; seq++)
		ck_assert_int_eq(hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS),
				 GANTRY_E_UNSUPPORTED);
	h.rings[queue].tail = last;
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

/* ---- descriptors ---- */

START_TEST(test_random_descriptors_each_get_a_status)
{
	uint64_t seed = 7, seq = 0;
	struct gantry_desc desc;
	uint8_t inl[GANTRY_INLINE_BYTES];

	for (int i = 0; i < 4000; i++) {
		hostile_noise(&seed, &desc, sizeof(desc));
		hostile_noise(&seed, inl, sizeof(inl));
		/* Half of them with an operation and flags that exist, so that the fields are looked at. */
		if (i & 1) {
			desc.op = (uint16_t)(1 + hostile_random(&seed) % 7);
			desc.flags &= GANTRY_DESC_FLAGS_ALL;
			desc.len_bytes %= 300;
			desc.off_bytes &= 0xff8;
		}
		/* A wait for a ticket in this ring's future would be legal, and a bore. */
		seq = hostile_put(&h, queue, &desc, inl, sizeof(inl));
		ck_assert_uint_ne(seq, 0);
	}
	ck_assert_int_le(hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS), 0);
	ck_assert(hostile_alive(&h));
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

START_TEST(test_random_control_descriptors_each_get_a_reply)
{
	uint64_t seed = 8;
	struct gantry_desc desc;
	uint8_t inl[GANTRY_INLINE_BYTES];

	for (int i = 0; i < 4000; i++) {
		uint64_t seq;

		hostile_noise(&seed, &desc, sizeof(desc));
		hostile_noise(&seed, inl, sizeof(inl));
		if (i & 1) {
			desc.op = (uint16_t)(16 + hostile_random(&seed) % 12);
			desc.flags &= GANTRY_DESC_FLAGS_ALL;
			desc.len_bytes %= 200;
			desc.off_bytes = 0;
			memset(desc.imm + hostile_random(&seed) % 40, 0,
			       8); /* handles and reserved fields like 0 */
		}
		seq = hostile_put(&h, 0, &desc, inl, sizeof(inl));
		ck_assert_uint_ne(seq, 0);
		ck_assert_int_le(hostile_wait(&h, 0, seq, HOSTILE_WAIT_MS), 0);
	}
	ck_assert(hostile_alive(&h));
}
END_TEST

struct flipper {
	pthread_t thread;
	uint32_t stop;
	volatile uint64_t *words;
	size_t nwords;
	uint64_t good[32];
	uint64_t seed;
};

/* It races with both sides on purpose: that is the attack. */
__attribute__((no_sanitize_thread)) static void *flip(void *arg)
{
	struct flipper *f = arg;

	while (!gantry_load_relaxed(&f->stop)) {
		size_t i = hostile_random(&f->seed) % f->nwords;

		f->words[i] = hostile_random(&f->seed);
		/* Back again, so that the reader meets every mixture. */
		if (f->nwords <= 32)
			f->words[i] = f->good[i];
	}
	return NULL;
}

static void flip_start(struct flipper *f, void *at, size_t bytes)
{
	memset(f, 0, sizeof(*f));
	f->words = at;
	f->nwords = bytes / 8;
	f->seed = 99;
	if (f->nwords <= 32)
		memcpy(f->good, at, bytes);
	ck_assert_int_eq(pthread_create(&f->thread, NULL, flip, f), 0);
}

static void flip_stop(struct flipper *f)
{
	gantry_store_relaxed(&f->stop, 1u);
	ck_assert_int_eq(pthread_join(f->thread, NULL), 0);
}

/* @what: 0 the descriptor itself, 1 its inline part. */
static void rewrite_while_read(int what)
{
	uint64_t deadline = gantry_deadline_ns(ATTACK_NS);
	uint64_t kernel, buffer;
	struct gantry_wire_access access[2];
	struct {
		uint64_t data;
		uint64_t sum;
		uint64_t n;
	} args = { .n = 4096 };

	ck_assert_int_eq(hostile_kernel(&h, "checksum", NULL, &kernel, NULL), GANTRY_OK);
	ck_assert_int_eq(hostile_buffer(&h, 8192, GANTRY_ALLOC_DEVICE, &buffer), GANTRY_OK);
	access[0] = (struct gantry_wire_access){
		.buffer = buffer, .len = 4096, .mode = GANTRY_R, .arg_off = 0
	};
	access[1] = (struct gantry_wire_access){
		.buffer = buffer, .off = 4096, .mode = GANTRY_W, .arg_off = 8
	};
	while (!gantry_deadline_passed(deadline)) {
		struct gantry_ring_producer *p = &h.rings[queue];
		void *at = what ? (void *)gantry_ring_inline(p, 0) : (void *)gantry_ring_desc(p, 0);
		struct flipper f;
		uint64_t seq = 0;

		flip_start(&f, at, what ? 88 : 64);
		for (uint32_t i = 0; i < h.header.nslots; i++) {
			seq = hostile_launch(&h, queue, kernel, access, 2, &args, sizeof(args));
			ck_assert_uint_ne(seq, 0);
		}
		ck_assert_int_le(hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS), 0);
		flip_stop(&f);
	}
	ck_assert(hostile_alive(&h));
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}

START_TEST(test_descriptor_rewritten_while_it_is_read)
{
	rewrite_while_read(0);
}
END_TEST

START_TEST(test_inline_part_rewritten_while_it_is_read)
{
	rewrite_while_read(1);
}
END_TEST

START_TEST(test_heap_part_rewritten_while_it_is_read)
{
	uint64_t off = hostile_heap(&h, 4096), deadline = gantry_deadline_ns(ATTACK_NS), kernel;
	struct gantry_op_launch op = { .naccess = 32 };
	struct gantry_desc desc;
	struct flipper f;

	ck_assert_int_eq(hostile_kernel(&h, "checksum", NULL, &kernel, NULL), GANTRY_OK);
	op.kernel = kernel;
	op.args_bytes = 24;
	gantry_desc_put_launch(&desc, &op);
	gantry_desc_set_heap(&desc, off, 32 * 32 + 24);
	flip_start(&f, hostile_heap_at(&h, off), 4096);
	while (!gantry_deadline_passed(deadline)) {
		uint64_t seq = hostile_put(&h, queue, &desc, NULL, 0);

		ck_assert_uint_ne(seq, 0);
		ck_assert_int_lt(hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS), 0);
	}
	flip_stop(&f);
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

/* ---- the whole segment ---- */

static int outcome(void)
{
	int status = hostile_ended(&h, 300);

	/* Either it went on, or it was ended with a reason. */
	if (status != HOSTILE_TIMEOUT)
		ck_assert_msg(status == GANTRY_E_PROTOCOL || status == GANTRY_E_DETACHED,
			      "ended with %d", status);
	return status;
}

START_TEST(test_segment_filled_by_the_guest)
{
	static const uint8_t bytes[] = { 0xff, 0x00, 0x01, 0x80 };

	run_and_queue();
	memset(h.segment.base, bytes[_i], h.segment.bytes);
	hostile_ring(&h);
	/* Only zeroes leave tails that make sense, and then only where nothing had been put. */
	(void)outcome();
}
END_TEST

START_TEST(test_segment_filled_with_noise_again_and_again)
{
	uint64_t seed = 3, deadline = gantry_deadline_ns(ATTACK_NS);

	run_and_queue();
	while (!gantry_deadline_passed(deadline)) {
		hostile_noise(&seed, h.segment.base, h.header.heap_off);
		hostile_ring(&h);
	}
	expect_end(GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_noise_everywhere_but_in_the_tails)
{
	uint64_t seed = 4, deadline = gantry_deadline_ns(ATTACK_NS);
	uint32_t other;

	ck_assert_int_eq(hostile_queue(&h, &other, NULL), GANTRY_OK);
	run_and_queue();
	while (!gantry_deadline_passed(deadline)) {
		for (uint32_t i = 0; i < h.header.nqueues; i++) {
			const struct gantry_ring_map *m = &h.rings[i].map;

			hostile_noise(&seed, (uint8_t *)m->area + 64, 64);
			hostile_noise(&seed, m->status, 4ull * m->nslots);
			hostile_noise(&seed, m->desc, sizeof(*m->desc) * m->nslots);
			hostile_noise(&seed, m->inl, sizeof(*m->inl) * m->nslots);
			if (i == other || i == queue) {
				uint64_t *tail = &m->area->tail;

				/* Sometimes something to chew on; never more than the ring holds. */
				if (h.rings[i].tail - *tail < 8)
					gantry_store_release(tail, *tail + 1);
			}
		}
		hostile_ring(&h);
	}
	(void)outcome();
}
END_TEST

START_TEST(test_holes_punched_while_tasks_run)
{
	static const struct {
		bool from_heap;
		bool to_end;
	} parts[] = { { true, true }, { false, false }, { false, true } };
	uint64_t from = parts[_i].from_heap ? h.header.heap_off : 0;
	uint64_t to = parts[_i].to_end ? h.segment.bytes : h.header.heap_off;
	uint64_t deadline = gantry_deadline_ns(ATTACK_NS), buffer, heap = hostile_heap(&h, 1 << 20);
	struct gantry_op_write op = { .heap_off = heap, .bytes = 1 << 20 };
	struct gantry_desc desc;

	ck_assert_int_eq(hostile_buffer(&h, 1 << 20, GANTRY_ALLOC_DEVICE, &buffer), GANTRY_OK);
	op.buffer = buffer;
	run_and_queue();
	while (!gantry_deadline_passed(deadline) && hostile_alive(&h)) {
		gantry_desc_put_write(&desc, &op);
		if (parts[_i].from_heap)
			ck_assert_uint_ne(hostile_put(&h, queue, &desc, NULL, 0), 0);
		ck_assert_int_eq(fallocate(h.segment_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)from, (off_t)(to - from)),
				 0);
		hostile_ring(&h);
	}
	if (parts[_i].from_heap)
		ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	else
		(void)outcome();
}
END_TEST

START_TEST(test_segment_refuses_to_shrink_and_to_grow)
{
	ck_assert_int_lt(ftruncate(h.segment_fd, 4096), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(ftruncate(h.segment_fd, (off_t)h.segment.bytes * 2), 0);
	ck_assert_int_lt(fallocate(h.segment_fd, 0, 0, (off_t)h.segment.bytes * 2), 0);
	ck_assert_int_lt(fcntl(h.segment_fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

START_TEST(test_completion_words_overwritten_by_the_guest_fool_the_guest_only)
{
	struct gantry_queue_area *area = h.rings[queue].map.area;
	static const uint64_t lies[] = { 0, 1, UINT64_MAX, 1ull << 63, 1000000 };
	uint64_t kernel, ns = 100000;

	ck_assert_int_eq(hostile_kernel(&h, "spin", NULL, &kernel, NULL), GANTRY_OK);
	for (unsigned int i = 0; i < 200; i++) {
		uint64_t seq = hostile_launch(&h, queue, kernel, NULL, 0, &ns, sizeof(ns));

		ck_assert_uint_ne(seq, 0);
		gantry_store_relaxed(&area->done, lies[i % 5]);
		gantry_store_relaxed(&area->head, lies[(i + 1) % 5]);
		gantry_store_relaxed(&area->nfailed, lies[(i + 2) % 5]);
		gantry_store_relaxed(&area->state, (uint32_t)i);
		gantry_store_relaxed(&area->parked, (uint32_t)i & 1);
		gantry_store_relaxed(&area->waiters, UINT32_MAX);
		memset(h.rings[queue].map.status, (int)i, 4ull * h.header.nslots);
		/* What it believes itself would keep it from putting more. */
		gantry_store_relaxed(&area->done, seq);
		gantry_store_relaxed(&area->head, seq);
		if (i % 16 == 15)
			(void)poll(NULL, 0,
				   2); /* the host is to see some of this; nothing waits for it */
	}
	hostile_ring(&h);
	/* The host knows better, and says so with what it publishes next. */
	for (int i = 0; i < 5; i++)
		(void)hostile_ping(&h, queue);
	ck_assert_int_eq(hostile_wait(&h, queue, h.rings[queue].tail, HOSTILE_WAIT_MS), GANTRY_OK);
	ck_assert(hostile_alive(&h));
}
END_TEST

START_TEST(test_header_overwritten_by_the_guest_changes_nothing_for_the_host)
{
	uint64_t seed = 5, bell = h.shared->bell;

	run_and_queue();
	hostile_noise(&seed, h.shared, sizeof(*h.shared));
	h.shared->state = GANTRY_SESSION_ATTACHED; /* our own eyes */
	h.shared->bell = bell;
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

/* ---- bell ---- */

static void fill_bell(bool blocking)
{
	uint64_t most = UINT64_MAX - 1;

	ck_assert_int_eq(write(h.bell_fd, &most, sizeof(most)), sizeof(most));
	if (blocking)
		ck_assert_int_eq(fcntl(h.bell_fd, F_SETFL, fcntl(h.bell_fd, F_GETFL) & ~O_NONBLOCK),
				 0);
}

START_TEST(test_bell_filled_and_made_blocking_delays_its_owner_only)
{
	uint64_t drained;

	run_and_queue();
	/* What fits: another guest thread may have rung before. */
	(void)!read(h.bell_fd, &drained, sizeof(drained));
	fill_bell(true);
	neighbour_check(&world.neighbour);
	/* Nobody can ring any more; the host looks by itself now and then. */
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	ck_assert_int_eq(hostile_ping(&h, 0), GANTRY_E_UNSUPPORTED);
}
END_TEST

/*
 * A stolen wake-up costs its thief up to the time the host sleeps at most; how
 * many thefts succeed is up to the scheduler. So the attack has a time, not a count.
 */
START_TEST(test_bell_drained_by_the_guest)
{
	uint64_t deadline = gantry_deadline_ns(10 * ATTACK_NS), count;

	while (!gantry_deadline_passed(deadline)) {
		struct gantry_op_marker op = { 0 };
		struct gantry_desc desc;
		uint64_t seq;

		gantry_desc_put_marker(&desc, &op);
		seq = hostile_put(&h, queue, &desc, NULL, 0);
		(void)!read(h.bell_fd, &count, sizeof(count));
		ck_assert_int_eq(hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS), GANTRY_OK);
	}
}
END_TEST

START_TEST(test_bell_rung_without_end_disturbs_nobody)
{
	uint64_t deadline = gantry_deadline_ns(ATTACK_NS);

	while (!gantry_deadline_passed(deadline)) {
		hostile_ring(&h);
		(void)gantry_fetch_add(&h.shared->bell, 1);
	}
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

START_TEST(test_bell_closed_by_the_guest)
{
	run_and_queue();
	close(h.bell_fd);
	h.bell_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_checked_fixture(tc, begin, finish);
	tcase_add_test(tc, test_tail_far_ahead_ends_the_session);
	tcase_add_test(tc, test_tail_one_past_the_ring_ends_the_session);
	tcase_add_test(tc, test_tail_going_backwards_ends_the_session);
	tcase_add_loop_test(tc, test_tail_at_the_ends_of_its_range_ends_the_session, 0, 2);
	tcase_add_loop_test(tc, test_tail_of_the_control_ring_lies, 0, 2);
	tcase_add_test(tc, test_tail_of_a_closed_queue_lies_until_it_is_opened);
	tcase_add_test(tc, test_tail_over_descriptors_never_written_answers_each);
	tcase_add_test(tc, test_random_descriptors_each_get_a_status);
	tcase_add_test(tc, test_random_control_descriptors_each_get_a_reply);
	tcase_add_test(tc, test_descriptor_rewritten_while_it_is_read);
	tcase_add_test(tc, test_inline_part_rewritten_while_it_is_read);
	tcase_add_test(tc, test_heap_part_rewritten_while_it_is_read);
	tcase_add_loop_test(tc, test_segment_filled_by_the_guest, 0, 4);
	tcase_add_test(tc, test_segment_filled_with_noise_again_and_again);
	tcase_add_test(tc, test_noise_everywhere_but_in_the_tails);
	tcase_add_loop_test(tc, test_holes_punched_while_tasks_run, 0, 3);
	tcase_add_test(tc, test_segment_refuses_to_shrink_and_to_grow);
	tcase_add_test(tc, test_completion_words_overwritten_by_the_guest_fool_the_guest_only);
	tcase_add_test(tc, test_header_overwritten_by_the_guest_changes_nothing_for_the_host);
	tcase_add_test(tc, test_bell_filled_and_made_blocking_delays_its_owner_only);
	tcase_add_test(tc, test_bell_drained_by_the_guest);
	tcase_add_test(tc, test_bell_rung_without_end_disturbs_nobody);
	tcase_add_test(tc, test_bell_closed_by_the_guest);
}

int main(void)
{
	Suite *suite = suite_create("misuse-ring");

	add_tests(world_case(suite, "engine", WORLD_ENGINE));
	add_tests(world_case(suite, "agent", WORLD_AGENT));
	return gantry_unit_run(suite);
}
