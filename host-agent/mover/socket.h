/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection that TLS goes over: what is asked of the kernel for it. All of it is for speed, or so that an end is noticed: where the
 * kernel refuses, the connection does without.
 *
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_SOCKET_H
#define GANTRY_HOST_AGENT_MOVER_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What may wait to go to a near peer. The kernel lets it grow to MiB while the peer is the slower side, and then each byte is written to
 * memory and read from there again; so little stays in a processor's cache. For a round trip of GANTRY_SOCKET_NEAR_US it is enough for 2 GB/s,
 * which no stream of TLS reaches, and every machine allows it (net.core.wmem_max as it comes).
 */
#define GANTRY_SOCKET_BYTES   (208u << 10)
#define GANTRY_SOCKET_NEAR_US 100u

/* Of a round trip as it was when the connection was made; 0: nobody knows. */
bool gantry_socket_is_near(uint32_t rtt_us);

/* Once it is connected, before much goes over it. */
void gantry_socket_prepare(int sock);

#endif
