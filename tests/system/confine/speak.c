/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that does what NCCL does in a worker: sockets of the tenant's network, files in /dev/shm that are none. */
#include "tests/system/confine/speak.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/kernels/kernel.h"

#define TEXT "written by a rank"

static int64_t answer(int64_t r)
{
	return r < 0 ? -errno : r;
}

static int64_t close_answer(int fd, int64_t r)
{
	int64_t said = answer(r);

	if (fd >= 0)
		close(fd);
	return said;
}

static struct sockaddr_in loopback(uint64_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
}

static int64_t do_listen(void)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		return close_answer(fd, -1);
	return ntohs(at.sin_port);
}

static int64_t do_connect(uint64_t port)
{
	struct sockaddr_in to = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return close_answer(fd, fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to)));
}

static int64_t do_socket(uint64_t family, uint64_t type)
{
	int fd = socket((int)family, (int)type, 0);

	return close_answer(fd, fd < 0 ? -1 : 0);
}

static socklen_t abstract(struct sockaddr_un *addr, uint64_t name)
{
	*addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1,
					    "gantry-test-%llu", (unsigned long long)name));
}

static int64_t do_name(uint64_t name)
{
	struct sockaddr_un addr;
	socklen_t len = abstract(&addr, name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) < 0)
		return close_answer(fd, -1);
	return 0;
}

static int64_t do_send(uint64_t name)
{
	struct sockaddr_un addr;
	socklen_t len = abstract(&addr, name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return close_answer(fd, fd < 0 ? -1 : sendto(fd, "x", 1, 0, (struct sockaddr *)&addr, len));
}

static int64_t do_file(uint64_t other)
{
	char name[] = "/dev/shm/nccl-XXXXXX", path[64];
	char *mine = MAP_FAILED, *again = MAP_FAILED;
	int fd, second;

	if (other) {
		(void)snprintf(path, sizeof(path), "/dev/shm/nccl-%06llu",
			       (unsigned long long)other - 1);
		fd = open(path, O_RDWR | O_CLOEXEC);
		return close_answer(fd, fd < 0 ? -1 : 0);
	}
	fd = mkstemp(name);
	if (fd < 0 || fallocate(fd, 0, 0, 4096) < 0)
		return close_answer(fd, -1);
	second = open(name, O_RDWR | O_CLOEXEC);
	if (second >= 0) {
		mine = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, second, 0);
	}
	if (mine == MAP_FAILED || again == MAP_FAILED)
		return close_answer(fd, -1);
	memcpy(mine, TEXT, sizeof(TEXT));
	if (strcmp(again, TEXT) != 0 || unlink(name) < 0 || open(name, O_RDWR | O_CLOEXEC) >= 0)
		return close_answer(fd, 0);
	close(second);
	return close_answer(fd, 1);
}

static int64_t do_walk(void)
{
	struct ifaddrs *all = NULL;
	int64_t n = 0;

	if (getifaddrs(&all) < 0)
		return -errno;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		n += i->ifa_addr && i->ifa_addr->sa_family == AF_INET;
	freeifaddrs(all);
	return n;
}

KERNEL(speak)
{
	int64_t *said = ARG(int64_t, call, 0, 1);

	if (call->nargs != 4 || !said)
		return -EINVAL;
	switch (call->args[1].u64) {
	case SPEAK_LISTEN:
		*said = do_listen();
		break;
	case SPEAK_CONNECT:
		*said = do_connect(call->args[2].u64);
		break;
	case SPEAK_SOCKET:
		*said = do_socket(call->args[2].u64, call->args[3].u64);
		break;
	case SPEAK_NAME:
		*said = do_name(call->args[2].u64);
		break;
	case SPEAK_SEND:
		*said = do_send(call->args[2].u64);
		break;
	case SPEAK_FILE:
		*said = do_file(call->args[2].u64);
		break;
	default:
		*said = do_walk();
		break;
	}
	return 0;
}
