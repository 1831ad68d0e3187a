/* SPDX-License-Identifier: Apache-2.0 */
/* Which sessions an image of a board is for, as gantryctl image list has it, and what that costs the agent. */
#include "host-agent/agent/images.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/image_store.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "proto/codec.h"
#include "tests/unit/runner.h"

#define ZEROES	 "0000000000000000000000000000000000000000000000000000000000000000"
#define SESSIONS 16u
#define IMAGES	 16u

static struct gantry_agent agent;
static struct gantry_tenant red, blue;
static struct gantry_ledger_header header;
static struct gantry_session *sessions[SESSIONS];
static char folder[] = "/tmp/gantry-unit-images-XXXXXX";
static struct gantry_answer answer;

static void add_image(const char *name, const char *words)
{
	char path[128];
	FILE *file;

	ck_assert_int_eq(gantry_str_format(path, sizeof(path), "%s/%s.bitstream", folder, name), 0);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "bitstream %s 1\nboard b\nload whole %s.bit " ZEROES "\nconfigure 1ms\n%s",
		name, name, words);
	ck_assert_int_eq(fclose(file), 0);
}

static void remove_image(const char *name)
{
	char path[128];

	ck_assert_int_eq(gantry_str_format(path, sizeof(path), "%s/%s.bitstream", folder, name), 0);
	ck_assert_int_eq(unlink(path), 0);
}

static void set_up(void)
{
	struct gantry_agent_device *d = &agent.devices[0];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	gantry_list_init(&agent.sessions);
	agent.ndevices = 1;
	d->used = true;
	(void)gantry_str_copy(d->conf.name, sizeof(d->conf.name), "fpga0");
	(void)gantry_str_copy(d->conf.backend, sizeof(d->conf.backend), "fpga");
	(void)gantry_str_format(d->conf.opts[0], sizeof(d->conf.opts[0]), "images=%s", folder);
	d->conf.nopts = 1;
	(void)gantry_str_copy(red.conf.name, sizeof(red.conf.name), "red");
	(void)gantry_str_copy(red.conf.devices, sizeof(red.conf.devices), "all");
	(void)gantry_str_copy(blue.conf.name, sizeof(blue.conf.name), "blue");
	(void)gantry_str_copy(blue.conf.devices, sizeof(blue.conf.devices), "all");
	for (uint32_t i = 0; i < SESSIONS; i++) {
		struct gantry_session *s = calloc(1, sizeof(*s));

		s->agent = &agent;
		s->id = i + 1;
		s->tenant = &red;
		s->ledger.hdr = &header;
		s->ledger.objects = calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*s->ledger.objects));
		gantry_list_init(&s->link);
		gantry_list_push_back(&agent.sessions, &s->link);
		sessions[i] = s;
	}
	gantry_answer_init(&answer, 1);
}

static void tear_down(void)
{
	gantry_answer_fini(&answer);
	for (uint32_t i = 0; i < SESSIONS; i++) {
		free(sessions[i]->ledger.objects);
		free(sessions[i]);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

/* A handle of session @session's for an installed kernel: "MODULE/NAME", or "/NAME". */
static void has(uint32_t session, uint32_t slot, const char *name)
{
	struct gantry_ledger_object *o = &sessions[session]->ledger.objects[slot];

	*o = (struct gantry_ledger_object){ .state = GANTRY_OBJECT_LIVE,
					    .type = GANTRY_HANDLE_KERNEL };
	(void)gantry_str_copy(o->kernel.name, sizeof(o->kernel.name), name);
}

/* How many sessions could not go on without the image. */
static uint32_t users_of(const char *image)
{
	Gantry__Admin__AdminRequest q = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	gantry_answer_fini(&answer);
	gantry_answer_init(&answer, 1);
	gantry_verb_image_list(&agent, &q, &answer);
	ck_assert_int_eq(answer.msg.code, 0);
	for (size_t i = 0; i < answer.msg.images->n_images; i++) {
		ck_assert_str_eq(answer.msg.images->images[i]->problem, "");
		if (strcmp(answer.msg.images->images[i]->name, image) == 0)
			return answer.msg.images->images[i]->sessions;
	}
	ck_abort_msg("no image %s is listed", image);
	return 0;
}

START_TEST(test_images_are_used_by_sessions_with_kernels_that_no_other_image_has)
{
	add_image("sum", "kernel vadd r:i32*,u64 window 0\nkernel vsum r:i32*,u64 window 1\n");
	add_image("also", "kernel vadd r:i32*,u64 window 0\n");
	ck_assert_uint_eq(users_of("sum"), 0);
	has(0, 5, "/vadd"); /* either has it */
	ck_assert_uint_eq(users_of("sum"), 0);
	has(0, GANTRY_LEDGER_NOBJECTS - 1, "/vsum");
	has(1, 0, "/vsum");
	has(1, 1, "/vsum");
	has(2, 0, "sum/vadd"); /* it was asked for by the image's name */
	has(3, 0, "other/vsum");
	has(4, 0, "/nothing");
	has(5, 0, "vsum");
	ck_assert_uint_eq(users_of("sum"), 3);
	ck_assert_uint_eq(users_of("also"), 0);
	sessions[1]->ledger.objects[0].state = GANTRY_OBJECT_DYING;
	sessions[1]->ledger.objects[1].type = GANTRY_HANDLE_IMAGE;
	ck_assert_uint_eq(users_of("sum"), 2);
	remove_image("sum");
	remove_image("also");
}
END_TEST

START_TEST(test_images_of_one_tenant_are_used_by_its_sessions_only)
{
	sessions[1]->tenant = &blue;
	add_image("mine", "tenant red\nkernel vadd r:i32*,u64 window 0\n");
	add_image("theirs", "tenant blue\nkernel vadd r:i32*,u64 window 0\n");
	add_image("ours", "kernel vsum r:i32*,u64 window 0\n");
	has(0, 0, "/vadd"); /* blue's is not there for red */
	has(1, 0, "/vsum");
	ck_assert_uint_eq(users_of("mine"), 1);
	ck_assert_uint_eq(users_of("theirs"), 0);
	ck_assert_uint_eq(users_of("ours"), 1);
	remove_image("mine");
	remove_image("theirs");
	remove_image("ours");
}
END_TEST

/* Two queues of eight slots for session 0. */
static struct gantry_ledger_queue queues[2];
static struct gantry_ledger_task tasks[16];

/* @kernel: the slot of its handle; 0: no kernel. */
static void put_launch(uint32_t slot, uint64_t pos, uint64_t kernel)
{
	const struct gantry_op_launch args = {
		.kernel = kernel ? GANTRY_HANDLE(GANTRY_HANDLE_KERNEL, 1, kernel) : 0
	};

	gantry_desc_put_launch(&gantry_ledger_task(&sessions[0]->ledger, slot, pos)->desc, &args);
}

static const Gantry__Admin__Image *listed(const char *image)
{
	(void)users_of(image);
	for (size_t i = 0; i < answer.msg.images->n_images; i++)
		if (strcmp(answer.msg.images->images[i]->name, image) == 0)
			return answer.msg.images->images[i];
	return NULL;
}

START_TEST(test_image_that_leaves_waits_for_accepted_launches_of_its_kernels)
{
	struct gantry_ledger *ledger = &sessions[0]->ledger;
	const Gantry__Admin__Image *sum;
	char mark[128];
	int fd;

	add_image("sum", "kernel vadd r:i32*,u64 window 0\nkernel vsum r:i32*,u64 window 1\n");
	add_image("also", "kernel vadd r:i32*,u64 window 0\n");
	has(0, 3, "/vsum");
	has(0, 4, "/vadd");
	sessions[0]->version = 1;
	ledger->queues = queues;
	ledger->tasks = tasks;
	ledger->nqueues = 2;
	ledger->nslots = 8;
	queues[1] = (struct gantry_ledger_queue){ .taken = 12, .issued = 7, .done = 6 };
	put_launch(1, 5, 3);  /* has ended */
	put_launch(1, 6, 3);  /* runs */
	put_launch(1, 7, 4);  /* another image has it */
	put_launch(1, 8, 99); /* no kernel */
	put_launch(1, 9, 3);
	put_launch(1, 10, 0);
	put_launch(1, 11, 3);
	put_launch(1, 12, 3); /* not accepted */
	sum = listed("sum");
	ck_assert(!sum->leaving);
	ck_assert_uint_eq(sum->tasks, 0);
	(void)gantry_str_format(mark, sizeof(mark), "%s/sum.bitstream.leaving", folder);
	fd = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
	sum = listed("sum");
	ck_assert(sum->leaving);
	ck_assert_uint_eq(sum->tasks, 3);
	ck_assert_uint_eq(sum->waits_for, 1);
	ck_assert_str_eq(sum->waits_first, "session 1 of tenant red");
	ck_assert(!listed("also")->leaving);
	/* A ledger that lies about how many there are costs no more than there is room for. */
	queues[1].taken = UINT64_MAX;
	ck_assert_uint_le(listed("sum")->tasks, ledger->nslots);
	ck_assert_int_eq(unlink(mark), 0);
	remove_image("sum");
	remove_image("also");
}
END_TEST

/* The agent has one thread, and guests have as many handles as they like of kernels that several images have. */
START_TEST(test_images_are_listed_soon_whatever_handles_guests_have)
{
	char name[32];
	uint64_t began_ns;

	for (uint32_t i = 0; i < IMAGES; i++) {
		(void)gantry_str_format(name, sizeof(name), "image%u", i);
		add_image(name, "kernel vadd r:i32*,u64 window 0\n");
	}
	for (uint32_t i = 0; i < SESSIONS; i++)
		for (uint32_t slot = 0; slot < GANTRY_LEDGER_NOBJECTS; slot++)
			has(i, slot, "/vadd");
	began_ns = gantry_now_ns();
	ck_assert_uint_eq(users_of("image0"), 0);
	/* Some milliseconds; minutes while the store was read for each handle. */
	ck_assert_uint_lt(gantry_now_ns() - began_ns, 10 * GANTRY_NS_PER_S);
	for (uint32_t i = 0; i < IMAGES; i++) {
		(void)gantry_str_format(name, sizeof(name), "image%u", i);
		remove_image(name);
	}
}
END_TEST

/* After so many looks, made at once: when the next one is, or 0. */
static uint64_t next_look_ns(uint32_t nlooks)
{
	for (uint32_t i = 0; i < nlooks; i++) {
		event_active(agent.leaving, EV_TIMEOUT, 0);
		ck_assert_int_ge(event_base_loop(agent.base, EVLOOP_NONBLOCK), 0);
	}
	return event_pending(agent.leaving, EV_TIMEOUT, NULL) ? agent.leaving_ns : 0;
}

START_TEST(test_stores_are_looked_at_as_often_as_is_known_that_something_leaves)
{
	static struct gantry_worker starting;
	char away[128], mark[128];
	int fd;

	agent.base = event_base_new();
	ck_assert_ptr_nonnull(agent.base);
	gantry_list_init(&agent.workers);
	(void)gantry_str_format(away, sizeof(away), "%s-away", folder);
	ck_assert_int_eq(rename(folder, away), 0);
	gantry_images_start(&agent);
	ck_assert_uint_eq(next_look_ns(0), 100 * GANTRY_NS_PER_MS);
	ck_assert_uint_eq(next_look_ns(1), 200 * GANTRY_NS_PER_MS);
	ck_assert_uint_eq(next_look_ns(20), 60 * GANTRY_NS_PER_S); /* for good, but seldom */
	/* It is there, and one is to go, of which a worker has not heard. */
	ck_assert_int_eq(rename(away, folder), 0);
	add_image("sum", "kernel vsum r:i32*,u64 window 1\n");
	(void)gantry_str_format(mark, sizeof(mark), "%s/sum.bitstream.leaving", folder);
	fd = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
	gantry_list_init(&starting.link);
	starting.rescan_due = true;
	gantry_list_push_back(&agent.workers, &starting.link);
	ck_assert_uint_eq(next_look_ns(20), 2 * GANTRY_NS_PER_S);
	gantry_list_remove(&starting.link);
	ck_assert_int_eq(unlink(mark), 0);
	ck_assert_uint_eq(next_look_ns(1), 0); /* nothing leaves */
	remove_image("sum");
	gantry_images_stop(&agent);
	event_base_free(agent.base);
}
END_TEST

/* A sanitizer has memory of its own, and tells of none left by ending the program. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BLOCK 256u

START_TEST(test_agent_without_memory_says_so_and_does_not_end)
{
	struct gantry_image_store store = { &agent.devices[0], folder };
	_cleanup_(gantry_image_entries_free) struct gantry_image_entries entries = { 0 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct rlimit before;
	void **all = NULL, **block;
	char name[32];
	int r;

	for (uint32_t i = 0; i < IMAGES; i++) {
		(void)gantry_str_format(name, sizeof(name), "image%u", i);
		add_image(name, "kernel vadd r:i32*,u64 window 0\n");
	}
	ck_assert_int_eq(gantry_image_store_read(&store, &entries, NULL), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){ 0, before.rlim_max }), 0);
	while ((block = malloc(BLOCK)) != NULL) {
		*block = all;
		all = block;
	}
	r = gantry_image_users_count(&agent, &store, &entries, &err);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
	while (all) {
		block = *all;
		free(all);
		all = block;
	}
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_str_eq(err.text, "no memory to see who uses images");
	ck_assert_int_eq(gantry_image_users_count(&agent, &store, &entries, &err), 0);
	for (uint32_t i = 0; i < IMAGES; i++) {
		(void)gantry_str_format(name, sizeof(name), "image%u", i);
		remove_image(name);
	}
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("images");
	TCase *tc = gantry_unit_case(suite, "images");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_images_are_used_by_sessions_with_kernels_that_no_other_image_has);
	tcase_add_test(tc, test_images_of_one_tenant_are_used_by_its_sessions_only);
	tcase_add_test(tc, test_image_that_leaves_waits_for_accepted_launches_of_its_kernels);
	tcase_add_test(tc, test_images_are_listed_soon_whatever_handles_guests_have);
	tcase_add_test(tc, test_stores_are_looked_at_as_often_as_is_known_that_something_leaves);
#ifdef BLOCK
	tcase_add_test(tc, test_agent_without_memory_says_so_and_does_not_end);
#endif
	return gantry_unit_run(suite);
}
