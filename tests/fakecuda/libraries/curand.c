/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are random enough for a test, the same for the same seed. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <curand.h>

#include "tests/fakecuda/libraries/fake.h"

struct curandGenerator_st {
	cudaStream_t stream;
	uint64_t state;
	int is_host; /* its numbers go to host memory, and come when the stream has done what it had */
};

curandStatus_t curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t rng_type)
{
	curandStatus_t status = curandCreateGenerator(generator, rng_type);

	if (status == CURAND_STATUS_SUCCESS)
		(*generator)->is_host = 1;
	return status;
}

curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t rng_type)
{
	(void)rng_type;
	*generator = calloc(1, sizeof(**generator));
	return *generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_ALLOCATION_FAILED;
}

curandStatus_t curandDestroyGenerator(curandGenerator_t generator)
{
	if (!generator)
		return CURAND_STATUS_NOT_INITIALIZED;
	free(generator);
	return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream)
{
	generator->stream = stream;
	return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
						  unsigned long long seed)
{
	generator->state = seed * 2 + 1;
	return CURAND_STATUS_SUCCESS;
}

struct uniform {
	int is_host;
	uint64_t state;
	float *out;
	size_t n;
};

static void uniform(void *args)
{
	struct uniform *u = args;
	/* Whoever does not wait for it sees that it is not there. */
	const struct timespec nap = { 0, u->is_host ? 20000000 : 0 };

	(void)nanosleep(&nap, NULL); /* cut short is a shorter nap */
	for (size_t i = 0; i < u->n; i++) {
		u->state = u->state * 6364136223846793005u + 1442695040888963407u;
		u->out[i] = ((float)(u->state >> 40) + 1) / (1 << 24);
	}
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float *outputPtr, size_t num)
{
	struct uniform args;

	if (!generator)
		return CURAND_STATUS_NOT_INITIALIZED;
	args = (struct uniform){ generator->is_host, generator->state, outputPtr, num };
	return fake_enqueue(generator->stream, uniform, &args, sizeof(args))
		       ? CURAND_STATUS_LAUNCH_FAILURE
		       : CURAND_STATUS_SUCCESS;
}
