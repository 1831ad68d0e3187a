/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processors near a device: its thread, and threads that this one starts, run there.
 *
 * Threads: any; applies to the caller's. Blocking: reads what the kernel says of the machine, some milliseconds.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_AFFINITY_H
#define GANTRY_HOST_AGENT_WORKER_AFFINITY_H

#include <sched.h>

#include "base/err.h"
#include "devices/device.h"

/* "0-3,8" as a set. -EINVAL: it is no such list; -ERANGE: a processor past what a set holds. */
int gantry_cpulist_parse(const char *text, cpu_set_t *ret_set);

/*
 * Binds the calling thread as @setting says: "auto" (or "", or NULL) to the processors near the device, "off" not at all, a
 * list to these; never to processors that it may not use now. 1: bound; 0: not, for it is off, or nothing is known
 * of where the device is, or none of the processors is allowed; -errno with a sentence: it could not be.
 */
int gantry_affinity_apply(const char *setting, const struct gantry_device_info *info,
			  struct gantry_err *err);

/*
 * The processors near a PCI device ("0000:3b:00.0", domains and leading zeros as drivers write them), or near memory
 * node @node where @pci is NULL. -ENOENT: not known; -EINVAL: no such address. One of two files: with the library
 * hwloc, loaded if it is there, or with what the kernel says.
 */
int gantry_topology_near(const char *pci, int node, cpu_set_t *ret_set);

#endif
