/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-vm: the verbs of gantryctl that need libvirt, in a program of its own, so that neither gantryctl nor the
 * agent depends on libvirt or waits for it. It reads the same command line by the same table of verbs.
 *
 * A function returns 0 or an exit code, and has then written the one line about it (context.h), unless it takes a
 * gantry_err.
 * Threads: one. Blocking: libvirt's calls have no time limit of their own: a watchdog ends the program long after
 *   --timeout. Waits of ours end at their deadline, or when somebody presses ^C, and are undone then.
 */
#ifndef GANTRY_HOST_AGENT_VM_VM_H
#define GANTRY_HOST_AGENT_VM_VM_H

#include "base/cleanup.h"
#include "host-agent/ctl/context.h"
#include "host-agent/vm/guest_pci.h"

struct gantry_vm {
	struct gantry_ctl *ctl;
	struct gantry_libraries lib;
	virConnectPtr connection;
	uint64_t started_ns;
};

/* main.c: loads the libraries and connects. @vm is to be ended with gantry_vm_fini(), also after a failure. */
int gantry_vm_init(struct gantry_vm *vm, struct gantry_ctl *ctl);
/* The same with another libvirt, once @like has been made. */
int gantry_vm_connect(struct gantry_vm *vm, struct gantry_ctl *ctl, const struct gantry_vm *like,
		      const char *uri);
void gantry_vm_fini(struct gantry_vm *vm);
/* ^C, or SIGTERM: what has been begun is to be undone. */
bool gantry_vm_interrupted(void);
/* It is being undone: only another ^C ends the waits of that. */
void gantry_vm_interrupt_heard(void);
/* The program is ended by force when it has not ended by itself after @ns. */
void gantry_vm_watchdog(uint64_t ns);
/* Waits @ms, and serves libvirt's connections, which else are dropped after half a minute. Any thread, one at a time. */
void gantry_vm_turn(struct gantry_vm *vm, int ms);

/* libvirt.c: a machine of libvirt's, found by name or UUID. */
struct gantry_vm_machine {
	struct gantry_vm *vm;
	virDomainPtr domain;
	char name[GANTRY_VM_TEXT];
	char uuid[VIR_UUID_STRING_BUFLEN];
	int state;    /* virDomainState */
	bool running; /* or paused: there is a QEMU */
	bool persistent;
	struct gantry_vm_domain live; /* where it runs; else of zeroes */
	struct gantry_vm_domain kept; /* the persistent definition, where there is one */
};

int gantry_vm_find(struct gantry_vm *vm, const char *name, struct gantry_vm_machine *ret_machine);
/* Takes over @domain. */
int gantry_vm_read(struct gantry_vm *vm, virDomainPtr domain,
		   struct gantry_vm_machine *ret_machine);
void gantry_vm_machine_fini(struct gantry_vm_machine *machine);
/* Its QEMU's answer to @command of QMP, a JSON text; the caller frees it. NULL: none, and libvirt has said why. */
char *gantry_vm_ask_qemu(const struct gantry_vm_machine *machine, const char *command);
/* What the guest has made of its PCI buses, and of the device @id (may be NULL). -errno with a sentence. */
int gantry_vm_read_pci(const struct gantry_vm_machine *machine, const char *id,
		       struct gantry_vm_pci *ret_pci, struct gantry_err *err);
/* Who its QEMU is to the kernel. -ENOENT: that is not known. */
int gantry_vm_user(const struct gantry_vm_machine *machine, uid_t *ret_uid, gid_t *ret_gid);
/* Writes what libvirt said about its last failure after "@fmt: ". Returns the exit code for it. */
int gantry_vm_fail(struct gantry_vm *vm, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The exit code for libvirt's last failure in this thread. */
int gantry_vm_error_code(struct gantry_vm *vm);
/* libvirt's last sentence; never NULL. */
const char *gantry_vm_error(struct gantry_vm *vm);

/* unplug.c: takes a device out of the running machine and waits until it has gone. -ETIMEDOUT: the guest has not let
 * it go; -ECANCELED: the guest, or ^C, said no; -EIO. With a sentence. */
int gantry_vm_unplug(const struct gantry_vm_machine *machine, const char *alias,
		     uint64_t deadline_ns, struct gantry_err *err);

/*
 * attach.c: the shared-memory door of @tenant into the running @machine, undone where it fails. @bytes 0: the tenant's size.
 * @machine NULL: only asks the agent whether the door can be had. @is_elsewhere: both are of another host. An exit code.
 */
int gantry_vm_attach_door(struct gantry_vm *vm, struct gantry_vm_machine *machine,
			  const char *tenant, uint64_t bytes, bool is_elsewhere);
/* detach.c: @door out of the running @machine, with what belongs to it, and seen to be gone by the agent. As unplug. */
int gantry_vm_take_out(const struct gantry_vm_machine *machine, const struct gantry_vm_door *door,
		       struct gantry_err *err);

/* The verbs: list.c, attach.c, detach.c, migrate.c. */
int gantry_vm_list(struct gantry_vm *vm);
int gantry_vm_show(struct gantry_vm *vm);
int gantry_vm_attach(struct gantry_vm *vm);
int gantry_vm_detach(struct gantry_vm *vm);
int gantry_vm_migrate(struct gantry_vm *vm);
/* Whether the command line of that one makes sense, before a libvirt is asked for anything. An exit code. */
int gantry_vm_migrate_words(struct gantry_ctl *ctl);

#endif
