/* SPDX-License-Identifier: Apache-2.0 */
/* ring-dump and ledger-dump, on a segment and a ledger made here and named by /proc/PID/fd. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "migration/ledger.h"
#include "proto/ring.h"
#include "tests/unit/runner.h"

#define SEGMENT_BYTES GANTRY_SEGMENT_MIN_BYTES
#define NSLOTS	      16u

static char output[65536];
static int fd = -1;

/* Runs the tool that the environment names on @fd; its output is in output. Returns its exit status. */
static int run_tool(const char *variable, const char *options)
{
	const char *tool = getenv(variable);
	char command[1024];
	FILE *pipe;
	size_t n;
	int status;

	ck_assert_msg(tool != NULL, "%s is not set", variable);
	snprintf(command, sizeof(command), "%s %s /proc/%d/fd/%d 2>&1", tool, options, getpid(),
		 fd);
	pipe = popen(command, "re");
	ck_assert_ptr_nonnull(pipe);
	n = fread(output, 1, sizeof(output) - 1, pipe);
	output[n] = '\0';
	status = pclose(pipe);
	return WEXITSTATUS(status);
}

static void expect(const char *text)
{
	ck_assert_msg(strstr(output, text) != NULL, "no \"%s\" in:\n%s", text, output);
}

static struct gantry_segment_header *make_segment(void)
{
	struct gantry_segment_header *h;

	ck_assert_int_eq(gantry_memfd_create("segment", SEGMENT_BYTES, GANTRY_MEMFD_SEALED, &fd),
			 0);
	h = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(h, MAP_FAILED);
	h->magic = GANTRY_WIRE_MAGIC;
	h->version = 1;
	h->nqueues = 2;
	h->nslots = NSLOTS;
	h->queue_stride_bytes = (uint32_t)gantry_ring_stride_bytes(NSLOTS);
	h->queues_off = GANTRY_PAGE;
	h->heap_off = GANTRY_PAGE + 2ull * h->queue_stride_bytes;
	h->heap_bytes = SEGMENT_BYTES - h->heap_off;
	h->segment_bytes = SEGMENT_BYTES;
	h->session_id = 4711;
	h->state = GANTRY_SESSION_ATTACHED;
	return h;
}

static void put_fill(struct gantry_segment_header *h)
{
	const struct gantry_region region = { (uint8_t *)h, SEGMENT_BYTES };
	const struct gantry_op_fill fill = {
		.buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, 2),
		.bytes = 64,
		.pattern_bytes = 4,
	};
	struct gantry_ring_producer p;
	struct gantry_ring_map map;

	ck_assert_int_eq(gantry_ring_map_init(&map, &region, h->queues_off, 1, NSLOTS), 0);
	map.area->state = GANTRY_QUEUE_OPEN;
	gantry_ring_producer_init(&p, &map);
	gantry_desc_put_fill(gantry_ring_desc(&p, 0), &fill);
	gantry_ring_publish(&p, 1);
}

START_TEST(test_ring_dump_shows_session_queue_and_waiting_task)
{
	struct gantry_segment_header *h = make_segment();

	put_fill(h);
	ck_assert_int_eq(run_tool("RING_DUMP", "-v"), 0);
	expect("session 4711 is attached");
	expect("    1 open");
	expect("ready 1 fill buffer=0x100000001000002 bytes=0x40 pattern_bytes=4\n");
	munmap(h, SEGMENT_BYTES);
	close(fd);
}
END_TEST

START_TEST(test_ring_dump_lying_tail_is_said)
{
	struct gantry_segment_header *h = make_segment();
	struct gantry_queue_area *area = (void *)((uint8_t *)h + h->queues_off);

	area->tail = 1000000;
	ck_assert_int_eq(run_tool("RING_DUMP", "-v"), 0);
	expect("tail makes no sense");
	munmap(h, SEGMENT_BYTES);
	close(fd);
}
END_TEST

START_TEST(test_ring_dump_bad_headers_are_refused)
{
	struct gantry_segment_header *h = make_segment();

	h->nslots = 12345;
	ck_assert_int_eq(run_tool("RING_DUMP", ""), 1);
	expect("make no sense");
	h->magic = 1;
	ck_assert_int_eq(run_tool("RING_DUMP", ""), 1);
	expect("no segment");
	munmap(h, SEGMENT_BYTES);
	close(fd);
}
END_TEST

START_TEST(test_ring_dump_queues_outside_the_file_are_said)
{
	struct gantry_segment_header *h = make_segment();

	h->queues_off = UINT64_MAX - 63;
	ck_assert_int_eq(run_tool("RING_DUMP", ""), 0);
	expect("lies outside the segment");
	munmap(h, SEGMENT_BYTES);
	close(fd);
}
END_TEST

START_TEST(test_dumps_of_nothing_fail)
{
	fd = 9999;
	ck_assert_int_eq(run_tool("RING_DUMP", ""), 1);
	ck_assert_int_eq(run_tool("LEDGER_DUMP", ""), 1);
}
END_TEST

static void make_ledger(struct gantry_ledger *l)
{
	struct gantry_err err;

	ck_assert_int_eq(
		gantry_ledger_create(4712, "red", 2, NSLOTS, 1 << 20, 1 << 20, l, &fd, &err), 0);
}

START_TEST(test_ledger_dump_shows_queue_and_tasks_in_doubt)
{
	const struct gantry_op_marker marker = { 0 };
	struct gantry_ledger l;

	make_ledger(&l);
	l.queues[1].state = GANTRY_QUEUE_OPEN;
	l.queues[1].gen = 1;
	for (uint64_t pos = 0; pos < 3; pos++)
		gantry_desc_put_marker(&gantry_ledger_task(&l, 1, pos)->desc, &marker);
	l.queues[1].taken = 3;
	l.queues[1].issued = 2;
	l.queues[1].done = 1;
	ck_assert_int_eq(run_tool("LEDGER_DUMP", "-v"), 0);
	expect("session 4712 of red");
	expect("in doubt 2 marker");
	expect("accepted 3 marker");
	expect("0 buffers, 0 kernels, 0 images");
	gantry_ledger_close(&l);
	close(fd);
}
END_TEST

START_TEST(test_ledger_dump_corrupt_ledger_says_why)
{
	struct gantry_ledger l;

	make_ledger(&l);
	l.queues[1].state = GANTRY_QUEUE_OPEN;
	l.queues[1].gen = 1;
	l.queues[1].done = 5;
	ck_assert_int_eq(run_tool("LEDGER_DUMP", ""), 1);
	expect("refused at adoption: ");
	l.hdr->magic = 0;
	ck_assert_int_eq(run_tool("LEDGER_DUMP", ""), 1);
	expect("no ledger");
	gantry_ledger_close(&l);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dump");
	TCase *tc = gantry_unit_case(suite, "dump");

	tcase_add_test(tc, test_ring_dump_shows_session_queue_and_waiting_task);
	tcase_add_test(tc, test_ring_dump_lying_tail_is_said);
	tcase_add_test(tc, test_ring_dump_bad_headers_are_refused);
	tcase_add_test(tc, test_ring_dump_queues_outside_the_file_are_said);
	tcase_add_test(tc, test_dumps_of_nothing_fail);
	tcase_add_test(tc, test_ledger_dump_shows_queue_and_tasks_in_doubt);
	tcase_add_test(tc, test_ledger_dump_corrupt_ledger_says_why);
	return gantry_unit_run(suite);
}
