/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fd.h"
#include "base/str.h"
#include "migration/image.h"
#include "migration/sum.h"
#include "proto/segment.h"
#include "tests/unit/runner.h"

#define NQUEUES 4u
#define NSLOTS	16u

static uint8_t *stream;
static size_t nstream, capacity;
static struct gantry_ledger ledger;
static int ledger_fd = -EBADF;
static struct gantry_image_session session;

/* What came out at the other end. */
static struct {
	struct gantry_image_session session;
	struct gantry_ledger_queue queues[NQUEUES];
	struct gantry_ledger_object object; /* the last */
	uint32_t object_slot;
	struct gantry_ledger_task task;
	uint64_t task_pos;
	uint8_t pages[4 * GANTRY_PAGE]; /* of the slab */
	uint32_t nsessions, nqueues, nobjects, ntasks, nzero, rounds;
	uint64_t zero_bytes, npiece_bytes;
	int refuse; /* what the sink returns for pages */
} got;

static int to_memory(void *cookie, const void *data, size_t len)
{
	(void)cookie;
	if (nstream + len > capacity) {
		capacity = (nstream + len) * 2;
		stream = realloc(stream, capacity);
		ck_assert_ptr_nonnull(stream);
	}
	memcpy(stream + nstream, data, len);
	nstream += len;
	return 0;
}

static struct gantry_image_writer writer = { .write = to_memory };

static int got_session(void *cookie, const struct gantry_image_session *s, struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	got.session = *s;
	got.nsessions++;
	return 0;
}

static int got_queue(void *cookie, uint32_t slot, const struct gantry_ledger_queue *queue,
		     struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	got.queues[slot] = *queue;
	got.nqueues++;
	return 0;
}

static int got_object(void *cookie, uint32_t slot, const struct gantry_ledger_object *object,
		      struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	got.object = *object;
	got.object_slot = slot;
	got.nobjects++;
	return 0;
}

static int got_task(void *cookie, uint32_t queue, uint64_t pos,
		    const struct gantry_ledger_task *task, struct gantry_err *err)
{
	(void)cookie;
	(void)queue;
	(void)err;
	got.task = *task;
	got.task_pos = pos;
	got.ntasks++;
	return 0;
}

static int got_pages(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		     struct gantry_err *err)
{
	(void)cookie;
	if (got.refuse)
		return gantry_err_set(err, got.refuse, "the sink does not want it");
	if (region == GANTRY_IMAGE_SLAB && off + bytes <= sizeof(got.pages))
		memcpy(got.pages + off, data, bytes);
	return 0;
}

static int got_zero(void *cookie, uint32_t region, uint64_t off, uint64_t bytes,
		    struct gantry_err *err)
{
	(void)cookie;
	(void)region;
	(void)off;
	(void)err;
	got.nzero++;
	got.zero_bytes += bytes;
	return 0;
}

static int got_round(void *cookie, uint32_t number, struct gantry_err *err)
{
	(void)cookie;
	(void)number;
	(void)err;
	got.rounds++;
	return 0;
}

static const struct gantry_image_sink sink = {
	.session = got_session,
	.queue = got_queue,
	.object = got_object,
	.task = got_task,
	.pages = got_pages,
	.zero = got_zero,
	.round = got_round,
};

static void fill_session(void)
{
	struct gantry_segment_layout layout;

	ck_assert_int_eq(gantry_segment_layout_make(NQUEUES, NSLOTS, 1 << 20, &layout), 0);
	session = (struct gantry_image_session){
		.ledger_version = GANTRY_LEDGER_VERSION,
		.wire_version = GANTRY_WIRE_VERSION_MAX,
		.nqueues = NQUEUES,
		.nslots = NSLOTS,
		.segment_bytes = layout.segment_bytes,
		.slab_bytes = 4 * GANTRY_PAGE,
		.session_id = 7,
		.epoch = 3,
		.tenant = "red",
		.program = "a program",
		.ndevices = 1,
		.devices = { { .name = "cpu0", .kind = GANTRY_KIND_CPU } },
	};
}

static void setup(void)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	nstream = 0;
	memset(&got, 0, sizeof(got));
	writer.nrecords = writer.nbytes = 0;
	fill_session();
	ck_assert_int_eq(gantry_ledger_create(7, "red", NQUEUES, NSLOTS, session.segment_bytes,
					      session.slab_bytes, &ledger, &ledger_fd, &err),
			 0);
	ledger.queues[1].taken = 5;
	ledger.queues[1].issued = 3;
	ledger.queues[1].done = 3;
	ledger.queues[1].state = GANTRY_QUEUE_OPEN;
	gantry_ledger_task(&ledger, 1, 4)->desc.op = 42;
	ledger.objects[9].gen = 2;
	ledger.objects[9].type = GANTRY_HANDLE_BUFFER;
	ledger.objects[9].state = GANTRY_OBJECT_LIVE;
	ledger.objects[9].buffer.bytes = 100;
}

static void teardown(void)
{
	gantry_ledger_close(&ledger);
	ledger_fd = gantry_fd_close(ledger_fd);
	free(stream);
	stream = NULL;
	capacity = 0;
}

static void write_whole(void)
{
	uint8_t page[GANTRY_PAGE];

	memset(page, 0x5a, sizeof(page));
	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	ck_assert_int_eq(gantry_image_write_round(&writer, 0), 0);
	ck_assert_int_eq(gantry_image_write_pages(&writer, GANTRY_IMAGE_SLAB, GANTRY_PAGE, page,
						  sizeof(page), NULL),
			 0);
	ck_assert_int_eq(gantry_image_write_zero(&writer, GANTRY_IMAGE_SEGMENT, 0, 2 * GANTRY_PAGE),
			 0);
	ck_assert_int_eq(gantry_image_write_ledger(&writer, &ledger), 0);
	ck_assert_int_eq(gantry_image_write_end(&writer), 0);
}

/* Given @step bytes at a time. */
static int64_t read_into(const struct gantry_image_sink *to, size_t step, struct gantry_err *err)
{
	struct gantry_image_reader r;
	int64_t n = 0;
	size_t at = 0;
	bool ended;

	ck_assert_int_eq(gantry_image_reader_init(&r, to, NULL), 0);
	while (at < nstream && n >= 0 && !r.ended) {
		n = gantry_image_read(&r, stream + at, step < nstream - at ? step : nstream - at,
				      err);
		at += n > 0 ? (size_t)n : 0;
	}
	ended = r.ended;
	gantry_image_reader_fini(&r);
	return n < 0 ? n : ended ? (int64_t)at : -EAGAIN;
}

static int64_t read_whole(size_t step, struct gantry_err *err)
{
	return read_into(&sink, step, err);
}

/* Pages as they come; each piece has to lie in what was read, behind the one before. */
static int got_piece(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		     struct gantry_err *err)
{
	const uint8_t *p = data;

	ck_assert(p >= stream && bytes > 0 && p + bytes <= stream + nstream);
	if (region == GANTRY_IMAGE_SLAB) {
		ck_assert_uint_eq(off, GANTRY_PAGE + got.npiece_bytes);
		got.npiece_bytes += bytes;
	}
	return got_pages(cookie, region, off, data, bytes, err);
}

static int64_t read_in_pieces(size_t step, struct gantry_err *err)
{
	struct gantry_image_sink to = sink;

	to.pages = NULL;
	to.piece = got_piece;
	got.npiece_bytes = 0;
	return read_into(&to, step, err);
}

START_TEST(test_sum64_known_texts_have_the_published_sums)
{
	ck_assert_uint_eq(gantry_sum64("", 0), 0xef46db3751d8e999ull);
	ck_assert_uint_eq(gantry_sum64("a", 1), 0xd24ec4f1a98c6e5bull);
	ck_assert_uint_eq(gantry_sum64("abc", 3), 0x44bc2cf5ad770999ull);
	ck_assert_uint_eq(gantry_sum64("Nobody inspects the spammish repetition", 39),
			  0xfbcea83c8a378bf1ull);
}
END_TEST

START_TEST(test_image_round_trip_brings_all_that_was_written)
{
	static const size_t steps[] = { 1, 7, 4096, 1 << 20 };
	struct gantry_err err = GANTRY_ERR_NONE;

	write_whole();
	ck_assert_uint_eq(writer.nbytes, nstream);
	for (size_t i = 0; i < 2 * sizeof(steps) / sizeof(steps[0]); i++) {
		int64_t (*read)(size_t, struct gantry_err *) = i % 2 ? read_in_pieces : read_whole;

		memset(&got, 0, sizeof(got));
		ck_assert_msg(read(steps[i / 2], &err) == (int64_t)nstream, "%s", err.text);
		ck_assert_int_eq(memcmp(&got.session, &session, sizeof(session)), 0);
		ck_assert_uint_eq(got.nqueues, NQUEUES);
		ck_assert_int_eq(memcmp(&got.queues[1], &ledger.queues[1], sizeof(got.queues[1])),
				 0);
		ck_assert_uint_eq(got.nobjects, 1);
		ck_assert_uint_eq(got.object_slot, 9);
		ck_assert_int_eq(memcmp(&got.object, &ledger.objects[9], sizeof(got.object)), 0);
		ck_assert_uint_eq(got.ntasks, 2);
		ck_assert_uint_eq(got.task_pos, 4);
		ck_assert_uint_eq(got.task.desc.op, 42);
		ck_assert_uint_eq(got.pages[GANTRY_PAGE], 0x5a);
		ck_assert_uint_eq(got.pages[0], 0);
		ck_assert_uint_eq(got.zero_bytes, 2 * GANTRY_PAGE);
		ck_assert_uint_eq(got.rounds, 1);
	}
}
END_TEST

START_TEST(test_sum64_copy_of_memory_gives_its_sum_and_its_bytes)
{
	static uint64_t from[GANTRY_PAGE / 8];
	uint8_t to[GANTRY_PAGE + 1];

	for (size_t i = 0; i < GANTRY_PAGE / 8; i++)
		from[i] = i * 0x9e3779b97f4a7c15ull;
	for (size_t len = 0; len <= GANTRY_PAGE; len += 32) {
		memset(to, 0xee, sizeof(to));
		ck_assert_uint_eq(gantry_sum64_copy(to, from, len), gantry_sum64(from, len));
		ck_assert_mem_eq(to, from, len);
		ck_assert_uint_eq(to[len], 0xee);
	}
}
END_TEST

START_TEST(test_image_pages_in_pieces_have_their_whole_place_checked_before_the_first)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint8_t page[2 * GANTRY_PAGE] = { 1 };

	for (uint64_t at = 0; at < 3; at++) {
		bool is_outside = at == 2;

		nstream = 0;
		writer = (struct gantry_image_writer){ .write = to_memory };
		ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
		ck_assert_int_eq(gantry_image_write_pages(&writer, GANTRY_IMAGE_SLAB,
							  is_outside
								  ? session.slab_bytes - GANTRY_PAGE
								  : GANTRY_PAGE,
							  page, sizeof(page), NULL),
				 0);
		memset(&got, 0, sizeof(got));
		got.refuse = at == 1 ? -ENOMEM : 0;
		ck_assert_int_eq(read_in_pieces(64, &err), is_outside	? -EINVAL
							   : got.refuse ? -ENOMEM
									: -EAGAIN);
		ck_assert_uint_eq(got.npiece_bytes > 0, !is_outside);
	}
}
END_TEST

START_TEST(test_image_bytes_after_the_end_are_left)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	size_t whole;

	write_whole();
	whole = nstream;
	(void)to_memory(NULL, "more", 4);
	ck_assert_int_eq(read_whole(nstream, &err), (int64_t)whole);
}
END_TEST

START_TEST(test_image_cut_anywhere_does_not_end)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	size_t whole;

	write_whole();
	whole = nstream;
	for (nstream = 0; nstream < whole; nstream += nstream < 1000 ? 1 : 97)
		ck_assert_int_eq(read_whole(4096, &err), -EAGAIN);
}
END_TEST

START_TEST(test_image_one_altered_bit_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	write_whole();
	for (size_t at = 0; at < nstream; at += 13) {
		int64_t r;

		stream[at] ^= 0x10;
		err.text[0] = '\0';
		r = read_whole(4096, &err);
		/* A length that grew makes it wait for more than there is. */
		ck_assert_msg(r < 0 || at < sizeof(struct gantry_image_header),
			      "byte %zu altered was taken", at);
		ck_assert(r == -EAGAIN || r >= 0 || err.text[0]);
		stream[at] ^= 0x10;
	}
}
END_TEST

/* The record at @off with its sum set right, so that what is checked next is checked. */
static void sum_again(size_t off)
{
	struct gantry_image_record rec;

	memcpy(&rec, stream + off, sizeof(rec));
	rec.sum = gantry_image_sum(&rec, stream + off + sizeof(rec));
	memcpy(stream + off, &rec, sizeof(rec));
}

static int64_t refused(const char *why)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int64_t r = read_whole(1 << 20, &err);

	ck_assert_msg(r < 0 && strstr(err.text, why), "%lld: %s", (long long)r, err.text);
	return r;
}

START_TEST(test_image_of_another_version_is_refused_as_not_supported)
{
	write_whole();
	stream[8] = 9;	/* version */
	stream[12] = 9; /* version_min */
	ck_assert_int_eq(refused("for readers from 9 on"), -ENOTSUP);
}
END_TEST

START_TEST(test_image_of_a_later_version_that_we_understand_is_read)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	write_whole();
	stream[8] = 9;
	ck_assert_int_eq(read_whole(4096, &err), (int64_t)nstream);
}
END_TEST

START_TEST(test_image_session_with_an_older_ledger_that_is_read_is_taken)
{
	session.ledger_version = GANTRY_LEDGER_VERSION_OLDEST;
	write_whole();
	ck_assert_int_eq(read_whole(4096, NULL), (int64_t)nstream);
	ck_assert_uint_eq(got.nsessions, 1);
}
END_TEST

START_TEST(test_image_session_with_another_ledger_is_refused_as_not_supported)
{
	session.ledger_version++;
	write_whole();
	ck_assert_int_eq(refused("its ledger has version"), -ENOTSUP);
	ck_assert_uint_eq(got.nsessions, 0);
}
END_TEST

START_TEST(test_image_sessions_that_cannot_be_are_refused)
{
	const struct gantry_image_session good = session;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_image_session_check(&session, &err), 0);
#define BAD(change)                                                                     \
	do {                                                                            \
		session = good;                                                         \
		change;                                                                 \
		ck_assert_msg(gantry_image_session_check(&session, &err) < 0, #change); \
	} while (0)
	BAD(session.nqueues = 0);
	BAD(session.nqueues = 65);
	BAD(session.nslots = 17);
	BAD(session.segment_bytes = 4096);
	BAD(session.segment_bytes++);
	BAD(session.segment_bytes = ~0ull << 12);
	BAD(session.slab_bytes = ~0ull);
	BAD(session.slab_bytes++);
	BAD(session.store_bytes = 4096);
	BAD(session.flags = 3); /* a guest comes in one way */
	BAD(session.flags = 5);
	BAD(session.flags = GANTRY_IMAGE_LAZY | 3);
	BAD(session.flags = GANTRY_IMAGE_LAZY | GANTRY_IMAGE_SEATED);
	BAD(session.flags = 16);
	BAD(session.reserved = 1);
	BAD(session.ndevices = 9);
	BAD(session.devices[0].name[0] = '/');
	BAD(session.devices[0].kind = 200);
	BAD(session.tenant[0] = '\0');
	BAD(memset(session.program, 'x', sizeof(session.program)));
	BAD(memset(session.host, 'x', sizeof(session.host)));
	BAD(session.wire_version = 99);
}
END_TEST

START_TEST(test_image_pages_outside_their_region_are_refused)
{
	uint8_t page[GANTRY_PAGE] = { 0 };

	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	(void)gantry_image_write_pages(&writer, GANTRY_IMAGE_SLAB, session.slab_bytes, page,
				       sizeof(page), NULL);
	refused("nowhere");
}
END_TEST

START_TEST(test_image_zero_pages_outside_their_region_are_refused)
{
	static const struct {
		uint32_t region;
		uint64_t off, bytes;
	} bad[] = {
		{ GANTRY_IMAGE_SLAB, 0, 5 * GANTRY_PAGE },
		{ GANTRY_IMAGE_SLAB, 1, GANTRY_PAGE },
		{ GANTRY_IMAGE_SLAB, 0, 1 },
		{ GANTRY_IMAGE_SLAB, 0, 0 },
		{ GANTRY_IMAGE_SLAB, GANTRY_PAGE, ~0ull << 12 },
		{ GANTRY_IMAGE_STORE, 0, GANTRY_PAGE }, /* it has none */
		{ 77, 0, GANTRY_PAGE },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		nstream = 0;
		ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
		(void)gantry_image_write_zero(&writer, bad[i].region, bad[i].off, bad[i].bytes);
		refused("nowhere");
		ck_assert_uint_eq(got.nzero, 0);
	}
}
END_TEST

START_TEST(test_image_records_out_of_order_are_refused)
{
	size_t second;

	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	second = nstream;
	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	/* without the second header */
	memmove(stream + second, stream + second + 32, nstream - second - 32);
	nstream -= 32;
	refused("a second session");

	nstream = 32;
	(void)gantry_image_write_round(&writer, 0);
	refused("before the session");
}
END_TEST

START_TEST(test_image_end_that_counts_wrong_is_refused)
{
	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	writer.nrecords = 5;
	ck_assert_int_eq(gantry_image_write_end(&writer), 0);
	refused("counts 5 records");
}
END_TEST

START_TEST(test_image_unknown_records_are_passed_over_only_if_they_may_be)
{
	struct gantry_image_record rec = { .type = 99, .flags = GANTRY_IMAGE_OPTIONAL };
	struct gantry_err err = GANTRY_ERR_NONE;
	size_t off;

	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	off = nstream;
	(void)to_memory(NULL, &rec, sizeof(rec));
	sum_again(off);
	writer.nrecords++;
	ck_assert_int_eq(gantry_image_write_end(&writer), 0);
	ck_assert_int_eq(read_whole(4096, &err), (int64_t)nstream);

	stream[off + 4] = 0; /* flags */
	sum_again(off);
	ck_assert_int_eq(refused("does not know"), -ENOTSUP);
}
END_TEST

START_TEST(test_image_slots_that_the_session_lacks_are_refused)
{
	static const uint32_t types[] = { GANTRY_IMAGE_QUEUES, GANTRY_IMAGE_OBJECTS,
					  GANTRY_IMAGE_TASKS };
	static const size_t bytes[] = { sizeof(struct gantry_image_queue),
					sizeof(struct gantry_image_object),
					sizeof(struct gantry_image_task) };
	static uint8_t item[512];

	memset(item, 0xff, 4);
	for (size_t i = 0; i < 3; i++) {
		struct gantry_image_record rec = { .type = types[i],
						   .at = NQUEUES,
						   .payload_bytes = bytes[i] };
		size_t off;

		nstream = 0;
		ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
		off = nstream;
		(void)to_memory(NULL, &rec, sizeof(rec));
		(void)to_memory(NULL, item, bytes[i]);
		sum_again(off);
		refused("none such");
	}
	ck_assert_uint_eq(got.nqueues + got.nobjects + got.ntasks, 0);
}
END_TEST

START_TEST(test_image_record_longer_than_any_is_refused_from_its_head)
{
	struct gantry_image_record rec = { .type = GANTRY_IMAGE_PAGES,
					   .payload_bytes = GANTRY_IMAGE_CHUNK + GANTRY_PAGE };

	ck_assert_int_eq(gantry_image_write_session(&writer, &session), 0);
	(void)to_memory(NULL, &rec, sizeof(rec));
	refused("a record of");
}
END_TEST

START_TEST(test_image_what_the_sink_refuses_ends_the_reading_for_good)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_image_reader r;

	write_whole();
	got.refuse = -EDQUOT;
	ck_assert_int_eq(gantry_image_reader_init(&r, &sink, NULL), 0);
	ck_assert_int_eq(gantry_image_read(&r, stream, nstream, &err), -EDQUOT);
	ck_assert_str_eq(err.text, "the sink does not want it");
	got.refuse = 0;
	ck_assert_int_eq(gantry_image_read(&r, stream, nstream, &err), -EINVAL);
	gantry_image_reader_fini(&r);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image");
	TCase *good = gantry_unit_case(suite, "format");
	TCase *bad = gantry_unit_case(suite, "refusals");

	tcase_add_checked_fixture(good, setup, teardown);
	tcase_add_checked_fixture(bad, setup, teardown);
	tcase_add_test(good, test_sum64_known_texts_have_the_published_sums);
	tcase_add_test(good, test_sum64_copy_of_memory_gives_its_sum_and_its_bytes);
	tcase_add_test(bad,
		       test_image_pages_in_pieces_have_their_whole_place_checked_before_the_first);
	tcase_add_test(good, test_image_round_trip_brings_all_that_was_written);
	tcase_add_test(good, test_image_bytes_after_the_end_are_left);
	tcase_add_test(good, test_image_of_a_later_version_that_we_understand_is_read);
	tcase_add_test(good, test_image_unknown_records_are_passed_over_only_if_they_may_be);
	tcase_add_test(bad, test_image_cut_anywhere_does_not_end);
	tcase_add_test(bad, test_image_one_altered_bit_is_refused);
	tcase_add_test(bad, test_image_of_another_version_is_refused_as_not_supported);
	tcase_add_test(bad, test_image_session_with_an_older_ledger_that_is_read_is_taken);
	tcase_add_test(bad, test_image_session_with_another_ledger_is_refused_as_not_supported);
	tcase_add_test(bad, test_image_sessions_that_cannot_be_are_refused);
	tcase_add_test(bad, test_image_pages_outside_their_region_are_refused);
	tcase_add_test(bad, test_image_zero_pages_outside_their_region_are_refused);
	tcase_add_test(bad, test_image_records_out_of_order_are_refused);
	tcase_add_test(bad, test_image_end_that_counts_wrong_is_refused);
	tcase_add_test(bad, test_image_slots_that_the_session_lacks_are_refused);
	tcase_add_test(bad, test_image_record_longer_than_any_is_refused_from_its_head);
	tcase_add_test(bad, test_image_what_the_sink_refuses_ends_the_reading_for_good);
	return gantry_unit_run(suite);
}
