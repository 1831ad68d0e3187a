/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"

static void note(struct gantry_confine_report *r, const char *what, int err)
{
	if (err == 0 && r->nheld < GANTRY_CONFINE_MAX)
		r->held[r->nheld++] = what;
	if (err != 0 && r->nmissing < GANTRY_CONFINE_MAX)
		(void)snprintf(r->missing[r->nmissing++], sizeof(r->missing[0]), "%s: %s", what,
			       strerror(err));
}

static int write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = (ssize_t)strlen(text);

	return fd >= 0 && write(fd, text, (size_t)len) == len ? 0 : -errno;
}

/* An ordinary user may have a namespace only inside a user namespace; ids stay what they are outside. */
static int private_net_as_user(void)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return errno;
	/* Without maps the ids only look different from inside. */
	(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	(void)write_file("/proc/self/uid_map", map);
	(void)write_file("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	(void)write_file("/proc/self/gid_map", map);
	return 0;
}

static int private_net(void)
{
	if (unshare(CLONE_NEWNET) == 0)
		return 0;
	return errno == EPERM ? private_net_as_user() : errno;
}

static int drop_user(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return errno;
	return 0;
}

/* Root without capabilities still owns root's files, and may no longer read other processes' memory. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	/* The bounding set counts at exec only, which the filter refuses: what cannot be dropped is no loss. */
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	return syscall(SYS_capset, &header, none) < 0 ? errno : 0;
}

static void give_up_rights(uid_t uid, gid_t gid, struct gantry_confine_report *report)
{
	struct rlimit none = { 0, 0 };

	if (uid != 0)
		note(report, "uid", drop_user(uid, gid));
	note(report, "caps", drop_capabilities());
	/* After the user changed: setresuid() makes a process dumpable by its rules again. */
	note(report, "nodump",
	     prctl(PR_SET_DUMPABLE, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0 ? errno : 0);
	note(report, "no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? errno : 0);
}

void gantry_confine_early(uid_t uid, gid_t gid, bool has_net, struct gantry_confine_report *report)
{
	note(report, "netns", has_net ? 0 : private_net());
	give_up_rights(uid, gid, report);
}

/* What computing takes, wherever it is: open descriptors, memory, threads of one's own, time, questions about oneself. */
static const int allowed_to_all[] = {
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(fstatfs),
	SCMP_SYS(lseek),
	SCMP_SYS(mmap),
	SCMP_SYS(mprotect),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(getcpu),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(gettid),
	SCMP_SYS(getpid),
	SCMP_SYS(getrusage),
	SCMP_SYS(sysinfo),
	SCMP_SYS(uname),
	SCMP_SYS(getrandom),
};

/*
 * What device threads, their libraries and the control thread need once devices are open. Files can be opened for
 * reading only (kernel modules that are installed later); there is no way to a socket, another program or another
 * process. Beside allowed_to_all.
 */
static const int allowed_to_workers[] = {
	SCMP_SYS(pread64),    SCMP_SYS(dup),	   SCMP_SYS(sendmsg),	 SCMP_SYS(recvmsg),
	SCMP_SYS(poll),	      SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
	SCMP_SYS(newfstatat), SCMP_SYS(statx),	   SCMP_SYS(getdents64), SCMP_SYS(readlink),
	SCMP_SYS(readlinkat), SCMP_SYS(access),	   SCMP_SYS(faccessat),	 SCMP_SYS(faccessat2),
	SCMP_SYS(getcwd),     SCMP_SYS(ftruncate), SCMP_SYS(fallocate),	 SCMP_SYS(getuid),
	SCMP_SYS(geteuid),    SCMP_SYS(getgid),	   SCMP_SYS(getegid),
};

/*
 * What the user's half of a vendor's driver asks of the kernel's while it makes streams, memory and contexts, and of
 * the kernel for the threads it starts. No new socket: a server such as MPS was connected to when the device was opened.
 */
static const int allowed_to_drivers[] = {
	SCMP_SYS(ioctl),
	SCMP_SYS(ppoll),
	SCMP_SYS(pselect6),
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendto),
	SCMP_SYS(eventfd2),
	SCMP_SYS(pipe2),
	SCMP_SYS(pwrite64),
	SCMP_SYS(dup2),
	SCMP_SYS(dup3),
	SCMP_SYS(mincore),
	SCMP_SYS(mlock),
	SCMP_SYS(munlock),
	SCMP_SYS(msync),
	SCMP_SYS(mbind),
	SCMP_SYS(get_mempolicy),
	SCMP_SYS(set_mempolicy),
	SCMP_SYS(sched_getparam),
	SCMP_SYS(sched_getscheduler),
	SCMP_SYS(sched_get_priority_max),
	SCMP_SYS(sched_get_priority_min),
	SCMP_SYS(getppid),
	SCMP_SYS(membarrier),
	SCMP_SYS(timer_create),
	SCMP_SYS(timer_settime),
	SCMP_SYS(timer_delete),
};

/* No F_SETOWN or F_SETSIG: they make the kernel send any signal to any process of the same user. */
static const unsigned int fcntl_allowed[] = {
	F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_ADD_SEALS, F_GET_SEALS,
};

#define CLONE_NEW_ANY                                                                              \
	(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
	 CLONE_NEWCGROUP)

static int allow(scmp_filter_ctx ctx, const int *calls, size_t ncalls)
{
	int r = 0;

	for (size_t i = 0; i < ncalls && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	return r;
}

#define ALLOW(ctx, calls) allow(ctx, calls, GANTRY_ARRAY_SIZE(calls))

static int add_common_rules(scmp_filter_ctx ctx)
{
	int r = ALLOW(ctx, allowed_to_all);

	if (r == 0) /* threads only: a lane's helper or a compiler's, never a process */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEW_ANY,
					     CLONE_THREAD));
	if (r ==
	    0) /* its arguments are in memory, out of the filter's sight: glibc falls back to clone */
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (r == 0) /* abort() and friends: own threads only */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
	if (r == 0) /* own limits may be read, nobody's set */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
				     SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0));
	return r;
}

static int add_rules(scmp_filter_ctx ctx)
{
	int r = add_common_rules(ctx);

	if (r == 0)
		r = ALLOW(ctx, allowed_to_workers);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(fcntl_allowed) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, fcntl_allowed[i]));
	if (r == 0) /* reading only */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC,
					     O_RDONLY));
	if (r ==
	    0) /* the machine's huge pages are nobody's to take, and memory on them not to be handed over */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(memfd_create), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, MFD_HUGETLB, 0));
	/*
	 * Nothing is made. PoCL asks for its folders again with each program, all of them from the root on, and gives up at any
	 * other answer; its builder has made them.
	 */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EEXIST), SCMP_SYS(mkdir), 0);
	if (r == 0) /* the calling thread only */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), 1,
				     SCMP_A0(SCMP_CMP_EQ, 0));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
				     SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
	return r;
}

static const int allowed_to_compile[] = {
	SCMP_SYS(sendto), /* the answer */
	SCMP_SYS(pause),
	/* The root, see forge.c. NVRTC of CUDA 13.0 reads beyond its own buffer where it is refused. */
	SCMP_SYS(getcwd),
};

/* A crash is a signal of its own. */
static int add_compiler_rules(scmp_filter_ctx ctx)
{
	int r = add_common_rules(ctx);

	return r < 0 ? r : ALLOW(ctx, allowed_to_compile);
}

void gantry_confine_compiler(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));

	/* Without new privileges: the worker said so before, where it could; a filter needs it. */
	if (!ctx || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || add_compiler_rules(ctx) < 0 ||
	    seccomp_load(ctx) < 0)
		_exit(5); /* no text is compiled where it could open files */
	seccomp_release(ctx);
}

static const int allowed_to_relay[] = {
	SCMP_SYS(poll),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvmsg),
};

/* Questions about open descriptors: whether a memfd is sealed, and how large it is; and pages into one. */
static int add_mover_rules(scmp_filter_ctx ctx)
{
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				 SCMP_A1(SCMP_CMP_EQ, F_GET_SEALS));

	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(pwrite64), 0);
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(pwritev), 0);
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
				     SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH));
	return r;
}

/* Bytes come and go by what is open; nothing else but what @more adds. */
static void filter_to_messages(struct gantry_confine_report *report,
			       int (*more)(scmp_filter_ctx ctx))
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? add_common_rules(ctx) : -ENOMEM;

	if (r == 0)
		r = ALLOW(ctx, allowed_to_relay);
	if (r == 0 && more)
		r = more(ctx);
	if (r == 0)
		r = seccomp_load(ctx);
	if (ctx)
		seccomp_release(ctx);
	note(report, "seccomp", -r);
}

const char *gantry_confine_relay(uid_t uid, gid_t gid)
{
	static struct gantry_confine_report report;

	give_up_rights(uid, gid, &report);
	filter_to_messages(&report, NULL);
	return report.nmissing ? report.missing[0] : NULL;
}

const char *gantry_confine_mover(uid_t uid, gid_t gid)
{
	static struct gantry_confine_report report;

	give_up_rights(uid, gid, &report);
	filter_to_messages(&report, add_mover_rules);
	return report.nmissing ? report.missing[0] : NULL;
}

const char *gantry_confine_loader(uid_t uid, gid_t gid)
{
	static struct gantry_confine_report report;

	give_up_rights(uid, gid, &report);
	/* Its own descriptors are to be opened again by their names in /proc. */
	note(&report, "dumpable", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? errno : 0);
	return report.nmissing ? report.missing[0] : NULL;
}

const char *gantry_confine_loaded(void)
{
	static struct gantry_confine_report report;

	note(&report, "dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? errno : 0);
	filter_to_messages(&report, NULL);
	return report.nmissing ? report.missing[0] : NULL;
}

static int add_driver_rules(scmp_filter_ctx ctx)
{
	int r = ALLOW(ctx, allowed_to_drivers);

	if (r == 0) /* device files: what exists, never a new file */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, O_CREAT | O_TRUNC, 0));
	return r;
}

static const int allowed_to_communicators[] = {
	SCMP_SYS(bind),
	SCMP_SYS(listen),
	SCMP_SYS(accept),
	SCMP_SYS(accept4),
	SCMP_SYS(connect),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockopt),
	SCMP_SYS(shutdown),
	SCMP_SYS(sendto),
	SCMP_SYS(recvfrom),
	SCMP_SYS(pipe),
	SCMP_SYS(pipe2),
	/* Questions, as libraries of an older C library's days ask them. */
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(statfs),
	SCMP_SYS(select),
};

/*
 * Workers of one tenant speak with each other in a network that is theirs alone: TCP, descriptors of device memory by datagrams between
 * abstract names, and the list of that network's interfaces. No Unix stream, so no door. A service of the host's that takes datagrams by a name
 * in the file system can be written to: a filter does not see names (SECURITY.md).
 */
static int add_communicator_rules(scmp_filter_ctx ctx)
{
	static const struct {
		int family, type;
	} sockets[] = { { AF_INET, SOCK_STREAM },
			{ AF_UNIX, SOCK_DGRAM },
			{ AF_NETLINK, SOCK_RAW },
			{ AF_NETLINK, SOCK_DGRAM } };
	int r = ALLOW(ctx, allowed_to_communicators);

	if (r == 0) /* its own descriptors, as many as it may have */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
				     SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A1(SCMP_CMP_EQ, RLIMIT_NOFILE));
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(sockets) && r == 0; i++)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
			SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)sockets[i].family),
			SCMP_A1(SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK),
				(scmp_datum_t)sockets[i].type),
			sockets[i].family == AF_INET
				? SCMP_A2(SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)IPPROTO_TCP, 0)
				: SCMP_A2(SCMP_CMP_EQ, 0)); /* of AF_NETLINK: NETLINK_ROUTE */
	return r;
}

void gantry_confine_late(bool driver, bool communicators, struct gantry_confine_report *report)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = -ENOMEM;

	if (ctx) {
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
		if (r == 0)
			r = add_rules(ctx);
		if (r == 0 && driver)
			r = add_driver_rules(ctx);
		if (r == 0 && communicators)
			r = add_communicator_rules(ctx);
		if (r == 0)
			r = seccomp_load(ctx);
		seccomp_release(ctx);
	}
	note(report, "seccomp", -r);
	if (communicators && geteuid() == 0 && report->nmissing < GANTRY_CONFINE_MAX)
		(void)snprintf(
			report->missing[report->nmissing++], sizeof(report->missing[0]),
			"sockets: root's that take datagrams can be written to: name a worker_user");
	if (driver && geteuid() == 0 && report->nmissing < GANTRY_CONFINE_MAX)
		(void)snprintf(
			report->missing[report->nmissing++], sizeof(report->missing[0]),
			"files: root's can be written, for the device's driver: name a worker_user");
}
