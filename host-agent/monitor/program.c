/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/state.h"

int gantry_program_self(void)
{
	int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int gantry_program_check(int program)
{
	struct stat st;

	if (fstat(program, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	if (!(st.st_mode & 0111))
		return -EACCES;
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return 0;
}

int gantry_program_exec(int program, char *const argv[], const char *arg0, const char *arg1,
			int keep)
{
	_cleanup_free_ char **all = NULL;
	size_t n = 0;
	int r;

	while (argv[n])
		n++;
	all = calloc(n + 3, sizeof(*all));
	if (!all)
		return -ENOMEM;
	memcpy(all, argv, n * sizeof(*all));
	all[n++] = (char *)(uintptr_t)arg0;
	all[n++] = (char *)(uintptr_t)arg1;
	r = keep >= 0 ? gantry_fd_cloexec(keep, false) : 0;
	if (r == 0) {
		(void)syscall(SYS_execveat, program, "", all, environ, AT_EMPTY_PATH);
		r = -errno; /* it returned */
	}
	return r;
}

int gantry_program_start(const struct gantry_monitor *m, int program, const char *arg,
			 pid_t *ret_pid, int *ret_sock)
{
	char fd_arg[32];
	int fds[2];
	int r = gantry_link_pair(fds);
	pid_t pid;

	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
		(void)gantry_str_format(fd_arg, sizeof(fd_arg), "--agent-fd=%d",
					fds[1]); /* it fits */
		r = gantry_program_exec(program, m->argv, fd_arg, arg, fds[1]);
		fprintf(stderr, "gantryd: cannot start another: %s\n", strerror(-r));
		_exit(127);
	}
	r = pid < 0 ? -errno : 0;
	gantry_fd_close(fds[1]);
	if (r < 0) {
		gantry_fd_close(fds[0]);
		return r;
	}
	*ret_pid = pid;
	*ret_sock = fds[0];
	return 0;
}
