/* SPDX-License-Identifier: Apache-2.0 */
/* What kernel "escape" tries, in this order: one list for the kernel and for the guest that prints the answers. */
#ifndef GANTRY_TESTS_SYSTEM_CONFINE_ESCAPE_H
#define GANTRY_TESTS_SYSTEM_CONFINE_ESCAPE_H

#define ESCAPES(X)              \
	X(open_to_write)        \
	X(open_to_create)       \
	X(open_device)          \
	X(unlink)               \
	X(mkdir)                \
	X(rename)               \
	X(chmod)                \
	X(socket_inet)          \
	X(socket_unix)          \
	X(socketpair)           \
	X(connect)              \
	X(fork)                 \
	X(vfork)                \
	X(clone_process)        \
	X(clone3)               \
	X(exec)                 \
	X(ptrace_agent)         \
	X(kill_agent)           \
	X(tgkill_agent)         \
	X(sigqueue_agent)       \
	X(pidfd_agent)          \
	X(own_signals_of_agent) \
	X(affinity_of_agent)    \
	X(limits_of_agent)      \
	X(read_memory)          \
	X(write_memory)         \
	X(open_memory)          \
	X(open_agent_memory)    \
	X(mount)                \
	X(umount)               \
	X(chroot)               \
	X(setuid)               \
	X(setresuid)            \
	X(setgroups)            \
	X(capset)               \
	X(unshare)              \
	X(setns)                \
	X(be_dumpable)          \
	X(allow_core)           \
	X(bpf)                  \
	X(perf)                 \
	X(io_uring)             \
	X(userfault)            \
	X(keyring)              \
	X(module)               \
	X(reboot)               \
	X(ioctl)

enum escape {
#define ESCAPE_ENUM(name) ESCAPE_##name,
	ESCAPES(ESCAPE_ENUM)
#undef ESCAPE_ENUM
	ESCAPE_COUNT
};

#endif
