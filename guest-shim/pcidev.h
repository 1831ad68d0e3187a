/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ivshmem device of a virtual machine, through the files that Linux has for every PCI device: no driver of ours.
 *
 * A device is a folder: in /sys/bus/pci/devices, or one that looks like it (a sandbox, a test), where resource2 is a
 * sealed memory file and a datagram socket named doorbell may stand in for resource0: it gets what would be written
 * to the doorbell register.
 *
 * Returns: as guest-shim/error.h says; sentences name the cause and what to do. NO_AGENT: no device, or none of an
 * agent; DENIED: not permitted; ARG: more than one.
 * Trust: the device's contents are the host's. Threads: any. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_PCIDEV_H
#define GANTRY_GUEST_SHIM_PCIDEV_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/doormem.h"

#define GANTRY_PCI_DEVICES "/sys/bus/pci/devices"

struct gantry_pcidev {
	char folder[256];
	int memory; /* resource2, of which desks are locked; nothing of it is mapped from here */
	uint64_t address;	     /* of BAR 2, physical; 0: unknown */
	uint64_t space;		     /* st_dev: whose locks this process sees */
	uint64_t bytes;		     /* of BAR 2 */
	bool is_sysfs;		     /* the kernel's, not one that looks like it */
	volatile uint32_t *doorbell; /* the register; NULL: none */
	void *registers;	     /* BAR 0's page, where doorbell is */
	int doorbell_socket;
	struct gantry_doormem_header header; /* checked copy */
};

/*
 * The device @where: "" finds it among those of @root, else a PCI address there, or a folder's path. The caller ends
 * it with gantry_pcidev_close().
 */
int gantry_pcidev_open(const char *root, const char *where, struct gantry_pcidev *ret_dev);

/* In a forked child the mappings are the parent's: @is_child closes descriptors only. NULL-safe for a closed one. */
void gantry_pcidev_close(struct gantry_pcidev *dev, bool is_child);

/* Another descriptor of the device's file @name; -errno. The caller's. */
int gantry_pcidev_file(const struct gantry_pcidev *dev, const char *name);

/* Rings doorbell @vector of the host's peer. Never blocks. */
static inline void gantry_pcidev_ring(const struct gantry_pcidev *dev, uint32_t vector);
void gantry_pcidev_ring_socket(const struct gantry_pcidev *dev, uint32_t value);

static inline void gantry_pcidev_ring(const struct gantry_pcidev *dev, uint32_t vector)
{
	uint32_t value = dev->header.host_peer << 16 | vector;

	if (dev->doorbell)
		*dev->doorbell = value;
	else
		gantry_pcidev_ring_socket(dev, value);
}

#endif
