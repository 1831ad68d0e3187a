/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes that a program sets of a function: they are of the context of its device, and have to be there wherever the function is. */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_ATTRIBUTES_H
#define GANTRY_TESTS_CUDA_PROGRAMS_ATTRIBUTES_H

#include "tests/cuda-programs/parts.h"

/* A cluster of 16 is one that has to be allowed. */
static inline void set_attributes(CUfunction function)
{
	OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 60));
	OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
}

static inline void check_attributes(CUfunction function)
{
	CUlaunchAttribute cluster = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
				      .value.clusterDim = { 16, 1, 1 } };
	CUlaunchConfig config = { 16, 1, 1, 256, 1, 1, 0, NULL, &cluster, 1 };
	int value = 0;

	OK(cuOccupancyMaxActiveClusters(&value, function, &config));
	/* All of them are asked anew when one is set. */
	OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
			      function));
	CHECK(value == 60);
}

#endif
