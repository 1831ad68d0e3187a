/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFFT's plans and data over several GPUs that are one, several times. Prints "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cuda_runtime_api.h>
#include <cufftXt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/cuda-programs/must.h"

#define N	256
#define BATCH	5 /* of transforms of SHORT */
#define SHORT	24
#define NUMBERS 128 /* room, with what nobody may touch behind */
#define BEHIND	-77

static int same[4];
static cufftComplex in[N + NUMBERS], out[N + NUMBERS];

static void begin(void)
{
	for (int i = 0; i < N + NUMBERS; i++) {
		in[i] = (cufftComplex){ (float)(i % 7), (float)(i % 4) };
		out[i] = (cufftComplex){ BEHIND, BEHIND };
	}
}

/* Whether @out is the transform of @in by the definition, and no more than that. */
static int is_transformed(int n, int batch)
{
	double worst = 0;

	for (int b = 0; b < batch; b++)
		for (int k = 0; k < n; k++) {
			const cufftComplex *from = in + b * n, *at = out + b * n + k;
			double re = 0, im = 0;

			for (int j = 0; j < n; j++) {
				double angle = -2 * M_PI * j * k / n;

				re += from[j].x * cos(angle) - from[j].y * sin(angle);
				im += from[j].x * sin(angle) + from[j].y * cos(angle);
			}
			worst = fmax(worst, fabs(at->x - re) + fabs(at->y - im));
		}
	return worst < 1e-2 && out[n * batch].x == BEHIND && out[n * batch].y == BEHIND;
}

static int is_as_it_was(int n)
{
	double worst = 0;

	for (int i = 0; i < n; i++)
		worst = fmax(worst, fabs(out[i].x / n - in[i].x) + fabs(out[i].y / n - in[i].y));
	return worst < 1e-3 && out[n].x == BEHIND;
}

static cufftHandle make(const char *part, int ngpus, int n, int batch, size_t *work)
{
	cufftHandle plan;

	MUST(part, cufftCreate(&plan) == CUFFT_SUCCESS);
	MUST(part, cufftXtSetGPUs(plan, ngpus, same) == CUFFT_SUCCESS);
	for (int i = 0; i <= ngpus; i++)
		work[i] = SIZE_MAX;
	MUST(part, cufftMakePlan1d(plan, n, CUFFT_C2C, batch, work) == CUFFT_SUCCESS);
	for (int i = 0; i < ngpus; i++)
		MUST(part, work[i] != SIZE_MAX);
	MUST(part, work[ngpus] == SIZE_MAX);
	return plan;
}

static void copy_there(const char *part, cufftHandle plan, cudaLibXtDesc *data)
{
	begin();
	MUST(part, cufftXtMemcpy(plan, data, in, CUFFT_COPY_HOST_TO_DEVICE) == CUFFT_SUCCESS);
}

/* The descriptor says truly where its parts are: they are memory like other. */
static void look_at(const char *part, const cudaLibXtDesc *data, int ngpus)
{
	const cudaXtDesc *parts = data->descriptor;

	MUST(part, data->library == LIB_FORMAT_CUFFT && parts->nGPUs == ngpus);
	for (int i = 0, at = 0; i < ngpus; i++) {
		struct cudaPointerAttributes attributes;
		cufftComplex first;

		MUST(part, parts->GPUs[i] == 0 && parts->size[i] > 0);
		MUST(part, cudaPointerGetAttributes(&attributes, parts->data[i]) == cudaSuccess);
		MUST(part, attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
		MUST(part, cudaMemcpy(&first, parts->data[i], sizeof(first),
				      cudaMemcpyDeviceToHost) == cudaSuccess);
		MUST(part, first.x == in[at].x && first.y == in[at].y);
		at += (int)(parts->size[i] / sizeof(first));
	}
}

static void try_whole(void)
{
	size_t work[3], before, during, after, all;
	cufftHandle plan = make("made", 2, N, 1, work);
	cudaLibXtDesc *data = NULL, *other = NULL;

	MUST("made", cudaMemGetInfo(&before, &all) == cudaSuccess);
	MUST("made", cufftXtMalloc(plan, &data, CUFFT_XT_FORMAT_INPLACE) == CUFFT_SUCCESS);
	MUST("made", data && data->subFormat == CUFFT_XT_FORMAT_INPLACE);
	MUST("made", cudaMemGetInfo(&during, &all) == cudaSuccess && during <= before);
	printf("ok made\n");

	copy_there("whole", plan, data);
	look_at("whole", data, 2);
	MUST("whole", cufftXtExecDescriptorC2C(plan, data, data, CUFFT_FORWARD) == CUFFT_SUCCESS);
	MUST("whole", cufftXtMemcpy(plan, out, data, CUFFT_COPY_DEVICE_TO_HOST) == CUFFT_SUCCESS);
	MUST("whole", is_transformed(N, 1));
	printf("ok whole\n");

	MUST("shuffled", data->subFormat == CUFFT_XT_FORMAT_INPLACE_SHUFFLED);
	MUST("shuffled", cufftXtMemcpy(plan, data, in, CUFFT_COPY_HOST_TO_DEVICE) != CUFFT_SUCCESS);
	MUST("shuffled", cufftXtMalloc(plan, &other, CUFFT_XT_FORMAT_INPLACE) == CUFFT_SUCCESS);
	MUST("shuffled",
	     cufftXtMemcpy(plan, other, data, CUFFT_COPY_DEVICE_TO_DEVICE) == CUFFT_SUCCESS);
	MUST("shuffled", cufftXtExecDescriptor(plan, data, other, CUFFT_INVERSE) != CUFFT_SUCCESS);
	MUST("shuffled", other->subFormat == CUFFT_XT_FORMAT_INPLACE);
	begin();
	MUST("shuffled",
	     cufftXtExecDescriptorC2C(plan, other, other, CUFFT_INVERSE) == CUFFT_SUCCESS);
	MUST("shuffled",
	     cufftXtMemcpy(plan, out, other, CUFFT_COPY_DEVICE_TO_HOST) == CUFFT_SUCCESS);
	MUST("shuffled", is_as_it_was(N));
	MUST("shuffled", cufftXtFree(other) == CUFFT_SUCCESS);
	MUST("shuffled", cufftXtFree(data) == CUFFT_SUCCESS && cufftXtFree(NULL) == CUFFT_SUCCESS);
	MUST("shuffled", cudaMemGetInfo(&after, &all) == cudaSuccess && after >= during);
	MUST("shuffled", cufftDestroy(plan) == CUFFT_SUCCESS);
	printf("ok shuffled\n");
}

/* The last part has less than it may have room for. */
static void try_uneven(void)
{
	size_t work[5];
	cufftHandle plan = make("uneven", 4, SHORT, BATCH, work);
	cudaLibXtDesc *data = NULL;
	cudaStream_t stream;

	MUST("uneven", cudaStreamCreate(&stream) == cudaSuccess);
	MUST("uneven", cufftSetStream(plan, stream) == CUFFT_SUCCESS);
	MUST("uneven", cufftXtMalloc(plan, &data, CUFFT_XT_FORMAT_INPLACE) == CUFFT_SUCCESS);
	copy_there("uneven", plan, data);
	MUST("uneven", cufftXtExecDescriptorC2C(plan, data, data, CUFFT_FORWARD) == CUFFT_SUCCESS);
	MUST("uneven", cufftXtMemcpy(plan, out, data, CUFFT_COPY_DEVICE_TO_HOST) == CUFFT_SUCCESS);
	MUST("uneven", is_transformed(SHORT, BATCH));
	MUST("uneven", cufftXtFree(data) == CUFFT_SUCCESS && cufftDestroy(plan) == CUFFT_SUCCESS);
	MUST("uneven", cudaStreamDestroy(stream) == cudaSuccess);
	printf("ok uneven\n");
}

static void try_work_area(void)
{
	size_t work[3] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };
	cudaLibXtDesc *data = NULL;
	cufftHandle plan;
	void *areas[2];

	MUST("work area", cufftCreate(&plan) == CUFFT_SUCCESS);
	MUST("work area", cufftXtSetGPUs(plan, 2, same) == CUFFT_SUCCESS);
	MUST("work area", cufftSetAutoAllocation(plan, 0) == CUFFT_SUCCESS);
	MUST("work area", cufftMakePlan1d(plan, N, CUFFT_C2C, 1, work) == CUFFT_SUCCESS);
	MUST("work area", cufftXtMalloc(plan, &data, CUFFT_XT_FORMAT_INPLACE) == CUFFT_SUCCESS);
	copy_there("work area", plan, data);
	MUST("work area",
	     cufftXtExecDescriptorC2C(plan, data, data, CUFFT_FORWARD) == CUFFT_NO_WORKSPACE);
	for (int i = 0; i < 2; i++)
		MUST("work area", cudaMalloc(&areas[i], work[i] + 1) == cudaSuccess);
	MUST("work area", cufftXtSetWorkArea(plan, areas) == CUFFT_SUCCESS);
	MUST("work area",
	     cufftXtExecDescriptorC2C(plan, data, data, CUFFT_FORWARD) == CUFFT_SUCCESS);
	MUST("work area",
	     cufftXtMemcpy(plan, out, data, CUFFT_COPY_DEVICE_TO_HOST) == CUFFT_SUCCESS);
	MUST("work area", is_transformed(N, 1));
	MUST("work area", cufftXtFree(data) == CUFFT_SUCCESS);
	MUST("work area", cufftDestroy(plan) == CUFFT_SUCCESS);
	for (int i = 0; i < 2; i++)
		MUST("work area", cudaFree(areas[i]) == cudaSuccess);
	printf("ok work area\n");
}

/* A descriptor that the program makes itself, of memory that it has. */
static void try_own(void)
{
	cudaXtDesc parts = { .nGPUs = 2 };
	cudaLibXtDesc data = { .descriptor = &parts, .subFormat = CUFFT_XT_FORMAT_INPLACE };
	size_t work[3];
	cufftHandle plan = make("own", 2, N, 1, work);

	for (int i = 0; i < 2; i++) {
		parts.size[i] = N / 2 * sizeof(cufftComplex);
		MUST("own", cudaMalloc(&parts.data[i], parts.size[i]) == cudaSuccess);
	}
	copy_there("own", plan, &data);
	look_at("own", &data, 2);
	MUST("own", cufftXtExecDescriptorC2C(plan, &data, &data, CUFFT_FORWARD) == CUFFT_SUCCESS);
	MUST("own", cufftXtMemcpy(plan, out, &data, CUFFT_COPY_DEVICE_TO_HOST) == CUFFT_SUCCESS);
	MUST("own", is_transformed(N, 1));
	MUST("own", cufftDestroy(plan) == CUFFT_SUCCESS);
	for (int i = 0; i < 2; i++)
		MUST("own", cudaFree(parts.data[i]) == cudaSuccess);
	printf("ok own\n");
}

/* What there is of such plans on one GPU. */
static void try_limits(void)
{
	int other[2] = { 0, 1000 };
	cudaLibXtDesc *data = NULL;
	cufftHandle plan;
	size_t work;

	MUST("limits", cufftCreate(&plan) == CUFFT_SUCCESS);
	MUST("limits", cufftXtMalloc(plan, &data, CUFFT_XT_FORMAT_INPLACE) == CUFFT_INVALID_PLAN);
	MUST("limits", cufftXtSetGPUs(plan, 1, same) == CUFFT_INVALID_VALUE);
	MUST("limits", cufftXtSetGPUs(plan, 2, other) == CUFFT_INVALID_DEVICE);
	MUST("limits", cufftDestroy(plan) == CUFFT_SUCCESS);
	/* A plan over no more than one has data of one part, without any memory. */
	MUST("limits", cufftCreate(&plan) == CUFFT_SUCCESS);
	MUST("limits", cufftMakePlan1d(plan, N, CUFFT_C2C, 1, &work) == CUFFT_SUCCESS);
	MUST("limits", cufftXtSetGPUs(plan, 2, same) == CUFFT_INVALID_PLAN);
	MUST("limits", cufftXtMalloc(plan, &data, CUFFT_XT_FORMAT_INPLACE) == CUFFT_SUCCESS);
	MUST("limits", data->descriptor->nGPUs == 1 && !data->descriptor->data[0]);
	MUST("limits",
	     cufftXtExecDescriptorC2C(plan, data, data, CUFFT_FORWARD) == CUFFT_EXEC_FAILED);
	MUST("limits", cufftXtFree(data) == CUFFT_SUCCESS && cufftDestroy(plan) == CUFFT_SUCCESS);
	printf("ok limits\n");
}

int main(void)
{
	try_whole();
	try_uneven();
	try_work_area();
	try_own();
	try_limits();
	printf("ok end\n");
	return 0;
}
