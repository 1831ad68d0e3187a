/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of complex numbers in one dimension, by the definition. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cufft.h>

#include "tests/fakecuda/libraries/fake.h"

#define PLANS 16

static struct plan {
	bool is_used;
	int n, batch;
	cudaStream_t stream;
} plans[PLANS];

static struct plan *find(cufftHandle handle)
{
	return handle > 0 && handle <= PLANS && plans[handle - 1].is_used ? &plans[handle - 1]
									  : NULL;
}

cufftResult cufftPlan1d(cufftHandle *plan, int nx, cufftType type, int batch)
{
	if (nx <= 0 || batch <= 0 || type != CUFFT_C2C)
		return CUFFT_INVALID_VALUE;
	for (int i = 0; i < PLANS; i++)
		if (!plans[i].is_used) {
			plans[i] = (struct plan){ true, nx, batch, NULL };
			*plan = i + 1;
			return CUFFT_SUCCESS;
		}
	return CUFFT_ALLOC_FAILED;
}

cufftResult cufftDestroy(cufftHandle plan)
{
	struct plan *p = find(plan);

	if (!p)
		return CUFFT_INVALID_PLAN;
	(void)fake_wait(p->stream); /* the real one waits too */
	p->is_used = false;
	return CUFFT_SUCCESS;
}

cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream)
{
	struct plan *p = find(plan);

	if (!p)
		return CUFFT_INVALID_PLAN;
	p->stream = stream;
	return CUFFT_SUCCESS;
}

struct transform {
	int n, batch, direction;
	const cufftComplex *in;
	cufftComplex *out;
};

static void transform(void *args)
{
	const struct transform *t = args;
	cufftComplex *sums = malloc(sizeof(*sums) * (size_t)t->n);

	for (int b = 0; sums && b < t->batch; b++) {
		const cufftComplex *in = t->in + (size_t)b * (size_t)t->n;

		for (int k = 0; k < t->n; k++) {
			double re = 0, im = 0;

			for (int j = 0; j < t->n; j++) {
				double angle = t->direction * 2 * M_PI * j * k / t->n;

				re += in[j].x * cos(angle) - in[j].y * sin(angle);
				im += in[j].x * sin(angle) + in[j].y * cos(angle);
			}
			sums[k] = (cufftComplex){ (float)re, (float)im };
		}
		for (int k = 0; k < t->n; k++)
			t->out[(size_t)b * (size_t)t->n + (size_t)k] = sums[k];
	}
	free(sums);
}

cufftResult cufftExecC2C(cufftHandle plan, cufftComplex *idata, cufftComplex *odata, int direction)
{
	const struct plan *p = find(plan);
	struct transform args;

	if (!p)
		return CUFFT_INVALID_PLAN;
	args = (struct transform){ p->n, p->batch, direction, idata, odata };
	return fake_enqueue(p->stream, transform, &args, sizeof(args)) ? CUFFT_EXEC_FAILED
								       : CUFFT_SUCCESS;
}
