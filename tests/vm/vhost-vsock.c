/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of a machine's vsock device, for tests: real AF_VSOCK between QEMU's guest and Unix stream sockets of
 * this host, whatever the host's kernel can. A hypervisor such as Firecracker does the same.
 *
 *   vhost-vsock SOCKET CID PORT=PATH... PATH=CID:PORT...
 *
 * listens at SOCKET for one QEMU (-device vhost-user-vsock-pci, memory shared), gives its guest the CID, and connects each
 * connection of the guest to CID 2, PORT to the Unix stream socket PATH. With PATH=CID:PORT it also listens at PATH, and
 * connects who comes there to the guest's PORT, as a machine with that CID. Prints "ready" when it listens; ends with QEMU.
 * SIGUSR1 resets all connections, as a migration of the machine does.
 *
 * One thread; nothing waits but poll(). What a guest may have on the way is bounded by the credit it was given.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "vhost.h"

#define RX	   0u /* to the guest */
#define TX	   1u /* from the guest */
#define NPORTS	   8u
#define NDOORS	   4u
#define FIRST_PORT 100000u /* of those that come in by a door */
#define NCONNS	   64u
#define NREPLIES   256u
#define BUF_BYTES  (256u << 10) /* that a guest may have on the way on one connection */
#define PACKET_MAX (64u << 10)
#define HOST_CID   2u

/* ---- formats ---- */

enum vsock_op {
	OP_REQUEST = 1,
	OP_RESPONSE = 2,
	OP_RST = 3,
	OP_SHUTDOWN = 4,
	OP_RW = 5,
	OP_CREDIT_UPDATE = 6,
	OP_CREDIT_REQUEST = 7,
};
#define TYPE_STREAM   1u
#define SHUTDOWN_RECV 1u
#define SHUTDOWN_SEND 2u

struct __attribute__((packed)) header {
	uint64_t src_cid;
	uint64_t dst_cid;
	uint32_t src_port;
	uint32_t dst_port;
	uint32_t bytes;
	uint16_t type;
	uint16_t op;
	uint32_t flags;
	uint32_t buf_alloc;
	uint32_t fwd_cnt;
};

/* ---- state ---- */

struct conn {
	bool is_opening; /* we said REQUEST */
	bool is_ending;	 /* we said SHUTDOWN; the guest's RST is awaited */
	bool is_leaving; /* the guest said SHUTDOWN; what it sent goes first */
	uint32_t guest_port;
	uint32_t host_port;
	uint64_t host_cid;
	int fd;
	uint32_t peer_alloc; /* what the guest takes, and has taken */
	uint32_t peer_taken;
	uint32_t sent;
	uint32_t taken; /* bytes of the guest's that went to the socket */
	uint32_t told;	/* of which it knows */
	uint32_t begin; /* of what is held */
	uint32_t held;
	uint8_t buf[BUF_BYTES];
};

struct port {
	uint32_t number;
	const char *path;
};

struct door {
	int listener;
	uint64_t cid; /* whose its connections are, for the guest */
	uint32_t port;
};

static struct {
	int qemu;
	uint64_t cid;
	struct port ports[NPORTS];
	uint32_t nports;
	struct door doors[NDOORS];
	uint32_t ndoors;
	uint32_t next_port;
	struct conn *conns[NCONNS];
	struct header replies[NREPLIES]; /* without data, for when the guest has room */
	uint32_t nreplies;
} v;

static volatile sig_atomic_t reset_asked;

/* ---- packets to the guest ---- */

static struct header header_for(const struct conn *c, uint16_t op, uint32_t bytes)
{
	return (struct header){
		.src_cid = c->host_cid,
		.dst_cid = v.cid,
		.src_port = c->host_port,
		.dst_port = c->guest_port,
		.bytes = bytes,
		.type = TYPE_STREAM,
		.op = op,
		.buf_alloc = BUF_BYTES,
		.fwd_cnt = c->taken,
	};
}

static void send_replies(void)
{
	struct queue *q = vhost_queue(RX);
	uint32_t n = 0;

	while (n < v.nreplies && has_buffer(q)) {
		uint16_t head = take_buffer(q);

		give_back(q, head,
			  move_chain(q, head, (uint8_t *)&v.replies[n], sizeof(v.replies[n]),
				     true));
		n++;
	}
	memmove(v.replies, v.replies + n, (v.nreplies - n) * sizeof(v.replies[0]));
	v.nreplies -= n;
}

/* tx() takes nothing from the guest while this is nearly full. */
static void reply(const struct header *h)
{
	if (v.nreplies == NREPLIES)
		exit(1);
	v.replies[v.nreplies++] = *h;
}

static void say(struct conn *c, uint16_t op, uint32_t flags)
{
	struct header h = header_for(c, op, 0);

	h.flags = flags;
	c->told = c->taken;
	reply(&h);
}

static void refuse(const struct header *in)
{
	struct header h = {
		.src_cid = in->dst_cid,
		.dst_cid = in->src_cid,
		.src_port = in->dst_port,
		.dst_port = in->src_port,
		.type = in->type,
		.op = OP_RST,
	};

	if (in->op != OP_RST)
		reply(&h);
}

/* ---- connections ---- */

static struct conn *find(const struct header *h)
{
	for (uint32_t i = 0; i < NCONNS; i++) {
		struct conn *c = v.conns[i];

		if (c && c->guest_port == h->src_port && c->host_port == h->dst_port &&
		    c->host_cid == h->dst_cid)
			return c;
	}
	return NULL;
}

static void drop(struct conn *c)
{
	for (uint32_t i = 0; i < NCONNS; i++)
		if (v.conns[i] == c)
			v.conns[i] = NULL;
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

static void drop_all(bool tell)
{
	for (uint32_t i = 0; i < NCONNS; i++) {
		if (!v.conns[i])
			continue;
		if (tell)
			say(v.conns[i], OP_RST, 0);
		drop(v.conns[i]);
	}
}

static int reach(uint32_t number)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd;

	for (uint32_t i = 0; i < v.nports; i++) {
		if (v.ports[i].number != number)
			continue;
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		strncpy(addr.sun_path, v.ports[i].path, sizeof(addr.sun_path) - 1);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* A place for a connection; NULL: there is none. */
static struct conn *new_conn(void)
{
	for (uint32_t i = 0; i < NCONNS; i++)
		if (!v.conns[i]) {
			v.conns[i] = calloc(1, sizeof(*v.conns[i]));
			return v.conns[i];
		}
	return NULL;
}

static void open_conn(const struct header *h)
{
	struct conn *c = new_conn();

	if (c)
		c->fd = reach(h->dst_port);
	if (!c || c->fd < 0) {
		if (c)
			drop(c);
		refuse(h);
		return;
	}
	c->guest_port = h->src_port;
	c->host_port = h->dst_port;
	c->host_cid = HOST_CID;
	say(c, OP_RESPONSE, 0);
}

/* Somebody of the host comes to the guest. */
static void let_in(const struct door *d)
{
	int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct conn *c = fd >= 0 ? new_conn() : NULL;

	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	c->fd = fd;
	c->guest_port = d->port;
	c->host_port = FIRST_PORT + v.next_port++;
	c->host_cid = d->cid;
	c->is_opening = true;
	say(c, OP_REQUEST, 0);
}

/* What the guest sent goes to the socket as far as that takes it. false: it is broken. */
static bool push(struct conn *c)
{
	while (c->held > 0) {
		uint32_t n = c->held < BUF_BYTES - c->begin ? c->held : BUF_BYTES - c->begin;
		ssize_t r = send(c->fd, c->buf + c->begin, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r < 0)
			return errno == EAGAIN || errno == EINTR;
		c->begin = (c->begin + (uint32_t)r) % BUF_BYTES;
		c->held -= (uint32_t)r;
		c->taken += (uint32_t)r;
	}
	return true;
}

/* The guest is told before it waits for credit in vain. */
static void give_credit(struct conn *c)
{
	if (c->taken - c->told >= BUF_BYTES / 4)
		say(c, OP_CREDIT_UPDATE, 0);
}

static void after_push(struct conn *c, bool good)
{
	if (!good || (c->is_leaving && c->held == 0)) {
		say(c, OP_RST, 0);
		drop(c);
		return;
	}
	give_credit(c);
}

static void hold(struct conn *c, const uint8_t *data, uint32_t bytes)
{
	for (uint32_t done = 0; done < bytes;) {
		uint32_t end = (c->begin + c->held) % BUF_BYTES;
		uint32_t n = bytes - done < BUF_BYTES - end ? bytes - done : BUF_BYTES - end;

		memcpy(c->buf + end, data + done, n);
		c->held += n;
		done += n;
	}
}

static void take_packet(const struct header *h, const uint8_t *data)
{
	struct conn *c = find(h);

	if (h->type != TYPE_STREAM || (!c && (h->op != OP_REQUEST || h->dst_cid != HOST_CID))) {
		refuse(h);
		return;
	}
	if (h->op == OP_REQUEST) {
		if (c)
			drop(c);
		open_conn(h);
		c = find(h);
	}
	if (!c)
		return;
	c->peer_alloc = h->buf_alloc;
	c->peer_taken = h->fwd_cnt;
	if (h->op == OP_RST) {
		drop(c);
	} else if (h->op == OP_RESPONSE) {
		c->is_opening = false;
	} else if (h->op == OP_CREDIT_REQUEST) {
		say(c, OP_CREDIT_UPDATE, 0);
	} else if (h->op == OP_RW && !c->is_ending) {
		if (h->bytes > BUF_BYTES - c->held) {
			say(c, OP_RST, 0);
			drop(c);
			return;
		}
		hold(c, data, h->bytes);
		after_push(c, push(c));
	} else if (h->op == OP_SHUTDOWN && (h->flags & SHUTDOWN_SEND)) {
		c->is_leaving = true;
		after_push(c, push(c));
	}
}

static void tx(void)
{
	static uint8_t buf[sizeof(struct header) + PACKET_MAX];
	struct queue *q = vhost_queue(TX);
	struct header h;

	while (v.nreplies < NREPLIES / 2 && has_buffer(q)) {
		uint16_t head = take_buffer(q);
		uint32_t n = move_chain(q, head, buf, sizeof(buf), false);

		give_back(q, head, 0);
		if (n < sizeof(h))
			continue;
		memcpy(&h, buf, sizeof(h));
		if (h.bytes <= n - sizeof(h))
			take_packet(&h, buf + sizeof(h));
	}
}

/* ---- from the sockets ---- */

static uint32_t credit(const struct conn *c)
{
	uint32_t under_way = c->sent - c->peer_taken;

	return c->peer_alloc > under_way ? c->peer_alloc - under_way : 0;
}

static void pull(struct conn *c)
{
	static uint8_t buf[sizeof(struct header) + PACKET_MAX];
	struct queue *q = vhost_queue(RX);

	while (credit(c) > 0 && v.nreplies == 0 && has_buffer(q)) {
		uint16_t head = next_buffer(q);
		uint32_t room = room_in(q, head) - (uint32_t)sizeof(struct header);
		uint32_t most = room < credit(c) ? room : credit(c);
		struct header h;
		ssize_t n = recv(c->fd, buf + sizeof(h), most < PACKET_MAX ? most : PACKET_MAX,
				 MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			c->is_ending = true;
			say(c, OP_SHUTDOWN, SHUTDOWN_RECV | SHUTDOWN_SEND);
			return;
		}
		h = header_for(c, OP_RW, (uint32_t)n);
		memcpy(buf, &h, sizeof(h));
		(void)take_buffer(q);
		give_back(q, head,
			  move_chain(q, head, buf, (uint32_t)(sizeof(h) + (size_t)n), true));
		c->sent += (uint32_t)n;
		c->told = c->taken;
	}
}

/* ---- the loop ---- */

static void turn(void)
{
	struct pollfd p[1 + NQUEUES + NCONNS + NDOORS] = { { .fd = v.qemu, .events = POLLIN } };
	struct pollfd *doors = &p[1 + NQUEUES + NCONNS];
	bool can_send = has_buffer(vhost_queue(RX)) && v.nreplies == 0;
	uint64_t count;

	for (uint32_t i = 0; i < NQUEUES; i++)
		p[1 + i] = (struct pollfd){ .fd = vhost_queue(i)->kick, .events = POLLIN };
	for (uint32_t i = 0; i < NCONNS; i++) {
		const struct conn *c = v.conns[i];
		struct pollfd *at = &p[1 + NQUEUES + i];

		at->fd = c && !c->is_ending && !c->is_opening ? c->fd : -1;
		at->events = (short)((c && can_send && credit(c) > 0 ? POLLIN : 0) |
				     (c && c->held > 0 ? POLLOUT : 0));
		if (!at->events)
			at->fd = -1; /* a hang-up alone would wake us for ever */
	}
	for (uint32_t i = 0; i < v.ndoors; i++)
		doors[i] = (struct pollfd){ .fd = v.doors[i].listener, .events = POLLIN };
	if (poll(p, 1 + NQUEUES + NCONNS + v.ndoors, -1) < 0 && errno != EINTR)
		die("poll");
	if (reset_asked) {
		reset_asked = 0;
		drop_all(true);
	}
	for (uint32_t i = 0; i < NQUEUES; i++)
		if (p[1 + i].revents & POLLIN)
			(void)!read(vhost_queue(i)->kick, &count, sizeof(count));
	for (uint32_t i = 0; i < NCONNS; i++) {
		struct conn *c = v.conns[i];

		if (c && c->held > 0 &&
		    (p[1 + NQUEUES + i].revents & (POLLOUT | POLLERR | POLLHUP)))
			after_push(c, push(c));
	}
	for (uint32_t i = 0; i < v.ndoors; i++)
		if ((doors[i].revents & POLLIN) && v.nreplies < NREPLIES / 2)
			let_in(&v.doors[i]);
	tx();
	for (uint32_t i = 0; i < NCONNS; i++)
		if (v.conns[i] && !v.conns[i]->is_ending && !v.conns[i]->is_opening)
			pull(v.conns[i]);
	send_replies();
	tell_guest(vhost_queue(RX));
	tell_guest(vhost_queue(TX));
	if (p[0].revents)
		vhost_hear();
}

static void on_stop(void)
{
	drop_all(false);
	v.nreplies = 0;
}

static void ask_reset(int number)
{
	(void)number;
	reset_asked = 1;
}

static int listen_at(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strncpy(addr.sun_path, path, sizeof(addr.sun_path) - 1);
	if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(listener, 16) < 0)
		die(path);
	return listener;
}

static int accept_qemu(const char *path)
{
	int listener = listen_at(path);
	int fd;

	puts("ready");
	fflush(stdout);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(listener);
	return fd;
}

/* PORT=PATH or PATH=CID:PORT */
static bool add_way(char *word)
{
	char *value = strchr(word, '=');
	char *end;

	if (!value)
		return false;
	*value++ = '\0';
	if (word[0] != '/') {
		v.ports[v.nports++] = (struct port){ (uint32_t)strtoul(word, &end, 10), value };
		return *end == '\0' && v.nports < NPORTS;
	}
	v.doors[v.ndoors].cid = strtoull(value, &end, 10);
	if (*end != ':')
		return false;
	v.doors[v.ndoors].port = (uint32_t)strtoul(end + 1, &end, 10);
	v.doors[v.ndoors++].listener = listen_at(word);
	return *end == '\0' && v.ndoors < NDOORS;
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = ask_reset };

	v.cid = argc > 3 ? strtoull(argv[2], NULL, 10) : 0;
	for (int i = 3; i < argc; i++)
		if (!add_way(argv[i]))
			v.cid = 0;
	if (!v.cid) {
		fprintf(stderr, "usage: vhost-vsock SOCKET CID PORT=PATH... PATH=CID:PORT...\n");
		return 2;
	}
	sigaction(SIGUSR1, &action, NULL);
	v.qemu = accept_qemu(argv[1]);
	vhost_begin(v.qemu, &(struct vhost_options){ &v.cid, sizeof(v.cid), on_stop });
	for (;;)
		turn();
}
