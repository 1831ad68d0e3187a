/* SPDX-License-Identifier: Apache-2.0 */
/* What processes of one group share; a test may read it and mark a client as terminated. */
#ifndef GANTRY_TESTS_FAKECUDA_GROUP_H
#define GANTRY_TESTS_FAKECUDA_GROUP_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_GROUP_MAGIC 0x70756f7267636b66ull
#define FAKE_GROUP_SLOTS 64

struct fake_group_slot {
	pthread_mutex_t alive; /* robust: held as long as the process lives */
	pid_t pid;	       /* 0: nobody's */
	uint32_t terminated;   /* its contexts have ended, and its death harms nobody */
	uint64_t busy;	       /* kernels running */
	uint64_t faults;       /* of the group, when it joined */
};

/* 24 bytes, then 64 for each slot: what terminates clients writes there. */
struct fake_group {
	uint64_t magic;
	uint64_t faults;
	uint64_t code; /* CUresult of the last */
	struct fake_group_slot slots[FAKE_GROUP_SLOTS];
};

_Static_assert(sizeof(struct fake_group_slot) == 64, "known to tests/system/mps");
_Static_assert(offsetof(struct fake_group, slots) == 24, "known to tests/system/mps");

#endif
