/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvirt's live migration of one machine, begun, watched and if need be aborted.
 *
 * Threads: begins one, which ends before the call returns: it keeps libvirt's connections alive, shows how far it is, and
 *   aborts at the deadline or on ^C.
 * Blocking: until the deadline and what libvirt takes to abort.
 */
#ifndef GANTRY_HOST_AGENT_VM_MOVE_H
#define GANTRY_HOST_AGENT_VM_MOVE_H

#include "host-agent/vm/vm.h"

struct gantry_vm_move {
	const char *uri; /* of the data, as virsh's --migrateuri; NULL: libvirt's choice */
	char *xml;	 /* the machine's definition there; NULL: as here */
	uint64_t bandwidth_mib_per_s; /* 0: all there is */
	bool persistent;	      /* defined there */
	bool undefine;		      /* and not here any more */
	bool show;		      /* how far it is, on a terminal */
	bool paused;		      /* it is not to run there until somebody says so */
	uint64_t limit_ns;
	/*
	 * At most once each, from the thread that watches, which waits meanwhile; NULL: nobody asks. It stands still here, for the
	 * last of it to be copied; and (@paused) it is there and stands still, which nothing turns back any more.
	 */
	void (*stopped)(void *arg);
	void (*arrived)(void *arg);
	void *arg;
};

struct gantry_vm_moved {
	uint64_t total_ns;    /* of libvirt's call */
	uint64_t downtime_ns; /* of the machine, as QEMU says; 0: it does not */
	uint64_t bytes;
	uint64_t stopped_ns; /* CLOCK_MONOTONIC: since when it has stood still; 0: not seen */
};

enum gantry_vm_where {
	GANTRY_VM_AT_SOURCE,
	GANTRY_VM_AT_DESTINATION,
	GANTRY_VM_NOWHERE, /* as far as can be seen */
};

/* 0: the machine is at @to. Else an exit code with libvirt's sentence; where it is then says gantry_vm_where(). */
int gantry_vm_move(const struct gantry_vm_machine *machine, struct gantry_vm *to,
		   const struct gantry_vm_move *how, struct gantry_vm_moved *ret_moved,
		   struct gantry_err *err);

/* Where the machine with @uuid runs now. */
enum gantry_vm_where gantry_vm_where(struct gantry_vm *from, struct gantry_vm *to,
				     const char *uuid);
/* The same of one that may stand still at the destination, once it is no more at the source. */
enum gantry_vm_where gantry_vm_where_stands(struct gantry_vm *from, struct gantry_vm *to,
					    const char *uuid);

#endif
