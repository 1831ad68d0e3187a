/* SPDX-License-Identifier: Apache-2.0 */
/* A mover's connection: what goes in bulk arrives as it was sent, no later than it is said to have gone. Arguments: deploy/make-certificates. */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/str.h"
#include "host-agent/mover/tls.h"
#include "tests/unit/runner.h"

#define TIME_NS	 (20 * GANTRY_NS_PER_S)
#define MUCH	 (6u << 20)
#define A_RECORD (16u << 10)
#define SOCK_BUF (64 << 10) /* far less than is gathered */

static char folder[] = "/tmp/gantry-tls-XXXXXX";
static bool has_certificates;

struct pair {
	int socks[2];
	struct gantry_tls *north, *south; /* a client and a server */
};

static struct gantry_tls *new_end(bool is_server)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_tls *t = NULL;
	char path[64];

	(void)gantry_str_format(path, sizeof(path), "%s/%s", folder,
				is_server ? "south" : "north"); /* it fits */
	ck_assert_msg(gantry_tls_new(path, is_server, &t, &err) == 0, "%s", err.text);
	return t;
}

static void *serve(void *arg)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct pair *p = arg;

	ck_assert_msg(gantry_tls_open(p->south, p->socks[1], "", TIME_NS, &err) == 0, "%s",
		      err.text);
	return NULL;
}

static void open_pair(struct pair *p, bool is_bulk)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int size = SOCK_BUF;
	pthread_t thread;

	if (!has_certificates)
		gantry_unit_skip("openssl makes the certificates, and is missing");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->socks), 0);
	ck_assert_int_eq(setsockopt(p->socks[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	p->north = new_end(false);
	p->south = new_end(true);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, p), 0);
	ck_assert_msg(gantry_tls_open(p->north, p->socks[0], "south", TIME_NS, &err) == 0, "%s",
		      err.text);
	(void)pthread_join(thread, NULL);
	if (is_bulk) {
		ck_assert_int_eq(gantry_tls_set_bulk(p->north), 0);
		ck_assert_int_eq(gantry_tls_set_bulk(p->south), 0);
	}
}

static void close_pair(struct pair *p)
{
	gantry_tls_free(p->north);
	gantry_tls_free(p->south);
	close(p->socks[0]);
	close(p->socks[1]);
}

static bool is_readable(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + i / A_RECORD);
}

/* Pieces of all sizes, and now and then all that has gone so far is to be there. */
static void *send_much(void *arg)
{
	struct pair *p = arg;
	uint8_t *data = malloc(MUCH);
	size_t n;

	for (size_t i = 0; i < MUCH; i++)
		data[i] = byte_at(i);
	for (size_t at = 0, round = 1; at < MUCH; at += n, round++) {
		n = GANTRY_MIN((size_t)MUCH - at, round * 7919 % (5 * A_RECORD) + 1);
		ck_assert_int_eq(round % 16 ? gantry_tls_send_more(p->north, data + at, n)
					    : gantry_tls_send(p->north, data + at, n),
				 0);
	}
	ck_assert_int_eq(gantry_tls_flush(p->north), 0);
	free(data);
	return NULL;
}

static void check_bytes(const uint8_t *data, size_t at, size_t n)
{
	size_t i = 0;

	while (i < n && data[i] == byte_at(at + i))
		i++;
	ck_assert_msg(i == n, "byte %zu is another", at + i);
}

START_TEST(test_tls_much_arrives_in_order_in_bulk_and_without)
{
	static uint8_t data[3 * A_RECORD];
	struct pair p;
	pthread_t thread;
	size_t at = 0;

	open_pair(&p, _i);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_much, &p), 0);
	while (at < MUCH) {
		int64_t n = gantry_tls_recv(p.south, data, sizeof(data), TIME_NS);

		ck_assert_int_gt(n, 0);
		check_bytes(data, at, (size_t)n);
		at += (size_t)n;
	}
	(void)pthread_join(thread, NULL);
	ck_assert_uint_eq(at, MUCH);
	ck_assert(!gantry_tls_has_more(p.south));
	close_pair(&p);
}
END_TEST

START_TEST(test_tls_packets_arrive_in_order_in_bulk_and_without)
{
	struct pair p;
	pthread_t thread;
	size_t at = 0;

	open_pair(&p, _i);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_much, &p), 0);
	while (at < MUCH) {
		struct gantry_tls_packet *packet = NULL;
		const void *data = NULL;
		int64_t n = gantry_tls_recv_packet(p.south, &packet, &data, TIME_NS);

		ck_assert_int_gt(n, 0);
		check_bytes(data, at, (size_t)n);
		at += (size_t)n;
		gantry_tls_packet_free(packet);
	}
	(void)pthread_join(thread, NULL);
	close_pair(&p);
}
END_TEST

START_TEST(test_tls_send_more_in_bulk_waits_for_flush)
{
	char got[8];
	struct pair p;

	open_pair(&p, true);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	ck_assert(!is_readable(p.socks[1]));
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), 0), -ETIMEDOUT);
	ck_assert_int_eq(gantry_tls_flush(p.north), 0);
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), 3);
	ck_assert_mem_eq(got, "one", 3);
	/* Nothing is there to go. */
	ck_assert_int_eq(gantry_tls_flush(p.north), 0);
	ck_assert(!is_readable(p.socks[1]));
	close_pair(&p);
}
END_TEST

START_TEST(test_tls_send_more_without_bulk_goes_at_once)
{
	char got[8];
	struct pair p;

	open_pair(&p, false);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), 3);
	close_pair(&p);
}
END_TEST

/* What TLS itself says, such as goodbye, does not overtake what waits. */
START_TEST(test_tls_bye_goes_behind_what_was_gathered)
{
	char got[8];
	struct pair p;

	open_pair(&p, true);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	gantry_tls_bye(p.north);
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), 3);
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), -ECONNRESET);
	close_pair(&p);
}
END_TEST

START_TEST(test_tls_has_more_tells_of_what_was_taken_ahead)
{
	char got[8];
	struct pair p;

	open_pair(&p, true);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	ck_assert_int_eq(gantry_tls_send(p.north, "other", 5), 0);
	ck_assert(!gantry_tls_has_more(p.south)); /* the socket shows it */
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), 3);
	ck_assert(!is_readable(p.socks[1]));
	ck_assert(gantry_tls_has_more(p.south));
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), 0), 5);
	ck_assert_mem_eq(got, "other", 5);
	ck_assert(!gantry_tls_has_more(p.south));
	close_pair(&p);
}
END_TEST

START_TEST(test_tls_flush_to_nobody_says_so)
{
	struct pair p;

	open_pair(&p, true);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	close(p.socks[1]);
	p.socks[1] = dup(p.socks[0]); /* for close_pair() */
	ck_assert_int_eq(gantry_tls_flush(p.north), -ECONNRESET);
	ck_assert_int_eq(gantry_tls_send(p.north, "two", 3), -ECONNRESET);
	close_pair(&p);
}
END_TEST

/* A peer that alters a record is found out, though much was taken ahead of it. */
START_TEST(test_tls_altered_record_in_bulk_is_refused)
{
	uint8_t bytes[256];
	struct pair p;
	ssize_t n;
	int through[2];

	open_pair(&p, true);
	ck_assert_int_eq(gantry_tls_send_more(p.north, "one", 3), 0);
	ck_assert_int_eq(gantry_tls_send(p.north, "other", 5), 0);
	n = recv(p.socks[1], bytes, sizeof(bytes), 0);
	ck_assert_int_gt(n, 0);
	bytes[n - 1] ^= 1;
	/* South reads what we say that came. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, through), 0);
	ck_assert_int_eq(dup2(through[0], p.socks[1]), p.socks[1]);
	ck_assert_int_eq(send(through[1], bytes, (size_t)n, 0), n);
	ck_assert_int_eq(gantry_tls_recv(p.south, bytes, sizeof(bytes), TIME_NS), 3);
	ck_assert_int_eq(gantry_tls_recv(p.south, bytes, sizeof(bytes), TIME_NS), -EPROTO);
	close(through[0]);
	close(through[1]);
	close_pair(&p);
}
END_TEST

/* A client that is not ours, with a session of its own. */
static gnutls_session_t shake_hands(struct pair *p,
				    gnutls_certificate_credentials_t *ret_credentials)
{
	gnutls_session_t session;
	char path[3][64];
	pthread_t thread;
	int r;

	for (int i = 0; i < 3; i++)
		(void)gantry_str_format(path[i], sizeof(path[i]), "%s/north/%s.pem", folder,
					(const char *[]){ "ca", "cert", "key" }[i]); /* it fits */
	ck_assert_int_eq(gnutls_certificate_allocate_credentials(ret_credentials), 0);
	ck_assert_int_eq(gnutls_certificate_set_x509_key_file(*ret_credentials, path[1], path[2],
							      GNUTLS_X509_FMT_PEM),
			 0);
	ck_assert_int_eq(gnutls_init(&session, GNUTLS_CLIENT), 0);
	ck_assert_int_eq(gnutls_set_default_priority(session), 0);
	ck_assert_int_eq(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, *ret_credentials),
			 0);
	gnutls_transport_set_int(session, p->socks[0]);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, p), 0);
	do {
		r = gnutls_handshake(session);
	} while (r < 0 && !gnutls_error_is_fatal(r));
	ck_assert_int_eq(r, 0);
	(void)pthread_join(thread, NULL);
	return session;
}

/* New keys come with data behind them, all of which the end had read when it had dealt with the keys. */
START_TEST(test_tls_data_behind_new_keys_is_seen_though_the_socket_is_empty)
{
	gnutls_certificate_credentials_t credentials;
	gnutls_session_t client;
	struct pair p = { 0 };
	char got[8];

	if (!has_certificates)
		gantry_unit_skip("openssl makes the certificates, and is missing");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p.socks), 0);
	p.south = new_end(true);
	client = shake_hands(&p, &credentials);
	if (_i)
		ck_assert_int_eq(gantry_tls_set_bulk(p.south), 0);
	ck_assert_int_eq(gnutls_session_key_update(client, 0), 0);
	ck_assert_int_eq(gnutls_record_send(client, "one", 3), 3);
	ck_assert_int_eq(gantry_tls_recv(p.south, got, sizeof(got), TIME_NS), 3);
	ck_assert_mem_eq(got, "one", 3);
	gnutls_deinit(client);
	gnutls_certificate_free_credentials(credentials);
	close_pair(&p);
}
END_TEST

static bool make_certificates(const char *program)
{
	char command[512];

	return program && mkdtemp(folder) &&
	       gantry_str_format(command, sizeof(command), "'%s' %s north south >/dev/null 2>&1",
				 program, folder) == 0 &&
	       system(command) == 0;
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("tls");
	TCase *tc = gantry_unit_case(suite, "tls");
	char command[64];
	int r;

	has_certificates = make_certificates(argc > 1 ? argv[1] : NULL);
	tcase_add_loop_test(tc, test_tls_much_arrives_in_order_in_bulk_and_without, 0, 2);
	tcase_add_loop_test(tc, test_tls_packets_arrive_in_order_in_bulk_and_without, 0, 2);
	tcase_add_test(tc, test_tls_send_more_in_bulk_waits_for_flush);
	tcase_add_test(tc, test_tls_send_more_without_bulk_goes_at_once);
	tcase_add_test(tc, test_tls_bye_goes_behind_what_was_gathered);
	tcase_add_test(tc, test_tls_has_more_tells_of_what_was_taken_ahead);
	tcase_add_test(tc, test_tls_flush_to_nobody_says_so);
	tcase_add_test(tc, test_tls_altered_record_in_bulk_is_refused);
	tcase_add_loop_test(tc, test_tls_data_behind_new_keys_is_seen_though_the_socket_is_empty, 0,
			    2);
	r = gantry_unit_run(suite);
	if (gantry_str_format(command, sizeof(command), "rm -rf %s", folder) == 0)
		(void)system(command); /* else it stays in /tmp */
	return r;
}
