/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/mover/pages.h"
#include "tests/unit/runner.h"

#define NPAGES 600u /* more than a record holds */
#define BYTES  ((uint64_t)NPAGES * GANTRY_PAGE)

/* What went, put together again. */
struct wire {
	uint8_t *memory;
	struct gantry_image_record record;
	size_t have; /* of the record's head */
	uint64_t payload;
	uint8_t zero[sizeof(struct gantry_image_zero)];
	uint64_t npages, nzero;
};

static uint8_t *place_of(struct wire *w)
{
	uint64_t off = GANTRY_IMAGE_PLACE_OFF(w->record.at);

	ck_assert_uint_eq(GANTRY_IMAGE_PLACE_REGION(w->record.at), GANTRY_IMAGE_SLAB);
	ck_assert_uint_le(off, BYTES);
	return w->memory + off;
}

static void take_payload(struct wire *w, const void *data, size_t len)
{
	struct gantry_image_zero zero;

	if (w->record.type == GANTRY_IMAGE_PAGES) {
		ck_assert_uint_le(GANTRY_IMAGE_PLACE_OFF(w->record.at) + w->record.payload_bytes,
				  BYTES);
		memcpy(place_of(w) + w->payload, data, len);
		w->npages += len / GANTRY_PAGE;
	} else {
		ck_assert_uint_eq(w->record.type, GANTRY_IMAGE_ZERO);
		ck_assert_uint_eq(len, sizeof(zero));
		memcpy(&zero, data, sizeof(zero));
		memset(place_of(w), 0, zero.bytes);
		w->nzero += zero.bytes / GANTRY_PAGE;
	}
	w->payload += len;
	if (w->payload == w->record.payload_bytes)
		w->have = w->payload = 0;
}

static int take(void *cookie, const void *data, size_t len)
{
	struct wire *w = cookie;

	if (w->have == sizeof(w->record)) {
		take_payload(w, data, len);
		return 0;
	}
	ck_assert_uint_eq(len, sizeof(w->record)); /* heads are written whole */
	memcpy(&w->record, data, len);
	w->have = len;
	return 0;
}

static int no_pace(void *cookie, uint64_t bytes)
{
	(void)cookie;
	(void)bytes;
	return 0;
}

static int send_part(struct gantry_pages *p, struct wire *w, uint64_t from, uint64_t to)
{
	struct gantry_image_writer writer = { .write = take, .cookie = w };
	struct gantry_pages_round round = { 0 };

	return gantry_pages_send_part(p, &writer, no_pace, NULL, &round, from, to);
}

/* @looks_ahead: 1, or 0 for one thread. */
static int make(struct gantry_pages *p, uint8_t *bytes, int looks_ahead)
{
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("pages", BYTES, 0, &fd), 0);
	for (uint64_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7 + i / GANTRY_PAGE);
	memset(bytes + 5 * GANTRY_PAGE, 0, 3 * GANTRY_PAGE);
	bytes[9 * GANTRY_PAGE] = 0; /* looks like a zero page at first */
	ck_assert_int_eq(gantry_write_all_at(fd, bytes, BYTES, 0), 0);
	ck_assert_int_eq(gantry_pages_open(p, GANTRY_IMAGE_SLAB, fd, 0, BYTES, 0), 0);
	p->looks_ahead = looks_ahead;
	return fd;
}

START_TEST(test_pages_send_in_rounds_gives_what_is_there_each_page_once)
{
	uint8_t *bytes = malloc(BYTES), *other = calloc(1, BYTES);
	struct wire w = { .memory = other };
	struct gantry_pages p;
	int fd = make(&p, bytes, _i);

	ck_assert_int_eq(send_part(&p, &w, 0, BYTES), 0);
	ck_assert_mem_eq(bytes, other, BYTES);
	ck_assert_uint_eq(w.npages, NPAGES - 3); /* what is zero was zero there */
	ck_assert_int_eq(send_part(&p, &w, 0, BYTES), 0);
	ck_assert_uint_eq(w.npages, NPAGES - 3);
	bytes[BYTES - 1] ^= 1;
	memset(bytes + 20 * GANTRY_PAGE, 0, GANTRY_PAGE);
	ck_assert_int_eq(gantry_write_all_at(fd, bytes, BYTES, 0), 0);
	ck_assert_int_eq(send_part(&p, &w, 0, BYTES), 0);
	ck_assert_mem_eq(bytes, other, BYTES);
	ck_assert_uint_eq(w.npages, NPAGES - 3 + 1);
	ck_assert_uint_eq(w.nzero, 1);
	gantry_pages_close(&p);
	close(fd);
	free(bytes);
	free(other);
}
END_TEST

START_TEST(test_pages_send_of_pages_that_are_none_writes_nothing)
{
	static const struct {
		uint64_t from, to;
	} wrong[] = {
		{ BYTES, BYTES + GANTRY_PAGE },
		{ BYTES + GANTRY_PAGE, BYTES + 2 * GANTRY_PAGE },
		{ 0, BYTES + 1 },
		{ 0, UINT64_MAX & ~(uint64_t)(GANTRY_PAGE - 1) },
		{ 8, BYTES },
		{ 0, 8 },
		{ 2 * GANTRY_PAGE, GANTRY_PAGE },
	};
	uint8_t *bytes = malloc(BYTES), *other = calloc(1, BYTES);
	struct wire w = { .memory = other };
	struct gantry_pages p;
	int fd = make(&p, bytes, _i);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(send_part(&p, &w, wrong[i].from, wrong[i].to), -ERANGE);
	ck_assert_uint_eq(w.npages + w.nzero, 0);
	ck_assert_int_eq(send_part(&p, &w, BYTES - GANTRY_PAGE, BYTES), 0);
	ck_assert_uint_eq(w.npages, 1);
	gantry_pages_close(&p);
	close(fd);
	free(bytes);
	free(other);
}
END_TEST

static int fail_at_third(void *cookie, uint64_t bytes)
{
	uint32_t *calls = cookie;

	(void)bytes;
	return ++*calls < 3 ? 0 : -ECANCELED;
}

/* Who looks ahead is stopped where it is, full or not, and nothing more is written. */
START_TEST(test_pages_send_that_is_ended_by_its_pace_ends_at_once)
{
	uint8_t *bytes = malloc(BYTES), *other = calloc(1, BYTES);
	struct wire w = { .memory = other };
	struct gantry_image_writer writer = { .write = take, .cookie = &w };
	struct gantry_pages_round round = { 0 };
	struct gantry_pages p;
	uint32_t calls = 0;
	int fd = make(&p, bytes, _i);

	ck_assert_int_eq(gantry_pages_send(&p, &writer, fail_at_third, &calls, &round), -ECANCELED);
	ck_assert_uint_eq(calls, 3);
	ck_assert_uint_eq(round.bytes, w.npages * GANTRY_PAGE);
	ck_assert_uint_lt(w.npages, NPAGES - 3);
	gantry_pages_close(&p);
	close(fd);
	free(bytes);
	free(other);
}
END_TEST

static int refuse(void *cookie, const void *data, size_t len)
{
	(void)cookie;
	(void)data;
	(void)len;
	return -ECONNRESET;
}

START_TEST(test_pages_send_on_a_broken_link_says_so)
{
	uint8_t *bytes = malloc(BYTES);
	struct gantry_image_writer writer = { .write = refuse };
	struct gantry_pages_round round = { 0 };
	struct gantry_pages p;
	int fd = make(&p, bytes, _i);

	ck_assert_int_eq(gantry_pages_send(&p, &writer, no_pace, NULL, &round), -ECONNRESET);
	ck_assert_int_eq(gantry_pages_send_part(&p, &writer, no_pace, NULL, &round, 0, GANTRY_PAGE),
			 0); /* it counts as sent: a round that failed is the last */
	ck_assert_int_eq(gantry_pages_send_part(&p, &writer, no_pace, NULL, &round,
						BYTES - GANTRY_PAGE, BYTES),
			 -ECONNRESET);
	gantry_pages_close(&p);
	close(fd);
	free(bytes);
}
END_TEST

/* Each other page is zero where something else was: pages and zeros by turns, more of them than there are runs. */
START_TEST(test_pages_send_of_pages_and_zeros_by_turns_keeps_both_apart)
{
	uint8_t *bytes = malloc(BYTES), *other = calloc(1, BYTES);
	struct wire w = { .memory = other };
	struct gantry_pages p;
	int fd = make(&p, bytes, _i);

	ck_assert_int_eq(send_part(&p, &w, 0, BYTES), 0);
	for (uint64_t i = 20; i < NPAGES; i++)
		if (i % 2)
			memset(bytes + i * GANTRY_PAGE, 0, GANTRY_PAGE);
		else
			bytes[i * GANTRY_PAGE + 1] ^= 1;
	ck_assert_int_eq(gantry_write_all_at(fd, bytes, BYTES, 0), 0);
	ck_assert_int_eq(send_part(&p, &w, 0, BYTES), 0);
	ck_assert_mem_eq(bytes, other, BYTES);
	ck_assert_uint_eq(w.nzero, (NPAGES - 20) / 2);
	gantry_pages_close(&p);
	close(fd);
	free(bytes);
	free(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *tc = gantry_unit_case(suite, "pages");

	tcase_add_loop_test(tc, test_pages_send_in_rounds_gives_what_is_there_each_page_once, 0, 2);
	tcase_add_loop_test(tc, test_pages_send_of_pages_that_are_none_writes_nothing, 0, 2);
	tcase_add_loop_test(tc, test_pages_send_that_is_ended_by_its_pace_ends_at_once, 0, 2);
	tcase_add_loop_test(tc, test_pages_send_on_a_broken_link_says_so, 0, 2);
	tcase_add_loop_test(tc, test_pages_send_of_pages_and_zeros_by_turns_keeps_both_apart, 0, 2);
	return gantry_unit_run(suite);
}
