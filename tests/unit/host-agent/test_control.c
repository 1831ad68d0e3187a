/* SPDX-License-Identifier: Apache-2.0 */
/* Frames on streams and packets with descriptors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin.pb-c.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/control/framing.h"
#include "host-agent/control/packet.h"
#include "tests/unit/runner.h"
#include "worker.pb-c.h"

static int sv[2];

static void stream_pair(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
}

static void packet_pair(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv),
			 0);
}

static void close_pair(void)
{
	gantry_fd_close(sv[0]);
	gantry_fd_close(sv[1]);
}

static uint64_t soon(void)
{
	return gantry_deadline_ns(50 * (int64_t)GANTRY_NS_PER_MS);
}

static int recv_frame(ProtobufCMessage **ret_msg)
{
	return gantry_frame_recv(sv[1], &gantry__admin__admin_reply__descriptor, 1024, soon(),
				 ret_msg);
}

START_TEST(test_frame_arrives_as_sent)
{
	Gantry__Admin__AdminReply reply = GANTRY__ADMIN__ADMIN_REPLY__INIT;
	ProtobufCMessage *msg = NULL;

	reply.tag = 77;
	reply.text = (char *)(uintptr_t) "hello";
	ck_assert_int_eq(gantry_frame_send(sv[0], &reply.base, soon()), 0);
	ck_assert_int_eq(recv_frame(&msg), 0);
	ck_assert_uint_eq(((Gantry__Admin__AdminReply *)msg)->tag, 77);
	ck_assert_str_eq(((Gantry__Admin__AdminReply *)msg)->text, "hello");
	protobuf_c_message_free_unpacked(msg, NULL);
}
END_TEST

START_TEST(test_frame_too_long_is_refused_before_it_is_read)
{
	static const uint8_t header[4] = { 0xff, 0xff, 0xff, 0x7f };
	ProtobufCMessage *msg;

	ck_assert_int_eq(write(sv[0], header, 4), 4);
	ck_assert_int_eq(recv_frame(&msg), -EMSGSIZE);
}
END_TEST

START_TEST(test_frame_cut_short_garbage_and_silence_are_told_apart)
{
	static const uint8_t garbage[8] = { 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };
	ProtobufCMessage *msg;

	ck_assert_int_eq(recv_frame(&msg), -ETIMEDOUT);
	ck_assert_int_eq(write(sv[0], garbage, 8), 8);
	ck_assert_int_eq(recv_frame(&msg), -EPROTO);
	ck_assert_int_eq(write(sv[0], garbage, 6), 6);
	sv[0] = gantry_fd_close(sv[0]);
	ck_assert_int_eq(recv_frame(&msg), -EPROTO);
	ck_assert_int_eq(recv_frame(&msg), -ENODATA);
}
END_TEST

START_TEST(test_frame_peek_waits_for_the_whole)
{
	static const uint8_t frame[7] = { 3, 0, 0, 0, 1, 2, 3 };
	size_t len = 99;

	for (size_t n = 0; n < sizeof(frame); n++)
		ck_assert_int_eq(gantry_frame_peek(frame, n, 100, &len), -EAGAIN);
	ck_assert_uint_eq(len, 99);
	ck_assert_int_eq(gantry_frame_peek(frame, 7, 100, &len), 0);
	ck_assert_uint_eq(len, 3);
	ck_assert_int_eq(gantry_frame_peek(frame, 4, 2, &len), -EMSGSIZE);
}
END_TEST

static int recv_packet(unsigned int max_fds, ProtobufCMessage **ret_msg, int *fds,
		       unsigned int *ret_n)
{
	return gantry_packet_recv(sv[1], &gantry__worker__to_worker__descriptor, fds, max_fds,
				  ret_msg, ret_n);
}

START_TEST(test_packet_brings_its_descriptors)
{
	Gantry__Worker__ToWorker out = GANTRY__WORKER__TO_WORKER__INIT;
	ProtobufCMessage *msg = NULL;
	int fds[4];
	unsigned int n = 0;

	out.tag = 5;
	ck_assert_int_eq(gantry_packet_send(sv[0], &out.base, sv, 2), 0);
	ck_assert_int_eq(recv_packet(4, &msg, fds, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(((Gantry__Worker__ToWorker *)msg)->tag, 5);
	gantry_fd_close(fds[0]);
	gantry_fd_close(fds[1]);
	protobuf_c_message_free_unpacked(msg, NULL);
}
END_TEST

START_TEST(test_packet_with_too_many_descriptors_leaves_none)
{
	Gantry__Worker__ToWorker out = GANTRY__WORKER__TO_WORKER__INIT;
	ProtobufCMessage *msg;
	int fds[1];
	unsigned int n;

	out.tag = 5;
	ck_assert_int_eq(gantry_packet_send(sv[0], &out.base, sv, 2), 0);
	ck_assert_int_eq(recv_packet(1, &msg, fds, &n), -EPROTO);
}
END_TEST

START_TEST(test_packet_of_garbage_is_refused_with_its_descriptors)
{
	ProtobufCMessage *msg;
	int fds[4];
	unsigned int n;

	ck_assert_int_eq(gantry_fd_send(sv[0], "\xff\xff\xff", 3, sv, 2, 0), 3);
	ck_assert_int_eq(recv_packet(4, &msg, fds, &n), -EPROTO);
	ck_assert_int_eq(recv_packet(4, &msg, fds, &n), -EAGAIN);
	sv[0] = gantry_fd_close(sv[0]);
	ck_assert_int_eq(recv_packet(4, &msg, fds, &n), -ENODATA);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *tc = gantry_unit_case(suite, "frames");

	tcase_add_checked_fixture(tc, stream_pair, close_pair);
	tcase_add_test(tc, test_frame_arrives_as_sent);
	tcase_add_test(tc, test_frame_too_long_is_refused_before_it_is_read);
	tcase_add_test(tc, test_frame_cut_short_garbage_and_silence_are_told_apart);
	tcase_add_test(tc, test_frame_peek_waits_for_the_whole);
	tc = gantry_unit_case(suite, "packets");
	tcase_add_checked_fixture(tc, packet_pair, close_pair);
	tcase_add_test(tc, test_packet_brings_its_descriptors);
	tcase_add_test(tc, test_packet_with_too_many_descriptors_leaves_none);
	tcase_add_test(tc, test_packet_of_garbage_is_refused_with_its_descriptors);
	return gantry_unit_run(suite);
}
