/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's end of a stream and a relay's bridge, with a worker of the test's behind it, in one thread. Between them the test
 * moves bytes, so that it can break the stream wherever it wants.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "guest-shim/stream_link.h"
#include "host-agent/relay/bridge.h"
#include "proto/codec.h"
#include "tests/unit/runner.h"

#define NQUEUES	   4u
#define NSLOTS	   16u
#define HEAP_BYTES (4u << 20)
#define BULK_BYTES 150000u /* more than two chunks */
#define NEVER	   UINT64_MAX
#define STAMPED	   0x5A
#define STAMP_OFF  16384u
#define WORD_OFF   20480u

struct world {
	struct gantry_segment_layout layout;
	struct gantry_door_welcome welcome;
	void *host_memory;
	struct gantry_bridge *bridge;
	struct gantry_ring_consumer worker[NQUEUES];
	uint64_t ran[NQUEUES][64]; /* operations by position, as the worker met them */
	uint64_t nfailed[NQUEUES];
	uint32_t rings;
	uint32_t requests;
	uint64_t hold; /* the worker finishes no task of queue 1 from here on */

	struct gantry_link link;
	bool has_link;
	struct gantry_ring_producer guest[NQUEUES];
	struct gantry_stream_rx rx;
	struct gantry_stream_tx tx;
	bool in_step;
	uint32_t answers;

	/* guest - [0] | [1] = test = [2] | [3] - relay */
	int socks[4];
	uint64_t moved[2]; /* bytes, to the host and to the guest, since the stream was made */
	uint64_t cut[2];   /* the stream breaks when as many have been moved */
	uint32_t breaks;
	bool new_relay; /* after a break, as on another host: it has the segment and nothing else */
};

static void ring_bell(void *cookie)
{
	((struct world *)cookie)->rings++;
}

static int request(void *cookie, const struct gantry_door_header *msg)
{
	(void)msg;
	((struct world *)cookie)->requests++;
	return 0;
}

/* ---- the stream ---- */

static void plug(struct world *w)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->socks), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->socks + 2), 0);
	w->moved[0] = w->moved[1] = 0;
	w->in_step = false;
	gantry_stream_rx_init(&w->rx);
	gantry_stream_tx_init(&w->tx);
	gantry_bridge_connect(w->bridge, w->socks[3], &w->welcome);
}

static void unplug(struct world *w)
{
	gantry_bridge_disconnect(w->bridge);
	for (int i = 0; i < 4; i++)
		w->socks[i] = gantry_fd_close(w->socks[i]);
}

/* true: something moved. */
static bool move(struct world *w, int dir)
{
	int from = dir == 0 ? w->socks[1] : w->socks[2];
	int to = dir == 0 ? w->socks[2] : w->socks[1];
	uint64_t left = w->cut[dir] - w->moved[dir];
	uint8_t buf[4096];
	ssize_t n;

	if (left == 0)
		return false;
	n = recv(from, buf, left < sizeof(buf) ? left : sizeof(buf), MSG_DONTWAIT);
	if (n <= 0)
		return false;
	ck_assert_int_eq(send(to, buf, (size_t)n, MSG_NOSIGNAL), n);
	w->moved[dir] += (uint64_t)n;
	return true;
}

/* ---- the guest ---- */

static int guest_frame(void *cookie, const struct gantry_door_header *frame)
{
	const struct gantry_door_welcome *welcome = (const void *)frame;
	struct world *w = cookie;
	int r;

	if (frame->kind == GANTRY_DOOR_WELCOME) {
		if (!w->has_link) {
			ck_assert_int_eq(gantry_link_init(&w->link, welcome), 0);
			for (uint32_t i = 0; i < NQUEUES; i++)
				gantry_ring_producer_init(&w->guest[i], &w->link.queues[i].map);
			w->has_link = true;
		}
		return gantry_link_put_positions(&w->link, &w->tx);
	}
	if (frame->kind == GANTRY_STREAM_POSITIONS) {
		r = gantry_link_restart(&w->link, (const void *)frame);
		w->in_step = r == 0;
		return r;
	}
	if (frame->kind == GANTRY_DOOR_SHARED) {
		w->answers++;
		return 0;
	}
	return gantry_link_take(&w->link, frame);
}

static void *guest_place(void *cookie, uint64_t heap_off, uint32_t bytes)
{
	return gantry_link_place(&((struct world *)cookie)->link, heap_off, bytes);
}

static void guest_turn(struct world *w)
{
	const struct gantry_stream_sink sink = { w, guest_place, guest_frame };
	int r;

	do {
		r = gantry_stream_receive(&w->rx, w->socks[0], false, &sink);
	} while (r > 0);
	ck_assert_int_eq(r, 0);
	do {
		while (w->in_step && gantry_link_put_next(&w->link, &w->tx) > 0)
			;
	} while (gantry_stream_flush(&w->tx, w->socks[0]) == 0 && w->in_step &&
		 gantry_link_has_more(&w->link));
}

static void put(struct world *w, uint32_t slot, const struct gantry_desc *desc)
{
	*gantry_ring_desc(&w->guest[slot], 0) = *desc;
	(void)gantry_ring_publish(&w->guest[slot], 1);
	ck_assert(gantry_ring_must_kick(&w->guest[slot].map));
}

static uint64_t done(const struct world *w, uint32_t slot)
{
	return gantry_ring_done(&w->guest[slot].map);
}

/* ---- the host ---- */

static uint8_t pattern(uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8));
}

/* One check for all of them: a check is a call into the kernel, and there are millions. */
static void check_pattern(const uint8_t *bytes, uint64_t n, uint64_t off)
{
	uint64_t i = 0;

	while (i < n && bytes[i] == pattern(off + i))
		i++;
	ck_assert_msg(i == n, "byte %llu of %llu", (unsigned long long)i, (unsigned long long)n);
}

static int run_task(struct world *w, const struct gantry_desc *desc)
{
	uint8_t *heap = w->bridge->heap.base;
	struct gantry_op_read read;
	struct gantry_op_write write;
	struct gantry_op_stamp stamp;

	switch (desc->op) {
	case GANTRY_OP_stamp:
		memcpy(&stamp, desc->imm, sizeof(stamp));
		memset(heap + stamp.heap_off, STAMPED, sizeof(uint64_t));
		return GANTRY_OK;
	case GANTRY_OP_launch:
		if (!(desc->flags & GANTRY_DESC_INLINE))
			check_pattern(heap + desc->off_bytes, desc->len_bytes, 0);
		return GANTRY_OK;
	case GANTRY_OP_read:
		memcpy(&read, desc->imm, sizeof(read));
		for (uint64_t i = 0; i < read.bytes; i++)
			heap[read.heap_off + i] = pattern(i + read.off);
		return GANTRY_OK;
	case GANTRY_OP_write:
		memcpy(&write, desc->imm, sizeof(write));
		check_pattern(heap + write.heap_off, write.bytes, write.off);
		return GANTRY_OK;
	case GANTRY_OP_fill:
		return GANTRY_E_SPAN;
	default:
		return GANTRY_OK;
	}
}

static void worker_turn(struct world *w)
{
	for (uint32_t i = 0; i < NQUEUES; i++) {
		struct gantry_ring_consumer *c = &w->worker[i];
		struct gantry_reply reply = { 0 };
		struct gantry_desc desc;
		struct gantry_inline inl;
		int status;

		while (gantry_ring_ready(c) > 0 && !(i == 1 && c->head >= w->hold)) {
			uint64_t pos = c->head;

			gantry_ring_peek(c, &desc, &inl);
			gantry_ring_advance(c);
			ck_assert_uint_lt(pos, 64);
			ck_assert_uint_eq(w->ran[i][pos], 0); /* none runs twice */
			w->ran[i][pos] = desc.op;
			if (desc.flags & GANTRY_DESC_INLINE)
				check_pattern(inl.bytes, desc.len_bytes, 0);
			status = run_task(w, &desc);
			w->nfailed[i] += status < 0;
			gantry_ring_set_status(c, pos, status, w->nfailed[i]);
			snprintf(reply.text, sizeof(reply.text), "reply %u", (unsigned)pos);
			if (i == 0)
				gantry_ring_reply(c, pos, &reply);
			gantry_ring_complete(c, pos + 1);
		}
	}
}

static void host_turn(struct world *w)
{
	int r;

	do {
		r = gantry_bridge_receive(w->bridge);
	} while (r > 0);
	ck_assert_int_eq(r, 0);
	worker_turn(w);
	r = gantry_bridge_send(w->bridge);
	ck_assert(r == 0 || r == -EAGAIN);
}

static void make_bridge(struct world *w)
{
	static struct gantry_bridge_events events;

	events = (struct gantry_bridge_events){ w, ring_bell, request };
	w->bridge = gantry_bridge_new(w->host_memory, &w->layout, 1000, &events);
	ck_assert_ptr_nonnull(w->bridge);
}

/* Until nothing moves any more; a stream that is cut is made anew, once for each cut. */
static void settle(struct world *w)
{
	bool moved;

	do {
		guest_turn(w);
		host_turn(w);
		moved = move(w, 0);
		moved |= move(w, 1);
		if ((w->moved[0] >= w->cut[0] || w->moved[1] >= w->cut[1]) && w->breaks == 0) {
			w->breaks++;
			w->cut[0] = w->cut[1] = NEVER;
			unplug(w);
			if (w->new_relay) {
				gantry_bridge_free(w->bridge);
				make_bridge(w);
			}
			plug(w);
			moved = true;
		}
	} while (moved);
}

static void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->cut[0] = w->cut[1] = w->hold = NEVER;
	ck_assert_int_eq(gantry_segment_layout_make(NQUEUES, NSLOTS, HEAP_BYTES, &w->layout), 0);
	w->host_memory = mmap(NULL, w->layout.segment_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(w->host_memory, MAP_FAILED);
	gantry_segment_header_init(w->host_memory, &w->layout, 1, 7);
	w->welcome = (struct gantry_door_welcome){ .version = 1,
						   .session_id = 7,
						   .segment_bytes = w->layout.segment_bytes,
						   .nqueues = NQUEUES,
						   .nslots = NSLOTS };
	gantry_door_header_init(&w->welcome.h, GANTRY_DOOR_WELCOME, 0);
	make_bridge(w);
	w->bridge->header->state = GANTRY_SESSION_ATTACHED;
	for (uint32_t i = 0; i < NQUEUES; i++) {
		gantry_ring_consumer_init(&w->worker[i], &w->bridge->queues[i].map, 0, 0);
		gantry_ring_park(&w->worker[i]);
	}
	plug(w);
}

static void world_fini(struct world *w)
{
	unplug(w);
	if (w->has_link)
		gantry_link_fini(&w->link, true);
	gantry_bridge_free(w->bridge);
	munmap(w->host_memory, w->layout.segment_bytes);
}

/* ---- tasks ---- */

static void put_marker(struct world *w, uint32_t slot)
{
	struct gantry_desc desc;

	gantry_desc_put_marker(&desc, &(struct gantry_op_marker){ 0 });
	put(w, slot, &desc);
}

static void put_write(struct world *w, uint32_t slot, uint64_t heap_off, uint64_t bytes)
{
	struct gantry_desc desc;

	for (uint64_t i = 0; i < bytes; i++)
		w->link.heap.base[heap_off + i] = pattern(i + 5);
	gantry_desc_put_write(
		&desc, &(struct gantry_op_write){
			       .buffer = 1, .off = 5, .heap_off = heap_off, .bytes = bytes });
	put(w, slot, &desc);
}

static void put_read(struct world *w, uint32_t slot, uint64_t heap_off, uint64_t bytes)
{
	struct gantry_desc desc;

	gantry_desc_put_read(&desc,
			     &(struct gantry_op_read){
				     .buffer = 1, .off = 9, .heap_off = heap_off, .bytes = bytes });
	put(w, slot, &desc);
}

static void check_read(const struct world *w, uint64_t heap_off, uint64_t bytes)
{
	check_pattern(w->link.heap.base + heap_off, bytes, 9);
}

static void put_launch(struct world *w, uint32_t slot, uint32_t len)
{
	struct gantry_desc desc;

	gantry_desc_put_launch(&desc, &(struct gantry_op_launch){ .args_bytes = (uint16_t)len });
	for (uint32_t i = 0; i < len; i++)
		gantry_ring_inline(&w->guest[slot], 0)->bytes[i] = pattern(i);
	gantry_desc_set_inline(&desc, len);
	put(w, slot, &desc);
}

static void put_stamp(struct world *w, uint32_t slot)
{
	struct gantry_desc desc;

	gantry_desc_put_stamp(&desc, &(struct gantry_op_stamp){ .heap_off = STAMP_OFF });
	put(w, slot, &desc);
}

static void check_stamp(const struct world *w)
{
	for (uint64_t i = 0; i < 2 * sizeof(uint64_t); i++)
		ck_assert_uint_eq(w->link.heap.base[STAMP_OFF + i],
				  i < sizeof(uint64_t) ? STAMPED : 0);
}

/* A word of the heap that the host is to see. */
static void put_word(struct world *w, uint32_t slot)
{
	struct gantry_desc desc;

	gantry_desc_put_launch(&desc, &(struct gantry_op_launch){ .args_bytes = sizeof(uint64_t) });
	for (uint32_t i = 0; i < sizeof(uint64_t); i++)
		w->link.heap.base[WORD_OFF + i] = pattern(i);
	gantry_desc_set_heap(&desc, WORD_OFF, sizeof(uint64_t));
	put(w, slot, &desc);
}

static void put_fill(struct world *w, uint32_t slot)
{
	struct gantry_desc desc;

	gantry_desc_put_fill(&desc, &(struct gantry_op_fill){ .buffer = 1 });
	put(w, slot, &desc);
}

static void put_wait(struct world *w, uint32_t slot, uint64_t ticket)
{
	struct gantry_desc desc;

	gantry_desc_put_wait(&desc, &(struct gantry_op_wait){ .ticket0 = ticket });
	put(w, slot, &desc);
}

static void put_props(struct world *w)
{
	struct gantry_desc desc;

	gantry_desc_put_props(&desc, &(struct gantry_op_props){ 0 });
	put(w, 0, &desc);
}

/* One of each sort, on four queues. */
static void put_mixture(struct world *w)
{
	put_marker(w, 1);
	put_launch(w, 1, 37);
	put_write(w, 1, 64, 3000);
	put_fill(w, 1);
	put_read(w, 2, 8192, 5000);
	put_wait(w, 2, GANTRY_TICKET(1, 3));
	put_stamp(w, 2);
	put_word(w, 3);
	put_props(w);
}

static void check_mixture(const struct world *w)
{
	static const uint64_t ops[4] = { GANTRY_OP_marker, GANTRY_OP_launch, GANTRY_OP_write,
					 GANTRY_OP_fill };

	ck_assert_uint_eq(done(w, 1), 4);
	ck_assert_uint_eq(done(w, 2), 3);
	ck_assert_uint_eq(done(w, 3), 1);
	ck_assert_uint_eq(done(w, 0), 1);
	ck_assert_mem_eq(w->ran[1], ops, sizeof(ops));
	ck_assert_uint_eq(w->ran[1][4] | w->ran[2][3] | w->ran[0][1], 0);
	ck_assert_int_eq(gantry_ring_status(&w->guest[1].map, 2), GANTRY_OK);
	ck_assert_int_eq(gantry_ring_status(&w->guest[1].map, 3), GANTRY_E_SPAN);
	ck_assert_uint_eq(gantry_ring_nfailed(&w->guest[1].map), 1);
	check_read(w, 8192, 5000);
	check_stamp(w);
	ck_assert_str_eq(((struct gantry_reply *)w->guest[0].map.inl[0].bytes)->text, "reply 0");
}

START_TEST(test_bridge_carries_each_sort_of_task)
{
	struct world w;

	world_init(&w);
	settle(&w);
	put_mixture(&w);
	settle(&w);
	check_mixture(&w);
	ck_assert_uint_eq(w.link.header->state, GANTRY_SESSION_ATTACHED);
	ck_assert_uint_gt(w.rings, 0);
	world_fini(&w);
}
END_TEST

/* Bytes that a whole exchange takes in each direction. */
static void measure(uint64_t ret_total[2])
{
	struct world w;

	world_init(&w);
	settle(&w);
	put_mixture(&w);
	settle(&w);
	ret_total[0] = w.moved[0];
	ret_total[1] = w.moved[1];
	world_fini(&w);
}

static void break_everywhere(bool new_relay)
{
	uint64_t total[2];

	measure(total);
	ck_assert_uint_gt(total[0], 3000);
	ck_assert_uint_gt(total[1], 5000);
	for (int dir = 0; dir < 2; dir++)
		for (uint64_t at = 1; at < total[dir]; at += at < 40 ? 7 : 131) {
			struct world w;

			world_init(&w);
			w.new_relay = new_relay;
			w.cut[dir] = at;
			settle(&w);
			put_mixture(&w);
			settle(&w);
			ck_assert_uint_eq(w.breaks, 1);
			check_mixture(&w);
			world_fini(&w);
		}
}

START_TEST(test_bridge_goes_on_wherever_the_stream_breaks)
{
	break_everywhere(false);
}
END_TEST

START_TEST(test_bridge_of_another_relay_goes_on_wherever_the_stream_breaks)
{
	break_everywhere(true);
}
END_TEST

START_TEST(test_bridge_over_positions_that_cannot_be_is_not_made)
{
	const struct gantry_bridge_events events = { NULL, ring_bell, request };
	struct world w;

	world_init(&w);
	w.bridge->queues[1].map.area->tail = NSLOTS + 1;
	ck_assert_ptr_null(gantry_bridge_new(w.host_memory, &w.layout, 1000, &events));
	w.bridge->queues[1].map.area->tail = 0;
	w.bridge->queues[1].map.area->done = 1;
	ck_assert_ptr_null(gantry_bridge_new(w.host_memory, &w.layout, 1000, &events));
	w.bridge->queues[1].map.area->done = 0;
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_goes_on_when_much_was_finished_while_there_was_no_stream)
{
	struct world w;

	world_init(&w);
	settle(&w);
	for (int i = 0; i < 12; i++)
		put_marker(&w, 1);
	put_fill(&w, 1);
	put_read(&w, 2, 0, BULK_BYTES);
	guest_turn(&w);
	move(&w, 0);
	while (move(&w, 0))
		;
	ck_assert_int_eq(gantry_bridge_receive(w.bridge), 1);
	unplug(&w);
	worker_turn(&w);
	ck_assert_uint_eq(done(&w, 1), 0);
	plug(&w);
	settle(&w);
	ck_assert_uint_eq(done(&w, 1), 13);
	ck_assert_uint_eq(done(&w, 2), 1);
	ck_assert_int_eq(gantry_ring_status(&w.guest[1].map, 12), GANTRY_E_SPAN);
	check_read(&w, 0, BULK_BYTES);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_small_task_overtakes_a_large_write)
{
	struct world w;

	world_init(&w);
	settle(&w);
	put_write(&w, 1, 0, 3u << 20);
	put_marker(&w, 2);
	while (done(&w, 2) == 0) {
		guest_turn(&w);
		host_turn(&w);
		ck_assert(move(&w, 0) | move(&w, 1));
	}
	ck_assert_uint_lt(w.moved[0], 3 * GANTRY_STREAM_CHUNK + 65536);
	ck_assert_uint_eq(done(&w, 1), 0);
	settle(&w);
	ck_assert_uint_eq(done(&w, 1), 1);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_small_task_overtakes_a_large_read)
{
	struct world w;

	world_init(&w);
	settle(&w);
	put_read(&w, 1, 0, 3u << 20);
	put_marker(&w, 2);
	while (done(&w, 2) == 0) {
		guest_turn(&w);
		host_turn(&w);
		ck_assert(move(&w, 0) | move(&w, 1));
	}
	ck_assert_uint_lt(w.moved[1], 3 * GANTRY_STREAM_CHUNK + 65536);
	settle(&w);
	check_read(&w, 0, 3u << 20);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_keeps_the_order_of_waits_and_control)
{
	struct world w;

	world_init(&w);
	settle(&w);
	put_write(&w, 1, 0, BULK_BYTES);
	put_wait(&w, 2, GANTRY_TICKET(1, 1));
	put_props(&w);
	while (w.ran[1][0] == 0) {
		ck_assert_uint_eq(w.ran[2][0], 0);
		ck_assert_uint_eq(w.ran[0][0], 0);
		guest_turn(&w);
		host_turn(&w);
		ck_assert(move(&w, 0) | move(&w, 1));
	}
	settle(&w);
	ck_assert_uint_eq(done(&w, 2), 1);
	ck_assert_uint_eq(done(&w, 0), 1);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_rings_go_round)
{
	struct world w;

	world_init(&w);
	settle(&w);
	for (uint64_t i = 0; i < 60; i++) {
		if (i % 3 == 1)
			put_fill(&w, 1);
		else
			put_launch(&w, 1, 1 + (uint32_t)(i % 192));
		settle(&w);
		ck_assert_uint_eq(done(&w, 1), i + 1);
		ck_assert_int_eq(gantry_ring_status(&w.guest[1].map, i),
				 i % 3 == 1 ? GANTRY_E_SPAN : GANTRY_OK);
	}
	ck_assert_uint_eq(gantry_ring_nfailed(&w.guest[1].map), 20);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_request_is_asked_once_and_answered_to_who_asks_again)
{
	struct gantry_door_share share = { .buffer = 1, .mode = GANTRY_R };
	struct gantry_door_shared shared = { 0 };
	struct world w;

	world_init(&w);
	settle(&w);
	gantry_door_header_init(&share.h, GANTRY_DOOR_SHARE, 5);
	gantry_door_header_init(&shared.h, GANTRY_DOOR_SHARED, 5);
	ck_assert_int_eq(gantry_stream_tx_put(&w.tx, &share, sizeof(share)), 0);
	settle(&w);
	ck_assert_uint_eq(w.requests, 1);
	unplug(&w);
	gantry_bridge_forward(w.bridge, &shared.h); /* the answer comes while there is no stream */
	plug(&w);
	settle(&w);
	ck_assert_uint_eq(w.answers, 1);
	unplug(&w);
	plug(&w);
	settle(&w);
	ck_assert_uint_eq(w.answers, 1);
	ck_assert_int_eq(gantry_stream_tx_put(&w.tx, &share, sizeof(share)), 0);
	settle(&w);
	ck_assert_uint_eq(w.requests, 1);
	ck_assert_uint_eq(w.answers, 2);
	world_fini(&w);
}
END_TEST

/* ---- guests that break the rules ---- */

union hostile {
	struct gantry_door_header h;
	struct gantry_stream_positions positions;
	struct gantry_stream_data data;
	struct gantry_stream_put put;
	struct gantry_stream_done done;
	struct gantry_door_share share;
	uint64_t words[128];
};

/* What the bridge says to @msg, from a guest that is in step unless the world was not settled. */
static int says(struct world *w, const union hostile *msg)
{
	int r;

	ck_assert_int_eq(send(w->socks[2], msg, msg->h.len_bytes, 0), msg->h.len_bytes);
	do {
		r = gantry_bridge_receive(w->bridge);
	} while (r > 0);
	return r;
}

static void check_refused(const union hostile *msg)
{
	struct world w;

	world_init(&w);
	settle(&w);
	ck_assert_int_eq(says(&w, msg), -EPROTO);
	ck_assert_ptr_nonnull(w.bridge->complaint);
	for (uint32_t i = 0; i < NQUEUES; i++)
		ck_assert_uint_eq(w.bridge->queues[i].map.area->tail, 0);
	world_fini(&w);
}

static union hostile a_put(uint32_t slot, uint64_t pos)
{
	union hostile m = { 0 };

	gantry_stream_header_init(&m.h, GANTRY_STREAM_PUT,
				  sizeof(m.put) + sizeof(struct gantry_desc), slot);
	m.put.pos = pos;
	gantry_desc_put_marker((struct gantry_desc *)(&m.put + 1), &(struct gantry_op_marker){ 0 });
	return m;
}

START_TEST(test_bridge_refuses_tasks_out_of_place)
{
	union hostile m = a_put(NQUEUES, 0);

	check_refused(&m);
	m = a_put(UINT32_MAX, 0);
	check_refused(&m);
	m = a_put(1, 1);
	check_refused(&m);
	m = a_put(1, UINT64_MAX);
	check_refused(&m);
}
END_TEST

START_TEST(test_bridge_refuses_more_tasks_than_slots)
{
	struct world w;

	world_init(&w);
	settle(&w);
	w.hold = 0;
	for (uint32_t i = 0; i < NSLOTS; i++) {
		union hostile m = a_put(1, i);

		ck_assert_int_eq(says(&w, &m), 0);
	}
	ck_assert_int_eq(says(&w, &(union hostile[]){ a_put(1, NSLOTS) }[0]), -EPROTO);
	ck_assert_uint_eq(w.bridge->queues[1].map.area->tail, NSLOTS);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_refuses_inline_parts_that_are_cut_short)
{
	union hostile m = a_put(1, 0);
	struct gantry_desc *desc = (struct gantry_desc *)(&m.put + 1);

	desc->flags = GANTRY_DESC_INLINE;
	desc->len_bytes = 8;
	check_refused(&m);
	desc->len_bytes = UINT32_MAX;
	m.h.len_bytes += 256;
	check_refused(&m);
	desc->len_bytes = GANTRY_INLINE_BYTES + 1;
	check_refused(&m);
	desc->len_bytes = 8; /* right, but what follows is half a task */
	check_refused(&m);
}
END_TEST

START_TEST(test_bridge_refuses_data_outside_the_heap)
{
	static const uint64_t offs[] = { HEAP_BYTES * 2, UINT64_MAX, UINT64_MAX - 63, 1ull << 40 };
	union hostile m = { 0 };

	for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		gantry_stream_header_init(&m.h, GANTRY_STREAM_DATA, sizeof(m.data) + 64, 0);
		m.data.heap_off = offs[i];
		check_refused(&m);
	}
}
END_TEST

START_TEST(test_bridge_refuses_frames_that_are_none)
{
	union hostile m = a_put(1, 0);

	m.h.magic++;
	check_refused(&m);
	m = a_put(1, 0);
	m.h.reserved = 1;
	check_refused(&m);
	m = a_put(1, 0);
	m.h.len_bytes = sizeof(m.put);
	check_refused(&m);
	m = a_put(1, 0);
	m.h.kind = 77;
	check_refused(&m);
	gantry_stream_header_init(&m.h, GANTRY_STREAM_DONE, sizeof(m.done), 1);
	check_refused(&m);
	gantry_stream_header_init(&m.h, GANTRY_STREAM_POSITIONS,
				  sizeof(m.positions) + NQUEUES * sizeof(uint64_t), 0);
	check_refused(&m); /* a second time */
	gantry_door_header_init(&m.h, GANTRY_DOOR_HELLO, 0);
	check_refused(&m);
	gantry_door_header_init(&m.h, GANTRY_DOOR_SHARE, 1);
	m.share.mode = 77;
	check_refused(&m);
}
END_TEST

START_TEST(test_bridge_refuses_lies_about_positions)
{
	struct world w;
	union hostile m = { 0 };
	uint64_t *at = (uint64_t *)(&m.positions + 1);

	world_init(&w);
	settle(&w);
	put_marker(&w, 1);
	settle(&w);
	unplug(&w);
	gantry_stream_header_init(&m.h, GANTRY_STREAM_POSITIONS,
				  sizeof(m.positions) + NQUEUES * sizeof(uint64_t), 0);
	m.positions.nqueues = NQUEUES;
	at[1] = 2; /* one was told */
	plug(&w);
	ck_assert_int_eq(says(&w, &m), -EPROTO);
	unplug(&w);
	at[1] = 0;
	m.positions.nqueues = NQUEUES + 1;
	plug(&w);
	ck_assert_int_eq(says(&w, &m), -EPROTO);
	unplug(&w);
	m = a_put(1, 1); /* before any positions */
	plug(&w);
	ck_assert_int_eq(says(&w, &m), -EPROTO);
	world_fini(&w);
}
END_TEST

START_TEST(test_bridge_refuses_a_request_of_before)
{
	struct world w;
	union hostile m = { 0 };

	world_init(&w);
	settle(&w);
	gantry_door_header_init(&m.h, GANTRY_DOOR_SHARE, 1);
	m.share.mode = GANTRY_R;
	ck_assert_int_eq(says(&w, &m), 0);
	m.h.tag = 3; /* it gave up on the first */
	ck_assert_int_eq(says(&w, &m), 0);
	ck_assert_uint_eq(w.requests, 2);
	m.h.tag = 2;
	ck_assert_int_eq(says(&w, &m), -EPROTO);
	ck_assert_uint_eq(w.requests, 2);
	world_fini(&w);
}
END_TEST

/* ---- hosts that break the rules ---- */

START_TEST(test_link_bounds_what_a_broken_host_says)
{
	struct world w;
	union hostile m = { 0 };

	world_init(&w);
	settle(&w);
	gantry_stream_header_init(&m.h, GANTRY_STREAM_DONE, sizeof(m.done), 1);
	m.done.n = 1;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO); /* nothing was put */
	put_marker(&w, 1);
	guest_turn(&w);
	m.done.n = 2;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO);
	m.done.n = 1;
	m.done.pos = 1;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO);
	m.done.pos = 0;
	m.done.nstatuses = UINT32_MAX;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO);
	m.done.nstatuses = 1;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO); /* and none came */
	m.done.nstatuses = 0;
	m.h.tag = NQUEUES;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), -EPROTO);
	m.h.tag = 1;
	ck_assert_int_eq(gantry_link_take(&w.link, &m.h), 0);
	ck_assert_uint_eq(done(&w, 1), 1);
	ck_assert_ptr_null(gantry_link_place(&w.link, w.link.heap.bytes - 1, 2));
	ck_assert_ptr_null(gantry_link_place(&w.link, UINT64_MAX, 2));
	world_fini(&w);
}
END_TEST

START_TEST(test_link_init_refuses_shapes_that_are_none)
{
	struct gantry_door_welcome welcome = {
		.version = 1, .segment_bytes = 8u << 20, .nqueues = 4, .nslots = 17
	};
	struct gantry_link link;

	ck_assert_int_eq(gantry_link_init(&link, &welcome), -EPROTO);
	welcome.nslots = 16;
	welcome.nqueues = 65;
	ck_assert_int_eq(gantry_link_init(&link, &welcome), -EPROTO);
	welcome.nqueues = 4;
	welcome.segment_bytes = 4096;
	ck_assert_int_eq(gantry_link_init(&link, &welcome), -EPROTO);
	welcome.segment_bytes = UINT64_MAX;
	ck_assert_int_eq(gantry_link_init(&link, &welcome), -EPROTO);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bridge");
	TCase *tc = gantry_unit_case(suite, "tasks");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_bridge_carries_each_sort_of_task);
	tcase_add_test(tc, test_bridge_goes_on_wherever_the_stream_breaks);
	tcase_add_test(tc, test_bridge_of_another_relay_goes_on_wherever_the_stream_breaks);
	tcase_add_test(tc, test_bridge_over_positions_that_cannot_be_is_not_made);
	tcase_add_test(tc, test_bridge_goes_on_when_much_was_finished_while_there_was_no_stream);
	tcase_add_test(tc, test_bridge_small_task_overtakes_a_large_write);
	tcase_add_test(tc, test_bridge_small_task_overtakes_a_large_read);
	tcase_add_test(tc, test_bridge_keeps_the_order_of_waits_and_control);
	tcase_add_test(tc, test_bridge_rings_go_round);
	tcase_add_test(tc, test_bridge_request_is_asked_once_and_answered_to_who_asks_again);
	tc = gantry_unit_case(suite, "rules");
	tcase_add_test(tc, test_bridge_refuses_tasks_out_of_place);
	tcase_add_test(tc, test_bridge_refuses_more_tasks_than_slots);
	tcase_add_test(tc, test_bridge_refuses_inline_parts_that_are_cut_short);
	tcase_add_test(tc, test_bridge_refuses_data_outside_the_heap);
	tcase_add_test(tc, test_bridge_refuses_frames_that_are_none);
	tcase_add_test(tc, test_bridge_refuses_lies_about_positions);
	tcase_add_test(tc, test_bridge_refuses_a_request_of_before);
	tcase_add_test(tc, test_link_bounds_what_a_broken_host_says);
	tcase_add_test(tc, test_link_init_refuses_shapes_that_are_none);
	return gantry_unit_run(suite);
}
