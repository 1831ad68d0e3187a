/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream socket in a machine that leads out of it through a virtio-serial port, for machines that migrate: what a vsock
 * device is to one whose kernel and host have it.
 *
 *   port-tunnel PORT SOCKET        PORT: a device, such as /dev/vport1p2
 *
 * One connection at a time. Between the ends of the port go frames (tunnel.py has the other end): END, then a letter, the
 * connection's number and what belongs to it, then END; an END within is escaped. The host is another one after a migration,
 * which may cut a frame anywhere: it says H and a number first, whereupon the connection ends and the number is sent back. It says
 * so until it hears that, for what QEMU takes for a machine that is still arriving may come without an interrupt.
 *
 * Trust: the host is the test.
 */
#include <errno.h>
#include <fcntl.h>
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

#define END	  0xC0
#define ESC	  0xDB
#define ESC_END	  0xDC
#define ESC_ESC	  0xDD
#define CHUNK	  8192u
#define FRAME_MAX (1u << 17)
#define HEAD	  5u /* a letter, a number */
#define BACKLOG	  (64u << 10)

static struct {
	uint8_t data[BACKLOG + 4 * CHUNK];
	size_t len;
} to_host;
static struct {
	uint8_t data[FRAME_MAX];
	size_t len;
	bool escaped;
} frame;
static int listener = -1, client = -1;
static uint32_t number;
static bool met;      /* a host has said H */
static uint32_t host; /* and its number */

static void die(const char *what)
{
	fprintf(stderr, "port-tunnel: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(uint8_t byte)
{
	if (to_host.len == sizeof(to_host.data))
		die("too much for the host");
	to_host.data[to_host.len++] = byte;
}

static void put_escaped(const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++) {
		if (bytes[i] == END || bytes[i] == ESC) {
			put(ESC);
			put(bytes[i] == END ? ESC_END : ESC_ESC);
		} else {
			put(bytes[i]);
		}
	}
}

static void say(char kind, uint32_t about, const void *data, size_t len)
{
	put(END);
	put((uint8_t)kind);
	put_escaped(&about, sizeof(about));
	put_escaped(data, len);
	put(END);
}

static void drop_client(void)
{
	if (client >= 0)
		(void)close(client); /* it is gone either way */
	client = -1;
}

/* ---- from the host ---- */

static void write_all(const uint8_t *data, size_t len)
{
	while (len && client >= 0) {
		ssize_t n = write(client, data, len);

		if (n < 0) {
			drop_client();
			say('C', number, NULL, 0);
			return;
		}
		data += n;
		len -= (size_t)n;
	}
}

static void obey(void)
{
	uint32_t about;

	if (frame.len < HEAD)
		return;
	memcpy(&about, frame.data + 1, sizeof(about));
	if (frame.data[0] == 'H') {
		if (!met || about != host) {
			drop_client();
			to_host.len = 0; /* was for the one before */
		}
		met = true;
		host = about;
		say('H', about, NULL, 0);
	} else if (about == number && frame.data[0] == 'D') {
		write_all(frame.data + HEAD, frame.len - HEAD);
	} else if (about == number && frame.data[0] == 'C') {
		drop_client();
	}
}

static void take(uint8_t byte)
{
	if (byte == END) {
		obey();
		frame.len = 0;
		frame.escaped = false;
	} else if (byte == ESC) {
		frame.escaped = true;
	} else if (frame.len < sizeof(frame.data)) {
		if (frame.escaped)
			byte = byte == ESC_END ? END : ESC;
		frame.escaped = false;
		frame.data[frame.len++] = byte;
	}
}

static void hear(int port)
{
	uint8_t chunk[CHUNK];
	ssize_t n = read(port, chunk, sizeof(chunk));

	for (ssize_t i = 0; i < n; i++)
		take(chunk[i]);
}

/* ---- from the program ---- */

static void hear_client(void)
{
	uint8_t chunk[CHUNK];
	ssize_t n = read(client, chunk, sizeof(chunk));

	if (n > 0) {
		say('D', number, chunk, (size_t)n);
		return;
	}
	drop_client();
	say('C', number, NULL, 0);
}

static void accept_client(void)
{
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		return;
	if (!met) { /* as a connection that nobody takes */
		(void)close(fd);
		return;
	}
	drop_client();
	client = fd;
	say('O', ++number, NULL, 0);
}

static void flush_to(int port)
{
	ssize_t n = to_host.len ? write(port, to_host.data, to_host.len) : 0;

	if (n <= 0)
		return;
	to_host.len -= (size_t)n;
	memmove(to_host.data, to_host.data + n, to_host.len);
}

static void serve(int port)
{
	for (;;) {
		struct pollfd fds[3] = {
			{ .fd = port, .events = (short)(POLLIN | (to_host.len ? POLLOUT : 0)) },
			{ .fd = listener, .events = POLLIN },
			{ .fd = to_host.len < BACKLOG ? client : -1, .events = POLLIN },
		};

		if (poll(fds, 3, -1) < 0 && errno != EINTR)
			die("poll");
		if (fds[0].revents & POLLIN)
			hear(port);
		/*
		 * No host, for now: it says so at once, again and again. What we have of a connection stays until the next host
		 * says H, which may have come already: ends of a port are told on another way than its data.
		 */
		if ((fds[0].revents & POLLHUP) && !(fds[0].revents & POLLIN))
			(void)poll(NULL, 0, 5);
		if (fds[1].revents)
			accept_client();
		else if (fds[2].revents && client >= 0)
			hear_client();
		flush_to(port);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int port;

	if (argc != 3 || strlen(argv[2]) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "usage: port-tunnel PORT SOCKET\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	port = open(argv[1], O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (port < 0)
		die(argv[1]);
	memcpy(addr.sun_path, argv[2], strlen(argv[2]) + 1);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(listener, 8))
		die(argv[2]);
	printf("ready\n");
	(void)fflush(stdout); /* who waits for it sees */
	serve(port);
}
