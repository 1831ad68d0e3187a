/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recipes: requests that made and set objects of libraries, kept so that another device, or the worker after this one, has the objects
 * again, with their numbers. What is written down, the generator says of each function (enum gantry_calls_recipe).
 *
 * An entry has subjects, the objects that it makes, sets or ends, and others that it takes. When there are some times as many as were needed last, it is looked at
 * which are needed yet: those of objects that are alive, and of what those were made of; of calls that set the same anew the last. So what a
 * call costs does not depend on how much room there is, and a look at what little a program has stays in a processor's cache.
 *
 * Trust: as devices/keep.h has it; a request out of it is served like one of the guest's. What is read is a private copy.
 * Threads: the site's one. One site writes, the last that took the memory over; another's that comes with something to write bars
 * it instead, as not all is in it then.
 */
#ifndef GANTRY_DEVICES_CUDA_CALLS_RECIPE_H
#define GANTRY_DEVICES_CUDA_CALLS_RECIPE_H

#include "devices/cuda/calls/run.h"
#include "devices/keep.h"

#define GANTRY_RECIPES_LATEST 128u /* a power of two */

/* Pages for a part of the memory behind its head (devices/keep.h). 0 or -ENOMEM. */
typedef int gantry_recipes_reserve(const void *cookie, uint64_t off, uint64_t bytes);

struct gantry_recipes {
	struct gantry_keep_head *head; /* NULL: nothing is kept */
	uint64_t half_bytes;
	/* Of each half so much has pages; NULL: all has. */
	gantry_recipes_reserve *reserve;
	const void *reserve_cookie;
	uint64_t reserved[2];
	bool no_pages;	     /* the host had none: why not all is written down */
	uint64_t full_bytes; /* as much and it is looked at which entries are needed yet */
	/* The entries at the end, as far as they are remembered: what ends again at once, which most do, is taken off there. */
	struct {
		uint64_t off;
		uint32_t id; /* the one subject; 0: there are several */
		uint32_t what;
	} latest[GANTRY_RECIPES_LATEST];
	uint64_t nlatest;   /* since the last look, */
	uint64_t forgotten; /* of which so many are not there any more */
};

/* For tests: of a compaction. */
struct gantry_recipes_work {
	uint64_t nentries;
	uint64_t nlooked; /* times that an entry was looked at for what it needs */
};

/* @bytes at @base, or none at all. @reserve NULL: all of it has pages. */
void gantry_recipes_init(struct gantry_recipes *recipes, void *base, uint64_t bytes,
			 gantry_recipes_reserve *reserve, const void *reserve_cookie);
/* From now on it is @recipes, which stay where they are, that write there. */
void gantry_recipes_take_over(struct gantry_recipes *recipes);
/* A call of @function succeeded. */
void gantry_recipes_note(struct gantry_recipes *recipes,
			 const struct gantry_calls_function *function,
			 const struct gantry_calls_notes *notes, const void *request, size_t bytes);
/* From now on not all can be made anew. */
void gantry_recipes_bar(struct gantry_recipes *recipes, const char *why);
/* Nothing is kept, and nothing barred. */
void gantry_recipes_clear(struct gantry_recipes *recipes);
/* Calls @each for every entry, in their order; false: it is no entry, or @each said so. */
bool gantry_recipes_each(struct gantry_recipes *recipes,
			 bool (*each)(void *arg, const uint32_t *subjects, uint32_t nsubjects,
				      const void *request, size_t bytes),
			 void *arg);
/* For tests: makes room now. False: it could not, and all is as it was. */
bool gantry_recipes_compact(struct gantry_recipes *recipes, struct gantry_recipes_work *ret_work);

#endif
