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

#define GANTRY_SEVERAL_PLACES 64u
#define GANTRY_SEVERAL_SHIFT  48

/* A function that takes nothing: where a group begins, or where it ends. */
struct gantry_several_mark {
	const char *name;
	uint64_t function;
};

/* A stream, or where calls go that name none. */
struct gantry_several_place {
	int device;
	bool has_stream;
	void *stream;
};

struct gantry_several {
	uint32_t depth;
	struct gantry_several_mark start;
	uint32_t nplaces; /* that have a call in it */
	struct gantry_several_place places[GANTRY_SEVERAL_PLACES];
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
		group->nplaces = 0;
	}
}

/* Whether that was the outermost. */
static inline bool gantry_several_close(struct gantry_several *group)
{
	return --group->depth == 0;
}

static inline bool gantry_several_has(const struct gantry_several *group,
				      const struct gantry_several_place *place)
{
	for (uint32_t i = 0; i < group->nplaces; i++)
		if (group->places[i].device == place->device &&
		    group->places[i].has_stream == place->has_stream &&
		    group->places[i].stream == place->stream)
			return true;
	return false;
}

/* Whether no place before the @n th is of its device. */
static inline bool gantry_several_is_first(const struct gantry_several *group, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (group->places[i].device == group->places[n].device)
			return false;
	return true;
}

#endif
