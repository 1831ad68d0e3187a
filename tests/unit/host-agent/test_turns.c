/* SPDX-License-Identifier: Apache-2.0 */
/* Who has work on a GPU at once: what the agent makes of a device's kind, and of what is configured, in its share page. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

static struct gantry_agent agent;
static struct gantry_agent_device *const d = &agent.devices[0];
static struct gantry_worker workers[2] = { { .owner = 3 }, { .owner = 4 } };

static void begin(const char *backend, const char *option)
{
	agent = (struct gantry_agent){ .ndevices = 1 };
	*d = (struct gantry_agent_device){ .used = true, .state = GANTRY_DEVICE_ENABLED };
	(void)snprintf(d->conf.name, sizeof(d->conf.name), "gpu0");
	(void)snprintf(d->conf.backend, sizeof(d->conf.backend), "%s", backend);
	if (option)
		(void)snprintf(d->conf.opts[d->conf.nopts++], GANTRY_CONFIG_TEXT, "%s", option);
	ck_assert_int_eq(gantry_share_create("gpu0", 1, 0, &d->page, &d->page_fd, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		gantry_share_set_tenant(d->page, i, GANTRY_SHARE_WEIGHT_DEFAULT);
		gantry_share_admit(d->page, i, i, workers[i].owner);
		gantry_share_set_party(d->page, i, gantry_device_party(d, &workers[i]));
	}
}

static void finish(void)
{
	gantry_share_close(d->page);
	gantry_fd_close(d->page_fd);
}

/* A worker that serves nobody yet says what it has opened. */
static void learn(uint32_t kind, uint32_t lanes)
{
	Gantry__Worker__DeviceInfo info = GANTRY__WORKER__DEVICE_INFO__INIT;
	Gantry__Worker__DeviceInfo *infos[] = { &info };
	Gantry__Worker__Ready ready = GANTRY__WORKER__READY__INIT;

	info.name = (char *)(uintptr_t) "gpu0";
	info.kind = kind;
	info.lanes = lanes;
	ready.n_devices = 1;
	ready.devices = infos;
	ck_assert_uint_eq(gantry_devices_learn(&agent, &ready, true, true), 0);
}

/* What is said of its health, every now and then. */
static void hear_health(void)
{
	static const Gantry__Worker__DeviceHealth well = GANTRY__WORKER__DEVICE_HEALTH__INIT;

	gantry_device_health_learn(&agent, 0, &well);
}

static int take(uint32_t session)
{
	gantry_share_want(d->page, session, 0);
	return gantry_share_take(d->page, session);
}

/* A driver that goes round among processes does so for each short command, and four of them took three times as long. */
START_TEST(test_turns_processes_on_a_gpu_of_either_kind_work_one_at_a_time)
{
	static const struct {
		const char *backend;
		uint32_t kind;
	} gpus[] = { { "cuda", GANTRY_KIND_CUDA }, { "hip", GANTRY_KIND_HIP } };

	for (int i = 0; i < 2; i++) {
		begin(gpus[i].backend, NULL);
		learn(gpus[i].kind, 8);
		ck_assert_int_ge(take(0), 0);
		ck_assert_int_lt(take(1), 0);
		gantry_share_give(d->page, 0, 0, false);
		ck_assert_int_ge(take(1), 0);
		finish();
	}
}
END_TEST

START_TEST(test_turns_an_administrator_says_that_an_amd_gpu_has_processes_beside_each_other)
{
	begin("hip", "processes=beside");
	learn(GANTRY_KIND_HIP, 8);
	ck_assert_int_ge(take(0), 0);
	ck_assert_int_ge(take(1), 0);
	finish();
	begin("hip", "processes=turns");
	learn(GANTRY_KIND_HIP, 8);
	ck_assert_int_ge(take(0), 0);
	ck_assert_int_lt(take(1), 0);
	finish();
}
END_TEST

START_TEST(test_turns_other_devices_have_lanes)
{
	begin("cpu", NULL);
	learn(GANTRY_KIND_CPU, 2);
	ck_assert_int_ge(take(0), 0);
	ck_assert_int_ge(take(1), 0);
	ck_assert_uint_eq(d->page->hdr.nlanes, 2);
	hear_health();
	ck_assert_uint_eq(d->page->hdr.gpu, 0);
	ck_assert_uint_eq(d->page->hdr.nlanes, 2);
	finish();
}
END_TEST

/* Who holds a lane of the other kind, of before the agent was another build, would never give it. */
START_TEST(test_turns_begin_when_nobody_has_work_there)
{
	begin("hip", NULL);
	ck_assert_int_ge(take(0), 0);
	learn(GANTRY_KIND_HIP, 8);
	ck_assert_uint_eq(d->page->hdr.gpu, 0);
	ck_assert_uint_eq(d->page->hdr.nlanes, 8);
	hear_health();
	ck_assert_uint_eq(d->page->hdr.gpu, 0);
	gantry_share_give(d->page, 0, 0, false);
	/* No other worker comes. */
	hear_health();
	ck_assert_uint_eq(d->page->hdr.gpu, 1);
	ck_assert_int_ge(take(0), 0);
	/* And stay, whoever works when another worker comes. */
	learn(GANTRY_KIND_HIP, 8);
	ck_assert_uint_eq(d->page->hdr.gpu, 1);
	ck_assert_int_lt(take(1), 0);
	finish();
}
END_TEST

/* The only key of a device that is no other device's when it changes. */
START_TEST(test_turns_pause_is_tried_on_a_device_in_use)
{
	static struct gantry_device_section now;
	struct gantry_config config = { .ndevices = 1, .devices = &now };
	struct gantry_err err;
	bool changed;

	begin("cuda", NULL);
	d->agent = &agent;
	learn(GANTRY_KIND_CUDA, 0);
	ck_assert_int_ge(take(0), 0);
	ck_assert_int_lt(take(1), 0);
	now = d->conf;
	now.turn_pause_ns = 70 * GANTRY_NS_PER_US;
	ck_assert_int_eq(gantry_devices_apply(&agent, &config, &err, &changed), 0);
	ck_assert(!changed);
	ck_assert(d->used);
	ck_assert_uint_eq(d->page->hdr.turn_pause_us, 70);
	ck_assert(gantry_share_keeps(d->page, 0, 69999));
	now.turn_pause_ns = 0;
	ck_assert_int_eq(gantry_devices_apply(&agent, &config, &err, &changed), 0);
	ck_assert(!changed);
	ck_assert(!gantry_share_keeps(d->page, 0, 0));
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *tc = gantry_unit_case(suite, "gpu");

	tcase_add_test(tc, test_turns_processes_on_a_gpu_of_either_kind_work_one_at_a_time);
	tcase_add_test(
		tc,
		test_turns_an_administrator_says_that_an_amd_gpu_has_processes_beside_each_other);
	tcase_add_test(tc, test_turns_other_devices_have_lanes);
	tcase_add_test(tc, test_turns_begin_when_nobody_has_work_there);
	tcase_add_test(tc, test_turns_pause_is_tried_on_a_device_in_use);
	return gantry_unit_run(suite);
}
