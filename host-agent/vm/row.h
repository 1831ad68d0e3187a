/* SPDX-License-Identifier: Apache-2.0 */
/* What vm list and vm show print: a door in a virtual machine, or one that has none. */
#ifndef GANTRY_HOST_AGENT_VM_ROW_H
#define GANTRY_HOST_AGENT_VM_ROW_H

#include "admin.pb-c.h"
#include "host-agent/ctl/fields.h"

/* Texts are never NULL; numbers are NULL where they are not known. The row owns nothing. */
struct gantry_vm_row {
	const char *domain;
	const char *uuid;
	const char *state;
	const char *machine;
	const char *tenant;
	const char *transport;
	const char *in; /* "live", "config", "live,config"; "" without a door */
	const char *alias;
	const char *socket;
	const char *pci;     /* as the guest numbers it; "" where it is not known */
	const char *address; /* of the shared memory in the guest, "0x..."; "" where it has none */
	const char *door;    /* the agent's word on it: open, drain, closed; "" unknown */
	Gantry__Admin__UInt *bytes;
	Gantry__Admin__UInt *cid;
	Gantry__Admin__UInt *guests;
	Gantry__Admin__UInt *claims;
	Gantry__Admin__UInt *desks;
	Gantry__Admin__UInt *epoch;
	Gantry__Admin__UInt *largest; /* that could be attached now */
};

extern const struct gantry_fields gantry_vm_fields;

#endif
