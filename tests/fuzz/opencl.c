/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a binary for an OpenCL device. */
#include "devices/opencl/container.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/spirv.h"
#include "tests/fuzz/fuzz.h"

/* What is asked of a module that was found to be whole. */
static void ask_module(const uint8_t *data, size_t len)
{
	size_t off = len;

	assert(gantry_spirv_find(data, len, &off) && off < len);
	for (uint32_t id = 0; id < 16; id++)
		assert(gantry_spirv_constant_bytes(data + off, len - off, id) <= 8);
	(void)gantry_spirv_prints(data + off, len - off);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	enum gantry_opencl_sort sort = GANTRY_OPENCL_UNKNOWN;
	struct gantry_err err = GANTRY_ERR_NONE;
	uint8_t *stripped;
	size_t n;

	if (gantry_opencl_container_check(data, len, &sort, &err) < 0) {
		assert(err.code < 0 && err.text[0] && sort == GANTRY_OPENCL_UNKNOWN);
		return 0;
	}
	assert(sort != GANTRY_OPENCL_UNKNOWN && sort == gantry_opencl_sort(data, len));
	if (sort == GANTRY_OPENCL_IL)
		ask_module(data, len);
	if (sort != GANTRY_OPENCL_POCL)
		return 0;
	/* What is made of a sound one is sound, and is what is made of it again. */
	stripped = malloc(len);
	if (!stripped)
		abort();
	n = gantry_opencl_pocl_strip(data, len, stripped);
	assert(n <= len && gantry_opencl_container_check(stripped, n, NULL, &err) == 0);
	assert(gantry_opencl_pocl_strip(stripped, n, stripped) == n);
	free(stripped);
	return 0;
}
