/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder of a device against workers that lie, and that die: over a device that keeps what it was given until the test lets it go.
 * Honest workers, and what launches compute: tests/fpga, "fpga backend from a seat".
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "devices/seat/holder.h"
#include "devices/seat/seat.h"
#include "tests/unit/runner.h"

#define ANSWER_MS 30000
#define MEM_BYTES 8192u
#define MARK	  0x55

/* ---- a device ---- */

struct gantry_mem {
	unsigned char *base;
};
struct gantry_stream {
	int none;
};
struct gantry_image {
	int none;
};
struct gantry_kernel {
	int none;
};

static const struct gantry_device_host *host_of_device;
static struct gantry_cmd kept[16];
static uint32_t nsubmitted; /* atomic; a futex */
static uint32_t nreleased;  /* atomic: so many of them may end */
static uint32_t ntold;
static struct gantry_done how[GANTRY_ARRAY_SIZE(kept)]; /* each is to end; all zeroes: well */
static int how_run_ends;	 /* holder's thread; and the test's before and behind it */
static uint32_t ncancelled;	 /* atomic */
static uint32_t nstreams, nmems; /* alive; the holder's thread's until it has ended */
static char last_path[512];

static int fake_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	static struct gantry_image image;

	(void)dev, (void)bytes, (void)nbytes, (void)err;
	(void)gantry_str_copy(last_path, sizeof(last_path), path);
	*ret_image = &image;
	return 0;
}

static void fake_image_unload(struct gantry_image *image)
{
	(void)image;
}

static int fake_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	static struct gantry_kernel kernel;

	(void)image, (void)symbol, (void)sig, (void)err;
	*ret_kernel = &kernel;
	return 0;
}

static int fake_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	(void)dev, (void)len, (void)err;
	*ret_mem = malloc(sizeof(**ret_mem));
	(*ret_mem)->base = base;
	nmems++;
	return 0;
}

static void fake_mem_free(struct gantry_mem *mem)
{
	nmems--;
	free(mem);
}

static int fake_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	(void)dev, (void)attr, (void)err;
	*ret_stream = malloc(sizeof(**ret_stream));
	nstreams++;
	return 0;
}

static void fake_stream_destroy(struct gantry_stream *stream)
{
	nstreams--;
	free(stream);
}

static int fake_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	(void)stream;
	ck_assert_uint_lt(nsubmitted - ntold, GANTRY_ARRAY_SIZE(kept));
	kept[nsubmitted % GANTRY_ARRAY_SIZE(kept)] = *cmd;
	gantry_fetch_add(&nsubmitted, 1);
	(void)gantry_futex_wake(&nsubmitted, 1);
	return 0;
}

/* A launch writes its buffer when it ends, whoever is dead by then. */
static unsigned fake_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	(void)dev;
	while (count < n && ntold < gantry_load_acquire(&nreleased)) {
		const struct gantry_cmd *cmd = &kept[ntold++ % GANTRY_ARRAY_SIZE(kept)];
		const struct gantry_range *range = &cmd->launch.args[0].range;

		if (host_of_device->cancelled(host_of_device->cookie, cmd->tag))
			gantry_fetch_add(&ncancelled, 1);
		memset(range->mem->base + range->off, MARK, range->len);
		ret_done[count] = how[(ntold - 1) % GANTRY_ARRAY_SIZE(how)];
		ret_done[count].tag = cmd->tag;
		ret_done[count++].device_ns = 7;
	}
	return count;
}

static const struct gantry_backend fake_backend = {
	.abi = GANTRY_BACKEND_ABI,
	.size = sizeof(struct gantry_backend),
	.name = "fake",
	.image_load = fake_image_load,
	.image_unload = fake_image_unload,
	.kernel_get = fake_kernel_get,
	.mem_host = fake_mem_host,
	.mem_free = fake_mem_free,
	.stream_create = fake_stream_create,
	.stream_destroy = fake_stream_destroy,
	.submit = fake_submit,
	.poll = fake_poll,
};
static const struct gantry_device fake_device = { .backend = &fake_backend,
						  .info = { .mem_align = 64 } };

/* ---- the holder ---- */

static struct gantry_seat_holder *holder;
static pthread_t thread;

static void *run(void *arg)
{
	(void)arg;
	ck_assert_int_eq(gantry_seat_holder_run(holder, &fake_device), how_run_ends);
	return NULL;
}

static void *run_nothing(void *arg)
{
	return arg;
}

static void setup(void)
{
	holder = gantry_seat_holder_new("/store/");
	ck_assert_ptr_nonnull(holder);
	host_of_device = gantry_seat_holder_host(holder);
	ck_assert_int_eq(pthread_create(&thread, NULL, run, NULL), 0);
}

static void release(uint32_t n)
{
	gantry_fetch_add(&nreleased, n);
	host_of_device->wake(host_of_device->cookie);
}

/* All that seats had is given back. */
static void teardown(void)
{
	release(gantry_load_acquire(&nsubmitted) - gantry_load_acquire(&nreleased));
	gantry_seat_holder_stop(holder);
	(void)pthread_join(thread, NULL);
	gantry_seat_holder_free(holder);
	ck_assert_uint_eq(nstreams, 0);
	ck_assert_uint_eq(nmems, 0);
}

static void await_submitted(uint32_t n)
{
	uint64_t deadline_ns = gantry_now_ns() + 30 * GANTRY_NS_PER_S;
	uint32_t seen;

	while ((seen = gantry_load_acquire(&nsubmitted)) < n) {
		ck_assert_msg(gantry_now_ns() < deadline_ns, "%u of %u submitted", seen, n);
		(void)gantry_futex_wait(&nsubmitted, seen,
					gantry_now_ns() + 100 * GANTRY_NS_PER_MS);
	}
}

/* ---- a worker, by hand ---- */

struct worker {
	int sock, fd;
	uint32_t nbells;
	struct gantry_seat_page *page;
	unsigned char *memory; /* as the session has it */
};

/* The next message, not counting bells if it is an answer that is wanted; its length. */
static ssize_t hear_any(struct worker *w, struct gantry_seat_answer *ret, int *fd)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	unsigned int nfds = 0;
	ssize_t n;

	ck_assert_int_eq(poll(&p, 1, ANSWER_MS), 1);
	do
		n = gantry_fd_recv(w->sock, ret, sizeof(*ret), fd, fd ? 1 : 0, fd ? &nfds : NULL,
				   0);
	while (n == -ECONNRESET);
	ck_assert_int_gt(n, 0);
	ck_assert(n == 1 || nfds == (fd ? 1 : 0));
	w->nbells += n == 1;
	if (w->page)
		gantry_store_relaxed(&w->page->worker.heard, w->page->worker.heard + 1);
	gantry_fence_full();
	return n;
}

static struct gantry_seat_answer hear(struct worker *w, int *fd)
{
	struct gantry_seat_answer answer;
	ssize_t n;

	while ((n = hear_any(w, &answer, fd)) == 1)
		;
	ck_assert_int_eq(n, (ssize_t)sizeof(answer));
	return answer;
}

static void say(struct worker *w, const struct gantry_seat_ask *ask, int fd)
{
	ck_assert_int_eq(gantry_fd_send(w->sock, ask, sizeof(*ask), &fd, fd >= 0, 0),
			 (ssize_t)sizeof(*ask));
}

static struct gantry_seat_answer ask(struct worker *w, const struct gantry_seat_ask *what, int fd)
{
	say(w, what, fd);
	return hear(w, NULL);
}

/* The seat was taken away, with this sentence. */
static void check_condemned(struct worker *w, const char *why)
{
	struct gantry_seat_answer last = hear(w, NULL);
	char byte;

	ck_assert_uint_eq(last.what, GANTRY_SEAT_CONDEMNED);
	ck_assert_ptr_nonnull(strstr(last.text, why));
	/* Or it left with a bell of ours unread, which the kernel tells as well. */
	ck_assert(recv(w->sock, &byte, 1, 0) == 0 || errno == ECONNRESET);
}

static struct worker arrive(void)
{
	struct worker w = { .fd = -1 };
	int socks[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks), 0);
	ck_assert_int_eq(gantry_seat_holder_add(holder, socks[0], 7), 0);
	w.sock = socks[1];
	return w;
}

static struct gantry_seat_answer give_memory(struct worker *w, int fd, uint64_t len)
{
	return ask(w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_MEM, .len = len }, fd);
}

/* A whole seat: memory 1, stream 1, image 1, and kernel 1 with a buffer and a number. */
static struct worker sit(void)
{
	struct gantry_seat_ask hello = { .what = GANTRY_SEAT_HELLO,
					 .version = GANTRY_SEAT_VERSION };
	struct worker w = arrive();
	int page;

	say(&w, &hello, -1);
	ck_assert_int_eq(hear(&w, &page).r, 0);
	w.page = mmap(NULL, sizeof(*w.page), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	ck_assert_ptr_ne(w.page, MAP_FAILED);
	gantry_fd_close(page);
	ck_assert_int_eq(gantry_memfd_create("test", MEM_BYTES, GANTRY_MEMFD_SEALED, &w.fd), 0);
	w.memory = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w.fd, 0);
	ck_assert_uint_eq(give_memory(&w, w.fd, MEM_BYTES).id, 1);
	ck_assert_uint_eq(ask(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1).id,
			  1);
	ck_assert_uint_eq(
		ask(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_IMAGE, .text = "/store/a" },
		    -1)
			.id,
		1);
	ck_assert_uint_eq(ask(&w,
			      &(struct gantry_seat_ask){ .what = GANTRY_SEAT_KERNEL,
							 .id = 1,
							 .text = "k",
							 .signature = "w:u8*,u64" },
			      -1)
				  .id,
			  1);
	return w;
}

static void leave(struct worker *w)
{
	gantry_fd_close(w->sock);
	gantry_fd_close(w->fd);
	if (w->page)
		(void)munmap(w->page, sizeof(*w->page));
	if (w->memory)
		(void)munmap(w->memory, MEM_BYTES);
}

static void ring(struct worker *w)
{
	ck_assert_int_eq(send(w->sock, "", 1, MSG_NOSIGNAL), 1);
}

static struct gantry_seat_task right_task(void)
{
	return (struct gantry_seat_task){
		.stream = 1,
		.kernel = 1,
		.nargs = 2,
		.args = { { .mem = 1, .off = 64, .len = 128 }, { .off = 42 } },
	};
}

static void put(struct worker *w, uint32_t slot, const struct gantry_seat_task *task)
{
	uint32_t at = w->page->worker.put;

	w->page->worker.tasks[slot % GANTRY_SEAT_TASKS] = *task;
	w->page->worker.queue[at % GANTRY_SEAT_TASKS] = slot;
	gantry_store_release(&w->page->worker.put, at + 1);
	ring(w);
}

static void await_ends(struct worker *w, uint32_t n)
{
	struct gantry_seat_answer answer;

	while (gantry_load_acquire(&w->page->holder.ended) < n)
		ck_assert_int_eq(hear_any(w, &answer, NULL), 1);
}

/* The holder serves on: a launch of an honest worker goes through. */
static void check_others(void)
{
	struct gantry_seat_task task = right_task();
	uint32_t before = gantry_load_acquire(&nsubmitted);
	struct worker w = sit();

	put(&w, 9, &task);
	await_submitted(before + 1);
	release(gantry_load_acquire(&nsubmitted) - gantry_load_acquire(&nreleased));
	await_ends(&w, 1);
	ck_assert_uint_eq(w.page->holder.ends[0].slot, 9);
	ck_assert_int_eq(w.page->holder.ends[0].status, GANTRY_OK);
	ck_assert_uint_eq(w.page->holder.ends[0].device_ns, 7);
	ck_assert_uint_eq(w.memory[63], 0);
	ck_assert_uint_eq(w.memory[64], MARK);
	leave(&w);
}

/* ---- tests ---- */

START_TEST(test_launch_goes_to_the_device_and_its_end_comes_back)
{
	check_others();
	ck_assert_str_eq(last_path, "/store/a");
	ck_assert_uint_eq(kept[0].launch.args[1].value.u64, 42);
}
END_TEST

/* Where a part of a buffer begins is a guest's word, and no worker's lie. */
START_TEST(test_part_that_begins_anywhere_costs_no_seat)
{
	struct gantry_seat_task task = right_task();
	struct worker w = sit();

	task.args[0].off = 3;
	put(&w, 0, &task);
	await_submitted(1);
	release(1);
	await_ends(&w, 1);
	ck_assert_int_eq(w.page->holder.ends[0].status, GANTRY_OK);
	ck_assert_uint_eq(w.memory[2], 0);
	ck_assert_uint_eq(w.memory[3], MARK);
	leave(&w);
}
END_TEST

START_TEST(test_holder_of_another_build_refuses_and_says_so)
{
	struct worker w = arrive();
	struct gantry_seat_answer answer =
		ask(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_HELLO, .version = 99 }, -1);

	ck_assert_int_eq(answer.r, -ENODEV);
	ck_assert_ptr_nonnull(strstr(answer.text, "another build"));
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_worker_that_does_not_say_hello_loses_its_seat)
{
	struct worker w = arrive();

	say(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1);
	check_condemned(&w, "hello");
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_message_that_is_none_loses_the_seat)
{
	struct worker w = sit();

	if (_i == 0)
		ck_assert_int_eq(send(w.sock, "short", 5, 0), 5);
	else
		say(&w, &(struct gantry_seat_ask){ .what = 77 }, -1);
	check_condemned(&w, _i == 0 ? "another size" : "has not");
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_memory_that_can_be_cut_short_is_refused)
{
	struct worker w = sit();
	int fd;

	ck_assert_int_eq(gantry_memfd_create("test", MEM_BYTES, 0, &fd), 0);
	ck_assert_int_eq(give_memory(&w, fd, MEM_BYTES).r, -EPERM);
	gantry_fd_close(fd);
	/* Nor more than there is. */
	ck_assert_int_eq(give_memory(&w, w.fd, MEM_BYTES + 1).r, -EPERM);
	leave(&w);
	check_others();
}
END_TEST

/* No huge page need be there for it to be made and mapped; who touches it then gets SIGBUS, and nothing can be mapped over a part. */
START_TEST(test_memory_on_huge_pages_is_refused)
{
	struct worker w = sit();
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd >= 0) {
		ck_assert_int_eq(ftruncate(fd, 16 << 20), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
				 0);
		ck_assert_int_eq(give_memory(&w, fd, 4096).r, -EPERM);
	}
	gantry_fd_close(fd);
	leave(&w);
	check_others();
}
END_TEST

/* More than a socket holds: no bell is lost that matters, and no answer has to make room for them. */
START_TEST(test_worker_that_hears_no_bells_gets_one_and_its_answers)
{
	struct gantry_seat_task task = right_task();
	struct gantry_seat_answer answer;
	struct worker w = sit();

	for (uint32_t i = 0; i < 1000; i++) {
		put(&w, i % GANTRY_SEAT_TASKS, &task);
		await_submitted(i + 1);
		release(1);
		while (gantry_load_acquire(&w.page->holder.ended) <= i)
			(void)sched_yield();
	}
	say(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1);
	ck_assert_uint_eq(hear(&w, NULL).id, 2);
	ck_assert_uint_le(w.nbells, 1);
	/* It has heard now, so the next end is told. */
	w.nbells = 0;
	put(&w, 0, &task);
	await_submitted(1001);
	release(1);
	while (w.nbells == 0)
		ck_assert_int_eq(hear_any(&w, &answer, NULL), 1);
	ck_assert_uint_eq(gantry_load_acquire(&w.page->holder.ended), 1001);
	leave(&w);
}
END_TEST

/*
 * Whatever one does with its end of the socket: makes it block, does not read and claims to have heard, or rings without end. Neither
 * its own launches nor others' wait for it.
 */
START_TEST(test_worker_that_lies_about_bells_holds_nobody_up)
{
	struct gantry_seat_task task = right_task();
	struct worker w = sit();

	ck_assert_int_eq(gantry_fd_nonblock(w.sock, false), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		gantry_store_relaxed(&w.page->worker.heard, i * 7);
		put(&w, i % GANTRY_SEAT_TASKS, &task);
		await_submitted(i + 1);
		release(1);
		while (gantry_load_acquire(&w.page->holder.ended) <= i)
			(void)sched_yield();
		ring(&w);
	}
	check_others();
	/* Full of bells: there is no room for an answer, and that is the end of this seat only. */
	say(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1);
	check_others();
	leave(&w);
}
END_TEST

START_TEST(test_image_outside_the_store_is_refused)
{
	static const char *const paths[] = { "/etc/passwd",    "/store",      "/store/",
					     "/storeroom/a",   "/store/../a", "/store/b/a",
					     "/store/.hidden", "a",	      "" };
	struct worker w = sit();

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(paths); i++) {
		struct gantry_seat_ask image = { .what = GANTRY_SEAT_IMAGE };

		(void)gantry_str_copy(image.text, sizeof(image.text), paths[i]);
		ck_assert_msg(ask(&w, &image, -1).r == -ENOEXEC, "%s", paths[i]);
	}
	ck_assert_str_eq(last_path, "/store/a");
	leave(&w);
}
END_TEST

static const struct {
	const char *what;
	struct gantry_seat_task task;
} lies[] = {
	{ "no stream", { .kernel = 1, .nargs = 2 } },
	{ "a stream it has not", { .stream = 2, .kernel = 1, .nargs = 2 } },
	{ "a stream out of range", { .stream = UINT32_MAX, .kernel = 1, .nargs = 2 } },
	{ "no kernel", { .stream = 1, .nargs = 2 } },
	{ "a kernel it has not", { .stream = 1, .kernel = 2, .nargs = 2 } },
	{ "a kernel out of range", { .stream = 1, .kernel = 513, .nargs = 2 } },
	{ "too many arguments", { .stream = 1, .kernel = 1, .nargs = 65 } },
	{ "too few", { .stream = 1, .kernel = 1, .nargs = 1 } },
	{ "memory it has not",
	  { .stream = 1, .kernel = 1, .nargs = 2, .args = { { .mem = 2, .len = 64 } } } },
	{ "memory out of range",
	  { .stream = 1, .kernel = 1, .nargs = 2, .args = { { .mem = 257, .len = 64 } } } },
	{ "past its end",
	  { .stream = 1,
	    .kernel = 1,
	    .nargs = 2,
	    .args = { { .mem = 1, .off = 8128, .len = 65 } } } },
	{ "past all ends",
	  { .stream = 1,
	    .kernel = 1,
	    .nargs = 2,
	    .args = { { .mem = 1, .off = UINT64_MAX - 63, .len = 128 } } } },
	{ "bytes of nothing",
	  { .stream = 1, .kernel = 1, .nargs = 2, .args = { { .mem = 0, .len = 64 } } } },
};

START_TEST(test_task_that_lies_reaches_no_device_and_loses_the_seat)
{
	struct worker w = sit();

	put(&w, 0, &lies[_i].task);
	check_condemned(&w, "names what its seat has not");
	ck_assert_msg(nsubmitted == 0, "%s", lies[_i].what);
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_queue_in_disorder_loses_the_seat)
{
	struct gantry_seat_task task = right_task();
	struct worker w = sit();

	if (_i == 0) { /* more than there can be */
		gantry_store_release(&w.page->worker.put, 1000u);
		ring(&w);
	} else if (_i == 1) { /* a slot that there is not */
		put(&w, 64, &task);
	} else { /* one that is under way */
		put(&w, 5, &task);
		await_submitted(1);
		put(&w, 5, &task);
	}
	check_condemned(&w, "disorder");
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_what_is_in_use_cannot_be_ended)
{
	static const uint32_t whats[] = { GANTRY_SEAT_MEM_END, GANTRY_SEAT_STREAM_END,
					  GANTRY_SEAT_IMAGE_END };
	struct gantry_seat_task task = right_task();
	struct worker w = sit();

	put(&w, 0, &task);
	await_submitted(1);
	say(&w, &(struct gantry_seat_ask){ .what = whats[_i], .id = 1 }, -1);
	check_condemned(&w, "in use");
	leave(&w);
	check_others();
}
END_TEST

START_TEST(test_what_is_not_there_cannot_be_ended)
{
	struct worker w = sit();

	say(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_MEM_END, .id = (uint32_t)_i * 300 },
	    -1);
	check_condemned(&w, "has not");
	leave(&w);
	check_others();
}
END_TEST

/* The session goes on in another worker, which has the same memory: nothing of the old one's launch may come there. */
START_TEST(test_launch_of_a_dead_worker_writes_nothing_any_more)
{
	struct gantry_seat_task task = right_task();
	struct worker dead = sit(), next;
	int fd = dup(dead.fd);
	unsigned char *memory = mmap(NULL, MEM_BYTES, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert_int_ge(fd, 0);
	put(&dead, 0, &task);
	await_submitted(1);
	/* A warm one's seat is older than the death. */
	next = sit();
	leave(&dead);
	ck_assert_uint_eq(give_memory(&next, fd, MEM_BYTES).id, 2);
	/* From here on the successor believes that nobody else writes there. */
	release(1);
	task.args[0] = (struct gantry_seat_arg){ .mem = 2, .off = 4096, .len = 64 };
	put(&next, 1, &task);
	await_submitted(2);
	release(1);
	await_ends(&next, 1);
	ck_assert_uint_eq(memory[64], 0);
	ck_assert_uint_eq(memory[4096], MARK);
	ck_assert_uint_eq(gantry_load_acquire(&ncancelled), 1);
	leave(&next);
	(void)munmap(memory, MEM_BYTES);
	gantry_fd_close(fd);
}
END_TEST

#define GREEDY 30u /* seats that take all there is beyond the shares of 256 */
#define SHARE  112u

START_TEST(test_seats_that_take_all_they_get_leave_others_their_share)
{
	static struct worker greedy[GREEDY];
	uint32_t n = 0, least = UINT32_MAX;
	struct worker last;

	for (uint32_t i = 0; i < GREEDY; i++) {
		greedy[i] = sit();
		n = 1; /* which it sat down with */
		while (give_memory(&greedy[i], greedy[i].fd, MEM_BYTES).r == 0)
			n++;
		least = n < least ? n : least;
	}
	ck_assert_uint_lt(least, GANTRY_SEAT_MAX_MEMS); /* there was an end to it */
	ck_assert_uint_ge(least, SHARE);
	last = sit();
	for (n = 1; n < SHARE; n++)
		ck_assert_int_eq(give_memory(&last, last.fd, MEM_BYTES).r, 0);
	ck_assert_int_eq(give_memory(&last, last.fd, MEM_BYTES).r, -ENOMEM);
	/* And what one gives back another has. */
	say(&greedy[0], &(struct gantry_seat_ask){ .what = GANTRY_SEAT_MEM_END, .id = 2 }, -1);
	(void)ask(&greedy[0], &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1);
	ck_assert_int_eq(give_memory(&last, last.fd, MEM_BYTES).r, 0);
	leave(&last);
	for (uint32_t i = 0; i < GREEDY; i++)
		leave(&greedy[i]);
}
END_TEST

/* Others' launches may end before that one. */
START_TEST(test_launch_that_does_not_end_is_told_behind_others_too)
{
	struct gantry_seat_task task = right_task();
	struct worker other = sit(), w = sit();
	const char *kernel = "";
	uint64_t worker = 0;

	how_run_ends = -ENODEV;
	put(&other, 0, &task);
	await_submitted(1);
	put(&w, 3, &task);
	await_submitted(2);
	how[0] = (struct gantry_done){ .status = GANTRY_E_DEVICE_FAULT,
				       .blast = GANTRY_BLAST_CONTEXT };
	how[1] = (struct gantry_done){ .status = GANTRY_E_DEADLINE, .blast = GANTRY_BLAST_CONTEXT };
	release(1);
	(void)usleep(200000); /* the holder sees that one alone */
	ck_assert_uint_eq(gantry_load_acquire(&w.page->holder.ended), 0);
	release(1);
	await_ends(&w, 1);
	ck_assert_uint_eq(w.page->holder.ends[0].slot, 3);
	ck_assert_int_eq(w.page->holder.ends[0].status, GANTRY_E_DEADLINE);
	ck_assert_uint_eq(w.page->holder.ends[0].blast, GANTRY_BLAST_CMD);
	ck_assert_uint_eq(gantry_load_acquire(&other.page->holder.ended), 0);
	leave(&w);
	(void)pthread_join(thread, NULL);
	ck_assert(gantry_seat_holder_blames(holder, &worker, &kernel));
	ck_assert_uint_eq(worker, 7);
	ck_assert_str_eq(kernel, "k");
	leave(&other);
	how_run_ends = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, run_nothing, NULL), 0); /* for teardown() */
}
END_TEST

START_TEST(test_cancelled_task_is_told_to_the_device)
{
	struct gantry_seat_task task = right_task();
	struct worker w = sit();

	put(&w, 3, &task);
	put(&w, 4, &task);
	await_submitted(2);
	gantry_store_relaxed(&w.page->worker.cancel[4], 1u);
	ring(&w);
	/* The answer comes after the pass that saw it. */
	ck_assert_uint_eq(ask(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1).id,
			  2);
	ck_assert_uint_eq(ask(&w, &(struct gantry_seat_ask){ .what = GANTRY_SEAT_STREAM }, -1).id,
			  3);
	release(2);
	await_ends(&w, 2);
	ck_assert_uint_eq(gantry_load_acquire(&ncancelled), 1);
	leave(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seat");
	TCase *tc = gantry_unit_case(suite, "holder");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_launch_goes_to_the_device_and_its_end_comes_back);
	tcase_add_test(tc, test_seats_that_take_all_they_get_leave_others_their_share);
	tcase_add_test(tc, test_part_that_begins_anywhere_costs_no_seat);
	tcase_add_test(tc, test_holder_of_another_build_refuses_and_says_so);
	tcase_add_test(tc, test_worker_that_does_not_say_hello_loses_its_seat);
	tcase_add_loop_test(tc, test_message_that_is_none_loses_the_seat, 0, 2);
	tcase_add_test(tc, test_memory_that_can_be_cut_short_is_refused);
	tcase_add_test(tc, test_memory_on_huge_pages_is_refused);
	tcase_add_test(tc, test_worker_that_hears_no_bells_gets_one_and_its_answers);
	tcase_add_test(tc, test_worker_that_lies_about_bells_holds_nobody_up);
	tcase_add_test(tc, test_image_outside_the_store_is_refused);
	tcase_add_loop_test(tc, test_task_that_lies_reaches_no_device_and_loses_the_seat, 0,
			    (int)GANTRY_ARRAY_SIZE(lies));
	tcase_add_loop_test(tc, test_queue_in_disorder_loses_the_seat, 0, 3);
	tcase_add_loop_test(tc, test_what_is_in_use_cannot_be_ended, 0, 3);
	tcase_add_loop_test(tc, test_what_is_not_there_cannot_be_ended, 0, 3);
	tcase_add_test(tc, test_launch_of_a_dead_worker_writes_nothing_any_more);
	tcase_add_test(tc, test_cancelled_task_is_told_to_the_device);
	tcase_add_test(tc, test_launch_that_does_not_end_is_told_behind_others_too);
	return gantry_unit_run(suite);
}
