/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: looks at a virtual machine as its administrator would, and says what to do. */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "guest-shim/gantry.h"
#include "guest-shim/tool/commands.h"
#include "guest-shim/tool/look.h"

#define LOCKDOWN	"/sys/kernel/security"
#define BEATS_MS	2500
#define OPEN_TIMEOUT_NS INT64_C(10000000000)

enum state {
	OK,
	NOTE,
	FAIL
};

struct findings {
	bool failed;	     /* something keeps programs out */
	bool is_locked;	     /* the kernel lets nobody map a device */
	unsigned int usable; /* doors that programs of this user can use */
};

static void add(struct findings *f, enum state state, const char *name, const char *advice,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* @advice may be NULL. */
static void add(struct findings *f, enum state state, const char *name, const char *advice,
		const char *fmt, ...)
{
	static const char *const words[] = { "ok", "note", "FAIL" };
	va_list ap;

	printf("%-4s  %-12s  ", words[state], name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	if (advice)
		printf("      %-12s  -> %s\n", "", advice);
	f->failed |= state == FAIL;
}

/* ---- the kernel ---- */

/* "none [integrity] confidentiality": what is in brackets holds. */
static void check_lockdown(struct findings *f)
{
	char line[128];
	int r = look_line(LOCKDOWN, "lockdown", line, sizeof(line));

	if (r == -ENOENT) {
		add(f, OK, "lockdown", NULL, "this kernel has none, or securityfs is not mounted");
	} else if (r < 0) {
		add(f, NOTE, "lockdown", "mount -t securityfs securityfs " LOCKDOWN,
		    "not readable: %s", strerror(-r));
	} else if (strstr(line, "[none]")) {
		add(f, OK, "lockdown", NULL, "off");
	} else {
		f->is_locked = true;
		add(f, NOTE, "lockdown",
		    "use the vsock door, or turn lockdown off (Secure Boot, lockdown= on the kernel's command line)",
		    "on: %s; the memory of an ivshmem device cannot be mapped", line);
	}
}

static void check_group(struct findings *f)
{
	const struct group *group = getgrnam("gantry");

	if (!group) {
		add(f, NOTE, "group", "groupadd --system gantry",
		    "no group gantry: only root may use devices");
		return;
	}
	if (geteuid() == 0 || getegid() == group->gr_gid || group_member(group->gr_gid))
		add(f, OK, "group", NULL, "you may use what group gantry may use");
	else
		add(f, NOTE, "group", "usermod --append --groups gantry USER, then log in again",
		    "you are not in group gantry");
}

/* ---- ivshmem ---- */

static void check_driver(struct findings *f, const struct look_device *where)
{
	char path[320], target[256];
	ssize_t n;

	if (gantry_str_format(path, sizeof(path), "%s/driver", where->folder) < 0)
		return;
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0) {
		add(f, OK, where->name, NULL,
		    "no driver has it, and it needs none: programs poll, or are woken by a channel");
		return;
	}
	target[n] = '\0';
	add(f, OK, where->name, NULL, "driver %s has it",
	    strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
}

/* Does an agent serve it? Its heartbeat grows about once a second. */
static void check_beats(struct findings *f, const struct look_device *where,
			const struct look_desks *desks)
{
	struct timespec pause = { 0, 50 * 1000 * 1000 };
	uint32_t before = look_heartbeat(desks);
	uint32_t state = look_state(desks);

	if (state != GANTRY_DOORMEM_OPEN) {
		add(f, FAIL, where->name, "gantryctl vm show, on the host, says why",
		    "its door is %s: no program can attach", look_state_name(state));
		return;
	}
	for (int ms = 0; ms < BEATS_MS && look_heartbeat(desks) == before; ms += 50)
		(void)nanosleep(&pause, NULL);
	if (look_heartbeat(desks) == before) {
		add(f, FAIL, where->name,
		    "start gantryd on the host, then detach and attach the device",
		    "no agent answers: its heartbeat stands");
		return;
	}
	add(f, OK, where->name, NULL, "an agent serves it");
	f->usable++;
}

static void check_device(struct findings *f, const struct look_device *where)
{
	struct look_desks desks = { 0 };
	struct gantry_pcidev dev;

	check_driver(f, where);
	if (gantry_pcidev_open("", where->folder, &dev) < 0) {
		add(f, f->is_locked ? NOTE : FAIL, where->name, NULL, "%s", gantry_last_error());
		return;
	}
	add(f, OK, where->name, NULL, "%" PRIu64 " MiB at 0x%" PRIx64 "%s", dev.bytes >> 20,
	    dev.address,
	    dev.address >> 32 ? "" : ", below 4 GiB: not even root can map it write-back");
	if (look_desks_open(&dev, &desks) < 0)
		add(f, FAIL, where->name, NULL, "its desks cannot be mapped");
	else
		check_beats(f, where, &desks);
	look_desks_close(&desks);
	gantry_pcidev_close(&dev, false);
}

static void check_devices(struct findings *f, const char *root, int *ret_n)
{
	struct look_device devices[DEVICES_MAX];
	int n = look_devices(root, devices, DEVICES_MAX);

	*ret_n = n;
	if (n < 0)
		add(f, NOTE, "ivshmem", NULL, "%s: %s", root, strerror(-n));
	if (n == 0)
		add(f, NOTE, "ivshmem", "gantryctl vm attach, on the host",
		    "no device 1af4:1110 here; if one was attached: the guest needs hot-plug (acpiphp or pciehp)");
	if (n > 1)
		add(f, NOTE, "ivshmem", "GANTRY_DOOR=ivshmem:ADDRESS",
		    "%d devices: a program that names none is refused if several are agents'", n);
	for (int i = 0; i < n; i++)
		check_device(f, &devices[i]);
}

/* ---- vsock ---- */

static void check_vsock(struct findings *f, bool *ret_there)
{
	uint32_t cid;
	int r = look_vsock(&cid);

	*ret_there = r == 0;
	if (r == 0)
		add(f, OK, "vsock", NULL, "CID %" PRIu32, cid);
	else if (r == -EACCES)
		add(f, NOTE, "vsock", "chmod 0666 /dev/vsock", "/dev/vsock is not readable");
	else
		add(f, NOTE, "vsock",
		    "if the host attached one: modprobe vmw_vsock_virtio_transport",
		    "no vsock device here");
}

/* ---- a session ---- */

static void try_door(struct findings *f, const char *door)
{
	struct gantry_limits ask = { .call_timeout_ns = OPEN_TIMEOUT_NS };
	struct gantry_session *session;

	if (gantry_open(door, &ask, &session) < 0) {
		add(f, FAIL, door, NULL, "%s", gantry_last_error());
		return;
	}
	add(f, OK, door, NULL, "a session was opened and closed");
	gantry_close(session);
}

int command_doctor(const char *root, const char *door)
{
	const char *named = door ? door : getenv("GANTRY_DOOR");
	struct findings f = { 0 };
	bool has_vsock;
	int ndevices;

	add(&f, OK, "libgantry", NULL, "%s", gantry_version());
	check_lockdown(&f);
	check_group(&f);
	check_devices(&f, root, &ndevices);
	check_vsock(&f, &has_vsock);
	if (named)
		try_door(&f, named);
	else if (ndevices <= 0 && !has_vsock)
		add(&f, FAIL, "doors", "gantryctl vm attach DOMAIN --tenant T, on the host",
		    "this machine has neither an ivshmem device nor vsock");
	else if (f.usable == 1)
		try_door(&f, "ivshmem:");
	else if (has_vsock)
		try_door(&f, "vsock:");
	else if (f.is_locked)
		add(&f, FAIL, "doors",
		    "gantryctl vm attach DOMAIN --tenant T --transport vsock, on the host",
		    "lockdown leaves the vsock door, and this machine has none");
	return f.failed;
}
