/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cuda/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/runner.h"

#define NPAGES 8u
#define BYTES  ((size_t)NPAGES * CU_PAGE)

static uint8_t *heap; /* of a session: no child has it */
static uint8_t *mine;

static uint8_t *map(void *at, int flags, int fd)
{
	void *p = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

static void set_up(void)
{
	int fd;

	ck_assert_int_eq(gantry_memfd_create("heap", 2 * BYTES, 0, &fd), 0);
	heap = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(heap, MAP_FAILED);
	ck_assert_int_eq(madvise(heap, 2 * BYTES, MADV_DONTFORK), 0);
	gantry_fd_close(fd);
	mine = map(NULL, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(mine, 7, BYTES);
	/* Not the beginning of the memory's file. */
	ck_assert_int_eq(cu_pages_share(mine, heap + CU_PAGE, BYTES), 0);
}

static void tear_down(void)
{
	(void)munmap(mine, BYTES);
	(void)munmap(heap, 2 * BYTES);
}

static bool is_all(const uint8_t *at, size_t bytes, uint8_t value)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

static bool is_mapped(const void *at)
{
	return msync((void *)(uintptr_t)at, CU_PAGE, MS_ASYNC) == 0;
}

START_TEST(test_share_makes_both_names_the_same_memory_until_unshare)
{
	ck_assert(is_all(heap + CU_PAGE, BYTES, 7));
	heap[CU_PAGE] = 1;
	mine[CU_PAGE] = 2;
	ck_assert_uint_eq(mine[0], 1);
	ck_assert_uint_eq(heap[2 * CU_PAGE], 2);
	ck_assert_int_eq(cu_pages_unshare(mine), 0);
	heap[CU_PAGE] = 3;
	ck_assert_uint_eq(mine[0], 1);
	ck_assert_int_eq(cu_pages_unshare(mine), -EINVAL);
}
END_TEST

/* What it does with its pages, and whether it had them: as an exit status. */
static int child(void)
{
	int wrong = !is_all(mine, BYTES, 7);

	memset(mine, 8, BYTES);
	return wrong || !is_all(mine, BYTES, 8) || cu_pages_unshare(mine) != -EINVAL;
}

START_TEST(test_child_has_what_was_in_shared_pages_as_its_own)
{
	for (int round = 0; round < 3; round++) {
		int status;
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			/* Of a child of its own, too: they are ordinary pages now. */
			pid_t grandchild = round == 0 ? fork() : 0;

			if (grandchild > 0)
				_exit(waitpid(grandchild, &status, 0) == grandchild ? status != 0
										    : 1);
			_exit(child());
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		ck_assert(is_all(mine, BYTES, 7));
		ck_assert(is_all(heap + CU_PAGE, BYTES, 7));
	}
	ck_assert_int_eq(cu_pages_unshare(mine), 0);
}
END_TEST

START_TEST(test_unshare_leaves_alone_what_the_program_has_unmapped)
{
	const size_t hole = 3 * CU_PAGE;

	ck_assert_int_eq(munmap(mine + hole, CU_PAGE), 0);
	ck_assert_int_eq(cu_pages_unshare(mine), 0);
	ck_assert(!is_mapped(mine + hole));
	memset(heap, 1, 2 * BYTES);
	ck_assert(is_all(mine, hole, 7));
	ck_assert(is_all(mine + hole + CU_PAGE, BYTES - hole - CU_PAGE, 7));
}
END_TEST

START_TEST(test_unshare_of_memory_that_is_gone_does_nothing)
{
	ck_assert_int_eq(munmap(mine, BYTES), 0);
	ck_assert_int_eq(cu_pages_unshare(mine), 0);
	ck_assert(!is_mapped(mine));
}
END_TEST

/* Neither this process's nor, at a fork, the child's. */
START_TEST(test_what_the_program_mapped_in_their_place_is_its_own)
{
	int fd, status;
	uint8_t *other;
	pid_t pid;

	ck_assert_int_eq(gantry_memfd_create("other", BYTES, 0, &fd), 0);
	other = map(NULL, MAP_SHARED, fd);
	ck_assert_ptr_eq(map(mine, MAP_SHARED | MAP_FIXED, fd), mine);
	gantry_fd_close(fd);
	memset(other, 4, BYTES);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		mine[5] = 6;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(other[5], 6);
	ck_assert_int_eq(cu_pages_unshare(mine), 0);
	mine[0] = 5;
	ck_assert_uint_eq(other[0], 5);
	(void)munmap(other, BYTES);
}
END_TEST

START_TEST(test_share_refuses_what_is_no_plain_memory)
{
	int fd;
	uint8_t *file;

	ck_assert_int_eq(cu_pages_unshare(mine), 0);
	ck_assert_int_eq(gantry_memfd_create("file", BYTES, 0, &fd), 0);
	file = map(NULL, MAP_SHARED, fd);
	gantry_fd_close(fd);
	ck_assert_int_eq(cu_pages_share(file, heap, BYTES), -EINVAL);
	ck_assert_int_eq(cu_pages_share(mine, heap, 0), -EINVAL);
	ck_assert_int_eq(cu_pages_unshare(file), -EINVAL);
	(void)munmap(file, BYTES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *tc = gantry_unit_case(suite, "pages");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_share_makes_both_names_the_same_memory_until_unshare);
	tcase_add_test(tc, test_child_has_what_was_in_shared_pages_as_its_own);
	tcase_add_test(tc, test_unshare_leaves_alone_what_the_program_has_unmapped);
	tcase_add_test(tc, test_unshare_of_memory_that_is_gone_does_nothing);
	tcase_add_test(tc, test_what_the_program_mapped_in_their_place_is_its_own);
	tcase_add_test(tc, test_share_refuses_what_is_no_plain_memory);
	return gantry_unit_run(suite);
}
