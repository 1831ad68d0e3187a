/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm detach: programs in the guest hear of it first and may leave; then the guest is asked for the device. One that keeps
 * it has its door opened again.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/vm_text.h"
#include "host-agent/vm/door.h"

#define DRAIN_DEFAULT_NS (5 * GANTRY_NS_PER_S)
/* How long the agent may take to see that a QEMU has closed its connection. */
#define GONE_NS (2 * (int64_t)GANTRY_NS_PER_S)

struct detachment {
	struct gantry_vm *vm;
	struct gantry_ctl *ctl;
	const char *tenant; /* NULL: whichever is there */
	uint64_t drain_ns;
	bool config;
	struct gantry_vm_machine machine;
	const struct gantry_vm_door *live;
	const struct gantry_vm_door *kept;
	uint32_t peer; /* the machine at the door, once it is drained; 0: it is not */
	uint32_t left; /* programs that had not gone in time */
};

static int read_options(struct detachment *d)
{
	const char *drain = gantry_ctl_option(d->ctl, "drain");
	struct gantry_err err = GANTRY_ERR_NONE;

	d->tenant = gantry_ctl_option(d->ctl, "tenant");
	d->config = gantry_ctl_option(d->ctl, "config");
	d->drain_ns = DRAIN_DEFAULT_NS;
	if (drain && gantry_duration_parse(drain, &d->drain_ns, &err) < 0)
		return gantry_ctl_fail(d->ctl, GANTRY_CTL_USAGE,
				       "--drain %s: %s; write it as 500ms or 10s", drain, err.text);
	return 0;
}

/* The door of @domain that is meant. *@ret_n: how many would do. */
static const struct gantry_vm_door *choose(const struct detachment *d,
					   const struct gantry_vm_domain *domain, size_t *ret_n)
{
	const struct gantry_vm_door *found = NULL;

	*ret_n = 0;
	for (size_t i = 0; i < domain->ndoors; i++)
		if (!d->tenant || strcmp(domain->doors[i].tenant, d->tenant) == 0) {
			found = &domain->doors[i];
			(*ret_n)++;
		}
	return found;
}

static int choose_doors(struct detachment *d)
{
	const struct gantry_vm_machine *m = &d->machine;
	size_t nlive, nkept;

	d->live = choose(d, &m->live, &nlive);
	d->kept = choose(d, &m->kept, &nkept);
	if (nlive > 1 || nkept > 1)
		return gantry_ctl_fail(d->ctl, GANTRY_CTL_USAGE,
				       "%s has several doors; say which with --tenant", m->name);
	if (!d->config)
		d->kept = NULL;
	if (d->live || d->kept)
		return 0;
	if (nkept)
		return gantry_ctl_fail(
			d->ctl, GANTRY_CTL_NOT_FOUND,
			"%s has a door only in its persistent definition; --config takes it out there",
			m->name);
	return gantry_ctl_fail(d->ctl, GANTRY_CTL_NOT_FOUND,
			       "%s has no door%s%s; see gantryctl vm show %s", m->name,
			       d->tenant ? " of tenant " : "", d->tenant ? d->tenant : "", m->name);
}

/*
 * Tells the programs and waits for them. A tenant, or an agent, that is no more has none: the device goes all the same.
 */
static int drain(struct detachment *d)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Name name = GANTRY__ADMIN__NAME__INIT;
	const Gantry__Admin__DoorPeer *peer;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	name.name = (char *)d->live->tenant;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_SHOW;
	request.door_show = &name;
	r = gantry_ctl_ask_quietly(d->ctl, &request, &reply, &err);
	if (r == -ENOENT || r == -ECONNREFUSED)
		return 0;
	if (r < 0)
		return gantry_ctl_fail_client(d->ctl, r, &err);
	if (reply->code == GANTRY_CTL_NOT_FOUND || !reply->doors || !reply->doors->ivshmem)
		return 0;
	peer = gantry_vm_peer(reply->doors->ivshmem, d->machine.uuid);
	if (!peer)
		return 0;
	d->peer = peer->id;
	r = gantry_vm_door_drain(d->ctl, d->live->tenant, peer, d->drain_ns);
	if (!r)
		r = gantry_vm_door_wait_empty(d->ctl, d->live->tenant, d->machine.uuid,
					      gantry_deadline_ns((int64_t)d->drain_ns), &d->left);
	if (!r && gantry_vm_interrupted())
		r = gantry_ctl_fail(d->ctl, GANTRY_CTL_FAILED, "interrupted");
	return r;
}

/* One that stays is of no use, and no harm. */
static void unplug_channel(const struct gantry_vm_machine *machine, const char *tenant)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char alias[GANTRY_VM_TEXT];

	if (!machine->live.channel.xml || strcmp(machine->live.channel.tenant, tenant) != 0)
		return;
	(void)gantry_str_format(alias, sizeof(alias), GANTRY_VM_CHANNEL_ALIAS "%s",
				tenant); /* it fits */
	(void)gantry_vm_unplug(machine, alias, gantry_ctl_deadline(machine->vm->ctl), &err);
}

int gantry_vm_take_out(const struct gantry_vm_machine *machine, const struct gantry_vm_door *door,
		       struct gantry_err *err)
{
	struct gantry_ctl *ctl = machine->vm->ctl;
	int r = gantry_vm_unplug(machine, door->alias, gantry_ctl_deadline(ctl), err);

	if (r < 0 || door->transport != GANTRY_VM_IVSHMEM)
		return r;
	unplug_channel(machine, door->tenant);
	gantry_vm_door_wait_gone(ctl, door->tenant, machine->uuid, gantry_deadline_ns(GONE_NS));
	return 0;
}

static int unplug(struct detachment *d)
{
	const struct gantry_vm_machine *m = &d->machine;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	if (m->state == VIR_DOMAIN_PAUSED)
		return gantry_ctl_fail(
			d->ctl, GANTRY_CTL_BUSY,
			"%s is paused, and a paused guest lets no device go; virsh resume %s first",
			m->name, m->name);
	r = d->live->transport == GANTRY_VM_IVSHMEM ? drain(d) : 0;
	if (r)
		return r;
	r = gantry_vm_take_out(m, d->live, &err);
	if (r < 0)
		return gantry_ctl_fail(d->ctl,
				       r == -ETIMEDOUT ? GANTRY_CTL_TIMEOUT : GANTRY_CTL_FAILED,
				       "%s: %s; the door is open again", m->name, err.text);
	return 0;
}

static int detach_live(struct detachment *d)
{
	int r = unplug(d);

	if (r && d->peer) /* its door alone: others may be leaving, too */
		gantry_vm_door_reopen(d->ctl, d->live->tenant, d->peer);
	return r;
}

static int detach_kept(struct detachment *d)
{
	const struct gantry_vm_channel *channel = &d->machine.kept.channel;

	if (d->kept->transport == GANTRY_VM_IVSHMEM && channel->xml &&
	    strcmp(channel->tenant, d->kept->tenant) == 0)
		(void)d->vm->lib.virDomainDetachDeviceFlags(d->machine.domain, channel->xml,
							    VIR_DOMAIN_AFFECT_CONFIG);
	if (d->vm->lib.virDomainDetachDeviceFlags(d->machine.domain, d->kept->xml,
						  VIR_DOMAIN_AFFECT_CONFIG) < 0)
		return gantry_vm_fail(d->vm, "%s: its persistent definition", d->machine.name);
	return 0;
}

static int report(const struct detachment *d)
{
	const char *tenant = d->live ? d->live->tenant : d->kept->tenant;
	uint64_t took_ns = gantry_now_ns() - d->vm->started_ns;
	char text[512], took[GANTRY_QUANTITY_MAX], left[64] = "";
	bool again = false;
	json_object *object;

	for (size_t i = 0; !d->config && i < d->machine.kept.ndoors; i++)
		again = again || strcmp(d->machine.kept.doors[i].tenant, tenant) == 0;
	if (d->left)
		(void)gantry_str_format(left, sizeof(left), "; %u programs had not left in time",
					d->left);
	gantry_duration_format_rounded(took_ns, took);
	(void)gantry_str_format(text, sizeof(text), "%s: the door of %s is out, after %s%s%s",
				d->machine.name, tenant, took, left,
				again ? "; its persistent definition still has it (--config)" : "");
	if (!d->ctl->json) {
		fprintf(d->ctl->out, "%s\n", text);
		return 0;
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object, "ok", json_object_new_boolean(true));
	json_object_object_add(object, "text", json_object_new_string(text));
	json_object_object_add(object, "took_ns", json_object_new_uint64(took_ns));
	json_object_object_add(object, "left", json_object_new_uint64(d->left));
	return gantry_ctl_json_print(d->ctl, object);
}

int gantry_vm_detach(struct gantry_vm *vm)
{
	struct detachment d = { .vm = vm, .ctl = vm->ctl };
	int r = read_options(&d);

	if (!r)
		r = gantry_vm_find(vm, vm->ctl->args[0], &d.machine);
	if (!r)
		r = choose_doors(&d);
	if (!r && d.live)
		r = detach_live(&d);
	if (!r && d.kept)
		r = detach_kept(&d);
	if (!r)
		r = report(&d);
	gantry_vm_machine_fini(&d.machine);
	return r;
}
