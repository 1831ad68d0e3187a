/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/guard.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/str.h"

/* The leak checker of a sanitizer, where this is such a build: it traces its own process. */
extern void __lsan_do_leak_check(void) __attribute__((weak));

static bool traces_itself(void)
{
	return __lsan_do_leak_check != NULL;
}

/* What doors, folders, other users' processes, workers' namespaces and drivers take. */
static const int kept_caps[] = {
	CAP_CHOWN,	  CAP_DAC_OVERRIDE, CAP_FOWNER,
	CAP_KILL,	  CAP_SETGID,	    CAP_SETUID,
	CAP_SETPCAP,	  CAP_NET_ADMIN,    CAP_NET_BIND_SERVICE,
	CAP_IPC_LOCK,	  CAP_SYS_ADMIN,    CAP_SYS_NICE,
	CAP_SYS_RESOURCE,
};

static const int refused_calls[] = {
	/* other processes */
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(kcmp),
	/* the kernel itself */
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(reboot),
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
	SCMP_SYS(modify_ldt),
	SCMP_SYS(syslog),
	SCMP_SYS(acct),
	SCMP_SYS(swapon),
	SCMP_SYS(swapoff),
	/* file systems */
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(open_tree),
	SCMP_SYS(move_mount),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount),
	SCMP_SYS(fspick),
	SCMP_SYS(mount_setattr),
	SCMP_SYS(quotactl),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(fanotify_init),
	/* clock and names */
	SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime),
	SCMP_SYS(adjtimex),
	SCMP_SYS(clock_adjtime),
	SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname),
	/* wide surfaces that nobody here uses */
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(io_uring_register),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(keyctl),
};

static void note(struct gantry_guard *g, const char *what, int err)
{
	size_t len = strlen(g->missing);

	if (err != 0)
		(void)gantry_str_format(g->missing + len, sizeof(g->missing) - len, "%s%s: %s",
					len ? "; " : "", what, strerror(err)); /* for people */
}

static bool keeps(int cap)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(kept_caps); i++)
		if (kept_caps[i] == cap)
			return true;
	return cap == CAP_SYS_PTRACE && traces_itself();
}

/* From the bounding set too, or a child of root would have them back. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) < 0)
		return errno;
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
		uint32_t bit = 1u << (cap % 32);

		if (keeps(cap) || cap / 32 >= _LINUX_CAPABILITY_U32S_3)
			continue;
		data[cap / 32].effective &= ~bit;
		data[cap / 32].permitted &= ~bit;
		data[cap / 32].inheritable &= ~bit;
		/* Without CAP_SETPCAP there is nothing to take from a child either. */
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	}
	return syscall(SYS_capset, &header, data) < 0 ? errno : 0;
}

/* A process that becomes a worker of a tenant with a network of its own enters that one (net.h), and nothing else that is another's. */
static int refuse_namespaces(scmp_filter_ctx ctx)
{
	static const uint64_t others[] = { CLONE_NEWNS,	 CLONE_NEWCGROUP, CLONE_NEWUTS,
					   CLONE_NEWIPC, CLONE_NEWPID,	  CLONE_NEWTIME };
	int r;

	/* Without a type it may be any. */
	r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setns), 1,
			     SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, 0));
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(others) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setns), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, others[i], others[i]));
	/* An ordinary user's network is inside a user namespace. */
	if (r == 0 && geteuid() == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setns), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
	return r;
}

static int refuse_calls(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(refused_calls) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused_calls[i], 0);
	if (r == 0)
		r = refuse_namespaces(ctx);
	if (r == 0 && !traces_itself())
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ptrace), 0);
	if (r == 0)
		r = seccomp_load(ctx);
	if (ctx)
		seccomp_release(ctx);
	return -r;
}

void gantry_guard_self(struct gantry_guard *g)
{
	g->asked = true;
	g->missing[0] = '\0';
	note(g, "no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? errno : 0);
	note(g, "caps", drop_capabilities());
	note(g, "nodump", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? errno : 0);
	note(g, "seccomp", refuse_calls());
}
