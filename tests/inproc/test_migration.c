/* SPDX-License-Identifier: Apache-2.0 */
/* Queues that move between devices while they run: every task once, every byte right, every charge given back. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/inproc/fixture.h"

#define MIB (UINT64_C(1) << 20)

static const char *const windows[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes" };
static const char *const host_to_window[] = { "cpu cores=1", "cpu cores=1 window=yes" };
static const char *const window_to_host[] = { "cpu cores=1 window=yes", "cpu cores=1" };
static const char *const unlike[] = { "cpu cores=1", "null" };

static const char *const *const pairs[] = { two_cpus, windows, host_to_window, window_to_host };

static struct gantry_engine_migrate ask(const struct fixture *f, gantry_queue q, uint32_t device)
{
	static uint64_t next;

	return (struct gantry_engine_migrate){
		.id = ++next,
		.session_id = host_session(f)->id,
		.slot = GANTRY_HANDLE_SLOT(q),
		.device = device,
	};
}

static int begin(const struct fixture *f, const struct gantry_engine_migrate *a,
		 struct gantry_engine_migration *ret_plan, struct gantry_err *err)
{
	return gantry_engine_migrate(f->h->engine, a, ret_plan, err);
}

static struct gantry_engine_migration last_word(const struct fixture *f, uint32_t n)
{
	struct gantry_engine_migration report;
	bool over = false;

	eventually((pthread_mutex_lock(&f->h->kept_lock), over = f->h->nmigrations_over >= n,
		    report = f->h->migration, pthread_mutex_unlock(&f->h->kept_lock), over));
	return report;
}

static uint32_t nover(const struct fixture *f)
{
	uint32_t n;

	pthread_mutex_lock(&f->h->kept_lock);
	n = f->h->nmigrations_over;
	pthread_mutex_unlock(&f->h->kept_lock);
	return n;
}

/* Moves the queue and waits; the last word. */
static struct gantry_engine_migration move(const struct fixture *f, gantry_queue q, uint32_t device)
{
	struct gantry_engine_migrate a = ask(f, q, device);
	struct gantry_engine_migration plan;
	uint32_t n = nover(f) + 1;
	struct gantry_err err;

	ck_assert_msg(begin(f, &a, &plan, &err) == 0, "%s", err.text);
	return last_word(f, n);
}

static uint32_t device_of(const struct fixture *f, gantry_queue q)
{
	return gantry_load_relaxed(&ledger_queue(f, q)->device);
}

static gantry_queue queue_at(const struct fixture *f, uint32_t device)
{
	struct gantry_queue_options options = { .device_mask = 1ull << device };
	gantry_queue q;

	ck_ok(gantry_queue_open(f->s, &options, &q));
	ck_ok(gantry_queue_set(f->s, q, GANTRY_QUEUE_DEVICE_MASK, 0));
	ck_assert_uint_eq(device_of(f, q), device);
	return q;
}

static uint64_t sum_of(const struct fixture *f, gantry_queue q, gantry_buffer b, uint64_t bytes)
{
	gantry_buffer staged = make_buffer(f, bytes, GANTRY_ALLOC_HOST);
	uint64_t sum = 0;
	uint32_t *words;
	gantry_ticket t;

	ck_ok(gantry_submit_copy(f->s, q, staged, 0, b, 0, bytes, &t));
	ck_assert_int_eq(outcome(f, t), GANTRY_OK);
	ck_ok(gantry_map(f->s, staged, 0, bytes, GANTRY_R, LONG_NS, (void **)&words));
	for (uint64_t i = 0; i < bytes / 4; i++)
		sum = sum * 31 + words[i];
	ck_ok(gantry_unmap(f->s, words));
	ck_ok(gantry_free(f->s, staged));
	return sum;
}

static void fill_part(const struct fixture *f, gantry_queue q, gantry_buffer b, uint64_t off,
		      uint64_t bytes, uint32_t value, gantry_ticket *ret_t)
{
	ck_ok(gantry_submit_fill(f->s, q, b, off, bytes, value, sizeof(value), ret_t));
}

/* ---- the way there ---- */

START_TEST(test_queue_moves_with_its_bytes_between_devices_of_all_sorts)
{
	const uint64_t bytes = 8 * MIB;
	struct fixture f = fixture_start(pairs[_i], 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, bytes, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migration end;
	gantry_ticket t;
	uint64_t sum;

	for (uint32_t i = 0; i < 8; i++)
		fill_part(&f, q, b, i * MIB, MIB, i * 77 + 1, &t);
	sum = sum_of(&f, q, b, bytes);
	for (uint32_t to = 1; to < 5; to++) {
		end = move(&f, q, to % 2);
		ck_assert_msg(end.error == 0, "%s", end.text);
		ck_assert_int_eq(end.state, GANTRY_MIGRATION_DONE);
		ck_assert_uint_eq(device_of(&f, q), to % 2);
		ck_assert_uint_eq(end.counts.owned_bytes, bytes);
		ck_assert_uint_eq(end.counts.moved_bytes, _i == 0 ? 0 : bytes);
		ck_assert_uint_eq(sum_of(&f, q, b, bytes), sum);
		ck_assert_uint_eq(ledger_object(&f, b)->buffer.device, to % 2);
		ck_assert_uint_eq(f.h->pages[to % 2]->hdr.mem_used, bytes);
		ck_assert_uint_eq(f.h->pages[(to + 1) % 2]->hdr.mem_used, 0);
	}
	fixture_end(&f);
}
END_TEST

/* Tasks that each add a part: whatever order of copies, the end must be as if it had not moved. */
START_TEST(test_busy_queue_moves_to_and_fro_and_every_task_runs_once)
{
	enum {
		NPARTS = 16,
		NMOVES = 12
	};
	const uint64_t bytes = NPARTS * MIB;
	struct fixture f = fixture_start(pairs[_i], 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, bytes, GANTRY_ALLOC_DEVICE);
	gantry_buffer staged = make_buffer(&f, bytes, GANTRY_ALLOC_HOST);
	uint32_t want[NPARTS] = { 0 };
	uint32_t *words;
	gantry_ticket t;
	uint32_t n = 0;

	fill_part(&f, q, b, 0, bytes, 0, &t);
	for (uint32_t i = 0; i < NMOVES; i++) {
		struct gantry_engine_migrate a = ask(&f, q, (i + 1) % 2);
		struct gantry_engine_migration plan, end;
		struct gantry_err err;
		uint32_t over = nover(&f);

#ifdef GANTRY_ATOMIC_UNDER_TSAN
		/* What is copied ahead is written meanwhile, and copied again: a race that is meant. The copy at the end must have none. */
		a.policy.no_precopy = true;
#endif
		ck_assert_msg(begin(&f, &a, &plan, &err) == 0, "%s", err.text);
		while (nover(&f) == over) {
			uint32_t part = n * 7 % NPARTS;

			want[part] = ++n;
			fill_part(&f, q, b, part * MIB, MIB, n, &t);
			if (n % 4 == 0)
				ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
		}
		end = last_word(&f, over + 1);
		ck_assert_msg(end.error == 0, "%s", end.text);
		ck_assert_uint_eq(device_of(&f, q), (i + 1) % 2);
	}
	ck_ok(gantry_submit_copy(f.s, q, staged, 0, b, 0, bytes, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_ok(gantry_map(f.s, staged, 0, bytes, GANTRY_R, LONG_NS, (void **)&words));
	for (uint64_t i = 0; i < bytes / 4; i++)
		ck_assert_uint_eq(words[i], want[i / (MIB / 4)]);
	ck_assert_uint_eq(ledger_queue(&f, q)->nfailed, 0);
	ck_ok(gantry_unmap(f.s, words));
	fixture_end(&f);
}
END_TEST

START_TEST(test_only_what_the_queue_owns_moves)
{
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0), other = queue_at(&f, 0);
	gantry_buffer mine = make_buffer(&f, 3 * MIB, GANTRY_ALLOC_DEVICE);
	gantry_buffer its = make_buffer(&f, 5 * MIB, GANTRY_ALLOC_DEVICE);
	gantry_buffer read = make_buffer(&f, 7 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migration end;
	gantry_ticket t;

	fill_part(&f, q, mine, 0, 3 * MIB, 1, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fill_part(&f, other, its, 0, 5 * MIB, 2, &t);
	fill_part(&f, other, read, 0, 7 * MIB, 3, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	/* Read by both, written by the other. */
	ck_ok(gantry_submit_copy(f.s, q, mine, 0, read, 0, 64, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	end = move(&f, q, 1);
	ck_assert_int_eq(end.error, 0);
	ck_assert_uint_eq(end.counts.owned_bytes, 3 * MIB);
	ck_assert_uint_eq(end.counts.moved_bytes, 3 * MIB);
	ck_assert_uint_eq(ledger_object(&f, its)->buffer.device, 0);
	ck_assert_uint_eq(ledger_object(&f, read)->buffer.device, 0);
	ck_assert_uint_eq(device_of(&f, other), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_first_round_is_told_part_by_part)
{
	struct fixture f = fixture_start(host_to_window, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, 128 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migration end;
	gantry_ticket t;

	fill_part(&f, q, b, 0, 128 * MIB, 1, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	end = move(&f, q, 1);
	ck_assert_int_eq(end.error, 0);
	ck_assert_uint_eq(end.counts.moved_bytes, 128 * MIB);
	/* A round has several pieces. */
	ck_assert_uint_ge(f.h->nmigration_parts, 3);
	ck_assert_uint_le(f.h->nmigration_parts, 8);
	fixture_end(&f);
}
END_TEST

/* The copy begins at the end: what is written meanwhile at the start has not been copied yet. */
START_TEST(test_what_is_written_before_its_place_is_copied_goes_once)
{
	const uint64_t bytes = 128 * MIB;
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, bytes, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration end;
	struct gantry_err err;
	gantry_ticket t;
	uint64_t sum;

	fill_part(&f, q, b, 0, bytes, 1, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	inproc_pause_slabs(f.h, true);
	ck_assert_int_eq(begin(&f, &a, &end, &err), 0);
	eventually(gantry_load_relaxed(&ledger_object(&f, b)->buffer.to) == 2);
	fill_part(&f, q, b, MIB, 8 * MIB, 2, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	inproc_pause_slabs(f.h, false);
	end = last_word(&f, 1);
	ck_assert_int_eq(end.error, 0);
	ck_assert_uint_eq(end.counts.owned_bytes, bytes);
	ck_assert_uint_eq(end.counts.moved_bytes, bytes);
	ck_assert_uint_eq(end.counts.nrounds, 1);
	sum = sum_of(&f, q, b, 16 * MIB);
	fill_part(&f, q, b, 0, bytes, 1, &t);
	fill_part(&f, q, b, MIB, 8 * MIB, 2, &t);
	ck_assert_uint_eq(sum_of(&f, q, b, 16 * MIB), sum);
	fixture_end(&f);
}
END_TEST

START_TEST(test_lazy_move_is_there_at_once_and_pulls_what_is_used)
{
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer used = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE);
	gantry_buffer idle = make_buffer(&f, 16 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration end;
	struct gantry_err err;
	gantry_ticket t;
	uint64_t sum;

	fill_part(&f, q, used, 0, MIB, 1, &t);
	fill_part(&f, q, idle, 0, 16 * MIB, 2, &t);
	sum = sum_of(&f, q, used, MIB);
	a.lazy = 1;
	ck_assert_int_eq(begin(&f, &a, &end, &err), 0);
	end = last_word(&f, 1);
	ck_assert_int_eq(end.error, 0);
	ck_assert_uint_eq(end.counts.moved_bytes, 0);
	ck_assert_uint_eq(sum_of(&f, q, used, MIB), sum);
	ck_assert_uint_eq(ledger_object(&f, used)->buffer.device, 1);
	ck_assert_uint_eq(ledger_object(&f, idle)->buffer.device, 0);
	ck_assert_uint_eq(host_session(&f)->ledger.hdr->moved_bytes, MIB);
	fixture_end(&f);
}
END_TEST

START_TEST(test_running_task_is_waited_for_and_told_as_the_longest)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_ticket t = put_spin(&f, q, 200 * GANTRY_NS_PER_MS);
	struct gantry_engine_migration end;

	eventually(gantry_load_acquire(&ledger_queue(&f, q)->issued) >= 1);
	(void)put_empty(&f, q);
	end = move(&f, q, 1);
	ck_assert_int_eq(end.error, 0);
	ck_assert_uint_ge(end.counts.pause_ns, end.counts.longest_task_ns);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* ---- refusals, and the way back ---- */

START_TEST(test_bad_requests_are_refused_and_the_queue_stays)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue q = queue_at(&f, 0);
	struct gantry_engine_migrate a = ask(&f, q, 0);
	struct gantry_engine_migration plan;
	struct gantry_err err;

	ck_assert_int_eq(begin(&f, &a, &plan, &err), -EALREADY);
	a.device = 7;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENODEV);
	a.device = 1;
	a.slot = 0;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOENT);
	a.slot = 63;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOENT);
	a.slot = 5000;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOENT);
	a = ask(&f, q, 1);
	a.session_id++;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOENT);
	ck_ok(gantry_queue_set(f.s, q, GANTRY_QUEUE_DEVICE_MASK, 1));
	a = ask(&f, q, 1);
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENODEV);
	ck_assert_int_eq(gantry_engine_migrate_cancel(f.h->engine, a.session_id, 99), -ENOENT);
	ck_assert_int_eq(gantry_engine_migrate_cancel(f.h->engine, 12345, 99), -ENOENT);
	ck_assert_int_eq(outcome(&f, put_empty(&f, q)), GANTRY_OK);
	ck_assert_uint_eq(device_of(&f, q), 0);
	fixture_end(&f);
}
END_TEST

/* Kernels of such programs do not say which buffers they use. */
START_TEST(test_queue_stays_where_its_program_knows_addresses)
{
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0), other = queue_at(&f, 1);
	gantry_buffer fixed = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED);
	gantry_buffer plain = make_buffer(&f, MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration plan;
	struct gantry_err err = { 0 };
	uint64_t off;

	ck_assert_int_eq(outcome(&f, put_fill(&f, q, fixed, MIB / 4, 7)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, q, plain, MIB / 4, 7)), GANTRY_OK);
	off = ledger_object(&f, fixed)->buffer.off;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(err.text, "that the program knows"));
	a.dry_run = true;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -ENOTSUP);
	ck_assert_uint_eq(device_of(&f, q), 0);
	ck_assert_uint_eq(ledger_object(&f, fixed)->buffer.place, GANTRY_PLACE_WINDOW);
	ck_assert_uint_eq(ledger_object(&f, fixed)->buffer.device, 0);
	ck_assert_uint_eq(ledger_object(&f, fixed)->buffer.off, off);
	ck_assert_int_eq(move(&f, other, 0).error, 0); /* to where they are */
	ck_ok(gantry_free(f.s, fixed));
	eventually(ledger_object(&f, fixed)->state == GANTRY_OBJECT_FREE);
	ck_assert_int_eq(move(&f, q, 1).error, 0);
	ck_assert_uint_eq(ledger_object(&f, plain)->buffer.device, 1);
	fixture_end(&f);
}
END_TEST

START_TEST(test_dry_run_says_what_it_would_take_and_does_nothing)
{
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, 2 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration plan;
	struct gantry_err err;
	gantry_ticket t;

	fill_part(&f, q, b, 0, 2 * MIB, 1, &t);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	a.dry_run = 1;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), 0);
	ck_assert_uint_eq(plan.counts.owned_bytes, 2 * MIB);
	ck_assert_uint_eq(plan.from, 0);
	ck_assert_uint_eq(plan.to, 1);
	ck_assert_uint_eq(device_of(&f, q), 0);
	ck_assert_uint_eq(nover(&f), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_no_room_at_the_destination_leaves_the_queue_where_it_is)
{
	struct fixture f = fixture_start(pairs[_i], 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, 8 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migration end;
	gantry_ticket t;
	uint64_t sum;

	fill_part(&f, q, b, 0, 8 * MIB, 9, &t);
	sum = sum_of(&f, q, b, 8 * MIB);
	f.h->pages[1]->hdr.mem_bytes = 4 * MIB;
	end = move(&f, q, 1);
	ck_assert_int_eq(end.error, -ENOSPC);
	ck_assert_ptr_nonnull(strstr(end.text, "MiB"));
	ck_assert_int_eq(end.state, GANTRY_MIGRATION_IDLE);
	ck_assert_uint_eq(sum_of(&f, q, b, 8 * MIB), sum);
	ck_assert_uint_eq(device_of(&f, q), 0);
	ck_assert_uint_eq(f.h->pages[1]->hdr.mem_used, 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_second_migration_of_a_queue_is_refused_while_the_first_runs)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue q = queue_at(&f, 0);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration plan;
	struct gantry_err err;
	gantry_ticket t = put_spin(&f, q, 300 * GANTRY_NS_PER_MS);

	eventually(gantry_load_acquire(&ledger_queue(&f, q)->issued) >= 1);
	ck_assert_int_eq(begin(&f, &a, &plan, &err), 0);
	a.id++;
	ck_assert_int_eq(begin(&f, &a, &plan, &err), -EBUSY);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_int_eq(last_word(&f, 1).error, 0);
	fixture_end(&f);
}
END_TEST

/* Slabs at the destination do not come, so that it stays in PRECOPY; or the task does not end, in DRAIN. */
START_TEST(test_cancel_leaves_the_queue_where_it_was_and_gives_all_back)
{
	struct fixture f = fixture_start(windows, 2);
	gantry_queue q = queue_at(&f, 0);
	gantry_buffer b = make_buffer(&f, 64 * MIB, GANTRY_ALLOC_DEVICE);
	struct gantry_engine_migrate a = ask(&f, q, 1);
	struct gantry_engine_migration end;
	struct gantry_err err;
	gantry_ticket t;
	uint64_t sum;

	fill_part(&f, q, b, 0, 64 * MIB, 3, &t);
	fill_part(&f, q, b, MIB, MIB, 4, &t);
	sum = sum_of(&f, q, b, 8 * MIB);
	if (_i == 0)
		inproc_pause_slabs(f.h, true);
	else
		t = put_spin(&f, q, 300 * GANTRY_NS_PER_MS);
	ck_assert_int_eq(begin(&f, &a, &end, &err), 0);
	if (_i == 0)
		eventually(gantry_load_relaxed(&ledger_object(&f, b)->buffer.to) == 2);
	/* It runs on meanwhile. */
	fill_part(&f, q, b, 0, 64, 3, &t);
	if (_i == 0)
		ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_int_eq(gantry_engine_migrate_cancel(f.h->engine, a.session_id, a.id), 0);
	end = last_word(&f, 1);
	ck_assert_int_eq(end.error, -ECANCELED);
	ck_assert_uint_eq(device_of(&f, q), 0);
	ck_assert_uint_eq(ledger_object(&f, b)->buffer.to, 0);
	ck_assert_uint_eq(f.h->pages[1]->hdr.mem_used, 0);
	if (_i == 0)
		inproc_pause_slabs(f.h, false);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_uint_eq(sum_of(&f, q, b, 8 * MIB), sum);
	/* And it can move all the same. */
	ck_assert_int_eq(move(&f, q, 1).error, 0);
	ck_assert_uint_eq(sum_of(&f, q, b, 8 * MIB), sum);
	fixture_end(&f);
}
END_TEST

START_TEST(test_session_or_buffer_that_ends_during_a_move_ends_cleanly)
{
	for (uint32_t i = 0; i < 24; i++) {
		struct fixture f = fixture_start(pairs[_i], 2);
		gantry_queue q = queue_at(&f, 0);
		gantry_buffer b = make_buffer(&f, 24 * MIB, GANTRY_ALLOC_DEVICE);
		struct gantry_engine_migrate a = ask(&f, q, 1);
		struct gantry_engine_migration plan;
		struct gantry_err err;
		gantry_ticket t;
		uint64_t until;

		fill_part(&f, q, b, 0, 24 * MIB, 3, &t);
		ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
		ck_assert_int_eq(begin(&f, &a, &plan, &err), 0);
		/* On a busy machine each of these takes a slice of somebody else's. */
		until = gantry_deadline_ns(GANTRY_NS_PER_MS * 20);
		for (uint32_t k = 0; k < i * 50 && !gantry_deadline_passed(until); k++)
			sched_yield();
		if (i % 3 == 0)
			ck_ok(gantry_free(f.s, b));
		if (i % 3 == 1)
			ck_ok(gantry_queue_close(f.s, q));
		if (i % 2)
			(void)last_word(&f, 1);
		fixture_end(&f);
	}
}
END_TEST

/* ---- kernels that are elsewhere ---- */

/* The null device has no form of the kernels of cpus; copies and fills it takes itself. */
START_TEST(test_queue_follows_its_kernels_and_comes_back)
{
	struct fixture f = fixture_start(unlike, 2);
	gantry_queue q = queue_at(&f, 1);
	gantry_buffer b = make_buffer(&f, MIB, 0);
	uint64_t there = 0;
	gantry_ticket t;

	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(outcome(&f, put_fill(&f, q, b, MIB / 4, i)), GANTRY_OK);
		there += device_of(&f, q) == 0;
		fill_part(&f, q, b, 0, MIB, i, &t);
		ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	}
	ck_assert_uint_eq(there, 50);
	ck_assert_uint_eq(ledger_queue(&f, q)->nfailed, 0);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("migration");
	TCase *there = gantry_unit_case(suite, "there");
	TCase *rounds = gantry_unit_case(suite, "rounds");
	TCase *back = gantry_unit_case(suite, "back");
	TCase *kernels = gantry_unit_case(suite, "kernels");

	tcase_set_timeout(there, 120);
	tcase_set_timeout(rounds, 120);
	tcase_set_timeout(back, 120);
	tcase_add_loop_test(there, test_queue_moves_with_its_bytes_between_devices_of_all_sorts, 0,
			    4);
	tcase_add_loop_test(there, test_busy_queue_moves_to_and_fro_and_every_task_runs_once, 0, 4);
	tcase_add_test(there, test_only_what_the_queue_owns_moves);
	tcase_add_test(there, test_first_round_is_told_part_by_part);
	tcase_add_test(rounds, test_what_is_written_before_its_place_is_copied_goes_once);
	tcase_add_test(there, test_lazy_move_is_there_at_once_and_pulls_what_is_used);
	tcase_add_test(there, test_running_task_is_waited_for_and_told_as_the_longest);
	tcase_add_test(back, test_bad_requests_are_refused_and_the_queue_stays);
	tcase_add_test(back, test_queue_stays_where_its_program_knows_addresses);
	tcase_add_test(back, test_dry_run_says_what_it_would_take_and_does_nothing);
	tcase_add_loop_test(back, test_no_room_at_the_destination_leaves_the_queue_where_it_is, 0,
			    4);
	tcase_add_test(back, test_second_migration_of_a_queue_is_refused_while_the_first_runs);
	tcase_add_loop_test(back, test_cancel_leaves_the_queue_where_it_was_and_gives_all_back, 0,
			    2);
	tcase_add_loop_test(back, test_session_or_buffer_that_ends_during_a_move_ends_cleanly, 0,
			    4);
	tcase_add_test(kernels, test_queue_follows_its_kernels_and_comes_back);
	return gantry_unit_run(suite);
}
