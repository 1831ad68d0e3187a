/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For filters that wrap every object of a device: what the wrappers have in common, and commands
 * translated to the objects beneath.
 *
 * A filter that uses this wraps all of its streams, memories, images and kernels, each in a struct
 * gantry_object. Wrappers live until their device closes, so a stale one is recognised.
 *
 * Threads: the device thread.
 */
#ifndef GANTRY_DEVICES_WRAP_H
#define GANTRY_DEVICES_WRAP_H

#include "base/list.h"
#include "devices/filter.h"

enum gantry_object_type {
	GANTRY_OBJECT_STREAM = 0x5354524d, /* numbers that stale memory does not hold by chance */
	GANTRY_OBJECT_MEM = 0x4d454d4f,
	GANTRY_OBJECT_IMAGE = 0x494d4147,
	GANTRY_OBJECT_KERNEL = 0x4b45524e,
};

struct gantry_object {
	uint32_t type; /* enum gantry_object_type */
	uint32_t id;   /* counts the objects of the device from 1 */
	struct gantry_list link;
	struct gantry_dev *dev;	      /* the filter's */
	struct gantry_object *parent; /* a kernel's image; else NULL */
	void *next;		      /* the object beneath; NULL once freed */
	uint64_t len;		      /* of memory */
	bool is_window; /* memory made by window_open(); set by the contract checker */
	uint32_t nuses; /* commands in flight; counted by the contract checker */
	bool broken;	/* a stream after an error that hurt it */
	const struct gantry_signature *sig; /* of a kernel */
};

struct gantry_objects {
	struct gantry_list list;
	uint32_t last_id;
};

void gantry_objects_init(struct gantry_objects *objects);
/* Frees all wrappers; what is beneath goes with the device beneath. */
void gantry_objects_fini(struct gantry_objects *objects);

/* A wrapper of @next. NULL: no memory. */
struct gantry_object *gantry_object_new(struct gantry_objects *objects, struct gantry_dev *dev,
					uint32_t type, void *next);

/* @cmd with the objects beneath in place of their wrappers. */
void gantry_object_unwrap_cmd(const struct gantry_cmd *cmd, struct gantry_cmd *ret_cmd);

void gantry_object_unwrap_question(const struct gantry_question *question,
				   struct gantry_question *ret_question);

static inline struct gantry_object *gantry_object_of(const void *opaque)
{
	return (struct gantry_object *)opaque;
}

#endif
