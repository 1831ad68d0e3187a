/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vendor's library, loaded at run time: one for the process, with a table of its functions.
 *
 * Nothing of a vendor is linked, so that one binary serves machines with and without it. A backend lists the functions
 * it calls, F(member, symbol), and makes of the list the members of a struct and an array of struct
 * gantry_library_symbol.
 *
 * Trust: the library is the administrator's choice. Threads: the caller's lock is held by whoever calls.
 * Blocking: a library's constructors run inside gantry_library_open(). It is never unloaded once it was used: it has
 * threads of its own.
 */
#ifndef GANTRY_DEVICES_LIBRARY_H
#define GANTRY_DEVICES_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct gantry_library_symbol {
	const char *name;
	size_t off;    /* of the member in the table */
	bool optional; /* NULL where the library has none */
};

struct gantry_library {
	/* Constant: what sentences call it. */
	const char *what;   /* "OpenCL loader" */
	const char *needed; /* "1.2 is needed": what a library without a symbol is too old for */
	const char *option; /* the device option that names a path */

	void *handle; /* NULL: not loaded yet */
	char path[256];
};

/*
 * Loads @path and writes @n addresses into @table, which is written on success only. Loading the same path again is
 * nothing. -ENODEV: no such library, or one without a symbol that is needed; -EBUSY: the process has loaded another one.
 */
int gantry_library_open(struct gantry_library *library, const char *path,
			const struct gantry_library_symbol *symbols, size_t n, void *table,
			struct gantry_err *err);

#endif
