/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of virtual machines against the agent's own code, up to the point where a worker is needed: QEMU's handshake
 * byte by byte, desks, and machines that do what they like with their memory.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/door.h"
#include "proto/doormem.h"
#include "tests/unit/runner.h"

static struct gantry_agent agent;
static struct gantry_tenant *tenant;
static struct gantry_config *config;
static char dir[64];

/* What QEMU has of it. */
static int sock = -EBADF;
static int memory = -EBADF;
static int vectors[4];
static uint32_t nvectors;
static struct gantry_doormem_header *hdr;
static struct gantry_doormem_desk *desks;
static uint8_t *all; /* of a large one */

static void set_up_with(const char *text)
{
	gantry_log_level_set(GANTRY_LOG_ERR);
	(void)snprintf(dir, sizeof(dir), "/tmp/gantry-doormem.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	memset(&agent, 0, sizeof(agent));
	agent.args.run_dir = dir;
	gantry_agent_blank(&agent);
	agent.next_machine_id = 1;
	agent.base = event_base_new();
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	config = gantry_config_new();
	ck_assert_int_eq(gantry_config_parse(config, "test", text, strlen(text), NULL), 0);
	agent.config = config;
	gantry_tenants_apply(&agent, config);
	tenant = gantry_tenant_find(&agent, "red");
	ck_assert_ptr_nonnull(tenant);
	ck_assert_int_ge(tenant->ivshmem_fd, 0);
}

static void set_up(void)
{
	set_up_with("[tenant red]\nsessions = 4\nivshmem = yes\nivshmem_size = 8M\n"
		    "ivshmem_vectors = 2\n");
}

#define LARGE_BYTES (64u << 20)

/* A machine of a size that is worth while to clear in steps, and no memory for two of them. */
static void set_up_large(void)
{
	set_up_with("[tenant red]\nsessions = 4\nivshmem = yes\nivshmem_size = 64M\n"
		    "ivshmem_vectors = 2\nheap = 64M\nhost_mem = 100M\n");
}

static void hang_up(void)
{
	if (all)
		(void)munmap(all, LARGE_BYTES); /* it is mapped */
	all = NULL;
	if (hdr)
		(void)munmap(hdr, 2u << 20); /* it is mapped */
	hdr = NULL;
	for (uint32_t i = 0; i < nvectors; i++)
		gantry_fd_close(vectors[i]);
	nvectors = 0;
	memory = gantry_fd_close(memory);
	sock = gantry_fd_close(sock);
}

static void tear_down(void)
{
	char path[128];

	hang_up();
	gantry_tenant_free(tenant);
	gantry_ivshmem_fini(&agent);
	gantry_event_free(&agent.journal_event);
	gantry_event_free(&agent.door_retry_timer);
	gantry_event_free(&agent.clear_timer);
	gantry_store_fini(&agent.kept);
	event_base_free(agent.base);
	free(agent.events);
	gantry_config_free(config);
	(void)snprintf(path, sizeof(path), "%s/doors/red", dir);
	(void)rmdir(path); /* best effort */
	(void)snprintf(path, sizeof(path), "%s/doors", dir);
	(void)rmdir(path); /* best effort */
	(void)rmdir(dir);  /* best effort */
}

/* Everything is local: what was sent has arrived when nothing is ready any more. */
static void run_loop(void)
{
	for (int i = 0; i < 4; i++)
		(void)event_base_loop(agent.base, EVLOOP_NONBLOCK); /* no event is no error */
}

/* One message as QEMU reads it. */
static int64_t hear(int *ret_fd)
{
	uint8_t bytes[8];
	unsigned int nfds = 0;
	int fd = -EBADF;
	int64_t value = 0;

	ck_assert_int_eq(gantry_fd_recv(sock, bytes, sizeof(bytes), &fd, 1, &nfds, MSG_DONTWAIT),
			 8);
	for (int i = 7; i >= 0; i--)
		value = (int64_t)((uint64_t)value << 8 | bytes[i]);
	*ret_fd = nfds ? fd : -EBADF;
	return value;
}

static void expect(int64_t value, int *ret_fd)
{
	int fd;

	ck_assert_int_eq(hear(&fd), value);
	if (ret_fd)
		ck_assert_int_ge(fd, 0);
	else
		ck_assert_int_lt(fd, 0);
	if (ret_fd)
		*ret_fd = fd;
}

static void come_in(void)
{
	ck_assert_int_eq(gantry_unix_connect(tenant->ivshmem_path, SOCK_STREAM, &sock), 0);
	run_loop();
	expect(0, NULL);
	expect(GANTRY_DOORMEM_OWN_PEER, NULL);
	expect(-1, &memory);
	for (int i = 0; i < 2; i++)
		expect(GANTRY_DOORMEM_HOST_PEER, &vectors[nvectors++]);
	hdr = mmap(NULL, 2u << 20, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	ck_assert_ptr_ne(hdr, MAP_FAILED);
	desks = (struct gantry_doormem_desk *)((uint8_t *)hdr + hdr->desks_off);
}

static struct gantry_doormem *mem(void)
{
	return gantry_ivshmem_find(&agent, 1);
}

static void claim(uint32_t i)
{
	desks[i].generation += 1 + desks[i].generation % 2;
	(void)gantry_doormem_look(mem());
}

static void post(uint32_t i, const void *msg, size_t len)
{
	memcpy(desks[i].guest_box, msg, len);
	desks[i].posted++;
	(void)gantry_doormem_look(mem());
}

/* The host's box must hold a refusal of this status, and the claim be over. */
static void expect_refuse(uint32_t i, int status)
{
	struct gantry_door_refuse msg;
	uint16_t kind;

	ck_assert_uint_eq(desks[i].host_posted, desks[i].host_taken + 1);
	memcpy(&msg, desks[i].host_box, sizeof(msg));
	ck_assert_int_eq(gantry_door_check(&msg, sizeof(msg), &kind), 0);
	ck_assert_uint_eq(kind, GANTRY_DOOR_REFUSE);
	ck_assert_msg(msg.status == status, "%d %s, not %d", msg.status, msg.text, status);
	ck_assert_uint_eq(desks[i].served, 0);
	ck_assert_uint_eq(tenant->nhalf_open, 0);
	desks[i].host_taken = desks[i].host_posted;
}

START_TEST(test_doormem_handshake_is_what_qemu_expects)
{
	char byte;

	come_in(); /* which looks at every byte */
	ck_assert_int_eq(recv(sock, &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(gantry_memfd_check(memory, 8u << 20), 0);
	ck_assert_int_eq(lseek(memory, 0, SEEK_END), 8 << 20);
	ck_assert_uint_eq(hdr->magic, GANTRY_DOORMEM_MAGIC);
	ck_assert_uint_eq(hdr->state, GANTRY_DOORMEM_OPEN);
	ck_assert_uint_eq(hdr->nvectors, 2);
	ck_assert_uint_eq(hdr->host_peer, GANTRY_DOORMEM_HOST_PEER);
	ck_assert_uint_eq(tenant->host_mem_used, 8u << 20);
	hang_up();
	run_loop();
	ck_assert_uint_eq(tenant->host_mem_used, 0);
	ck_assert_uint_eq(tenant->ndoormems, 0);
}
END_TEST

START_TEST(test_doormem_one_too_many_hears_a_version_and_no_end)
{
	int first, fd;
	char byte;

	come_in();
	first = sock;
	ck_assert_int_eq(gantry_unix_connect(tenant->ivshmem_path, SOCK_STREAM, &sock), 0);
	run_loop();
	ck_assert_int_eq(hear(&fd), GANTRY_E_FULL);
	ck_assert_int_eq(recv(sock, &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN); /* not 0: QEMU would read for ever */
	ck_assert_uint_eq(gantry_list_count(&agent.held), 1);
	gantry_fd_close(sock);
	run_loop();
	ck_assert_uint_eq(gantry_list_count(&agent.held), 0);
	sock = first;
}
END_TEST

START_TEST(test_doormem_claim_is_served_and_cleared)
{
	come_in();
	claim(5);
	ck_assert_uint_eq(desks[5].served, desks[5].generation);
	ck_assert_uint_eq(tenant->nhalf_open, 1);
	desks[5].generation++;
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[5].served, 0);
	ck_assert_uint_eq(tenant->nhalf_open, 0);
}
END_TEST

START_TEST(test_doormem_hello_without_a_device_is_refused_and_its_place_given_back)
{
	struct gantry_door_hello hello = { .version_min = 1, .version_max = 1 };

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	come_in();
	claim(0);
	post(0, &hello, sizeof(hello));
	expect_refuse(0, GANTRY_E_NO_DEVICE);
	ck_assert_uint_eq(gantry_extents_used(&mem()->extents), 0);
	ck_assert_uint_eq(mem()->nsessions, 0);
}
END_TEST

START_TEST(test_doormem_garbage_is_refused)
{
	come_in();
	claim(1);
	post(1, "GET / HTTP/1.0", 14);
	expect_refuse(1, GANTRY_E_PROTOCOL);
	claim(1);
	desks[1].posted += 7;
	(void)gantry_doormem_look(mem());
	expect_refuse(1, GANTRY_E_PROTOCOL);
	ck_assert_uint_eq(tenant->protocol_errors, 2);
}
END_TEST

START_TEST(test_doormem_other_boot_ends_the_claims_of_the_one_before)
{
	come_in();
	claim(0);
	claim(1);
	ck_assert_uint_eq(tenant->nhalf_open, 2);
	memset(desks[2].boot_id, 9, sizeof(desks[2].boot_id));
	claim(2);
	ck_assert_uint_eq(desks[0].served, 0);
	ck_assert_uint_eq(desks[1].served, 0);
	ck_assert_uint_eq(desks[2].served, desks[2].generation);
	ck_assert_uint_eq(tenant->nhalf_open, 1);
}
END_TEST

START_TEST(test_doormem_drained_serves_no_claim)
{
	come_in();
	gantry_doormem_drain(mem(), true);
	ck_assert_uint_eq(hdr->state, GANTRY_DOORMEM_DRAIN);
	claim(0);
	ck_assert_uint_eq(desks[0].served, 0);
	gantry_doormem_drain(mem(), false);
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[0].served, desks[0].generation);
}
END_TEST

START_TEST(test_doormem_claims_of_a_second_are_bounded)
{
	unsigned served = 0;

	come_in();
	for (int round = 0; round < 100; round++)
		for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
			desks[i].generation++;
			if (i % 8 == 0)
				(void)gantry_doormem_look(mem());
		}
	served = (unsigned)tenant->nclaims;
	ck_assert_uint_ge(served, 32);	 /* some */
	ck_assert_uint_lt(served, 1000); /* of some 3200; more only while seconds pass */
}
END_TEST

/* A machine that writes where it likes: whatever it does, the agent's books stay in order. */
START_TEST(test_doormem_scribbles_are_borne)
{
	unsigned seed = 42;

	come_in();
	for (int step = 0; step < 20000; step++) {
		uint8_t *at = (uint8_t *)hdr + (unsigned)rand_r(&seed) % (4096 + 64 * 4096 - 8);
		struct gantry_doormem_desk *d = &desks[(unsigned)rand_r(&seed) % 64];

		switch (rand_r(&seed) % 6) {
		case 0:
			d->generation = (unsigned)rand_r(&seed) % 4;
			break;
		case 1:
			d->posted = d->taken + (unsigned)rand_r(&seed) % 3;
			break;
		case 2:
			gantry_door_header_init((struct gantry_door_header *)d->guest_box,
						(uint16_t)(rand_r(&seed) % 10), 0);
			break;
		default:
			*(volatile uint8_t *)at = (uint8_t)rand_r(&seed);
		}
		if (step % 7 == 0)
			(void)gantry_doormem_look(mem());
		if (step % 500 == 0)
			gantry_doormem_beat(mem());
	}
	ck_assert_uint_eq(gantry_doormem_claims(mem()), tenant->nhalf_open);
	ck_assert_uint_eq(gantry_extents_used(&mem()->extents), 0);
	hang_up();
	run_loop();
	ck_assert_uint_eq(tenant->nhalf_open, 0);
	ck_assert_uint_eq(tenant->ndoormems, 0);
	ck_assert_uint_eq(tenant->host_mem_used, 0);
}
END_TEST

/* ---- parts, and clearing them ---- */

#define STEP GANTRY_PARTS_STEP_BYTES
#define MIB  (1u << 20)

static struct gantry_doormem *come_in_large(void)
{
	come_in();
	all = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	ck_assert_ptr_ne(all, MAP_FAILED);
	return mem();
}

/* A session's part, as if there were one. */
static uint64_t use_part(struct gantry_doormem *m, uint64_t bytes)
{
	struct gantry_desk *d = &m->desks[GANTRY_DOORMEM_DESKS - 1];

	ck_assert_int_eq(gantry_parts_take(d, bytes), 0);
	ck_assert_int_eq(d->part, GANTRY_PART_READY);
	d->part = GANTRY_PART_NONE;
	m->nsessions++;
	return d->part_off;
}

static bool is_zero(uint64_t off, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (all[off + i])
			return false;
	return true;
}

/* Until so many more steps were done; each turn of the loop does one at most. */
static void run_steps(uint64_t n)
{
	uint64_t wanted = tenant->nclearings + n;

	while (tenant->nclearings < wanted) {
		uint64_t before = tenant->nclearings, cleared = tenant->cleared_bytes;

		ck_assert_int_eq(event_base_loop(agent.base, EVLOOP_ONCE), 0);
		ck_assert_uint_le(tenant->nclearings, before + 1);
		ck_assert_uint_le(tenant->cleared_bytes - cleared, STEP);
	}
}

static void post_hello(uint32_t desk, uint64_t heap_bytes)
{
	struct gantry_door_hello hello = { .version_min = 1,
					   .version_max = 1,
					   .heap_bytes = heap_bytes };

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	claim(desk);
	post(desk, &hello, sizeof(hello));
}

static bool is_answered(uint32_t desk)
{
	return desks[desk].host_posted != desks[desk].host_taken;
}

START_TEST(test_parts_put_dirty_is_cleared_in_steps_and_free_when_clean)
{
	struct gantry_doormem *m = come_in_large();
	uint64_t off = use_part(m, 10 * STEP);

	memset(all + off, 0xa5, 10 * STEP);
	gantry_doormem_put(m, off);
	ck_assert_uint_eq(tenant->nclearings, 0); /* that is the event loop's */
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 10 * STEP);
	run_steps(9);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 10 * STEP);
	ck_assert_uint_eq(m->nclearing, 1);
	run_steps(1);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0);
	ck_assert_uint_eq(m->nclearing, 0);
	ck_assert_uint_eq(tenant->cleared_bytes, 10 * STEP);
	ck_assert(is_zero(off, 10 * STEP));
	ck_assert(gantry_list_is_empty(&agent.clearing));
}
END_TEST

START_TEST(test_parts_put_costs_what_was_touched)
{
	struct gantry_doormem *m = come_in_large();
	uint64_t off = use_part(m, 10 * STEP);

	gantry_doormem_put(m, off);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0); /* nothing was */
	off = use_part(m, 10 * STEP);
	all[off + 7 * STEP] = 1;
	gantry_doormem_put(m, off);
	run_steps(1);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0);
	ck_assert_uint_eq(all[off + 7 * STEP], 0);
}
END_TEST

START_TEST(test_parts_of_a_memory_take_turns)
{
	struct gantry_doormem *m = come_in_large();
	uint64_t a = use_part(m, 3 * STEP), b = use_part(m, 3 * STEP);

	memset(all + a, 1, 3 * STEP);
	memset(all + b, 1, 3 * STEP);
	gantry_doormem_put(m, a);
	gantry_doormem_put(m, b);
	run_steps(4);
	ck_assert_uint_eq(gantry_extents_find(&m->extents, a)->clean_off, a + 2 * STEP);
	ck_assert_uint_eq(gantry_extents_find(&m->extents, b)->clean_off, b + 2 * STEP);
	run_steps(2);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0);
}
END_TEST

START_TEST(test_parts_being_cleared_are_waited_for)
{
	struct gantry_doormem *m = come_in_large();
	uint64_t off = use_part(m, 56 * MIB);

	memset(all + off, 1, 56 * MIB);
	gantry_doormem_put(m, off);
	post_hello(0, 40 * MIB);
	ck_assert_int_eq(m->desks[0].part, GANTRY_PART_ROOM);
	run_steps(13);
	ck_assert(!is_answered(0));
	run_steps(1);
	expect_refuse(0, GANTRY_E_NO_DEVICE); /* as far as one comes here */
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0);
	ck_assert_uint_eq(m->nsessions, 0);
}
END_TEST

START_TEST(test_parts_that_the_machine_wrote_to_are_cleared_before_they_are_given)
{
	struct gantry_doormem *m = come_in_large();

	memset(all + 2 * MIB, 1, LARGE_BYTES - 2 * MIB);
	post_hello(3, 16 * MIB);
	ck_assert_int_eq(m->desks[3].part, GANTRY_PART_CLEARING);
	run_steps(4);
	ck_assert(!is_answered(3));
	all[2 * MIB] = 1; /* that is its own affair: it is not cleared for ever */
	while (!is_answered(3))
		run_steps(1);
	expect_refuse(3, GANTRY_E_NO_DEVICE);
	ck_assert_uint_le(tenant->nclearings, 6);
	ck_assert(is_zero(2 * MIB + 1, 16 * MIB));
}
END_TEST

START_TEST(test_parts_of_who_goes_meanwhile_are_free_when_clean)
{
	struct gantry_doormem *m = come_in_large();

	memset(all + 2 * MIB, 1, LARGE_BYTES - 2 * MIB);
	post_hello(3, 16 * MIB);
	post_hello(4, 60 * MIB); /* and who waits for room that they have */
	run_steps(1);
	ck_assert_int_eq(m->desks[4].part, GANTRY_PART_CLEARING);
	desks[3].generation++;
	desks[4].generation++;
	(void)gantry_doormem_look(m);
	ck_assert_uint_eq(tenant->nhalf_open, 0);
	ck_assert_uint_ge(m->nclearing, 1);
	while (m->nclearing > 0)
		run_steps(1);
	ck_assert_uint_eq(gantry_extents_used(&m->extents), 0);
}
END_TEST

START_TEST(test_parts_of_a_machine_that_is_gone_are_cleared_before_the_memory_goes)
{
	struct gantry_doormem *m = come_in_large();
	uint64_t off = use_part(m, 5 * STEP);

	memset(all + 2 * MIB, 1, 9 * STEP); /* also where nothing is its own */
	gantry_doormem_put(m, off);
	run_steps(1);
	hang_up();
	run_loop();
	ck_assert_uint_eq(tenant->ndoormems, 1);
	ck_assert_uint_eq(tenant->host_mem_used, LARGE_BYTES);
	while (tenant->ndoormems > 0)
		ck_assert_int_eq(event_base_loop(agent.base, EVLOOP_ONCE), 0);
	ck_assert_uint_eq(tenant->nclearings, 9);
	ck_assert_uint_eq(tenant->host_mem_used, 0);
}
END_TEST

START_TEST(test_parts_of_a_machine_that_is_gone_do_not_keep_the_next_one_out)
{
	uint64_t off, before;

	come_in_large();
	off = use_part(mem(), 5 * STEP);
	memset(all + off, 1, 5 * STEP);
	gantry_doormem_put(mem(), off);
	hang_up();
	/* Not run_loop(): what is cleared meanwhile is not the matter. */
	while (tenant->machines.next != &tenant->machines)
		ck_assert_int_eq(event_base_loop(agent.base, EVLOOP_ONCE), 0);
	ck_assert_uint_eq(tenant->ndoormems, 1);
	before = tenant->nclearings;
	come_in();
	ck_assert_uint_eq(tenant->ndoormems, 1);
	ck_assert_uint_eq(tenant->host_mem_used, LARGE_BYTES);
	ck_assert_uint_lt(tenant->nclearings, before + 5);
}
END_TEST

/* ---- machines that come with their sessions ---- */

static uint8_t host_words[GANTRY_SEAT_HOST_BYTES];

/* Desk 3 had a claim that the host before had seen, and that had no session yet. */
static const Gantry__Admin__DoorSeat *good_seat(Gantry__Admin__DoorSeat *seat)
{
	gantry__admin__door_seat__init(seat);
	seat->desk = 3;
	seat->generation = 7;
	seat->host.data = host_words;
	seat->host.len = sizeof(host_words);
	return seat;
}

static int take_all(Gantry__Admin__DoorSeat **all_seats, size_t n, uint64_t bytes,
		    uint32_t vectors_there)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	Gantry__Admin__DoorSeats seats = GANTRY__ADMIN__DOOR_SEATS__INIT;
	int r;

	seats.epoch = 77;
	seats.bytes = bytes;
	seats.vectors = vectors_there;
	seats.host_peer = GANTRY_DOORMEM_HOST_PEER;
	seats.n_seats = n;
	seats.seats = all_seats;
	r = gantry_seats_take(mem(), &seats, &err);
	ck_assert_msg(r == 0 || err.text[0], "%d without a sentence", r);
	return r;
}

static int take(Gantry__Admin__DoorSeat *seat, uint64_t bytes, uint32_t vectors_there)
{
	return take_all(&seat, 1, bytes, vectors_there);
}

static void come_with_sessions(void)
{
	come_in();
	gantry_doormem_await(mem(), gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S));
	/* As QEMU brings it from the other host. */
	hdr->epoch = 77;
	desks[3].generation = 7;
	desks[4].generation = 1;
}

START_TEST(test_seat_machine_that_is_coming_is_neither_looked_at_nor_written)
{
	uint32_t beat;

	come_with_sessions();
	beat = hdr->heartbeat;
	ck_assert_uint_eq(gantry_doormem_look(mem()), 0);
	gantry_doormem_beat(mem());
	ck_assert_uint_eq(hdr->heartbeat, beat);
	ck_assert_uint_eq(hdr->epoch, 77);
	ck_assert_uint_eq(desks[3].served, 0);
	ck_assert_uint_eq(tenant->nhalf_open, 0);
}
END_TEST

START_TEST(test_seat_taken_opens_the_door_under_the_epoch_that_the_machine_knows)
{
	Gantry__Admin__DoorSeat seat;

	come_with_sessions();
	memcpy(host_words, &(uint64_t){ 7 },
	       sizeof(uint64_t)); /* served: the first word of its line */
	good_seat(&seat);
	ck_assert_int_eq(take(&seat, 8u << 20, 2), 0);
	ck_assert_uint_eq(hdr->epoch, 77);
	ck_assert_uint_eq(mem()->epoch, 77);
	ck_assert_uint_eq(mem()->is_coming, false);
	/* Its program claims anew; who came while it was on its way is served. */
	ck_assert_uint_eq(desks[3].served, 0);
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[4].served, 1);
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EBUSY); /* once */
}
END_TEST

START_TEST(test_seat_that_cannot_be_is_refused_and_nothing_is_done)
{
	Gantry__Admin__DoorSeat seat;

	come_with_sessions();
	good_seat(&seat);
	ck_assert_int_eq(take(&seat, 4u << 20, 2), -EINVAL);
	ck_assert_int_eq(take(&seat, 8u << 20, 3), -EINVAL);
	seat.desk = GANTRY_DOORMEM_DESKS;
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EINVAL);
	good_seat(&seat);
	seat.generation = 8; /* even: nobody's */
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EINVAL);
	good_seat(&seat);
	seat.host.len--;
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EINVAL);
	good_seat(&seat);
	seat.bell_vector = 2; /* of a desk without a session, too */
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EINVAL);
	good_seat(&seat);
	seat.wake = GANTRY_WAKE_MSIX;
	seat.wake_vector = 2;
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -EINVAL);
	good_seat(&seat);
	seat.guest_session = 5; /* which has not come */
	ck_assert_int_eq(take(&seat, 8u << 20, 2), -ENOENT);
	ck_assert_uint_eq(mem()->is_coming, true);
	ck_assert_uint_ne(mem()->epoch, 77);
	ck_assert_uint_eq(gantry_extents_used(&mem()->extents), 0);
	ck_assert_uint_eq(mem()->nsessions, 0);
}
END_TEST

START_TEST(test_seat_of_a_session_that_has_one_already_is_refused)
{
	struct gantry_session s = {
		.agent = &agent,
		.tenant = tenant,
		.id = 5,
		.attached_unix_ns = 6,
		.unadopted = true,
		.awaits_guest = true,
		.phase = GANTRY_PHASE_HELD,
		.shape.segment.segment_bytes = 2u << 20,
	};
	Gantry__Admin__DoorSeat seat[2], *both[] = { &seat[0], &seat[1] };

	come_with_sessions();
	gantry_list_init(&s.link);
	gantry_list_push_back(&agent.sessions, &s.link);
	for (uint32_t i = 0; i < 2; i++) {
		good_seat(&seat[i]);
		seat[i].desk = 3 + i;
		seat[i].guest_session = 5;
		seat[i].attached_unix_ns = 6;
		seat[i].segment_bytes = 2u << 20;
		seat[i].segment_off = (2u << 20) * (1 + i);
	}
	ck_assert_int_eq(take_all(both, 2, 8u << 20, 2), -EINVAL);
	ck_assert_uint_eq(mem()->is_coming, true);
	ck_assert_uint_eq(gantry_extents_used(&mem()->extents), 0);
	ck_assert_uint_eq(mem()->nsessions, 0);
	ck_assert(s.awaits_guest);
	gantry_list_remove(&s.link);
}
END_TEST

START_TEST(test_seat_nobody_speaks_of_in_time_is_served_as_one_that_came_alone)
{
	uint64_t epoch;

	come_with_sessions();
	epoch = mem()->epoch;
	mem()->coming_until_ns = 1;
	gantry_doormem_beat(mem());
	ck_assert_uint_eq(mem()->is_coming, false);
	ck_assert_uint_eq(hdr->epoch, epoch); /* what its programs had is gone, and they see it */
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[4].served, 1);
}
END_TEST

START_TEST(test_seat_who_comes_while_a_machine_is_expected_waits_until_it_is_said_who_that_is)
{
	tenant->expected = (struct gantry_seat_expected){
		.until_ns = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S),
		.bytes = 8u << 20,
		.uuid = "00000000-1111-2222-3333-444444444444",
	};
	come_in();
	ck_assert_uint_eq(mem()->is_coming, true);
	claim(5);
	ck_assert_uint_eq(desks[5].served, 0);
	gantry_seat_expect_no_more(tenant);
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[5].served, desks[5].generation);
	hang_up();
	run_loop();
}
END_TEST

START_TEST(test_seat_who_comes_when_nobody_is_expected_any_more_is_served)
{
	tenant->expected = (struct gantry_seat_expected){ .until_ns = 1, .bytes = 8u << 20 };
	come_in();
	ck_assert_uint_eq(mem()->is_coming, false);
	ck_assert_uint_eq(tenant->expected.until_ns, 0);
}
END_TEST

START_TEST(test_seat_newcomers_wait_at_a_door_that_is_left)
{
	come_in();
	mem()->leaves_until_ns = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	claim(5);
	ck_assert_uint_eq(desks[5].served, 0);
	mem()->leaves_until_ns = 1;
	(void)gantry_doormem_look(mem());
	ck_assert_uint_eq(desks[5].served, desks[5].generation);
	ck_assert_uint_eq(mem()->leaves_until_ns, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("doormem");
	TCase *tc = gantry_unit_case(suite, "doormem");
	TCase *large = gantry_unit_case(suite, "parts");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_doormem_handshake_is_what_qemu_expects);
	tcase_add_test(tc, test_doormem_one_too_many_hears_a_version_and_no_end);
	tcase_add_test(tc, test_doormem_claim_is_served_and_cleared);
	tcase_add_test(tc, test_doormem_hello_without_a_device_is_refused_and_its_place_given_back);
	tcase_add_test(tc, test_doormem_garbage_is_refused);
	tcase_add_test(tc, test_doormem_other_boot_ends_the_claims_of_the_one_before);
	tcase_add_test(tc, test_doormem_drained_serves_no_claim);
	tcase_add_test(tc, test_doormem_claims_of_a_second_are_bounded);
	tcase_add_test(tc, test_doormem_scribbles_are_borne);
	tcase_add_test(tc, test_seat_machine_that_is_coming_is_neither_looked_at_nor_written);
	tcase_add_test(tc, test_seat_taken_opens_the_door_under_the_epoch_that_the_machine_knows);
	tcase_add_test(tc, test_seat_that_cannot_be_is_refused_and_nothing_is_done);
	tcase_add_test(tc, test_seat_of_a_session_that_has_one_already_is_refused);
	tcase_add_test(tc, test_seat_nobody_speaks_of_in_time_is_served_as_one_that_came_alone);
	tcase_add_test(
		tc,
		test_seat_who_comes_while_a_machine_is_expected_waits_until_it_is_said_who_that_is);
	tcase_add_test(tc, test_seat_who_comes_when_nobody_is_expected_any_more_is_served);
	tcase_add_test(tc, test_seat_newcomers_wait_at_a_door_that_is_left);
	tcase_add_checked_fixture(large, set_up_large, tear_down);
	tcase_add_test(large, test_parts_put_dirty_is_cleared_in_steps_and_free_when_clean);
	tcase_add_test(large, test_parts_put_costs_what_was_touched);
	tcase_add_test(large, test_parts_of_a_memory_take_turns);
	tcase_add_test(large, test_parts_being_cleared_are_waited_for);
	tcase_add_test(large,
		       test_parts_that_the_machine_wrote_to_are_cleared_before_they_are_given);
	tcase_add_test(large, test_parts_of_who_goes_meanwhile_are_free_when_clean);
	tcase_add_test(large,
		       test_parts_of_a_machine_that_is_gone_are_cleared_before_the_memory_goes);
	tcase_add_test(large, test_parts_of_a_machine_that_is_gone_do_not_keep_the_next_one_out);
	return gantry_unit_run(suite);
}
