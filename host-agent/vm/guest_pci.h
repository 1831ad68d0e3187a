/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PCI buses as the guest has set them up, from QEMU's answer to query-pci: which slots are taken, how large the
 * windows of its root ports are, and whether our device got its addresses.
 *
 * An address is there only once the guest's system has assigned it: what libvirt calls attached may be a device
 * that the guest cannot use.
 * Trust: QEMU's answer; the numbers in it are the guest's.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_VM_GUEST_PCI_H
#define GANTRY_HOST_AGENT_VM_GUEST_PCI_H

#include "host-agent/vm/domain.h"

#define GANTRY_VM_FUNCTIONS 8u
#define GANTRY_VM_BARS	    6u

struct gantry_vm_bar {
	bool assigned;
	uint64_t address;
	uint64_t bytes;
};

/* What is at a place of the root bus. */
struct gantry_vm_root_slot {
	bool bridge;
	bool occupied; /* a device is behind the bridge */
	uint64_t window_base;
	uint64_t
		window_end; /* of prefetchable memory; nothing fits when it is not above the base */
};

struct gantry_vm_pci {
	uint32_t used; /* slots of the root bus */
	struct gantry_vm_root_slot root[GANTRY_VM_SLOTS][GANTRY_VM_FUNCTIONS];
	bool found;			  /* the device that was asked for */
	struct gantry_vm_address address; /* its; buses as the guest numbers them */
	struct gantry_vm_bar bar[GANTRY_VM_BARS];
};

/* Reads the JSON @text, and describes the device whose QEMU id is @id (NULL: none). -EINVAL with a sentence. */
int gantry_vm_pci_parse(const char *text, const char *id, struct gantry_vm_pci *ret_pci,
			struct gantry_err *err);

/* Can a memory of @bytes, a power of two, lie in that window, at a multiple of its size? */
bool gantry_vm_window_fits(const struct gantry_vm_root_slot *slot, uint64_t bytes);

#endif
