/* SPDX-License-Identifier: Apache-2.0 */
/* Placement policies, one decision at a time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "host-agent/policy/packet.h"
#include "tests/unit/host-agent/policy_world.h"
#include "tests/unit/runner.h"

static struct world w;

/* ---- all of them ---- */

START_TEST(test_every_policy_is_found_by_its_name_and_settles)
{
	const struct gantry_policy *p;

	for (unsigned int i = 0; (p = gantry_policy_at(i)); i++) {
		ck_assert_ptr_eq(gantry_policy_find(p->name), p);
		ck_assert_uint_eq(p->abi, GANTRY_POLICY_ABI);
		ck_assert_uint_eq(p->bytes, sizeof(*p));
		world_init(&w, p->name, "", 3);
		(void)world_tenant(&w, 300, 0, 2);
		(void)world_queues(&w, 0, 0, 0, 5);
		(void)world_queues(&w, 1, 1, 1, 3);
		for (int round = 0; round < 8; round++)
			(void)world_place(&w);
		ck_assert_msg(world_place(&w) == 0, "%s goes on moving queues", p->name);
		world_fini(&w);
	}
	ck_assert_ptr_null(gantry_policy_find("roundrobin"));
}
END_TEST

START_TEST(test_every_policy_but_static_leaves_a_device_out_of_service)
{
	const struct gantry_policy *p;

	for (unsigned int i = 0; (p = gantry_policy_at(i)); i++) {
		world_init(&w, p->name, "", 3);
		(void)world_queues(&w, 0, 0, 0, 4);
		w.devices[0].usable = 0;
		for (unsigned int q = 0; q < 4; q++) {
			w.queues[q].allowed &= ~1ull;
			w.queues[q].stayed_ns = 0; /* it cannot wait for that */
		}
		(void)world_place(&w);
		ck_assert_uint_eq(world_count(&w, 0, 0), p == &gantry_policy_static ? 4 : 0);
		world_fini(&w);
	}
}
END_TEST

START_TEST(test_every_policy_keeps_to_devices_with_the_kernel)
{
	const struct gantry_policy *p;

	for (unsigned int i = 0; (p = gantry_policy_at(i)); i++) {
		world_init(&w, p->name, "", 3);
		(void)world_queues(&w, 0, 0, 2, 6);
		for (unsigned int q = 0; q < 6; q++)
			w.queues[q].allowed = 1ull << 2;
		ck_assert_uint_eq(world_place(&w), 0);
		world_fini(&w);
	}
}
END_TEST

static const struct {
	const char *policy;
	const char *options;
	const char *part; /* of the sentence */
} bad[] = {
	{ "elastic", "stay", "not key=value" },	 { "elastic", "hurry=1", "no option" },
	{ "elastic", "stay=soon", "stay" },	 { "elastic", "stay=2h", "too long" },
	{ "heterogeneous", "gain=101", "gain" }, { "pack", "fill=-1", "fill" },
};

START_TEST(test_options_that_are_wrong_are_refused_with_a_sentence)
{
	const struct gantry_policy *p = gantry_policy_find(bad[_i].policy);
	void *state = &w;
	char text[256] = "";

	ck_assert_int_eq(p->create(bad[_i].options, &state, text, sizeof(text)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(text, bad[_i].part));
	ck_assert_ptr_eq(state, &w);
}
END_TEST

/* ---- the check ---- */

static void three_queues(void)
{
	world_init(&w, "static", "", 3);
	(void)world_queues(&w, 0, 0, 0, 3);
	gantry_policy_stay(&w.view, w.choices);
}

START_TEST(test_check_refuses_what_no_queue_may)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	three_queues();
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), 0);
	w.choices[1].device = 3;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "device 3 of 3"));
	w.choices[1].device = UINT32_MAX;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), -EINVAL);
	w.choices[1].device = 2;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), 0);
	w.queues[1].allowed = 1;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "cpu2"));
	world_fini(&w);
}
END_TEST

START_TEST(test_check_refuses_more_devices_than_a_tenant_may_have)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	three_queues();
	w.tenants[0].max_devices = 2;
	w.choices[0].device = 1;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), 0);
	w.choices[1].device = 2;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "t0"));
	/* It may have got fewer since: what is no worse than now is allowed. */
	w.queues[0].device = 1;
	w.queues[1].device = 2;
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, &err), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_check_makes_texts_printable_and_ended)
{
	three_queues();
	memset(w.choices[0].why, 'x', sizeof(w.choices[0].why));
	w.choices[1].why[0] = '\n';
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, NULL), 0);
	ck_assert_uint_eq(strlen(w.choices[0].why), GANTRY_POLICY_WHY - 1);
	ck_assert_str_eq(w.choices[1].why, "?");
	world_fini(&w);
}
END_TEST

START_TEST(test_view_check_refuses_indices_of_what_is_not_there)
{
	three_queues();
	w.queues[2].tenant = 1;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), -EINVAL);
	w.queues[2].tenant = 0;
	w.queues[2].device = 3;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), -EINVAL);
	w.queues[2].device = 0;
	w.queues[2].allowed = 8;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), -EINVAL);
	w.queues[2].allowed = 7;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), 0);
	w.view.nqueues = GANTRY_POLICY_MAX_QUEUES + 1;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), -EINVAL);
	w.view.nqueues = 3;
	w.view.abi = 2;
	ck_assert_int_eq(gantry_policy_view_check(&w.view, NULL), -EINVAL);
	world_fini(&w);
}
END_TEST

START_TEST(test_enforce_takes_back_what_is_too_much)
{
	three_queues();
	w.tenants[0].max_devices = 1;
	w.choices[0].device = 1; /* this alone would leave two where they are */
	gantry_policy_enforce(&w.view, w.choices);
	ck_assert_uint_eq(w.choices[0].device, 0);
	for (uint32_t i = 0; i < 3; i++)
		w.choices[i].device = 2;
	gantry_policy_enforce(&w.view, w.choices);
	ck_assert_uint_eq(w.choices[2].device, 2);
	w.choices[0].device = 1;
	gantry_policy_enforce(&w.view, w.choices);
	ck_assert_int_eq(gantry_policy_check(&w.view, w.choices, NULL), 0);
	world_fini(&w);
}
END_TEST

/* ---- what goes between processes ---- */

static _Alignas(8) uint8_t packet[GANTRY_POLICY_PACKET_MAX];
static struct gantry_policy_arrays arrays;

START_TEST(test_view_comes_over_as_it_was)
{
	uint64_t number = 0;
	size_t len;

	world_init(&w, "elastic", "", GANTRY_POLICY_MAX_DEVICES);
	for (uint32_t t = 1; t < GANTRY_POLICY_MAX_TENANTS; t++)
		(void)world_tenant(&w, t, 0, 0);
	(void)world_queues(&w, 255, -3, 7, GANTRY_POLICY_MAX_QUEUES);
	len = gantry_policy_view_pack(&w.view, 77, packet);
	ck_assert_uint_le(len, GANTRY_POLICY_PACKET_MAX);
	ck_assert_int_eq(gantry_policy_view_unpack(packet, len, &number, &arrays), 0);
	ck_assert_uint_eq(number, 77);
	ck_assert_uint_eq(arrays.view.nqueues, w.view.nqueues);
	ck_assert_mem_eq(arrays.devices, w.devices, sizeof(w.devices));
	ck_assert_mem_eq(arrays.tenants, w.tenants, sizeof(w.tenants));
	ck_assert_mem_eq(arrays.queues, w.queues, sizeof(w.queues));
	for (size_t cut = 0; cut < len; cut += 97)
		ck_assert_int_eq(gantry_policy_view_unpack(packet, cut, &number, &arrays), -EINVAL);
	packet[0] ^= 1;
	ck_assert_int_eq(gantry_policy_view_unpack(packet, len, &number, &arrays), -EINVAL);
	world_fini(&w);
}
END_TEST

START_TEST(test_choices_are_of_what_was_asked)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	size_t len;

	three_queues();
	w.choices[2].device = 1;
	len = gantry_policy_choices_pack(w.choices, 3, 0, 5, packet);
	memset(w.choices, 0xff, sizeof(w.choices));
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, len, 4, 3, w.choices, &err), -EINVAL);
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, len, 5, 2, w.choices, &err), -EINVAL);
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, len - 1, 5, 3, w.choices, &err),
			 -EINVAL);
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, 3, 5, 3, w.choices, &err), -EINVAL);
	ck_assert_uint_eq(w.choices[0].device, UINT32_MAX);
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, len, 5, 3, w.choices, &err), 0);
	ck_assert_uint_eq(w.choices[2].device, 1);
	len = gantry_policy_choices_pack(w.choices, 3, -EIO, 5, packet);
	ck_assert_int_eq(gantry_policy_choices_unpack(packet, len, 5, 3, w.choices, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "could not decide"));
	world_fini(&w);
}
END_TEST

START_TEST(test_hello_is_checked_and_printable)
{
	struct gantry_policy_hello hello = { .abi = GANTRY_POLICY_ABI }, seen;
	struct gantry_err err = GANTRY_ERR_NONE;

	memset(hello.summary, 'x', sizeof(hello.summary));
	hello.name[0] = '\n';
	ck_assert_int_eq(gantry_policy_hello_unpack(&hello, sizeof(hello), &seen, &err), 0);
	ck_assert_str_eq(seen.name, "?");
	ck_assert_uint_eq(strlen(seen.summary), sizeof(hello.summary) - 1);
	ck_assert_int_eq(gantry_policy_hello_unpack(&hello, 7, &seen, &err), -EINVAL);
	hello.abi++;
	ck_assert_int_eq(gantry_policy_hello_unpack(&hello, sizeof(hello), &seen, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "ABI 2"));
	hello.status = -1;
	memcpy(hello.text, "no luck", 8);
	ck_assert_int_eq(gantry_policy_hello_unpack(&hello, sizeof(hello), &seen, &err), -EINVAL);
	ck_assert_str_eq(err.text, "no luck");
}
END_TEST

/* ---- the simple ones ---- */

START_TEST(test_round_robin_goes_round_and_does_not_move_when_others_end)
{
	world_init(&w, "round-robin", "", 3);
	(void)world_queues(&w, 0, 0, 0, 6);
	(void)world_place(&w);
	for (uint32_t d = 0; d < 3; d++)
		ck_assert_uint_eq(world_count(&w, 0, d), 2);
	w.view.nqueues = 5;
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_spread_levels_queues)
{
	world_init(&w, "spread", "", 3);
	(void)world_queues(&w, 0, 0, 0, 7);
	(void)world_place(&w);
	ck_assert_uint_eq(world_count(&w, 0, 0), 3);
	ck_assert_uint_eq(world_count(&w, 0, 1), 2);
	ck_assert_uint_eq(world_count(&w, 0, 2), 2);
	world_fini(&w);
}
END_TEST

START_TEST(test_pack_fills_devices_one_after_the_other)
{
	world_init(&w, "pack", "fill=3", 3);
	(void)world_queues(&w, 0, 0, 2, 5);
	(void)world_place(&w);
	ck_assert_uint_eq(world_count(&w, 0, 0), 3);
	ck_assert_uint_eq(world_count(&w, 0, 1), 2);
	world_fini(&w);
	world_init(&w, "pack", "", 2);
	w.devices[0].lanes = 4;
	(void)world_queues(&w, 0, 0, 1, 4);
	(void)world_place(&w);
	ck_assert_uint_eq(world_count(&w, 0, 0), 4);
	world_fini(&w);
}
END_TEST

START_TEST(test_least_loaded_levels_tasks_not_queues)
{
	world_init(&w, "least-loaded", "", 2);
	(void)world_queues(&w, 0, 0, 0, 3);
	w.queues[0].backlog = 200;
	w.queues[1].backlog = w.queues[2].backlog = 50;
	(void)world_place(&w);
	ck_assert_uint_ne(w.queues[0].device, w.queues[1].device);
	ck_assert_uint_eq(w.queues[1].device, w.queues[2].device);
	/* A few tasks more or less move nothing. */
	w.queues[1].backlog = 70;
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

/* ---- elastic ---- */

START_TEST(test_elastic_spreads_over_idle_devices)
{
	for (uint32_t n = 1; n <= 4; n++) {
		world_init(&w, "elastic", "", n);
		(void)world_queues(&w, 0, 0, 0, 8);
		(void)world_place(&w);
		for (uint32_t d = 0; d < n; d++) {
			ck_assert_uint_ge(world_count(&w, 0, d), 8 / n);
			ck_assert_uint_le(world_count(&w, 0, d), (8 + n - 1) / n);
		}
		world_fini(&w);
	}
}
END_TEST

START_TEST(test_elastic_draws_together_for_more_urgent_work_and_spreads_after_it)
{
	uint32_t high;

	world_init(&w, "elastic", "", 2);
	(void)world_tenant(&w, 100, 0, 0);
	(void)world_queues(&w, 0, 0, 0, 8);
	(void)world_place(&w);
	high = world_queues(&w, 1, 5, 0, 1);
	for (uint32_t q = 0; q < 8; q++)
		w.queues[q].stayed_ns = 0; /* they have just moved, and move all the same */
	ck_assert_uint_eq(world_place(&w), 4);
	ck_assert_uint_eq(w.queues[high].device, 0);
	ck_assert_uint_eq(world_count(&w, 0, 1), 8);
	ck_assert_uint_eq(world_place(&w), 0);
	/* It has ended: at once nothing, they have just come; then they spread again. */
	w.view.nqueues = 8;
	for (uint32_t q = 0; q < 8; q++)
		w.queues[q].stayed_ns = GANTRY_POLICY_STAY_NS - 1;
	ck_assert_uint_eq(world_place(&w), 0);
	for (uint32_t q = 0; q < 8; q++)
		w.queues[q].stayed_ns = GANTRY_POLICY_STAY_NS;
	ck_assert_uint_eq(world_place(&w), 4);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_most_urgent_with_many_queues_takes_all_but_what_others_must_keep)
{
	world_init(&w, "elastic", "", 4);
	(void)world_tenant(&w, 100, 0, 0);
	(void)world_tenant(&w, 100, 2, 0);
	(void)world_queues(&w, 0, 9, 0, 8);
	(void)world_queues(&w, 1, 0, 1, 8);
	(void)world_queues(&w, 2, 0, 2, 8);
	for (int i = 0; i < 4; i++)
		(void)world_place(&w);
	ck_assert_uint_eq(world_devices(&w, 0), 0xf);
	ck_assert_uint_eq(__builtin_popcountll(world_devices(&w, 1)), 1);
	ck_assert_uint_eq(__builtin_popcountll(world_devices(&w, 2)), 2);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_keeps_an_urgent_tenant_to_its_most)
{
	world_init(&w, "elastic", "", 4);
	(void)world_tenant(&w, 100, 0, 1);
	(void)world_queues(&w, 1, 9, 0, 8);
	(void)world_queues(&w, 0, 0, 0, 8);
	for (int i = 0; i < 4; i++)
		(void)world_place(&w);
	ck_assert_uint_eq(world_devices(&w, 1), 0x1);
	ck_assert_uint_eq(world_devices(&w, 0), 0xe);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_counts_the_devices_of_all_priorities_of_a_tenant)
{
	world_init(&w, "elastic", "", 4);
	w.tenants[0].max_devices = 2;
	(void)world_queues(&w, 0, 5, 0, 1);
	(void)world_queues(&w, 0, 0, 0, 6);
	for (int i = 0; i < 4; i++)
		(void)world_place(&w);
	ck_assert_int_eq(__builtin_popcountll(world_devices(&w, 0)), 2);
	world_fini(&w);
}
END_TEST

static const struct {
	uint32_t ndevices;
	uint32_t weights[3]; /* 0: no such tenant; 8 queues each */
	uint32_t devices[3]; /* how many each has then */
	uint32_t shared;     /* that several have */
} shares[] = {
	{ 2, { 100, 100, 0 }, { 1, 1, 0 }, 0 },	  { 4, { 100, 300, 0 }, { 1, 3, 0 }, 0 },
	{ 4, { 100, 100, 200 }, { 1, 1, 2 }, 0 }, { 3, { 100, 100, 0 }, { 2, 2, 0 }, 1 },
	{ 1, { 100, 100, 100 }, { 1, 1, 1 }, 1 },
};

START_TEST(test_elastic_divides_devices_by_weight)
{
	uint32_t nshared = 0;

	world_init(&w, "elastic", "", shares[_i].ndevices);
	w.tenants[0].weight = shares[_i].weights[0];
	for (uint32_t t = 1; t < 3 && shares[_i].weights[t]; t++)
		(void)world_tenant(&w, shares[_i].weights[t], 0, 0);
	for (uint32_t t = 0; t < w.view.ntenants; t++)
		(void)world_queues(&w, t, 0, 0, 8);
	for (int i = 0; i < 20; i++)
		(void)world_place(&w);
	for (uint32_t t = 0; t < w.view.ntenants; t++)
		ck_assert_int_eq(__builtin_popcountll(world_devices(&w, t)), shares[_i].devices[t]);
	for (uint32_t d = 0; d < shares[_i].ndevices; d++) {
		uint32_t nhere = 0;

		for (uint32_t t = 0; t < w.view.ntenants; t++)
			nhere += world_count(&w, t, d) > 0;
		ck_assert_uint_ge(nhere, 1);
		nshared += nhere > 1;
	}
	ck_assert_uint_eq(nshared, shares[_i].shared);
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_gives_what_one_cannot_use_to_others)
{
	world_init(&w, "elastic", "", 4);
	(void)world_tenant(&w, 900, 0, 0);
	(void)world_queues(&w, 0, 0, 0, 8);
	(void)world_queues(&w, 1, 0, 0, 1);
	for (int i = 0; i < 8; i++)
		(void)world_place(&w);
	ck_assert_int_eq(__builtin_popcountll(world_devices(&w, 0)), 3);
	ck_assert_uint_eq(world_devices(&w, 0) & world_devices(&w, 1), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_moves_only_what_pays_for_its_bytes)
{
	world_init(&w, "elastic", "", 2);
	(void)world_queues(&w, 0, 0, 0, 2);
	w.view.bytes_per_s[0][1] = w.view.bytes_per_s[1][0] = 10000000000ull;
	for (uint32_t q = 0; q < 2; q++) {
		w.queues[q].move_bytes = 1000000000; /* 100 ms */
		w.queues[q].backlog = 1;
		w.queues[q].age_ns = 300000000; /* half of it is not twice that */
	}
	ck_assert_uint_eq(world_place(&w), 0);
	for (uint32_t q = 0; q < 2; q++)
		w.queues[q].age_ns = 500000000;
	ck_assert_uint_eq(world_place(&w), 1);
	world_fini(&w);
	/* The cheaper of two goes. */
	world_init(&w, "elastic", "", 2);
	(void)world_queues(&w, 0, 0, 0, 2);
	w.view.bytes_per_s[0][1] = w.view.bytes_per_s[1][0] = 10000000000ull;
	w.queues[0].move_bytes = 100000000000ull;
	ck_assert_uint_eq(world_place(&w), 1);
	ck_assert_uint_eq(w.queues[1].device, 1);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_three_queues_on_two_devices_rest)
{
	world_init(&w, "elastic", "stay=0", 2);
	(void)world_queues(&w, 0, 0, 0, 3);
	ck_assert_uint_eq(world_place(&w), 1);
	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_uses_a_slower_kind_as_far_as_it_helps)
{
	world_init(&w, "elastic", "stay=0", 3);
	w.devices[0].kind = 2;
	w.devices[1].kind = 5;
	(void)world_queues(&w, 0, 0, 0, 8);
	for (uint32_t q = 0; q < 8; q++) {
		w.queues[q].run_ns[1] = 2 * TASK_NS;
		w.queues[q].run_ns[2] = 40 * TASK_NS;
	}
	for (int i = 0; i < 8; i++)
		(void)world_place(&w);
	/* 5 at full speed, 3 at half of it: 5 and 6; the processor would take 40. */
	ck_assert_uint_ge(world_count(&w, 0, 0), 5);
	ck_assert_uint_ge(world_count(&w, 0, 1), 2);
	ck_assert_uint_eq(world_count(&w, 0, 2), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_objective_bounds_what_a_tenant_gets)
{
	world_init(&w, "elastic", "slo=100ms", 4);
	(void)world_queues(&w, 0, 0, 0, 8);
	/* 8 queues x 16 tasks x 1 ms are 128 ms: two devices do it in time. */
	for (int i = 0; i < 4; i++)
		(void)world_place(&w);
	ck_assert_int_eq(__builtin_popcountll(world_devices(&w, 0)), 2);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_hardly_busy_urgent_work_drives_nobody_away)
{
	uint32_t high;

	world_init(&w, "elastic", "", 2);
	(void)world_tenant(&w, 100, 0, 0);
	(void)world_queues(&w, 0, 0, 0, 8);
	(void)world_place(&w);
	high = world_queues(&w, 1, 5, 0, 1);
	w.queues[high].demand = 20;
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_elastic_same_view_same_placement)
{
	static struct world again;

	world_init(&w, "elastic", "", 5);
	for (uint32_t t = 1; t < 6; t++)
		(void)world_tenant(&w, t * 70, t % 3, t % 4);
	for (uint32_t t = 0; t < 6; t++)
		(void)world_queues(&w, t, (int32_t)(t % 2), t % 5, 9);
	memcpy(&again, &w, sizeof(w));
	again.view.devices = again.devices;
	again.view.tenants = again.tenants;
	again.view.queues = again.queues;
	(void)world_place(&w);
	(void)world_place(&again);
	ck_assert_mem_eq(w.choices, again.choices, sizeof(w.choices));
	world_fini(&w);
}
END_TEST

/* ---- heterogeneous ---- */

START_TEST(test_heterogeneous_finishes_first)
{
	world_init(&w, "heterogeneous", "", 2);
	w.devices[1].kind = 2;
	(void)world_queues(&w, 0, 0, 0, 2);
	w.queues[0].run_ns[1] = TASK_NS / 10; /* this one gains much on the other device */
	w.queues[1].run_ns[1] = TASK_NS * 2;  /* and this one loses */
	(void)world_place(&w);
	ck_assert_uint_eq(w.queues[0].device, 1);
	ck_assert_uint_eq(w.queues[1].device, 0);
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

START_TEST(test_heterogeneous_tries_a_kind_that_is_not_known)
{
	world_init(&w, "heterogeneous", "stay=0", 2);
	w.devices[1].kind = 2;
	(void)world_queues(&w, 0, 0, 0, 2);
	for (uint32_t q = 0; q < 2; q++) {
		w.queues[q].run_ns[1] = 0;
		w.queues[q].age_ns = 0; /* what is queued is all there is */
	}
	ck_assert_uint_eq(world_place(&w), 1);
	/* It was worse there: back again, and not tried any more. */
	w.queues[0].run_ns[1] = w.queues[1].run_ns[1] = 20 * TASK_NS;
	ck_assert_uint_eq(world_place(&w), 1);
	ck_assert_uint_eq(world_count(&w, 0, 0), 2);
	ck_assert_uint_eq(world_place(&w), 0);
	world_fini(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy");
	TCase *all = gantry_unit_case(suite, "all");
	TCase *check = gantry_unit_case(suite, "check");
	TCase *packet_case = gantry_unit_case(suite, "packet");
	TCase *simple = gantry_unit_case(suite, "simple");
	TCase *elastic = gantry_unit_case(suite, "elastic");
	TCase *heterogeneous = gantry_unit_case(suite, "heterogeneous");

	tcase_add_test(all, test_every_policy_is_found_by_its_name_and_settles);
	tcase_add_test(all, test_every_policy_but_static_leaves_a_device_out_of_service);
	tcase_add_test(all, test_every_policy_keeps_to_devices_with_the_kernel);
	tcase_add_loop_test(all, test_options_that_are_wrong_are_refused_with_a_sentence, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(check, test_check_refuses_what_no_queue_may);
	tcase_add_test(check, test_check_refuses_more_devices_than_a_tenant_may_have);
	tcase_add_test(check, test_check_makes_texts_printable_and_ended);
	tcase_add_test(check, test_view_check_refuses_indices_of_what_is_not_there);
	tcase_add_test(check, test_enforce_takes_back_what_is_too_much);
	tcase_add_test(packet_case, test_view_comes_over_as_it_was);
	tcase_add_test(packet_case, test_choices_are_of_what_was_asked);
	tcase_add_test(packet_case, test_hello_is_checked_and_printable);
	tcase_add_test(simple, test_round_robin_goes_round_and_does_not_move_when_others_end);
	tcase_add_test(simple, test_spread_levels_queues);
	tcase_add_test(simple, test_pack_fills_devices_one_after_the_other);
	tcase_add_test(simple, test_least_loaded_levels_tasks_not_queues);
	tcase_add_test(elastic, test_elastic_spreads_over_idle_devices);
	tcase_add_test(elastic,
		       test_elastic_draws_together_for_more_urgent_work_and_spreads_after_it);
	tcase_add_test(
		elastic,
		test_elastic_most_urgent_with_many_queues_takes_all_but_what_others_must_keep);
	tcase_add_test(elastic, test_elastic_keeps_an_urgent_tenant_to_its_most);
	tcase_add_test(elastic, test_elastic_counts_the_devices_of_all_priorities_of_a_tenant);
	tcase_add_loop_test(elastic, test_elastic_divides_devices_by_weight, 0,
			    (int)GANTRY_ARRAY_SIZE(shares));
	tcase_add_test(elastic, test_elastic_gives_what_one_cannot_use_to_others);
	tcase_add_test(elastic, test_elastic_moves_only_what_pays_for_its_bytes);
	tcase_add_test(elastic, test_elastic_three_queues_on_two_devices_rest);
	tcase_add_test(elastic, test_elastic_uses_a_slower_kind_as_far_as_it_helps);
	tcase_add_test(elastic, test_elastic_objective_bounds_what_a_tenant_gets);
	tcase_add_test(elastic, test_elastic_hardly_busy_urgent_work_drives_nobody_away);
	tcase_add_test(elastic, test_elastic_same_view_same_placement);
	tcase_add_test(heterogeneous, test_heterogeneous_finishes_first);
	tcase_add_test(heterogeneous, test_heterogeneous_tries_a_kind_that_is_not_known);
	return gantry_unit_run(suite);
}
