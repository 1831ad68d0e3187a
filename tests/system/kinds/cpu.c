/* SPDX-License-Identifier: Apache-2.0 */
/* The module of test_kinds.py for cpu devices: what tests/fpga's board computes, in C. */
#include "devices/kernels/kernel.h"

KERNEL(board_vadd)
{
	uint64_t n = call->args[3].u64;
	const uint32_t *x = ARG(uint32_t, call, 0, n), *y = ARG(uint32_t, call, 1, n);
	uint32_t *out = ARG(uint32_t, call, 2, n);

	if (!x || !y || !out)
		return -EINVAL;
	for (uint64_t i = 0; i < n; i++)
		out[i] = x[i] + y[i];
	return 0;
}

/* The kernel that cpu devices alone have. */
KERNEL(kinds_cpu_scale)
{
	uint64_t n = call->args[3].u64;
	const uint32_t *x = ARG(uint32_t, call, 0, n);
	uint32_t *out = ARG(uint32_t, call, 1, n), factor = call->args[2].u32;

	if (!x || !out)
		return -EINVAL;
	for (uint64_t i = 0; i < n; i++)
		out[i] = x[i] * factor;
	return 0;
}
