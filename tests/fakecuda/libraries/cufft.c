/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of complex numbers in one dimension, by the definition. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cufftXt.h>

#include "tests/fakecuda/libraries/fake.h"

#define PLANS 16

static struct plan {
	bool is_used;
	int n, batch;
	cudaStream_t stream;
	/* Read when the plan is made, where the caller has them. */
	const char *callback, *code;
	size_t code_bytes;
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
			plans[i] = (struct plan){ .is_used = true, .n = nx, .batch = batch };
			*plan = i + 1;
			return CUFFT_SUCCESS;
		}
	return CUFFT_ALLOC_FAILED;
}

cufftResult cufftCreate(cufftHandle *plan)
{
	return cufftPlan1d(plan, 1, CUFFT_C2C, 1);
}

/* The real one wants two or more. */
cufftResult cufftXtSetGPUs(cufftHandle plan, int nGPUs, int *whichGPUs)
{
	(void)whichGPUs;
	if (!find(plan))
		return CUFFT_INVALID_PLAN;
	return nGPUs < 2 ? CUFFT_INVALID_VALUE : CUFFT_INVALID_DEVICE;
}

/* As the vendor's shared library: only the static one has them. */
cufftResult cufftXtSetCallback(cufftHandle plan, void **routine, cufftXtCallbackType type,
			       void **info)
{
	(void)plan;
	(void)routine;
	(void)type;
	(void)info;
	return CUFFT_NOT_IMPLEMENTED;
}

cufftResult cufftXtClearCallback(cufftHandle plan, cufftXtCallbackType type)
{
	(void)plan;
	(void)type;
	return CUFFT_NOT_IMPLEMENTED;
}

cufftResult cufftXtSetJITCallback(cufftHandle plan, const char *name, const void *code,
				  size_t code_bytes, cufftXtCallbackType type, void **info)
{
	struct plan *p = find(plan);

	(void)info;
	if (!p || type == CUFFT_CB_UNDEFINED)
		return CUFFT_INVALID_VALUE;
	p->callback = name;
	p->code = code;
	p->code_bytes = code_bytes;
	return CUFFT_SUCCESS;
}

/* Code is its callback's name, three times. */
cufftResult cufftMakePlan1d(cufftHandle plan, int nx, cufftType type, int batch, size_t *work)
{
	struct plan *p = find(plan);
	size_t len;

	if (!p)
		return CUFFT_INVALID_PLAN;
	if (nx <= 0 || batch <= 0 || type != CUFFT_C2C)
		return CUFFT_INVALID_VALUE;
	len = p->callback ? strlen(p->callback) : 0;
	for (size_t i = 0; len > 0 && i < 3; i++)
		if (p->code_bytes != 3 * len || memcmp(p->code + i * len, p->callback, len) != 0)
			return CUFFT_NVJITLINK_FAILURE;
	p->n = nx;
	p->batch = batch;
	*work = 0;
	return CUFFT_SUCCESS;
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
