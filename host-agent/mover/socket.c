/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/array.h"

bool gantry_socket_is_near(uint32_t rtt_us)
{
	return rtt_us > 0 && rtt_us <= GANTRY_SOCKET_NEAR_US;
}

static bool is_near(int sock)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(sock, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       gantry_socket_is_near(info.tcpi_rtt);
}

static void set(int sock, int level, int name, int value)
{
	(void)setsockopt(sock, level, name, &value, sizeof(value)); /* see the header */
}

void gantry_socket_prepare(int sock)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		/* A host that is gone without a word is noticed within half a minute, also where nothing is to be said for long. */
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 10 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 5 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(options); i++)
		set(sock, options[i].level, options[i].name, options[i].value);
	if (is_near(sock))
		set(sock, SOL_SOCKET, SO_SNDBUF, GANTRY_SOCKET_BYTES);
}
