/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a migration, between a source and a sink that answer what a test tells them to. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "migration/migrate.h"
#include "tests/unit/runner.h"

enum op {
	BEGIN,
	PREPARE,
	ROUND,
	ORPHAN,
	DRAINED,
	COPY,
	READY,
	RELEASE,
	ADOPT,
	DISCARD,
	RESUME,
	NOPS,
};

static const char *const op_names[NOPS] = { "begin",   "prepare", "round", "orphan",
					    "drained", "copy",	  "ready", "release",
					    "adopt",   "discard", "resume" };

/* Both sides: what they are to answer, what they were asked, who may run. */
struct world {
	int busy[NOPS];	 /* so often -EAGAIN first */
	int fails[NOPS]; /* then this */
	unsigned asked[NOPS];
	char log[1024];
	uint64_t owned;
	uint64_t dirty[GANTRY_MIGRATION_MAX_ROUNDS + 1]; /* what round i finds written */
	bool source_runs;
	bool sink_runs;
	bool released;
	bool reserved;
	uint64_t now_ns;
	uint64_t drain_ns; /* that drained() takes by itself */
	uint64_t round_ns;
	bool copying;
	struct gantry_migration *m;
};

static struct world w;

static int answer(enum op op, struct gantry_err *err)
{
	const struct gantry_migration_invariant *holds = gantry_migration_invariant(w.m->state);

	w.asked[op]++;
	/* The written invariant, at each call. */
	ck_assert_msg(!w.source_runs || holds->source_takes, "the source runs in %s",
		      gantry_migration_state_name(w.m->state));
	ck_assert(!w.sink_runs || holds->sink_takes);
	ck_assert(!(w.source_runs && w.sink_runs));
	if (w.busy[op] > 0) {
		w.busy[op]--;
		return -EAGAIN;
	}
	if (strlen(w.log) + 16 < sizeof(w.log)) {
		strcat(w.log, op_names[op]);
		strcat(w.log, " ");
	}
	if (w.fails[op])
		return gantry_err_set(err, w.fails[op], "%s was told to fail", op_names[op]);
	return 0;
}

static int do_begin(void *cookie, uint64_t *ret_owned, struct gantry_err *err)
{
	int r = answer(BEGIN, err);

	ck_assert_ptr_eq(cookie, &w);
	if (r == 0)
		*ret_owned = w.owned;
	return r;
}

static int do_round(void *cookie, uint32_t round, const struct gantry_migration_sink *sink,
		    void *sink_cookie, uint64_t *ret_bytes, uint64_t *ret_dirty,
		    struct gantry_err *err)
{
	int r;

	(void)cookie;
	ck_assert_ptr_nonnull(sink);
	ck_assert_ptr_eq(sink_cookie, &w);
	ck_assert_uint_lt(round, GANTRY_MIGRATION_MAX_ROUNDS);
	w.copying = !w.copying;
	if (w.copying && w.round_ns) {
		w.now_ns += w.round_ns;
		return -EAGAIN; /* a round takes its time */
	}
	r = answer(ROUND, err);
	if (r < 0)
		return r;
	*ret_bytes = round ? w.dirty[round - 1] : w.owned;
	*ret_dirty = w.dirty[round];
	return 0;
}

static int do_orphan(void *cookie, struct gantry_err *err)
{
	int r = answer(ORPHAN, err);

	(void)cookie;
	if (r == 0)
		w.source_runs = false;
	return r;
}

static int do_drained(void *cookie, uint64_t *ret_longest_ns, struct gantry_err *err)
{
	int r = answer(DRAINED, err);

	(void)cookie;
	w.now_ns += w.drain_ns;
	if (r == 0)
		*ret_longest_ns = 77;
	return r;
}

static int do_copy(void *cookie, const struct gantry_migration_sink *sink, void *sink_cookie,
		   uint64_t *ret_bytes, struct gantry_err *err)
{
	int r = answer(COPY, err);

	(void)cookie;
	(void)sink;
	(void)sink_cookie;
	if (r == 0)
		*ret_bytes = w.m->counts.dirty_bytes;
	return r;
}

static int do_release(void *cookie, struct gantry_err *err)
{
	int r = answer(RELEASE, err);

	(void)cookie;
	ck_assert(!w.released);
	w.released = r == 0;
	return r;
}

static int do_resume(void *cookie, struct gantry_err *err)
{
	int r = answer(RESUME, err);

	(void)cookie;
	ck_assert(!w.released);
	if (r != -EAGAIN)
		w.source_runs = true;
	return r;
}

static int do_prepare(void *cookie, uint64_t owned, struct gantry_err *err)
{
	int r = answer(PREPARE, err);

	(void)cookie;
	ck_assert_uint_eq(owned, w.owned);
	w.reserved = w.reserved || r == 0;
	return r;
}

static int do_ready(void *cookie, struct gantry_err *err)
{
	(void)cookie;
	ck_assert(w.reserved);
	return answer(READY, err);
}

static int do_adopt(void *cookie, struct gantry_err *err)
{
	int r = answer(ADOPT, err);

	(void)cookie;
	ck_assert(w.released);
	w.sink_runs = r == 0;
	return r;
}

static int do_discard(void *cookie, struct gantry_err *err)
{
	int r = answer(DISCARD, err);

	(void)cookie;
	if (r != -EAGAIN)
		w.reserved = false;
	return r;
}

static const struct gantry_migration_source source = {
	.begin = do_begin,
	.round = do_round,
	.orphan = do_orphan,
	.drained = do_drained,
	.copy = do_copy,
	.release = do_release,
	.resume = do_resume,
};

static const struct gantry_migration_sink sink = {
	.prepare = do_prepare,
	.ready = do_ready,
	.adopt = do_adopt,
	.discard = do_discard,
};

static struct gantry_migration m;

static void begin_with(const struct gantry_migration_policy *policy)
{
	memset(&w, 0, sizeof(w));
	w.m = &m;
	w.owned = 1000;
	w.source_runs = true;
	w.now_ns = 1000000;
	gantry_migration_init(&m, &source, &w, &sink, &w, policy);
	ck_assert_int_eq(m.state, GANTRY_MIGRATION_IDLE);
}

static void setup(void)
{
	begin_with(NULL);
}

static int step(void)
{
	int r;

	w.now_ns += 10;
	do
		r = gantry_migration_step(&m, w.now_ns);
	while (r > 0);
	return r;
}

static int run_to_the_end(void)
{
	int r = -EAGAIN;

	for (int i = 0; i < 1000 && r == -EAGAIN; i++)
		r = step();
	return r;
}

/* ---- the way there ---- */

START_TEST(test_step_all_goes_well_ends_at_the_sink)
{
	ck_assert_int_eq(gantry_migration_step(&m, 0), -EAGAIN);
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_str_eq(w.log, "begin prepare round orphan drained copy ready release adopt ");
	ck_assert_int_eq(m.state, GANTRY_MIGRATION_DONE);
	ck_assert_int_eq(gantry_migration_owner(&m), GANTRY_MIGRATION_SINK);
	ck_assert(w.sink_runs && gantry_migration_over(&m));
	ck_assert_uint_eq(m.counts.longest_task_ns, 77);
	ck_assert_uint_eq(m.counts.moved_bytes, 1000);
	/* Ended, it answers the same and asks nobody. */
	ck_assert_int_eq(gantry_migration_step(&m, w.now_ns), 0);
	ck_assert_uint_eq(w.asked[ADOPT], 1);
	ck_assert_int_eq(gantry_migration_start(&m, 0), -EALREADY);
	ck_assert_int_eq(gantry_migration_cancel(&m, "too late"), -EALREADY);
}
END_TEST

START_TEST(test_step_what_an_operation_takes_is_part_of_the_pause)
{
	w.drain_ns = 5000;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_ge(m.counts.pause_ns, 5000);
	ck_assert_uint_ge(m.counts.total_ns, m.counts.pause_ns);
}
END_TEST

START_TEST(test_step_each_operation_may_take_its_time)
{
	for (int op = 0; op < NOPS; op++)
		w.busy[op] = 3;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	for (int op = 0; op < NOPS; op++)
		ck_assert_uint_eq(w.asked[op], op == DISCARD || op == RESUME ? 0 : 4);
}
END_TEST

START_TEST(test_step_rounds_go_on_while_they_gain)
{
	w.owned = 1000000;
	w.round_ns = 100 * GANTRY_NS_PER_MS;
	w.dirty[0] = 400000;
	w.dirty[1] = 200000;
	w.dirty[2] = 1; /* copied within the pause */
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_eq(m.counts.nrounds, 3);
	ck_assert_uint_eq(m.counts.round_bytes[1], 400000);
	ck_assert_uint_eq(m.counts.moved_bytes, 1600001);
	ck_assert_uint_eq(m.counts.last_bytes, 1);
}
END_TEST

START_TEST(test_step_writer_faster_than_copies_stops_the_rounds)
{
	w.owned = 1000000;
	w.round_ns = 100 * GANTRY_NS_PER_MS;
	w.dirty[0] = 900000;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_eq(m.counts.nrounds, 1);
	ck_assert_uint_eq(m.counts.last_bytes, 900000);
}
END_TEST

START_TEST(test_step_rounds_and_bytes_have_limits)
{
	struct gantry_migration_policy policy = { .max_rounds = 1000, .max_percent = 1000000 };

	begin_with(&policy);
	w.owned = 1ull << 40;
	w.round_ns = GANTRY_NS_PER_S;
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(w.dirty); i++)
		w.dirty[i] = (1ull << 40) * 3 / 4; /* each round gains a little less than nothing */
	w.dirty[0] = 1ull << 39;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_le(m.counts.nrounds, GANTRY_MIGRATION_MAX_ROUNDS);

	policy = (struct gantry_migration_policy){ .max_percent = 120 };
	begin_with(&policy);
	w.round_ns = GANTRY_NS_PER_S;
	w.dirty[0] = 300;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_eq(m.counts.nrounds, 1);
}
END_TEST

START_TEST(test_step_without_precopy_orphans_at_once)
{
	struct gantry_migration_policy policy = { .no_precopy = true };

	begin_with(&policy);
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_uint_eq(w.asked[ROUND], 0);
	ck_assert_str_eq(w.log, "begin prepare orphan drained copy ready release adopt ");
}
END_TEST

/* ---- the way back ---- */

START_TEST(test_step_any_failure_before_the_commit_ends_at_the_source)
{
	for (int op = BEGIN; op <= RELEASE; op++) {
		setup();
		w.fails[op] = -ENOSPC;
		ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
		ck_assert_int_eq(run_to_the_end(), -ENOSPC);
		ck_assert_int_eq(m.state, GANTRY_MIGRATION_IDLE);
		ck_assert_ptr_nonnull(strstr(m.err.text, "was told to fail"));
		ck_assert_int_eq(gantry_migration_owner(&m), GANTRY_MIGRATION_SOURCE);
		ck_assert(w.source_runs && !w.sink_runs && !w.reserved && !w.released);
		ck_assert_uint_eq(w.asked[DISCARD], 1);
		ck_assert_uint_eq(w.asked[RESUME], 1);
		ck_assert_int_eq(run_to_the_end(), -ENOSPC);
		ck_assert_uint_eq(w.asked[RESUME], 1);
	}
}
END_TEST

START_TEST(test_step_discard_and_resume_that_fail_are_still_the_way_back)
{
	w.fails[COPY] = -EIO;
	w.fails[DISCARD] = -EPIPE;
	w.fails[RESUME] = -ENODEV;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), -EIO);
	ck_assert_str_eq(m.err.text, "copy was told to fail");
}
END_TEST

START_TEST(test_step_sink_that_fails_after_the_commit_keeps_the_work)
{
	w.fails[ADOPT] = -ENOTRECOVERABLE;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(run_to_the_end(), 0);
	ck_assert_int_eq(m.state, GANTRY_MIGRATION_DONE);
	ck_assert_int_eq(m.err.code, -ENOTRECOVERABLE);
	ck_assert_int_eq(gantry_migration_owner(&m), GANTRY_MIGRATION_SINK);
	ck_assert(!w.source_runs);
	ck_assert_uint_eq(w.asked[RESUME], 0);
}
END_TEST

START_TEST(test_cancel_at_each_operation_before_the_release_turns_back)
{
	for (int op = BEGIN; op <= ADOPT; op++) {
		setup();
		w.busy[op] = 1000000;
		ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
		ck_assert_int_eq(step(), -EAGAIN);
		if (op >= RELEASE) {
			ck_assert_int_eq(gantry_migration_cancel(&m, "asked to"), -EALREADY);
			gantry_migration_fail(&m, -EPIPE, "the link is gone");
			w.busy[op] = 0;
			ck_assert_int_eq(run_to_the_end(), 0);
			continue;
		}
		ck_assert_int_eq(gantry_migration_cancel(&m, "asked to"), 0);
		ck_assert_int_eq(gantry_migration_cancel(&m, "asked again"), -EALREADY);
		ck_assert_int_eq(run_to_the_end(), -ECANCELED);
		ck_assert_str_eq(m.err.text, "asked to");
		ck_assert(w.source_runs && !w.sink_runs && !w.reserved);
	}
}
END_TEST

START_TEST(test_cancel_before_start_and_on_the_way_back_comes_too_late)
{
	ck_assert_int_eq(gantry_migration_cancel(&m, "early"), -EALREADY);
	w.fails[PREPARE] = -ENOMEM;
	w.busy[DISCARD] = 5;
	ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
	ck_assert_int_eq(step(), -EAGAIN);
	ck_assert_int_eq(m.state, GANTRY_MIGRATION_ABORT);
	ck_assert_int_eq(gantry_migration_cancel(&m, "late"), -EALREADY);
	ck_assert_int_eq(run_to_the_end(), -ENOMEM);
}
END_TEST

/* ---- chance ---- */

START_TEST(test_step_random_answers_always_leave_exactly_one_owner)
{
	for (unsigned seed = 0; seed < 20000; seed++) {
		int r = -EAGAIN;

		setup();
		srandom(seed);
		for (int op = 0; op < NOPS; op++) {
			w.busy[op] = (int)(random() % 3);
			if (random() % 8 == 0)
				w.fails[op] = -(int)(1 + random() % 5);
		}
		w.dirty[0] = (uint64_t)(random() % 1000);
		w.round_ns = (uint64_t)(random() % GANTRY_NS_PER_S);
		ck_assert_int_eq(gantry_migration_start(&m, w.now_ns), 0);
		for (int i = 0; i < 200 && r == -EAGAIN; i++) {
			if (random() % 16 == 0)
				(void)gantry_migration_cancel(&m, "by chance");
			r = step();
		}
		ck_assert_int_ne(r, -EAGAIN);
		ck_assert(gantry_migration_over(&m));
		if (gantry_migration_owner(&m) == GANTRY_MIGRATION_SINK)
			ck_assert(w.released && !w.source_runs && (w.sink_runs || m.err.code != 0));
		else
			ck_assert(!w.released && w.source_runs && !w.sink_runs && !w.reserved);
	}
}
END_TEST

/* ---- tables ---- */

START_TEST(test_may_only_the_arrows_of_the_diagram)
{
	static const char *const legal[] = {
		"idle precopy", "precopy orphan", "precopy abort", "orphan drain",
		"orphan abort", "drain copy",	  "drain abort",   "copy adopt",
		"copy abort",	"adopt done",	  "adopt abort",   "abort idle",
	};
	char text[64];

	for (int a = 0; a < GANTRY_MIGRATION_NSTATES; a++)
		for (int b = 0; b < GANTRY_MIGRATION_NSTATES; b++) {
			bool known = false;

			snprintf(text, sizeof(text), "%s %s",
				 gantry_migration_state_name((enum gantry_migration_state)a),
				 gantry_migration_state_name((enum gantry_migration_state)b));
			for (unsigned i = 0; i < GANTRY_ARRAY_SIZE(legal); i++)
				known = known || strcmp(text, legal[i]) == 0;
			ck_assert_msg(gantry_migration_may((enum gantry_migration_state)a,
							   (enum gantry_migration_state)b) == known,
				      "%s", text);
		}
	ck_assert(!gantry_migration_may(GANTRY_MIGRATION_NSTATES, GANTRY_MIGRATION_IDLE));
	ck_assert(!gantry_migration_may(GANTRY_MIGRATION_IDLE, GANTRY_MIGRATION_NSTATES));
	ck_assert_str_eq(gantry_migration_state_name(GANTRY_MIGRATION_NSTATES), "unknown");
}
END_TEST

START_TEST(test_invariant_never_lets_both_take)
{
	for (int i = 0; i < GANTRY_MIGRATION_NSTATES; i++) {
		const struct gantry_migration_invariant *holds =
			gantry_migration_invariant((enum gantry_migration_state)i);

		ck_assert(!(holds->source_takes && holds->sink_takes));
		ck_assert_ptr_nonnull(holds->ring);
		ck_assert_ptr_nonnull(holds->epoch);
		ck_assert_ptr_nonnull(holds->bytes);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("migrate");
	TCase *tables = gantry_unit_case(suite, "tables");
	TCase *tc = gantry_unit_case(suite, "step");

	tcase_add_test(tables, test_may_only_the_arrows_of_the_diagram);
	tcase_add_test(tables, test_invariant_never_lets_both_take);

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_step_all_goes_well_ends_at_the_sink);
	tcase_add_test(tc, test_step_what_an_operation_takes_is_part_of_the_pause);
	tcase_add_test(tc, test_step_each_operation_may_take_its_time);
	tcase_add_test(tc, test_step_rounds_go_on_while_they_gain);
	tcase_add_test(tc, test_step_writer_faster_than_copies_stops_the_rounds);
	tcase_add_test(tc, test_step_rounds_and_bytes_have_limits);
	tcase_add_test(tc, test_step_without_precopy_orphans_at_once);
	tcase_add_test(tc, test_step_any_failure_before_the_commit_ends_at_the_source);
	tcase_add_test(tc, test_step_discard_and_resume_that_fail_are_still_the_way_back);
	tcase_add_test(tc, test_step_sink_that_fails_after_the_commit_keeps_the_work);
	tcase_add_test(tc, test_cancel_at_each_operation_before_the_release_turns_back);
	tcase_add_test(tc, test_cancel_before_start_and_on_the_way_back_comes_too_late);
	tcase_add_test(tc, test_step_random_answers_always_leave_exactly_one_owner);
	return gantry_unit_run(suite);
}
