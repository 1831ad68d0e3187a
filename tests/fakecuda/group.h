/* SPDX-License-Identifier: Apache-2.0 */
/* What processes of one group share; a test may read it and mark a client as terminated. */
#ifndef GANTRY_TESTS_FAKECUDA_GROUP_H
#define GANTRY_TESTS_FAKECUDA_GROUP_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_GROUP_MAGIC 0x70756f7267636b66ull
#define FAKE_GROUP_SLOTS 64

struct fake_group_slot {
	pthread_mutex_t alive; /* robust: held as long as the process lives */
	pid_t pid;	       /* 0: nobody's */
	uint32_t terminated;   /* its death harms nobody */
	uint64_t busy;	       /* kernels running */
	uint64_t faults;       /* of the group, when it joined */
};

struct fake_group {
	uint64_t magic;
	uint64_t faults;
	uint64_t code; /* CUresult of the last */
	struct fake_group_slot slots[FAKE_GROUP_SLOTS];
};

#endif
