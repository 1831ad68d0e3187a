/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a byte that chooses the message type; then a frame, whose contents also go alone as a packet. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin.pb-c.h"
#include "base/fd.h"
#include "host-agent/control/framing.h"
#include "host-agent/control/packet.h"
#include "peer.pb-c.h"
#include "tests/fuzz/fuzz.h"
#include "worker.pb-c.h"

static const ProtobufCMessageDescriptor *const types[] = {
	&gantry__admin__admin_request__descriptor, &gantry__admin__admin_reply__descriptor,
	&gantry__peer__peer__descriptor,	   &gantry__worker__to_worker__descriptor,
	&gantry__worker__from_worker__descriptor,
};

/* What was understood can be said again. */
static void say_again(const ProtobufCMessage *msg)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *frame = NULL;
	size_t frame_len = 0, body_len = 0;

	if (gantry_frame_pack(msg, GANTRY_FRAME_REPLY_MAX_BYTES, &frame, &frame_len) < 0)
		return; /* unpacking shares substrings: what comes out may be longer than what went in */
	assert(frame_len == len + GANTRY_FRAME_HEADER_BYTES);
	assert(gantry_frame_peek(frame, frame_len, GANTRY_FRAME_REPLY_MAX_BYTES, &body_len) == 0);
	assert(body_len == len);
	free(frame);
}

static void try_frame(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len)
{
	size_t body_len = 0;
	int r = gantry_frame_peek(data, len, GANTRY_FRAME_REQUEST_MAX_BYTES, &body_len);
	ProtobufCMessage *msg;

	assert(r == 0 || r == -EAGAIN || r == -EMSGSIZE);
	if (r < 0)
		return;
	assert(body_len <= GANTRY_FRAME_REQUEST_MAX_BYTES);
	assert(body_len <= len - GANTRY_FRAME_HEADER_BYTES);
	msg = protobuf_c_message_unpack(type, NULL, body_len, data + GANTRY_FRAME_HEADER_BYTES);
	if (!msg)
		return;
	say_again(msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static void try_packet(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len)
{
	int pair[2], fds[GANTRY_PACKET_MAX_FDS];
	unsigned int nfds = 0;
	ProtobufCMessage *msg = NULL;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	if (gantry_fd_send(pair[0], data, len, NULL, 0, 0) == (ssize_t)len &&
	    gantry_packet_recv(pair[1], type, fds, GANTRY_PACKET_MAX_FDS, &msg, &nfds) == 0) {
		assert(nfds == 0);
		say_again(msg);
		protobuf_c_message_free_unpacked(msg, NULL);
	}
	close(pair[0]);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const ProtobufCMessageDescriptor *type;

	if (len < 1)
		return 0;
	type = types[data[0] % (sizeof(types) / sizeof(types[0]))];
	try_frame(type, data + 1, len - 1);
	if (len > 1 + GANTRY_FRAME_HEADER_BYTES)
		try_packet(type, data + 1 + GANTRY_FRAME_HEADER_BYTES,
			   len - 1 - GANTRY_FRAME_HEADER_BYTES);
	return 0;
}
