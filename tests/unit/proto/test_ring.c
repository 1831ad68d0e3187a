/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>

#include "base/clock.h"
#include "tests/unit/proto/fixture.h"

static struct ring_fixture f;

static void setup(void)
{
	ring_fixture_init(&f);
}

static void teardown(void)
{
	ring_fixture_fini(&f);
}

START_TEST(test_stride_for_allowed_slots_is_whole_pages_and_holds_everything)
{
	for (uint32_t n = GANTRY_MIN_SLOTS; n <= GANTRY_MAX_SLOTS; n *= 2) {
		uint64_t stride = gantry_ring_stride_bytes(n);

		ck_assert_uint_eq(stride % GANTRY_PAGE, 0);
		ck_assert_uint_ge(stride, sizeof(struct gantry_queue_area) + n * (4ull + 64 + 192));
	}
}
END_TEST

START_TEST(test_stride_for_other_numbers_is_zero)
{
	static const uint32_t wrong[] = { 0,	1,    8,    15,	      17,	 24,
					  4095, 4097, 8192, 1u << 31, UINT32_MAX };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_uint_eq(gantry_ring_stride_bytes(wrong[i]), 0);
}
END_TEST

START_TEST(test_map_init_wrong_numbers_are_refused)
{
	struct gantry_ring_map map;

	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 0, 0, 17), -EINVAL);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 0, GANTRY_MAX_QUEUES, NSLOTS),
			 -EINVAL);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 1, 0, NSLOTS), -EINVAL);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 64, 0, NSLOTS), -ERANGE);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 0, 1, NSLOTS), -ERANGE);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, 0, 0, NSLOTS * 2), -ERANGE);
	ck_assert_int_eq(gantry_ring_map_init(&map, &f.segment, UINT64_MAX & ~63ull, 1, NSLOTS),
			 -ERANGE);
}
END_TEST

START_TEST(test_map_init_parts_lie_apart_and_inside)
{
	uint8_t *end = f.segment.base + f.segment.bytes;

	ck_assert_ptr_eq(f.map.area, f.segment.base);
	ck_assert((uint8_t *)f.map.status >= (uint8_t *)(f.map.area + 1));
	ck_assert((uint8_t *)f.map.desc >= (uint8_t *)(f.map.status + NSLOTS));
	ck_assert((uint8_t *)f.map.inl >= (uint8_t *)(f.map.desc + NSLOTS));
	ck_assert((uint8_t *)(f.map.inl + NSLOTS) <= end);
	ck_assert_uint_eq((uintptr_t)f.map.desc % GANTRY_LINE, 0);
	ck_assert_uint_eq((uintptr_t)f.map.inl % GANTRY_LINE, 0);
}
END_TEST

START_TEST(test_put_and_take_keep_order_over_many_wraps)
{
	for (uint64_t i = 0; i < 10 * NSLOTS + 3; i++) {
		ck_assert_uint_eq(put_marked(&f, i), i + 1);
		ck_assert_uint_eq(take_marked(&f), i);
	}
	ck_assert_int_eq(gantry_ring_ready(&f.host), 0);
}
END_TEST

START_TEST(test_reserve_full_ring_returns_eagain_until_a_slot_is_given_back)
{
	for (uint32_t i = 0; i < NSLOTS; i++)
		put_marked(&f, i);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 1), -EAGAIN);
	ck_assert_int_eq(gantry_ring_ready(&f.host), NSLOTS);

	ck_assert_uint_eq(take_marked(&f), 0);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 1), 0);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 2), -EAGAIN);
}
END_TEST

START_TEST(test_reserve_more_than_the_ring_has_never_succeeds)
{
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, NSLOTS), 0);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, NSLOTS + 1), -EAGAIN);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, UINT32_MAX), -EAGAIN);
}
END_TEST

START_TEST(test_step_gives_slots_back_only_when_head_is_published)
{
	struct gantry_desc desc;
	struct gantry_inline inl;

	for (uint32_t i = 0; i < NSLOTS; i++)
		put_marked(&f, i);
	for (uint32_t i = 0; i < NSLOTS; i++) {
		gantry_ring_peek(&f.host, &desc, &inl);
		gantry_ring_step(&f.host);
	}
	ck_assert_int_eq(gantry_ring_ready(&f.host), 0);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 1), -EAGAIN);
	gantry_ring_publish_head(&f.host);
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, NSLOTS), 0);
}
END_TEST

START_TEST(test_ready_lying_tail_is_a_protocol_error)
{
	put_marked(&f, 1);
	take_marked(&f);

	f.map.area->tail = 0; /* behind what was taken */
	ck_assert_int_eq(gantry_ring_ready(&f.host), -EPROTO);
	f.map.area->tail = 1 + NSLOTS + 1; /* more than there are slots */
	ck_assert_int_eq(gantry_ring_ready(&f.host), -EPROTO);
	f.map.area->tail = UINT64_MAX;
	ck_assert_int_eq(gantry_ring_ready(&f.host), -EPROTO);
	f.map.area->tail = 1 + NSLOTS; /* everything that can be */
	ck_assert_int_eq(gantry_ring_ready(&f.host), NSLOTS);
}
END_TEST

START_TEST(test_reserve_lying_head_is_a_protocol_error)
{
	for (uint32_t i = 0; i < NSLOTS; i++)
		put_marked(&f, i);
	f.map.area->head = NSLOTS + 1; /* more than was put */
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 1), -EPROTO);
	f.map.area->head = UINT64_MAX;
	ck_assert_int_eq(gantry_ring_reserve(&f.guest, 1), -EPROTO);
}
END_TEST

START_TEST(test_reserve_head_beyond_tail_at_init_is_a_protocol_error)
{
	struct gantry_ring_producer late;

	f.map.area->head = 5;
	gantry_ring_producer_init(&late, &f.map);
	/* 6 - 5 would fit. */
	ck_assert_int_eq(gantry_ring_reserve(&late, 6), -EPROTO);
}
END_TEST

START_TEST(test_peek_inline_part_is_copied_and_bounded)
{
	struct gantry_desc *desc = gantry_ring_desc(&f.guest, 0);
	struct gantry_desc copy;
	struct {
		struct gantry_inline inl;
		uint8_t after[8];
	} got;

	memset(desc, 0, sizeof(*desc));
	memset(gantry_ring_inline(&f.guest, 0), 0x5a, sizeof(struct gantry_inline));
	desc->flags = GANTRY_DESC_INLINE;
	desc->len_bytes = 7;
	gantry_ring_publish(&f.guest, 1);

	memset(&got, 0, sizeof(got));
	gantry_ring_peek(&f.host, &copy, &got.inl);
	ck_assert_uint_eq(got.inl.bytes[6], 0x5a);
	ck_assert_uint_eq(got.inl.bytes[7], 0);

	desc->len_bytes = UINT32_MAX;
	memset(&got, 0, sizeof(got));
	gantry_ring_peek(&f.host, &copy, &got.inl);
	ck_assert_uint_eq(copy.len_bytes, UINT32_MAX);
	ck_assert_uint_eq(got.inl.bytes[GANTRY_INLINE_BYTES - 1], 0x5a);
	ck_assert_uint_eq(got.after[0], 0);
}
END_TEST

START_TEST(test_peek_slot_rewritten_later_leaves_the_copy)
{
	struct gantry_desc copy;
	struct gantry_inline inl;

	put_marked(&f, 11);
	gantry_ring_peek(&f.host, &copy, &inl);
	memset(f.map.desc, 0xff, sizeof(*f.map.desc));
	ck_assert_uint_eq(copy.op, 1);
	ck_assert_uint_eq(copy.imm[0], 11);
}
END_TEST

START_TEST(test_status_set_before_done_is_read_back)
{
	put_marked(&f, 0);
	put_marked(&f, 1);
	take_marked(&f);
	take_marked(&f);
	gantry_ring_set_status(&f.host, 0, GANTRY_OK, 0);
	gantry_ring_set_status(&f.host, 1, GANTRY_E_SPAN, 1);
	ck_assert_uint_eq(gantry_ring_done(&f.map), 0);
	gantry_ring_complete(&f.host, 2);

	ck_assert_uint_eq(gantry_ring_done(&f.map), 2);
	ck_assert_int_eq(gantry_ring_status(&f.map, 0), GANTRY_OK);
	ck_assert_int_eq(gantry_ring_status(&f.map, 1), GANTRY_E_SPAN);
	ck_assert_uint_eq(gantry_ring_nfailed(&f.map), 1);
}
END_TEST

START_TEST(test_status_every_status_survives)
{
	static const int all[] = {
#define VALUE(name, value, text) value,
		GANTRY_STATUS_LIST(VALUE)
#undef VALUE
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		gantry_ring_set_status(&f.host, i, all[i], i);
		ck_assert_int_eq(gantry_ring_status(&f.map, i), all[i]);
	}
}
END_TEST

START_TEST(test_status_nonsense_is_internal)
{
	f.map.status[3] = 0x80000000u;
	ck_assert_int_eq(gantry_ring_status(&f.map, 3), GANTRY_E_INTERNAL);
	f.map.status[3] = UINT32_MAX;
	ck_assert_int_eq(gantry_ring_status(&f.map, 3), GANTRY_E_INTERNAL);
}
END_TEST

START_TEST(test_reply_lands_in_the_slots_block)
{
	struct gantry_reply reply = { .status = GANTRY_E_LIMIT, .text = "no", .len_bytes = 0 };
	uint64_t pos = 3 * NSLOTS + 5;

	gantry_ring_reply(&f.host, pos, &reply);
	ck_assert_mem_eq(f.map.inl[5].bytes, &reply, sizeof(reply));
}
END_TEST

START_TEST(test_consumer_init_again_continues_at_the_ledgers_numbers)
{
	struct gantry_ring_consumer successor;

	for (uint64_t i = 0; i < 2 * NSLOTS; i++) {
		put_marked(&f, i);
		take_marked(&f);
	}
	gantry_ring_complete(&f.host, 2 * NSLOTS);
	put_marked(&f, 99);

	f.map.area->head = 0; /* whatever a guest wrote there does not count */
	f.map.area->done = 0;
	gantry_ring_consumer_init(&successor, &f.map, 2 * NSLOTS, 2 * NSLOTS);
	ck_assert_int_eq(gantry_ring_ready(&successor), 1);
	ck_assert_uint_eq(gantry_ring_done(&f.map), 2 * NSLOTS);
	f.host = successor;
	ck_assert_uint_eq(take_marked(&f), 99);
}
END_TEST

START_TEST(test_producer_init_again_continues_at_the_areas_tail)
{
	struct gantry_ring_producer again;

	for (uint64_t i = 0; i < NSLOTS + 3; i++) {
		put_marked(&f, i);
		take_marked(&f);
	}
	gantry_ring_producer_init(&again, &f.map);
	f.guest = again;
	ck_assert_uint_eq(put_marked(&f, 7), NSLOTS + 4);
}
END_TEST

START_TEST(test_positions_pass_32_bits)
{
	uint64_t far = (UINT64_C(1) << 32) - 2;

	f.map.area->tail = far;
	gantry_ring_consumer_init(&f.host, &f.map, far, far);
	gantry_ring_producer_init(&f.guest, &f.map);
	for (uint64_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(put_marked(&f, i), far + i + 1);
		ck_assert_uint_eq(take_marked(&f), i);
		gantry_ring_complete(&f.host, far + i + 1);
	}
	ck_assert_int_eq(gantry_ring_wait_sleep(&f.map, far + 5, 0), 0);
}
END_TEST

START_TEST(test_must_kick_follows_park)
{
	ck_assert(!gantry_ring_must_kick(&f.map));
	gantry_ring_park(&f.host);
	ck_assert(gantry_ring_must_kick(&f.map));
	gantry_ring_unpark(&f.host);
	ck_assert(!gantry_ring_must_kick(&f.map));
}
END_TEST

START_TEST(test_wake_without_waiters_makes_no_call)
{
	ck_assert(!gantry_ring_wake(&f.host));
	gantry_ring_wait_enter(&f.map);
	ck_assert(gantry_ring_wake(&f.host));
	gantry_ring_wait_leave(&f.map);
	ck_assert(!gantry_ring_wake(&f.host));
}
END_TEST

START_TEST(test_wait_sleep_deadline_passes_returns_etimedout)
{
	uint64_t start = gantry_now_ns();

	gantry_ring_wait_enter(&f.map);
	ck_assert_int_eq(gantry_ring_wait_sleep(&f.map, 1, start + 5 * GANTRY_NS_PER_MS),
			 -ETIMEDOUT);
	gantry_ring_wait_leave(&f.map);
	ck_assert_uint_ge(gantry_now_ns(), start + 5 * GANTRY_NS_PER_MS);
}
END_TEST

START_TEST(test_wait_sleep_finished_ticket_returns_at_once)
{
	gantry_ring_complete(&f.host, 9);
	ck_assert_int_eq(gantry_ring_wait_sleep(&f.map, 9, GANTRY_DEADLINE_NEVER), 0);
	ck_assert_int_eq(gantry_ring_wait_sleep(&f.map, 1, GANTRY_DEADLINE_NEVER), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring");
	TCase *tc = gantry_unit_case(suite, "ring");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_stride_for_allowed_slots_is_whole_pages_and_holds_everything);
	tcase_add_test(tc, test_stride_for_other_numbers_is_zero);
	tcase_add_test(tc, test_map_init_wrong_numbers_are_refused);
	tcase_add_test(tc, test_map_init_parts_lie_apart_and_inside);
	tcase_add_test(tc, test_put_and_take_keep_order_over_many_wraps);
	tcase_add_test(tc, test_reserve_full_ring_returns_eagain_until_a_slot_is_given_back);
	tcase_add_test(tc, test_reserve_more_than_the_ring_has_never_succeeds);
	tcase_add_test(tc, test_step_gives_slots_back_only_when_head_is_published);
	tcase_add_test(tc, test_ready_lying_tail_is_a_protocol_error);
	tcase_add_test(tc, test_reserve_lying_head_is_a_protocol_error);
	tcase_add_test(tc, test_reserve_head_beyond_tail_at_init_is_a_protocol_error);
	tcase_add_test(tc, test_peek_inline_part_is_copied_and_bounded);
	tcase_add_test(tc, test_peek_slot_rewritten_later_leaves_the_copy);
	tcase_add_test(tc, test_status_set_before_done_is_read_back);
	tcase_add_test(tc, test_status_every_status_survives);
	tcase_add_test(tc, test_status_nonsense_is_internal);
	tcase_add_test(tc, test_reply_lands_in_the_slots_block);
	tcase_add_test(tc, test_consumer_init_again_continues_at_the_ledgers_numbers);
	tcase_add_test(tc, test_producer_init_again_continues_at_the_areas_tail);
	tcase_add_test(tc, test_positions_pass_32_bits);
	tcase_add_test(tc, test_must_kick_follows_park);
	tcase_add_test(tc, test_wake_without_waiters_makes_no_call);
	tcase_add_test(tc, test_wait_sleep_deadline_passes_returns_etimedout);
	tcase_add_test(tc, test_wait_sleep_finished_ticket_returns_at_once);
	return gantry_unit_run(suite);
}
