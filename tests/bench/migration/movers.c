/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two movers and nothing else: what a session's pages cost between them, by the clock and in processor time, apart from agents,
 * workers and guests. We are both agents.
 *
 *   bench-movers MOVER CERTIFICATES BYTES      CERTIFICATES/north and /south; prints as JSON the first round's bytes a second, and
 *                                              nanoseconds of processor time per byte of the source and of the destination
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/mover/talk.h"
#include "proto/segment.h"

#define NQUEUES	      4u
#define NSLOTS	      16u
#define SEGMENT_BYTES (4u << 20)
#define WAIT_MS	      60000

struct end {
	pid_t pid;
	int sock;
	int fds[3]; /* segment, slab, ledger */
	uint64_t cpu_ns;
};

static uint64_t slab_bytes, first_bytes, first_ns;
static struct end source, destination;

static void fail(const char *what)
{
	fprintf(stderr, "bench-movers: %s\n", what);
	exit(1);
}

/* ---- its memory ---- */

static void make_memory(struct end *e, uint64_t bytes)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_ledger ledger;

	if (gantry_memfd_create("segment", SEGMENT_BYTES, GANTRY_MEMFD_SEALED, &e->fds[0]) < 0 ||
	    gantry_memfd_create("slab", bytes, GANTRY_MEMFD_SEALED, &e->fds[1]) < 0 ||
	    gantry_ledger_create(1, "bench", NQUEUES, NSLOTS, SEGMENT_BYTES, bytes, &ledger,
				 &e->fds[2], &err) < 0)
		fail("no memory");
	gantry_ledger_close(&ledger);
}

static void fill(int fd, uint64_t bytes)
{
	uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (words == MAP_FAILED)
		fail("no memory");
	for (uint64_t i = 0; i < bytes / 8; i++)
		words[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
	(void)munmap(words, bytes);
}

/* ---- movers ---- */

static void start(struct end *e, const char *program, const char *certificates,
		  struct gantry_mover_start *msg, const int *fds, unsigned int nfds)
{
	int socks[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		fail("no socket");
	e->sock = socks[0];
	e->pid = fork();
	if (e->pid == 0) {
		if (dup2(socks[1], 3) == 3)
			execl(program, "gantry-mover", (char *)NULL);
		_exit(127);
	}
	(void)gantry_fd_close(socks[1]);
	msg->msg = (struct gantry_mover_msg){ .magic = GANTRY_MOVER_MAGIC,
					      .kind = GANTRY_MOVER_START };
	if (gantry_str_format(msg->certificates, sizeof(msg->certificates), "%s/%s", certificates,
			      msg->own_host) < 0 ||
	    gantry_fd_send(e->sock, msg, sizeof(*msg), fds, nfds, 0) < 0)
		fail("a mover does not start");
}

static struct gantry_mover_start blank(uint32_t role, const char *name)
{
	struct gantry_mover_start msg = { .role = role, .uid = getuid(), .gid = getgid() };

	(void)gantry_str_copy(msg.own_host, sizeof(msg.own_host), name); /* it fits */
	return msg;
}

static void connect_both(const char *program, const char *certificates, uint64_t bytes)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct gantry_mover_start msg = blank(GANTRY_MOVER_SEND, "north");
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sock;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&addr, len) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) < 0)
		fail("no socket");
	msg.port = ntohs(addr.sin_port);
	msg.rounds_max = 1;
	(void)gantry_str_copy(msg.host, sizeof(msg.host), "127.0.0.1"); /* it fits */
	msg.session = (struct gantry_image_session){
		.ledger_version = GANTRY_LEDGER_VERSION,
		.wire_version = GANTRY_WIRE_VERSION_MAX,
		.nqueues = NQUEUES,
		.nslots = NSLOTS,
		.segment_bytes = SEGMENT_BYTES,
		.slab_bytes = bytes,
		.tenant = "bench",
	};
	start(&source, program, certificates, &msg, source.fds, 3);
	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock < 0)
		fail("the source does not connect");
	(void)gantry_fd_close(listener);
	msg = blank(GANTRY_MOVER_RECEIVE, "south");
	start(&destination, program, certificates, &msg, &sock, 1);
	(void)gantry_fd_close(sock);
}

/* Of all its threads, also of those that have ended. */
static uint64_t cpu_of(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		fail("no processor time");
	return (uint64_t)t.tv_sec * GANTRY_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- the agents ---- */

static void answer(const struct end *e, const struct gantry_mover_msg *in, uint32_t kind)
{
	struct gantry_mover_msg msg = { .magic = GANTRY_MOVER_MAGIC, .kind = kind };
	bool gives = kind == GANTRY_MOVER_ACCEPT;

	memcpy(msg.token, in->token, sizeof(msg.token));
	msg.value[0] = gives ? slab_bytes : 0; /* what it may have */
	if (gantry_fd_send(e->sock, &msg, sizeof(msg), gives ? e->fds : NULL, gives ? 3 : 0, 0) < 0)
		fail("a mover is gone");
}

static void note_round(const struct gantry_mover_msg *msg)
{
	if (!msg->code || msg->round != 0)
		return;
	first_bytes = msg->value[0];
	first_ns = msg->value[3];
	source.cpu_ns = cpu_of(source.pid) - source.cpu_ns;
	destination.cpu_ns = cpu_of(destination.pid) - destination.cpu_ns;
}

static void said(struct end *e, const struct gantry_mover_msg *msg)
{
	static const struct {
		uint32_t kind, answer;
	} answers[] = {
		{ GANTRY_MOVER_SESSION, GANTRY_MOVER_ACCEPT },
		{ GANTRY_MOVER_FREEZE, GANTRY_MOVER_FROZEN },
		{ GANTRY_MOVER_ARRIVED, GANTRY_MOVER_PREPARED },
		{ GANTRY_MOVER_PREPARED, GANTRY_MOVER_COMMIT },
		{ GANTRY_MOVER_COMMIT, GANTRY_MOVER_OWNED },
		{ GANTRY_MOVER_OWNED, GANTRY_MOVER_FORGET },
	};

	if (msg->kind == GANTRY_MOVER_FAILED)
		fail(msg->text);
	if (msg->kind == GANTRY_MOVER_PROGRESS)
		note_round(msg);
	if (msg->kind == GANTRY_MOVER_SESSION) { /* the first round begins */
		source.cpu_ns = cpu_of(source.pid);
		destination.cpu_ns = cpu_of(destination.pid);
	}
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (answers[i].kind == msg->kind)
			answer(e, msg, answers[i].answer);
}

/* false: it has ended. */
static bool hear(struct end *e)
{
	struct gantry_mover_session in;
	ssize_t n = gantry_fd_recv(e->sock, &in, sizeof(in), NULL, 0, NULL, 0);

	if (n >= (ssize_t)sizeof(in.msg)) {
		said(e, &in.msg);
		return true;
	}
	e->sock = gantry_fd_close(e->sock);
	(void)waitpid(e->pid, NULL, 0);
	return false;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		fail("MOVER CERTIFICATES BYTES");
	slab_bytes = strtoull(argv[3], NULL, 10);
	make_memory(&source, slab_bytes);
	make_memory(&destination, slab_bytes);
	fill(source.fds[1], slab_bytes);
	connect_both(argv[1], argv[2], slab_bytes);
	while (source.sock >= 0 || destination.sock >= 0) {
		struct pollfd p[2] = { { .fd = source.sock, .events = POLLIN },
				       { .fd = destination.sock, .events = POLLIN } };

		if (poll(p, 2, WAIT_MS) <= 0)
			fail("a mover says nothing");
		if (p[0].revents)
			(void)hear(&source);
		if (p[1].revents)
			(void)hear(&destination);
	}
	if (first_ns == 0)
		fail("there was no first round");
	printf("{\"bytes_per_s\": %.0f, \"source_ns_per_byte\": %.3f, \"destination_ns_per_byte\": "
	       "%.3f}\n",
	       (double)first_bytes * 1e9 / (double)first_ns,
	       (double)source.cpu_ns / (double)first_bytes,
	       (double)destination.cpu_ns / (double)first_bytes);
	return 0;
}
