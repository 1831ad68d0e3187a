/* SPDX-License-Identifier: Apache-2.0 */
/* The first step of vm migrate: what goes, and whether it could. Everything that can be known to fail fails here. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "host-agent/vm/door.h"
#include "host-agent/vm/emulated.h"
#include "host-agent/vm/migrate.h"

static int check_machine(struct gantry_vm_trip *t, struct gantry_err *err)
{
	const struct gantry_vm_machine *m = &t->here.machine;

	if (!m->running) {
		(void)gantry_err_set(
			err, -EINVAL,
			"it does not run; virsh migrate --offline takes its definition");
		return GANTRY_CTL_FAILED;
	}
	if (m->state == VIR_DOMAIN_PAUSED) {
		(void)gantry_err_set(err, -EBUSY,
				     "it is paused, and a paused guest lets no device go; "
				     "virsh resume it first");
		return GANTRY_CTL_BUSY;
	}
	memcpy(t->uuid, m->uuid, sizeof(t->uuid));
	return 0;
}

static int find_luggage(struct gantry_vm_trip *t, const struct gantry_vm_door *door,
			struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	struct gantry_vm_luggage *one = &t->luggage[t->nluggage++];
	const Gantry__Admin__DoorPeer *peer;
	int r = gantry_ctl_door_show(&t->here.ctl, door->tenant, &reply);

	if (r)
		return gantry_vm_said(&t->here, r, err);
	memcpy(one->tenant, door->tenant, sizeof(one->tenant));
	peer = gantry_vm_peer(reply->doors->ivshmem, t->uuid);
	if (!peer)
		return 0;
	one->peer = peer->id;
	one->bytes = peer->size_bytes;
	return gantry_vm_said(
		&t->here, gantry_vm_sessions_find(&t->sessions, one->tenant, NULL, peer->id), err);
}

/* A tenant whose sessions behind streams go along; @door as of gantry_vm_sessions_find(). */
static int add_stream(struct gantry_vm_trip *t, const char *tenant, const char *door,
		      struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const struct gantry_vm_domain *live = &t->here.machine.live;
	int r = gantry_ctl_door_show(&t->here.ctl, tenant, &reply);

	if (r)
		return gantry_vm_said(&t->here, r, err);
	t->looks_ns = reply->doors->guest_looks_ns;
	/* libvirt takes a vsock device along as it is. */
	if (live->has_vsock && reply->doors->vsock && reply->doors->vsock->cid == live->vsock_cid)
		(void)gantry_str_copy(t->cid_tenant, sizeof(t->cid_tenant), tenant); /* it fits */
	t->nstreams++;
	return gantry_vm_said(&t->here, gantry_vm_sessions_find(&t->sessions, tenant, door, 0),
			      err);
}

/* Those whose CID the machine's own vsock device has, and those that were named. */
static int find_streams(struct gantry_vm_trip *t, struct gantry_err *err)
{
	const struct gantry_vm_domain *live = &t->here.machine.live;
	char names[512], *rest = NULL;
	int r = 0;

	for (size_t i = 0; !r && i < live->ndoors; i++)
		if (live->doors[i].transport == GANTRY_VM_VSOCK)
			r = add_stream(t, live->doors[i].tenant, "vsock", err);
	(void)gantry_str_copy(names, sizeof(names), t->tenants ? t->tenants : ""); /* checked */
	for (char *name = strtok_r(names, ",", &rest); !r && name;
	     name = strtok_r(NULL, ",", &rest))
		r = add_stream(t, name, NULL, err);
	return r;
}

static int check_luggage(struct gantry_vm_trip *t, struct gantry_err *err)
{
	if (t->nluggage || t->nstreams)
		return 0;
	(void)gantry_err_set(
		err, -ENOENT,
		"it has no door, and no tenant was named: virsh migrate moves it; or say with --tenant "
		"whose sessions behind streams are its");
	return GANTRY_CTL_NOT_FOUND;
}

/* The tenant of the machine's CID has to be the same there, too. */
static int check_cid(struct gantry_vm_trip *t, struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint32_t cid = t->here.machine.live.vsock_cid;
	int r;

	if (!*t->cid_tenant)
		return 0;
	r = gantry_ctl_door_show(&t->there.ctl, t->cid_tenant, &reply);
	if (!r && (!reply->doors->vsock || reply->doors->vsock->cid != cid))
		r = gantry_ctl_fail(
			&t->there.ctl, GANTRY_CTL_DENIED,
			"at %s CID %u is not tenant %s's; gantryctl tenant set %s --vsock-cid %u "
			"there makes it so",
			t->to, cid, t->cid_tenant, t->cid_tenant, cid);
	return gantry_vm_said(&t->there, r, err);
}

/* Of those that go: is one behind a stream, or (@machine) at the shared-memory door? */
static bool has_traveller(const struct gantry_vm_trip *t, bool machine)
{
	for (size_t i = 0; i < t->sessions.n; i++)
		if (!t->sessions.list[i].stays && (t->sessions.list[i].machine != 0) == machine)
			return true;
	return false;
}

static uint64_t patience_of(const struct gantry_vm_trip *t, const Gantry__Admin__Doors *there,
			    const char **ret_key)
{
	uint64_t streams_ns = gantry_min_u64(t->looks_ns, there->session_waits_ns);
	uint64_t ns = UINT64_MAX;

	/* 0: an agent that does not say. */
	if (streams_ns && has_traveller(t, false)) {
		ns = streams_ns;
		*ret_key = "vsock_grace";
	}
	if (there->adoption_waits_ns && there->adoption_waits_ns < ns && has_traveller(t, true)) {
		ns = there->adoption_waits_ns;
		*ret_key = "adoption_grace";
	}
	return ns;
}

/* Guests look for their sessions for a time, and those wait for them for a time. */
static int check_patience(struct gantry_vm_trip *t, struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	char limit[GANTRY_QUANTITY_MAX], patience[GANTRY_QUANTITY_MAX];
	const char *key = "";
	uint64_t ns;
	int r;

	if (t->sessions.n == 0)
		return 0;
	r = gantry_ctl_door_show(&t->there.ctl, t->sessions.list[0].tenant, &reply);
	if (r)
		return gantry_vm_said(&t->there, r, err);
	ns = patience_of(t, reply->doors, &key);
	if (!t->has_limit && t->how.limit_ns > ns / 4 * 3)
		t->how.limit_ns = ns / 4 * 3; /* the rest is for what is before and after */
	if (t->how.limit_ns <= ns)
		return 0;
	gantry_duration_format_rounded(t->how.limit_ns, limit);
	gantry_duration_format_rounded(ns, patience);
	(void)gantry_err_set(
		err, -EINVAL,
		"sessions and their guests look for each other for %s, less than the %s of --limit; "
		"set %s in [agent] of both to more",
		patience, limit, key);
	return GANTRY_CTL_USAGE;
}

static int check_destination(struct gantry_vm_trip *t, struct gantry_err *err)
{
	int r = gantry_vm_connect(&t->there.vm, &t->there.ctl, &t->here.vm, t->uri);

	if (r)
		return gantry_vm_said(&t->there, r, err);
	if (gantry_vm_where(&t->there.vm, &t->there.vm, t->uuid) == GANTRY_VM_AT_SOURCE) {
		(void)gantry_err_set(err, -EBUSY,
				     "it runs there already; does %.80s lead to this very host?",
				     t->uri);
		return GANTRY_CTL_BUSY;
	}
	r = gantry_vm_said(&t->there, gantry_ctl_connect(&t->there.ctl), err);
	if (!r)
		r = check_cid(t, err);
	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = gantry_vm_said(&t->there,
				   gantry_vm_attach_door(&t->there.vm, NULL, t->luggage[i].tenant,
							 t->luggage[i].bytes, true),
				   err);
	return r;
}

/* With --drain, what cannot go is let out before; without, it says so now. */
static int check_sessions(struct gantry_vm_trip *t, struct gantry_err *err)
{
	struct gantry_vm_sessions *s = &t->sessions;

	for (size_t i = 0; i < s->n; i++) {
		int r = gantry_vm_said(
			&t->here, gantry_vm_session_ask(s, &s->list[i], gantry_vm_trip_deadline(t)),
			err);

		s->list[i].stays = r == GANTRY_CTL_UNSUPPORTED && t->has_drain && !t->attached;
		if (r && !s->list[i].stays)
			return r;
	}
	return 0;
}

static void look_for_cautions(struct gantry_vm_trip *t)
{
	const struct gantry_vm_machine *m = &t->here.machine;
	_cleanup_free_ char *kvm = gantry_vm_ask_qemu(m, "{\"execute\":\"query-kvm\"}");
	_cleanup_free_ char *version = gantry_vm_ask_qemu(m, "{\"execute\":\"query-version\"}");
	_cleanup_free_ char *memory =
		gantry_vm_ask_qemu(m, "{\"execute\":\"query-memory-size-summary\"}");
	const struct gantry_vm_emulation answers = { kvm, version, memory };

	t->caution = (struct gantry_err)GANTRY_ERR_NONE;
	(void)gantry_vm_loses_writes(&answers, &t->caution);
}

int gantry_vm_trip_check(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = gantry_vm_trip_look(t, &t->here, err);

	if (!r)
		r = check_machine(t, err);
	if (!r)
		look_for_cautions(t);
	for (size_t i = 0; !r && i < t->here.machine.live.ndoors; i++)
		if (t->here.machine.live.doors[i].transport == GANTRY_VM_IVSHMEM)
			r = find_luggage(t, &t->here.machine.live.doors[i], err);
	if (!r)
		r = find_streams(t, err);
	if (!r)
		r = check_luggage(t, err);
	if (!r)
		r = check_destination(t, err);
	if (!r)
		r = check_sessions(t, err);
	if (!r && t->attached) /* nobody waits for longer than the machine itself does */
		return gantry_vm_trip_rewrite(t, err);
	return r ? r : check_patience(t, err);
}
