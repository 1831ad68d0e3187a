/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_lavamd, gantry_kernel_particle_filter;

struct particle {
	double x, y, z, charge;
};

static struct particle *particles_make(struct test_env *te, size_t n)
{
	struct particle *p = env_array(te, n, sizeof(*p));
	uint32_t state = 21;

	for (size_t i = 0; i < n; i++)
		for (size_t c = 0; c < 4; c++)
			(&p[i].x)[c] = (double)(env_random(&state) % 10 + 1) / 10;
	return p;
}

/* All pairs of the whole volume, with a question for each whether their boxes touch. */
static void plain_forces(const struct particle *p, struct particle *f, long side, long per_box,
			 double alpha)
{
	long n = side * side * side * per_box;

	for (long i = 0; i < n; i++) {
		long a = i / per_box;

		for (long j = 0; j < n; j++) {
			long b = j / per_box;
			double dx = p[i].x - p[j].x, dy = p[i].y - p[j].y, dz = p[i].z - p[j].z, v;

			if (labs(a % side - b % side) > 1 ||
			    labs(a / side % side - b / side % side) > 1 ||
			    labs(a / side / side - b / side / side) > 1)
				continue;
			v = exp(-2 * alpha * alpha * (dx * dx + dy * dy + dz * dz));
			f[i].charge += p[j].charge * v;
			f[i].x += 2 * v * p[j].charge * dx;
			f[i].y += 2 * v * p[j].charge * dy;
			f[i].z += 2 * v * p[j].charge * dz;
		}
	}
}

START_TEST(test_lavamd_equals_all_pairs)
{
	static const uint32_t sizes[][2] = { { 1, 5 }, { 2, 3 }, { 4, 4 }, { 3, 0 }, { 0, 3 } };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint32_t side = sizes[s][0], per_box = sizes[s][1];
		size_t n = (size_t)side * side * side * per_box;
		struct test_env te;
		struct particle *p, *got, *want;

		env_init(&te, (enum env_mode)_i);
		p = particles_make(&te, n);
		got = env_array(&te, n, sizeof(*got));
		want = env_array(&te, n, sizeof(*want));
		plain_forces(p, want, side, per_box, 0.5);
		ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, n), SPAN(got, n), U32(side),
				     U32(per_box), F64(0.5)),
				 0);
		for (size_t i = 0; i < n; i++)
			for (size_t c = 0; c < 4; c++)
				ASSERT_NEAR((&got[i].x)[c], (&want[i].x)[c], 1e-9);
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_lavamd_misuse_is_refused)
{
	struct test_env te;
	struct particle p[8] = { { 0 } }, f[8];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, 7), SPAN(f, 8), U32(2), U32(1),
			     F64(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, 8), SPAN(f, 7), U32(2), U32(1),
			     F64(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, 8), SPAN(f, 8), U32(257), U32(0),
			     F64(1)),
			 REFUSED(EINVAL));
	/* Their cube wraps to nothing in 64 bits. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, 8), SPAN(f, 8), U32(1u << 22),
			     U32(1), F64(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_lavamd, SPAN(p, 8), SPAN(f, 8), U32(256),
			     U32(UINT32_MAX), F64(1)),
			 REFUSED(EINVAL));
	te.asks_left = 0;
	ASSERT_CANCELLED(
		RUN(&te, gantry_kernel_lavamd, SPAN(p, 8), SPAN(f, 8), U32(2), U32(1), F64(1)));
	env_fini(&te);
}
END_TEST

#define SIZE	   128
#define NFRAMES	   20
#define NPARTICLES 1000

/* A disk that moves by (1, -2) per frame, in noise. */
static uint8_t *film(struct test_env *te, double x, double y)
{
	uint8_t *frames = env_array(te, NFRAMES * SIZE * SIZE, 1);
	uint32_t state = 4;

	for (int f = 0; f < NFRAMES; f++) {
		x += 1;
		y -= 2;
		for (int i = 0; i < SIZE * SIZE; i++) {
			double dx = i % SIZE - x, dy = (double)(i / SIZE) - y;
			int value = dx * dx + dy * dy <= 25 ? 228 : 100;

			value += (int)(env_random(&state) % 41) - 20;
			frames[f * SIZE * SIZE + i] = (uint8_t)value;
		}
	}
	return frames;
}

static int filter_run(struct test_env *te, const uint8_t *frames, float *estimates,
		      uint32_t nframes)
{
	return RUN(te, gantry_kernel_particle_filter, SPAN(frames, NFRAMES * SIZE * SIZE),
		   SPAN(estimates, 2 * NFRAMES), U32(SIZE), U32(SIZE), U32(nframes),
		   U32(NPARTICLES), U64(1), F32(60), F32(90));
}

START_TEST(test_particle_filter_follows_spot)
{
	struct test_env te;
	uint8_t *frames;
	float *estimates;

	env_init(&te, (enum env_mode)_i);
	frames = film(&te, 60, 90);
	estimates = env_array(&te, 2 * NFRAMES, sizeof(*estimates));
	ck_assert_int_eq(filter_run(&te, frames, estimates, NFRAMES), 0);
	for (int f = 0; f < NFRAMES; f++) {
		ASSERT_NEAR(estimates[2 * f], 60 + (f + 1), 1.5);
		ASSERT_NEAR(estimates[2 * f + 1], 90 - 2 * (f + 1), 1.5);
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_particle_filter_gives_same_bits_with_and_without_threads)
{
	float got[ENV_NMODES][2 * NFRAMES];

	for (int mode = 0; mode < ENV_NMODES; mode++) {
		struct test_env te;

		env_init(&te, (enum env_mode)mode);
		ck_assert_int_eq(filter_run(&te, film(&te, 60, 90), got[mode], NFRAMES), 0);
		env_fini(&te);
	}
	ck_assert_mem_eq(got[0], got[1], sizeof(got[0]));
}
END_TEST

START_TEST(test_particle_filter_misuse_is_refused)
{
	static const struct {
		uint32_t width, height, nframes, nparticles;
		float x;
	} wrong[] = {
		{ 0, 4, 1, 8, 0 },
		{ 4, 0, 1, 8, 0 },
		{ 4, 4, 1, 0, 0 },
		{ 4, 4, 2, 8, 0 },
		{ 5, 4, 1, 8, 0 },
		{ 4, 4, 1, 8, NAN },
		{ UINT32_MAX, UINT32_MAX, 1, 8, 0 },
	};
	struct test_env te;
	uint8_t frame[16] = { 0 };
	float estimate[2];

	env_init(&te, ENV_INLINE);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(RUN(&te, gantry_kernel_particle_filter, SPAN(frame, 16),
				     SPAN(estimate, 2), U32(wrong[i].width), U32(wrong[i].height),
				     U32(wrong[i].nframes), U32(wrong[i].nparticles), U64(1),
				     F32(wrong[i].x), F32(0)),
				 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_particle_filter, SPAN(frame, 16), SPAN(estimate, 2),
			     U32(4), U32(4), U32(1), U32(UINT32_MAX), U64(1), F32(0), F32(0)),
			 REFUSED(ENOMEM));
	/* Far outside the picture is only a bad guess. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_particle_filter, SPAN(frame, 16), SPAN(estimate, 2),
			     U32(4), U32(4), U32(1), U32(10), U64(1), F32(3e38f), F32(-3e38f)),
			 0);
	te.asks_left = 0;
	ASSERT_CANCELLED(RUN(&te, gantry_kernel_particle_filter, SPAN(frame, 16), SPAN(estimate, 2),
			     U32(4), U32(4), U32(1), U32(10), U64(1), F32(0), F32(0)));
	env_fini(&te);
}
END_TEST

Suite *kernels_particles_suite(void)
{
	Suite *suite = suite_create("kernels/particles");
	TCase *tc = env_case(suite, "particles");

	tcase_add_loop_test(tc, test_lavamd_equals_all_pairs, 0, ENV_NMODES);
	tcase_add_test(tc, test_lavamd_misuse_is_refused);
	tcase_add_loop_test(tc, test_particle_filter_follows_spot, 0, ENV_NMODES);
	tcase_add_test(tc, test_particle_filter_gives_same_bits_with_and_without_threads);
	tcase_add_test(tc, test_particle_filter_misuse_is_refused);
	return suite;
}
