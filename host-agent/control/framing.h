/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf messages on a stream: each is its length as 4 bytes little-endian, then the message. How
 * gantryctl and peers talk to the agent.
 *
 * Trust: the peer's length is input: a frame longer than the receiver's cap ends the connection.
 * Threads: any. Blocking: gantry_frame_send() and gantry_frame_recv() wait, until a deadline; the
 * others never.
 */
#ifndef GANTRY_HOST_AGENT_CONTROL_FRAMING_H
#define GANTRY_HOST_AGENT_CONTROL_FRAMING_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#define GANTRY_FRAME_HEADER_BYTES      4u
#define GANTRY_FRAME_REQUEST_MAX_BYTES (64u * 1024u)
#define GANTRY_FRAME_REPLY_MAX_BYTES   (16u * 1024u * 1024u)

/* @msg as a frame in malloc'd memory, the caller's. -ENOMEM; -EMSGSIZE: longer than @max_bytes. */
int gantry_frame_pack(const ProtobufCMessage *msg, size_t max_bytes, uint8_t **ret_frame,
		      size_t *ret_len);

/*
 * Whether @len bytes received so far hold a whole frame. 0 and the message's length (the message
 * starts
 * GANTRY_FRAME_HEADER_BYTES in); -EAGAIN: not yet; -EMSGSIZE: it will be longer than @max_bytes.
 */
int gantry_frame_peek(const void *data, size_t len, size_t max_bytes, size_t *ret_body_len);

/* Send @msg. 0, -ETIMEDOUT at @deadline_ns (CLOCK_MONOTONIC), or -errno. */
int gantry_frame_send(int sock, const ProtobufCMessage *msg, uint64_t deadline_ns);

/*
 * Receive a message of type @desc; the caller frees it with protobuf_c_message_free_unpacked(). 0;
 * -ENODATA: the peer closed between frames; -EPROTO: garbage, or it closed inside one; -EMSGSIZE;
 * -ETIMEDOUT; other -errno.
 */
int gantry_frame_recv(int sock, const ProtobufCMessageDescriptor *desc, size_t max_bytes,
		      uint64_t deadline_ns, ProtobufCMessage **ret_msg);

#endif
