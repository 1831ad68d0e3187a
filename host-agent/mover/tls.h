/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TLS 1.3 connection with certificates of both sides, through GnuTLS. The only file that includes it is tls.c.
 *
 * Trust: the peer is nobody until gantry_tls_open() has returned. Threads: one. Blocking: every call, as long as
 * its time limit says; a descriptor that is watched beside (->watch_fd) ends the wait.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_TLS_H
#define GANTRY_HOST_AGENT_MOVER_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gantry_tls;

/*
 * Reads ca.pem, cert.pem and key.pem of @folder. -ENOENT, -EACCES, -EINVAL with a sentence. Before confinement: it
 * opens files.
 */
int gantry_tls_new(const char *folder, bool is_server, struct gantry_tls **ret_tls,
		   struct gantry_err *err);
void gantry_tls_free(struct gantry_tls *t);

/*
 * The handshake over @sock, which stays the caller's. A client wants a certificate for @host. -EACCES: the
 * certificates are not good, and the sentence says whose and why; -ETIMEDOUT; -ECONNRESET.
 */
int gantry_tls_open(struct gantry_tls *t, int sock, const char *host, uint64_t timeout_ns,
		    struct gantry_err *err);

/* Whether the peer's certificate is for @host. */
bool gantry_tls_peer_is(struct gantry_tls *t, const char *host);

/*
 * Watched while waiting: when it is readable, a call that can go no further returns -EINTR and may be called again.
 * Negative: nothing.
 */
void gantry_tls_watch(struct gantry_tls *t, int fd);

/*
 * From now on much goes at once: records are gathered where more is said to follow, and what has come is taken ahead of who reads, 128 KiB a call
 * of the kernel instead of a record. -ENOMEM: all goes on as before.
 */
int gantry_tls_set_bulk(struct gantry_tls *t);
/* Whether something has come that the socket does not show any more. */
bool gantry_tls_has_more(const struct gantry_tls *t);

/* All of it. -ECONNRESET, -ETIMEDOUT (nothing went for as long as the limit). Not interrupted by the watched one. */
int gantry_tls_send(struct gantry_tls *t, const void *data, size_t len);
/* The same, but that in bulk some of it may wait for what follows, or for flush(), whose result then says whether it went. */
int gantry_tls_send_more(struct gantry_tls *t, const void *data, size_t len);
int gantry_tls_flush(struct gantry_tls *t);
/* Something: how many bytes. -EINTR, -ECONNRESET (the end, too), -ETIMEDOUT after @timeout_ns, -EACCES: the peer does
 * not take our certificate, which a client learns only now; -EPROTO. */
int64_t gantry_tls_recv(struct gantry_tls *t, void *data, size_t cap, uint64_t timeout_ns);
/*
 * The same without a copy: *@ret_data are that many bytes, which lie in *@ret_packet, the caller's until gantry_tls_packet_free(), on
 * this thread.
 */
struct gantry_tls_packet;
int64_t gantry_tls_recv_packet(struct gantry_tls *t, struct gantry_tls_packet **ret_packet,
			       const void **ret_data, uint64_t timeout_ns);
void gantry_tls_packet_free(struct gantry_tls_packet *packet);
/* Says goodbye, so that the other side can tell an end from a cut. */
void gantry_tls_bye(struct gantry_tls *t);

#endif
