/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's door as the agent has it: which of the machines at it is ours, draining it, opening it again.
 *
 * Functions return 0 or an exit code whose line has been written (context.h), unless they take a gantry_err.
 * Blocking: until --timeout, or the deadline given.
 */
#ifndef GANTRY_HOST_AGENT_VM_DOOR_H
#define GANTRY_HOST_AGENT_VM_DOOR_H

#include "host-agent/vm/vm.h"

/* Of the machines at @door, the one whose QEMU was started for @uuid. NULL: none, as far as one can see. */
const Gantry__Admin__DoorPeer *gantry_vm_peer(const Gantry__Admin__IvshmemDoor *door,
					      const char *uuid);

/* The door's state becomes OPEN, and the next machine gets @bytes (0: what the tenant's configuration says). */
int gantry_vm_door_open(struct gantry_ctl *ctl, const char *tenant, uint64_t bytes);
/* The machine @peer, which was drained, is let in again. */
int gantry_vm_door_open_to(struct gantry_ctl *ctl, const char *tenant, uint32_t peer);
/*
 * The same on the way back from a failure: what cannot be undone is not worth a second line. For the machine @peer, which
 * was to leave, alone; 0: for the next machine.
 */
void gantry_vm_door_reopen(struct gantry_ctl *ctl, const char *tenant, uint32_t peer);

/* DRAIN for the machine @peer (NULL: all). Sessions that are left after @ns are ended by the agent. */
int gantry_vm_door_drain(struct gantry_ctl *ctl, const char *tenant,
			 const Gantry__Admin__DoorPeer *peer, uint64_t ns);
/* Until the machine @uuid has no program at the door, or is gone. *@ret_left: how many there are at the deadline. */
int gantry_vm_door_wait_empty(struct gantry_ctl *ctl, const char *tenant, const char *uuid,
			      uint64_t deadline_ns, uint32_t *ret_left);
/* Until the agent has seen that the machine @uuid is gone; or the deadline. */
void gantry_vm_door_wait_gone(struct gantry_ctl *ctl, const char *tenant, const char *uuid,
			      uint64_t deadline_ns);

#endif
