/* SPDX-License-Identifier: Apache-2.0 */
/* A build without failpoints: nothing to be found, and nothing that the environment could change. */
#include <stddef.h>

#include "base/failpoint.h"

void gantry_failpoints_open(void)
{
}

void gantry_failpoint(enum gantry_failpoint point)
{
	(void)point;
}

int gantry_failpoint_io(enum gantry_failpoint point)
{
	(void)point;
	return 0;
}

const struct gantry_failpoint_info *gantry_failpoint_at(uint32_t point)
{
	(void)point;
	return NULL;
}
