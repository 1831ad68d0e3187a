/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door for a virtual machine, written as its hypervisor's tools want it: QEMU's options, an element of libvirt's
 * domain XML, a command of Proxmox VE.
 *
 * Paths come from the agent's configuration; each writer quotes them for where they go.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_CTL_VM_TEXT_H
#define GANTRY_HOST_AGENT_CTL_VM_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* Where on the PCI buses, as libvirt counts them. */
struct gantry_vm_where {
	unsigned int bus;
	unsigned int slot;
};

#define GANTRY_VM_CHANNEL_ALIAS "ua-gantrywake-"

/* Exactly one of ivshmem (a socket and vectors) and vsock (a cid). */
struct gantry_vm_device_text {
	const char *tenant;
	const char
		*socket;  /* of the ivshmem server, or of a vhost-user vsock back end; NULL: none */
	uint32_t vectors; /* ivshmem */
	const char
		*wake; /* ivshmem: what a port leads to by which programs are woken; NULL: none */
	uint32_t cid;  /* vsock; 0: this is ivshmem */
};

/* <shmem> or <vsock>, for virsh attach-device; @where NULL: libvirt chooses. */
void gantry_vm_libvirt_xml(const struct gantry_vm_device_text *device,
			   const struct gantry_vm_where *where, FILE *out);

/* The <channel> that leads to @device's wake. */
void gantry_vm_channel_xml(const struct gantry_vm_device_text *device, FILE *out);

/* Options of qemu-system-x86_64 on one line, as a shell reads them. */
void gantry_vm_qemu_options(const struct gantry_vm_device_text *device, FILE *out);

/* "qm set VMID --args ...". */
void gantry_vm_proxmox_command(const struct gantry_vm_device_text *device, FILE *out);

#endif
