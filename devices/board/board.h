/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager of a board's bitstreams: which image is loaded where, who may use its units, and how a change goes.
 *
 *	idle ──chosen──► drain ──► save ──► load ──► restore ──► idle
 *	                   │        │        │ fails: again, retries times
 *	                   │        │        └──► report, the image rests; restore follows the next image that loads
 *	                   └────────┴── nothing was lost: report, and on with what is loaded
 *
 * Its owner asks for a unit before each launch (begin), tells when the launch has ended (end) and how much waits (demand), and
 * does what step() says: save and restore the board's memory, load an image, tell people. While one region is loaded the
 * others work; an image of the whole board, or one that loses the memory, has all of them stand still. Which image is plan.h's affair.
 *
 * Nothing is done here: no clock is read, no file opened, no board touched. Times are the caller's and never go back.
 * Threads: a gantry_board belongs to one thread. Blocking: never.
 * Order of calls: new, kernel; then the others as they come; free.
 */
#ifndef GANTRY_DEVICES_BOARD_BOARD_H
#define GANTRY_DEVICES_BOARD_BOARD_H

#include "devices/board/plan.h"

struct gantry_board;

struct gantry_board_conf {
	const char *model; /* as manifests name it */
	uint32_t nregions; /* 1 to GANTRY_BOARD_MAX_REGIONS */
	enum gantry_plan_mode mode;
	uint64_t
		age_ns; /* a kernel waits for at most that long, about; 0: 40 times the longest loading */
	uint64_t
		save_ns; /* saving the board's memory takes about that, and restoring it as much again */
	uint64_t rest_ns;  /* an image that does not load is left alone for so long; 0: a minute */
	uint32_t nretries; /* of a loading that failed */
};

/* A unit that was given for a launch. */
struct gantry_board_unit {
	uint32_t place; /* where its image is */
	uint32_t image;
	uint32_t kernel; /* number in the image */
	uint32_t
		unit; /* of the kernel; its control window is the kernel's first and so many further */
};

enum gantry_board_do {
	GANTRY_BOARD_NOTHING = 0,
	GANTRY_BOARD_SAVE,    /* copy the board's memory to the host's */
	GANTRY_BOARD_LOAD,    /* @image at @place */
	GANTRY_BOARD_RESTORE, /* what was saved */
	GANTRY_BOARD_REPORT, /* tell people that @image does not load at @place, or that saving failed (@saving); no answer */
};

struct gantry_board_action {
	enum gantry_board_do what;
	uint32_t image;
	uint32_t place;
	uint32_t ntries; /* LOAD: which try, from 1. REPORT: how many there were */
	int error;	 /* REPORT: what the last try ended with */
	bool saving;
};

struct gantry_board_counts {
	uint64_t nloads;    /* that succeeded */
	uint64_t nfailures; /* tries that failed */
	uint64_t ngiven_up;
	uint64_t noverdue; /* changes for a kernel's age */
	uint64_t nlaunches;
};

/*
 * @images stay the caller's and valid. -EINVAL: an image for another model of board or for a region that this one has not, one name twice, or
 * one kernel with two signatures; -E2BIG: more images or kernels than there may be; -ENOMEM.
 */
int gantry_board_new(const struct gantry_board_conf *conf,
		     const struct gantry_bitstream *const *images, uint32_t nimages,
		     struct gantry_board **ret_board, struct gantry_err *err);
void gantry_board_free(struct gantry_board *board);

/*
 * One more image while it runs, which stays the caller's and valid. Its number, in the order of adding; errors as of
 * new(), with nothing changed.
 */
int gantry_board_add(struct gantry_board *board, const struct gantry_bitstream *image,
		     struct gantry_err *err);
/*
 * The image is loaded no more. Where it is on the board it serves on until another takes its place; a loading that was
 * asked for goes on. Its name is free.
 */
void gantry_board_retire(struct gantry_board *board, uint32_t image);

/* The number of the kernel over all images, or -ENOENT. */
int gantry_board_kernel(const struct gantry_board *board, const char *name);
/* Its description in the first image that has it. */
const struct gantry_bitstream_kernel *gantry_board_kernel_at(const struct gantry_board *board,
							     uint32_t kernel);

/*
 * @ntasks of @kernel wait, of which @nstreams could begin if there were units. Zeroes when nothing waits. Tasks that have begun do not count.
 */
void gantry_board_demand(struct gantry_board *board, uint32_t kernel, uint32_t ntasks,
			 uint32_t nstreams, uint64_t now_ns);

/* A unit for a launch of @kernel. -EAGAIN: not now. -ENXIO: no image that has it can be loaded, for a while at least. */
int gantry_board_begin(struct gantry_board *board, uint32_t kernel, uint64_t now_ns,
		       struct gantry_board_unit *ret_unit);
/* The launch on @unit has ended after @run_ns; 0: that says nothing of what launches take. */
void gantry_board_end(struct gantry_board *board, const struct gantry_board_unit *unit,
		      uint64_t run_ns, uint64_t now_ns);

/*
 * Whether a launch of @kernel may be put behind one at work on its unit, for the same owner: nobody else waits for such a unit, no change is
 * under way, and no kernel waits that would need one.
 */
bool gantry_board_may_follow(const struct gantry_board *board, uint32_t kernel);
/* As end(), but the one behind it has the unit now, also when a change waits for that: it has begun. */
void gantry_board_pass_on(struct gantry_board *board, const struct gantry_board_unit *unit,
			  uint64_t run_ns, uint64_t now_ns);

/* What to do next; each but REPORT is answered by did(), and until then NOTHING comes. */
struct gantry_board_action gantry_board_step(struct gantry_board *board, uint64_t now_ns);
/*
 * What step() said has been done; @r: 0 or -errno. After a RESTORE that failed the memory is lost, which is the caller's to tell.
 */
void gantry_board_did(struct gantry_board *board, int r, uint64_t now_ns);
/* When step() is to be asked again even if nothing happens; UINT64_MAX: there is no need to. */
uint64_t gantry_board_due_ns(const struct gantry_board *board);

/* The image at @place, or -1. */
int gantry_board_resident(const struct gantry_board *board, uint32_t place);
/* Is a change under way, or about to begin? Then units end and none begins, in the regions that it concerns. */
bool gantry_board_is_changing(const struct gantry_board *board);
const struct gantry_board_counts *gantry_board_counts(const struct gantry_board *board);

#endif
