/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles as C11 and as C++17 without extensions: what any program may include. */
#include "guest-shim/gantry.h"

int gantry_api_test(void);
int gantry_api_test(void)
{
	gantry_ticket ticket = GANTRY_TICKET(1, 2);

	return gantry_wait(0, &ticket, 1, GANTRY_FOREVER) == GANTRY_E_ARG ? GANTRY_OK
									  : GANTRY_API_VERSION;
}
