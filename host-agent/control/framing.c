/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/control/framing.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"

static void put_length(uint8_t *p, uint32_t len)
{
	p[0] = (uint8_t)len;
	p[1] = (uint8_t)(len >> 8);
	p[2] = (uint8_t)(len >> 16);
	p[3] = (uint8_t)(len >> 24);
}

static uint32_t get_length(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int gantry_frame_pack(const ProtobufCMessage *msg, size_t max_bytes, uint8_t **ret_frame,
		      size_t *ret_len)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *frame;

	if (len > max_bytes || len > UINT32_MAX)
		return -EMSGSIZE;
	frame = malloc(GANTRY_FRAME_HEADER_BYTES + len);
	if (!frame)
		return -ENOMEM;
	put_length(frame, (uint32_t)len);
	(void)protobuf_c_message_pack(msg, frame + GANTRY_FRAME_HEADER_BYTES); /* len, as above */
	*ret_frame = frame;
	*ret_len = GANTRY_FRAME_HEADER_BYTES + len;
	return 0;
}

int gantry_frame_peek(const void *data, size_t len, size_t max_bytes, size_t *ret_body_len)
{
	size_t body_len;

	if (len < GANTRY_FRAME_HEADER_BYTES)
		return -EAGAIN;
	body_len = get_length(data);
	if (body_len > max_bytes)
		return -EMSGSIZE;
	if (len - GANTRY_FRAME_HEADER_BYTES < body_len)
		return -EAGAIN;
	*ret_body_len = body_len;
	return 0;
}

static int wait_for(int sock, short events, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = sock, .events = events };
	int r;

	do {
		r = poll(&pfd, 1, gantry_deadline_poll_ms(deadline_ns));
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	return r == 0 ? -ETIMEDOUT : 0;
}

int gantry_frame_send(int sock, const ProtobufCMessage *msg, uint64_t deadline_ns)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t len, off = 0;
	int r = gantry_frame_pack(msg, GANTRY_FRAME_REPLY_MAX_BYTES, &frame, &len);

	if (r < 0)
		return r;
	while (off < len) {
		ssize_t n;

		r = wait_for(sock, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
		n = send(sock, frame + off, len - off, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0)
			off += (size_t)n;
	}
	return 0;
}

/* Exactly @len bytes. -ENODATA: the end came before the first of them; -EPROTO: after it. */
static int recv_exactly(int sock, uint8_t *buf, size_t len, uint64_t deadline_ns)
{
	size_t off = 0;

	while (off < len) {
		ssize_t n;
		int r = wait_for(sock, POLLIN, deadline_ns);

		if (r < 0)
			return r;
		n = recv(sock, buf + off, len - off, MSG_DONTWAIT);
		if (n == 0)
			return off == 0 ? -ENODATA : -EPROTO;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0)
			off += (size_t)n;
	}
	return 0;
}

int gantry_frame_recv(int sock, const ProtobufCMessageDescriptor *desc, size_t max_bytes,
		      uint64_t deadline_ns, ProtobufCMessage **ret_msg)
{
	uint8_t header[GANTRY_FRAME_HEADER_BYTES];
	_cleanup_free_ uint8_t *body = NULL;
	ProtobufCMessage *msg;
	size_t len;
	int r = recv_exactly(sock, header, sizeof(header), deadline_ns);

	if (r < 0)
		return r;
	len = get_length(header);
	if (len > max_bytes)
		return -EMSGSIZE;
	body = malloc(len + 1);
	if (!body)
		return -ENOMEM;
	r = recv_exactly(sock, body, len, deadline_ns);
	if (r < 0)
		return r == -ENODATA ? -EPROTO : r;
	msg = protobuf_c_message_unpack(desc, NULL, len, body);
	if (!msg)
		return -EPROTO;
	*ret_msg = msg;
	return 0;
}
