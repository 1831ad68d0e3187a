/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which image a board should hold: queued work that an image covers, against what loading it costs.
 *
 * What is decided: at each look, nothing, or one image for one place. For each image and place it is asked what work the board would do
 * from now until the queued work of the kernels that get faster is done: first loading, while what is not displaced goes on, then all kernels at
 * once, as fast as units and streams permit. That is compared with what it would do as it is. The change that brings most in its time
 * is made, if it brings more than it loses. Loading is paid for in advance by what an image's absence has cost: while the board would have worked faster
 * with it, the difference is its credit, which shortens its loading. So a change comes at once when the queued work is worth it, and
 * at the latest when not changing has cost as much as changing does.
 *
 * Nobody starves: a kernel that has waited for half the bound of age, with no loaded image that has it, is overdue; of those the one that waits
 * longest is decided for, as soon as what is loaded has had its part (half the bound by the number of kernels that wait, and no less than a
 * loading). So with n kernels waiting none waits for longer than the bound and n times two loadings and the longest task, whatever the
 * others do.
 *
 * Times are the caller's; the same calls give the same choices. Allocates nothing.
 * Threads: a gantry_plan belongs to one thread.
 */
#ifndef GANTRY_DEVICES_BOARD_PLAN_H
#define GANTRY_DEVICES_BOARD_PLAN_H

#include "devices/board/bitstream.h"

#define GANTRY_BOARD_MAX_IMAGES	 64u
#define GANTRY_BOARD_MAX_KERNELS 128u

/* Which images are thought of, as long as one of them has a kernel. Where none has, all are. */
enum gantry_plan_mode {
	GANTRY_PLAN_AUTO = 0, /* all */
	GANTRY_PLAN_SINGLE,   /* those of one unit: time is shared */
	GANTRY_PLAN_SPATIAL,  /* those of several units: space is shared */
};

/* "auto", "single", "spatial"; -EINVAL for other words. */
int gantry_plan_mode_of_name(const char *name);

/* What an image does for a kernel; no units: nothing. */
struct gantry_plan_offer {
	uint16_t units;
	uint16_t slower; /* per cent */
};

struct gantry_plan_image {
	uint32_t places; /* bit i: it may be loaded at place i just now */
	uint32_t nunits;
	bool stops_all;	  /* nothing works while it is loaded, in no region */
	uint64_t cost_ns; /* of loading it, saving and restoring memory included */
	struct gantry_plan_offer offers[GANTRY_BOARD_MAX_KERNELS];
};

/* What is asked of a kernel. */
struct gantry_plan_demand {
	uint32_t ntasks;   /* that wait or run */
	uint32_t nstreams; /* so many of them could run at once, had it enough units */
	uint64_t run_ns;   /* of one, in an image of its own; not 0 */
	uint64_t wait_ns;  /* none has begun for so long though some waited; 0: none waits */
};

struct gantry_plan_view {
	enum gantry_plan_mode mode;
	uint32_t nregions;
	uint32_t nimages;
	uint32_t nkernels;
	uint64_t now_ns;
	uint64_t age_ns; /* the bound of age */
	const struct gantry_plan_image *images;
	const struct gantry_plan_demand *demand; /* of each kernel */
	/* What is loaded; -1: nothing. With an image at GANTRY_BOARD_WHOLE there is none in regions, and the reverse. */
	int resident[GANTRY_BOARD_NPLACES];
};

struct gantry_plan {
	uint64_t last_ns;
	uint64_t loaded_ns; /* when the last change ended */
	bool seen;	    /* last_ns is valid */
	/* Nanoseconds of the board's time that the image's absence from the place has cost since then. */
	double credit[GANTRY_BOARD_MAX_IMAGES][GANTRY_BOARD_NPLACES];
};

struct gantry_plan_choice {
	uint32_t image;
	uint32_t place;
	bool overdue;	 /* chosen for a kernel's age */
	uint32_t kernel; /* which, if so */
};

/* True with *@ret_choice: load that. False: stay. Never called while a change is under way. */
bool gantry_plan_choose(struct gantry_plan *plan, const struct gantry_plan_view *view,
			struct gantry_plan_choice *ret_choice);
/* A change has ended, well or not: credits begin again. */
void gantry_plan_changed(struct gantry_plan *plan, uint64_t now_ns);

#endif
