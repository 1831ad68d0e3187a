/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failpoints: named places where a test makes a process die, stand still, or an operation fail. docs/failpoints.md says
 * how to use them; failpoints.def lists them.
 *
 * They are in a build where Kconfig has FAILPOINTS, which depends on the tests: failpoint.c is built then, and failpoint_none.c
 * otherwise, whose functions do nothing and look at nothing. In a build that has them they do nothing until a program
 * is started with GANTRY_FAILPOINTS naming a file of GANTRY_FAILPOINT_PAGE_BYTES: it is mapped, shared by all processes
 * that a test starts, and written by the test as they run. A confined process needs no right to look at it.
 *
 * Threads: any. Blocking: where a test says "stand still", until it says otherwise.
 */
#ifndef GANTRY_BASE_FAILPOINT_H
#define GANTRY_BASE_FAILPOINT_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gantry_failpoint {
#define GANTRY_FAILPOINT(id, name, kind, program, what) GANTRY_FAILPOINT_##id,
#include "base/failpoints.def"
#undef GANTRY_FAILPOINT
	GANTRY_NFAILPOINTS
};

enum gantry_failpoint_kind {
	GANTRY_FAILPOINT_STEP,
	GANTRY_FAILPOINT_IO
};

/* What a test writes into a point's slot. */
enum gantry_failpoint_action {
	GANTRY_FAILPOINT_NOTHING = 0,
	GANTRY_FAILPOINT_DIE = 1,     /* as by SIGKILL, but with GANTRY_FAILPOINT_STATUS */
	GANTRY_FAILPOINT_STALL = 2,   /* until the slot says nothing any more */
	GANTRY_FAILPOINT_FAIL = 3,    /* points of kind IO only */
	GANTRY_FAILPOINT_STALLED = 4, /* written by who stands still */
};

#define GANTRY_FAILPOINT_STATUS	    99
#define GANTRY_FAILPOINT_ALWAYS	    UINT32_MAX
#define GANTRY_FAILPOINT_PAGE_BYTES 4096u

/* One for each point, in their order. All zero: nothing happens. */
struct gantry_failpoint_slot {
	uint32_t action;
	uint32_t skip;	/* so many pass first */
	uint32_t times; /* then so many are hit; ALWAYS. counted down */
	uint32_t hits;	/* passed so far, hit or not */
	uint32_t fired;
	int32_t pid; /* who was hit last */
};

static_assert(GANTRY_NFAILPOINTS * sizeof(struct gantry_failpoint_slot) <=
		      GANTRY_FAILPOINT_PAGE_BYTES,
	      "the page has a slot for each point");

/* At the start of a program's main(), before it is confined. What cannot be mapped is passed over. */
void gantry_failpoints_open(void);

/* A step is passed. */
void gantry_failpoint(enum gantry_failpoint point);
/* An operation is about to be tried. 0: go on; -EIO: it has failed. */
int gantry_failpoint_io(enum gantry_failpoint point);

struct gantry_failpoint_info {
	const char *name;
	enum gantry_failpoint_kind kind;
	const char *program;
	const char *what;
};

/* NULL: this build has none, or not so many. */
const struct gantry_failpoint_info *gantry_failpoint_at(uint32_t point);

#ifdef __cplusplus
}
#endif

#endif
