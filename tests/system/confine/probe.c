/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that tries everything a worker has given up. By system call number, so that no library's own checks stand
 * in the way. Where one succeeds its effect is undone or harmless: the test is about to fail anyway.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/kernels/kernel.h"
#include "tests/system/confine/escape.h"

struct target {
	pid_t agent;
	pid_t victim;
	uint64_t address;
};

static int answer(long r)
{
	return r < 0 ? errno : 0;
}

static int close_answer(long fd)
{
	int r = answer(fd);

	if (r == 0)
		close((int)fd);
	return r;
}

/* A child that came to be must not run on as a second worker. */
static int child_answer(long pid)
{
	if (pid == 0)
		syscall(SYS_exit_group, 0);
	return answer(pid);
}

static int open_file(const char *path, int flags)
{
	return close_answer(syscall(SYS_openat, AT_FDCWD, path, flags, 0600));
}

static int try_file(enum escape what)
{
	static const char *const path = "/tmp/gantry-probe";

	switch (what) {
	case ESCAPE_open_to_write:
		return open_file("/tmp", O_RDWR | O_TMPFILE);
	case ESCAPE_open_to_create:
		return open_file(path, O_WRONLY | O_CREAT);
	case ESCAPE_open_device:
		return open_file("/dev/null", O_RDWR);
	case ESCAPE_unlink:
		return answer(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
	case ESCAPE_mkdir:
		return answer(syscall(SYS_mkdirat, AT_FDCWD, path, 0700));
	case ESCAPE_rename:
		return answer(
			syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, "/tmp/gantry-probe-2", 0));
	default:
		return answer(syscall(SYS_fchmodat, AT_FDCWD, path, 0777));
	}
}

static int try_socket(enum escape what)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fds[2];
	long r;

	switch (what) {
	case ESCAPE_socket_inet:
		return close_answer(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
	case ESCAPE_socket_unix:
		return close_answer(syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
	case ESCAPE_socketpair:
		r = syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, fds);
		if (r == 0) {
			close(fds[0]);
			close(fds[1]);
		}
		return answer(r);
	default:
		return answer(syscall(SYS_connect, 3, &addr, sizeof(addr)));
	}
}

static int try_process(enum escape what)
{
	char *const argv[] = { NULL };

	switch (what) {
	case ESCAPE_fork:
		return child_answer(syscall(SYS_fork));
	case ESCAPE_vfork:
		return child_answer(syscall(SYS_vfork));
	case ESCAPE_clone_process:
		return child_answer(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0));
	case ESCAPE_clone3:
		/* No arguments: where the call exists it says EINVAL, which is one too many. */
		return answer(syscall(SYS_clone3, NULL, 0));
	default:
		return answer(syscall(SYS_execve, "/bin/true", argv, argv));
	}
}

static int try_agent(enum escape what, pid_t agent)
{
	unsigned char cpus[128] = { 1 };
	struct rlimit limit = { 0, 0 };
	siginfo_t info = { .si_signo = SIGKILL, .si_code = SI_QUEUE };

	switch (what) {
	case ESCAPE_ptrace_agent:
		return answer(syscall(SYS_ptrace, PTRACE_SEIZE, agent, NULL, NULL));
	case ESCAPE_kill_agent:
		return answer(syscall(SYS_kill, agent, SIGKILL));
	case ESCAPE_tgkill_agent:
		return answer(syscall(SYS_tgkill, agent, agent, SIGKILL));
	case ESCAPE_sigqueue_agent:
		return answer(syscall(SYS_rt_sigqueueinfo, agent, SIGKILL, &info));
	case ESCAPE_pidfd_agent:
		return close_answer(syscall(SYS_pidfd_open, agent, 0));
	case ESCAPE_own_signals_of_agent:
		return answer(syscall(SYS_fcntl, 3, F_SETOWN, agent));
	case ESCAPE_affinity_of_agent:
		return answer(syscall(SYS_sched_setaffinity, agent, sizeof(cpus), cpus));
	default:
		return answer(syscall(SYS_prlimit64, agent, RLIMIT_CORE, &limit, NULL));
	}
}

static int try_memory(enum escape what, const struct target *t)
{
	char byte = 0, path[64];
	struct iovec here = { &byte, 1 };
	struct iovec there = { (void *)(uintptr_t)t->address, 1 };

	switch (what) {
	case ESCAPE_read_memory:
		return answer(syscall(SYS_process_vm_readv, t->victim, &here, 1, &there, 1, 0));
	case ESCAPE_write_memory:
		return answer(syscall(SYS_process_vm_writev, t->victim, &here, 1, &there, 1, 0));
	case ESCAPE_open_memory:
		(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->victim);
		return open_file(path, O_RDONLY);
	default:
		(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->agent);
		return open_file(path, O_RDONLY);
	}
}

static int try_privilege(enum escape what)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct all[2] = { { ~0u, ~0u, 0 }, { ~0u, ~0u, 0 } };
	struct rlimit core = { RLIM_INFINITY, RLIM_INFINITY };

	switch (what) {
	case ESCAPE_mount:
		return answer(syscall(SYS_mount, "none", "/mnt", "tmpfs", 0, NULL));
	case ESCAPE_umount:
		return answer(syscall(SYS_umount2, "/mnt", 0));
	case ESCAPE_chroot:
		return answer(syscall(SYS_chroot, "/tmp"));
	case ESCAPE_setuid:
		return answer(syscall(SYS_setuid, 0));
	case ESCAPE_setresuid:
		return answer(syscall(SYS_setresuid, 0, 0, 0));
	case ESCAPE_setgroups:
		return answer(syscall(SYS_setgroups, 0, NULL));
	case ESCAPE_capset:
		return answer(syscall(SYS_capset, &header, all));
	case ESCAPE_unshare:
		return answer(syscall(SYS_unshare, CLONE_NEWUSER));
	case ESCAPE_setns:
		return answer(syscall(SYS_setns, 0, CLONE_NEWNET));
	case ESCAPE_be_dumpable:
		return answer(syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0));
	default:
		return answer(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &core, NULL));
	}
}

static int try_kernel(enum escape what)
{
	char arg[256] = { 0 };

	switch (what) {
	case ESCAPE_bpf:
		return close_answer(syscall(SYS_bpf, 0, arg, sizeof(arg)));
	case ESCAPE_perf:
		return close_answer(syscall(SYS_perf_event_open, arg, 0, -1, -1, 0));
	case ESCAPE_io_uring:
		return close_answer(syscall(SYS_io_uring_setup, 1, arg));
	case ESCAPE_userfault:
		return close_answer(syscall(SYS_userfaultfd, 0));
	case ESCAPE_keyring:
		return answer(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING,
				      0, 0, 0));
	case ESCAPE_module:
		return answer(syscall(SYS_init_module, arg, sizeof(arg), ""));
	case ESCAPE_reboot:
		return answer(syscall(SYS_reboot, 0, 0, 0,
				      NULL)); /* the wrong magic: nothing would happen */
	default:
		return answer(syscall(SYS_ioctl, 3, FIONBIO, arg));
	}
}

static int try_one(enum escape what, const struct target *t)
{
	if (what <= ESCAPE_chmod)
		return try_file(what);
	if (what <= ESCAPE_connect)
		return try_socket(what);
	if (what <= ESCAPE_exec)
		return try_process(what);
	if (what <= ESCAPE_limits_of_agent)
		return try_agent(what, t->agent);
	if (what <= ESCAPE_open_agent_memory)
		return try_memory(what, t);
	if (what <= ESCAPE_allow_core)
		return try_privilege(what);
	return try_kernel(what);
}

KERNEL(escape)
{
	int32_t *errnos = ARG(int32_t, call, 0, ESCAPE_COUNT);
	struct target t;

	if (call->nargs != 4 || !errnos)
		return -EINVAL;
	t = (struct target){ (pid_t)call->args[1].u64, (pid_t)call->args[2].u64,
			     call->args[3].u64 };
	for (int i = 0; i < ESCAPE_COUNT; i++)
		errnos[i] = try_one((enum escape)i, &t);
	return 0;
}
