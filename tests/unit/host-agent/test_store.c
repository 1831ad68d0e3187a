/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/mover/store.h"
#include "tests/unit/runner.h"

#define BYTES  4096u
#define NPAGES 50u

static int new_file(void)
{
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("store", NPAGES * BYTES, 0, &fd), 0);
	return fd;
}

/* The next buffer, filled with @value and put to page @page; the store's answer. */
static int put(struct gantry_store *s, int fd, uint8_t **buf, uint64_t page, int value)
{
	struct gantry_store_item item = {
		.fd = fd, .off = page * BYTES, .data = *buf + 32, .bytes = BYTES, .buf = *buf
	};
	void *other = NULL;
	int r;

	memset(*buf, value, 32 + BYTES);
	r = gantry_store_put(s, &item, &other);
	if (r == 0)
		*buf = other;
	else
		ck_assert_ptr_null(other);
	return r;
}

START_TEST(test_store_put_of_many_writes_each_where_it_belongs_the_later_one_last)
{
	struct gantry_store *s;
	uint8_t page[BYTES], *buf = malloc(32 + BYTES);
	int fd = new_file();

	ck_assert_int_eq(gantry_store_new(32 + BYTES, &s), 0);
	for (int round = 1; round <= 4; round++)
		for (unsigned i = 0; i < NPAGES; i++)
			ck_assert_int_eq(put(s, fd, &buf, i, (int)(i + (unsigned)round)), 0);
	ck_assert_int_eq(gantry_store_drain(s), 0);
	for (unsigned i = 0; i < NPAGES; i++) {
		ck_assert_int_eq(pread(fd, page, sizeof(page), i * BYTES), BYTES);
		ck_assert_uint_eq(page[0], i + 4);
		ck_assert_uint_eq(page[BYTES - 1], i + 4);
	}
	ck_assert_int_eq(put(s, fd, &buf, 0, 99), 0); /* and goes on after it was drained */
	ck_assert_int_eq(gantry_store_drain(s), 0);
	ck_assert_int_eq(pread(fd, page, 1, 0), 1);
	ck_assert_uint_eq(page[0], 99);
	gantry_store_free(s);
	free(buf);
	close(fd);
}
END_TEST

START_TEST(test_store_drain_after_a_write_that_failed_says_so_and_put_does_too)
{
	struct gantry_store *s;
	uint8_t *buf = malloc(32 + BYTES);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_store_new(32 + BYTES, &s), 0);
	ck_assert_int_eq(gantry_store_drain(s), 0); /* nothing was put */
	ck_assert_int_eq(put(s, fd, &buf, 0, 1), 0);
	ck_assert_int_eq(gantry_store_drain(s), -EBADF);
	ck_assert_int_eq(put(s, fd, &buf, 0, 1), -EBADF);
	ck_assert_int_eq(gantry_store_drain(s), -EBADF);
	gantry_store_free(s);
	free(buf);
	close(fd);
}
END_TEST

START_TEST(test_store_free_with_pages_on_their_way_leaves_nothing)
{
	struct gantry_store *s;
	uint8_t *buf = malloc(32 + BYTES);
	int fd = new_file();

	ck_assert_int_eq(gantry_store_new(32 + BYTES, &s), 0);
	for (unsigned i = 0; i < NPAGES; i++)
		ck_assert_int_eq(put(s, fd, &buf, i, 1), 0);
	gantry_store_free(s);
	gantry_store_free(NULL);
	free(buf);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *tc = gantry_unit_case(suite, "store");

	tcase_add_test(tc, test_store_put_of_many_writes_each_where_it_belongs_the_later_one_last);
	tcase_add_test(tc, test_store_drain_after_a_write_that_failed_says_so_and_put_does_too);
	tcase_add_test(tc, test_store_free_with_pages_on_their_way_leaves_nothing);
	return gantry_unit_run(suite);
}
