/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte that chooses, then steps, a byte each with what belongs to it. 0: what an agent does to the desk of a guest's
 * library. Else: what a machine does to the desks of its agent. Either may be refused, none may be led astray.
 */
#include "tests/fuzz/desk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };

	if (fuzz_u8(&in) == 0)
		fuzz_desk_of_guest(&in);
	else
		fuzz_desk_of_agent(&in);
	return 0;
}
