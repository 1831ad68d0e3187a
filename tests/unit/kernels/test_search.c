/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_nearest_neighbors, gantry_kernel_bfs;

static void assert_nearest(const float *places, size_t n, const float *distance,
			   const uint32_t *idx, size_t k, float x, float y)
{
	size_t nearer = 0;

	for (size_t i = 0; i < k; i++) {
		float dx, dy;

		ck_assert_uint_lt(idx[i], n);
		dx = places[2 * idx[i]] - x;
		dy = places[2 * idx[i] + 1] - y;
		ck_assert_float_eq(distance[i], sqrtf(dx * dx + dy * dy));
		if (i > 0)
			ck_assert(distance[i - 1] < distance[i] ||
				  (distance[i - 1] == distance[i] && idx[i - 1] < idx[i]));
	}
	/*
	 * As the k are sorted and distinct, they are right if no others are nearer than the last.
	 */
	for (size_t i = 0; i < n; i++) {
		float dx = places[2 * i] - x, dy = places[2 * i + 1] - y,
		      d = sqrtf(dx * dx + dy * dy);

		nearer += d < distance[k - 1] || (d == distance[k - 1] && i <= idx[k - 1]);
	}
	ck_assert_uint_eq(nearer, k);
}

START_TEST(test_nearest_neighbors_finds_k_nearest_in_order)
{
	static const uint32_t counts[][2] = { { 1, 1 }, { 10, 10 }, { 5000, 5 }, { 30011, 1000 } };

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		uint32_t n = counts[c][0], k = counts[c][1], *idx;
		struct test_env te;
		float *places, *distance;

		env_init(&te, (enum env_mode)_i);
		places = env_floats(&te, 2 * n, 8);
		/* Some equal ones. */
		for (size_t i = 0; i < n; i++)
			places[2 * i] = roundf(places[2 * i] * 20);
		distance = env_array(&te, k, sizeof(*distance));
		idx = env_array(&te, k, sizeof(*idx));
		ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 2 * n),
				     SPAN(distance, k), SPAN(idx, k), U32(n), U32(k), F32(0.3f),
				     F32(-0.2f)),
				 0);
		assert_nearest(places, n, distance, idx, k, 0.3f, -0.2f);
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_nearest_neighbors_puts_nan_last)
{
	static const float places[] = { NAN, 0, 3, 4, 0, NAN, 0, 1 };
	struct test_env te;
	float distance[4];
	uint32_t idx[4];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 8),
			     SPAN(distance, 4), SPAN(idx, 4), U32(4), U32(4), F32(0), F32(0)),
			 0);
	ck_assert_uint_eq(idx[0], 3);
	ck_assert_uint_eq(idx[1], 1);
	ck_assert_uint_eq(idx[2], 0);
	ck_assert_uint_eq(idx[3], 2);
	ck_assert_float_eq(distance[1], 5);
	ck_assert(isinf(distance[2]));
	env_fini(&te);
}
END_TEST

START_TEST(test_nearest_neighbors_misuse_is_refused)
{
	struct test_env te;
	float *places, distance[4];
	uint32_t idx[4];

	env_init(&te, ENV_INLINE);
	places = env_floats(&te, 4096, 1);
	ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 8),
			     SPAN(distance, 4), SPAN(idx, 4), U32(5), U32(4), F32(0), F32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 6),
			     SPAN(distance, 4), SPAN(idx, 4), U32(3), U32(4), F32(0), F32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 8),
			     SPAN(distance, 4), SPAN(idx, 3), U32(4), U32(4), F32(0), F32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_nearest_neighbors, SPAN(places, 4096),
			     SPAN(places, 4096), SPAN((uint32_t *)places, 4096), U32(2048),
			     U32(1025), F32(0), F32(0)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

struct graph {
	uint32_t nnodes, nedges;
	uint32_t *offsets, *targets;
};

/* Every node has 0 to 7 edges to anywhere. */
static struct graph random_graph(struct test_env *te, uint32_t nnodes, uint32_t seed)
{
	struct graph g = { .nnodes = nnodes };

	g.offsets = env_array(te, nnodes + 1, sizeof(*g.offsets));
	for (uint32_t i = 0; i < nnodes; i++)
		g.offsets[i + 1] = g.offsets[i] + env_random(&seed) % 8;
	g.nedges = g.offsets[nnodes];
	g.targets = env_array(te, g.nedges, sizeof(*g.targets));
	for (uint32_t e = 0; e < g.nedges; e++)
		g.targets[e] = env_random(&seed) % nnodes;
	return g;
}

static int bfs_run(struct test_env *te, const struct graph *g, int32_t *cost, uint32_t source)
{
	return RUN(te, gantry_kernel_bfs, SPAN(g->offsets, g->nnodes + 1),
		   SPAN(g->targets, g->nedges), SPAN(cost, g->nnodes), U32(g->nnodes),
		   U32(g->nedges), U32(source));
}

/* With a queue. */
static void plain_bfs(struct test_env *te, const struct graph *g, int32_t *cost, uint32_t source)
{
	uint32_t *queue = env_array(te, g->nnodes, sizeof(*queue)), head = 0, tail = 0;

	for (uint32_t i = 0; i < g->nnodes; i++)
		cost[i] = -1;
	cost[source] = 0;
	queue[tail++] = source;
	while (head < tail) {
		uint32_t node = queue[head++];

		for (uint32_t e = g->offsets[node]; e < g->offsets[node + 1]; e++)
			if (cost[g->targets[e]] < 0) {
				cost[g->targets[e]] = cost[node] + 1;
				queue[tail++] = g->targets[e];
			}
	}
}

START_TEST(test_bfs_equals_queue_search)
{
	static const uint32_t sizes[] = { 1, 2, 100, 20011 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct test_env te;
		struct graph g;
		int32_t *got, *want;

		env_init(&te, (enum env_mode)_i);
		g = random_graph(&te, sizes[s], 77);
		got = env_array(&te, g.nnodes, sizeof(*got));
		want = env_array(&te, g.nnodes, sizeof(*want));
		plain_bfs(&te, &g, want, g.nnodes / 2);
		ck_assert_int_eq(bfs_run(&te, &g, got, g.nnodes / 2), 0);
		ck_assert_mem_eq(got, want, g.nnodes * sizeof(*got));
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_bfs_hostile_indices_are_out_of_range)
{
	static const uint32_t wrong[] = { 100, 101, UINT32_MAX, 0x80000000u };
	struct test_env te;
	struct graph g;
	int32_t *cost;
	uint32_t source = 0, edge;

	env_init(&te, (enum env_mode)_i);
	g = random_graph(&te, 100, 5);
	cost = env_array(&te, g.nnodes, sizeof(*cost));
	while (g.offsets[source] == g.offsets[source + 1])
		source++;
	edge = g.offsets[source];
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint32_t target = g.targets[edge], offset = g.offsets[50];

		g.targets[edge] = wrong[i];
		ck_assert_int_eq(bfs_run(&te, &g, cost, source), REFUSED(ERANGE));
		g.targets[edge] = target;
		g.offsets[50] = g.nedges + 1 + wrong[i] / 2;
		ck_assert_int_eq(bfs_run(&te, &g, cost, source), REFUSED(ERANGE));
		g.offsets[50] = offset;
	}
	/* Falling offsets: a range of less than nothing. */
	g.offsets[30] = g.offsets[40];
	g.offsets[31] = g.offsets[29];
	ck_assert_int_eq(bfs_run(&te, &g, cost, source), REFUSED(ERANGE));
	env_fini(&te);
}
END_TEST

START_TEST(test_bfs_misuse_is_refused)
{
	struct test_env te;
	struct graph g, wide;
	int32_t *cost;

	env_init(&te, ENV_INLINE);
	g = random_graph(&te, 100, 5);
	cost = env_array(&te, 100, sizeof(*cost));
	ck_assert_int_eq(bfs_run(&te, &g, cost, 100), REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_bfs, SPAN(g.offsets, 100),
			     SPAN(g.targets, g.nedges), SPAN(cost, 100), U32(100), U32(g.nedges),
			     U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_bfs, SPAN(g.offsets, 101),
			     SPAN(g.targets, g.nedges), SPAN(cost, 100), U32(100),
			     U32(g.nedges + 1), U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_bfs, SPAN(g.offsets, 101),
			     SPAN(g.targets, g.nedges), SPAN(cost, 99), U32(100), U32(g.nedges),
			     U32(0)),
			 REFUSED(EINVAL));
	wide = g;
	wide.nnodes = 0;
	ck_assert_int_eq(bfs_run(&te, &wide, cost, 0), REFUSED(EINVAL));
	te.asks_left = 1;
	ASSERT_CANCELLED(bfs_run(&te, &g, cost, 0));
	env_fini(&te);
}
END_TEST

START_TEST(test_bfs_bears_edges_that_change)
{
	struct test_env te;
	struct scribbler *scribbler;
	struct graph g;
	int32_t *cost;

	env_init(&te, ENV_INLINE);
	g = random_graph(&te, 2000, 5);
	cost = env_array(&te, g.nnodes, sizeof(*cost));
	/* Now and then a target past the nodes. */
	scribbler = scribbler_start(g.targets, g.nedges, g.nnodes + 1);
	for (int i = 0; i < 300; i++) {
		int r = bfs_run(&te, &g, cost, 7);

		ck_assert(r == 0 || r == REFUSED(ERANGE));
	}
	scribbler_stop(scribbler);
	env_fini(&te);
}
END_TEST

Suite *kernels_search_suite(void)
{
	Suite *suite = suite_create("kernels/search");
	TCase *tc = env_case(suite, "search");

	tcase_add_loop_test(tc, test_nearest_neighbors_finds_k_nearest_in_order, 0, ENV_NMODES);
	tcase_add_test(tc, test_nearest_neighbors_puts_nan_last);
	tcase_add_test(tc, test_nearest_neighbors_misuse_is_refused);
	tcase_add_loop_test(tc, test_bfs_equals_queue_search, 0, ENV_NMODES);
	tcase_add_loop_test(tc, test_bfs_hostile_indices_are_out_of_range, 0, ENV_NMODES);
	tcase_add_test(tc, test_bfs_misuse_is_refused);
	tcase_add_test(tc, test_bfs_bears_edges_that_change);
	return suite;
}
