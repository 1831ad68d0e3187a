/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of complex numbers in one dimension, by the definition. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cufftXt.h>

#include "tests/fakecuda/libraries/fake.h"

#define PLANS	  16
#define MAX_PARTS 16

static struct plan {
	bool is_used, is_made, has_no_work;
	int n, batch;
	int nparts; /* GPUs, which are one; 0: it is over none but that */
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
			plans[i] = (struct plan){
				.is_used = true, .is_made = true, .n = nx, .batch = batch
			};
			*plan = i + 1;
			return CUFFT_SUCCESS;
		}
	return CUFFT_ALLOC_FAILED;
}

cufftResult cufftCreate(cufftHandle *plan)
{
	cufftResult result = cufftPlan1d(plan, 1, CUFFT_C2C, 1);

	if (result == CUFFT_SUCCESS)
		plans[*plan - 1].is_made = false;
	return result;
}

/* The real one wants two or more, and takes one that is there twice. */
cufftResult cufftXtSetGPUs(cufftHandle plan, int nGPUs, int *whichGPUs)
{
	struct plan *p = find(plan);

	if (!p || p->is_made)
		return CUFFT_INVALID_PLAN;
	if (nGPUs < 2 || nGPUs > MAX_PARTS || !whichGPUs)
		return CUFFT_INVALID_VALUE;
	for (int i = 0; i < nGPUs; i++)
		if (whichGPUs[i] != whichGPUs[0])
			return CUFFT_INVALID_DEVICE;
	p->nparts = nGPUs;
	return CUFFT_SUCCESS;
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
	p->is_made = true;
	*work = 0;
	for (int i = 0; i < p->nparts; i++)
		work[i] = (size_t)(64 * (i + 1));
	return CUFFT_SUCCESS;
}

cufftResult cufftSetAutoAllocation(cufftHandle plan, int autoAllocate)
{
	struct plan *p = find(plan);

	if (!p)
		return CUFFT_INVALID_PLAN;
	p->has_no_work = !autoAllocate;
	return CUFFT_SUCCESS;
}

/* One area for each GPU, which is written to. */
cufftResult cufftXtSetWorkArea(cufftHandle plan, void **areas)
{
	struct plan *p = find(plan);

	if (!p || !areas)
		return p ? CUFFT_INVALID_VALUE : CUFFT_INVALID_PLAN;
	(void)fake_wait(p->stream);
	for (int i = 0; i < p->nparts; i++)
		memset(areas[i], i, (size_t)(64 * (i + 1)));
	p->has_no_work = false;
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

/* ---- data over several GPUs ---- */

/* As many elements as all parts but the last have; that has room for as many. */
static int part_of(const struct plan *p)
{
	return (p->n * p->batch + p->nparts - 1) / p->nparts;
}

cufftResult cufftXtFree(cudaLibXtDesc *descriptor)
{
	if (descriptor) {
		free(descriptor->descriptor->data[0]);
		free(descriptor->descriptor);
	}
	free(descriptor);
	return CUFFT_SUCCESS;
}

cufftResult cufftXtMalloc(cufftHandle plan, cudaLibXtDesc **descriptor, cufftXtSubFormat format)
{
	const struct plan *p = find(plan);
	cudaLibXtDesc *d;
	cudaXtDesc *parts;

	if (!p || !p->is_made)
		return CUFFT_INVALID_PLAN;
	if (format != CUFFT_XT_FORMAT_INPLACE && format != CUFFT_XT_FORMAT_INPLACE_SHUFFLED)
		return CUFFT_INVALID_VALUE;
	d = calloc(1, sizeof(*d));
	parts = calloc(1, sizeof(*parts));
	if (!d || !parts)
		abort();
	d->descriptor = parts;
	d->subFormat = format;
	d->libDescriptor = d; /* opaque */
	parts->nGPUs = p->nparts ? p->nparts : 1;
	for (int i = 0; i < p->nparts; i++) {
		parts->size[i] = sizeof(cufftComplex) * (size_t)part_of(p);
		parts->data[i] = i ? (char *)parts->data[0] + (size_t)i * parts->size[0]
				   : calloc((size_t)p->nparts, parts->size[0]);
	}
	*descriptor = d;
	return CUFFT_SUCCESS;
}

/* Element @i of the data in its natural order; a transform of one batch leaves it backwards. */
static cufftComplex *element(const struct plan *p, const cudaLibXtDesc *d, int i)
{
	int at = d->subFormat == CUFFT_XT_FORMAT_INPLACE ? i : p->n * p->batch - 1 - i;

	return (cufftComplex *)d->descriptor->data[at / part_of(p)] + at % part_of(p);
}

cufftResult cufftXtMemcpy(cufftHandle plan, void *to, void *from, cufftXtCopyType type)
{
	const struct plan *p = find(plan);

	if (!p)
		return CUFFT_INVALID_PLAN;
	if (!to || !from || type > CUFFT_COPY_DEVICE_TO_DEVICE)
		return CUFFT_INVALID_VALUE;
	if (type != CUFFT_COPY_DEVICE_TO_HOST &&
	    ((const cudaLibXtDesc *)to)->subFormat != CUFFT_XT_FORMAT_INPLACE)
		return CUFFT_INVALID_TYPE;
	(void)fake_wait(p->stream);
	for (int i = 0; p->nparts && i < p->n * p->batch; i++)
		*(type == CUFFT_COPY_DEVICE_TO_HOST ? (cufftComplex *)to + i : element(p, to, i)) =
			*(type == CUFFT_COPY_HOST_TO_DEVICE ? (cufftComplex *)from + i
							    : element(p, from, i));
	return CUFFT_SUCCESS;
}

cufftResult cufftXtExecDescriptorC2C(cufftHandle plan, cudaLibXtDesc *input, cudaLibXtDesc *output,
				     int direction)
{
	const struct plan *p = find(plan);
	struct transform args;
	cufftComplex *all;
	int n;

	if (!p || !input || !output)
		return CUFFT_INVALID_PLAN;
	if (p->has_no_work)
		return CUFFT_NO_WORKSPACE;
	if (input != output || input->descriptor->nGPUs != p->nparts)
		return CUFFT_EXEC_FAILED;
	(void)fake_wait(p->stream);
	n = p->n * p->batch;
	all = malloc(sizeof(*all) * (size_t)n);
	if (!all)
		abort();
	for (int i = 0; i < n; i++)
		all[i] = *element(p, input, i);
	args = (struct transform){ p->n, p->batch, direction, all, all };
	transform(&args);
	if (p->batch == 1)
		output->subFormat = input->subFormat == CUFFT_XT_FORMAT_INPLACE
					    ? CUFFT_XT_FORMAT_INPLACE_SHUFFLED
					    : CUFFT_XT_FORMAT_INPLACE;
	for (int i = 0; i < n; i++)
		*element(p, output, i) = all[i];
	free(all);
	return CUFFT_SUCCESS;
}

cufftResult cufftXtExecDescriptor(cufftHandle plan, cudaLibXtDesc *input, cudaLibXtDesc *output,
				  int direction)
{
	return cufftXtExecDescriptorC2C(plan, input, output, direction);
}
