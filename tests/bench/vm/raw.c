/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Baselines of virtual machines: what a program of the guest and one of the host do with shared memory, or with a
 * stream socket, alone. FILE is a file that both map: on the host the memory's own, in the guest a device's resource2.
 *
 *   answer FILE            (host) answers round trips of spin until killed
 *   spin FILE N            (guest) round trips of a word; the other end spins too
 *   copy FILE BYTES N      (guest) memcpy() of BYTES into it, N times, and as often to memory of the guest's own
 *   echo PORT              (host or guest) sends each byte of an AF_VSOCK connection back, until killed
 *   byte CID PORT N        (guest) round trips of one byte with that
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "base/atomic.h"
#include "tests/bench/bench.h"

#define WORDS_BYTES 4096u
#define COPY_OFF    (1u << 20) /* past the words, where lines have only one writer */

struct words {
	_Alignas(64) uint32_t ask;
	_Alignas(64) uint32_t answer;
};

static void *map(const struct bench_args *args, uint64_t bytes)
{
	const char *path = args->n > 0 ? args->words[0] : "";
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *ptr = fd < 0 ? MAP_FAILED
			   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (ptr == MAP_FAILED)
		bench_fail("%s: %s", path, strerror(errno));
	if (fd >= 0)
		(void)close(fd); /* the mapping stays */
	return ptr == MAP_FAILED ? NULL : ptr;
}

static void cmd_answer(const struct bench_args *args)
{
	struct words *words = map(args, WORDS_BYTES);
	uint32_t seen = 0;

	if (!words)
		return;
	gantry_store_relaxed(&words->answer, 0);
	printf("{\"answering\":true}\n");
	(void)fflush(stdout); /* the driver sees what is missing */
	for (;;) {
		uint32_t ask;

		while ((ask = gantry_load_acquire(&words->ask)) == seen)
			gantry_cpu_relax();
		seen = ask;
		gantry_store_release(&words->answer, ask);
	}
}

static void cmd_spin(const struct bench_args *args)
{
	struct words *words = map(args, WORDS_BYTES);
	uint64_t n = bench_arg(args, 1, 10000);
	struct bench_samples s;
	uint32_t ask;

	if (!words)
		return;
	ask = gantry_load_relaxed(&words->answer);
	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t start = gantry_cycles();

		gantry_store_release(&words->ask, ++ask);
		while (gantry_load_acquire(&words->answer) != ask)
			gantry_cpu_relax();
		bench_sample(&s, gantry_cycles() - start);
	}
	printf("{");
	bench_samples_print(&s);
	printf("}\n");
	bench_samples_fini(&s);
	(void)munmap(words, WORDS_BYTES); /* cannot fail for a mapping of ours */
}

static void cmd_copy(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 1, 8ull << 20), n = bench_arg(args, 2, 5);
	uint8_t *there = map(args, COPY_OFF + bytes), *here = malloc(bytes), *own = malloc(bytes);
	struct bench_samples to_device, to_memory;

	if (!there || !here || !own) {
		free(here);
		free(own);
		return;
	}
	memset(here, 1, bytes);
	memset(own, 2, bytes);
	bench_samples_init(&to_device, n);
	bench_samples_init(&to_memory, n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at[3];

		at[0] = gantry_cycles();
		memcpy(there + COPY_OFF, here, bytes);
		at[1] = gantry_cycles();
		memcpy(own, here, bytes);
		at[2] = gantry_cycles();
		bench_sample(&to_device, at[1] - at[0]);
		bench_sample(&to_memory, at[2] - at[1]);
	}
	printf("{\"device_ns\":%.0f,\"memory_ns\":%.0f,\"check\":%u}\n",
	       bench_quantile(&to_device, .5), bench_quantile(&to_memory, .5), own[bytes - 1]);
	bench_samples_fini(&to_device);
	bench_samples_fini(&to_memory);
	(void)munmap(there, COPY_OFF + bytes); /* cannot fail for a mapping of ours */
	free(here);
	free(own);
}

/* ---- streams ---- */

/* A path of a Unix socket, where somebody else passes on what comes by vsock; else an AF_VSOCK port. */
static int listen_at(const char *where)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	struct sockaddr_vm port = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY };
	const void *addr = &port;
	socklen_t len = sizeof(port);
	int sock;

	port.svm_port = (unsigned)strtoul(where, NULL, 0);
	if (where[0] == '/') {
		(void)snprintf(path.sun_path, sizeof(path.sun_path), "%s", where);
		addr = &path;
		len = sizeof(path);
	}
	sock = socket(where[0] == '/' ? AF_UNIX : AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || bind(sock, addr, len) < 0 || listen(sock, 4) < 0) {
		bench_fail("%s: %s", where, strerror(errno));
		if (sock >= 0)
			(void)close(sock); /* never used */
		return -1;
	}
	return sock;
}

static void cmd_echo(const struct bench_args *args)
{
	int sock = listen_at(args->n > 0 ? args->words[0] : "7777");
	char byte;

	if (sock < 0)
		return;
	printf("{\"listening\":true}\n");
	(void)fflush(stdout); /* the driver sees what is missing */
	for (;;) {
		int peer = accept4(sock, NULL, NULL, SOCK_CLOEXEC);

		if (peer < 0)
			continue;
		while (read(peer, &byte, 1) == 1 && write(peer, &byte, 1) == 1)
			;
		(void)close(peer); /* nothing is on its way */
	}
}

static void cmd_byte(const struct bench_args *args)
{
	struct sockaddr_vm addr = { .svm_family = AF_VSOCK };
	uint64_t n = bench_arg(args, 2, 1000);
	int sock = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct bench_samples s;
	char byte = 1;

	addr.svm_cid = (unsigned)bench_arg(args, 0, VMADDR_CID_HOST);
	addr.svm_port = (unsigned)bench_arg(args, 1, 7777);
	if (sock < 0 || connect(sock, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
		bench_fail("vsock: %s", strerror(errno));
		if (sock >= 0)
			(void)close(sock); /* never used */
		return;
	}
	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t start = gantry_cycles();

		if (write(sock, &byte, 1) != 1 || read(sock, &byte, 1) != 1)
			break;
		bench_sample(&s, gantry_cycles() - start);
	}
	printf("{");
	bench_samples_print(&s);
	printf("}\n");
	bench_samples_fini(&s);
	(void)close(sock); /* all of it was read */
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "answer", cmd_answer }, { "spin", cmd_spin }, { "copy", cmd_copy },
		{ "echo", cmd_echo },	  { "byte", cmd_byte }, { 0 },
	};

	return bench_serve(commands);
}
