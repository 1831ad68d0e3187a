/* SPDX-License-Identifier: Apache-2.0 */
/* Each test without a thread of the store's own, then with one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "host-agent/mover/store.h"
#include "tests/unit/runner.h"

#define BYTES  4096u
#define NPAGES 200u /* more than all batches hold */

static unsigned int nheld; /* holders that nobody has released */

static void release(void *holder)
{
	ck_assert_uint_gt(nheld, 0);
	nheld--;
	free(holder);
}

static int new_file(void)
{
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("store", NPAGES * BYTES, 0, &fd), 0);
	return fd;
}

static uint8_t *new_holder(int value)
{
	uint8_t *bytes = malloc(BYTES);

	ck_assert_ptr_nonnull(bytes);
	memset(bytes, value, BYTES);
	nheld++;
	return bytes;
}

/* Page @page filled with @value, in two pieces of one holder. */
static int put(struct gantry_store *s, int fd, uint64_t page, int value)
{
	uint8_t *bytes = new_holder(value);
	int r = gantry_store_add(s, fd, page * BYTES, bytes, 100);

	r = r < 0 ? r : gantry_store_add(s, fd, page * BYTES + 100, bytes + 100, BYTES - 100);
	gantry_store_hold(s, bytes);
	return r;
}

static void check_page(int fd, unsigned int page, int value)
{
	uint8_t bytes[BYTES], wanted[BYTES];

	memset(wanted, value, sizeof(wanted));
	ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), page * BYTES), BYTES);
	ck_assert_mem_eq(bytes, wanted, BYTES);
}

START_TEST(test_store_add_of_many_writes_each_where_it_belongs_the_later_one_last)
{
	struct gantry_store *s;
	int fd = new_file();

	nheld = 0;
	ck_assert_int_eq(gantry_store_new(release, _i, &s), 0);
	for (int round = 1; round <= 4; round++)
		for (unsigned int i = 0; i < NPAGES; i++) /* forwards, then in leaps */
			ck_assert_int_eq(
				put(s, fd, round % 2 ? i : i * 7 % NPAGES,
				    (int)((round % 2 ? i : i * 7 % NPAGES) + (unsigned)round)),
				0);
	ck_assert_int_eq(gantry_store_drain(s), 0);
	ck_assert_uint_eq(nheld, 0);
	for (unsigned int i = 0; i < NPAGES; i++)
		check_page(fd, i, (int)(i + 4));
	ck_assert_int_eq(put(s, fd, 0, 99), 0); /* and goes on after it was drained */
	ck_assert_int_eq(gantry_store_drain(s), 0);
	check_page(fd, 0, 99);
	gantry_store_free(s);
	close(fd);
}
END_TEST

START_TEST(test_store_hold_of_what_lies_in_two_batches_is_released_after_both)
{
	struct gantry_store *s;
	uint8_t *bytes = new_holder(5);
	int fd = new_file(), other = new_file();

	nheld = 1;
	ck_assert_int_eq(gantry_store_new(release, _i, &s), 0);
	ck_assert_int_eq(gantry_store_add(s, fd, 0, bytes, BYTES / 2), 0);
	ck_assert_int_eq(gantry_store_add(s, other, 0, bytes + BYTES / 2, BYTES / 2), 0);
	gantry_store_hold(s, bytes);
	ck_assert_uint_eq(nheld, 1);
	ck_assert_int_eq(gantry_store_drain(s), 0);
	ck_assert_uint_eq(nheld, 0);
	gantry_store_hold(s, new_holder(1)); /* nothing lies in it */
	ck_assert_uint_eq(nheld, 0);
	gantry_store_free(s);
	close(other);
	close(fd);
}
END_TEST

START_TEST(test_store_drain_inside_a_holder_leaves_it_to_be_released_at_once)
{
	struct gantry_store *s;
	uint8_t *bytes = new_holder(5);
	int fd = new_file();

	nheld = 1;
	ck_assert_int_eq(gantry_store_new(release, _i, &s), 0);
	ck_assert_int_eq(gantry_store_add(s, fd, 0, bytes, BYTES), 0);
	ck_assert_int_eq(gantry_store_drain(s), 0);
	gantry_store_hold(s, bytes);
	ck_assert_uint_eq(nheld, 0);
	check_page(fd, 0, 5);
	gantry_store_free(s);
	close(fd);
}
END_TEST

START_TEST(test_store_drain_after_a_write_that_failed_says_so_and_add_does_too)
{
	struct gantry_store *s;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), good = new_file();

	nheld = 0;
	ck_assert_int_eq(gantry_store_new(release, _i, &s), 0);
	ck_assert_int_eq(put(s, fd, 0, 1), 0);
	ck_assert_int_eq(gantry_store_drain(s), -EBADF);
	ck_assert_int_eq(put(s, good, 0, 1), -EBADF);
	ck_assert_int_eq(gantry_store_drain(s), -EBADF);
	ck_assert_uint_eq(nheld, 0);
	check_page(good, 0, 0);
	gantry_store_free(s);
	close(good);
	close(fd);
}
END_TEST

START_TEST(test_store_free_with_pages_on_their_way_releases_all)
{
	struct gantry_store *s;
	int fd = new_file();

	nheld = 0;
	ck_assert_int_eq(gantry_store_new(release, _i, &s), 0);
	for (unsigned int i = 0; i < NPAGES; i++)
		ck_assert_int_eq(put(s, fd, i, 1), 0);
	gantry_store_free(s);
	gantry_store_free(NULL);
	ck_assert_uint_eq(nheld, 0);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *tc = gantry_unit_case(suite, "store");

	tcase_add_loop_test(
		tc, test_store_add_of_many_writes_each_where_it_belongs_the_later_one_last, 0, 2);
	tcase_add_loop_test(tc, test_store_hold_of_what_lies_in_two_batches_is_released_after_both,
			    0, 2);
	tcase_add_loop_test(tc, test_store_drain_inside_a_holder_leaves_it_to_be_released_at_once,
			    0, 2);
	tcase_add_loop_test(tc, test_store_drain_after_a_write_that_failed_says_so_and_add_does_too,
			    0, 2);
	tcase_add_loop_test(tc, test_store_free_with_pages_on_their_way_releases_all, 0, 2);
	return gantry_unit_run(suite);
}
