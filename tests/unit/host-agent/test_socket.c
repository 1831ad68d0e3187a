/* SPDX-License-Identifier: Apache-2.0 */
/* What a mover asks of the kernel for its connection: little waits for a near peer, as much as the kernel likes for any other. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "host-agent/mover/socket.h"
#include "tests/unit/runner.h"

static int option(int sock, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	ck_assert_int_eq(getsockopt(sock, level, name, &value, &len), 0);
	return value;
}

static uint32_t rtt_us(int sock)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	ck_assert_int_eq(getsockopt(sock, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	return info.tcpi_rtt;
}

static void connect_pair(int *ret_client, int *ret_server)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	_cleanup_close_ int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	*ret_client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(*ret_client, (struct sockaddr *)&addr, len), 0);
	*ret_server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*ret_server, 0);
}

/* What the kernel makes of GANTRY_SOCKET_BYTES: twice that, or twice what it allows. */
static int bounded(void)
{
	FILE *file = fopen("/proc/sys/net/core/wmem_max", "re");
	long allowed = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%ld", &allowed), 1);
	(void)fclose(file);
	return 2 * (int)gantry_min_u64((uint64_t)allowed, GANTRY_SOCKET_BYTES);
}

static void check_prepared(int sock)
{
	int as_it_came = option(sock, SOL_SOCKET, SO_SNDBUF);
	bool is_near =
		gantry_socket_is_near(rtt_us(sock)); /* a busy machine may say that it is not */

	gantry_socket_prepare(sock);
	ck_assert_int_eq(option(sock, SOL_SOCKET, SO_SNDBUF), is_near ? bounded() : as_it_came);
	ck_assert_int_ne(option(sock, IPPROTO_TCP, TCP_NODELAY), 0);
	ck_assert_int_ne(option(sock, SOL_SOCKET, SO_KEEPALIVE), 0);
}

START_TEST(test_socket_prepare_little_waits_at_both_ends_of_a_near_connection)
{
	_cleanup_close_ int client = -EBADF, server = -EBADF;

	connect_pair(&client, &server);
	check_prepared(client);
	check_prepared(server);
}
END_TEST

START_TEST(test_socket_prepare_what_is_no_tcp_stays_as_it_was)
{
	int pair[2], as_it_came;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	as_it_came = option(pair[0], SOL_SOCKET, SO_SNDBUF);
	gantry_socket_prepare(pair[0]);
	ck_assert_int_eq(option(pair[0], SOL_SOCKET, SO_SNDBUF), as_it_came);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

START_TEST(test_socket_is_near_up_to_the_bound_and_never_where_nothing_is_known)
{
	ck_assert(!gantry_socket_is_near(0));
	ck_assert(gantry_socket_is_near(1));
	ck_assert(gantry_socket_is_near(GANTRY_SOCKET_NEAR_US));
	ck_assert(!gantry_socket_is_near(GANTRY_SOCKET_NEAR_US + 1));
	ck_assert(!gantry_socket_is_near(UINT32_MAX));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("socket");
	TCase *tc = gantry_unit_case(suite, "socket");

	tcase_add_test(tc, test_socket_prepare_little_waits_at_both_ends_of_a_near_connection);
	tcase_add_test(tc, test_socket_prepare_what_is_no_tcp_stays_as_it_was);
	tcase_add_test(tc, test_socket_is_near_up_to_the_bound_and_never_where_nothing_is_known);
	return gantry_unit_run(suite);
}
