/* SPDX-License-Identifier: Apache-2.0 */
/* A gantryd whose monitor cannot go on where one of another build has left off. */
#include <stdlib.h>

#include "base/str.h"

int gantryd_main(int argc, char **argv);

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (gantry_str_starts(argv[i], "--monitor-resume="))
			abort();
	return gantryd_main(argc, argv);
}
