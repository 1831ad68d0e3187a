/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies on a simulated machine: devices, links and kernels' times of a description (docs/sim.md), one virtual clock.
 * Devices run one task at a time to its end, of the most urgent queue that is there, then of the one that had
 * least; the policy is asked every 10 ms, as the agent asks it, and knows what a kernel takes where it has run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/sim/clock.h"
#include "devices/sim/machine.h"
#include "tests/unit/host-agent/policy_world.h"
#include "tests/unit/runner.h"

#define MS	 1000000ull
#define TICK_NS	 (10 * MS)
#define MAX_WORK 64u
#define RING	 64u

/* A queue with its tasks, all of one kernel. */
struct work {
	const char *kernel;
	uint32_t tenant;
	int32_t priority;
	uint64_t left;
	uint64_t bytes; /* that it owns */
	uint64_t starts_ns;
	uint64_t ended_ns; /* 0: not yet */
	uint32_t device;
	uint64_t came_ns;
	bool has_moved;
	bool running;
	uint64_t ready_ns; /* its bytes have arrived */
	uint64_t served_ns;
	uint64_t run_ns[GANTRY_POLICY_MAX_DEVICES];
	unsigned int nmoves;
};

static struct {
	struct gantry_sim_machine *machine;
	struct gantry_sim_clock clock;
	struct work works[MAX_WORK];
	uint32_t nworks;
	struct work *on[GANTRY_POLICY_MAX_DEVICES]; /* what runs there */
	unsigned int nmoves;
	char tick, look; /* events that are no device's */
} sim;

static struct world w;

static void machine_of(const char *text, const char *policy, const char *options)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	memset(&sim, 0, sizeof(sim));
	ck_assert_msg(gantry_sim_machine_parse(text, strlen(text), &sim.machine, &err) == 0, "%s",
		      err.text);
	gantry_sim_clock_init(&sim.clock);
	world_init(&w, policy, options, sim.machine->ndevices);
	for (uint32_t d = 0; d < sim.machine->ndevices; d++) {
		w.devices[d].kind = (uint32_t)sim.machine->devices[d].kind;
		for (uint32_t e = 0; e < sim.machine->ndevices; e++)
			if (d != e)
				w.view.bytes_per_s[d][e] =
					(uint64_t)(1e18 / (double)gantry_sim_copy_ns(
								  sim.machine, d, e, 1000000000));
	}
}

static void machine_end(void)
{
	world_fini(&w);
	gantry_sim_clock_fini(&sim.clock);
	free(sim.machine);
}

static struct work *add(const char *kernel, uint32_t tenant, int32_t priority, uint64_t ntasks,
			uint64_t starts_ns)
{
	struct work *q = &sim.works[sim.nworks++];

	*q = (struct work){ .kernel = kernel,
			    .tenant = tenant,
			    .priority = priority,
			    .left = ntasks,
			    .starts_ns = starts_ns };
	ck_assert_int_eq(gantry_sim_clock_add(&sim.clock, starts_ns, &sim.look), 0);
	return q;
}

static bool is_here(const struct work *q)
{
	return q->left > 0 && sim.clock.now_ns >= q->starts_ns;
}

static void start_next(uint32_t d)
{
	struct work *best = NULL;

	if (sim.on[d])
		return;
	for (uint32_t i = 0; i < sim.nworks; i++) {
		struct work *q = &sim.works[i];

		if (!is_here(q) || q->device != d || q->running || q->ready_ns > sim.clock.now_ns)
			continue;
		if (!best || q->priority > best->priority ||
		    (q->priority == best->priority && q->served_ns < best->served_ns))
			best = q;
	}
	if (!best)
		return;
	best->running = true;
	best->run_ns[d] = gantry_sim_kernel_ns(sim.machine, d, best->kernel, 0, 0);
	best->served_ns += best->run_ns[d];
	sim.on[d] = best;
	ck_assert_int_eq(gantry_sim_clock_add(&sim.clock, best->run_ns[d], &sim.on[d]), 0);
}

static void task_ends(uint32_t d)
{
	struct work *q = sim.on[d];

	sim.on[d] = NULL;
	q->running = false;
	if (--q->left == 0)
		q->ended_ns = sim.clock.now_ns;
}

/* ---- the policy's part ---- */

static uint32_t seen[MAX_WORK]; /* which work is which queue of the view */

static void look(void)
{
	w.view.nqueues = 0;
	for (uint32_t i = 0; i < sim.nworks; i++) {
		struct work *q = &sim.works[i];
		struct gantry_policy_queue *v = &w.queues[w.view.nqueues];

		if (!is_here(q))
			continue;
		seen[w.view.nqueues++] = i;
		*v = (struct gantry_policy_queue){
			.session = q->tenant + 1,
			.slot = i + 1,
			.tenant = q->tenant,
			.priority = q->priority,
			.device = q->device,
			.allowed = (1ull << w.view.ndevices) - 1,
			.backlog = q->left < RING ? q->left : RING,
			.age_ns = sim.clock.now_ns - q->starts_ns,
			.stayed_ns = q->has_moved ? sim.clock.now_ns - q->came_ns : UINT64_MAX,
			.move_bytes = q->bytes,
			.demand = GANTRY_POLICY_WHOLE,
		};
		memcpy(v->run_ns, q->run_ns, sizeof(v->run_ns));
	}
}

/* The queue is let go when its task ends; its bytes follow. */
static void move(struct work *q, uint32_t to)
{
	uint64_t cost_ns = gantry_sim_copy_ns(sim.machine, q->device, to, q->bytes);

	q->device = to;
	q->came_ns = sim.clock.now_ns;
	q->has_moved = true;
	q->ready_ns = sim.clock.now_ns + (q->bytes ? cost_ns : 50000);
	q->nmoves++;
	sim.nmoves++;
	ck_assert_int_eq(
		gantry_sim_clock_add(&sim.clock, q->ready_ns - sim.clock.now_ns, &sim.look), 0);
}

static void decide(void)
{
	look();
	(void)world_place(&w);
	for (uint32_t i = 0; i < w.view.nqueues; i++) {
		struct work *q = &sim.works[seen[i]];

		if (w.choices[i].device != q->device)
			move(q, w.choices[i].device);
	}
}

/* Until all is done. Returns when that is. */
static uint64_t run(void)
{
	const void *what;
	uint64_t last_ns = 0;

	ck_assert_int_eq(gantry_sim_clock_add(&sim.clock, TICK_NS, &sim.tick), 0);
	while ((what = gantry_sim_clock_next(&sim.clock))) {
		bool more = false;

		if (what == &sim.tick)
			decide();
		else if (what != &sim.look)
			task_ends((uint32_t)((struct work *const *)what - sim.on));
		for (uint32_t d = 0; d < w.view.ndevices; d++)
			start_next(d);
		for (uint32_t i = 0; i < sim.nworks; i++) {
			more = more || sim.works[i].left;
			if (sim.works[i].ended_ns > last_ns)
				last_ns = sim.works[i].ended_ns;
		}
		if (!more)
			return last_ns;
		if (what == &sim.tick)
			ck_assert_int_eq(gantry_sim_clock_add(&sim.clock, TICK_NS, &sim.tick), 0);
	}
	return last_ns;
}

#define CPUS(n)                                                           \
	((n) == 1 ? "device a cpu 1G\nkernel k any 1ms\n"                 \
	 : (n) == 2                                                       \
		 ? "device a cpu 1G\ndevice b cpu 1G\nkernel k any 1ms\n" \
		 : "device a cpu 1G\ndevice b cpu 1G\ndevice c cpu 1G\ndevice d cpu 1G\nkernel k any 1ms\n")

/* ---- tests ---- */

START_TEST(test_eight_queues_use_what_devices_there_are)
{
	static const uint32_t counts[] = { 1, 2, 4 };
	uint64_t one_ns = 8 * 1000 * MS;

	for (size_t i = 0; i < 3; i++) {
		uint64_t ns;

		machine_of(CPUS(counts[i]), "elastic", "");
		for (int q = 0; q < 8; q++)
			(void)add("k", 0, 0, 1000, 0);
		ns = run();
		printf("# %u devices: %.1f ms, %.3f of the ideal, %u moves\n", counts[i],
		       (double)ns / MS, (double)one_ns / counts[i] / (double)ns, sim.nmoves);
		ck_assert((double)one_ns / counts[i] / (double)ns >= 0.97);
		ck_assert_uint_le(sim.nmoves, 8);
		machine_end();
	}
}
END_TEST

#define MIXED                                                                 \
	"device gpu0 cuda 80G\ndevice fpga0 fpga 16G\ndevice cpu0 cpu 64G\n"  \
	"link host gpu0 50 2us\nlink host fpga0 12 5us\nlink host cpu0 100\n" \
	"kernel k gpu0 1ms\nkernel k fpga0 3ms\nkernel k cpu0 10ms\n"         \
	"kernel odd gpu0 4ms\nkernel odd fpga0 1ms\nkernel odd cpu0 10ms\n"

START_TEST(test_kinds_work_together)
{
	static const char *const policies[] = { "elastic", "heterogeneous" };
	double alone_ns = 12 * 500 * 1e6; /* all on the GPU */
	double best_ns = alone_ns / (1 + 1.0 / 3 + 1.0 / 10);

	for (size_t i = 0; i < 2; i++) {
		uint64_t ns;

		machine_of(MIXED, policies[i], "");
		for (int q = 0; q < 12; q++)
			add("k", 0, 0, 500, 0)->bytes = 64 << 20;
		ns = run();
		printf("# %s: %.0f ms on three kinds; the GPU alone %.0f, all at full speed %.0f; %u moves\n",
		       policies[i], (double)ns / MS, alone_ns / MS, best_ns / MS, sim.nmoves);
		ck_assert((double)ns < 0.88 * alone_ns);
		machine_end();
	}
}
END_TEST

START_TEST(test_kernels_find_the_kind_that_suits_them)
{
	uint64_t ns;
	double gpu_ns = 4 * 500 * 1e6 + 4 * 500 * 4e6;

	machine_of(MIXED, "heterogeneous", "");
	for (int q = 0; q < 4; q++) {
		(void)add("k", 0, 0, 500, 0);
		(void)add("odd", 0, 0, 500, 0);
	}
	ns = run();
	printf("# %.0f ms; on the GPU alone %.0f, each on its own best %.0f\n", (double)ns / MS,
	       gpu_ns / MS, 4 * 500.0);
	ck_assert_msg((double)ns < 1.25 * 4 * 500 * MS, "%.0f ms", (double)ns / MS);
	machine_end();
}
END_TEST

START_TEST(test_urgent_arrival_runs_as_if_alone_and_costs_others_no_more_than_a_device)
{
	uint64_t low_ns = 0, low_alone_ns = 8 * 1000 * MS, high_ns;
	struct work *high;

	machine_of(CPUS(2), "elastic", "");
	(void)world_tenant(&w, 100, 0, 0);
	for (int q = 0; q < 8; q++)
		(void)add("k", 0, 0, 1000, 0);
	high = add("k", 1, 5, 2000, 505 * MS + 300000);
	(void)run();
	high_ns = high->ended_ns - high->starts_ns;
	for (int q = 0; q < 8; q++)
		if (sim.works[q].ended_ns > low_ns)
			low_ns = sim.works[q].ended_ns;
	printf("# high: %.1f ms, alone 2000; low: %.0f ms, alone on one device %.0f; %u moves\n",
	       (double)high_ns / MS, (double)low_ns / MS, (double)low_alone_ns / MS, sim.nmoves);
	ck_assert((double)high_ns <= 1.03 * 2000 * MS);
	ck_assert_uint_le(low_ns, low_alone_ns);
	machine_end();
}
END_TEST

START_TEST(test_comings_and_goings_make_no_queue_flap)
{
	uint64_t random = 7, ns;

	machine_of(CPUS(4), "elastic", "");
	(void)world_tenant(&w, 200, 0, 0);
	for (unsigned int i = 0; i < 60; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		add("k", i % 2, 0, 100 + (random >> 40) % 1500, (random >> 33) % 3000 * MS)->bytes =
			(random >> 50) % 2 ? 32 << 20 : 0;
	}
	ns = run();
	printf("# %.0f ms, %u moves of 60 queues\n", (double)ns / MS, sim.nmoves);
	for (unsigned int i = 0; i < 60; i++) {
		const struct work *q = &sim.works[i];

		ck_assert_uint_le(q->nmoves,
				  2 + (q->ended_ns - q->starts_ns) / GANTRY_POLICY_STAY_NS / 3);
	}
	machine_end();
}
END_TEST

START_TEST(test_two_tenants_get_devices_by_weight)
{
	uint64_t ended_ns[2] = { 0, 0 };

	machine_of(CPUS(4), "elastic", "");
	w.tenants[0].weight = 300;
	(void)world_tenant(&w, 100, 0, 0);
	for (int q = 0; q < 8; q++) {
		(void)add("k", 0, 0, 900, 0);
		(void)add("k", 1, 0, 300, 0);
	}
	(void)run();
	for (uint32_t i = 0; i < sim.nworks; i++)
		if (sim.works[i].ended_ns > ended_ns[sim.works[i].tenant])
			ended_ns[sim.works[i].tenant] = sim.works[i].ended_ns;
	printf("# three quarters of the devices and of the work: %.0f ms, the rest %.0f ms\n",
	       (double)ended_ns[0] / MS, (double)ended_ns[1] / MS);
	ck_assert((double)ended_ns[0] <= 1.1 * 2400 * MS);
	ck_assert((double)ended_ns[1] <= 1.1 * 2400 * MS);
	machine_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy-machine");
	TCase *tc = gantry_unit_case(suite, "machine");

	tcase_add_test(tc, test_eight_queues_use_what_devices_there_are);
	tcase_add_test(tc, test_kinds_work_together);
	tcase_add_test(tc, test_kernels_find_the_kind_that_suits_them);
	tcase_add_test(tc,
		       test_urgent_arrival_runs_as_if_alone_and_costs_others_no_more_than_a_device);
	tcase_add_test(tc, test_comings_and_goings_make_no_queue_flap);
	tcase_add_test(tc, test_two_tenants_get_devices_by_weight);
	return gantry_unit_run(suite);
}
