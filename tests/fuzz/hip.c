/* SPDX-License-Identifier: Apache-2.0 */
/* Input: code for AMD GPUs, as a session brings it. */
#include "devices/hip/container.h"

#include <assert.h>
#include <errno.h>

#include "tests/fuzz/fuzz.h"

static void check_kernel(const struct gantry_hip_object *object, uint32_t i)
{
	const struct gantry_hip_kernel *kernel = &object->kernels[i];
	const struct gantry_hip_kernel *found;

	assert(kernel->name[0] && memchr(kernel->name, '\0', sizeof(kernel->name)));
	assert(kernel->nparams <= GANTRY_HIP_MAX_PARAMS);
	found = gantry_hip_object_find(object, kernel->name);
	/* Of two with one name the first counts. */
	assert(found && found <= kernel);
}

/* What is in a bundle is sound by itself, and holds the same. */
static void check_alone(const struct gantry_hip_object *object, const char *arch)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_hip_object alone;

	assert(gantry_hip_container_open(object->bytes, object->nbytes, arch, &alone, &err) == 0);
	assert(alone.bytes == object->bytes && alone.nbytes == object->nbytes);
	assert(alone.nkernels == object->nkernels);
	if (alone.nkernels > 0)
		assert(memcmp(alone.kernels, object->kernels,
			      alone.nkernels * sizeof(*alone.kernels)) == 0);
	gantry_hip_object_free(&alone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char *const archs[] = { "gfx90a:sramecc+:xnack-", "gfx1030" };

	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
		struct gantry_hip_object object = { 0 };
		struct gantry_err err = GANTRY_ERR_NONE;
		int r = gantry_hip_container_open(data, len, archs[i], &object, &err);

		if (r < 0) {
			assert((r == -ENOEXEC || r == -ENOMEM) && err.text[0] && !object.kernels);
			continue;
		}
		assert((const uint8_t *)object.bytes >= data && object.nbytes <= len &&
		       (size_t)((const uint8_t *)object.bytes - data) <= len - object.nbytes);
		assert(object.nkernels <= GANTRY_HIP_MAX_KERNELS);
		for (uint32_t k = 0; k < object.nkernels; k++)
			check_kernel(&object, k);
		check_alone(&object, archs[i]);
		gantry_hip_object_free(&object);
	}
	return 0;
}
