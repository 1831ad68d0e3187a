/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Baselines: what two processes of this machine do with shared memory, futexes and sockets alone.
 *
 *   pair CPU CPU           where the two ends of the commands below run; -1: anywhere
 *   spin N                 round trips of a word between two processes that spin
 *   futex N GAP_US         round trips between two processes that sleep; the asker waits GAP_US before each
 *   ring N BATCH           64-byte messages through a ring of 64 slots, put BATCH at a time
 *   door N                 connect, one message each way, a descriptor with the answer, map it
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "tests/bench/bench.h"

#define NSLOTS	  64u
#define MAP_BYTES (1u << 20)
#define LINE	  64

struct shared {
	_Alignas(LINE) uint32_t ask;
	_Alignas(LINE) uint32_t answer;
	_Alignas(LINE) uint64_t tail;
	_Alignas(LINE) uint64_t head;
	_Alignas(LINE) unsigned char slots[NSLOTS][64];
};

static struct shared *shared;
static int cpu_of[2] = { -1, -1 };

/* ---- the other process ---- */

static void answer_spinning(void)
{
	for (uint32_t seen = 0;;) {
		uint32_t ask;

		while ((ask = gantry_load_acquire(&shared->ask)) == seen)
			gantry_cpu_relax();
		seen = ask;
		gantry_store_release(&shared->answer, ask);
	}
}

static void answer_sleeping(void)
{
	for (uint32_t seen = 0;;) {
		while (gantry_load_acquire(&shared->ask) == seen)
			(void)gantry_futex_wait(&shared->ask, seen, GANTRY_DEADLINE_NEVER);
		seen = gantry_load_acquire(&shared->ask);
		gantry_store_release(&shared->answer, seen);
		(void)gantry_futex_wake(&shared->answer, 1);
	}
}

static void take_from_ring(void)
{
	unsigned char copy[64];
	uint64_t head = 0;

	for (;;) {
		while (gantry_load_acquire(&shared->tail) == head)
			gantry_cpu_relax();
		for (uint64_t tail = gantry_load_acquire(&shared->tail); head != tail; head++) {
			memcpy(copy, shared->slots[head % NSLOTS], sizeof(copy));
			__asm__ volatile("" : : "r"(copy) : "memory"); /* the copy is made */
		}
		gantry_store_release(&shared->head, head);
	}
}

static pid_t start_peer(void (*fn)(void))
{
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)bench_run_on(cpu_of[1]);
		fn();
		_exit(0);
	}
	(void)bench_run_on(cpu_of[0]);
	return pid;
}

static void end_peer(pid_t pid)
{
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	(void)bench_run_on(-1);
}

/* ---- the asking side ---- */

static void ask_spinning(uint32_t value)
{
	gantry_store_release(&shared->ask, value);
	while (gantry_load_acquire(&shared->answer) != value)
		gantry_cpu_relax();
}

static void ask_sleeping(uint32_t value)
{
	gantry_store_release(&shared->ask, value);
	(void)gantry_futex_wake(&shared->ask, 1);
	while (gantry_load_acquire(&shared->answer) != value)
		(void)gantry_futex_wait(&shared->answer, value - 1, GANTRY_DEADLINE_NEVER);
}

static void measure_trips(uint64_t n, uint64_t gap_us, void (*peer)(void),
			  void (*ask)(uint32_t value))
{
	struct bench_samples s;
	pid_t pid = start_peer(peer);

	bench_samples_init(&s, n);
	for (uint32_t i = 1; i <= 100; i++)
		ask(i);
	for (uint32_t i = 101; i <= 100 + n; i++) {
		uint64_t start;

		if (gap_us)
			(void)usleep((useconds_t)gap_us);
		start = gantry_cycles();
		ask(i);
		bench_sample(&s, gantry_cycles() - start);
	}
	end_peer(pid);
	printf("{");
	bench_samples_print(&s);
	printf("}\n");
	bench_samples_fini(&s);
}

static void cmd_spin(const struct bench_args *args)
{
	measure_trips(bench_arg(args, 0, 10000), 0, answer_spinning, ask_spinning);
}

static void cmd_futex(const struct bench_args *args)
{
	measure_trips(bench_arg(args, 0, 1000), bench_arg(args, 1, 0), answer_sleeping,
		      ask_sleeping);
}

static void cmd_ring(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 1000000);
	uint64_t batch = bench_arg(args, 1, 32);
	unsigned char message[64] = { 1 };
	uint64_t tail = 0, put_ticks = 0, start_ns, ns;
	pid_t pid = start_peer(take_from_ring);

	start_ns = gantry_now_ns();
	while (tail < n) {
		uint64_t start;

		while (tail + batch - gantry_load_acquire(&shared->head) > NSLOTS)
			gantry_cpu_relax();
		start = gantry_cycles();
		for (uint64_t i = 0; i < batch; i++, tail++)
			memcpy(shared->slots[tail % NSLOTS], message, sizeof(message));
		gantry_store_release(&shared->tail, tail);
		put_ticks += gantry_cycles() - start;
	}
	while (gantry_load_acquire(&shared->head) != tail)
		gantry_cpu_relax();
	ns = gantry_now_ns() - start_ns;
	end_peer(pid);
	printf("{\"per_s\":%.0f,\"put_ns\":%.2f}\n", (double)tail * 1e9 / (double)ns,
	       bench_ns(put_ticks) / (double)tail);
}

/* ---- a door ---- */

static int door_listen(struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(sa_family_t);

	memset(at, 0, sizeof(*at));
	at->sun_family = AF_UNIX;
	/* With no name given the kernel finds one that is free. */
	if (fd < 0 || bind(fd, (struct sockaddr *)at, len) < 0 || listen(fd, 8) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void send_fd(int to, int fd)
{
	char byte = 1;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	(void)sendmsg(to, &msg, MSG_NOSIGNAL);
}

static int take_fd(int from)
{
	char byte;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd = -1;

	if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static int door_fd;

static void serve_door(void)
{
	for (;;) {
		int conn = accept(door_fd, NULL, NULL);
		int fd = memfd_create("door", MFD_CLOEXEC);
		char byte;

		if (conn < 0 || fd < 0 || ftruncate(fd, MAP_BYTES) < 0 ||
		    recv(conn, &byte, 1, 0) != 1)
			_exit(1);
		send_fd(conn, fd);
		(void)close(fd);
		(void)close(conn);
	}
}

/* Once through the door: false if anything failed. */
static bool enter_door(const struct sockaddr_un *at, socklen_t len)
{
	int conn = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool ok = conn >= 0 && connect(conn, (const struct sockaddr *)at, len) == 0 &&
		  send(conn, "h", 1, MSG_NOSIGNAL) == 1;
	int fd = ok ? take_fd(conn) : -1;
	char *base = fd >= 0 ? mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
			     : MAP_FAILED;

	if (base != MAP_FAILED) {
		base[0] = 1;
		(void)munmap(base, MAP_BYTES);
	}
	if (fd >= 0)
		(void)close(fd);
	if (conn >= 0)
		(void)close(conn);
	return base != MAP_FAILED;
}

static void cmd_door(const struct bench_args *args)
{
	uint64_t n = bench_arg(args, 0, 20);
	struct sockaddr_un at;
	socklen_t len = sizeof(at);
	struct bench_samples s;
	bool ok = true;
	pid_t pid;

	door_fd = door_listen(&at);
	if (door_fd < 0 || getsockname(door_fd, (struct sockaddr *)&at, &len) < 0) {
		bench_fail("no socket to listen on");
		return;
	}
	pid = start_peer(serve_door);
	bench_samples_init(&s, n);
	for (uint64_t i = 0; i < n && ok; i++) {
		uint64_t start = gantry_cycles();

		ok = enter_door(&at, len);
		bench_sample(&s, gantry_cycles() - start);
	}
	end_peer(pid);
	(void)close(door_fd);
	if (!ok) {
		bench_fail("the door of the baseline did not open");
	} else {
		printf("{");
		bench_samples_print(&s);
		printf("}\n");
	}
	bench_samples_fini(&s);
}

static void cmd_pair(const struct bench_args *args)
{
	for (int i = 0; i < 2 && i < args->n; i++)
		cpu_of[i] = atoi(args->words[i]);
	printf("{\"pair\":[%d,%d]}\n", cpu_of[0], cpu_of[1]);
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "pair", cmd_pair }, { "spin", cmd_spin }, { "futex", cmd_futex },
		{ "ring", cmd_ring }, { "door", cmd_door }, { 0 },
	};

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	return bench_serve(commands);
}
