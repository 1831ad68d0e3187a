/* SPDX-License-Identifier: Apache-2.0 */
/* The candidate's part of an upgrade: it says what it is, gets everything, and takes the baton, or ends. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/monitor/link.h"

int gantry_standby_hello(int monitor_fd, const char *problem)
{
	_cleanup_close_ int fd = memfd_create("gantry-hello", MFD_CLOEXEC);
	char text[GANTRY_BUILD_TEXT_MAX];
	struct gantry_build self;
	int r;

	if (fd < 0)
		return -errno;
	gantry_failpoint(GANTRY_FAILPOINT_STANDBY_HELLO);
	gantry_build_self(&self);
	/* A line stays a line; cut is better than unsaid. */
	(void)gantry_str_copy(self.problem, sizeof(self.problem), problem);
	gantry_str_make_printable(self.problem);
	r = gantry_build_format(&self, text, sizeof(text));
	if (r > 0)
		r = gantry_write_all(fd, text, (size_t)r);
	return r < 0 ? r : gantry_link_send(monitor_fd, GANTRY_MONITOR_HELLO, 0, 0, NULL, fd);
}

int gantry_standby_take(struct gantry_agent *a)
{
	_cleanup_close_ int baton = gantry_store_take(&a->handed, GANTRY_MONITOR_BATON);
	char byte;

	gantry_failpoint(GANTRY_FAILPOINT_STANDBY_GIVEN);
	if (baton < 0 || read(baton, &byte, 1) != 1)
		return -ECANCELED;
	gantry_failpoint(GANTRY_FAILPOINT_STANDBY_TAKEN);
	/* Where the monitor has died meanwhile, another is started by us. */
	(void)gantry_link_send(a->monitor_fd, GANTRY_MONITOR_TAKEN, 0, 0, NULL, -EBADF);
	return 0;
}
