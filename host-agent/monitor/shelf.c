/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd's descriptor store (FileDescriptorStoreMax=): what is kept survives the service's restart, which is the
 * end of the monitor too. By documented datagrams and variables (sd_pid_notify_with_fds(3), sd_listen_fds(3)).
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/monitor/document.h"
#include "host-agent/monitor/notify.h"
#include "host-agent/monitor/state.h"

#define FIRST_FD   3
#define TEXT_BYTES (GANTRY_MONITOR_NAME_MAX + 64u)

/* LISTEN_PID says whether the descriptors are for us, or for a process that we descend from. */
static int count_handed(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	long n;

	if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid())
		return 0;
	n = strtol(count, NULL, 10);
	return n > 0 && n <= (long)GANTRY_STORE_MAX ? (int)n : 0;
}

static void take_one(struct gantry_monitor *m, int fd, const char *name)
{
	if (gantry_fd_cloexec(fd, true) < 0 || gantry_store_put(&m->store, name, fd) < 0)
		gantry_fd_close(fd); /* none of ours */
}

static void take_handed(struct gantry_monitor *m)
{
	const char *names = getenv("LISTEN_FDNAMES");
	int n = count_handed();

	for (int i = 0; i < n; i++) {
		char name[GANTRY_MONITOR_NAME_MAX];

		names = gantry_shelf_name_next(names, name);
		take_one(m, FIRST_FD + i, name);
	}
	if (n > 0)
		gantry_log(GANTRY_LOG_INFO, "systemd kept %zu descriptors", m->store.nentries);
	(void)unsetenv("LISTEN_PID"); /* cannot fail for such names */
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
}

void gantry_shelf_open(struct gantry_monitor *m)
{
	take_handed(m);
	m->shelf = m->shelf && getenv("NOTIFY_SOCKET");
}

static void tell(const char *state, int fd)
{
	int r = gantry_notify_fd(state, fd);

	if (r < 0)
		gantry_log(GANTRY_LOG_WARN,
			   "systemd does not take a descriptor (%s): a restart may lose sessions",
			   strerror(-r));
}

void gantry_shelf_drop(const struct gantry_monitor *m, const char *name)
{
	char state[TEXT_BYTES];

	if (!m->shelf)
		return;
	/* it fits */
	(void)gantry_str_format(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	tell(state, -EBADF);
}

/* systemd would keep both of one name: the one before goes first, of another monitor of this service too. */
void gantry_shelf_put(const struct gantry_monitor *m, const char *name, int fd)
{
	char state[TEXT_BYTES];

	if (!m->shelf)
		return;
	gantry_shelf_drop(m, name);
	/* it fits; FDPOLL=0: what has hung up is the agent's to drop */
	(void)gantry_str_format(state, sizeof(state), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	tell(state, fd);
}
