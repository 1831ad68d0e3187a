/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that means harm at its vsock door: hostile-stream SECONDS [SEED] opens streams to the host for so long, and
 * says on them what nobody should: noise, half a HELLO and then nothing, one with a byte that is wrong, another's
 * nonce; and, once welcomed, frames that are nearly right, without ever reading what comes back.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "proto/door.h"
#include "proto/stream.h"
#include "proto/wire.h"

#define NOPEN	 24u /* streams that are left as they are, for a while */
#define NFRAMES	 48u
#define PATIENCE 300000 /* microseconds that a call may wait */

static uint64_t state;
static int left_open[NOPEN];
static uint64_t nstreams, nwelcomes, nframes;
static uint8_t bytes[GANTRY_STREAM_CHUNK + 4096];

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fill(void *to, size_t len)
{
	uint8_t *at = to;

	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)(draw() >> 32);
}

/* Small numbers, single bits, all ones: more is understood of them than of noise. */
static uint64_t number(void)
{
	switch (draw() % 4) {
	case 0:
		return draw() % 256;
	case 1:
		return UINT64_C(1) << draw() % 64;
	case 2:
		return UINT64_MAX - draw() % 64;
	default:
		return draw();
	}
}

static int dial(void)
{
	const struct sockaddr_vm addr = { .svm_family = AF_VSOCK,
					  .svm_cid = VMADDR_CID_HOST,
					  .svm_port = GANTRY_STREAM_PORT };
	const struct timeval patience = { .tv_usec = PATIENCE };
	int sock = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sock < 0) {
		perror("socket");
		exit(1);
	}
	(void)setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(sock, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
		(void)close(sock); /* the host may have had enough of us */
		return -1;
	}
	nstreams++;
	return sock;
}

static int say(int sock, const void *data, size_t len)
{
	return send(sock, data, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -1;
}

static void hang_up(int sock)
{
	const struct linger at_once = { .l_onoff = 1 };

	if (draw() % 2)
		(void)setsockopt(sock, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	(void)close(sock);
}

/* The oldest of those that were left open makes room. */
static void leave_open(int sock)
{
	static unsigned next;

	if (left_open[next] > 0)
		hang_up(left_open[next]);
	left_open[next] = sock;
	next = (next + 1) % NOPEN;
}

static struct gantry_door_hello hello(void)
{
	struct gantry_door_hello h = { .version_min = GANTRY_WIRE_VERSION_MIN,
				       .version_max = GANTRY_WIRE_VERSION_MAX,
				       .name = "harmless" };

	gantry_door_header_init(&h.h, GANTRY_DOOR_HELLO, 0);
	return h;
}

/* ---- what it does with a stream ---- */

static void noise(int sock)
{
	size_t len = 1 + draw() % sizeof(bytes);

	fill(bytes, len);
	(void)say(sock, bytes, len);
	hang_up(sock);
}

static void half_a_hello(int sock)
{
	struct gantry_door_hello h = hello();

	(void)say(sock, &h, draw() % sizeof(h));
	leave_open(sock);
}

static void wrong_hello(int sock)
{
	struct gantry_door_hello h = hello();

	((uint8_t *)&h)[draw() % sizeof(h)] = (uint8_t)draw();
	(void)say(sock, &h, sizeof(h));
	(void)!recv(sock, bytes, sizeof(bytes), 0);
	hang_up(sock);
}

static void others_nonce(int sock)
{
	struct gantry_door_hello h = hello();

	fill(h.nonce, sizeof(h.nonce));
	(void)say(sock, &h, sizeof(h));
	(void)!recv(sock, bytes, sizeof(bytes), 0);
	hang_up(sock);
}

/* A frame whose kind is one, whose length is its own, and whose rest is not. */
static int bad_frame(int sock)
{
	static const uint16_t kinds[] = {
		GANTRY_STREAM_POSITIONS, GANTRY_STREAM_DATA, GANTRY_STREAM_PUT, GANTRY_STREAM_DONE,
		GANTRY_STREAM_STATE,	 GANTRY_STREAM_BYE,  GANTRY_DOOR_SHARE, GANTRY_DOOR_ADOPT,
	};
	struct gantry_door_header h;
	uint32_t len = (uint32_t)sizeof(h) + 8 * (uint32_t)(draw() % 64);
	uint64_t words[64];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		words[i] = number();
	h = (struct gantry_door_header){
		.magic = GANTRY_DOOR_MAGIC,
		.kind = kinds[draw() % (sizeof(kinds) / sizeof(kinds[0]))],
		.len_bytes = draw() % 16 ? len : (uint32_t)number(),
		.tag = (uint32_t)(draw() % 16),
	};
	memcpy(bytes, &h, sizeof(h));
	memcpy(bytes + sizeof(h), words, len - sizeof(h));
	nframes++;
	return say(sock, bytes, len);
}

static int attach(int sock)
{
	struct gantry_door_hello h = hello();
	struct {
		struct gantry_stream_positions p;
		uint64_t at[GANTRY_MAX_QUEUES];
	} mine = { 0 };
	struct gantry_door_welcome w;
	uint32_t len;

	if (say(sock, &h, sizeof(h)) < 0 ||
	    recv(sock, &w, sizeof(w), MSG_WAITALL) != (ssize_t)sizeof(w) ||
	    w.h.kind != GANTRY_DOOR_WELCOME || w.nqueues > GANTRY_MAX_QUEUES)
		return -1;
	nwelcomes++;
	len = (uint32_t)(sizeof(mine.p) + w.nqueues * sizeof(uint64_t));
	mine.p = (struct gantry_stream_positions){
		.h = { .magic = GANTRY_DOOR_MAGIC,
		       .kind = GANTRY_STREAM_POSITIONS,
		       .len_bytes = len },
		.nqueues = w.nqueues,
	};
	return say(sock, &mine, len);
}

static void bad_frames(int sock)
{
	uint64_t n = 1 + draw() % NFRAMES;

	if (attach(sock) == 0)
		while (n-- > 0 && bad_frame(sock) == 0)
			;
	if (draw() % 2)
		hang_up(sock);
	else
		leave_open(sock);
}

int main(int argc, char **argv)
{
	static void (*const ways[])(int) = { noise,	   half_a_hello, wrong_hello,
					     others_nonce, bad_frames,	 bad_frames };
	double end;

	if (argc < 2) {
		fprintf(stderr, "usage: hostile-stream SECONDS [SEED]\n");
		return 2;
	}
	state = argc > 2 ? strtoull(argv[2], NULL, 0) : 88172645463325252ull;
	end = now_s() + atof(argv[1]);
	printf("started\n");
	(void)fflush(stdout); /* the test sees what is missing */
	while (now_s() < end) {
		int sock = dial();

		if (sock >= 0)
			ways[draw() % (sizeof(ways) / sizeof(ways[0]))](sock);
	}
	printf("opened %" PRIu64 " streams, was welcomed %" PRIu64 " times, said %" PRIu64
	       " bad frames\n",
	       nstreams, nwelcomes, nframes);
	return nstreams > 0 ? 0 : 1;
}
