/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a door's device goes among a domain's PCI devices.
 *
 * pc: any free slot of bus 0. q35: an empty root port, for libvirt puts no ivshmem device on one by itself; and one
 * whose window takes the door memory, for a guest gives a port no more than its firmware reserved, and QEMU tells
 * firmware to reserve 2 MiB.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_VM_PLACE_H
#define GANTRY_HOST_AGENT_VM_PLACE_H

#include "host-agent/vm/guest_pci.h"

/*
 * @pci: the running machine's buses; NULL: it does not run, and its firmware will find room for any size.
 * Where it fails, a sentence says what to change:
 *   -ENOSPC: no slot or port is free; -E2BIG: none that is takes @bytes; -EOPNOTSUPP: nothing can be plugged in.
 */
int gantry_vm_place(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
		    uint64_t bytes, struct gantry_vm_address *ret_address, struct gantry_err *err);

/* The largest power of two that gantry_vm_place() would take; 0: none. UINT64_MAX: any. */
uint64_t gantry_vm_largest(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci);

#endif
