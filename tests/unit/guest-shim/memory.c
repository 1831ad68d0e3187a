/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/device.h"
#include "guest-shim/session.h"
#include "tests/unit/guest-shim/fake_host.h"
#include "tests/unit/runner.h"

#define SHORT_NS 100000000
#define BIG	 ((5u << 20) + 123)

static struct fake_host host;
static struct gantry_session *session;
static gantry_queue queue;

static void setup(void)
{
	struct gantry_limits ask = { .call_timeout_ns = 5000000000 };

	fake_host_init(&host);
	host.heap_bytes = 16u << 20;
	host.props = GANTRY_PROP_HOST_DIRECT;
	fake_host_start(&host);
	ck_assert_int_eq(gantry_open(host.where, &ask, &session), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &queue), 0);
}

static void teardown(void)
{
	gantry_close(session);
	fake_host_stop(&host);
}

static void hold(uint32_t on)
{
	gantry_store_relaxed(&host.hold_tasks, on);
}

static gantry_buffer alloc(uint64_t bytes, unsigned flags)
{
	gantry_buffer buffer = 0;

	ck_assert_int_eq(gantry_alloc(session, bytes, flags, &buffer), 0);
	return buffer;
}

/* Waits until the host has carried out every control operation. */
static void settle(void)
{
	struct gantry_props props;

	ck_assert_int_eq(gantry_props_get(session, 0, &props), 0);
}

static uint8_t *pattern(uint64_t bytes, unsigned seed)
{
	uint8_t *p = calloc(1, bytes);

	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)((i * 2654435761u) >> 13) ^ (uint8_t)seed;
	return p;
}

/* ---- alloc and free ---- */

START_TEST(test_alloc_flags_zero_prefers_host_then_device)
{
	gantry_buffer small = alloc(4096, 0), large = alloc(64u << 20, 0);

	ck_assert(fake_host_buffer(&host, small)->is_heap);
	ck_assert(!fake_host_buffer(&host, large)->is_heap);
}
END_TEST

START_TEST(test_alloc_bad_arguments_are_refused)
{
	gantry_buffer buffer = 5;

	ck_assert_int_eq(gantry_alloc(session, 0, 0, &buffer), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, UINT64_MAX, 0, &buffer), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 1, 32, &buffer), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 1 << 20, GANTRY_ALLOC_OUTPUT, &buffer),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 1 << 20, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_OUTPUT,
				      &buffer),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, GANTRY_OUTPUT_MIN_BYTES - 1,
				      GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT, &buffer),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 1, GANTRY_ALLOC_HOST | GANTRY_ALLOC_SHARED, &buffer),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 1, 0, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, 64u << 20, GANTRY_ALLOC_HOST, &buffer),
			 GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(buffer, 5);
	ck_assert_int_eq(gantry_free(session, 5), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_free(session, 0), GANTRY_E_HANDLE);
}
END_TEST

/* Also where what is mapped is a copy: the host has it in its heap, and what is written and read goes there. */
START_TEST(test_alloc_kept_is_host_memory_at_any_door)
{
	gantry_buffer buffer = alloc(BIG, GANTRY_ALLOC_HOST | GANTRY_ALLOC_KEPT), none = 7;
	uint8_t *src = pattern(BIG, 3), *dst = calloc(1, BIG);

	ck_assert(fake_host_buffer(&host, buffer)->is_heap);
	ck_assert_int_eq(gantry_write(session, buffer, 0, src, BIG), 0);
	settle();
	ck_assert_int_eq(memcmp(fake_host_buffer(&host, buffer)->mem, src, BIG), 0);
	memset(fake_host_buffer(&host, buffer)->mem + 1000, 0x77, 5000);
	memset(src + 1000, 0x77, 5000);
	ck_assert_int_eq(gantry_read(session, buffer, 0, dst, BIG), 0);
	ck_assert_int_eq(memcmp(src, dst, BIG), 0);
	ck_assert_int_eq(gantry_alloc(session, 4096, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_KEPT,
				      &none),
			 GANTRY_E_ARG);
	ck_assert_uint_eq(none, 7);
	settle(); /* it was looked at here, and the host lets it go now */
	ck_assert_int_eq(gantry_free(session, buffer), 0);
	free(src);
	free(dst);
}
END_TEST

START_TEST(test_alloc_again_is_retried)
{
	gantry_store_relaxed(&host.nagain, 3);
	alloc(4096, GANTRY_ALLOC_DEVICE);
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_buf_alloc), 4);
}
END_TEST

START_TEST(test_free_host_memory_is_reused_only_after_tasks_before_it)
{
	gantry_buffer buffer = alloc(12u << 20, GANTRY_ALLOC_HOST), again = 0;
	gantry_ticket ticket;

	hold(1);
	ck_assert_int_eq(gantry_submit_marker(session, queue, &ticket), 0);
	ck_assert_int_eq(gantry_free(session, buffer), 0);
	ck_assert_int_eq(gantry_free(session, buffer), GANTRY_E_HANDLE);
	session->call_timeout_ns = SHORT_NS;
	ck_assert_int_eq(gantry_alloc(session, 12u << 20, GANTRY_ALLOC_HOST, &again),
			 GANTRY_E_NO_MEMORY);
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	alloc(12u << 20, GANTRY_ALLOC_HOST);
}
END_TEST

START_TEST(test_free_many_while_control_is_held_never_waits_and_loses_none)
{
	gantry_buffer buffers[100];
	uint64_t before;

	for (int i = 0; i < 100; i++)
		buffers[i] = alloc(64, GANTRY_ALLOC_DEVICE);
	gantry_store_relaxed(&host.hold_control, 1);
	before = gantry_now_ns();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(gantry_free(session, buffers[i]), 0);
	ck_assert_uint_le(gantry_now_ns() - before, 1000000000);
	gantry_store_relaxed(&host.hold_control, 0);
	settle();
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_buf_free), 100);
}
END_TEST

/* ---- read and write ---- */

static void check_round_trip(gantry_buffer buffer, uint64_t bytes, uint64_t off, unsigned seed)
{
	uint8_t *src = pattern(bytes, seed), *dst = calloc(1, bytes);

	ck_assert_int_eq(gantry_write(session, buffer, off, src, bytes), 0);
	ck_assert_int_eq(memcmp(fake_host_buffer(&host, buffer)->mem + off, src, bytes), 0);
	ck_assert_int_eq(gantry_read(session, buffer, off, dst, bytes), 0);
	ck_assert_int_eq(memcmp(src, dst, bytes), 0);
	free(src);
	free(dst);
}

START_TEST(test_write_read_round_trip_of_any_size)
{
	const uint64_t sizes[] = { 1, 63, 4096, 4097, 16384, 100001, 300000, BIG };
	gantry_buffer device = alloc(BIG + 10, GANTRY_ALLOC_DEVICE),
		      in_heap = alloc(BIG + 10, GANTRY_ALLOC_HOST);

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_round_trip(device, sizes[i], i, i);
		check_round_trip(in_heap, sizes[i], i, i);
	}
}
END_TEST

START_TEST(test_write_crowded_heap_uses_small_chunks)
{
	gantry_buffer device = alloc(BIG, GANTRY_ALLOC_DEVICE);
	gantry_buffer most = alloc((16u << 20) - 65536, GANTRY_ALLOC_HOST);

	check_round_trip(device, BIG, 0, 9);
	ck_assert_int_eq(gantry_free(session, most), 0);
}
END_TEST

START_TEST(test_write_read_bad_spans_are_refused)
{
	gantry_buffer buffer = alloc(100, 0);
	char byte = 0;

	ck_assert_int_eq(gantry_write(session, buffer, 101, &byte, 0), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_write(session, buffer, 100, &byte, 1), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_write(session, buffer, 1, &byte, UINT64_MAX), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_read(session, buffer, UINT64_MAX, &byte, 2), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_read(session, buffer, 0, NULL, 1), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_read(session, buffer + 1, 0, &byte, 1), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_read(session, buffer, 100, NULL, 0), 0);
}
END_TEST

static void *release_soon(void *arg)
{
	(void)arg;
	while (gantry_load_acquire(&host.rings[1].map.area->waiters) == 0)
		gantry_cpu_relax();
	hold(0);
	return NULL;
}

START_TEST(test_read_host_waits_for_tasks_before_it)
{
	gantry_buffer buffer = alloc(4096, GANTRY_ALLOC_HOST);
	uint64_t word = 0;
	pthread_t thread;

	hold(1);
	ck_assert_int_eq(gantry_submit_fill(session, queue, buffer, 0, 4096, 0x1122, 2, NULL), 0);
	pthread_create(&thread, NULL, release_soon, NULL);
	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), 0);
	ck_assert_uint_eq(word, 0x1122112211221122ull);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(test_read_device_comes_after_tasks_of_every_queue)
{
	gantry_buffer a = alloc(4096, GANTRY_ALLOC_DEVICE), b = alloc(4096, GANTRY_ALLOC_DEVICE);
	gantry_ticket filled;
	gantry_queue other;
	uint32_t word = 0;

	ck_assert_int_eq(gantry_queue_open(session, NULL, &other), 0);
	for (uint32_t i = 1; i < 50; i++) {
		ck_assert_int_eq(gantry_submit_fill(session, queue, a, 0, 4096, i, 4, &filled), 0);
		ck_assert_int_eq(gantry_submit_wait(session, other, &filled, 1, NULL), 0);
		ck_assert_int_eq(gantry_submit_copy(session, other, b, 0, a, 0, 4096, NULL), 0);
		ck_assert_int_eq(gantry_read(session, b, 4092, &word, 4), 0);
		ck_assert_uint_eq(word, i);
	}
}
END_TEST

START_TEST(test_read_failing_transfer_returns_its_status)
{
	gantry_buffer buffer = alloc(4096, GANTRY_ALLOC_DEVICE);
	uint64_t word;

	pthread_mutex_lock(&host.lock);
	host.buffers[0].bytes = 4; /* the host's idea of it */
	pthread_mutex_unlock(&host.lock);
	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), GANTRY_E_SPAN);
	pthread_mutex_lock(&host.lock);
	host.buffers[0].bytes = 4096;
	pthread_mutex_unlock(&host.lock);
	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), 0);
}
END_TEST

START_TEST(test_read_stuck_transfer_times_out_and_keeps_its_memory)
{
	gantry_buffer buffer = alloc(4096, GANTRY_ALLOC_DEVICE);
	uint64_t word = 0, before;

	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), 0);
	before = session->heap.free_bytes;
	session->call_timeout_ns = SHORT_NS;
	hold(1);
	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), GANTRY_E_TIMEOUT);
	/* The host may still write there. */
	ck_assert_uint_lt(session->heap.free_bytes, before);
	hold(0);
	session->call_timeout_ns = 5000000000;
	ck_assert_int_eq(gantry_read(session, buffer, 0, &word, 8), 0);
	ck_assert_uint_eq(session->heap.free_bytes, before);
}
END_TEST

/* ---- map ---- */

START_TEST(test_map_host_is_the_memory_itself)
{
	gantry_buffer buffer = alloc(8192, GANTRY_ALLOC_HOST);
	char *ptr, *twice;

	ck_assert_int_eq(
		gantry_map(session, buffer, 100, 8, GANTRY_RW, GANTRY_FOREVER, (void **)&ptr), 0);
	ck_assert_int_eq(gantry_map(session, buffer, 100, 8, GANTRY_R, 0, (void **)&twice), 0);
	ck_assert_ptr_eq(ptr, twice);
	strcpy(ptr, "mapped");
	ck_assert_str_eq((char *)fake_host_buffer(&host, buffer)->mem + 100, "mapped");
	ck_assert_int_eq(gantry_unmap(session, ptr), 0);
	ck_assert_int_eq(gantry_unmap(session, ptr), 0);
	ck_assert_int_eq(gantry_unmap(session, ptr), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_unmap(session, NULL), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_map_device_reads_in_and_writes_back_as_asked)
{
	gantry_buffer buffer = alloc(8192, GANTRY_ALLOC_DEVICE);
	char *ptr;

	ck_assert_int_eq(gantry_write(session, buffer, 0, "before", 7), 0);
	ck_assert_int_eq(
		gantry_map(session, buffer, 0, 100, GANTRY_R, GANTRY_FOREVER, (void **)&ptr), 0);
	ck_assert_str_eq(ptr, "before");
	strcpy(ptr, "unseen");
	ck_assert_int_eq(gantry_unmap(session, ptr), 0);
	ck_assert_str_eq((char *)fake_host_buffer(&host, buffer)->mem, "before");

	ck_assert_int_eq(
		gantry_map(session, buffer, 0, 100, GANTRY_RW, GANTRY_FOREVER, (void **)&ptr), 0);
	ck_assert_str_eq(ptr, "before");
	strcpy(ptr, "after");
	ck_assert_int_eq(gantry_unmap(session, ptr), 0);
	ck_assert_str_eq((char *)fake_host_buffer(&host, buffer)->mem, "after");

	ck_assert_int_eq(gantry_map(session, buffer, 4000, 8, GANTRY_W, 0, (void **)&ptr), 0);
	memcpy(ptr, "written", 8);
	ck_assert_int_eq(gantry_unmap(session, ptr), 0);
	ck_assert_str_eq((char *)fake_host_buffer(&host, buffer)->mem + 4000, "written");
	ck_assert_uint_eq(session->heap.free_bytes, session->heap.bytes);
}
END_TEST

START_TEST(test_map_busy_buffer_times_out)
{
	gantry_buffer buffer = alloc(8192, GANTRY_ALLOC_HOST);
	void *ptr = NULL;

	hold(1);
	ck_assert_int_eq(gantry_submit_fill(session, queue, buffer, 0, 8192, 0, 1, NULL), 0);
	ck_assert_int_eq(gantry_map(session, buffer, 0, 8, GANTRY_R, 0, &ptr), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_map(session, buffer, 0, 8, GANTRY_R, SHORT_NS, &ptr),
			 GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_map(session, buffer, 8192, 1, GANTRY_R, 0, &ptr), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_map(session, buffer, 0, 0, GANTRY_R, 0, &ptr), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_map(session, buffer, 0, 1, GANTRY_C, 0, &ptr), GANTRY_E_ARG);
	ck_assert_ptr_null(ptr);
	hold(0);
}
END_TEST

START_TEST(test_free_mapped_buffer_ends_its_mappings)
{
	gantry_buffer buffer = alloc(8192, GANTRY_ALLOC_DEVICE);
	void *ptr;

	ck_assert_int_eq(gantry_map(session, buffer, 0, 8192, GANTRY_W, 0, &ptr), 0);
	ck_assert_int_eq(gantry_free(session, buffer), 0);
	ck_assert_int_eq(gantry_unmap(session, ptr), GANTRY_E_ARG);
}
END_TEST

/* ---- share ---- */

START_TEST(test_share_and_adopt_pass_a_token)
{
	gantry_buffer buffer = alloc(4096, GANTRY_ALLOC_SHARED), adopted;
	uint64_t bytes = 0;
	int fd = -1;

	ck_assert_int_eq(gantry_share(session, buffer, GANTRY_R, &fd), 0);
	ck_assert_uint_eq(gantry_load_relaxed(&host.shared), buffer);
	ck_assert_int_lt(write(fd, "x", 1), 0); /* sealed */
	ck_assert_int_eq(gantry_adopt(session, fd, &adopted, &bytes), 0);
	ck_assert_uint_eq(bytes, 4096);
	ck_assert_uint_ne(adopted, buffer);
	/* The fake agent gives the same handle again, which no agent may. */
	ck_assert_int_eq(gantry_adopt(session, fd, &adopted, &bytes), GANTRY_E_PROTOCOL);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_share_bad_arguments_are_refused)
{
	gantry_buffer buffer = alloc(4096, GANTRY_ALLOC_DEVICE),
		      shared = alloc(4096, GANTRY_ALLOC_SHARED);
	int fd = -1;

	ck_assert_int_eq(gantry_share(session, buffer, GANTRY_R, &fd), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_share(session, shared, GANTRY_W, &fd), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_share(session, shared + 99, GANTRY_R, &fd), GANTRY_E_HANDLE);
	ck_assert_int_eq(fd, -1);
}
END_TEST

START_TEST(test_share_silent_agent_times_out_and_session_goes_on)
{
	gantry_buffer shared = alloc(4096, GANTRY_ALLOC_SHARED);
	int fd = -1;

	session->call_timeout_ns = SHORT_NS;
	gantry_store_relaxed(&host.mute_door, 1);
	ck_assert_int_eq(gantry_share(session, shared, GANTRY_R, &fd), GANTRY_E_TIMEOUT);
	gantry_store_relaxed(&host.mute_door, 0);
	session->call_timeout_ns = 5000000000;
	ck_assert_int_eq(gantry_share(session, shared, GANTRY_R, &fd), 0);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_adopt_hostile_descriptors_are_refused)
{
	gantry_buffer buffer;
	int ends[2], file;

	ck_assert_int_eq(gantry_adopt(session, -1, &buffer, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(pipe(ends), 0); /* a read from it would wait for ever */
	ck_assert_int_eq(gantry_adopt(session, ends[0], &buffer, NULL), GANTRY_E_ARG);
	close(ends[0]);
	close(ends[1]);
	ck_assert_int_eq(gantry_memfd_create("empty", 0, 0, &file), 0);
	ck_assert_int_eq(gantry_adopt(session, file, &buffer, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(ftruncate(file, 1 << 20), 0);
	ck_assert_int_eq(gantry_adopt(session, file, &buffer, NULL), GANTRY_E_ARG);
	close(file);
}
END_TEST

/* ---- threads ---- */

static void *mixed_load(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 40; i++) {
		uint64_t bytes = 1 + (seed * 7919u + (unsigned)i * 104729u) % 50000;
		uint8_t *src = pattern(bytes, seed), *dst = malloc(bytes);
		gantry_buffer buffer;

		ck_assert_int_eq(
			gantry_alloc(session, bytes, i % 2 ? GANTRY_ALLOC_DEVICE : 0, &buffer), 0);
		ck_assert_int_eq(gantry_write(session, buffer, 0, src, bytes), 0);
		ck_assert_int_eq(gantry_submit_marker(session, queue, NULL), 0);
		ck_assert_int_eq(gantry_read(session, buffer, 0, dst, bytes), 0);
		ck_assert_int_eq(memcmp(src, dst, bytes), 0);
		ck_assert_int_eq(gantry_free(session, buffer), 0);
		free(src);
		free(dst);
	}
	return NULL;
}

START_TEST(test_memory_calls_from_threads_do_not_disturb_each_other)
{
	pthread_t threads[3];

	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, mixed_load, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	settle();
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_buf_free), 120);
}
END_TEST

/* Kernels that read one and write the other do not meet at the same place of each page. */
START_TEST(test_alloc_in_the_heap_begins_elsewhere_in_its_page)
{
	bool taken[GANTRY_PAGE / 128] = { false };
	gantry_buffer buffers[GANTRY_PAGE / 128];
	void *ptr;

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(buffers); i++) {
		buffers[i] = alloc(8 * GANTRY_PAGE, 0);
		ck_assert_int_eq(
			gantry_map(session, buffers[i], 0, 1, GANTRY_R, GANTRY_FOREVER, &ptr), 0);
		ck_assert_uint_eq((uintptr_t)ptr % 128, 0);
		ck_assert(!taken[(uintptr_t)ptr % GANTRY_PAGE / 128]);
		taken[(uintptr_t)ptr % GANTRY_PAGE / 128] = true;
	}
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(buffers); i++)
		ck_assert_int_eq(gantry_free(session, buffers[i]), 0);
	/* What was asked to be the host's begins with a page. */
	buffers[0] = alloc(8 * GANTRY_PAGE, GANTRY_ALLOC_HOST);
	ck_assert_int_eq(gantry_map(session, buffers[0], 0, 1, GANTRY_R, GANTRY_FOREVER, &ptr), 0);
	ck_assert_uint_eq((uintptr_t)ptr % GANTRY_PAGE, 0);
}
END_TEST

/* There is no room to begin elsewhere, and it is not missed. */
#define TRIES 100000

START_TEST(test_alloc_of_all_that_is_left_of_the_heap_lies_there)
{
	gantry_buffer buffer = alloc(host.heap_bytes / 2, 0);
	uint64_t left = 0;
	void *ptr;

	for (uint64_t bytes = host.heap_bytes / 2; bytes >= GANTRY_PAGE && !left;
	     bytes -= GANTRY_PAGE) {
		if (gantry_alloc(session, bytes, GANTRY_ALLOC_HOST, &buffer) != 0)
			continue;
		ck_assert_int_eq(gantry_free(session, buffer), 0);
		left = bytes;
	}
	/* What was freed is there again when the host has heard of it, for which such an allocation does not wait. */
	buffer = alloc(left, 0);
	for (int i = 0; i < TRIES && !fake_host_buffer(&host, buffer)->is_heap; i++) {
		ck_assert_int_eq(gantry_free(session, buffer), 0);
		(void)sched_yield();
		buffer = alloc(left, 0);
	}
	ck_assert(fake_host_buffer(&host, buffer)->is_heap);
	ck_assert_int_eq(gantry_map(session, buffer, 0, left, GANTRY_R, GANTRY_FOREVER, &ptr), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/memory");
	TCase *tc = gantry_unit_case(suite, "memory");

	tcase_add_checked_fixture(tc, setup, teardown);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_alloc_flags_zero_prefers_host_then_device);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_alloc_bad_arguments_are_refused);
	if (fake_host_shares_memory()) {
		tcase_add_test(tc, test_alloc_in_the_heap_begins_elsewhere_in_its_page);
		tcase_add_test(tc, test_alloc_of_all_that_is_left_of_the_heap_lies_there);
	}
	tcase_add_test(tc, test_alloc_kept_is_host_memory_at_any_door);
	tcase_add_test(tc, test_alloc_again_is_retried);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_free_host_memory_is_reused_only_after_tasks_before_it);
	tcase_add_test(tc, test_free_many_while_control_is_held_never_waits_and_loses_none);
	tcase_add_test(tc, test_write_read_round_trip_of_any_size);
	tcase_add_test(tc, test_write_crowded_heap_uses_small_chunks);
	tcase_add_test(tc, test_write_read_bad_spans_are_refused);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_read_host_waits_for_tasks_before_it);
	tcase_add_test(tc, test_read_device_comes_after_tasks_of_every_queue);
	tcase_add_test(tc, test_read_failing_transfer_returns_its_status);
	tcase_add_test(tc, test_read_stuck_transfer_times_out_and_keeps_its_memory);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_map_host_is_the_memory_itself);
	tcase_add_test(tc, test_map_device_reads_in_and_writes_back_as_asked);
	tcase_add_test(tc, test_map_busy_buffer_times_out);
	tcase_add_test(tc, test_free_mapped_buffer_ends_its_mappings);
	tcase_add_test(tc, test_share_and_adopt_pass_a_token);
	tcase_add_test(tc, test_share_bad_arguments_are_refused);
	tcase_add_test(tc, test_share_silent_agent_times_out_and_session_goes_on);
	tcase_add_test(tc, test_adopt_hostile_descriptors_are_refused);
	tcase_add_test(tc, test_memory_calls_from_threads_do_not_disturb_each_other);
	return gantry_unit_run(suite);
}
