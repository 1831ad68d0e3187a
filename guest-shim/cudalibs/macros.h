/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names that macros make may become: of the macros that texts define, with parameters or without, whatever the conditions around them. A name
 * is made by one, in which there may be others. Which of a macro's definitions holds nobody knows here, so there may be several.
 *
 * Threads: one at a time. Zero: there are none.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_MACROS_H
#define GANTRY_GUEST_SHIM_CUDALIBS_MACROS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GANTRY_MACROS_MAX 65536u
/* What one text becomes at most. */
#define GANTRY_MACROS_MAX_TEXTS 64u

struct gantry_macro {
	char *name;
	char *params; /* names with commas between; NULL: it is written without parentheses */
	char *body;
	uint32_t next; /* in the bucket */
};

struct gantry_macros {
	struct gantry_macro *macros;
	uint32_t n, room;
	uint32_t *buckets;
	bool has_failed; /* there is no memory */
};

void gantry_macros_fini(struct gantry_macros *macros);
/* Behind the word define, up to the end of the line. What can be no part of a file's name is left out, and what comes after GANTRY_MACROS_MAX. */
void gantry_macros_define(struct gantry_macros *macros, const char *at);
/* NAME=BODY, or NAME, as an option has it: without parameters. */
void gantry_macros_define_option(struct gantry_macros *macros, const char *option);
/* Calls @fn with each that @text, a macro's name, with its arguments where it has parameters, may become; what is @fn's meanwhile is not to define anything. */
void gantry_macros_expand(struct gantry_macros *macros, const char *text,
			  void (*fn)(void *cookie, const char *text), void *cookie);

#endif
