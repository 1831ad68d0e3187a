/* SPDX-License-Identifier: Apache-2.0 */
/* What steps.h tells of a backend's own structures: each has others of the same names. */
#ifndef GANTRY_TESTS_UNIT_DEVICES_STEPS_INSIDE_H
#define GANTRY_TESTS_UNIT_DEVICES_STEPS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/device.h"

struct steps_inside {
	void (*expect)(struct gantry_kernel *kernel, uint32_t ns);
	uint32_t (*nkept)(const struct gantry_stream *stream);
	bool (*marked)(const struct gantry_stream *stream);
};

extern const struct steps_inside steps_inside_cuda;
extern const struct steps_inside steps_inside_hip;

#endif
