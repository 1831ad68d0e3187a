/* SPDX-License-Identifier: Apache-2.0 */
/* vm list and vm show: libvirt's word on machines and devices, the agent's on doors, and with show the guest's. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "host-agent/ctl/print.h"
#include "host-agent/vm/door.h"
#include "host-agent/vm/place.h"
#include "host-agent/vm/row.h"
#include "proto/doormem.h"

#define SHARED_BAR 2

/* A row and what it points at. */
struct entry {
	struct gantry_vm_row row;
	struct gantry_vm_door door;
	char domain[GANTRY_VM_TEXT];
	char uuid[VIR_UUID_STRING_BUFLEN];
	char machine[GANTRY_VM_TEXT];
	char pci[16];
	char address[24];
	char state[16];
	Gantry__Admin__UInt bytes, cid, guests, claims, desks, epoch, largest;
};

struct entries {
	struct entry *list;
	size_t n;
};

static const char *state_name(int state)
{
	static const char *const names[] = {
		[VIR_DOMAIN_NOSTATE] = "unknown", [VIR_DOMAIN_RUNNING] = "running",
		[VIR_DOMAIN_BLOCKED] = "running", [VIR_DOMAIN_PAUSED] = "paused",
		[VIR_DOMAIN_SHUTDOWN] = "ending", [VIR_DOMAIN_SHUTOFF] = "off",
		[VIR_DOMAIN_CRASHED] = "crashed", [VIR_DOMAIN_PMSUSPENDED] = "asleep",
	};

	return state >= 0 && (size_t)state < GANTRY_ARRAY_SIZE(names) ? names[state] : "unknown";
}

static void set_number(Gantry__Admin__UInt **ret_member, Gantry__Admin__UInt *at, uint64_t value)
{
	*at = (Gantry__Admin__UInt)GANTRY__ADMIN__UINT__INIT;
	at->value = value;
	*ret_member = at;
}

/* --- the agent's word --- */

static void ask_agent(struct gantry_ctl *ctl, struct entry *entry)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Name name = GANTRY__ADMIN__NAME__INIT;
	const Gantry__Admin__DoorPeer *peer;

	name.name = entry->door.tenant;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_SHOW;
	request.door_show = &name;
	/* Without an agent, or the right to ask it, machines can be listed all the same. */
	if (gantry_ctl_ask_quietly(ctl, &request, &reply, NULL) < 0 ||
	    reply->body_case != GANTRY__ADMIN__ADMIN_REPLY__BODY_DOORS)
		return;
	if (entry->door.transport == GANTRY_VM_VSOCK) {
		if (!reply->doors->vsock)
			return;
		(void)gantry_str_copy(entry->state, sizeof(entry->state),
				      reply->doors->vsock->state);
		set_number(&entry->row.guests, &entry->guests, reply->doors->vsock->guests);
		return;
	}
	peer = gantry_vm_peer(reply->doors->ivshmem, entry->uuid);
	if (!peer)
		return;
	(void)gantry_str_copy(entry->state, sizeof(entry->state), peer->state);
	set_number(&entry->row.bytes, &entry->bytes, peer->size_bytes);
	set_number(&entry->row.guests, &entry->guests, peer->guests);
	set_number(&entry->row.claims, &entry->claims, peer->claims);
	set_number(&entry->row.desks, &entry->desks, peer->desks);
	set_number(&entry->row.epoch, &entry->epoch, peer->epoch);
}

/* --- rows --- */

static int add(struct entries *entries, struct entry **ret_entry)
{
	struct entry *list = reallocarray(entries->list, entries->n + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	entries->list = list;
	*ret_entry = &list[entries->n++];
	memset(*ret_entry, 0, sizeof(**ret_entry));
	return 0;
}

static void fill(struct entry *entry, const struct gantry_vm_machine *machine, const char *in)
{
	const struct gantry_vm_domain *domain = machine->running ? &machine->live : &machine->kept;

	(void)gantry_str_copy(entry->domain, sizeof(entry->domain), machine->name);
	(void)gantry_str_copy(entry->uuid, sizeof(entry->uuid), machine->uuid);
	(void)gantry_str_copy(entry->machine, sizeof(entry->machine), domain->machine);
	entry->row.state = state_name(machine->state);
	entry->row.in = in;
}

static const struct gantry_vm_door *same(const struct gantry_vm_domain *domain,
					 const struct gantry_vm_door *door)
{
	for (size_t i = 0; i < domain->ndoors; i++)
		if (domain->doors[i].transport == door->transport &&
		    strcmp(domain->doors[i].tenant, door->tenant) == 0)
			return &domain->doors[i];
	return NULL;
}

static int add_door(struct gantry_ctl *ctl, const struct gantry_vm_machine *machine,
		    const struct gantry_vm_door *door, const char *in, struct entries *entries)
{
	struct entry *entry;

	if (add(entries, &entry) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	fill(entry, machine, in);
	entry->door = *door;
	entry->door.xml = NULL; /* stays the machine's */
	if (door->cid)
		set_number(&entry->row.cid, &entry->cid, door->cid);
	if (strcmp(in, "config") != 0)
		ask_agent(ctl, entry);
	return 0;
}

static int add_machine(struct gantry_ctl *ctl, const struct gantry_vm_machine *machine,
		       struct entries *entries)
{
	size_t before = entries->n;
	struct entry *entry;
	int r = 0;

	for (size_t i = 0; !r && i < machine->live.ndoors; i++)
		r = add_door(ctl, machine, &machine->live.doors[i],
			     same(&machine->kept, &machine->live.doors[i]) ? "live,config" : "live",
			     entries);
	for (size_t i = 0; !r && i < machine->kept.ndoors; i++)
		if (!same(&machine->live, &machine->kept.doors[i]))
			r = add_door(ctl, machine, &machine->kept.doors[i], "config", entries);
	if (r || entries->n > before)
		return r;
	if (add(entries, &entry) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	fill(entry, machine, "");
	return 0;
}

/* Pointers into the list, once it moves no more; and into its numbers, which may have moved with it. */
static void settle(struct entry *entry)
{
	struct gantry_vm_row *row = &entry->row;
	bool has = *entry->door.tenant;

	row->domain = entry->domain;
	row->uuid = entry->uuid;
	row->machine = entry->machine;
	row->tenant = entry->door.tenant;
	row->transport = !has ? ""
			      : (entry->door.transport == GANTRY_VM_VSOCK ? "vsock" : "ivshmem");
	row->alias = entry->door.alias;
	row->socket = entry->door.socket;
	row->pci = entry->pci;
	row->address = entry->address;
	row->door = entry->state;
	row->bytes = row->bytes ? &entry->bytes : NULL;
	row->cid = row->cid ? &entry->cid : NULL;
	row->guests = row->guests ? &entry->guests : NULL;
	row->claims = row->claims ? &entry->claims : NULL;
	row->desks = row->desks ? &entry->desks : NULL;
	row->epoch = row->epoch ? &entry->epoch : NULL;
	row->largest = row->largest ? &entry->largest : NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->domain, ((const struct entry *)b)->domain);
}

static int print(struct gantry_ctl *ctl, struct entries *entries)
{
	_cleanup_free_ const void **rows = calloc(entries->n + 1, sizeof(*rows));

	if (!rows)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	if (entries->n)
		qsort(entries->list, entries->n, sizeof(*entries->list), by_name);
	for (size_t i = 0; i < entries->n; i++) {
		settle(&entries->list[i]);
		rows[i] = &entries->list[i].row;
	}
	return gantry_print_list(ctl, &gantry_vm_fields, rows, entries->n);
}

int gantry_vm_list(struct gantry_vm *vm)
{
	struct entries entries = { 0 };
	virDomainPtr *domains = NULL;
	int n = vm->lib.virConnectListAllDomains(vm->connection, &domains, 0), r = 0;

	if (n < 0)
		return gantry_vm_fail(vm, "listing libvirt's domains");
	for (int i = 0; i < n; i++) {
		struct gantry_vm_machine machine;

		if (r) {
			(void)vm->lib.virDomainFree(domains[i]); /* ours alone */
			continue;
		}
		r = gantry_vm_read(vm, domains[i], &machine);
		if (!r)
			r = add_machine(vm->ctl, &machine, &entries);
		gantry_vm_machine_fini(&machine);
	}
	free(domains);
	if (!r)
		r = print(vm->ctl, &entries);
	free(entries.list);
	return r;
}

/* --- show --- */

static void ask_guest(const struct gantry_vm_machine *machine, struct entry *entry)
{
	const bool shared = entry->door.transport == GANTRY_VM_IVSHMEM;
	struct gantry_vm_pci pci;
	uint64_t largest;

	/* Nothing of this is known where its QEMU cannot be asked. */
	if (gantry_vm_read_pci(machine, *entry->door.alias ? entry->door.alias : NULL, &pci, NULL) <
	    0)
		return;
	largest = gantry_vm_largest(&machine->live, &pci);
	set_number(&entry->row.largest, &entry->largest,
		   largest < GANTRY_DOORMEM_MAX_BYTES ? largest : GANTRY_DOORMEM_MAX_BYTES);
	if (!pci.found)
		return;
	(void)gantry_str_format(entry->pci, sizeof(entry->pci), "%02x:%02x.%x", pci.address.bus,
				pci.address.slot, pci.address.function); /* fits */
	if (!shared)
		return;
	set_number(&entry->row.bytes, &entry->bytes, pci.bar[SHARED_BAR].bytes);
	if (pci.bar[SHARED_BAR].assigned)
		(void)gantry_str_format(entry->address, sizeof(entry->address), "0x%" PRIx64,
					pci.bar[SHARED_BAR].address); /* fits */
}

/* As a list in JSON, for a machine may have two doors; else one after the other with all their fields. */
static int print_all(struct gantry_ctl *ctl, struct entries *entries)
{
	int r = ctl->json ? print(ctl, entries) : 0;

	for (size_t i = 0; !ctl->json && !r && i < entries->n; i++) {
		settle(&entries->list[i]);
		if (i)
			fputc('\n', ctl->out);
		r = gantry_print_one(ctl, &gantry_vm_fields, &entries->list[i].row);
	}
	return r;
}

int gantry_vm_show(struct gantry_vm *vm)
{
	struct gantry_vm_machine machine;
	struct entries entries = { 0 };
	int r = gantry_vm_find(vm, vm->ctl->args[0], &machine);

	if (!r)
		r = add_machine(vm->ctl, &machine, &entries);
	for (size_t i = 0; !r && machine.running && i < entries.n; i++)
		ask_guest(&machine, &entries.list[i]);
	if (!r)
		r = print_all(vm->ctl, &entries);
	gantry_vm_machine_fini(&machine);
	free(entries.list);
	return r;
}
