/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/hip/backend.h"
#include "tests/unit/devices/steps_inside.h"

static void expect(struct gantry_kernel *kernel, uint32_t ns)
{
	kernel->mean_ns = ns;
}

static uint32_t nkept(const struct gantry_stream *stream)
{
	return stream->submitted - stream->closed;
}

static bool marked(const struct gantry_stream *stream)
{
	return stream->marks.unwritten;
}

const struct steps_inside steps_inside_hip = { expect, nkept, marked };
