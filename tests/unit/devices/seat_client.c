/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of a seat over a holder that a test plays by hand: one that is late, silent, drops the seat, or takes it away.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "devices/registry.h"
#include "devices/seat/seat.h"
#include "tests/unit/runner.h"

#define BYTES	    8192u
#define BOARD_BYTES (1u << 20)
#define PIECES	    (GANTRY_SEAT_MAX_MEMS - GANTRY_SEAT_TASKS) /* that a seat imports */
#define TIMEOUT_NS  (40 * GANTRY_NS_PER_S)

static struct gantry_device device;
static uint32_t nwakes; /* atomic; a futex */
static unsigned char heap[2 * BOARD_BYTES];

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };

/* ---- the holder: a thread that answers everything but what it was told not to ---- */

static struct {
	pthread_t thread;
	int sock;
	int page;
	uint32_t silent_for;  /* atomic: enum gantry_seat_what */
	uint32_t nunanswered; /* atomic; a futex */
	uint32_t
		condemn_behind; /* atomic: enum gantry_seat_what; the answer is followed by the end */
	uint32_t nids;
	uint32_t nstreams; /* atomic: asks for them */
	uint32_t full;	   /* atomic: from so many asks on there are none */
	uint32_t nmems;	   /* atomic: pieces that it was given */
	uint64_t nbytes;   /* atomic: of the last of them */
	uint32_t deaf;	   /* atomic; a futex: it reads nothing */
	uint32_t ended;	   /* atomic; a futex: it has read that there is no more */
} hand;

static void say(const struct gantry_seat_answer *answer, int fd)
{
	(void)gantry_fd_send(hand.sock, answer, sizeof(*answer), &fd, fd >= 0, 0);
}

static void answer_one(const struct gantry_seat_ask *ask)
{
	struct gantry_seat_answer answer = { .what = ask->what, .id = ++hand.nids };
	struct gantry_seat_answer end = { .what = GANTRY_SEAT_CONDEMNED, .text = "as a test says" };

	if (ask->what == GANTRY_SEAT_HELLO)
		answer.info = (struct gantry_device_info){ .name = "board",
							   .id = "fpga:0",
							   .kind = GANTRY_KIND_FPGA,
							   .lanes = 1,
							   .mem_align = 64,
							   .mem_bytes = BOARD_BYTES };
	if (ask->what == GANTRY_SEAT_MEM) {
		gantry_store_release(&hand.nbytes, ask->len);
		gantry_fetch_add(&hand.nmems, 1);
	}
	if (ask->what == gantry_load_acquire(&hand.silent_for)) {
		gantry_fetch_add(&hand.nunanswered, 1);
		(void)gantry_futex_wake(&hand.nunanswered, 1);
		return;
	}
	if (ask->what == GANTRY_SEAT_STREAM &&
	    gantry_fetch_add(&hand.nstreams, 1) >= gantry_load_acquire(&hand.full))
		answer.r = -EAGAIN;
	say(&answer, ask->what == GANTRY_SEAT_HELLO ? hand.page : -EBADF);
	if (ask->what != gantry_load_acquire(&hand.condemn_behind))
		return;
	say(&end, -EBADF);
	(void)shutdown(hand.sock, SHUT_RDWR);
}

static void *serve(void *arg)
{
	struct gantry_seat_ask ask;

	(void)arg;
	for (;;) {
		unsigned int nfds = 0;
		int fd = -EBADF;
		ssize_t n;

		while (gantry_load_acquire(&hand.deaf))
			(void)gantry_futex_wait(&hand.deaf, 1, GANTRY_DEADLINE_NEVER);
		n = gantry_fd_recv(hand.sock, &ask, sizeof(ask), &fd, 1, &nfds, 0);
		if (nfds)
			gantry_fd_close(fd);
		if (n <= 0)
			break;
		if (n == (ssize_t)sizeof(ask) && ask.what != GANTRY_SEAT_MEM_END &&
		    ask.what != GANTRY_SEAT_STREAM_END && ask.what != GANTRY_SEAT_IMAGE_END)
			answer_one(&ask);
	}
	gantry_store_release(&hand.ended, 1u);
	(void)gantry_futex_wake(&hand.ended, 1);
	return NULL;
}

static void open_seat(const char *patience)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char seat_opt[32];
	const char *opts[] = { "filters=contract", seat_opt, patience };
	const struct gantry_device_conf conf = {
		.name = "fpga0", .backend = "seat", .nopts = 3, .opts = opts
	};
	int socks[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks), 0);
	hand.sock = socks[0];
	hand.full = UINT32_MAX;
	ck_assert_int_eq(gantry_memfd_create("page", sizeof(struct gantry_seat_page),
					     GANTRY_MEMFD_SEALED, &hand.page),
			 0);
	ck_assert_int_eq(pthread_create(&hand.thread, NULL, serve, NULL), 0);
	(void)snprintf(seat_opt, sizeof(seat_opt), "seat=%d", socks[1]);
	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	gantry_fd_close(socks[1]);
}

static void close_seat(void)
{
	gantry_device_close(&device);
	(void)shutdown(hand.sock, SHUT_RDWR);
	(void)pthread_join(hand.thread, NULL);
	gantry_fd_close(hand.sock);
	gantry_fd_close(hand.page);
}

/* ---- what a worker does ---- */

static int import(struct gantry_mem **ret_mem, struct gantry_err *err)
{
	int fd, r;

	ck_assert_int_eq(gantry_memfd_create("test", BYTES, GANTRY_MEMFD_SEALED, &fd), 0);
	r = device.backend->mem_import(device.dev, fd, 0, BYTES, ret_mem, err);
	gantry_fd_close(fd);
	return r;
}

static struct gantry_stream *stream_of(void)
{
	const struct gantry_stream_attr attr = { .priority = 0 };
	struct gantry_stream *stream;

	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, NULL), 0);
	return stream;
}

static struct gantry_cmd launch_of(const char *signature, struct gantry_mem *mem)
{
	static struct gantry_signature sig;
	static uint64_t tag;
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = ++tag };
	struct gantry_image *image;

	ck_assert_int_eq(device.backend->image_load(device.dev, "/store/a", NULL, 0, &image, NULL),
			 0);
	ck_assert_int_eq(gantry_signature_parse(signature, &sig, NULL), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "k", &sig, &cmd.launch.kernel, NULL), 0);
	cmd.launch.nargs = sig.nargs;
	cmd.launch.args[0].range = (struct gantry_range){ .mem = mem, .len = BYTES };
	return cmd;
}

static struct gantry_cmd launch(struct gantry_mem *mem)
{
	return launch_of("w:u8*", mem);
}

static struct gantry_done await_end(void)
{
	uint64_t deadline_ns = gantry_now_ns() + TIMEOUT_NS;
	struct gantry_done done;

	for (;;) {
		uint32_t seen = gantry_load_acquire(&nwakes);

		if (device.backend->poll(device.dev, &done, 1) == 1)
			return done;
		ck_assert_msg(gantry_now_ns() < deadline_ns, "nothing ends");
		(void)gantry_futex_wait(&nwakes, seen, gantry_now_ns() + 100 * GANTRY_NS_PER_MS);
	}
}

/* What a session has in its heap. */
static struct gantry_mem *private_of(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(device.backend->mem_host(device.dev, base, len, &mem, NULL), 0);
	return mem;
}

/* The holder's side of the page. */
static struct gantry_seat_page *page_of(void)
{
	struct gantry_seat_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
					     MAP_SHARED, hand.page, 0);

	ck_assert_ptr_ne(page, MAP_FAILED);
	return page;
}

static void end_task(struct gantry_seat_page *page, uint32_t position)
{
	uint32_t at = page->holder.ended;

	page->holder.ends[at % GANTRY_SEAT_TASKS] = (struct gantry_seat_end){
		.slot = page->worker.queue[position % GANTRY_SEAT_TASKS]
	};
	gantry_store_release(&page->holder.ended, at + 1);
	ck_assert_int_eq(send(hand.sock, "", 1, MSG_NOSIGNAL), 1);
}

/* What poll() does beside. */
static void poll_nothing(void)
{
	struct gantry_done done;

	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
}

/* ---- tests ---- */

START_TEST(test_answer_that_comes_too_late_is_nobody_s)
{
	const struct gantry_seat_answer late = { .what = GANTRY_SEAT_MEM, .id = 7 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem = NULL;

	open_seat("answer_ms=4000");
	gantry_store_release(&hand.silent_for, (uint32_t)GANTRY_SEAT_MEM);
	ck_assert_int_eq(import(&mem, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "does not answer"));
	say(&late, -EBADF);
	ck_assert_int_eq(import(&mem, &err), -EIO);
	ck_assert_ptr_null(mem);
	/* It was not asked again: the seat is given up, and its holder takes back what it made. */
	ck_assert_uint_eq(gantry_load_acquire(&hand.nunanswered), 1);
	close_seat();
}
END_TEST

START_TEST(test_seat_dropped_without_a_word_ends_its_launches)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream *stream;
	struct gantry_mem *mem;
	struct gantry_done done;
	struct gantry_cmd cmd;

	open_seat("answer_ms=4000");
	stream = stream_of();
	ck_assert_int_eq(import(&mem, &err), 0);
	cmd = launch(mem);
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
	(void)shutdown(hand.sock, SHUT_RDWR);
	done = await_end();
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	/* And nobody waits again for what will not come. */
	ck_assert_int_eq(import(&mem, &err), -EIO);
	close_seat();
}
END_TEST

/* The two come together, and the holder is gone before the first was read. */
START_TEST(test_end_behind_an_answer_is_heard_and_the_answer_too)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream *stream;
	struct gantry_mem *mem;
	struct gantry_cmd cmd;

	open_seat("answer_ms=30000");
	stream = stream_of();
	ck_assert_int_eq(import(&mem, &err), 0);
	cmd = launch(mem);
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
	gantry_store_release(&hand.condemn_behind, (uint32_t)GANTRY_SEAT_MEM);
	ck_assert_int_eq(import(&mem, &err), 0);
	ck_assert_int_eq(await_end().status, GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(import(&mem, &err), -EIO);
	ck_assert_str_eq(err.text, "as a test says");
	close_seat();
}
END_TEST

START_TEST(test_launch_that_the_board_has_no_room_for_is_not_copied)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_cmd cmd;

	open_seat("answer_ms=30000");
	stream = stream_of();
	cmd = launch(private_of(heap, sizeof(heap)));
	cmd.launch.args[0].range.len = BOARD_BYTES + 1;
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
	done = await_end();
	ck_assert_int_eq(done.status, GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_uint_eq(gantry_load_acquire(&hand.nmems), 0);
	close_seat();
}
END_TEST

/* Nor is it copied by submit(), which takes no time. */
START_TEST(test_buffer_that_is_two_arguments_is_bounced_once)
{
	struct gantry_seat_page *page;
	struct gantry_stream *stream;
	struct gantry_cmd cmd;

	open_seat("answer_ms=30000");
	page = page_of();
	stream = stream_of();
	cmd = launch_of("r:u8*,u32,w:u8*,w:u8*", private_of(heap, sizeof(heap)));
	cmd.launch.args[1].value.u64 = 9;
	for (int i = 0; i < 4; i += i ? 1 : 2)
		cmd.launch.args[i].range = (struct gantry_range){ cmd.launch.args[0].range.mem,
								  i == 3 ? 4096 : 64, 65536 };
	heap[64] = 5;
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
	ck_assert_uint_eq(gantry_load_acquire(&hand.nmems), 0);
	poll_nothing();
	ck_assert_uint_eq(gantry_load_acquire(&hand.nbytes), 2 * 65536);
	ck_assert_uint_eq(page->worker.tasks[0].args[0].off, 0);
	ck_assert_uint_eq(page->worker.tasks[0].args[1].off, 9);
	ck_assert_uint_eq(page->worker.tasks[0].args[2].off, 0);
	ck_assert_uint_eq(page->worker.tasks[0].args[3].off, 65536);
	end_task(page, 0);
	ck_assert_int_eq(await_end().status, GANTRY_OK);
	ck_assert_uint_eq(heap[64], 5);
	(void)munmap(page, sizeof(*page));
	close_seat();
}
END_TEST

/* Of the board's size, whatever the number of queues; in the order in which they came, and idle ones make room. */
START_TEST(test_bounces_together_are_no_larger_than_the_board)
{
	const uint64_t sizes[] = { BOARD_BYTES / 2, BOARD_BYTES / 2 + 1, 4096 };
	struct gantry_stream *streams[3];
	struct gantry_seat_page *page;
	struct gantry_mem *mem;
	struct gantry_cmd cmd;

	open_seat("answer_ms=30000");
	page = page_of();
	mem = private_of(heap, sizeof(heap));
	for (int i = 0; i < 3; i++) {
		streams[i] = stream_of();
		cmd = launch(mem);
		cmd.launch.args[0].range.len = sizes[i];
		ck_assert_int_eq(device.backend->submit(streams[i], &cmd), 0);
		poll_nothing();
	}
	/* The second has no room, and the third does not overtake it. */
	ck_assert_uint_eq(gantry_load_acquire(&page->worker.put), 1);
	end_task(page, 0);
	ck_assert_int_eq(await_end().status, GANTRY_OK);
	poll_nothing();
	ck_assert_uint_eq(gantry_load_acquire(&page->worker.put), 3);
	ck_assert_uint_eq(gantry_load_acquire(&hand.nmems), 3);
	end_task(page, 1);
	end_task(page, 2);
	ck_assert_int_eq(await_end().status, GANTRY_OK);
	ck_assert_int_eq(await_end().status, GANTRY_OK);
	(void)munmap(page, sizeof(*page));
	close_seat();
}
END_TEST

/* More memory than a seat has pieces for is private: it works, and leaves the places that launches need. */
START_TEST(test_memory_beyond_what_a_seat_takes_is_private)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_seat_page *page;
	struct gantry_stream *stream;
	struct gantry_mem *mem = NULL;
	struct gantry_cmd cmd;

	open_seat("answer_ms=30000");
	page = page_of();
	stream = stream_of();
	for (uint32_t i = 0; i <= GANTRY_SEAT_MAX_MEMS; i++)
		ck_assert_int_eq(import(&mem, &err), 0);
	ck_assert_uint_lt(gantry_load_acquire(&hand.nmems), GANTRY_SEAT_MAX_MEMS);
	cmd = launch(mem);
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
	poll_nothing();
	ck_assert_uint_eq(gantry_load_acquire(&page->worker.put), 1);
	end_task(page, 0);
	ck_assert_int_eq(await_end().status, GANTRY_OK);
	(void)munmap(page, sizeof(*page));
	close_seat();
}
END_TEST

/* What it is not told to end it would keep for ever: then rather the whole seat. */
START_TEST(test_holder_that_does_not_read_what_is_to_end_loses_the_seat)
{
	uint64_t deadline_ns = gantry_now_ns() + TIMEOUT_NS;
	struct gantry_mem *mems[PIECES];
	struct gantry_err err = GANTRY_ERR_NONE;

	open_seat("answer_ms=1500");
	for (uint32_t i = 0; i < PIECES; i++)
		ck_assert_int_eq(import(&mems[i], &err), 0);
	gantry_store_release(&hand.deaf, 1u);
	/* More than a socket holds. */
	for (uint32_t i = 0; i < PIECES; i++)
		device.backend->mem_free(mems[i]);
	gantry_store_release(&hand.deaf, 0u);
	(void)gantry_futex_wake(&hand.deaf, 1);
	while (!gantry_load_acquire(&hand.ended)) {
		ck_assert_msg(gantry_now_ns() < deadline_ns, "the socket is open still");
		(void)gantry_futex_wait(&hand.ended, 0, deadline_ns);
	}
	ck_assert_int_eq(import(&mems[0], &err), -EIO);
	close_seat();
}
END_TEST

/* With a holder that has as many as a seat may have, and with one that has fewer. */
START_TEST(test_queues_beyond_the_seat_s_streams_share_them)
{
	const struct gantry_stream_attr low = { .priority = -5 };
	uint32_t seen[GANTRY_SEAT_TASKS] = { 0 }, limit = _i ? 3 : GANTRY_SEAT_MAX_STREAMS;
	struct gantry_stream *streams[60], *last;
	struct gantry_seat_page *page;
	struct gantry_mem *mem;
	struct gantry_cmd cmd;
	struct gantry_err err;

	open_seat("answer_ms=30000");
	if (_i)
		gantry_store_release(&hand.full, limit);
	page = page_of();
	ck_assert_int_eq(import(&mem, &err), 0);
	cmd = launch(mem);
	for (uint32_t i = 0; i < 60; i++) {
		streams[i] = stream_of();
		cmd.tag = 1000 + i;
		ck_assert_int_eq(device.backend->submit(streams[i], &cmd), 0);
	}
	poll_nothing();
	ck_assert_int_eq(device.backend->stream_create(device.dev, &low, &last, &err), 0);
	ck_assert_uint_eq(gantry_load_acquire(&page->worker.put), 60);
	for (uint32_t i = 0; i < 60; i++) {
		uint32_t id = page->worker.tasks[page->worker.queue[i]].stream;
		uint32_t j = 0;

		while (j < limit && seen[j] && seen[j] != id)
			j++;
		ck_assert_uint_lt(j, limit);
		seen[j] = id;
		end_task(page, i);
	}
	ck_assert_uint_ne(seen[limit - 1], 0);
	for (uint32_t i = 0; i < 60; i++)
		ck_assert_int_eq(await_end().status, GANTRY_OK);
	device.backend->stream_destroy(last);
	for (uint32_t i = 0; i < 60; i++)
		device.backend->stream_destroy(streams[i]);
	/* Those that nobody shares any more are there again. */
	gantry_store_release(&hand.full, UINT32_MAX);
	limit = gantry_load_acquire(&hand.nstreams);
	last = stream_of();
	ck_assert_uint_eq(gantry_load_acquire(&hand.nstreams), limit + 1);
	(void)munmap(page, sizeof(*page));
	close_seat();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seat client");
	TCase *tc = gantry_unit_case(suite, "client");

	tcase_add_test(tc, test_answer_that_comes_too_late_is_nobody_s);
	tcase_add_test(tc, test_seat_dropped_without_a_word_ends_its_launches);
	tcase_add_test(tc, test_end_behind_an_answer_is_heard_and_the_answer_too);
	tcase_add_test(tc, test_launch_that_the_board_has_no_room_for_is_not_copied);
	tcase_add_test(tc, test_buffer_that_is_two_arguments_is_bounced_once);
	tcase_add_test(tc, test_bounces_together_are_no_larger_than_the_board);
	tcase_add_test(tc, test_memory_beyond_what_a_seat_takes_is_private);
	tcase_add_test(tc, test_holder_that_does_not_read_what_is_to_end_loses_the_seat);
	tcase_add_loop_test(tc, test_queues_beyond_the_seat_s_streams_share_them, 0, 2);
	return gantry_unit_run(suite);
}
