/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of a seat over a holder that a test plays by hand: one that is late, silent, drops the seat, or takes it away.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "devices/registry.h"
#include "devices/seat/seat.h"
#include "tests/unit/runner.h"

#define BYTES	   8192u
#define TIMEOUT_NS (40 * GANTRY_NS_PER_S)

static struct gantry_device device;
static uint32_t nwakes; /* atomic; a futex */

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
							   .mem_bytes = 1 << 20 };
	if (ask->what == gantry_load_acquire(&hand.silent_for)) {
		gantry_fetch_add(&hand.nunanswered, 1);
		(void)gantry_futex_wake(&hand.nunanswered, 1);
		return;
	}
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
		ssize_t n = gantry_fd_recv(hand.sock, &ask, sizeof(ask), &fd, 1, &nfds, 0);

		if (nfds)
			gantry_fd_close(fd);
		if (n <= 0)
			return NULL;
		if (n == (ssize_t)sizeof(ask) && ask.what != GANTRY_SEAT_MEM_END &&
		    ask.what != GANTRY_SEAT_STREAM_END && ask.what != GANTRY_SEAT_IMAGE_END)
			answer_one(&ask);
	}
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

static struct gantry_cmd launch(struct gantry_mem *mem)
{
	static struct gantry_signature sig;
	static uint64_t tag;
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = ++tag };
	struct gantry_image *image;

	ck_assert_int_eq(device.backend->image_load(device.dev, "/store/a", NULL, 0, &image, NULL),
			 0);
	ck_assert_int_eq(gantry_signature_parse("w:u8*", &sig, NULL), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "k", &sig, &cmd.launch.kernel, NULL), 0);
	cmd.launch.nargs = 1;
	cmd.launch.args[0].range = (struct gantry_range){ .mem = mem, .len = BYTES };
	return cmd;
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

/* ---- tests ---- */

START_TEST(test_answer_that_comes_too_late_is_nobody_s)
{
	const struct gantry_seat_answer late = { .what = GANTRY_SEAT_MEM, .id = 7 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mem *mem = NULL;

	open_seat("answer_ms=200");
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

	open_seat("answer_ms=500");
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

int main(void)
{
	Suite *suite = suite_create("seat client");
	TCase *tc = gantry_unit_case(suite, "client");

	tcase_add_test(tc, test_answer_that_comes_too_late_is_nobody_s);
	tcase_add_test(tc, test_seat_dropped_without_a_word_ends_its_launches);
	tcase_add_test(tc, test_end_behind_an_answer_is_heard_and_the_answer_too);
	return gantry_unit_run(suite);
}
