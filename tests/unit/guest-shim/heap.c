/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/heap.h"
#include "tests/unit/runner.h"

#define HEAP_BYTES (1u << 20)
#define NGRANULES  (HEAP_BYTES / GANTRY_HEAP_GRANULE)
#define NBLOCKS	   200
#define NSTEPS	   20000

START_TEST(test_heap_init_less_than_granule_returns_einval)
{
	struct gantry_heap heap;

	ck_assert_int_eq(gantry_heap_init(&heap, GANTRY_HEAP_GRANULE - 1), -EINVAL);
}
END_TEST

START_TEST(test_heap_take_bad_arguments_returns_einval)
{
	struct gantry_heap_block *block;
	struct gantry_heap heap;

	ck_assert_int_eq(gantry_heap_init(&heap, HEAP_BYTES), 0);
	ck_assert_int_eq(gantry_heap_take(&heap, 0, 64, &block), -EINVAL);
	ck_assert_int_eq(gantry_heap_take(&heap, 1, 3, &block), -EINVAL);
	ck_assert_int_eq(gantry_heap_take(&heap, UINT64_MAX, 64, &block), -ENOSPC);
	ck_assert_int_eq(gantry_heap_take(&heap, HEAP_BYTES + 1, 64, &block), -ENOSPC);
	gantry_heap_fini(&heap);
}
END_TEST

START_TEST(test_heap_take_all_then_put_gives_all_back)
{
	struct gantry_heap_block *all, *more;
	struct gantry_heap heap;

	ck_assert_int_eq(gantry_heap_init(&heap, HEAP_BYTES + 63), 0);
	ck_assert_int_eq(gantry_heap_take(&heap, HEAP_BYTES, 64, &all), 0);
	ck_assert_uint_eq(heap.free_bytes, 0);
	ck_assert_int_eq(gantry_heap_take(&heap, 1, 1, &more), -ENOSPC);
	gantry_heap_put(&heap, all);
	ck_assert_int_eq(gantry_heap_take(&heap, HEAP_BYTES, 4096, &all), 0);
	ck_assert_uint_eq(all->off, 0);
	gantry_heap_fini(&heap);
}
END_TEST

START_TEST(test_heap_take_aligned_starts_at_multiple_and_wastes_nothing)
{
	struct gantry_heap_block *small, *aligned;
	struct gantry_heap heap;

	ck_assert_int_eq(gantry_heap_init(&heap, HEAP_BYTES), 0);
	ck_assert_int_eq(gantry_heap_take(&heap, 64, 64, &small), 0);
	ck_assert_int_eq(gantry_heap_take(&heap, 100, 65536, &aligned), 0);
	ck_assert_uint_eq(aligned->off % 65536, 0);
	ck_assert_uint_eq(heap.free_bytes, HEAP_BYTES - 64 - 128);
	gantry_heap_fini(&heap);
}
END_TEST

/* A model that cannot be wrong: who owns each granule. */
struct model {
	uint8_t owner[NGRANULES]; /* 0: free, else index of the block + 1 */
	struct gantry_heap_block *blocks[NBLOCKS];
	uint64_t used_bytes;
};

static void model_mark(struct model *m, const struct gantry_heap_block *block, uint8_t from,
		       uint8_t to)
{
	bool as_expected = true;

	for (uint64_t g = block->off / 64; g < (block->off + block->bytes) / 64; g++) {
		as_expected &= m->owner[g] == from;
		m->owner[g] = to;
	}
	ck_assert(as_expected);
}

static void model_take(struct model *m, struct gantry_heap *heap, int i)
{
	uint64_t bytes = 1 + (uint64_t)rand() % (rand() % 4 ? 2000 : 60000);
	uint64_t align = 1ull << rand() % 14;
	int r = gantry_heap_take(heap, bytes, align, &m->blocks[i]);

	if (r < 0) {
		ck_assert_int_eq(r, -ENOSPC);
		m->blocks[i] = NULL;
		return;
	}
	ck_assert_uint_ge(m->blocks[i]->bytes, bytes);
	ck_assert_uint_eq(m->blocks[i]->off % align, 0);
	ck_assert_uint_le(m->blocks[i]->off + m->blocks[i]->bytes, HEAP_BYTES);
	model_mark(m, m->blocks[i], 0, (uint8_t)(i + 1));
	m->used_bytes += m->blocks[i]->bytes;
}

static void model_put(struct model *m, struct gantry_heap *heap, int i)
{
	model_mark(m, m->blocks[i], (uint8_t)(i + 1), 0);
	m->used_bytes -= m->blocks[i]->bytes;
	gantry_heap_put(heap, m->blocks[i]);
	m->blocks[i] = NULL;
}

START_TEST(test_heap_claim_takes_these_bytes_and_no_others)
{
	struct gantry_heap_block *claimed, *rest, *again;
	struct gantry_heap heap;
	uint64_t off = 7, bytes = 7;

	ck_assert_int_eq(gantry_heap_init(&heap, HEAP_BYTES), 0);
	ck_assert_int_eq(gantry_heap_claim(&heap, 4096 + 8, 100, &claimed), 0);
	ck_assert_uint_eq(claimed->off, 4096); /* rounded out to granules */
	ck_assert_uint_eq(claimed->bytes, 128);
	ck_assert_int_eq(gantry_heap_claim(&heap, 4096 + 64, 64, &again), -ENOSPC);
	ck_assert_int_eq(gantry_heap_claim(&heap, 4096 - 64, 4096, &again), -ENOSPC);
	ck_assert_int_eq(gantry_heap_claim(&heap, HEAP_BYTES - 64, 65, &again), -ENOSPC);
	ck_assert_int_eq(gantry_heap_claim(&heap, UINT64_MAX - 10, 64, &again), -ENOSPC);
	ck_assert_int_eq(gantry_heap_claim(&heap, 0, 0, &again), -EINVAL);
	ck_assert_uint_eq(heap.free_bytes, HEAP_BYTES - 128);

	ck_assert(gantry_heap_find_free(&heap, 4096 - 64, 1024, &off, &bytes));
	ck_assert_uint_eq(off, 4096 - 64);
	ck_assert_uint_eq(bytes, 64);
	ck_assert(gantry_heap_find_free(&heap, 4096, 1024, &off, &bytes));
	ck_assert_uint_eq(off, 4096 + 128);
	ck_assert_uint_eq(bytes, 1024 - 128);
	off = 7;
	ck_assert(!gantry_heap_find_free(&heap, 4096, 128, &off, &bytes));
	ck_assert(!gantry_heap_find_free(&heap, HEAP_BYTES, 64, &off, &bytes));
	ck_assert_uint_eq(off, 7);

	gantry_heap_put(&heap, claimed);
	ck_assert_int_eq(gantry_heap_take(&heap, HEAP_BYTES, 64, &rest), 0);
	gantry_heap_fini(&heap);
}
END_TEST

START_TEST(test_heap_random_takes_and_puts_agree_with_model)
{
	struct model *m = calloc(1, sizeof(*m));
	struct gantry_heap heap;

	srand((unsigned)_i + 1);
	ck_assert_int_eq(gantry_heap_init(&heap, HEAP_BYTES), 0);
	for (int step = 0; step < NSTEPS; step++) {
		int i = rand() % NBLOCKS;

		if (m->blocks[i])
			model_put(m, &heap, i);
		else
			model_take(m, &heap, i);
		ck_assert_uint_eq(heap.free_bytes, HEAP_BYTES - m->used_bytes);
	}
	for (int i = 0; i < NBLOCKS; i++)
		if (m->blocks[i])
			model_put(m, &heap, i);
	/* Neighbours were joined: it is one block again. */
	ck_assert_ptr_null(heap.first->next);
	ck_assert_uint_eq(heap.first->bytes, HEAP_BYTES);
	gantry_heap_fini(&heap);
	free(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/heap");
	TCase *tc = gantry_unit_case(suite, "heap");

	tcase_add_test(tc, test_heap_init_less_than_granule_returns_einval);
	tcase_add_test(tc, test_heap_take_bad_arguments_returns_einval);
	tcase_add_test(tc, test_heap_take_all_then_put_gives_all_back);
	tcase_add_test(tc, test_heap_take_aligned_starts_at_multiple_and_wastes_nothing);
	tcase_add_test(tc, test_heap_claim_takes_these_bytes_and_no_others);
	tcase_add_loop_test(tc, test_heap_random_takes_and_puts_agree_with_model, 0, 5);
	return gantry_unit_run(suite);
}
