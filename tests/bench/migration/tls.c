/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline of migrations: a bare TLS stream with a mover's ciphers, from one process to another over TCP, a record a call as
 * GnuTLS does it, with buffers as the kernel makes them.
 *
 *   bench-tls [--bulk] FOLDER HOST BYTES [LISTENER SENDER]      prints bytes a second, then nanoseconds of processor time per byte of the
 *                                                      sender and of the receiver, handshakes included
 *
 * --bulk: many records a call of the kernel and little in the socket, as movers send and receive them: no baseline, but what they would reach without pages. HOST is an address of this machine. LISTENER, SENDER: files of the network namespaces in which each end is.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "host-agent/mover/socket.h"
#include "host-agent/mover/tls.h"

#define CHUNK	(256u << 10)
#define TIME_NS (60 * GANTRY_NS_PER_S)

static uint8_t chunk[CHUNK];
static bool is_bulk;

static void fail(const char *what)
{
	fprintf(stderr, "bench-tls: %s\n", what);
	_exit(1);
}

static struct gantry_tls *secure(const char *folder, bool is_server, int sock, const char *host)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_tls *t = NULL;
	int one = 1;

	if (is_bulk)
		gantry_socket_prepare(sock);
	else
		(void)setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (gantry_tls_new(folder, is_server, &t, &err) < 0 ||
	    gantry_tls_open(t, sock, host, TIME_NS, &err) < 0)
		fail(err.text);
	if (is_bulk && gantry_tls_set_bulk(t) < 0)
		fail("no memory");
	return t;
}

static void receive(const char *folder, int listener, uint64_t bytes)
{
	int sock = accept(listener, NULL, NULL);
	struct gantry_tls *t = secure(folder, true, sock, "");

	while (bytes > 0) {
		int64_t n = gantry_tls_recv(t, chunk, sizeof(chunk), TIME_NS);

		if (n <= 0)
			fail("the stream ended");
		bytes -= (uint64_t)n < bytes ? (uint64_t)n : bytes;
	}
	if (gantry_tls_send(t, "k", 1) < 0)
		fail("no answer went");
	gantry_tls_free(t);
	_exit(0);
}

static double cpu_ns(int whose)
{
	struct rusage usage;

	if (getrusage(whose, &usage) < 0)
		fail("no processor time");
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

/* A socket stays in the namespace in which it was made. */
static int socket_in(const char *namespace)
{
	int fd = namespace ? open(namespace, O_RDONLY | O_CLOEXEC) : -1;
	int sock;

	if (namespace && (fd < 0 || setns(fd, CLONE_NEWNET) < 0))
		fail("no such network namespace");
	sock = socket(AF_INET, SOCK_STREAM, 0);
	if (sock < 0)
		fail("no socket");
	if (fd >= 0)
		(void)close(fd);
	return sock;
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	uint64_t bytes, start_ns, took_ns;
	struct gantry_tls *t;
	int listener, sock;

	if (argc > 1 && strcmp(argv[1], "--bulk") == 0) {
		is_bulk = true;
		argc--;
		argv++;
	}
	if ((argc != 4 && argc != 6) || inet_pton(AF_INET, argv[2], &addr.sin_addr) != 1)
		fail("[--bulk] FOLDER HOST BYTES [LISTENER SENDER]");
	bytes = strtoull(argv[3], NULL, 10);
	listener = socket_in(argc == 6 ? argv[4] : NULL);
	if (bind(listener, (struct sockaddr *)&addr, len) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) < 0)
		fail("no socket");
	if (fork() == 0)
		receive(argv[1], listener, bytes);
	sock = socket_in(argc == 6 ? argv[5] : NULL);
	if (connect(sock, (struct sockaddr *)&addr, len) < 0)
		fail("no connection");
	t = secure(argv[1], false, sock, argv[2]);
	memset(chunk, 7, sizeof(chunk));
	start_ns = gantry_now_ns();
	for (uint64_t at = 0; at < bytes; at += sizeof(chunk))
		if (gantry_tls_send_more(t, chunk, sizeof(chunk)) < 0)
			fail("the stream broke");
	if (gantry_tls_flush(t) < 0)
		fail("the stream broke");
	if (gantry_tls_recv(t, chunk, 1, TIME_NS) != 1)
		fail("no answer came");
	took_ns = gantry_now_ns() - start_ns;
	gantry_tls_free(t);
	(void)wait(NULL);
	printf("%" PRIu64 " %.3f %.3f\n", (uint64_t)((double)bytes * 1e9 / (double)took_ns),
	       cpu_ns(RUSAGE_SELF) / (double)bytes, cpu_ns(RUSAGE_CHILDREN) / (double)bytes);
	return 0;
}
