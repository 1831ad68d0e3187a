/* SPDX-License-Identifier: Apache-2.0 */
/* reap and watch: desks of dead processes; permit: what udev has done to a new device. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/desk.h"
#include "guest-shim/gantry.h"
#include "guest-shim/tool/commands.h"
#include "guest-shim/tool/look.h"

/* ---- desks of dead processes ---- */

static unsigned int count_dead(const struct gantry_pcidev *dev)
{
	struct look_desks desks;
	struct look_desk d;
	unsigned int dead = 0;

	if (look_desks_open(dev, &desks) < 0)
		return 0;
	for (uint32_t i = 0; i < dev->header.ndesks; i++) {
		look_desk(&desks, i, &d);
		dead += d.life == LOOK_DEAD;
	}
	look_desks_close(&desks);
	return dead;
}

/* Who takes a desk clears those of the dead: so this takes one for a moment, but only where some are dead. */
static int reap_device(const struct look_device *where)
{
	struct gantry_pcidev dev;
	struct gantry_desk desk;
	unsigned int dead;
	int r = gantry_pcidev_open("", where->folder, &dev);

	if (r < 0)
		return r;
	dead = count_dead(&dev);
	if (dead > 0) {
		r = gantry_desk_open(&dev, GANTRY_WAKE_POLL, GANTRY_DOORMEM_NO_VECTOR, &desk);
		if (r == 0) {
			gantry_desk_close(&desk, false);
			printf("%s: cleared %u desks of dead processes\n", where->name, dead);
			(void)fflush(stdout); /* a log: nobody to tell */
		}
	}
	gantry_pcidev_close(&dev, false);
	return r;
}

static int reap_all(const char *root)
{
	struct look_device devices[DEVICES_MAX];
	int n = look_devices(root, devices, DEVICES_MAX);
	int failures = 0;

	for (int i = 0; i < n; i++)
		failures += reap_device(&devices[i]) < 0;
	return failures;
}

int command_reap(const char *root)
{
	if (reap_all(root) == 0)
		return 0;
	fprintf(stderr, "gantry-guest: %s\n", gantry_last_error());
	return 1;
}

int command_watch(const char *root, int interval_ms)
{
	struct timespec pause = { interval_ms / 1000, interval_ms % 1000 * 1000000L };

	for (;;) {
		(void)reap_all(root); /* a device that cannot be used now may be usable later */
		(void)nanosleep(&pause, NULL);
	}
}

/* ---- permissions ---- */

static int permit_file(const char *folder, const char *name, gid_t group)
{
	char path[320];

	if (gantry_str_format(path, sizeof(path), "%s/%s", folder, name) < 0)
		return -ENAMETOOLONG;
	if (chown(path, 0, group) < 0 || chmod(path, 0660) < 0)
		return errno == ENOENT ? 0 : -errno; /* not every device has a resource2_wc */
	return 0;
}

static int enable(const char *folder)
{
	char path[320], state[16];
	_cleanup_close_ int fd = -EBADF;

	if (look_line(folder, "enable", state, sizeof(state)) < 0 || strcmp(state, "0") != 0)
		return 0;
	if (gantry_str_format(path, sizeof(path), "%s/enable", folder) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* EBUSY: a driver has it, which enabled it. */
	if (fd < 0 || (write(fd, "1", 1) != 1 && errno != EBUSY))
		return -errno;
	return 0;
}

int command_permit(const char *folder)
{
	static const char *const names[] = { "resource0", "resource2", "resource2_wc" };
	const struct group *group = getgrnam("gantry");
	int r = enable(folder);

	if (r < 0)
		fprintf(stderr, "gantry-guest: enabling %s: %s\n", folder, strerror(-r));
	if (!group) {
		fprintf(stderr,
			"gantry-guest: there is no group gantry: groupadd --system gantry\n");
		return 1;
	}
	for (unsigned int i = 0; i < 3; i++) {
		int s = permit_file(folder, names[i], group->gr_gid);

		if (s < 0)
			fprintf(stderr, "gantry-guest: %s/%s: %s\n", folder, names[i],
				strerror(-s));
		r = r < 0 ? r : s;
	}
	return r < 0;
}
