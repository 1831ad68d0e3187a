/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Baselines of doors without shared memory: what a bare stream socket does on the same way. WHERE is "PORT" of AF_VSOCK on the host
 * (CID 2), or the path of a Unix stream socket.
 *
 *   serve PATH             answers there, in a process of its own, until the program ends
 *   ping WHERE N           one byte there and back, N times
 *   pour WHERE BYTES N     BYTES there and one byte back; then one byte there and BYTES back
 */
#include <errno.h>
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/bench/bench.h"

#define CHUNK (256u << 10)

enum mode {
	MODE_PING = 'p',
	MODE_POUR = 'b',
};

static char chunk[CHUNK];

/* ---- the other end ---- */

static bool get_all(int fd, uint64_t bytes)
{
	while (bytes > 0) {
		ssize_t n = recv(fd, chunk, bytes < CHUNK ? bytes : CHUNK, 0);

		if (n <= 0)
			return false;
		bytes -= (uint64_t)n;
	}
	return true;
}

static bool put_all(int fd, uint64_t bytes)
{
	while (bytes > 0) {
		ssize_t n = send(fd, chunk, bytes < CHUNK ? bytes : CHUNK, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes -= (uint64_t)n;
	}
	return true;
}

static void answer(int fd)
{
	uint64_t bytes;
	char mode, byte;

	if (recv(fd, &mode, 1, MSG_WAITALL) != 1)
		return;
	while (mode == MODE_PING && recv(fd, &byte, 1, 0) == 1)
		if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
			return;
	while (mode == MODE_POUR &&
	       recv(fd, &bytes, sizeof(bytes), MSG_WAITALL) == (ssize_t)sizeof(bytes))
		if (!get_all(fd, bytes) || send(fd, "k", 1, MSG_NOSIGNAL) != 1 || !get_all(fd, 1) ||
		    !put_all(fd, bytes))
			return;
}

static void cmd_serve(const struct bench_args *args)
{
	int listener = -EBADF;

	if (args->n < 1 || gantry_unix_listen(args->words[0], SOCK_STREAM, 0600, &listener) < 0) {
		bench_fail("no socket to listen on");
		return;
	}
	if (fork() == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int fd = accept(listener, NULL, NULL);

			if (fd < 0)
				_exit(1);
			answer(fd);
			(void)close(fd);
		}
	}
	(void)close(listener);
	printf("{\"serving\":true}\n");
}

/* ---- the asking end ---- */

static int dial_port(unsigned long port)
{
	const struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_HOST,
		.svm_port = (unsigned int)port,
	};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

static int dial(const struct bench_args *args, char mode)
{
	int fd = -EBADF;

	if (args->n < 1)
		return -1;
	if (args->words[0][0] == '/')
		(void)gantry_unix_connect(args->words[0], SOCK_STREAM, &fd);
	else
		fd = dial_port(strtoul(args->words[0], NULL, 10));
	if (fd >= 0 && send(fd, &mode, 1, MSG_NOSIGNAL) != 1) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

static void cmd_ping(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 1, 1000);
	int fd = dial(args, MODE_PING);
	struct bench_samples s;
	bool good = fd >= 0;
	char byte = 0;

	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n + n / 10 && good; i++) {
		uint64_t start = gantry_cycles();

		good = send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1;
		if (i >= n / 10)
			bench_sample(&s, gantry_cycles() - start);
	}
	if (good) {
		printf("{");
		bench_samples_print(&s);
		printf("}\n");
	} else {
		bench_fail("nobody answers");
	}
	bench_samples_fini(&s);
	if (fd >= 0)
		(void)close(fd);
}

static void cmd_pour(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 1, 16u << 20);
	uint64_t n = bench_arg(args, 2, 3);
	int fd = dial(args, MODE_POUR);
	struct bench_samples there, back;
	bool good = fd >= 0;

	bench_samples_init(&there, n);
	bench_samples_init(&back, n);
	for (uint64_t i = 0; i < n && good; i++) {
		uint64_t start = gantry_cycles();

		good = send(fd, &bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes) &&
		       put_all(fd, bytes) && get_all(fd, 1);
		bench_sample(&there, gantry_cycles() - start);
		start = gantry_cycles();
		good = good && put_all(fd, 1) && get_all(fd, bytes);
		bench_sample(&back, gantry_cycles() - start);
	}
	if (good)
		printf("{\"there_ns\":%.0f,\"back_ns\":%.0f}\n", bench_quantile(&there, .5),
		       bench_quantile(&back, .5));
	else
		bench_fail("nobody answers");
	bench_samples_fini(&there);
	bench_samples_fini(&back);
	if (fd >= 0)
		(void)close(fd);
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "serve", cmd_serve },
		{ "ping", cmd_ping },
		{ "pour", cmd_pour },
		{ 0 },
	};

	return bench_serve(commands);
}
