/* SPDX-License-Identifier: Apache-2.0 */
/* status: the doors of this machine, and who sits at them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "guest-shim/gantry.h"
#include "guest-shim/tool/commands.h"
#include "guest-shim/tool/look.h"

static void print_desk(uint32_t index, const struct look_desk *d)
{
	printf("  desk %" PRIu32 ": pid %" PRIu32 ", uid %" PRIu32, index, d->pid, d->uid);
	if (d->life == LOOK_DEAD) {
		printf(", dead: cleared by gantry-guest reap, or by the next program that starts\n");
		return;
	}
	if (d->life == LOOK_UNKNOWN)
		printf(", of another sandbox");
	if (!d->is_served) {
		printf(", waits for the agent\n");
		return;
	}
	printf(", woken by %s, memory %s", look_wake_name(d->wake), look_mapping_name(d->mapping));
	if (d->read_mib_per_s || d->write_mib_per_s)
		printf(" (reads %" PRIu32 ", writes %" PRIu32 " MiB/s)", d->read_mib_per_s,
		       d->write_mib_per_s);
	printf("\n");
}

static void print_device(const struct look_device *where, const struct gantry_pcidev *dev,
			 const struct look_desks *desks)
{
	const struct gantry_doormem_header *h = &dev->header;
	uint32_t taken = 0;
	struct look_desk d;

	for (uint32_t i = 0; i < h->ndesks; i++) {
		look_desk(desks, i, &d);
		taken += d.life != LOOK_FREE;
	}
	printf("ivshmem %s: %s, %" PRIu64 " MiB, version %" PRIu32 ", epoch %" PRIu64 ", %" PRIu32
	       " of %" PRIu32 " desks taken\n",
	       where->name, look_state_name(look_state(desks)), h->bytes >> 20, h->version,
	       h->epoch, taken, h->ndesks);
	for (uint32_t i = 0; i < h->ndesks; i++) {
		look_desk(desks, i, &d);
		if (d.life != LOOK_FREE)
			print_desk(i, &d);
	}
}

static void show_device(const struct look_device *where)
{
	struct look_desks desks = { 0 };
	struct gantry_pcidev dev;

	if (gantry_pcidev_open("", where->folder, &dev) < 0) {
		printf("ivshmem %s: not usable: %s\n", where->name, gantry_last_error());
		return;
	}
	if (look_desks_open(&dev, &desks) < 0)
		printf("ivshmem %s: its desks cannot be mapped\n", where->name);
	else
		print_device(where, &dev, &desks);
	look_desks_close(&desks);
	gantry_pcidev_close(&dev, false);
}

int command_status(const char *root)
{
	struct look_device devices[DEVICES_MAX];
	int n = look_devices(root, devices, DEVICES_MAX);
	uint32_t cid;

	printf("libgantry %s\n", gantry_version());
	for (int i = 0; i < n; i++)
		show_device(&devices[i]);
	if (look_vsock(&cid) == 0)
		printf("vsock: CID %" PRIu32 "\n", cid);
	else if (n <= 0)
		printf("no door: neither an ivshmem device nor vsock; gantry-guest doctor says more\n");
	else
		return 0;
	return n <= 0;
}
