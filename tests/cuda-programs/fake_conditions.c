/* SPDX-License-Identifier: Apache-2.0 */
/* What conditions.cu does, for the fake driver. */
#include <stdint.h>

#include "tests/fakecuda/kernel.h"

/* A handle that is none ends the context, as an address that is none does. */
#define ILLEGAL 700

FAKECUDA_KERNEL(
	count_down,
	{
		uint64_t condition;
		uint64_t left;
	},
	FAKECUDA_P(count_down, condition), FAKECUDA_P(count_down, left))
{
	uint32_t *left = *(uint32_t **)params[1];

	return geometry->set_condition(*(uint64_t *)params[0], --*left) ? ILLEGAL : 0;
}

FAKECUDA_KERNEL(
	choose,
	{
		uint64_t condition;
		uint64_t from;
	},
	FAKECUDA_P(choose, condition), FAKECUDA_P(choose, from))
{
	return geometry->set_condition(*(uint64_t *)params[0], **(uint32_t **)params[1]) ? ILLEGAL
											 : 0;
}

FAKECUDA_KERNEL(
	add,
	{
		uint64_t to;
		uint32_t n;
	},
	FAKECUDA_P(add, to), FAKECUDA_P(add, n))
{
	(void)geometry;
	**(uint32_t **)params[0] += *(uint32_t *)params[1];
	return 0;
}
