/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that does not exist, for tests of gantryctl: fake-agent SOCKET MODE [DOORS]
 *
 * Answers the admin or the peer protocol with the samples of tests/unit/ctl, or misbehaves as MODE says. Prints
 * "ready" once it listens, then each change it was asked for. Ends when its standard input does.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/control/framing.h"
#include "tests/unit/ctl/samples.h"

#define REQUEST_DEADLINE_NS (10 * (int64_t)GANTRY_NS_PER_S)

static const struct {
	const char *mode;
	int code;
	const char *text;
} refusals[] = {
	{ "failed", 1, "it did not work" },
	{ "notfound", 3, "there is no such thing" },
	{ "denied", 4, "changes need group gantry-admin or root" },
	{ "quota", 6, "the tenant has no memory left" },
	{ "busy", 7, "the device has work" },
	{ "unsupported", 8, "this agent cannot do that" },
	{ "timeout", 124, "the worker did not answer" },
	{ "oddcode", 77, "a code of the future" },
	{ "rude", 1, "line one\nline two \033[31m" },
};

/* Modes whose whole answer is these bytes. */
static const struct {
	const char *mode;
	const char *bytes;
	size_t len;
} nonsense[] = {
	{ "garbage", "HTTP/1.1 400 Bad Request\r\n\r\n", 28 },
	{ "junk", "\x08\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 12 },
	{ "huge", "\xff\xff\xff\xff", 4 },
	{ "short", "\x64\x00\x00\x00half", 8 },
	{ "close", "", 0 },
};

static void send_reply(int sock, const ProtobufCMessage *reply, const char *mode)
{
	uint8_t *frame;
	size_t len;

	if (strcmp(mode, "slow") != 0) {
		(void)gantry_frame_send(sock, reply,
					gantry_deadline_ns(REQUEST_DEADLINE_NS)); /* a test of us */
		return;
	}
	if (gantry_frame_pack(reply, GANTRY_FRAME_REPLY_MAX_BYTES, &frame, &len) < 0)
		return;
	for (size_t i = 0; i < len; i++)
		if (send(sock, frame + i, 1, MSG_NOSIGNAL) != 1)
			break;
	free(frame);
}

static void say_change(const Gantry__Admin__AdminRequest *request)
{
	switch (request->body_case) {
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_DEVICE_SET:
		printf("device %s %u\n", request->device_set->name, request->device_set->state);
		break;
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_CREATE:
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_SET: {
		const Gantry__Admin__TenantSet *set = request->tenant_set;

		printf("tenant %s mem=%" PRId64 " weight=%" PRId64 " priority=%" PRId64
		       " deadline=%" PRId64 " devices=%s\n",
		       set->name, set->mem_bytes ? (int64_t)set->mem_bytes->value : -1,
		       set->weight ? (int64_t)set->weight->value : -1,
		       set->priority ? set->priority->value : -1,
		       set->deadline_ns ? (int64_t)set->deadline_ns->value : -1, set->devices);
		break;
	}
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_REMOVE:
		printf("remove %s\n", request->tenant_remove->name);
		break;
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_SESSION_KICK:
		printf("kick %" PRIu64 " %s\n", request->session_kick->session_id,
		       request->session_kick->reason);
		break;
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_QUEUE_SET:
		printf("queue %" PRIu64 ":%u paused=%d\n", request->queue_set->session_id,
		       request->queue_set->slot,
		       request->queue_set->paused ? (int)request->queue_set->paused->value : -1);
		break;
	default:
		printf("change %d\n", (int)request->body_case);
	}
	fflush(stdout);
}

static void send_events(int sock, const Gantry__Admin__AdminRequest *request,
			Gantry__Admin__AdminReply *reply)
{
	for (size_t i = 0; i < gantry_sample_nevents; i++) {
		reply->body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_EVENT;
		reply->event = gantry_sample_events[i];
		send_reply(sock, &reply->base, "");
	}
	reply->body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY__NOT_SET;
	if (request->events->once)
		send_reply(sock, &reply->base, "");
}

static void answer(int sock, const Gantry__Admin__AdminRequest *request, const char *mode)
{
	Gantry__Admin__AdminReply reply = GANTRY__ADMIN__ADMIN_REPLY__INIT;

	reply.tag = strcmp(mode, "wrongtag") == 0 ? request->tag + 1 : request->tag;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (strcmp(mode, refusals[i].mode) == 0) {
			reply.code = refusals[i].code;
			reply.text = (char *)refusals[i].text;
			send_reply(sock, &reply.base, mode);
			return;
		}
	if (request->body_case == GANTRY__ADMIN__ADMIN_REQUEST__BODY_EVENTS) {
		send_events(sock, request, &reply);
		return;
	}
	if (gantry_sample_reply(strcmp(mode, "wrongbody") == 0
					? GANTRY__ADMIN__ADMIN_REQUEST__BODY_STATS
					: (int)request->body_case,
				&reply) < 0)
		say_change(request);
	send_reply(sock, &reply.base, mode);
}

static void serve_admin(int sock, const char *mode)
{
	ProtobufCMessage *message;

	while (gantry_frame_recv(sock, &gantry__admin__admin_request__descriptor,
				 GANTRY_FRAME_REQUEST_MAX_BYTES,
				 gantry_deadline_ns(REQUEST_DEADLINE_NS), &message) == 0) {
		answer(sock, (Gantry__Admin__AdminRequest *)message, mode);
		protobuf_c_message_free_unpacked(message, NULL);
	}
}

static void answer_peer(int sock, const Gantry__Peer__Peer *request, const char *mode)
{
	Gantry__Peer__InventoryReply inventory = GANTRY__PEER__INVENTORY_REPLY__INIT;
	Gantry__Peer__Refuse refuse = GANTRY__PEER__REFUSE__INIT;
	Gantry__Peer__Hello hello = GANTRY__PEER__HELLO__INIT;
	Gantry__Peer__Peer reply = GANTRY__PEER__PEER__INIT;

	reply.tag = request->tag;
	if (strcmp(mode, "peer-refuse") == 0) {
		refuse.text = (char *)"no common protocol version";
		reply.body_case = GANTRY__PEER__PEER__BODY_REFUSE;
		reply.refuse = &refuse;
	} else if (request->body_case == GANTRY__PEER__PEER__BODY_HELLO) {
		hello.protocol_min = hello.protocol_max = 1;
		hello.agent = (char *)"0.1.0";
		hello.host = (char *)"elsewhere";
		reply.body_case = GANTRY__PEER__PEER__BODY_HELLO;
		reply.hello = &hello;
	} else {
		inventory.n_devices = gantry_sample_npeer_devices;
		inventory.devices = (Gantry__Peer__Device **)gantry_sample_peer_devices;
		reply.body_case = GANTRY__PEER__PEER__BODY_INVENTORY_REPLY;
		reply.inventory_reply = &inventory;
	}
	send_reply(sock, &reply.base, mode);
}

static void serve_peer(int sock, const char *mode)
{
	ProtobufCMessage *message;

	while (gantry_frame_recv(sock, &gantry__peer__peer__descriptor,
				 GANTRY_FRAME_REQUEST_MAX_BYTES,
				 gantry_deadline_ns(REQUEST_DEADLINE_NS), &message) == 0) {
		answer_peer(sock, (Gantry__Peer__Peer *)message, mode);
		protobuf_c_message_free_unpacked(message, NULL);
	}
}

/* The request is read first: closing a socket with unread bytes would reset the connection. */
static void serve_nonsense(int sock, const char *bytes, size_t len)
{
	char request[4096];

	if (recv(sock, request, sizeof(request), 0) > 0 && len > 0)
		(void)!send(sock, bytes, len, MSG_NOSIGNAL);
}

static void serve(int sock, const char *mode)
{
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
		if (strcmp(mode, nonsense[i].mode) == 0) {
			serve_nonsense(sock, nonsense[i].bytes, nonsense[i].len);
			return;
		}
	if (strcmp(mode, "silent") == 0) {
		struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };

		poll(&pfd, 1, -1);
	} else if (strncmp(mode, "peer", 4) == 0) {
		serve_peer(sock, mode);
	} else {
		serve_admin(sock, mode);
	}
}

int main(int argc, char **argv)
{
	struct pollfd pfds[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .events = POLLIN } };
	int r;

	if (argc < 3)
		return 2;
	if (argc > 3)
		gantry_sample_doors(argv[3]);
	r = gantry_unix_listen(argv[1], SOCK_STREAM, 0600, &pfds[1].fd);
	if (r < 0) {
		printf("cannot listen: %s\n", strerror(-r));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (poll(pfds, 2, -1) >= 0 || errno == EINTR) {
		if (pfds[0].revents)
			break;
		if (pfds[1].revents && strcmp(argv[2], "deaf") != 0) {
			int sock = accept(pfds[1].fd, NULL, NULL);

			if (sock >= 0) {
				serve(sock, argv[2]);
				close(sock);
			}
		} else if (pfds[1].revents) {
			/* Deaf: connections wait in the backlog for ever. */
			pfds[1].fd = ~pfds[1].fd;
		}
	}
	unlink(argv[1]);
	return 0;
}
