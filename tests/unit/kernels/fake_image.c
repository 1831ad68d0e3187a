/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code of the core module for the fake driver: the emulator runs it, on the thread of its
 * stream, one grid at a time.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "devices/kernels/core/cuda/args.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/kernels/emulator.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int run(emulator_entry *entry, void **params, const struct fakecuda_geometry *geometry)
{
	uint32_t nblocks = geometry->grid[0], nthreads = geometry->block[0];

	(void)pthread_mutex_lock(&lock);
	/* The driver does not tell us which launches are cooperative: those are never larger. */
	emulator_run(entry, nblocks, nthreads, emulator_holds(nblocks, nthreads), params[0]);
	(void)pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

#define VISIBLE __attribute__((visibility("default")))

VISIBLE extern const int fakecuda_occupancy;
const int fakecuda_occupancy = 1;

#define FUNCTION(name, type)                                                                      \
	VISIBLE extern const struct fakecuda_param fakecuda_params_##name[];                      \
	const struct fakecuda_param fakecuda_params_##name[] = { { 0, sizeof(type) }, { 0, 0 } }; \
	void emulated_##name(const void *args);                                                   \
	VISIBLE fakecuda_kernel fakecuda_##name;                                                  \
	int fakecuda_##name(void **params, const struct fakecuda_geometry *geometry)              \
	{                                                                                         \
		return run(emulated_##name, params, geometry);                                    \
	}
#include "devices/kernels/core/cuda/functions.def"
