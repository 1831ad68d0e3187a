/* SPDX-License-Identifier: Apache-2.0 */
/* What measures the machinery around kernels. */
#include "devices/kernels/core/cuda/gpu.h"

ENTRY(empty, struct gpu_nothing, 32)
{
	(void)a;
}

/* One thread. It asks whether it should stop about every 20 us: each question crosses the bus. */
ENTRY(spin, struct gpu_spin, 32)
{
	uint64_t start = clock_ns(), asked = start;

	if (first_item() != 0)
		return;
	for (uint64_t now = start; now - start < a.ns; now = clock_ns()) {
		if (now != start && now - asked < 20000)
			continue;
		asked = now;
		if (load_once(&a.verdict->cancel)) {
			store_once(&a.verdict->status, -ECANCELED);
			return;
		}
	}
}
