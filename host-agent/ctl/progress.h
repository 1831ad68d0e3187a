/* SPDX-License-Identifier: Apache-2.0 */
/* How far something has come that takes a while: one line of a terminal, which is written over. */
#ifndef GANTRY_HOST_AGENT_CTL_PROGRESS_H
#define GANTRY_HOST_AGENT_CTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define GANTRY_PROGRESS_TEXT 128

struct gantry_progress {
	const char *state;
	uint64_t done_bytes;
	uint64_t all_bytes; /* 0: not known */
	uint32_t round;	    /* 0: there are none */
	bool is_over;
};

/*
 * "copying    [#######.......................] 16M of 64M, round 2". The bar is full when it is over, and not before: rounds copy
 * again, and more may go than was counted.
 */
void gantry_progress_text(const struct gantry_progress *p, char ret_text[GANTRY_PROGRESS_TEXT]);

/* Draws over what was drawn before, and clears it; to terminals alone. */
void gantry_progress_draw(FILE *to, const struct gantry_progress *p);
void gantry_progress_clear(FILE *to);

#endif
