/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One protobuf message a packet, with descriptors, over SOCK_SEQPACKET: how agent and worker talk.
 *
 * Trust: the peer's packet is input: bounded, unpacked by protobuf-c, and no descriptor outlives a
 * refused packet.
 * Threads: any, one at a time on a socket. Blocking: as the socket.
 */
#ifndef GANTRY_HOST_AGENT_CONTROL_PACKET_H
#define GANTRY_HOST_AGENT_CONTROL_PACKET_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#define GANTRY_PACKET_MAX_BYTES 65536u
#define GANTRY_PACKET_MAX_FDS	128u

/* Exit status of a worker whose context failed; its DeviceFault, if it came through, says more. */
#define GANTRY_WORKER_EXIT_FAULT 75

/*
 * Send @msg with @nfds descriptors, which stay the caller's. 0, -EMSGSIZE: larger than a packet may
 * be; else -errno of sendmsg (-EAGAIN: the peer does not read; -EPIPE: it is gone).
 */
int gantry_packet_send(int sock, const ProtobufCMessage *msg, const int *fds, unsigned int nfds);

/*
 * Receive a message of type @desc. The caller frees *@ret_msg with
 * protobuf_c_message_free_unpacked()
 * and owns fds[0 .. *@ret_nfds). -ENODATA: the peer closed; -EAGAIN: nothing there; -EPROTO: no
 * such
 * message, or more than @max_fds descriptors; -EMSGSIZE: too long. After a failure no descriptor is
 * left.
 */
int gantry_packet_recv(int sock, const ProtobufCMessageDescriptor *desc, int *fds,
		       unsigned int max_fds, ProtobufCMessage **ret_msg, unsigned int *ret_nfds);

#endif
