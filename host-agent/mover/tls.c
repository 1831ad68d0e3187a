/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/str.h"

#define SEND_STALL_NS (30 * GANTRY_NS_PER_S)
#define RECORD_MAX    (17u << 10) /* of 16 KiB, with what TLS adds */
#define BULK_BYTES \
	(128u << 10) /* a call of the kernel; what is gathered stays in a processor's cache */
#define PRIORITY \
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305"

struct gantry_tls {
	gnutls_session_t session;
	gnutls_certificate_credentials_t credentials;
	bool is_server;
	bool is_open;
	bool has_more; /* records that go now may wait for those that follow */
	int sock;
	int watch;
	/* In bulk, else NULL; owned. */
	uint8_t *out; /* records that have not gone, [out_at, out_end) */
	size_t out_at, out_end;
	uint8_t *in; /* what came and was not read, [in_at, in_end) */
	size_t in_at, in_end;
};

GANTRY_DEFINE_CLEANUP(struct gantry_tls *, gantry_tls_free);

/* ---- the socket: calls that the confinement lists ---- */

static ssize_t put_socket(const struct gantry_tls *t, const void *data, size_t len)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	const struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return sendmsg(t->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t take_socket(const struct gantry_tls *t, void *data, size_t len)
{
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return recvmsg(t->sock, &msg, MSG_DONTWAIT);
}

/* What was gathered: 0 once all has gone, else -1 with errno. */
static int put_gathered(struct gantry_tls *t)
{
	while (t->out_at < t->out_end) {
		ssize_t n = put_socket(t, t->out + t->out_at, t->out_end - t->out_at);

		if (n < 0)
			return -1;
		t->out_at += (size_t)n;
	}
	t->out_at = t->out_end = 0;
	return 0;
}

static ssize_t push(gnutls_transport_ptr_t ptr, const void *data, size_t len)
{
	struct gantry_tls *t = ptr;
	bool waits = t->out && t->has_more && len <= RECORD_MAX;
	ssize_t n = 0;

	if (!waits || BULK_BYTES - t->out_end < len) /* in order */
		n = put_gathered(t);
	if (n == 0 && waits) {
		memcpy(t->out + t->out_end, data, len);
		t->out_end += len;
		n = (ssize_t)len;
	} else if (n == 0) {
		n = put_socket(t, data, len);
	}
	if (n < 0)
		gnutls_transport_set_errno(t->session, errno);
	return n;
}

/* GnuTLS asks for five bytes, then for a record. */
static ssize_t take_ahead(struct gantry_tls *t, void *data, size_t len)
{
	ssize_t n;

	if (t->in_at == t->in_end) {
		n = take_socket(t, t->in, BULK_BYTES);
		if (n <= 0)
			return n;
		t->in_at = 0;
		t->in_end = (size_t)n;
	}
	len = GANTRY_MIN(len, t->in_end - t->in_at);
	memcpy(data, t->in + t->in_at, len);
	t->in_at += len;
	return (ssize_t)len;
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *data, size_t len)
{
	struct gantry_tls *t = ptr;
	ssize_t n = t->in ? take_ahead(t, data, len) : take_socket(t, data, len);

	if (n < 0)
		gnutls_transport_set_errno(t->session, errno);
	return n;
}

static int pull_timeout(gnutls_transport_ptr_t ptr, unsigned int ms)
{
	const struct gantry_tls *t = ptr;
	struct pollfd p = { .fd = t->sock, .events = POLLIN };

	if (t->in_at < t->in_end)
		return 1;
	return poll(&p, 1, ms == GNUTLS_INDEFINITE_TIMEOUT ? -1 : (int)ms);
}

/* Until the socket has room or something; -EINTR: the watched one has. */
static int wait_for(const struct gantry_tls *t, short events, int watch, uint64_t deadline_ns)
{
	struct pollfd p[2] = { { .fd = t->sock, .events = events },
			       { .fd = watch, .events = POLLIN } };
	int n;

	do {
		n = poll(p, 2, gantry_deadline_poll_ms(deadline_ns));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ETIMEDOUT;
	return p[0].revents ? 0 : -EINTR;
}

/* ---- life ---- */

static int load(struct gantry_tls *t, const char *folder, struct gantry_err *err)
{
	static const char *const names[] = { "ca.pem", "cert.pem", "key.pem" };
	char path[3][512];
	int r;

	for (int i = 0; i < 3; i++) {
		if (gantry_str_format(path[i], sizeof(path[i]), "%s/%s", folder, names[i]) < 0)
			return gantry_err_set(err, -ENAMETOOLONG, "%s is too long", folder);
		if (access(path[i], R_OK) < 0)
			return gantry_err_set_errno(err, -errno, "the certificates: %s", path[i]);
	}
	r = gnutls_certificate_set_x509_trust_file(t->credentials, path[0], GNUTLS_X509_FMT_PEM);
	if (r <= 0)
		return gantry_err_set(err, -EINVAL, "%s holds no certificate of an authority",
				      path[0]);
	r = gnutls_certificate_set_x509_key_file(t->credentials, path[1], path[2],
						 GNUTLS_X509_FMT_PEM);
	if (r < 0)
		return gantry_err_set(err, -EINVAL, "%s and %s: %s", path[1], path[2],
				      gnutls_strerror(r));
	return 0;
}

int gantry_tls_new(const char *folder, bool is_server, struct gantry_tls **ret_tls,
		   struct gantry_err *err)
{
	_cleanup_(gantry_tls_freep) struct gantry_tls *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return gantry_err_set(err, -ENOMEM, "no memory for a connection");
	t->sock = t->watch = -EBADF;
	t->is_server = is_server;
	if (gnutls_certificate_allocate_credentials(&t->credentials) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory for certificates");
	r = load(t, folder, err);
	if (r < 0)
		return r;
	r = gnutls_init(&t->session, (is_server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK |
					     GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS);
	if (r == 0)
		r = gnutls_priority_set_direct(t->session, PRIORITY, NULL);
	if (r == 0)
		r = gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE, t->credentials);
	if (r < 0)
		return gantry_err_set(err, -EINVAL, "TLS: %s", gnutls_strerror(r));
	if (is_server)
		gnutls_certificate_server_set_request(t->session, GNUTLS_CERT_REQUIRE);
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_push_function(t->session, push);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	*ret_tls = GANTRY_TAKE_PTR(t);
	return 0;
}

void gantry_tls_free(struct gantry_tls *t)
{
	if (!t)
		return;
	if (t->session)
		gnutls_deinit(t->session);
	if (t->credentials)
		gnutls_certificate_free_credentials(t->credentials);
	free(t->out);
	free(t->in);
	free(t);
}

void gantry_tls_watch(struct gantry_tls *t, int fd)
{
	t->watch = fd;
}

/* ---- the handshake ---- */

/* Of what is to be part of a sentence: without its own end. */
static int sentence_bytes(const char *text)
{
	size_t len = strlen(text);

	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '.' || text[len - 1] == '\n'))
		len--;
	return (int)len;
}

static int explain_certificate(const struct gantry_tls *t, const char *host, struct gantry_err *err)
{
	unsigned int status = gnutls_session_get_verify_cert_status(t->session);
	gnutls_datum_t text = { 0 };
	const char *whose = t->is_server ? "the other host" : host;

	if (status & GNUTLS_CERT_UNEXPECTED_OWNER)
		return gantry_err_set(err, -EACCES,
				      "the certificate there is another host's, not %s's", host);
	if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) < 0)
		return gantry_err_set(err, -EACCES, "the certificate of %s is not good", whose);
	(void)gantry_err_set(err, -EACCES, "the certificate of %s: %.*s", whose,
			     sentence_bytes((const char *)text.data), (const char *)text.data);
	gnutls_free(text.data);
	return -EACCES;
}

static int explain(const struct gantry_tls *t, int r, const char *host, struct gantry_err *err)
{
	if (r == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
		return explain_certificate(t, host, err);
	if (r == GNUTLS_E_NO_CERTIFICATE_FOUND || r == GNUTLS_E_CERTIFICATE_REQUIRED)
		return gantry_err_set(err, -EACCES, "the other host showed no certificate");
	if (r == GNUTLS_E_FATAL_ALERT_RECEIVED)
		return gantry_err_set(err, -EACCES, "the other host does not want us: %s",
				      gnutls_alert_get_name(gnutls_alert_get(t->session)));
	if (r == GNUTLS_E_UNSUPPORTED_VERSION_PACKET || r == GNUTLS_E_UNEXPECTED_PACKET ||
	    r == GNUTLS_E_UNEXPECTED_PACKET_LENGTH || r == GNUTLS_E_RECORD_OVERFLOW)
		return gantry_err_set(err, -EPROTO, "what answers there does not speak TLS 1.3");
	return gantry_err_set(err, -ECONNRESET, "the handshake: %s", gnutls_strerror(r));
}

int gantry_tls_open(struct gantry_tls *t, int sock, const char *host, uint64_t timeout_ns,
		    struct gantry_err *err)
{
	uint64_t deadline_ns = gantry_now_ns() + timeout_ns;
	int r;

	t->sock = sock;
	gnutls_session_set_verify_cert(t->session, t->is_server ? NULL : host, 0);
	for (;;) {
		int w;

		r = gnutls_handshake(t->session);
		if (r == GNUTLS_E_SUCCESS)
			break;
		if (r != GNUTLS_E_AGAIN && r != GNUTLS_E_INTERRUPTED) {
			if (gnutls_error_is_fatal(r)) {
				/* So that the other side can say why too. */
				(void)gnutls_alert_send_appropriate(t->session, r);
				return explain(t, r, host, err);
			}
			continue;
		}
		w = wait_for(t, gnutls_record_get_direction(t->session) ? POLLOUT : POLLIN, -1,
			     deadline_ns);
		if (w < 0)
			return gantry_err_set_errno(err, w, "the handshake");
	}
	t->is_open = true;
	return 0;
}

bool gantry_tls_peer_is(struct gantry_tls *t, const char *host)
{
	unsigned int n = 0;
	const gnutls_datum_t *certs = gnutls_certificate_get_peers(t->session, &n);
	gnutls_x509_crt_t crt;
	bool is = false;

	if (!certs || n == 0 || gnutls_x509_crt_init(&crt) < 0)
		return false;
	if (gnutls_x509_crt_import(crt, &certs[0], GNUTLS_X509_FMT_DER) == 0)
		is = gnutls_x509_crt_check_hostname(crt, host) != 0;
	gnutls_x509_crt_deinit(crt);
	return is;
}

/* ---- bytes ---- */

int gantry_tls_set_bulk(struct gantry_tls *t)
{
	t->out = t->out ? t->out : malloc(BULK_BYTES);
	t->in = t->in ? t->in : malloc(BULK_BYTES);
	return t->out && t->in ? 0 : -ENOMEM;
}

bool gantry_tls_has_more(const struct gantry_tls *t)
{
	return t->in_at < t->in_end || gnutls_record_check_pending(t->session) > 0;
}

static int wait_for_room(const struct gantry_tls *t)
{
	return wait_for(t, POLLOUT, -1, gantry_now_ns() + SEND_STALL_NS);
}

static int send_records(struct gantry_tls *t, const uint8_t *p, size_t len)
{
	while (len > 0) {
		ssize_t n = gnutls_record_send(t->session, p, len);

		while (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED) {
			int w = wait_for_room(t);

			if (w < 0)
				return w;
			n = gnutls_record_send(t->session, NULL, 0); /* what it kept */
		}
		if (n < 0)
			return -ECONNRESET;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int gantry_tls_send_more(struct gantry_tls *t, const void *data, size_t len)
{
	int r;

	if (gantry_failpoint_io(GANTRY_FAILPOINT_LINK_SEND) < 0)
		return -ECONNRESET;
	t->has_more = true;
	r = send_records(t, data, len);
	t->has_more = false;
	return r;
}

int gantry_tls_flush(struct gantry_tls *t)
{
	int r = 0;

	while (r == 0 && put_gathered(t) < 0)
		r = errno == EINTR ? 0 : errno == EAGAIN ? wait_for_room(t) : -ECONNRESET;
	return r;
}

int gantry_tls_send(struct gantry_tls *t, const void *data, size_t len)
{
	int r = gantry_tls_send_more(t, data, len);

	return r < 0 ? r : gantry_tls_flush(t);
}

/* Into @data, or, where that is NULL, as a packet of its own. */
static int64_t receive(struct gantry_tls *t, void *data, size_t cap, gnutls_packet_t *ret_packet,
		       uint64_t timeout_ns)
{
	uint64_t deadline_ns = gantry_now_ns() + timeout_ns;

	if (gantry_failpoint_io(GANTRY_FAILPOINT_LINK_RECEIVE) < 0)
		return -ECONNRESET;
	for (;;) {
		ssize_t n = data ? gnutls_record_recv(t->session, data, cap)
				 : gnutls_record_recv_packet(t->session, ret_packet);
		int w;

		if (n > 0)
			return n;
		if (n == 0 || n == GNUTLS_E_PREMATURE_TERMINATION)
			return -ECONNRESET;
		if (n != GNUTLS_E_AGAIN && n != GNUTLS_E_INTERRUPTED) {
			if (n == GNUTLS_E_FATAL_ALERT_RECEIVED)
				return -EACCES;
			if (gnutls_error_is_fatal((int)n))
				return n == GNUTLS_E_PULL_ERROR ? -ECONNRESET : -EPROTO;
			continue;
		}
		/* What TLS said for itself, new keys say, was no data; behind it some may have come that the socket does not show. */
		if (t->in_at < t->in_end)
			continue;
		w = wait_for(t, POLLIN, t->watch, deadline_ns);
		if (w < 0)
			return w;
	}
}

int64_t gantry_tls_recv(struct gantry_tls *t, void *data, size_t cap, uint64_t timeout_ns)
{
	return receive(t, data, cap, NULL, timeout_ns);
}

int64_t gantry_tls_recv_packet(struct gantry_tls *t, struct gantry_tls_packet **ret_packet,
			       const void **ret_data, uint64_t timeout_ns)
{
	gnutls_packet_t packet = NULL;
	gnutls_datum_t datum = { 0 };
	int64_t n = receive(t, NULL, 0, &packet, timeout_ns);

	if (n < 0)
		return n;
	gnutls_packet_get(packet, &datum, NULL);
	*ret_packet = (struct gantry_tls_packet *)packet;
	*ret_data = datum.data;
	return (int64_t)datum.size;
}

void gantry_tls_packet_free(struct gantry_tls_packet *packet)
{
	if (packet)
		gnutls_packet_deinit((gnutls_packet_t)packet);
}

void gantry_tls_bye(struct gantry_tls *t)
{
	if (t->is_open)
		(void)gnutls_bye(t->session,
				 GNUTLS_SHUT_WR); /* the other side sees an end either way */
}
