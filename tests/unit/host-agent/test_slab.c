/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's slabs, with a steward and a worker that this test plays: each is the other end of a socket, and says
 * what it is told to say. Slabs are descriptors of /dev/null: what is behind them does not matter here.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/control/packet.h"
#include "tests/unit/runner.h"

#define MIB  (1ull << 20)
#define UNIT (2 * MIB)

static struct gantry_agent agent;
static struct gantry_agent *const a = &agent;
static struct gantry_tenant red = { .conf.name = "red", .conf.mem_bytes = 1024 * MIB };
static struct gantry_worker *steward, *worker;
static struct gantry_session *session;
static int steward_end, worker_end;

/* ---- the cast ---- */

static struct gantry_worker *new_worker(uint64_t id, uint32_t mode, const char *group, int *ret_end)
{
	struct gantry_worker_class class = { .mode = mode };
	struct gantry_worker *w;
	int fds[2];

	(void)gantry_str_copy(class.group, sizeof(class.group), group);
	w = gantry_worker_new(a, id, (uint32_t)id, &class);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
			 0);
	w->ctl_fd = fds[0];
	w->state = mode == GANTRY_WORKER_STEWARD ? GANTRY_WORKER_WARM : GANTRY_WORKER_BUSY;
	*ret_end = fds[1];
	return w;
}

static void new_steward(uint64_t id)
{
	steward = new_worker(id, GANTRY_WORKER_STEWARD, "cpu", &steward_end);
	steward->served = 1;
}

static void new_session_worker(uint64_t id)
{
	worker = new_worker(id, GANTRY_ISOLATED, "", &worker_end);
	gantry_worker_enlist(worker, session);
}

static struct gantry_session *new_session(uint64_t id)
{
	struct gantry_session *s = gantry_session_blank(a, &red, id);

	s->phase = GANTRY_PHASE_ATTACHED;
	s->shape.slab_bytes = 1024 * MIB;
	s->shape.mem_bytes = 1024 * MIB;
	return s;
}

static void begin_agent(void)
{
	agent = (struct gantry_agent){ .base = event_base_new() };
	gantry_agent_blank(&agent);
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	agent.config = gantry_config_new();
	gantry_store_init(&agent.handed, true);
	gantry_slabs_init(a);
	red.agent = a;
	red.nsessions = 0;
	red.device_mask = 1;
	gantry_list_init(&red.waiting);
	a->ndevices = 1;
	a->devices[0] = (struct gantry_agent_device){
		.used = true,
		.state = GANTRY_DEVICE_ENABLED,
		.page_fd = -EBADF,
		.conf = { .name = "gpu0", .backend = "cpu", .nopts = 1, .opts = { "window=yes" } },
		.slab_align = UNIT,
		.mem_bytes = 256 * MIB,
	};
}

static void begin(void)
{
	begin_agent();
	session = new_session(7);
	new_steward(1);
	new_session_worker(2);
}

static void finish(void)
{
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		gantry_list_for_each_safe(&w->sessions, struct gantry_session, worker_link, s)
			gantry_worker_release(w, s);
		gantry_worker_free(w);
	}
	gantry_list_for_each_safe(&a->sessions, struct gantry_session, link, s)
		gantry_session_free(s);
	gantry_slabs_fini(a);
	gantry_stewards_stop(a);
	gantry_event_free(&a->journal_event);
	gantry_event_free(&a->warm_timer);
	gantry_store_fini(&a->handed);
	gantry_store_fini(&a->kept);
	gantry_config_free(a->config);
	free(a->events);
	event_base_free(a->base);
	gantry_fd_close(steward_end);
	gantry_fd_close(worker_end);
}

/* ---- what the steward's end hears and says ---- */

static bool silent(int end)
{
	char byte;

	return recv(end, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static Gantry__Worker__ToWorker *hear(int end, int *fds, unsigned int max, unsigned int *ret_nfds)
{
	ProtobufCMessage *msg = NULL;

	ck_assert_int_eq(gantry_packet_recv(end, &gantry__worker__to_worker__descriptor, fds, max,
					    &msg, ret_nfds),
			 0);
	return (Gantry__Worker__ToWorker *)msg;
}

static void say(struct gantry_worker *w, int end, Gantry__Worker__FromWorker *msg, int fd)
{
	ck_assert_int_eq(gantry_packet_send(end, &msg->base, &fd, fd >= 0 ? 1 : 0), 0);
	gantry_call_readable(w->ctl_fd, EV_READ, w);
	gantry_fd_close(fd);
}

/* The steward was asked for a slab of @bytes: the tag of that. */
static uint64_t asked_make_on(uint32_t device, uint64_t bytes)
{
	unsigned int nfds = 0;
	Gantry__Worker__ToWorker *msg = hear(steward_end, NULL, 0, &nfds);
	uint64_t tag = msg->tag;

	ck_assert_int_eq(msg->body_case, GANTRY__WORKER__TO_WORKER__BODY_MAKE_SLAB);
	ck_assert_uint_eq(msg->make_slab->bytes, bytes);
	ck_assert_uint_eq(msg->make_slab->device, device);
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return tag;
}

static uint64_t asked_make(uint64_t bytes)
{
	return asked_make_on(0, bytes);
}

static uint64_t asked_scrub(uint64_t bytes)
{
	int fd = -EBADF;
	unsigned int nfds = 0;
	Gantry__Worker__ToWorker *msg = hear(steward_end, &fd, 1, &nfds);
	uint64_t tag = msg->tag;

	ck_assert_int_eq(msg->body_case, GANTRY__WORKER__TO_WORKER__BODY_SCRUB_SLAB);
	ck_assert_uint_eq(msg->scrub_slab->bytes, bytes);
	ck_assert_uint_eq(nfds, 1);
	gantry_fd_close(fd);
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return tag;
}

static void say_made(uint64_t tag, int status)
{
	Gantry__Worker__SlabMade made = GANTRY__WORKER__SLAB_MADE__INIT;
	Gantry__Worker__FromWorker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	made.status = status;
	made.text = (char *)(uintptr_t)(status ? "as the test wants it" : "");
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_SLAB_MADE;
	msg.slab_made = &made;
	say(steward, steward_end, &msg, status ? -EBADF : open("/dev/null", O_RDWR | O_CLOEXEC));
}

static void say_scrubbed(uint64_t tag, int status)
{
	Gantry__Worker__Done done = GANTRY__WORKER__DONE__INIT;
	Gantry__Worker__FromWorker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	done.status = status;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DONE;
	msg.done = &done;
	say(steward, steward_end, &msg, -EBADF);
}

static void make(uint64_t bytes)
{
	say_made(asked_make(bytes), GANTRY_OK);
}

/* ---- what the worker's end says and hears ---- */

static void need_on(uint32_t device, uint64_t off, uint64_t bytes)
{
	Gantry__Worker__NeedSlabs msg = GANTRY__WORKER__NEED_SLABS__INIT;

	msg.session_id = session->id;
	msg.device = device;
	msg.off = off;
	msg.bytes = bytes;
	gantry_slabs_need(worker, &msg);
}

static void need(uint64_t off, uint64_t bytes)
{
	need_on(0, off, bytes);
}

static void drop(uint64_t off, uint64_t bytes)
{
	Gantry__Worker__DropSlab msg = GANTRY__WORKER__DROP_SLAB__INIT;

	msg.session_id = session->id;
	msg.off = off;
	msg.bytes = bytes;
	gantry_slabs_drop(worker, &msg);
}

struct given {
	uint32_t n;
	uint64_t bytes;
	int status;
	bool last;
};

/* A packet of GiveSlabs for that range. */
static struct given given(uint64_t off, uint64_t bytes)
{
	struct given g = { 0 };
	int fds[GANTRY_PACKET_MAX_FDS];
	unsigned int nfds = 0;
	Gantry__Worker__ToWorker *msg = hear(worker_end, fds, GANTRY_PACKET_MAX_FDS, &nfds);

	ck_assert_int_eq(msg->body_case, GANTRY__WORKER__TO_WORKER__BODY_GIVE_SLABS);
	ck_assert_uint_eq(msg->give_slabs->session_id, session->id);
	ck_assert_uint_eq(msg->give_slabs->off, off);
	ck_assert_uint_eq(msg->give_slabs->bytes, bytes);
	ck_assert_uint_eq(msg->give_slabs->n_slabs, nfds);
	g.n = nfds;
	g.status = msg->give_slabs->status;
	g.last = msg->give_slabs->last;
	for (unsigned int i = 0; i < nfds; i++) {
		g.bytes += msg->give_slabs->slabs[i]->bytes;
		gantry_fd_close(fds[i]);
	}
	protobuf_c_message_free_unpacked(&msg->base, NULL);
	return g;
}

static void expect_given(uint64_t off, uint64_t bytes, uint32_t n, int status)
{
	struct given g = given(off, bytes);

	ck_assert_uint_eq(g.n, n);
	ck_assert_int_eq(g.status, status);
	ck_assert(g.last);
	if (status == GANTRY_OK)
		ck_assert_uint_ge(g.bytes, bytes);
}

/* How many names the monitor keeps that begin so. */
static uint32_t kept(const char *prefix)
{
	uint32_t n = 0;

	for (size_t i = 0; i < a->kept.nentries; i++)
		n += gantry_str_starts(a->kept.entries[i].name, prefix);
	return n;
}

/* ---- making and giving ---- */

START_TEST(test_need_is_answered_when_all_of_it_was_made)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = 0;
	need(0, 3 * UNIT);
	uint64_t first = asked_make(2 * UNIT), second = asked_make(UNIT);

	say_made(second, GANTRY_OK);
	ck_assert(silent(worker_end));
	ck_assert_uint_eq(kept("s/7/m/0/400000/200000"), 1);
	say_made(first, GANTRY_OK);
	expect_given(0, 3 * UNIT, 2, GANTRY_OK);
	ck_assert_uint_eq(kept("s/7/m/"), 2);
	ck_assert_uint_eq(gantry_slabs_of(session, NULL), 3 * UNIT);
	ck_assert_uint_eq(a->pools[0].session_bytes, 3 * UNIT);
	ck_assert_uint_eq(a->pools[0].nmade, 2);
	finish();
}
END_TEST

START_TEST(test_need_of_what_is_there_is_answered_at_once)
{
	begin();
	need(0, 2 * UNIT);
	make(2 * UNIT);
	expect_given(0, 2 * UNIT, 1, GANTRY_OK);
	need(UNIT, UNIT);
	expect_given(UNIT, UNIT, 1, GANTRY_OK);
	ck_assert(silent(steward_end));
	need(UNIT, 2 * UNIT);
	make(UNIT);
	expect_given(UNIT, 2 * UNIT, 2, GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_successor_gets_the_same_slabs_and_no_others)
{
	begin();
	need(0, UNIT);
	make(UNIT);
	expect_given(0, UNIT, 1, GANTRY_OK);
	need(4 * UNIT, UNIT); /* still being made when the worker dies */
	gantry_slabs_worker_gone(session);
	gantry_worker_release(worker, session);
	gantry_worker_free(worker);
	worker_end = gantry_fd_close(worker_end);
	new_session_worker(3);
	make(UNIT);
	ck_assert(silent(worker_end)); /* it did not ask for that */
	need(0, 8 * UNIT);
	make(2 * UNIT);
	make(UNIT);
	make(2 * UNIT);
	make(UNIT);
	expect_given(0, 8 * UNIT, 6, GANTRY_OK);
	finish();
}
END_TEST

/* Its successor asks for the places of its buffers, and nobody speaks of the others again. */
START_TEST(test_slabs_in_the_making_of_a_worker_that_died_are_the_pools)
{
	struct gantry_ledger_header hdr = { 0 };
	struct gantry_ledger_object *objects = calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*objects));
	uint64_t first, second;

	begin();
	a->devices[0].conf.slab_pool_bytes = 0;
	session->ledger.hdr = &hdr;
	session->ledger.objects = objects;
	objects[5] = (struct gantry_ledger_object){
		.state = GANTRY_OBJECT_LIVE,
		.type = GANTRY_HANDLE_BUFFER,
		.buffer = { .place = GANTRY_PLACE_WINDOW, .off = 8 * UNIT, .bytes = UNIT }
	};
	need(4 * UNIT, UNIT); /* ahead of need */
	need(8 * UNIT, UNIT);
	for (uint64_t i = 0; i < 6; i++) /* more than the steward is asked for at once */
		need((20 + 4 * i) * UNIT, UNIT);
	first = asked_make(UNIT);
	second = asked_make(UNIT);
	(void)asked_make(UNIT);
	(void)asked_make(UNIT);
	ck_assert(silent(steward_end));
	gantry_slabs_worker_gone(session);
	ck_assert_uint_eq(a->pools[0].session_bytes, UNIT);
	ck_assert_uint_eq(a->pools[0].making_bytes, 3 * UNIT);
	say_made(first, GANTRY_OK);
	ck_assert_uint_eq(kept("s/7/m/"), 0);
	ck_assert_uint_eq(gantry_slabs_of(session, NULL), UNIT);
	say_made(second, GANTRY_OK);
	ck_assert_uint_eq(gantry_slabs_of(session, NULL), UNIT);
	ck_assert_uint_eq(kept("s/7/m/"), 1);
	ck_assert_uint_eq(kept("s/7/m/0/1000000/200000"), 1);
	ck_assert_uint_eq(a->pools[0].making_bytes, 2 * UNIT);
	ck_assert_uint_eq(a->pools[0].session_bytes, UNIT);
	/* Nobody needs the rest. */
	ck_assert(silent(steward_end));
	session->ledger.hdr = NULL;
	session->ledger.objects = NULL;
	finish();
	free(objects);
}
END_TEST

START_TEST(test_answer_takes_as_many_packets_as_descriptors_need)
{
	struct given g;

	begin();
	for (uint64_t i = 0; i < 70; i++) {
		need(i * UNIT, UNIT);
		make(UNIT);
		expect_given(i * UNIT, UNIT, 1, GANTRY_OK);
	}
	need(0, 70 * UNIT);
	g = given(0, 70 * UNIT);
	ck_assert_uint_eq(g.n, 64);
	ck_assert(!g.last);
	g = given(0, 70 * UNIT);
	ck_assert_uint_eq(g.n, 6);
	ck_assert(g.last);
	finish();
}
END_TEST

/* ---- refusals ---- */

static void expect_refused(uint64_t off, uint64_t bytes, int status)
{
	uint64_t refused = a->pools[0].nrefused;

	need(off, bytes);
	expect_given(off, bytes, 0, status);
	ck_assert(silent(steward_end));
	ck_assert_uint_eq(a->pools[0].nrefused, refused + 1);
}

START_TEST(test_need_past_a_limit_is_refused_and_changes_nothing)
{
	begin();
	expect_refused(0, UNIT + 4096, GANTRY_E_ARG);
	expect_refused(1024 * MIB, UNIT, GANTRY_E_ARG);
	expect_refused(0, 512 * MIB, GANTRY_E_NO_MEMORY); /* the device's 256 and a little */
	session->shape.mem_bytes = 8 * MIB;
	expect_refused(0, 64 * MIB, GANTRY_E_LIMIT);
	session->shape.mem_bytes = 1024 * MIB;
	red.conf.mem_bytes = 8 * MIB;
	expect_refused(0, 64 * MIB, GANTRY_E_LIMIT);
	red.conf.mem_bytes = 1024 * MIB;
	red.device_mask = 0;
	expect_refused(0, UNIT, GANTRY_E_NO_DEVICE);
	red.device_mask = 1;
	a->devices[0].state = GANTRY_DEVICE_FAILED;
	expect_refused(0, UNIT, GANTRY_E_NO_DEVICE);
	ck_assert_uint_eq(a->pools[0].nslabs, 0);
	ck_assert_uint_eq(a->pools[0].session_bytes, 0);
	finish();
}
END_TEST

/* What moves has slabs on both devices for a while; that is no way to have twice as much on one. */
START_TEST(test_need_for_what_moves_is_within_the_limit_of_the_other_device)
{
	begin();
	a->devices[1] = a->devices[0];
	a->ndevices = 2;
	red.device_mask = 3;
	steward->served = 3;
	a->devices[0].conf.slab_pool_bytes = 0;
	a->devices[1].conf.slab_pool_bytes = 0;
	session->shape.mem_bytes = 64 * MIB;
	red.conf.mem_bytes = 64 * MIB;
	need(0, 64 * MIB);
	make(64 * MIB);
	expect_given(0, 64 * MIB, 1, GANTRY_OK);
	need_on(1, 0, 64 * MIB);
	say_made(asked_make_on(1, 64 * MIB), GANTRY_OK);
	expect_given(0, 64 * MIB, 1, GANTRY_OK);
	need_on(1, 64 * MIB, 64 * MIB);
	expect_given(64 * MIB, 64 * MIB, 0, GANTRY_E_LIMIT);
	ck_assert_uint_eq(gantry_slabs_of(session, NULL), 128 * MIB);
	ck_assert(silent(steward_end));
	finish();
}
END_TEST

START_TEST(test_need_of_a_strange_worker_is_not_heard)
{
	Gantry__Worker__NeedSlabs msg = GANTRY__WORKER__NEED_SLABS__INIT;

	begin();
	msg.session_id = session->id;
	msg.bytes = UNIT;
	gantry_slabs_need(steward, &msg);
	ck_assert(silent(steward_end));
	session->phase = GANTRY_PHASE_DETACHING;
	gantry_slabs_need(worker, &msg);
	ck_assert(silent(steward_end));
	ck_assert(silent(worker_end));
	finish();
}
END_TEST

START_TEST(test_needs_that_wait_are_bounded)
{
	begin();
	for (uint64_t i = 0; i < 64; i++)
		need(i * UNIT, UNIT);
	ck_assert(silent(worker_end));
	need(64 * UNIT, UNIT);
	expect_given(64 * UNIT, UNIT, 0, GANTRY_E_AGAIN);
	ck_assert_uint_eq(a->pools[0].nasked, 4);
	finish();
}
END_TEST

START_TEST(test_slabs_of_a_host_are_bounded_by_its_descriptors)
{
	struct rlimit before, low = { .rlim_cur = 128 };

	begin();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	low.rlim_max = before.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	for (uint64_t i = 0; i < 32; i++) {
		need(2 * i * UNIT, UNIT);
		make(UNIT);
		expect_given(2 * i * UNIT, UNIT, 1, GANTRY_OK);
	}
	expect_refused(100 * UNIT, UNIT, GANTRY_E_NO_MEMORY);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	need(100 * UNIT, UNIT);
	make(UNIT);
	expect_given(100 * UNIT, UNIT, 1, GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_no_room_on_the_device_is_told_with_what_there_is)
{
	begin();
	need(0, 3 * UNIT);
	uint64_t first = asked_make(2 * UNIT), second = asked_make(UNIT);

	say_made(first, GANTRY_OK);
	say_made(second, GANTRY_E_NO_MEMORY);
	expect_given(0, 3 * UNIT, 1, GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(a->pools[0].session_bytes, 2 * UNIT);
	ck_assert(a->pools[0].is_short);
	ck_assert_int_eq(gantry_slabs_room(&red, NULL), -ENOSPC);
	drop(0, 2 * UNIT);
	ck_assert_int_eq(gantry_slabs_room(&red, NULL), 0);
	finish();
}
END_TEST

START_TEST(test_pool_stands_back_when_the_device_has_no_room)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = 2 * UNIT; /* one of them is kept ready */
	gantry_slabs_pump(a);
	make(UNIT);
	ck_assert_uint_eq(a->pools[0].clean_bytes, UNIT);
	need(0, 2 * UNIT);
	say_made(asked_make(2 * UNIT), GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(a->pools[0].clean_bytes, 0);
	ck_assert_uint_eq(kept("m/"), 0);
	say_made(asked_make(2 * UNIT), GANTRY_OK);
	expect_given(0, 2 * UNIT, 1, GANTRY_OK);
	finish();
}
END_TEST

/* ---- stewards die ---- */

static void next_steward(uint64_t id)
{
	gantry_worker_free(steward);
	gantry_fd_close(steward_end);
	new_steward(id);
	gantry_slabs_pump(a);
}

START_TEST(test_slab_that_a_dead_steward_was_making_is_made_by_the_next)
{
	begin();
	need(0, UNIT);
	(void)asked_make(UNIT);
	next_steward(3);
	make(UNIT);
	expect_given(0, UNIT, 1, GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_slab_at_which_stewards_die_is_given_up)
{
	begin();
	need(0, UNIT);
	for (uint64_t id = 3; id < 6; id++) {
		(void)asked_make(UNIT);
		next_steward(id);
	}
	expect_given(0, UNIT, 0, GANTRY_E_AGAIN);
	ck_assert(silent(steward_end));
	ck_assert_uint_eq(a->pools[0].nslabs, 0);
	finish();
}
END_TEST

START_TEST(test_slab_that_a_dead_steward_was_scrubbing_is_scrubbed_by_the_next)
{
	begin();
	need(0, UNIT);
	make(UNIT);
	expect_given(0, UNIT, 1, GANTRY_OK);
	drop(0, UNIT);
	(void)asked_scrub(UNIT);
	next_steward(3);
	ck_assert_uint_eq(kept("z/"), 1);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	ck_assert_uint_eq(kept("z/"), 0);
	ck_assert_uint_eq(a->pools[0].scrubbed_bytes, UNIT);
	finish();
}
END_TEST

/* ---- scrubbing, growth and return ---- */

START_TEST(test_dropped_slab_is_nobodys_until_it_is_scrubbed)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = UNIT;
	need(0, UNIT);
	make(UNIT);
	expect_given(0, UNIT, 1, GANTRY_OK);
	drop(0, UNIT);
	ck_assert_uint_eq(kept("s/7/m/"), 0);
	ck_assert_uint_eq(kept("z/"), 1);
	uint64_t scrub = asked_scrub(UNIT);

	need(0, UNIT); /* another is made: the old one is not zero yet */
	uint64_t tag = asked_make(UNIT);

	say_scrubbed(scrub, GANTRY_OK);
	ck_assert_uint_eq(kept("m/"), 1);
	say_made(tag, GANTRY_OK);
	expect_given(0, UNIT, 1, GANTRY_OK);
	need(UNIT, UNIT); /* and now the pool has one */
	expect_given(UNIT, UNIT, 1, GANTRY_OK);
	ck_assert_uint_eq(kept("m/"), 0);
	finish();
}
END_TEST

START_TEST(test_slab_that_cannot_be_scrubbed_is_given_to_nobody)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = 8 * UNIT;
	need(0, UNIT);
	make(UNIT);
	expect_given(0, UNIT, 1, GANTRY_OK);
	for (int i = 0; i < 3; i++)
		make(UNIT); /* the pool's own: half of what it may have, once a session has grown */
	while (!silent(steward_end))
		make(UNIT);
	ck_assert_uint_eq(a->pools[0].clean_bytes, 4 * UNIT);
	drop(0, UNIT);
	say_scrubbed(asked_scrub(UNIT), GANTRY_E_INTERNAL);
	ck_assert_uint_eq(a->pools[0].clean_bytes, 4 * UNIT);
	ck_assert_uint_eq(a->pools[0].nslabs, 4);
	ck_assert_uint_eq(a->pools[0].scrubbed_bytes, 0);
	finish();
}
END_TEST

START_TEST(test_end_of_a_session_scrubs_all_of_it)
{
	begin();
	need(0, 7 * UNIT);
	make(4 * UNIT);
	make(2 * UNIT);
	make(UNIT);
	expect_given(0, 7 * UNIT, 3, GANTRY_OK);
	need(8 * UNIT, UNIT);
	uint64_t late = asked_make(UNIT); /* it comes when its session is gone */

	gantry_worker_release(worker, session);
	gantry_session_free(session);
	ck_assert_uint_eq(kept("s/"), 0);
	ck_assert_uint_eq(kept("z/"), 3);
	ck_assert_uint_eq(a->pools[0].session_bytes, 0);
	say_scrubbed(asked_scrub(4 * UNIT), GANTRY_OK);
	say_scrubbed(asked_scrub(2 * UNIT), GANTRY_OK);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	say_made(late, GANTRY_OK);
	/* Nothing is pooled by configuration but what was fresh. */
	ck_assert_uint_eq(a->pools[0].scrubbed_bytes, 7 * UNIT);
	ck_assert_uint_eq(a->pools[0].dirty_bytes, 0);
	ck_assert_uint_eq(kept("z/"), 0);
	finish();
}
END_TEST

START_TEST(test_pool_fills_to_half_and_takes_back_the_rest)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = 8 * UNIT;
	gantry_slabs_pump(a);
	for (int i = 0; i < 4; i++)
		make(UNIT);
	ck_assert(silent(steward_end));
	ck_assert_uint_eq(a->pools[0].clean_bytes, 4 * UNIT);
	need(0, 4 * UNIT); /* small ones stand in for a large one */
	expect_given(0, 4 * UNIT, 4, GANTRY_OK);
	for (int i = 0; i < 4; i++)
		make(UNIT); /* the pool grows again */
	for (uint64_t i = 0; i < 4; i++)
		drop(i * UNIT, UNIT);
	for (int i = 0; i < 4; i++)
		say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	ck_assert_uint_eq(a->pools[0].clean_bytes, 8 * UNIT);
	need(0, 8 * UNIT);
	expect_given(0, 8 * UNIT, 8, GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_pool_is_released_with_its_device)
{
	begin();
	a->devices[0].conf.slab_pool_bytes = 4 * UNIT;
	gantry_slabs_pump(a);
	make(UNIT);
	make(UNIT);
	a->devices[0].used = false;
	gantry_slabs_device_removed(a, 0);
	ck_assert_uint_eq(a->pools[0].nslabs, 0);
	ck_assert_uint_eq(kept("m/"), 0);
	finish();
}
END_TEST

START_TEST(test_failed_device_answers_who_waits_for_it)
{
	begin();
	steward->state = GANTRY_WORKER_STARTING; /* nobody makes any */
	need(0, UNIT);
	ck_assert(silent(worker_end));
	gantry_slabs_device_failed(a, 0);
	expect_given(0, UNIT, 0, GANTRY_E_NO_DEVICE);
	finish();
}
END_TEST

/* ---- after an agent that died ---- */

static void hand(const char *name)
{
	ck_assert_int_eq(gantry_store_put(&a->handed, name, open("/dev/null", O_RDWR | O_CLOEXEC)),
			 0);
}

START_TEST(test_restored_slabs_are_whose_they_were)
{
	begin();
	hand("s/7/m/0/400000/200000");
	hand("s/7/m/0/0/400000");
	hand("m/0/200000/5");
	gantry_slabs_restore_session(session);
	gantry_slabs_restore(a);
	ck_assert_uint_eq(a->handed.nentries, 0);
	ck_assert_uint_eq(kept("s/7/m/"), 2);
	ck_assert_uint_eq(kept("m/0/200000/"), 1);
	ck_assert_uint_eq(a->pools[0].clean_bytes, UNIT);
	need(0, 3 * UNIT);
	expect_given(0, 3 * UNIT, 2, GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_slabs_of_lost_sessions_are_scrubbed_before_anybody_gets_them)
{
	begin();
	hand("s/9/m/0/0/200000");
	hand("z/0/200000/8");
	hand("m/5/200000/3"); /* of a device that is not there */
	gantry_slabs_restore_session(session);
	gantry_slabs_restore(a);
	ck_assert_uint_eq(a->handed.nentries, 0);
	ck_assert_uint_eq(kept("s/"), 0);
	ck_assert_uint_eq(kept("m/"), 0);
	ck_assert_uint_eq(kept("z/"), 2);
	gantry_slabs_pump(a);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	ck_assert_uint_eq(a->pools[0].scrubbed_bytes, 2 * UNIT);
	finish();
}
END_TEST

/* ---- to other sessions of the tenant ---- */

static const struct gantry_lent middle = { 7, 0, UNIT / 2, UNIT };

/* The two slabs in which that is. */
static void lend(void)
{
	struct gantry_slab_lent slabs[2];
	struct gantry_lent whole;
	uint32_t n = 0;

	ck_assert_int_eq(gantry_slabs_lend(session, &middle, slabs, 2, &n, &whole), GANTRY_OK);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(whole.owner, 7);
	ck_assert_uint_eq(whole.off, 0);
	ck_assert_uint_eq(whole.bytes, 2 * UNIT);
	ck_assert_uint_eq(slabs[0].off, 0);
	ck_assert_uint_eq(slabs[1].off, UNIT);
	ck_assert_int_ge(slabs[0].fd, 0);
}

static void make_three(void)
{
	for (uint32_t i = 0; i < 3; i++) {
		need(i * UNIT, UNIT);
		make(UNIT);
		expect_given(i * UNIT, UNIT, 1, GANTRY_OK);
	}
}

START_TEST(test_lent_slab_is_let_go_of_and_nobody_elses)
{
	struct gantry_session *borrower;

	begin();
	borrower = new_session(8);
	make_three();
	lend();
	ck_assert_uint_eq(kept("s/7/l/"), 2);
	ck_assert_int_eq(gantry_loan_begin(borrower, 99, &middle), 0);
	ck_assert_uint_eq(gantry_loans_of(borrower), 1);
	drop(0, UNIT);
	ck_assert_uint_eq(kept("s/7/l/"), 1);
	ck_assert_uint_eq(kept("s/7/m/"), 2);
	ck_assert_uint_eq(kept("z/"), 0);
	ck_assert(silent(steward_end)); /* it is not cleared under who has it */
	ck_assert_uint_eq(a->pools[0].nslabs, 2);
	/* It counts until the borrower lets go. */
	ck_assert_uint_eq(a->pools[0].session_bytes, 3 * UNIT);
	gantry_loan_end(borrower, 98); /* not this one */
	ck_assert_uint_eq(a->pools[0].session_bytes, 3 * UNIT);
	gantry_loan_end(borrower, 99);
	ck_assert_uint_eq(a->pools[0].session_bytes, 2 * UNIT);
	/* The other is its owner's; the third was never lent. */
	gantry_worker_release(worker, session);
	gantry_session_free(session);
	ck_assert_uint_eq(kept("s/"), 0);
	ck_assert_uint_eq(kept("z/"), 1);
	ck_assert_uint_eq(a->pools[0].session_bytes, 0);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_what_its_lender_left_counts_for_the_tenant_once)
{
	struct gantry_session *one, *two;
	uint64_t all = 0;

	begin();
	one = new_session(8);
	two = new_session(9);
	make_three();
	lend();
	ck_assert_int_eq(gantry_loan_begin(one, 99, &middle), 0);
	ck_assert_int_eq(gantry_loan_begin(two, 99, &middle), 0);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 0);
	gantry_worker_release(worker, session);
	gantry_session_free(session);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 2 * UNIT);
	ck_assert_uint_eq(all, 2 * UNIT);
	ck_assert_uint_eq(a->pools[0].session_bytes, 2 * UNIT);
	gantry_slabs_worker_gone(one); /* whoever else has it counts it now */
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 2 * UNIT);
	ck_assert_uint_eq(gantry_loans_held(&red, 1, &all), 0);
	gantry_session_free(two);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 0);
	ck_assert_uint_eq(a->pools[0].session_bytes, 0);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	finish();
}
END_TEST

/* Two buffers of one slab, and a third beyond: whoever has the slab counts it, however the loans lie. */
START_TEST(test_slab_that_was_left_counts_until_the_last_who_has_any_of_it_ends)
{
	const struct gantry_lent parts[] = {
		{ 7, 0, UNIT / 2, UNIT }, /* of two slabs */
		{ 7, 0, 0, UNIT / 4 },
		{ 7, 0, UNIT + UNIT / 2 + UNIT / 4, UNIT / 4 },
	};
	struct gantry_slab_lent slabs[2];
	struct gantry_session *users[3];
	struct gantry_lent whole;
	uint64_t all = 0;
	uint32_t n;

	begin();
	make_three();
	for (uint32_t i = 0; i < 3; i++) {
		users[i] = new_session(8 + i);
		ck_assert_int_eq(gantry_slabs_lend(session, &parts[i], slabs, 2, &n, &whole),
				 GANTRY_OK);
		ck_assert_int_eq(gantry_loan_begin(users[i], 99 + i, &whole), 0);
	}
	gantry_worker_release(worker, session);
	gantry_session_free(session);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 2 * UNIT);
	gantry_loans_end(users[0]);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 2 * UNIT);
	gantry_loans_end(users[1]);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), UNIT);
	ck_assert_uint_eq(a->pools[0].session_bytes, UNIT);
	gantry_loans_end(users[2]);
	ck_assert_uint_eq(gantry_loans_held(&red, 0, &all), 0);
	ck_assert_uint_eq(a->pools[0].session_bytes, 0);
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_only_what_is_there_is_lent)
{
	const struct gantry_lent beyond = { 7, 0, 2 * UNIT, 2 * UNIT };
	const struct gantry_lent elsewhere = { 7, 1, 0, UNIT };
	struct gantry_slab_lent slabs[2];
	struct gantry_lent whole;
	uint32_t n = 7;

	begin();
	make_three();
	ck_assert_int_eq(gantry_slabs_lend(session, &beyond, slabs, 2, &n, &whole),
			 GANTRY_E_NOT_FOUND);
	ck_assert_int_eq(gantry_slabs_lend(session, &elsewhere, slabs, 2, &n, &whole),
			 GANTRY_E_NOT_FOUND);
	ck_assert_int_eq(gantry_slabs_lend(session, &middle, slabs, 1, &n, &whole), GANTRY_E_LIMIT);
	ck_assert_uint_eq(n, 7);
	finish();
}
END_TEST

START_TEST(test_slab_whose_name_the_monitor_does_not_take_is_not_lent)
{
	const struct timeval soon = { .tv_usec = 1000 };
	struct gantry_slab_lent slabs[2];
	struct gantry_lent whole;
	uint32_t n = 0;
	int fds[2];

	begin();
	make_three();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_eq(setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)), 0);
	a->monitor_fd = fds[0];
	while (!a->monitor_room) /* nobody reads */
		gantry_keep_tell(a, GANTRY_MONITOR_READY, 0, -EBADF);
	ck_assert_int_eq(gantry_slabs_lend(session, &middle, slabs, 2, &n, &whole), GANTRY_E_AGAIN);
	drop(0, UNIT);
	ck_assert_uint_eq(kept("z/"), 1); /* it is the pool's, as any */
	say_scrubbed(asked_scrub(UNIT), GANTRY_OK);
	gantry_event_free(&a->monitor_room);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
	a->monitor_fd = -EBADF;
	finish();
}
END_TEST

/* A quarter of what the host may lend; what was lent before may be lent again. */
START_TEST(test_one_tenant_does_not_lend_all_that_may_be_lent)
{
	struct gantry_lent one = { 7, 0, 0, UNIT }, whole;
	struct gantry_slab_lent slab;
	uint32_t n = 0;
	int status = GANTRY_OK;

	begin();
	a->devices[0].mem_bytes = 2048 * MIB;
	for (one.off = 0; status == GANTRY_OK && one.off < 300 * UNIT; one.off += UNIT) {
		need(one.off, UNIT);
		make(UNIT);
		expect_given(one.off, UNIT, 1, GANTRY_OK);
		status = gantry_slabs_lend(session, &one, &slab, 1, &n, &whole);
	}
	ck_assert_int_eq(status, GANTRY_E_LIMIT);
	ck_assert_uint_eq(one.off, 257 * UNIT);
	one.off = 0;
	ck_assert_int_eq(gantry_slabs_lend(session, &one, &slab, 1, &n, &whole), GANTRY_OK);
	finish();
}
END_TEST

START_TEST(test_restored_slabs_that_were_lent_stay_so)
{
	begin();
	hand("s/7/l/0/400000/200000");
	hand("s/7/m/0/400000/200000");
	hand("s/7/m/0/0/400000");
	hand("s/9/m/0/0/200000"); /* of a session that is gone */
	hand("s/9/l/0/0/200000");
	hand("s/9/l/0/200000/200000"); /* and its slab was let go of already */
	gantry_slabs_restore_session(session);
	gantry_slabs_restore(a);
	ck_assert_uint_eq(a->handed.nentries, 0);
	ck_assert_uint_eq(kept("s/7/l/"), 1);
	ck_assert_uint_eq(kept("s/9/"), 0);
	ck_assert_uint_eq(kept("z/"), 0);
	ck_assert_uint_eq(a->pools[0].nslabs, 2);
	drop(2 * UNIT, UNIT);
	ck_assert_uint_eq(kept("s/7/l/"), 0);
	ck_assert_uint_eq(kept("z/"), 0);
	drop(0, 2 * UNIT);
	ck_assert_uint_eq(kept("z/"), 1);
	say_scrubbed(asked_scrub(2 * UNIT), GANTRY_OK);
	finish();
}
END_TEST

/* Names are in no order, and move as others are taken. */
START_TEST(test_restored_slab_is_found_wherever_the_names_of_what_was_lent_are)
{
	begin();
	hand("s/7/l/0/0/200000");
	hand("s/7/m/0/0/200000");
	hand("s/7/l/0/400000/200000");
	hand("s/7/m/0/200000/200000");
	hand("s/7/m/0/400000/200000");
	gantry_slabs_restore_session(session);
	ck_assert_uint_eq(a->handed.nentries, 0);
	gantry_slabs_restore(a);
	ck_assert_uint_eq(kept("s/7/m/"), 3);
	ck_assert_uint_eq(kept("s/7/l/"), 2);
	ck_assert_uint_eq(kept("z/"), 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slab");
	TCase *tc = gantry_unit_case(suite, "give");

	tcase_add_test(tc, test_need_is_answered_when_all_of_it_was_made);
	tcase_add_test(tc, test_need_of_what_is_there_is_answered_at_once);
	tcase_add_test(tc, test_successor_gets_the_same_slabs_and_no_others);
	tcase_add_test(tc, test_slabs_in_the_making_of_a_worker_that_died_are_the_pools);
	tcase_add_test(tc, test_answer_takes_as_many_packets_as_descriptors_need);
	tc = gantry_unit_case(suite, "refuse");
	tcase_add_test(tc, test_need_past_a_limit_is_refused_and_changes_nothing);
	tcase_add_test(tc, test_need_for_what_moves_is_within_the_limit_of_the_other_device);
	tcase_add_test(tc, test_need_of_a_strange_worker_is_not_heard);
	tcase_add_test(tc, test_needs_that_wait_are_bounded);
	tcase_add_test(tc, test_slabs_of_a_host_are_bounded_by_its_descriptors);
	tcase_add_test(tc, test_no_room_on_the_device_is_told_with_what_there_is);
	tcase_add_test(tc, test_pool_stands_back_when_the_device_has_no_room);
	tc = gantry_unit_case(suite, "steward");
	tcase_add_test(tc, test_slab_that_a_dead_steward_was_making_is_made_by_the_next);
	tcase_add_test(tc, test_slab_at_which_stewards_die_is_given_up);
	tcase_add_test(tc, test_slab_that_a_dead_steward_was_scrubbing_is_scrubbed_by_the_next);
	tc = gantry_unit_case(suite, "scrub");
	tcase_add_test(tc, test_dropped_slab_is_nobodys_until_it_is_scrubbed);
	tcase_add_test(tc, test_slab_that_cannot_be_scrubbed_is_given_to_nobody);
	tcase_add_test(tc, test_end_of_a_session_scrubs_all_of_it);
	tcase_add_test(tc, test_pool_fills_to_half_and_takes_back_the_rest);
	tcase_add_test(tc, test_pool_is_released_with_its_device);
	tcase_add_test(tc, test_failed_device_answers_who_waits_for_it);
	tc = gantry_unit_case(suite, "restore");
	tcase_add_test(tc, test_restored_slabs_are_whose_they_were);
	tcase_add_test(tc, test_slabs_of_lost_sessions_are_scrubbed_before_anybody_gets_them);
	tcase_add_test(tc, test_restored_slabs_that_were_lent_stay_so);
	tcase_add_test(tc, test_restored_slab_is_found_wherever_the_names_of_what_was_lent_are);
	tc = gantry_unit_case(suite, "lend");
	tcase_add_test(tc, test_lent_slab_is_let_go_of_and_nobody_elses);
	tcase_add_test(tc, test_what_its_lender_left_counts_for_the_tenant_once);
	tcase_add_test(tc, test_slab_that_was_left_counts_until_the_last_who_has_any_of_it_ends);
	tcase_add_test(tc, test_only_what_is_there_is_lent);
	tcase_add_test(tc, test_slab_whose_name_the_monitor_does_not_take_is_not_lent);
	tcase_add_test(tc, test_one_tenant_does_not_lend_all_that_may_be_lent);
	return gantry_unit_run(suite);
}
