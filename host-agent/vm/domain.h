/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a libvirt domain's XML says that matters to us: its PCI topology, and the devices that are doors.
 *
 * A device is ours by its alias, ua-gantry-TENANT, or, where somebody wrote it by hand, by the name
 * gantry-TENANT of a <shmem> that has a server.
 * Trust: the XML is libvirt's, which checked it; parts of it are users' texts, so it is bounded and nothing in it
 *   is opened here.
 * Threads: any, one object at a time. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_VM_DOMAIN_H
#define GANTRY_HOST_AGENT_VM_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "host-agent/vm/libraries.h"

#define GANTRY_VM_BUSES	    256u
#define GANTRY_VM_SLOTS	    32u
#define GANTRY_VM_DOORS_MAX 8u
#define GANTRY_VM_TEXT	    192u
#define GANTRY_VM_ALIAS	    "ua-gantry-"
#define GANTRY_VM_NAME	    "gantry-"

enum gantry_vm_transport {
	GANTRY_VM_IVSHMEM,
	GANTRY_VM_VSOCK,
};

struct gantry_vm_address {
	unsigned int bus;
	unsigned int slot;
	unsigned int function;
};

/* A device that is a tenant's door. */
struct gantry_vm_door {
	enum gantry_vm_transport transport;
	char tenant[GANTRY_NAME_LEN_MAX + 1];
	char alias
		[GANTRY_VM_TEXT]; /* "" in a persistent definition, where it has none of its own */
	char socket[GANTRY_VM_TEXT]; /* ivshmem */
	uint32_t cid;		     /* vsock */
	bool is_master; /* ivshmem: libvirt may migrate it. Whether QEMU may is QEMU's to say */
	bool has_address;
	struct gantry_vm_address address;
	char *xml; /* the element, as libvirt wrote it; owned */
};

/* A port by which programs of the machine are woken. */
struct gantry_vm_channel {
	char tenant[GANTRY_NAME_LEN_MAX + 1]; /* "": there is none */
	char *xml;			      /* as of a door; owned */
};

/* A PCI Express root port that takes devices while the machine runs. */
struct gantry_vm_port {
	bool there;
	bool has_address;
	struct gantry_vm_address address; /* its own */
};

struct gantry_vm_domain {
	char machine[GANTRY_VM_TEXT]; /* "pc-i440fx-7.2" */
	bool acpi;
	bool pci;	     /* it has a PCI bus */
	bool pcie;	     /* and its root is PCI Express: devices are plugged into root ports */
	bool native_hotplug; /* bridges are plugged by themselves and not by ACPI: their windows grow */
	bool has_ports;	     /* a virtio-serial controller, which channels are plugged into */
	struct gantry_vm_channel channel;
	bool has_vsock; /* ours or not */
	uint32_t vsock_cid;
	uint32_t used[GANTRY_VM_BUSES];		     /* per bus a bit a slot */
	struct gantry_vm_port port[GANTRY_VM_BUSES]; /* that makes a bus */
	size_t ndoors;
	struct gantry_vm_door doors[GANTRY_VM_DOORS_MAX];
};

/*
 * Reads @text. The caller ends *@ret_domain with gantry_vm_domain_fini(). -EINVAL with a sentence: that is no
 * domain; -ENOMEM.
 */
int gantry_vm_domain_parse(const struct gantry_libraries *lib, const char *text,
			   struct gantry_vm_domain *ret_domain, struct gantry_err *err);

/* An object of zeroes is allowed. */
void gantry_vm_domain_fini(struct gantry_vm_domain *domain);

/* The host in a libvirt URI, such as south in qemu+ssh://root@south:22/system; "" where there is none, or no room for it. */
void gantry_vm_uri_host(const char *uri, char *buf, size_t cap);

#endif
