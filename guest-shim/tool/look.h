/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gantry-guest sees of the doors of its machine: ivshmem devices, the processes at their desks, and vsock.
 *
 * Trust: the devices' contents are the host's; numbers are copied once and only printed or compared.
 * Threads: one. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_TOOL_LOOK_H
#define GANTRY_GUEST_SHIM_TOOL_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-shim/pcidev.h"

/* A device that may be an agent's: its folder, and the folder's own name, which is a PCI address. */
struct look_device {
	char folder[256];
	char name[64];
};

/* The ivshmem devices below @root, at most @cap. Returns how many, or -errno where @root cannot be read. */
int look_devices(const char *root, struct look_device *ret_devices, unsigned int cap);

enum look_life {
	LOOK_FREE,
	LOOK_ALIVE,
	LOOK_DEAD,    /* claimed, and nobody holds its lock */
	LOOK_UNKNOWN, /* claimed where its lock cannot be seen: in a sandbox with files of its own */
};

struct look_desk {
	enum look_life life;
	bool is_served;
	uint32_t pid, uid, wake, mapping, read_mib_per_s, write_mib_per_s;
};

/* The desks of a device that gantry_pcidev_open() opened, mapped to be read. */
struct look_desks {
	const struct gantry_pcidev *dev;
	const uint8_t *base;
	uint64_t bytes;
};

/* -errno of mmap(). The caller ends it with look_desks_close(). */
int look_desks_open(const struct gantry_pcidev *dev, struct look_desks *ret_desks);
void look_desks_close(struct look_desks *desks);
void look_desk(const struct look_desks *desks, uint32_t index, struct look_desk *ret_desk);
uint32_t look_heartbeat(const struct look_desks *desks);
uint32_t look_state(const struct look_desks *desks);

/* Words for numbers of doormem.h. */
const char *look_state_name(uint32_t state);
const char *look_wake_name(uint32_t wake);
const char *look_mapping_name(uint32_t mapping);

/* This machine's vsock CID. -ENOENT: it has no vsock device. */
int look_vsock(uint32_t *ret_cid);

/* The first line of a small file without its end. -errno, and -ENAMETOOLONG where it has more. */
int look_line(const char *folder, const char *name, char *line, int cap);

#endif
