/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/control/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fd.h"

int gantry_packet_send(int sock, const ProtobufCMessage *msg, const int *fds, unsigned int nfds)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	_cleanup_free_ uint8_t *buf = NULL;
	ssize_t n;

	if (len > GANTRY_PACKET_MAX_BYTES || nfds > GANTRY_PACKET_MAX_FDS)
		return -EMSGSIZE;
	buf = malloc(len + 1);
	if (!buf)
		return -ENOMEM;
	(void)protobuf_c_message_pack(msg, buf); /* writes what get_packed_size() said */
	n = gantry_fd_send(sock, buf, len, fds, nfds, 0);
	return n < 0 ? (int)n : 0;
}

static void close_all(const int *fds, unsigned int nfds)
{
	for (unsigned int i = 0; i < nfds; i++)
		gantry_fd_close(fds[i]);
}

int gantry_packet_recv(int sock, const ProtobufCMessageDescriptor *desc, int *fds,
		       unsigned int max_fds, ProtobufCMessage **ret_msg, unsigned int *ret_nfds)
{
	_cleanup_free_ uint8_t *buf = malloc(GANTRY_PACKET_MAX_BYTES);
	int got[GANTRY_PACKET_MAX_FDS];
	ProtobufCMessage *msg;
	unsigned int ngot = 0;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	n = gantry_fd_recv(sock, buf, GANTRY_PACKET_MAX_BYTES, got, GANTRY_PACKET_MAX_FDS, &ngot,
			   0);
	if (n < 0)
		return (int)n;
	if (n == 0) {
		close_all(got, ngot);
		return -ENODATA;
	}
	if (ngot > max_fds) {
		close_all(got, ngot);
		return -EPROTO;
	}
	msg = protobuf_c_message_unpack(desc, NULL, (size_t)n, buf);
	if (!msg) {
		close_all(got, ngot);
		return -EPROTO;
	}
	if (ngot > 0)
		memcpy(fds, got, ngot * sizeof(int));
	*ret_nfds = ngot;
	*ret_msg = msg;
	return 0;
}
