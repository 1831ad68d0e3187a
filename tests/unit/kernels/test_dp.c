/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/kernels/core/blosum62.h"
#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_pathfinder, gantry_kernel_needleman_wunsch;

static int32_t least(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static void plain_path(const int32_t *wall, int32_t *cost, int32_t *next, size_t rows, size_t cols)
{
	memcpy(cost, wall, cols * sizeof(*cost));
	for (size_t y = 1; y < rows; y++) {
		for (size_t x = 0; x < cols; x++) {
			int32_t best = cost[x];

			if (x > 0)
				best = least(best, cost[x - 1]);
			if (x + 1 < cols)
				best = least(best, cost[x + 1]);
			next[x] = wall[y * cols + x] + best;
		}
		memcpy(cost, next, cols * sizeof(*cost));
	}
}

static const struct {
	uint32_t rows, cols;
} walls[] = {
	{ 1, 1 },   { 1, 100 },	  { 100, 1 },	{ 40, 2 },
	{ 33, 31 }, { 32, 2047 }, { 65, 2049 }, { 97, 6200 },
};

START_TEST(test_pathfinder_equals_row_by_row)
{
	uint32_t rows = walls[_i].rows, cols = walls[_i].cols, state = 5;
	size_t n = (size_t)rows * cols;
	struct test_env te;
	int32_t *wall, *got, *want, *spare;

	env_init(&te, _i % 2 ? ENV_THREADS : ENV_INLINE);
	wall = env_array(&te, n, sizeof(*wall));
	got = env_array(&te, cols, sizeof(*got));
	want = env_array(&te, cols, sizeof(*want));
	spare = env_array(&te, cols, sizeof(*spare));
	for (size_t i = 0; i < n; i++)
		wall[i] = (int32_t)(env_random(&state) % 10);
	plain_path(wall, want, spare, rows, cols);
	ck_assert_int_eq(RUN(&te, gantry_kernel_pathfinder, SPAN(wall, n), SPAN(got, cols),
			     U32(rows), U32(cols)),
			 0);
	ck_assert_mem_eq(got, want, cols * sizeof(*got));
	env_fini(&te);
}
END_TEST

START_TEST(test_pathfinder_misuse_is_refused)
{
	struct test_env te;
	int32_t wall[12], cost[4] = { 0 };

	env_init(&te, ENV_INLINE);
	/* Sums wrap, defined. */
	for (size_t i = 0; i < 12; i++)
		wall[i] = i % 2 ? INT32_MIN : INT32_MAX;
	ck_assert_int_eq(RUN(&te, gantry_kernel_pathfinder, SPAN(wall, 12), SPAN(cost, 4), U32(3),
			     U32(4)),
			 0);
	ck_assert_int_eq(RUN(&te, gantry_kernel_pathfinder, SPAN(wall, 12), SPAN(cost, 4), U32(4),
			     U32(4)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_pathfinder, SPAN(wall, 12), SPAN(cost, 3), U32(3),
			     U32(4)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_pathfinder, SPAN(wall, 12), SPAN(cost, 4), U32(0),
			     U32(4)),
			 REFUSED(EINVAL));
	te.asks_left = 0;
	ASSERT_CANCELLED(
		RUN(&te, gantry_kernel_pathfinder, SPAN(wall, 12), SPAN(cost, 4), U32(3), U32(4)));
	env_fini(&te);
}
END_TEST

START_TEST(test_blosum62_is_symmetric_with_known_diagonal)
{
	static const int diagonal[BLOSUM62_SYMBOLS] = { 4, 5, 6, 6, 9, 5,  5, 6, 8, 4, 4,  5,
							5, 6, 7, 4, 5, 11, 7, 4, 4, 4, -1, 1 };

	for (size_t i = 0; i < BLOSUM62_SYMBOLS; i++) {
		ck_assert_int_eq(blosum62[i][i], diagonal[i]);
		for (size_t j = 0; j < i; j++)
			ck_assert_int_eq(blosum62[i][j], blosum62[j][i]);
	}
}
END_TEST

static uint8_t *sequence(struct test_env *te, size_t n, uint32_t seed)
{
	uint8_t *symbols = env_array(te, n, 1);

	for (size_t i = 0; i < n; i++)
		symbols[i] = (uint8_t)(env_random(&seed) % BLOSUM62_SYMBOLS);
	return symbols;
}

static void plain_alignment(const uint8_t *a, const uint8_t *b, int32_t *score, size_t na,
			    size_t nb, int32_t penalty)
{
	size_t stride = nb + 1;

	for (size_t y = 0; y <= na; y++)
		for (size_t x = 0; x <= nb; x++) {
			int32_t best = -penalty * (int32_t)(y + x);

			if (y > 0 && x > 0) {
				int32_t diagonal = score[(y - 1) * stride + x - 1] +
						   blosum62[a[y - 1]][b[x - 1]];
				int32_t up = score[(y - 1) * stride + x] - penalty;
				int32_t left = score[y * stride + x - 1] - penalty;

				best = diagonal > up ? diagonal : up;
				best = best > left ? best : left;
			}
			score[y * stride + x] = best;
		}
}

static const struct {
	uint32_t na, nb;
} pairs[] = {
	{ 0, 0 },   { 0, 5 },	 { 5, 0 },    { 1, 1 },	    { 63, 65 },
	{ 64, 64 }, { 300, 70 }, { 70, 300 }, { 513, 511 },
};

START_TEST(test_needleman_wunsch_equals_full_program)
{
	uint32_t na = pairs[_i].na, nb = pairs[_i].nb;
	size_t n = (size_t)(na + 1) * (nb + 1);
	struct test_env te;
	uint8_t *a, *b;
	int32_t *got, *want;

	env_init(&te, _i % 2 ? ENV_INLINE : ENV_THREADS);
	a = sequence(&te, na, 3);
	b = sequence(&te, nb, 4);
	got = env_array(&te, n, sizeof(*got));
	want = env_array(&te, n, sizeof(*want));
	plain_alignment(a, b, want, na, nb, 10);
	ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, na), SPAN(b, nb),
			     SPAN(got, n), U32(na), U32(nb), I32(10)),
			 0);
	ck_assert_mem_eq(got, want, n * sizeof(*got));
	env_fini(&te);
}
END_TEST

START_TEST(test_needleman_wunsch_unknown_symbol_is_out_of_range)
{
	struct test_env te;
	uint8_t *a, *b;
	int32_t *score;

	env_init(&te, ENV_INLINE);
	a = sequence(&te, 9, 3);
	b = sequence(&te, 9, 4);
	score = env_array(&te, 100, sizeof(*score));
	for (int side = 0; side < 2; side++)
		for (int symbol = BLOSUM62_SYMBOLS; symbol < 256; symbol++) {
			uint8_t *where = side == 0 ? a + 8 : b;
			uint8_t kept = *where;

			*where = (uint8_t)symbol;
			ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, 9),
					     SPAN(b, 9), SPAN(score, 100), U32(9), U32(9), I32(1)),
					 REFUSED(ERANGE));
			*where = kept;
		}
	env_fini(&te);
}
END_TEST

START_TEST(test_needleman_wunsch_misuse_is_refused)
{
	struct test_env te;
	uint8_t a[4] = { 0 };
	int32_t score[25] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, 4), SPAN(a, 4),
			     SPAN(score, 24), U32(4), U32(4), I32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, 4), SPAN(a, 3),
			     SPAN(score, 25), U32(4), U32(4), I32(1)),
			 REFUSED(EINVAL));
	/* Spans that lie are made only here. */
	if (env_is_inside())
		ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, UINT32_MAX),
				     SPAN(a, UINT32_MAX), SPAN(score, 25), U32(UINT32_MAX),
				     U32(UINT32_MAX), I32(1)),
				 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, 4), SPAN(a, 4),
			     SPAN(score, 25), U32(4), U32(4), I32(INT32_MIN)),
			 0);
	te.asks_left = 0;
	ASSERT_CANCELLED(RUN(&te, gantry_kernel_needleman_wunsch, SPAN(a, 4), SPAN(a, 4),
			     SPAN(score, 25), U32(4), U32(4), I32(1)));
	env_fini(&te);
}
END_TEST

START_TEST(test_needleman_wunsch_bears_symbols_that_change)
{
	struct test_env te;
	struct scribbler *scribbler;
	uint32_t *words;
	int32_t *score;

	env_init(&te, ENV_INLINE);
	words = env_array(&te, 64, sizeof(*words));
	score = env_array(&te, 257 * 257, sizeof(*score));
	/* Now and then a symbol past the table. */
	scribbler = scribbler_start(words, 64, 26);
	for (int i = 0; i < 200; i++) {
		int r = RUN(&te, gantry_kernel_needleman_wunsch, SPAN(words, 64), SPAN(words, 64),
			    SPAN(score, 257 * 257), U32(256), U32(256), I32(3));

		ck_assert(r == 0 || r == REFUSED(ERANGE));
	}
	scribbler_stop(scribbler);
	env_fini(&te);
}
END_TEST

Suite *kernels_dp_suite(void)
{
	Suite *suite = suite_create("kernels/dp");
	TCase *tc = env_case(suite, "dp");

	tcase_add_loop_test(tc, test_pathfinder_equals_row_by_row, 0,
			    (int)(sizeof(walls) / sizeof(walls[0])));
	tcase_add_test(tc, test_pathfinder_misuse_is_refused);
	tcase_add_test(tc, test_blosum62_is_symmetric_with_known_diagonal);
	tcase_add_loop_test(tc, test_needleman_wunsch_equals_full_program, 0,
			    (int)(sizeof(pairs) / sizeof(pairs[0])));
	tcase_add_test(tc, test_needleman_wunsch_unknown_symbol_is_out_of_range);
	tcase_add_test(tc, test_needleman_wunsch_misuse_is_refused);
	tcase_add_test(tc, test_needleman_wunsch_bears_symbols_that_change);
	return suite;
}
