/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process may see of its GPUs: the devices of the door, as a session of its own is told when it asks, and what
 * the process itself has of them, which libcuda's session knows while it has one.
 *
 * A session is opened to look and closed again: none is held, so a process that only counts devices takes nobody's
 * place, and may fork before it begins with CUDA.
 *
 * Threads: any; the caller holds the lock that gantry_nvml_lock() takes for whatever it reads of the one view, and does nothing else
 * meanwhile: a fork waits for that lock.
 */
#ifndef GANTRY_GUEST_SHIM_NVML_VIEW_H
#define GANTRY_GUEST_SHIM_NVML_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h"

#define GANTRY_NVML_DEVICES 16u

struct gantry_nvml_device {
	uint32_t ordinal; /* as libcuda counts */
	struct gantry_reply_device info;
	int32_t capability[2];
};

struct gantry_nvml_view {
	uint32_t nusers; /* inits without their shutdowns */
	uint32_t ndevices;
	struct gantry_nvml_device devices[GANTRY_NVML_DEVICES];
};

struct gantry_nvml_use {
	bool is_open;		 /* the process has a session of CUDA */
	uint64_t resident_bytes; /* of all its devices */
	uint64_t device_ns;	 /* that its work took */
};

struct gantry_nvml_view *gantry_nvml_lock(void);
void gantry_nvml_unlock(void);

/* Fills the devices of @view, which is the caller's own: it may take long. 0, or a status of vocab.h. */
int gantry_nvml_look(struct gantry_nvml_view *view);
struct gantry_nvml_use gantry_nvml_use(void);

#endif
