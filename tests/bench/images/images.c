/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what tests/fpga/workloads.c measures, a line of JSON for each workload. */
#include <stdio.h>

#include "tests/fpga/workloads.h"

int main(void)
{
	for (unsigned int i = 0; i < nworkloads; i++) {
		struct workload_result r = workload_measure(&workloads[i]);

		printf("{\"workload\": \"%c\", \"programs\": \"%s\", \"image\": \"%s\", \"manager_ms\": %.3f, \"single_ms\": %.3f, "
		       "\"shared_ms\": %.3f, \"spatial_ms\": %.3f, \"told_single_ms\": %.3f, \"told_spatial_ms\": %.3f, "
		       "\"best_fixed_ms\": %.3f, \"loadings\": %u}\n",
		       workloads[i].name, workloads[i].programs, workloads[i].shared,
		       (double)r.manager_ns / 1e6, (double)r.single_ns / 1e6,
		       (double)r.shared_ns / 1e6, (double)r.spatial_ns / 1e6,
		       (double)r.modes_ns[0] / 1e6, (double)r.modes_ns[1] / 1e6,
		       (double)r.best_fixed_ns / 1e6, (unsigned int)r.nloads);
	}
	return 0;
}
