/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the suites that the build names: SUITES is a row of SUITE(name). */
#include "tests/unit/kernels/env.h"

int main(void)
{
	Suite *const suites[] = {
#define SUITE(name) kernels_##name##_suite(),
		SUITES
#undef SUITE
	};

	return gantry_unit_run_all(suites, sizeof(suites) / sizeof(suites[0]));
}
