/* SPDX-License-Identifier: Apache-2.0 */
/* peer ping: the handshake of peer.proto, and the devices behind it. */
#include <inttypes.h>

#include "base/clock.h"
#include "host-agent/control/framing.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"
#include "peer.pb-c.h"

#define PEER_PROTOCOL 1u

static void peer_freep(Gantry__Peer__Peer **message)
{
	if (*message)
		gantry__peer__peer__free_unpacked(*message, NULL);
}

/* Send @message, receive the answer. One that closes at once may have said why: that is read. */
static int ask(struct gantry_ctl *ctl, int sock, uint64_t deadline_ns,
	       const Gantry__Peer__Peer *message, Gantry__Peer__Peer **ret_answer)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	ProtobufCMessage *answer;
	int r = gantry_frame_send(sock, &message->base, deadline_ns);

	if (r != -ETIMEDOUT)
		r = gantry_frame_recv(sock, &gantry__peer__peer__descriptor,
				      GANTRY_FRAME_REPLY_MAX_BYTES, deadline_ns, &answer);
	if (r < 0)
		return gantry_ctl_fail_client(ctl, gantry_client_explain(r, &err), &err);
	*ret_answer = (Gantry__Peer__Peer *)answer;
	return 0;
}

static int say_hello(struct gantry_ctl *ctl, int sock, uint64_t deadline_ns,
		     Gantry__Peer__Peer **ret_hello)
{
	_cleanup_(peer_freep) Gantry__Peer__Peer *answer = NULL;
	Gantry__Peer__Hello hello = GANTRY__PEER__HELLO__INIT;
	Gantry__Peer__Peer message = GANTRY__PEER__PEER__INIT;
	int r;

	hello.protocol_min = PEER_PROTOCOL;
	hello.protocol_max = PEER_PROTOCOL;
	hello.agent = (char *)GANTRY_VERSION;
	hello.host = (char *)"gantryctl";
	message.body_case = GANTRY__PEER__PEER__BODY_HELLO;
	message.hello = &hello;
	r = ask(ctl, sock, deadline_ns, &message, &answer);
	if (r)
		return r;
	if (answer->body_case == GANTRY__PEER__PEER__BODY_REFUSE)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNSUPPORTED, "the peer refuses: %s",
				       answer->refuse->text);
	if (answer->body_case != GANTRY__PEER__PEER__BODY_HELLO)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "the peer does not say hello; is that a peer socket?");
	*ret_hello = GANTRY_TAKE_PTR(answer);
	return 0;
}

static int ask_inventory(struct gantry_ctl *ctl, int sock, uint64_t deadline_ns,
			 Gantry__Peer__Peer **ret_answer)
{
	_cleanup_(peer_freep) Gantry__Peer__Peer *answer = NULL;
	Gantry__Peer__Inventory inventory = GANTRY__PEER__INVENTORY__INIT;
	Gantry__Peer__Peer message = GANTRY__PEER__PEER__INIT;
	int r;

	message.tag = 1;
	message.body_case = GANTRY__PEER__PEER__BODY_INVENTORY;
	message.inventory = &inventory;
	r = ask(ctl, sock, deadline_ns, &message, &answer);
	if (r)
		return r;
	if (answer->body_case != GANTRY__PEER__PEER__BODY_INVENTORY_REPLY)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNSUPPORTED,
				       "the peer does not tell its devices");
	*ret_answer = GANTRY_TAKE_PTR(answer);
	return 0;
}

int gantry_ctl_peer_ping(struct gantry_ctl *ctl)
{
	_cleanup_(peer_freep) Gantry__Peer__Peer *hello = NULL, *inventory = NULL;
	_cleanup_(gantry_client_closep) struct gantry_client *client = NULL;
	uint64_t deadline_ns = gantry_ctl_deadline(ctl);
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t start_ns, rtt_ns;
	json_object *object;
	int r;

	ctl->socket_path = ctl->args[0];
	r = gantry_client_open(ctl->args[0], deadline_ns, &client, &err);
	if (r < 0)
		return gantry_ctl_fail_client(ctl, r, &err);
	r = say_hello(ctl, gantry_client_fd(client), deadline_ns, &hello);
	if (r)
		return r;
	start_ns = gantry_now_ns();
	r = ask_inventory(ctl, gantry_client_fd(client), deadline_ns, &inventory);
	if (r)
		return r;
	rtt_ns = gantry_now_ns() - start_ns;
	if (!ctl->json) {
		fprintf(ctl->out,
			"host %s, agent %s, protocol %u to %u, answered in %" PRIu64 " us\n",
			hello->hello->host, hello->hello->agent, hello->hello->protocol_min,
			hello->hello->protocol_max, (uint64_t)(rtt_ns / GANTRY_NS_PER_US));
		return gantry_print_table(ctl, ctl->out, &gantry_peer_device_fields,
					  (const void *const *)inventory->inventory_reply->devices,
					  inventory->inventory_reply->n_devices);
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object, "host", json_object_new_string(hello->hello->host));
	json_object_object_add(object, "agent", json_object_new_string(hello->hello->agent));
	json_object_object_add(object, "protocol_min",
			       json_object_new_uint64(hello->hello->protocol_min));
	json_object_object_add(object, "protocol_max",
			       json_object_new_uint64(hello->hello->protocol_max));
	json_object_object_add(object, "rtt_ns", json_object_new_uint64(rtt_ns));
	json_object_object_add(
		object, "devices",
		gantry_print_json_array(&gantry_peer_device_fields,
					(const void *const *)inventory->inventory_reply->devices,
					inventory->inventory_reply->n_devices));
	return gantry_ctl_json_print(ctl, object);
}
