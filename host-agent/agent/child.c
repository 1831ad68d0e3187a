/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/cgroup.h"

#define FIRST_FD 3

int gantry_child_find(const struct gantry_agent *a, const char *what, char ret_path[PATH_MAX],
		      struct gantry_err *err)
{
	const char *worker = a->args.worker_path;
	const char *slash = strrchr(worker, '/');
	int dir = slash ? (int)(slash - worker) : 0;
	char room[32];
	const char *const places[] = { "", room };

	(void)gantry_str_format(room, sizeof(room), "../%s/", what); /* it fits */
	for (size_t i = 0; slash && i < GANTRY_ARRAY_SIZE(places); i++)
		if (gantry_str_format(ret_path, PATH_MAX, "%.*s/%sgantry-%s", dir, worker,
				      places[i], what) == 0 &&
		    access(ret_path, X_OK) == 0)
			return 0;
	return gantry_err_set(err, -ENOENT,
			      "there is no gantry-%s beside %s; is package gantry-agent whole?",
			      what, worker);
}

/* In the child. The descriptors to where they belong, whatever numbers they have. */
static void place(const int *fds, unsigned int nfds)
{
	int high[GANTRY_CHILD_FDS_MAX];
	int end = FIRST_FD + (int)nfds;

	for (unsigned int i = 0; i < nfds; i++)
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, end);
	for (unsigned int i = 0; i < nfds; i++)
		if (high[i] < 0 || dup2(high[i], FIRST_FD + (int)i) < 0)
			_exit(126);
	/* Whatever else is open is the agent's. */
	(void)close_range((unsigned int)end, ~0u, 0);
}

pid_t gantry_child_start(const char *path, char *const argv[], const char *cgroup, const int *fds,
			 unsigned int nfds)
{
	pid_t pid;

	assert(nfds <= GANTRY_CHILD_FDS_MAX);
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
		if (cgroup && cgroup[0])
			(void)gantry_cgroup_enter(cgroup); /* without, as workers are then */
		place(fds, nfds);
		execv(path, argv);
		_exit(127);
	}
	return pid < 0 ? -errno : pid;
}
