/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other agents, on RUNDIR/peer.sock: Hello both ways, Refuse without a common version, the host's
 * devices.
 */
#include "host-agent/agent/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/stream.h"
#include "host-agent/control/framing.h"
#include "host-agent/shared/share.h"
#include "peer.pb-c.h"

#define PEER_PROTOCOL_MIN 1u
#define PEER_PROTOCOL_MAX 1u
#define MAX_CONNS	  16u
#define TIMEOUT_S	  30

struct peer_conn {
	struct gantry_stream_conn base;
	bool greeted;
};

static void send_message(struct peer_conn *c, const Gantry__Peer__Peer *msg)
{
	gantry_stream_send(&c->base, &msg->base);
}

static void refuse(struct peer_conn *c, uint64_t tag, const char *text)
{
	Gantry__Peer__Peer msg = GANTRY__PEER__PEER__INIT;
	Gantry__Peer__Refuse body = GANTRY__PEER__REFUSE__INIT;

	body.text = (char *)(uintptr_t)text;
	msg.tag = tag;
	msg.body_case = GANTRY__PEER__PEER__BODY_REFUSE;
	msg.refuse = &body;
	send_message(c, &msg);
	gantry_stream_end(&c->base);
}

static void greet(struct peer_conn *c, const Gantry__Peer__Peer *q)
{
	Gantry__Peer__Peer msg = GANTRY__PEER__PEER__INIT;
	Gantry__Peer__Hello hello = GANTRY__PEER__HELLO__INIT;
	char host[256] = "", text[128];

	if (q->hello->protocol_min > PEER_PROTOCOL_MAX ||
	    q->hello->protocol_max < PEER_PROTOCOL_MIN) {
		(void)gantry_str_format(
			text, sizeof(text),
			"this agent speaks peer protocol %u to %u, the other %u to %u",
			PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX, q->hello->protocol_min,
			q->hello->protocol_max); /* it fits */
		refuse(c, q->tag, text);
		return;
	}
	(void)gethostname(host, sizeof(host) - 1); /* for people */
	c->greeted = true;
	hello.protocol_min = PEER_PROTOCOL_MIN;
	hello.protocol_max = PEER_PROTOCOL_MAX;
	hello.agent = (char *)(uintptr_t)gantry_build_version;
	hello.host = host;
	msg.tag = q->tag;
	msg.body_case = GANTRY__PEER__PEER__BODY_HELLO;
	msg.hello = &hello;
	send_message(c, &msg);
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = {
		[GANTRY_DEVICE_ENABLED] = "enabled",
		[GANTRY_DEVICE_DISABLED] = "disabled",
		[GANTRY_DEVICE_DRAINING] = "draining",
		[GANTRY_DEVICE_FAILED] = "failed",
	};

	return names[state];
}

static void fill_device(Gantry__Peer__Device *msg, struct gantry_agent_device *d)
{
	gantry__peer__device__init(msg);
	msg->name = d->conf.name;
	msg->kind = (char *)(uintptr_t)(d->kind ? gantry_kind_name((int)d->kind) : d->conf.backend);
	msg->state = (char *)(uintptr_t)state_name(d->state);
	msg->lanes = d->lanes;
	msg->mem_bytes = d->mem_bytes;
	msg->mem_used = gantry_load_relaxed(&d->page->hdr.mem_used);
}

static void answer_inventory(struct peer_conn *c, uint64_t tag)
{
	struct gantry_agent *a = gantry_stream_agent(&c->base);
	Gantry__Peer__Peer msg = GANTRY__PEER__PEER__INIT;
	Gantry__Peer__InventoryReply reply = GANTRY__PEER__INVENTORY_REPLY__INIT;
	Gantry__Peer__Device devices[GANTRY_AGENT_MAX_DEVICES];
	Gantry__Peer__Device *list[GANTRY_AGENT_MAX_DEVICES];

	for (uint32_t i = 0; i < a->ndevices; i++) {
		if (!a->devices[i].used)
			continue;
		list[reply.n_devices] = &devices[reply.n_devices];
		fill_device(&devices[reply.n_devices++], &a->devices[i]);
	}
	reply.devices = list;
	msg.tag = tag;
	msg.body_case = GANTRY__PEER__PEER__BODY_INVENTORY_REPLY;
	msg.inventory_reply = &reply;
	send_message(c, &msg);
}

static void serve(struct gantry_stream_conn *base, const ProtobufCMessage *msg)
{
	const Gantry__Peer__Peer *q = (const Gantry__Peer__Peer *)msg;
	struct peer_conn *c = (struct peer_conn *)base;

	if (!c->greeted && q->body_case == GANTRY__PEER__PEER__BODY_HELLO)
		greet(c, q);
	else if (!c->greeted)
		refuse(c, q->tag, "the first message must be Hello");
	else if (q->body_case == GANTRY__PEER__PEER__BODY_INVENTORY)
		answer_inventory(c, q->tag);
	else
		refuse(c, q->tag, "this agent does not know that message");
}

static void refuse_garbage(struct gantry_stream_conn *c, const char *text)
{
	(void)text;
	refuse((struct peer_conn *)c, 0, "what came is no message of a peer");
}

/* Until hosts speak TLS here, a peer is a program of root's or of the agent's own user. */
static bool admit(struct gantry_stream_conn *c)
{
	return c->uid == 0 || c->uid == geteuid();
}

/* ---- start and stop ---- */

static const struct gantry_stream_ops ops = {
	.what = "the peer socket",
	.kept = "l/@peer",
	.conn_bytes = sizeof(struct peer_conn),
	.in_max = GANTRY_FRAME_REQUEST_MAX_BYTES,
	.conns_max = MAX_CONNS,
	.idle_s = TIMEOUT_S,
	.write_s = TIMEOUT_S,
	.admit = admit,
	.desc = &gantry__peer__peer__descriptor,
	.serve = serve,
	.garbage = refuse_garbage,
};

int gantry_peers_start(struct gantry_agent *a, struct gantry_err *err)
{
	char path[GANTRY_AGENT_PATH];
	int r = gantry_agent_run_path(a, path, sizeof(path), "peer.sock", err);

	return r < 0 ? r : gantry_stream_open(a, &ops, path, 0600, a, &a->peers, err);
}

void gantry_peers_stop(struct gantry_agent *a)
{
	gantry_stream_close(a->peers);
	a->peers = NULL;
}
