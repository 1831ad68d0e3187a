/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/liveness.h"

#include <errno.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/agent/procstat.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; Debian 12 has older headers */
#endif

static uint64_t boot_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_BOOTTIME, &ts); /* cannot fail with these arguments */
	return (uint64_t)ts.tv_sec * GANTRY_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int gantry_liveness_open_by_pid(pid_t pid, uint64_t seen_ns, int *ret_pidfd)
{
	_cleanup_close_ int fd = pidfd_open(pid, 0);
	struct gantry_procstat stat;
	int r;

	if (fd < 0)
		return errno == ESRCH ? -ESRCH : -ENOTSUP;
	/*
	 * After the open: if the number changes hands from here on, the descriptor tells of the end
	 * we wait for.
	 */
	r = gantry_procstat(pid, 0, &stat);
	if (r < 0)
		return r;
	if (stat.started_ns > seen_ns)
		return -ESRCH;
	*ret_pidfd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_liveness_open(int sock, pid_t pid, int *ret_pidfd)
{
	uint64_t seen_ns = boot_now_ns();
	socklen_t len = sizeof(int);
	int fd = -EBADF;

	if (pid <= 0)
		return -ENOTSUP;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0) {
		*ret_pidfd = fd;
		return 0;
	}
	if (errno == ENOPROTOOPT)
		return gantry_liveness_open_by_pid(pid, seen_ns, ret_pidfd);
	/* Kernels differ in how they say that it has been reaped. */
	return errno == ESRCH || errno == EINVAL || errno == ENODATA ? -ESRCH : -ENOTSUP;
}
