/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modules that a host has installed: the *.manifest files of one directory and the images
 * beside them, found again after every change without a restart. A *.bitstream file (devices/board/bitstream.h) is a
 * module with the kernels of that image of a board.
 *
 * Trust: the administrator writes the directory: its contents are bounded and checked, but
 *   believed. Manifests and images must be regular files inside it, no links, not writable by
 *   everybody. No code is loaded here.
 * Threads: a gantry_modules belongs to one thread.
 * Blocking: file system calls.
 * Order of calls: open (which scans), rescan whenever the directory may have changed (inotify),
 * close.
 */
#ifndef GANTRY_DEVICES_MODULES_H
#define GANTRY_DEVICES_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "devices/manifest.h"

#define GANTRY_MODULES_MAX 256u

struct gantry_modules;

struct gantry_module {
	struct gantry_manifest *manifest;
	char *images[GANTRY_NKINDS]; /* full paths; NULL: none for this kind */
	char *board; /* the model that its image for boards is for; NULL: it has none, or does not say */
	bool leaving; /* a board's image that is about to go: what was queued runs, nobody finds its kernels any more */
};

enum gantry_module_change_kind {
	GANTRY_MODULE_ADDED = 1,
	GANTRY_MODULE_CHANGED, /* manifest or an image; sessions that start now get the new one */
	GANTRY_MODULE_REMOVED,
	GANTRY_MODULE_REFUSED, /* err says why; what was installed under the file's name stays */
};

struct gantry_module_change {
	enum gantry_module_change_kind kind;
	char file[GANTRY_NAME_LEN_MAX + 1]; /* of the manifest, cut short if longer */
	struct gantry_err err;		    /* of REFUSED: names file and line */
};

/* Gets each change of a scan; must not call into the gantry_modules. */
typedef void gantry_module_changed(void *arg, const struct gantry_module_change *change);

/*
 * Scans @directory and tells @changed (may be NULL) about every module. A manifest that is refused
 * does not fail the scan. -ENOENT, -ENOTDIR, -EACCES: no such directory; -EPERM: others may write
 * to it; -E2BIG: more than GANTRY_MODULES_MAX manifests.
 */
int gantry_modules_open(const char *directory, gantry_module_changed *changed, void *arg,
			struct gantry_modules **ret_modules, struct gantry_err *err);
void gantry_modules_close(struct gantry_modules *modules);

/*
 * Looks for changes by the times and sizes of files, and tells @changed about them, in the order of
 * file names. Returns how many there were; errors as above, with everything left as it was. Modules
 * and what they own may move or go at a rescan: keep names, not pointers.
 */
int gantry_modules_rescan(struct gantry_modules *modules, gantry_module_changed *changed, void *arg,
			  struct gantry_err *err);

/* Modules in the order of their file names, from 0; NULL past the last. */
const struct gantry_module *gantry_modules_at(const struct gantry_modules *modules,
					      unsigned int idx);

/*
 * The first module with kernel @name and an image for @kind (GANTRY_KIND_ANY: whatever it has), or
 * NULL. *@ret_def (may be NULL) is written only when found. Modules may declare a kernel of one
 * name several times, each for other kinds of device; a different signature is refused at the scan.
 */
const struct gantry_module *gantry_modules_find(const struct gantry_modules *modules,
						const char *name, int kind,
						const struct gantry_kernel_def **ret_def);

#endif
