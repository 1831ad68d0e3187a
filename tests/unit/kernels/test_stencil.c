/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_hotspot, gantry_kernel_hotspot3d;

static long clamp(long at, long size)
{
	return at < 0 ? 0 : at < size ? at : size - 1;
}

#define DT	0.01
#define RX	2.0
#define RY	3.0
#define RZ	4.0
#define AMBIENT 0.5

static void plate_step(const float *power, const double *from, double *to, long rows, long cols)
{
	for (long y = 0; y < rows; y++)
		for (long x = 0; x < cols; x++) {
			double here = from[y * cols + x];
			double north = from[clamp(y - 1, rows) * cols + x];
			double south = from[clamp(y + 1, rows) * cols + x];
			double west = from[y * cols + clamp(x - 1, cols)];
			double east = from[y * cols + clamp(x + 1, cols)];

			to[y * cols + x] = here + DT * ((double)power[y * cols + x] +
							(north + south - 2 * here) / RY +
							(east + west - 2 * here) / RX +
							(AMBIENT - here) / RZ);
		}
}

static int plate_run(struct test_env *te, const float *power, const float *from, float *to,
		     size_t n, uint32_t rows, uint32_t cols, uint32_t nsteps)
{
	return RUN(te, gantry_kernel_hotspot, SPAN(power, n), SPAN(from, n), SPAN(to, n), U32(rows),
		   U32(cols), U32(nsteps), F32((float)DT), F32((float)RX), F32((float)RY),
		   F32((float)RZ), F32((float)AMBIENT));
}

static const struct {
	uint32_t nx, ny, nz, nsteps;
} runs[] = {
	{ 1, 1, 1, 3 },	  { 7, 1, 2, 2 },   { 1, 7, 3, 1 },   { 45, 67, 2, 0 },
	{ 45, 67, 4, 1 }, { 64, 64, 3, 8 }, { 33, 65, 5, 9 },
};

START_TEST(test_hotspot_equals_plain_steps)
{
	uint32_t cols = runs[_i].nx, rows = runs[_i].ny;
	size_t n = (size_t)cols * rows;
	struct test_env te;
	float *power, *from, *to;
	double *cur, *next;

	env_init(&te, _i % 2 ? ENV_THREADS : ENV_INLINE);
	power = env_floats(&te, n, 1);
	from = env_floats(&te, n, 2);
	to = env_array(&te, n, sizeof(*to));
	cur = env_array(&te, n, sizeof(*cur));
	next = env_array(&te, n, sizeof(*next));
	for (size_t i = 0; i < n; i++)
		cur[i] = (double)from[i];
	for (uint32_t s = 0; s < runs[_i].nsteps; s++) {
		double *swap = cur;

		plate_step(power, cur, next, rows, cols);
		cur = next;
		next = swap;
	}
	ck_assert_int_eq(plate_run(&te, power, from, to, n, rows, cols, runs[_i].nsteps), 0);
	for (size_t i = 0; i < n; i++)
		ASSERT_NEAR(to[i], cur[i], 1e-5);
	env_fini(&te);
}
END_TEST

START_TEST(test_hotspot_misuse_is_refused)
{
	struct test_env te;
	float x[12] = { 0 }, y[12] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(plate_run(&te, x, x, y, 12, 3, 5, 1), REFUSED(EINVAL));
	ck_assert_int_eq(plate_run(&te, x, x, y, 12, UINT32_MAX, UINT32_MAX, 1), REFUSED(EINVAL));
	ck_assert_int_eq(plate_run(&te, x, x, y, 12, 0, UINT32_MAX, 1), 0);
	if (env_is_inside()) {
		te.scratch_limit_bytes = 0;
		ck_assert_int_eq(plate_run(&te, x, x, y, 12, 3, 4, 2), REFUSED(ENOMEM));
		te.scratch_limit_bytes = 4096;
	}
	te.asks_left = 1000;
	/* Without, it would run for hours. */
	ASSERT_CANCELLED(plate_run(&te, x, x, y, 12, 3, 4, UINT32_MAX));
	env_fini(&te);
}
END_TEST

static double cell(const double *grid, const uint32_t size[3], long x, long y, long z)
{
	x = clamp(x, (long)size[0]);
	y = clamp(y, (long)size[1]);
	z = clamp(z, (long)size[2]);
	return grid[((size_t)z * size[1] + (size_t)y) * size[0] + (size_t)x];
}

#define SIDE_X 0.05
#define SIDE_Y 0.06
#define SIDE_Z 0.07
#define HEAT   0.1

/* As heat flowing from each neighbour and from the air, not as the kernel's weighted sum. */
static void block_step(const float *power, const double *from, double *to, const uint32_t size[3])
{
	for (long z = 0; z < (long)size[2]; z++)
		for (long y = 0; y < (long)size[1]; y++)
			for (long x = 0; x < (long)size[0]; x++) {
				size_t i = ((size_t)z * size[1] + (size_t)y) * size[0] + (size_t)x;
				double here = from[i], flow = HEAT * (double)power[i];

				flow += SIDE_X * (cell(from, size, x - 1, y, z) - here);
				flow += SIDE_X * (cell(from, size, x + 1, y, z) - here);
				flow += SIDE_Y * (cell(from, size, x, y - 1, z) - here);
				flow += SIDE_Y * (cell(from, size, x, y + 1, z) - here);
				flow += SIDE_Z * (cell(from, size, x, y, z - 1) - here);
				flow += SIDE_Z * (cell(from, size, x, y, z + 1) - here);
				to[i] = here + flow + SIDE_Z * (AMBIENT - here);
			}
}

static int block_run(struct test_env *te, const float *power, const float *from, float *to,
		     size_t n, const uint32_t size[3], uint32_t nsteps)
{
	return RUN(te, gantry_kernel_hotspot3d, SPAN(power, n), SPAN(from, n), SPAN(to, n),
		   U32(size[0]), U32(size[1]), U32(size[2]), U32(nsteps), F32((float)SIDE_X),
		   F32((float)SIDE_Y), F32((float)SIDE_Z), F32((float)HEAT), F32((float)AMBIENT));
}

START_TEST(test_hotspot3d_equals_plain_steps)
{
	const uint32_t size[3] = { runs[_i].nx, runs[_i].ny, runs[_i].nz };
	size_t n = (size_t)size[0] * size[1] * size[2];
	struct test_env te;
	float *power, *from, *to;
	double *cur, *next;

	env_init(&te, _i % 2 ? ENV_INLINE : ENV_THREADS);
	power = env_floats(&te, n, 1);
	from = env_floats(&te, n, 2);
	to = env_array(&te, n, sizeof(*to));
	cur = env_array(&te, n, sizeof(*cur));
	next = env_array(&te, n, sizeof(*next));
	for (size_t i = 0; i < n; i++)
		cur[i] = (double)from[i];
	for (uint32_t s = 0; s < runs[_i].nsteps; s++) {
		double *swap = cur;

		block_step(power, cur, next, size);
		cur = next;
		next = swap;
	}
	ck_assert_int_eq(block_run(&te, power, from, to, n, size, runs[_i].nsteps), 0);
	for (size_t i = 0; i < n; i++)
		ASSERT_NEAR(to[i], cur[i], 1e-5);
	env_fini(&te);
}
END_TEST

START_TEST(test_hotspot3d_misuse_is_refused)
{
	static const uint32_t wide[3] = { 3, 2, 3 },
			      huge[3] = { UINT32_MAX, UINT32_MAX, UINT32_MAX };
	static const uint32_t right[3] = { 3, 2, 2 };
	struct test_env te;
	float x[12] = { 0 }, y[12] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(block_run(&te, x, x, y, 12, wide, 1), REFUSED(EINVAL));
	ck_assert_int_eq(block_run(&te, x, x, y, 12, huge, 1), REFUSED(EINVAL));
	te.asks_left = 10;
	ASSERT_CANCELLED(block_run(&te, x, x, y, 12, right, 100));
	env_fini(&te);
}
END_TEST

Suite *kernels_stencil_suite(void)
{
	Suite *suite = suite_create("kernels/stencil");
	TCase *tc = env_case(suite, "stencil");
	int nruns = (int)(sizeof(runs) / sizeof(runs[0]));

	tcase_add_loop_test(tc, test_hotspot_equals_plain_steps, 0, nruns);
	tcase_add_test(tc, test_hotspot_misuse_is_refused);
	tcase_add_loop_test(tc, test_hotspot3d_equals_plain_steps, 0, nruns);
	tcase_add_test(tc, test_hotspot3d_misuse_is_refused);
	return suite;
}
