/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm attach: everything that can be known to fail is refused before anything is changed; what fails later is undone.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/vm_text.h"
#include "host-agent/vm/door.h"
#include "host-agent/vm/place.h"
#include "host-agent/vm/socket.h"

#define MIN_BYTES     (8ull << 20) /* what the agent takes: a header, and a segment worth having */
#define SHARED_BAR    2
#define UNDO_NS	      (5 * (int64_t)GANTRY_NS_PER_S)
#define LOOK_AGAIN_MS 10
#define VHOST_VSOCK   "/dev/vhost-vsock"

struct attachment {
	struct gantry_vm *vm;
	struct gantry_ctl *ctl;
	const char *tenant;
	enum gantry_vm_transport transport;
	uint64_t asked_bytes; /* 0: the tenant's */
	bool config;
	bool is_elsewhere;		   /* agent and machine are not of this host */
	struct gantry_vm_machine *machine; /* NULL: it is only asked whether a door could be had */
	struct gantry_vm_device_text text;
	uint64_t bytes;	  /* ivshmem: that the machine will get */
	uint64_t address; /* of that memory in the guest */
	char alias[GANTRY_VM_TEXT];
	bool reopen;	  /* the door's state was changed for this */
	bool has_channel; /* by which its programs are woken */
};

/* --- what was asked for --- */

static void set_tenant(struct attachment *a, const char *tenant)
{
	a->tenant = tenant;
	(void)gantry_str_format(a->alias, sizeof(a->alias), GANTRY_VM_ALIAS "%s", tenant);
}

static int read_size(struct attachment *a)
{
	const char *size = gantry_ctl_option(a->ctl, "size");
	struct gantry_err err = GANTRY_ERR_NONE;

	if (!size)
		return 0;
	if (a->transport == GANTRY_VM_VSOCK)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_USAGE,
				       "--size: a vsock door has no shared memory");
	if (a->config)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_USAGE,
			"--size is of this attachment only, and --config of all: set the "
			"size that lasts with gantryctl tenant set %s --ivshmem-size",
			a->tenant);
	if (gantry_size_parse(size, &a->asked_bytes, &err) < 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_USAGE, "--size %s: %s", size, err.text);
	if (a->asked_bytes < MIN_BYTES || a->asked_bytes & (a->asked_bytes - 1))
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_USAGE,
			"--size %s: it becomes a PCI memory, so it is a power of two of at "
			"least 8M, such as 64M or 256M",
			size);
	return 0;
}

static int read_options(struct attachment *a)
{
	const char *transport = gantry_ctl_option(a->ctl, "transport");

	a->tenant = gantry_ctl_option(a->ctl, "tenant");
	a->config = gantry_ctl_option(a->ctl, "config");
	if (!a->tenant)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_USAGE,
				       "vm attach: whose door? give --tenant NAME");
	if (!gantry_name_valid(a->tenant))
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_USAGE, "\"%s\" is no name of a tenant",
				       a->tenant);
	if (transport && strcmp(transport, "ivshmem") != 0 && strcmp(transport, "vsock") != 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_USAGE,
				       "--transport is ivshmem or vsock, not %s", transport);
	a->transport = transport && strcmp(transport, "vsock") == 0 ? GANTRY_VM_VSOCK
								    : GANTRY_VM_IVSHMEM;
	set_tenant(a, a->tenant);
	return read_size(a);
}

/* --- what stands against it --- */

static int check_doors(struct attachment *a, const struct gantry_vm_domain *domain,
		       const char *where)
{
	for (size_t i = 0; i < domain->ndoors; i++)
		if (domain->doors[i].transport == a->transport)
			return gantry_ctl_fail(
				a->ctl, GANTRY_CTL_BUSY,
				"%s has the door of tenant %s already%s, and takes one of a kind; "
				"gantryctl vm detach %s%s takes it out",
				a->machine->name, domain->doors[i].tenant, where, a->machine->name,
				*where ? " --config" : "");
	return 0;
}

static int check_machine(struct attachment *a)
{
	const struct gantry_vm_machine *m = a->machine;
	int r;

	if (!m->running && !a->config)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_FAILED,
			"%s is not running; start it, or give --config for its next start",
			m->name);
	if (m->state == VIR_DOMAIN_PAUSED)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_BUSY,
			"%s is paused, and a paused guest takes no device; virsh resume %s first",
			m->name, m->name);
	if (a->config && !m->persistent)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_UNSUPPORTED,
			"%s has no persistent definition for --config; virsh define makes one",
			m->name);
	r = check_doors(a, &m->live, "");
	if (!r && a->config)
		r = check_doors(a, &m->kept, " in its persistent definition");
	return r;
}

/* A QEMU whose server accepts and says nothing stands still: the agent has just answered, so it serves. */
static int check_socket(struct attachment *a)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uid_t uid = 0;
	gid_t gid = 0;
	int r;

	if (a->is_elsewhere)
		return 0; /* its files are not ours to look at */
	if (a->machine->running && gantry_vm_user(a->machine, &uid, &gid) < 0)
		uid = 0; /* not known: QEMU will say */
	r = gantry_vm_socket_check(a->text.socket, uid, gid, &err);
	if (r == -EACCES)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_DENIED,
			"%s: %s; see ivshmem_owner and ivshmem_mode in gantry.conf(5)",
			a->machine->name, err.text);
	if (r < 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_NOT_FOUND,
				       "%s; is the agent restarting? see gantryctl doctor",
				       err.text);
	return 0;
}

static int check_ivshmem(struct attachment *a, const Gantry__Admin__IvshmemDoor *door)
{
	if (!door || !*door->socket)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_DENIED,
			"tenant %s has no right to an ivshmem door%s%s; give it ivshmem = yes in its "
			"section of gantry.conf(5)",
			a->tenant, door && *door->reason ? ": " : "",
			door && *door->reason ? door->reason : "");
	if (strcmp(door->state, "closed") == 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_FAILED,
				       "the ivshmem door of %s is closed: %s", a->tenant,
				       *door->reason ? door->reason : "the agent does not say why");
	if (door->n_peers >= door->max_peers)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_BUSY,
			"the door of %s has as many virtual machines as it takes (%u; QEMU's pid %u); "
			"detach that one first, or make another tenant",
			a->tenant, door->max_peers, door->n_peers ? door->peers[0]->pid : 0);
	if (a->asked_bytes > door->max_bytes)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_QUOTA,
				       "--size: tenant %s may have %" PRIu64 " MiB; raise its "
				       "ivshmem_size, or ask for less",
				       a->tenant, door->max_bytes >> 20);
	a->text.socket = door->socket;
	a->text.vectors = door->vectors;
	a->text.wake = *door->wake_socket ? door->wake_socket : NULL;
	a->bytes = a->asked_bytes ? a->asked_bytes : door->max_bytes;
	return check_socket(a);
}

static int check_vsock(struct attachment *a, const Gantry__Admin__VsockDoor *door)
{
	const struct gantry_vm_domain *domain = a->machine->running ? &a->machine->live
								    : &a->machine->kept;

	if (!door || !door->cid)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_DENIED,
			"tenant %s has no vsock door; gantryctl tenant set %s --vsock-cid CID "
			"gives it one",
			a->tenant, a->tenant);
	if (*door->socket)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_UNSUPPORTED,
			"libvirt plugs in no vhost-user vsock device; start the machine "
			"with what gantryctl vm args %s --transport vsock prints",
			a->tenant);
	if (domain->has_vsock)
		return gantry_ctl_fail(
			a->ctl, GANTRY_CTL_BUSY,
			"%s has a vsock device already, with CID %u: set the vsock_cid of %s to that, "
			"or take the device out",
			a->machine->name, domain->vsock_cid, a->tenant);
	if (access(VHOST_VSOCK, F_OK) < 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_UNSUPPORTED,
				       "this kernel has no " VHOST_VSOCK
				       "; try modprobe vhost_vsock");
	if (strcmp(door->state, "closed") == 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_FAILED,
				       "the vsock door of %s is closed: %s; see gantryctl doctor",
				       a->tenant,
				       *door->reason ? door->reason : "the agent does not say why");
	a->text.cid = door->cid;
	return 0;
}

/* --- doing it --- */

static char *device_xml(const struct attachment *a, const struct gantry_vm_address *at)
{
	const struct gantry_vm_where where = { .bus = at->bus, .slot = at->slot };
	char *xml = NULL;
	size_t len;
	FILE *out = open_memstream(&xml, &len);

	if (out) {
		gantry_vm_libvirt_xml(&a->text, &where, out);
		fclose(out);
	}
	return xml;
}

static int place(struct attachment *a, const struct gantry_vm_domain *domain,
		 const struct gantry_vm_pci *pci, char **ret_xml)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_address at;
	int r = gantry_vm_place(domain, pci, a->bytes ? a->bytes : 4096, &at, &err);

	if (r < 0)
		return gantry_ctl_fail(a->ctl,
				       r == -ENOSPC ? GANTRY_CTL_BUSY : GANTRY_CTL_UNSUPPORTED,
				       "%s: %s", a->machine->name, err.text);
	*ret_xml = device_xml(a, &at);
	return *ret_xml ? 0 : gantry_ctl_fail(a->ctl, GANTRY_CTL_FAILED, "no memory");
}

static int plug(struct attachment *a, const char *xml, unsigned int flags)
{
	struct gantry_vm *vm = a->vm;

	if (vm->lib.virDomainAttachDeviceFlags(a->machine->domain, xml, flags) < 0)
		return gantry_vm_fail(vm, "%s: attaching", a->machine->name);
	return 0;
}

/* Beside the device, where the machine can have it. Without it programs poll, which is no failure. */
static bool plug_channel(const struct attachment *a, const struct gantry_vm_domain *domain,
			 unsigned int flags)
{
	_cleanup_free_ char *xml = NULL;
	size_t len;
	FILE *out;

	if (!a->text.wake || !domain->has_ports || domain->channel.xml)
		return domain->channel.xml && strcmp(domain->channel.tenant, a->tenant) == 0;
	out = open_memstream(&xml, &len);
	if (!out)
		return false;
	gantry_vm_channel_xml(&a->text, out);
	fclose(out);
	return xml && a->vm->lib.virDomainAttachDeviceFlags(a->machine->domain, xml, flags) >= 0;
}

/*
 * Until the guest has given the device its addresses; nobody reports that, so QEMU is asked again and again.
 * -ETIMEDOUT, -ECANCELED, -EIO.
 */
static int wait_for_guest(struct attachment *a, uint64_t deadline_ns, struct gantry_err *err)
{
	const int bar = a->transport == GANTRY_VM_IVSHMEM ? SHARED_BAR : 0;
	struct gantry_vm_pci pci;

	for (;;) {
		int r = gantry_vm_read_pci(a->machine, a->alias, &pci, err);

		if (r < 0)
			return r;
		if (!pci.found)
			return gantry_err_set(err, -EIO, "its QEMU has lost the device");
		a->address = pci.bar[bar].address;
		/* A virtio device's first memory need not be its BAR 0. */
		for (size_t i = 0; a->transport == GANTRY_VM_VSOCK && i < GANTRY_VM_BARS; i++)
			a->address = a->address ? a->address : pci.bar[i].address;
		if (a->address)
			return 0;
		if (gantry_vm_interrupted())
			return gantry_err_set(err, -ECANCELED, "interrupted");
		if (gantry_deadline_passed(deadline_ns))
			return gantry_err_set(
				err, -ETIMEDOUT,
				"its guest gave the device no address: does a system run in it that "
				"knows hot-plug, and has it room for %" PRIu64 " MiB?",
				a->bytes >> 20);
		gantry_vm_turn(a->vm, LOOK_AGAIN_MS);
	}
}

static int undo(struct attachment *a, const struct gantry_err *why, int code)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	gantry_vm_interrupt_heard();
	r = gantry_vm_unplug(a->machine, a->alias, gantry_deadline_ns(UNDO_NS), &err);
	if (r < 0)
		return gantry_ctl_fail(a->ctl, code,
				       "%s: %s; and it keeps the device until its next start: %s",
				       a->machine->name, why->text, err.text);
	return gantry_ctl_fail(a->ctl, code, "%s: %s; the device has been taken out again",
			       a->machine->name, why->text);
}

static int attach_live(struct attachment *a)
{
	_cleanup_free_ char *xml = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_pci pci;
	int r;

	if (gantry_vm_read_pci(a->machine, NULL, &pci, &err) < 0)
		return gantry_ctl_fail(a->ctl, GANTRY_CTL_UNSUPPORTED, "%s: %s", a->machine->name,
				       err.text);
	r = place(a, &a->machine->live, &pci, &xml);
	if (!r && a->transport == GANTRY_VM_IVSHMEM) {
		a->reopen = true;
		r = gantry_vm_door_open(a->ctl, a->tenant, a->asked_bytes);
	}
	if (!r)
		r = plug(a, xml, VIR_DOMAIN_AFFECT_LIVE);
	if (r)
		return r;
	switch (wait_for_guest(a, gantry_ctl_deadline(a->ctl), &err)) {
	case 0:
		a->has_channel = plug_channel(a, &a->machine->live, VIR_DOMAIN_AFFECT_LIVE);
		return 0;
	case -ETIMEDOUT:
		return undo(a, &err, GANTRY_CTL_TIMEOUT);
	default:
		return undo(a, &err, GANTRY_CTL_FAILED);
	}
}

static int attach_kept(struct attachment *a)
{
	_cleanup_free_ char *xml = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = place(a, &a->machine->kept, NULL, &xml);

	if (!r)
		r = plug(a, xml, VIR_DOMAIN_AFFECT_CONFIG);
	if (!r)
		(void)plug_channel(a, &a->machine->kept, VIR_DOMAIN_AFFECT_CONFIG);
	if (r && a->machine->running) {
		/* Half an attachment is none: the line about it has been written. */
		if (gantry_vm_unplug(a->machine, a->alias, gantry_deadline_ns(UNDO_NS), &err) < 0)
			(void)gantry_ctl_fail(a->ctl, r, "%s keeps the device while it runs: %s",
					      a->machine->name, err.text);
	}
	return r;
}

static int report(const struct attachment *a)
{
	uint64_t took_ns = gantry_now_ns() - a->vm->started_ns;
	const char *wake = a->has_channel ? ", with a port to wake its programs" : "";
	char text[512], took[GANTRY_QUANTITY_MAX], size[GANTRY_QUANTITY_MAX];
	json_object *object;

	gantry_duration_format_rounded(took_ns, took);
	gantry_size_format(a->bytes, size);
	if (!a->machine->running)
		(void)gantry_str_format(text, sizeof(text),
					"%s: will have the door of %s from its next start on",
					a->machine->name, a->tenant);
	else if (a->transport == GANTRY_VM_IVSHMEM)
		(void)gantry_str_format(text, sizeof(text),
					"%s: the door of %s is there, %s at 0x%" PRIx64
					" of the guest%s, after %s",
					a->machine->name, a->tenant, size, a->address, wake, took);
	else
		(void)gantry_str_format(text, sizeof(text),
					"%s: the door of %s is there, by vsock as CID %u, after %s",
					a->machine->name, a->tenant, a->text.cid, took);
	if (!a->ctl->json) {
		fprintf(a->ctl->out, "%s\n", text);
		return 0;
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object, "ok", json_object_new_boolean(true));
	json_object_object_add(object, "text", json_object_new_string(text));
	json_object_object_add(object, "took_ns", json_object_new_uint64(took_ns));
	json_object_object_add(object, "wake_port", json_object_new_boolean(a->has_channel));
	return gantry_ctl_json_print(a->ctl, object);
}

static int check_door(struct attachment *a, const Gantry__Admin__Doors *doors)
{
	a->text.tenant = a->tenant;
	return a->transport == GANTRY_VM_IVSHMEM ? check_ivshmem(a, doors->ivshmem)
						 : check_vsock(a, doors->vsock);
}

static int attach(struct attachment *a, const Gantry__Admin__Doors *doors)
{
	int r = check_door(a, doors);

	if (!r && a->machine->running)
		r = attach_live(a);
	if (!r && a->config)
		r = attach_kept(a);
	if (r && a->reopen)
		gantry_vm_door_reopen(a->ctl, a->tenant,
				      0); /* the next machine gets the usual size */
	return r;
}

int gantry_vm_attach_door(struct gantry_vm *vm, struct gantry_vm_machine *machine,
			  const char *tenant, uint64_t bytes, bool is_elsewhere)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	struct attachment a = { .vm = vm,
				.ctl = vm->ctl,
				.machine = machine,
				.asked_bytes = bytes,
				.is_elsewhere = is_elsewhere };
	int r;

	set_tenant(&a, tenant);
	r = machine ? check_machine(&a) : 0;
	if (!r)
		r = gantry_ctl_door_show(vm->ctl, tenant, &reply);
	if (r)
		return r;
	return machine ? attach(&a, reply->doors) : check_door(&a, reply->doors);
}

int gantry_vm_attach(struct gantry_vm *vm)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	struct gantry_vm_machine machine = { 0 };
	struct attachment a = { .vm = vm, .ctl = vm->ctl, .machine = &machine };
	int r = read_options(&a);

	if (!r)
		r = gantry_vm_find(vm, vm->ctl->args[0], &machine);
	if (!r)
		r = check_machine(&a);
	if (!r)
		r = gantry_ctl_door_show(vm->ctl, a.tenant, &reply);
	if (!r)
		r = attach(&a, reply->doors);
	if (!r)
		r = report(&a);
	gantry_vm_machine_fini(&machine);
	return r;
}
