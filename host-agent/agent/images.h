/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of boards that the administrator registers: gantryctl image.
 *
 * A device's option "images" names its store, a folder with one manifest for each image (devices/board/bitstream.h) and the files
 * that these name. It is all that is kept: what lies there is registered, through restarts and upgrades. An image comes in parts,
 * into files with names that nobody looks at, and gets its names once all of it is what its manifest was written for.
 *
 * Trust: who asks may change things (admin.c); manifests and files are bounded and checked here, and again by workers.
 * Threads: the agent's one. Blocking: file system calls; a part is 60 KiB at most.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_IMAGES_H
#define GANTRY_HOST_AGENT_AGENT_IMAGES_H

#include "host-agent/agent/admin.h"
#include "host-agent/agent/config.h"

struct gantry_agent;
struct gantry_upload;

/* The store of a device; NULL: it is of no kind that has images. */
const char *gantry_images_dir(const struct gantry_device_section *conf);

gantry_verb_fn gantry_verb_image_add, gantry_verb_image_data, gantry_verb_image_end,
	gantry_verb_image_list, gantry_verb_image_remove;

/* Goes on with images that were leaving under an earlier agent; and lets go of the timer. After the workers are known. */
void gantry_images_start(struct gantry_agent *a);
void gantry_images_stop(struct gantry_agent *a);

/* Forgets what had only begun to come. NULL is allowed. */
void gantry_upload_free(struct gantry_upload *upload);

#endif
