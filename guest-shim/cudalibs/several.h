/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library whose objects know their device, whichever the thread has, and whose groups may hold calls of several devices: NCCL. The
 * worker has a table and a thread for each device of a session, so a call goes to that of its object, and a group is one on each
 * device that has a call in it: begun where the first comes, and ended on all of them together.
 *
 * An object's handle is the worker's number with the device's in its high bits.
 *
 * Threads: a group is its thread's.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_SEVERAL_H
#define GANTRY_GUEST_SHIM_CUDALIBS_SEVERAL_H

#include <stdbool.h>
#include <stdint.h>

#define GANTRY_SEVERAL_DEVICES 64u
#define GANTRY_SEVERAL_SHIFT   48

/* A function that takes nothing: where a group begins, or where it ends. */
struct gantry_several_mark {
	const char *name;
	uint64_t function;
};

struct gantry_several {
	uint32_t depth;
	struct gantry_several_mark start;
	uint32_t ndevices; /* that have a call in it */
	int devices[GANTRY_SEVERAL_DEVICES];
};

static inline uint64_t gantry_several_handle(uint64_t number, int device)
{
	return number | (uint64_t)(device + 1) << GANTRY_SEVERAL_SHIFT;
}

/* The worker's number; *device is written where the handle says one. */
static inline uint64_t gantry_several_number(uint64_t handle, int *device)
{
	if (handle >> GANTRY_SEVERAL_SHIFT)
		*device = (int)(handle >> GANTRY_SEVERAL_SHIFT) - 1;
	return handle & ((1ull << GANTRY_SEVERAL_SHIFT) - 1);
}

/* The calling thread's. */
static inline struct gantry_several *gantry_several_group(void)
{
	static _Thread_local struct gantry_several group;

	return &group;
}

static inline void gantry_several_open(struct gantry_several *group,
				       const struct gantry_several_mark *start)
{
	if (group->depth++ == 0) {
		group->start = *start;
		group->ndevices = 0;
	}
}

/* Whether that was the outermost. */
static inline bool gantry_several_close(struct gantry_several *group)
{
	return --group->depth == 0;
}

/* Whether @device has had no call in it. */
static inline bool gantry_several_joins(const struct gantry_several *group, int device)
{
	for (uint32_t i = 0; i < group->ndevices; i++)
		if (group->devices[i] == device)
			return false;
	return true;
}

#endif
