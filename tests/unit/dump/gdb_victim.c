/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose variables gdb prints. */
#include "guest-shim/gantry.h"

gantry_buffer buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 9, 3);
gantry_ticket ticket = GANTRY_TICKET(2, 17);
enum gantry_status status = GANTRY_E_SPAN;

int main(void)
{
	return buffer == 0 || ticket == 0 || status == 0;
}
