/* SPDX-License-Identifier: Apache-2.0 */
/* Programs over NVIDIA's libraries, in parts: what does not hold ends the program, which says where. */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_MUST_H
#define GANTRY_TESTS_CUDA_PROGRAMS_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(part, what)                                                           \
	do {                                                                       \
		if (!(what)) {                                                     \
			printf("FAILED %s, line %d: %s\n", part, __LINE__, #what); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

#endif
