/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte that chooses, then what comes over a stream. 0: from a guest, to the bridge of a relay. Else: from a host, to a
 * guest's link, in which a few tasks wait. Either may be refused; neither may reach past its own memory.
 */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest-shim/stream_link.h"
#include "host-agent/relay/bridge.h"
#include "proto/codec.h"
#include "tests/fuzz/fuzz.h"

#define NQUEUES	   3u
#define NSLOTS	   16u
#define HEAP_BYTES (1u << 20)
#define INPUT_MAX  65536u

static void ring_bell(void *cookie)
{
	(void)cookie;
}

static int request(void *cookie, const struct gantry_door_header *msg)
{
	uint16_t kind;

	(void)cookie;
	assert(gantry_door_check(msg, msg->len_bytes, &kind) == 0);
	return 0;
}

static void make_welcome(struct gantry_door_welcome *w, struct gantry_segment_layout *layout)
{
	int r = gantry_segment_layout_make(NQUEUES, NSLOTS, HEAP_BYTES, layout);

	assert(r == 0);
	*w = (struct gantry_door_welcome){ .version = 1,
					   .segment_bytes = layout->segment_bytes,
					   .nqueues = NQUEUES,
					   .nslots = NSLOTS };
	gantry_door_header_init(&w->h, GANTRY_DOOR_WELCOME, 0);
}

/* All that a socket takes in one go, so that nothing waits. */
static void send_all(int sock, const void *data, size_t len)
{
	(void)!send(sock, data, len < INPUT_MAX ? len : INPUT_MAX, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- a relay ---- */

/* A worker that finishes all there is. */
static void finish_all(struct gantry_bridge *b)
{
	for (uint32_t i = 0; i < NQUEUES; i++) {
		struct gantry_bridge_queue *q = &b->queues[i];

		assert(q->tail - q->told <= NSLOTS);
		assert(q->map.area->tail == q->tail);
		q->map.area->done = q->tail;
	}
}

static void hear_guest(const struct fuzz_input *in)
{
	static const struct gantry_bridge_events events = { NULL, ring_bell, request };
	struct gantry_segment_layout layout;
	struct gantry_door_welcome welcome;
	struct gantry_bridge *b;
	struct {
		struct gantry_stream_positions p;
		uint64_t at[NQUEUES];
	} positions = { .p = { .nqueues = NQUEUES } };
	void *base;
	int socks[2], r;

	make_welcome(&welcome, &layout);
	base = mmap(NULL, layout.segment_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	b = gantry_bridge_new(base, &layout, 1, &events);
	if (base == MAP_FAILED || !b || socketpair(AF_UNIX, SOCK_STREAM, 0, socks) < 0)
		abort();
	gantry_bridge_connect(b, socks[0], &welcome);
	gantry_stream_header_init(&positions.p.h, GANTRY_STREAM_POSITIONS, sizeof(positions), 0);
	send_all(socks[1], &positions, sizeof(positions));
	send_all(socks[1], in->data, in->len);
	do {
		r = gantry_bridge_receive(b);
		finish_all(b);
		(void)gantry_bridge_send(b);
	} while (r > 0);
	close(socks[0]);
	close(socks[1]);
	gantry_bridge_free(b);
	munmap(base, layout.segment_bytes);
}

/* ---- a guest ---- */

static int take(void *cookie, const struct gantry_door_header *frame)
{
	if (frame->kind == GANTRY_STREAM_POSITIONS)
		return gantry_link_restart(cookie, (const void *)frame);
	return gantry_link_take(cookie, frame);
}

static void *place(void *cookie, uint64_t heap_off, uint32_t bytes)
{
	struct gantry_link *l = cookie;
	uint8_t *ptr = gantry_link_place(l, heap_off, bytes);

	assert(!ptr || (ptr >= l->heap.base && ptr + bytes <= l->heap.base + l->heap.bytes));
	return ptr;
}

static void put_some(struct gantry_link *l)
{
	for (uint32_t i = 0; i < NQUEUES; i++) {
		struct gantry_ring_producer ring;

		gantry_ring_producer_init(&ring, &l->queues[i].map);
		for (uint32_t n = 0; n < 4; n++)
			gantry_desc_put_read(gantry_ring_desc(&ring, n),
					     &(struct gantry_op_read){ .buffer = 1, .bytes = 64 });
		(void)gantry_ring_publish(&ring, 4);
	}
}

static void hear_host(const struct fuzz_input *in)
{
	struct gantry_segment_layout layout;
	struct gantry_door_welcome welcome;
	struct gantry_stream_rx *rx = malloc(sizeof(*rx));
	struct gantry_stream_tx *tx = malloc(sizeof(*tx));
	struct gantry_link l;
	const struct gantry_stream_sink sink = { &l, place, take };
	int socks[2], r;

	make_welcome(&welcome, &layout);
	if (!rx || !tx || gantry_link_init(&l, &welcome) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socks) < 0)
		abort();
	gantry_stream_rx_init(rx);
	gantry_stream_tx_init(tx);
	put_some(&l);
	while (gantry_link_put_next(&l, tx) > 0)
		;
	send_all(socks[1], in->data, in->len);
	do {
		r = gantry_stream_receive(rx, socks[0], false, &sink);
		for (uint32_t i = 0; i < NQUEUES; i++)
			assert(gantry_ring_done(&l.queues[i].map) <= 4);
	} while (r > 0);
	close(socks[0]);
	close(socks[1]);
	gantry_link_fini(&l, true);
	free(rx);
	free(tx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };

	if (fuzz_u8(&in) == 0)
		hear_guest(&in);
	else
		hear_host(&in);
	return 0;
}
