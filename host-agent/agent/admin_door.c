/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs about doors for virtual machines. */
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/drain.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/vsock.h"

/* NULL: refused. */
static struct gantry_tenant *find(struct gantry_agent *a, const char *name, bool need,
				  struct gantry_answer *r)
{
	struct gantry_tenant *t = gantry_tenant_find(a, name);

	if (!t)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no tenant %.40s", name);
	else if (need && !t->conf.ivshmem)
		gantry_answer_fail(
			r, GANTRY_ADMIN_DENIED,
			"tenant %.40s has no ivshmem door; tenant set %.40s --ivshmem yes opens one",
			name, name);
	else
		return t;
	return NULL;
}

static const char *state_name(uint32_t state)
{
	switch (state) {
	case GANTRY_DOORMEM_OPEN:
		return "open";
	case GANTRY_DOORMEM_DRAIN:
		return "drain";
	default:
		return "closed";
	}
}

static Gantry__Admin__DoorPeer *show_machine(const struct gantry_machine *m,
					     struct gantry_answer *r)
{
	Gantry__Admin__DoorPeer *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__door_peer__init(msg);
	msg->id = (uint32_t)m->mem->id;
	msg->pid = (uint32_t)m->pid;
	msg->uid = m->uid;
	msg->size_bytes = m->mem->bytes;
	msg->connected_unix_ns = m->mem->epoch; /* it is made when the machine connects */
	msg->state = gantry_answer_text(r,
					m->mem->is_coming ? "coming" : state_name(m->mem->state));
	msg->guests = gantry_doormem_guests(m->mem);
	msg->claims = gantry_doormem_claims(m->mem);
	msg->desks = GANTRY_DOORMEM_DESKS;
	msg->epoch = m->mem->epoch;
	return msg;
}

static Gantry__Admin__IvshmemDoor *show_ivshmem(const struct gantry_tenant *t,
						struct gantry_answer *r)
{
	Gantry__Admin__IvshmemDoor *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__ivshmem_door__init(msg);
	msg->socket = gantry_answer_text(r, t->ivshmem_path);
	msg->size_bytes = gantry_ivshmem_bytes(t);
	msg->max_bytes = t->conf.ivshmem_bytes;
	msg->vectors = t->conf.ivshmem_vectors;
	msg->max_peers = t->conf.ivshmem_machines;
	msg->state = gantry_answer_text(r, t->ivshmem_fd < 0 ? "closed"
					   : t->drain.is_on  ? "drain"
							     : "open");
	msg->reason = gantry_answer_text(r, t->ivshmem_state);
	msg->wake_socket = gantry_answer_text(r, t->wake_fd < 0 ? "" : t->wake_path);
	msg->peers = gantry_answer_take(r, gantry_list_count(&t->machines) * sizeof(*msg->peers));
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		msg->peers[msg->n_peers++] = show_machine(m, r);
	return msg;
}

static Gantry__Admin__VsockDoor *show_vsock(const struct gantry_tenant *t, struct gantry_answer *r)
{
	Gantry__Admin__VsockDoor *msg = gantry_answer_take(r, sizeof(*msg));
	const struct gantry_agent *a = t->agent;

	gantry__admin__vsock_door__init(msg);
	msg->cid = t->conf.vsock_cid;
	msg->port = a->config->agent.vsock_port;
	msg->socket =
		gantry_answer_text(r, ""); /* the kernel's vhost-vsock: QEMU needs none of ours */
	msg->state = gantry_answer_text(r, a->vsock_fd < 0 ? "closed" : "open");
	msg->reason = gantry_answer_text(
		r, a->vsock_fd < 0 ? "this host's kernel takes no connection by vsock" : "");
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		msg->guests += s->tenant == t && s->conn &&
			       strcmp(s->conn->transport, GANTRY_CONN_VSOCK) == 0;
	return msg;
}

void gantry_verb_door_show(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	struct gantry_tenant *t = find(a, q->door_show->name, false, r);
	Gantry__Admin__Doors *msg;

	if (!t)
		return;
	msg = gantry_answer_take(r, sizeof(*msg));
	gantry__admin__doors__init(msg);
	msg->tenant = gantry_answer_text(r, t->conf.name);
	if (t->conf.ivshmem)
		msg->ivshmem = show_ivshmem(t, r);
	if (t->conf.vsock_cid)
		msg->vsock = show_vsock(t, r);
	msg->guest_looks_ns = a->config->agent.vsock_grace_ns;
	msg->session_waits_ns = gantry_vsock_awaits_ns(a);
	msg->adoption_waits_ns = a->config->agent.adoption_grace_ns;
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_DOORS;
	r->msg.doors = msg;
}

static void no_machine(struct gantry_answer *r, uint64_t id, const char *tenant)
{
	gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND,
			   "no machine %llu is connected to tenant %.40s", (unsigned long long)id,
			   tenant);
}

void gantry_verb_door_drain(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	const Gantry__Admin__DoorDrain *drain = q->door_drain;
	struct gantry_tenant *t = find(a, drain->tenant, true, r);

	if (!t)
		return;
	if (gantry_drain_begin(t, drain->peer ? drain->peer->value : 0,
			       drain->deadline_ns ? drain->deadline_ns->value : UINT64_MAX,
			       drain->reason) < 0)
		no_machine(r, drain->peer->value, drain->tenant);
}

void gantry_verb_door_open(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	const Gantry__Admin__DoorOpen *open = q->door_open;
	struct gantry_tenant *t = find(a, open->tenant, true, r);
	uint64_t bytes = open->size_bytes ? open->size_bytes->value : 0;

	if (!t)
		return;
	if (open->peer) {
		if (gantry_drain_end_one(t, open->peer->value) < 0)
			no_machine(r, open->peer->value, open->tenant);
		return;
	}
	if (bytes && (!gantry_is_pow2(bytes) || bytes < GANTRY_CONFIG_IVSHMEM_MIN))
		gantry_answer_fail(
			r, GANTRY_ADMIN_USAGE,
			"the size must be a power of two, as PCI wants it, of at least 8M");
	else if (bytes > t->conf.ivshmem_bytes)
		gantry_answer_fail(r, GANTRY_ADMIN_QUOTA,
				   "tenant %.40s may have %llu bytes for a machine (ivshmem_size)",
				   open->tenant, (unsigned long long)t->conf.ivshmem_bytes);
	else
		gantry_drain_end(t, bytes);
}
