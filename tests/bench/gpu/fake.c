/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of apps.cu for the fake driver of tests/fakecuda: same names, same parameters. They compute next to
 * nothing, but write what the programs wait for; enough to see that both programs and the driver script work.
 */
#include <stdint.h>
#include <time.h>

#include "tests/fakecuda/kernel.h"

#define MAX_PARAMS 16

/*
 * NAME of parameters LAYOUT, a letter each: p and q take 8 bytes, u 4. It flips a word of the OUT-th parameter's
 * memory. fakecuda_params_NAME is filled before the driver looks.
 */
#define KERNELS(X)                      \
	X(hotspot, 2, "pppuuuuuuu")     \
	X(hotspot3d, 2, "pppuuuuuuuuu") \
	X(pathfinder, 2, "pppuu")       \
	X(fan1, 1, "ppuu")              \
	X(fan2, 1, "pppuu")             \
	X(euclid, 1, "ppquu")           \
	X(bfs_visit, 5, "ppppppu")      \
	X(needle, 1, "ppuuuu")          \
	X(lavamd, 2, "pppuu")           \
	X(pf_likelihood, 3, "pppppuuu") \
	X(pf_sums, 1, "ppu")            \
	X(pf_resample, 3, "ppppppuu")

#define DEFINE(name, out, layout)                                                    \
	extern struct fakecuda_param fakecuda_params_##name[];                       \
	struct fakecuda_param fakecuda_params_##name[MAX_PARAMS];                    \
	fakecuda_kernel fakecuda_##name;                                             \
	int fakecuda_##name(void **params, const struct fakecuda_geometry *geometry) \
	{                                                                            \
		(void)geometry;                                                      \
		(*(uint32_t **)params[out])[0] ^= 1;                                 \
		return 0;                                                            \
	}
KERNELS(DEFINE)

static void lay_out(struct fakecuda_param *params, const char *layout)
{
	uint32_t off = 0;

	for (; *layout; layout++, params++) {
		params->size = *layout == 'u' ? 4 : 8;
		off = (off + params->size - 1) / params->size * params->size;
		params->offset = off;
		off += params->size;
	}
}

__attribute__((constructor)) static void lay_out_all(void)
{
#define LAY_OUT(name, out, layout) lay_out(fakecuda_params_##name, layout);
	KERNELS(LAY_OUT)
}

FAKECUDA_KERNEL(empty, { char none; }, { 0, 0 })
{
	(void)params;
	(void)geometry;
	return 0;
}

FAKECUDA_KERNEL(
	spin, { uint64_t ns; }, FAKECUDA_P(spin, ns))
{
	const struct timespec ts = { .tv_nsec = (long)(*(const uint64_t *)params[0] % 1000000000) };

	(void)geometry;
	(void)nanosleep(&ts, NULL); /* cut short by a signal: no matter */
	return 0;
}

FAKECUDA_KERNEL(
	touch,
	{
		uint32_t *data;
		uint64_t n;
	},
	FAKECUDA_P(touch, data), FAKECUDA_P(touch, n))
{
	uint32_t *data = *(uint32_t **)params[0];

	(void)geometry;
	for (uint64_t i = 0; i < *(const uint64_t *)params[1]; i++)
		data[i]++;
	return 0;
}

/* Clears "more": the search ends with its first level. */
FAKECUDA_KERNEL(
	bfs_update,
	{
		void *frontier;
		void *updating;
		void *visited;
		uint32_t *more;
		uint32_t n;
	},
	FAKECUDA_P(bfs_update, frontier), FAKECUDA_P(bfs_update, updating),
	FAKECUDA_P(bfs_update, visited), FAKECUDA_P(bfs_update, more), FAKECUDA_P(bfs_update, n))
{
	(void)geometry;
	**(uint32_t **)params[3] = 0;
	return 0;
}
