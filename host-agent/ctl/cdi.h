/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container needs of Gantry, as a CDI file (Container Device Interface) or as an engine's flags: the folder of
 * one tenant's door, libgantry, and GANTRY_DOOR. No device node: the guest's only way is its door.
 *
 * The folder is mounted, not the socket in it: an agent that restarts makes a new socket, and containers see it.
 */
#ifndef GANTRY_HOST_AGENT_CTL_CDI_H
#define GANTRY_HOST_AGENT_CTL_CDI_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/err.h"

/* podman 4.3 takes 0.3 to 0.5 and silently ignores files of later versions. */
#define GANTRY_CDI_VERSION    "0.5.0"
#define GANTRY_CDI_KIND	      "gantry.internal/tenant"
#define GANTRY_CDI_DIR	      "/var/run/cdi"
#define GANTRY_CDI_DOOR_DIR   "/run/gantry"
#define GANTRY_CDI_LIBRARY_AT "/usr/lib/libgantry.so.0"
#define GANTRY_CDI_CUDA_AT    "/usr/lib/gantry/cuda"
#define GANTRY_CDI_OPENCL     "libgantry-opencl.so.1"
#define GANTRY_CDI_ICD_AT     "/etc/OpenCL/vendors/gantry.icd"

struct gantry_cdi {
	const char *tenant;
	const char *door;	/* the socket's path on the host */
	const char *library;	/* on the host; NULL: none is mounted */
	const char *library_at; /* in containers */
	const char *
		opencl; /* the driver for OpenCL programs, beside it in containers; NULL: none is mounted */
	const char *opencl_icd; /* what tells loaders of it */
	/* The folder of libraries for programs of CUDA, first in LD_LIBRARY_PATH in containers; NULL: none is mounted. */
	const char *cuda;
	/*
	 * With it: the folder in containers that NVIDIA's wheels were unpacked in (site-packages). Programs that name the
	 * folders of these wheels themselves get ours there, in the place of each of NVIDIA's that we have. NULL: none.
	 */
	const char *wheels;
};

/* The CDI file's contents. The caller puts it. */
json_object *gantry_cdi_json(const struct gantry_cdi *cdi);

/*
 * The flags of @engine (podman, docker) on one line, or, for runc, what goes into config.json.
 * -ENOTSUP: no such engine; -EINVAL: a path that flags cannot express. With a sentence.
 */
int gantry_cdi_flags(const struct gantry_cdi *cdi, const char *engine, FILE *out,
		     struct gantry_err *err);

/* The file of @tenant in @dir. -ENAMETOOLONG. */
int gantry_cdi_path(const char *dir, const char *tenant, char *buf, size_t cap);

/* The file's text, as written: malloc'd, the caller's. NULL: no memory. */
char *gantry_cdi_text(const struct gantry_cdi *cdi);

#endif
