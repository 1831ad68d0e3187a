/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage, lies and rudeness at a tenant's door. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/misuse/world.h"

#define SESSIONS 4u
/* A guest that leaves before it is served leaves a warm worker behind: a socket and a pidfd each. */
#define SPARE_FDS (2 * SESSIONS)

static char door[108];
static unsigned int fds_before;

static void begin(void)
{
	world_door(door, "red");
	fds_before = world_agent_fds();
}

/* The agent holds what it held; what it closes it closes soon. */
static void finish(void)
{
	uint64_t deadline = gantry_deadline_ns(8 * (int64_t)GANTRY_NS_PER_S);
	unsigned int now;

	while ((now = world_agent_fds()) > fds_before + SPARE_FDS &&
	       !gantry_deadline_passed(deadline))
		(void)poll(NULL, 0, 10);
	ck_assert_msg(now <= fds_before + SPARE_FDS,
		      "the agent holds %u descriptors more than before", now - fds_before);
}

static void expect_refused(struct hostile *h, int status)
{
	int seen = hostile_refused(h, HOSTILE_WAIT_MS);

	ck_assert_msg(seen == status, "refused with %d, not %d", seen, status);
	hostile_close(h);
}

static void works(void)
{
	uint64_t deadline = gantry_deadline_ns(8 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_door_hello hello;
	struct hostile h;
	uint32_t slot;
	int status;

	hostile_hello_init(&hello);
	/* Sessions that were ended a moment ago may still be on their way out. */
	for (;;) {
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		status = hostile_attach(&h, &hello, NULL);
		if (status != GANTRY_E_FULL || gantry_deadline_passed(deadline))
			break;
		hostile_close(&h);
		(void)poll(NULL, 0, 20);
	}
	ck_assert_int_eq(status, GANTRY_OK);
	ck_assert_int_eq(hostile_queue(&h, &slot, NULL), GANTRY_OK);
	ck_assert_int_eq(hostile_ping(&h, slot), GANTRY_OK);
	world_hostile_end(&h);
}

/* ---- HELLO ---- */

START_TEST(test_hello_with_one_wrong_field_is_refused_as_a_broken_rule)
{
	struct gantry_door_hello good;

	hostile_hello_init(&good);
	for (int i = 0; i < 8; i++) {
		struct gantry_door_hello bad = good;
		size_t len = sizeof(bad);
		struct hostile h;

		switch (i) {
		case 0:
			bad.h.magic ^= 1;
			break;
		case 1:
			bad.h.kind = 99;
			break;
		case 2:
			bad.h.reserved = 1;
			break;
		case 3:
			bad.h.len_bytes = UINT32_MAX;
			break;
		case 4:
			len -= 4;
			break;
		case 5:
			bad.flags = 1;
			break;
		case 6:
			memset(bad.name, 'x', sizeof(bad.name)); /* no NUL */
			break;
		default:
			len = 3;
			break;
		}
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		ck_assert_int_eq(hostile_send(&h, &bad, len), 0);
		expect_refused(&h, GANTRY_E_PROTOCOL);
	}
	works();
}
END_TEST

START_TEST(test_hello_with_wishes_out_of_range_is_refused_or_bounded)
{
	char text[GANTRY_DOOR_TEXT];

	for (int i = 0; i < 8; i++) {
		struct gantry_door_hello hello;
		struct hostile h;
		int status;

		hostile_hello_init(&hello);
		switch (i) {
		case 0:
			hello.heap_bytes = UINT64_MAX;
			break;
		case 1:
			hello.heap_bytes = 1;
			break;
		case 2:
			hello.nqueues = UINT32_MAX;
			break;
		case 3:
			hello.nqueues = 1;
			break;
		case 4:
			hello.nslots = 3;
			break;
		case 5:
			hello.nslots = 1u << 31;
			break;
		case 6:
			hello.virtual_bytes = UINT64_MAX;
			break;
		default:
			hello.mem_bytes = UINT64_MAX;
			break;
		}
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		status = hostile_attach(&h, &hello, text);
		if (status == GANTRY_OK)
			ck_assert_uint_le(h.header.heap_bytes,
					  5u << 20); /* the tenant's 4 MiB, in pages */
		else
			ck_assert_msg(text[0], "refused with %d and no sentence", status);
		hostile_close(&h);
	}
}
END_TEST

START_TEST(test_hello_of_another_version_is_refused_with_the_agents_range)
{
	static const struct {
		uint32_t min, max;
	} versions[] = { { GANTRY_WIRE_VERSION_MAX + 1, GANTRY_WIRE_VERSION_MAX + 5 },
			 { 0, 0 },
			 { UINT32_MAX, UINT32_MAX } };

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(versions); i++) {
		struct gantry_door_hello hello;
		struct gantry_door_refuse answer;
		struct hostile h;

		hostile_hello_init(&hello);
		hello.version_min = versions[i].min;
		hello.version_max = versions[i].max;
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		ck_assert_int_eq(hostile_send(&h, &hello, sizeof(hello)), 0);
		ck_assert_int_eq(hostile_receive(&h, &answer, sizeof(answer), HOSTILE_WAIT_MS),
				 sizeof(answer));
		ck_assert_uint_eq(answer.h.kind, GANTRY_DOOR_REFUSE);
		ck_assert_int_eq(answer.status, GANTRY_E_VERSION);
		ck_assert_uint_eq(answer.version_min, GANTRY_WIRE_VERSION_MIN);
		ck_assert_uint_eq(answer.version_max, GANTRY_WIRE_VERSION_MAX);
		ck_assert(answer.text[0] != '\0');
		hostile_close(&h);
	}
}
END_TEST

START_TEST(test_hello_of_a_newer_library_that_still_speaks_ours_is_welcome)
{
	struct gantry_door_hello hello;
	struct hostile h;

	hostile_hello_init(&hello);
	hello.version_min = 0;
	hello.version_max = 1000;
	ck_assert_int_eq(hostile_connect(&h, door), 0);
	ck_assert_int_eq(hostile_attach(&h, &hello, NULL), GANTRY_OK);
	ck_assert_uint_eq(h.welcome.version, GANTRY_WIRE_VERSION_MAX);
	hostile_close(&h);
}
END_TEST

START_TEST(test_hello_name_that_is_not_printable_harms_nobody)
{
	struct gantry_door_hello hello;
	struct hostile h;

	hostile_hello_init(&hello);
	memcpy(hello.name, "\033[2J\n\r\t%n%s\"\\\x80\xff", 16);
	ck_assert_int_eq(hostile_connect(&h, door), 0);
	ck_assert_int_eq(hostile_attach(&h, &hello, NULL), GANTRY_OK);
	hostile_close(&h);
	works();
}
END_TEST

/* ---- garbage ---- */

START_TEST(test_noise_of_every_length_is_refused)
{
	uint64_t seed = 11;
	uint8_t noise[4096];

	for (unsigned int i = 0; i < 60; i++) {
		size_t len = 1 + hostile_random(&seed) % (i < 50 ? 300 : sizeof(noise) - 1);
		struct hostile h;

		hostile_noise(&seed, noise, sizeof(noise));
		if (i & 1)
			gantry_door_header_init((void *)noise, (uint16_t)(i % 10), 0);
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		ck_assert_int_eq(hostile_send(&h, noise, len), 0);
		expect_refused(&h, GANTRY_E_PROTOCOL);
	}
	works();
}
END_TEST

START_TEST(test_descriptors_sent_to_the_door_are_closed_unseen)
{
	struct gantry_door_hello hello;
	struct hostile h;
	int fds[20];

	for (unsigned int i = 0; i < 20; i++)
		fds[i] = h.door = open("/dev/null", O_RDONLY | O_CLOEXEC);
	hostile_hello_init(&hello);
	ck_assert_int_eq(hostile_connect(&h, door), 0);
	ck_assert_int_gt(gantry_fd_send(h.door, &hello, sizeof(hello), fds, 20, 0), 0);
	for (unsigned int i = 0; i < 20; i++)
		close(fds[i]);
	(void)hostile_refused(&h, 1000); /* ended or served: SPEC 3 says ended */
	hostile_close(&h);
	works();
}
END_TEST

START_TEST(test_message_out_of_turn_ends_the_connection)
{
	struct gantry_door_hello hello;
	struct gantry_door_share share = { .buffer = 1, .mode = GANTRY_R };
	struct gantry_door_welcome welcome = { .version = 1 };
	struct hostile h;

	/* A request before HELLO, */
	gantry_door_header_init(&share.h, GANTRY_DOOR_SHARE, 1);
	ck_assert_int_eq(hostile_connect(&h, door), 0);
	ck_assert_int_eq(hostile_send(&h, &share, sizeof(share)), 0);
	expect_refused(&h, GANTRY_E_PROTOCOL);
	/* HELLO twice, */
	world_hostile(&h);
	hostile_hello_init(&hello);
	ck_assert_int_eq(hostile_send(&h, &hello, sizeof(hello)), 0);
	expect_refused(&h, GANTRY_E_PROTOCOL);
	/* and what only the agent says. */
	world_hostile(&h);
	gantry_door_header_init(&welcome.h, GANTRY_DOOR_WELCOME, 0);
	ck_assert_int_eq(hostile_send(&h, &welcome, sizeof(welcome)), 0);
	expect_refused(&h, GANTRY_E_PROTOCOL);
	works();
}
END_TEST

START_TEST(test_share_and_adopt_of_what_does_not_exist_are_answered)
{
	struct gantry_door_share share = { .mode = GANTRY_RW };
	struct gantry_door_adopt adopt = { .token = { 1, 2, 3 } };
	struct gantry_door_shared shared;
	struct gantry_door_adopted adopted;
	uint64_t plain, seed = 4;
	struct hostile h;

	world_hostile(&h);
	ck_assert_int_eq(hostile_buffer(&h, 64, GANTRY_ALLOC_DEVICE, &plain), GANTRY_OK);
	for (uint32_t i = 0; i < 12; i++) {
		share.buffer =
			i == 0 ? plain
			       : hostile_random(
					 &seed); /* one that cannot be shared, or no buffer */
		gantry_door_header_init(&share.h, GANTRY_DOOR_SHARE, i);
		ck_assert_int_eq(hostile_send(&h, &share, sizeof(share)), 0);
		ck_assert_int_eq(hostile_receive(&h, &shared, sizeof(shared), HOSTILE_WAIT_MS),
				 sizeof(shared));
		ck_assert_uint_eq(shared.h.tag, i);
		ck_assert_int_lt(shared.status, 0);
		hostile_noise(&seed, adopt.token, sizeof(adopt.token));
		gantry_door_header_init(&adopt.h, GANTRY_DOOR_ADOPT, i);
		ck_assert_int_eq(hostile_send(&h, &adopt, sizeof(adopt)), 0);
		ck_assert_int_eq(hostile_receive(&h, &adopted, sizeof(adopted), HOSTILE_WAIT_MS),
				 sizeof(adopted));
		ck_assert_int_lt(adopted.status, 0);
		ck_assert_uint_eq(adopted.buffer, 0);
	}
	hostile_close(&h);
}
END_TEST

START_TEST(test_share_with_a_mode_that_is_none_is_refused)
{
	struct gantry_door_share share = { .mode = 99 };
	struct gantry_door_shared shared;
	struct hostile h;
	int n;

	world_hostile(&h);
	ck_assert_int_eq(hostile_buffer(&h, 64, GANTRY_ALLOC_SHARED, &share.buffer), GANTRY_OK);
	gantry_door_header_init(&share.h, GANTRY_DOOR_SHARE, 1);
	ck_assert_int_eq(hostile_send(&h, &share, sizeof(share)), 0);
	n = hostile_receive(&h, &shared, sizeof(shared), HOSTILE_WAIT_MS);
	ck_assert(n == -EMSGSIZE || n == 0 || (n == sizeof(shared) && shared.status < 0));
	hostile_close(&h);
}
END_TEST

START_TEST(test_requests_without_reading_answers_end_the_reader_only)
{
	struct gantry_door_adopt adopt = { .token = { 9 } };
	struct hostile h;
	int r = 0;

	world_hostile(&h);
	ck_assert_int_eq(fcntl(h.door, F_SETFL, O_NONBLOCK), 0);
	for (uint32_t i = 0; i < 20000 && (r == 0 || r == -EAGAIN); i++) {
		struct pollfd p = { .fd = h.door, .events = POLLOUT };

		gantry_door_header_init(&adopt.h, GANTRY_DOOR_ADOPT, i);
		r = hostile_send(&h, &adopt, sizeof(adopt));
		if (r == -EAGAIN && poll(&p, 1, 2000) <= 0)
			break; /* it stopped reading: good as well */
	}
	neighbour_check(&world.neighbour);
	hostile_close(&h);
	works();
}
END_TEST

/* ---- silence ---- */

START_TEST(test_half_open_connections_without_end_keep_nobody_else_out_for_long)
{
	static struct hostile half[200];
	unsigned int n = 0;
	struct hostile h;
	struct gantry_door_hello hello;
	uint64_t deadline = gantry_deadline_ns(10 * (int64_t)GANTRY_NS_PER_S);
	int status;

	for (; n < GANTRY_ARRAY_SIZE(half); n++)
		if (hostile_connect(&half[n], door) < 0)
			break;
	neighbour_check(&world.neighbour);
	/* A newcomer is told to come again while they stand there, and they do not stand there long. */
	do {
		ck_assert(!gantry_deadline_passed(deadline));
		hostile_hello_init(&hello);
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		status = hostile_attach(&h, &hello, NULL);
		ck_assert(status == GANTRY_OK || status == GANTRY_E_AGAIN);
		if (status != GANTRY_OK) {
			hostile_close(&h);
			(void)poll(NULL, 0, 50);
		}
	} while (status != GANTRY_OK);
	hostile_close(&h);
	for (unsigned int i = 0; i < n; i++) {
		ck_assert_int_ne(hostile_refused(&half[i], HOSTILE_WAIT_MS), HOSTILE_TIMEOUT);
		hostile_close(&half[i]);
	}
}
END_TEST

START_TEST(test_connections_that_vanish_at_every_step_leave_nothing)
{
	struct gantry_door_hello hello;
	struct hostile h;

	hostile_hello_init(&hello);
	for (int i = 0; i < 60; i++) {
		ck_assert_int_eq(hostile_connect(&h, door), 0);
		if (i % 3)
			(void)hostile_send(&h, &hello, sizeof(hello));
		if (i % 3 == 2)
			(void)hostile_receive(&h, &hello.name, 0,
					      1); /* a moment; perhaps the WELCOME is on its way */
		hostile_hello_init(&hello);
		hostile_close(&h);
	}
	works();
}
END_TEST

START_TEST(test_half_shut_connections_end)
{
	struct hostile h;

	world_hostile(&h);
	ck_assert_int_eq(shutdown(h.door, SHUT_WR), 0);
	ck_assert_int_ne(hostile_refused(&h, HOSTILE_WAIT_MS), HOSTILE_TIMEOUT);
	hostile_close(&h);
	ck_assert_int_eq(hostile_connect(&h, door), 0);
	ck_assert_int_eq(shutdown(h.door, SHUT_RD), 0);
	hostile_close(&h);
	works();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("misuse-door");
	TCase *tc = world_case(suite, "agent", WORLD_AGENT);

	world_config("sessions = 4\n");
	tcase_add_checked_fixture(tc, begin, finish);
	tcase_add_test(tc, test_hello_with_one_wrong_field_is_refused_as_a_broken_rule);
	tcase_add_test(tc, test_hello_with_wishes_out_of_range_is_refused_or_bounded);
	tcase_add_test(tc, test_hello_of_another_version_is_refused_with_the_agents_range);
	tcase_add_test(tc, test_hello_of_a_newer_library_that_still_speaks_ours_is_welcome);
	tcase_add_test(tc, test_hello_name_that_is_not_printable_harms_nobody);
	tcase_add_test(tc, test_noise_of_every_length_is_refused);
	tcase_add_test(tc, test_descriptors_sent_to_the_door_are_closed_unseen);
	tcase_add_test(tc, test_message_out_of_turn_ends_the_connection);
	tcase_add_test(tc, test_share_and_adopt_of_what_does_not_exist_are_answered);
	tcase_add_test(tc, test_share_with_a_mode_that_is_none_is_refused);
	tcase_add_test(tc, test_requests_without_reading_answers_end_the_reader_only);
	tcase_add_test(tc, test_half_open_connections_without_end_keep_nobody_else_out_for_long);
	tcase_add_test(tc, test_connections_that_vanish_at_every_step_leave_nothing);
	tcase_add_test(tc, test_half_shut_connections_end);
	return gantry_unit_run(suite);
}
