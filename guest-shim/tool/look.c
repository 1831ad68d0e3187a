/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/tool/look.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "proto/region.h"

int look_line(const char *folder, const char *name, char *line, int cap)
{
	char path[320];
	FILE *file;
	char *got;

	if (gantry_str_format(path, sizeof(path), "%s/%s", folder, name) < 0)
		return -ENAMETOOLONG;
	file = fopen(path, "re");
	if (!file)
		return -errno;
	got = fgets(line, cap, file);
	(void)fclose(file); /* nothing was written */
	if (!got)
		return -ENODATA;
	line[strcspn(line, "\n")] = '\0';
	return 0;
}

/* ---- devices ---- */

static bool is_ivshmem(const char *folder)
{
	char vendor[16], device[16];

	return look_line(folder, "vendor", vendor, sizeof(vendor)) == 0 &&
	       look_line(folder, "device", device, sizeof(device)) == 0 &&
	       strcmp(vendor, "0x1af4") == 0 && strcmp(device, "0x1110") == 0;
}

int look_devices(const char *root, struct look_device *ret_devices, unsigned int cap)
{
	const struct dirent *entry;
	unsigned int n = 0;
	DIR *dir = opendir(root);

	if (!dir)
		return -errno;
	while (n < cap && (entry = readdir(dir))) {
		struct look_device *d = &ret_devices[n];

		if (entry->d_name[0] != '.' &&
		    gantry_str_format(d->folder, sizeof(d->folder), "%s/%s", root, entry->d_name) ==
			    0 &&
		    gantry_str_copy(d->name, sizeof(d->name), entry->d_name) == 0 &&
		    is_ivshmem(d->folder))
			n++;
	}
	(void)closedir(dir); /* nothing was written */
	return (int)n;
}

/* ---- desks ---- */

int look_desks_open(const struct gantry_pcidev *dev, struct look_desks *ret_desks)
{
	const struct gantry_doormem_header *h = &dev->header;
	uint64_t bytes = h->desks_off + (uint64_t)h->ndesks * GANTRY_DOORMEM_DESK_BYTES;
	void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, dev->memory, 0);

	if (base == MAP_FAILED)
		return -errno;
	*ret_desks = (struct look_desks){ .dev = dev, .base = base, .bytes = bytes };
	return 0;
}

void look_desks_close(struct look_desks *desks)
{
	if (desks->base)
		(void)munmap((void *)desks->base,
			     desks->bytes); /* cannot fail for a mapping of ours */
	desks->base = NULL;
}

/* Whether somebody else holds the lock of desk @index. -errno where locks cannot be asked for. */
static int is_locked(const struct gantry_pcidev *dev, uint32_t index)
{
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = index,
		.l_len = 1,
	};

	if (fcntl(dev->memory, F_OFD_GETLK, &lock) < 0)
		return -errno;
	return lock.l_type != F_UNLCK;
}

void look_desk(const struct look_desks *desks, uint32_t index, struct look_desk *ret_desk)
{
	const struct gantry_doormem_desk *live =
		(const void *)(desks->base + desks->dev->header.desks_off +
			       (uint64_t)index * GANTRY_DOORMEM_DESK_BYTES);
	uint64_t generation = gantry_load_acquire(&live->generation);
	struct look_desk d = {
		.life = LOOK_FREE,
		.is_served = gantry_load_relaxed(&live->served) == generation,
		.pid = gantry_load_relaxed(&live->pid),
		.uid = gantry_load_relaxed(&live->uid),
		.wake = gantry_load_relaxed(&live->host_wake),
		.mapping = gantry_load_relaxed(&live->mapping),
		.read_mib_per_s = gantry_load_relaxed(&live->read_mib_per_s),
		.write_mib_per_s = gantry_load_relaxed(&live->write_mib_per_s),
	};
	int locked;

	if (generation & 1) {
		locked = is_locked(desks->dev, index);
		if (locked > 0)
			d.life = LOOK_ALIVE;
		else if (locked < 0 || gantry_load_relaxed(&live->lock_space) != desks->dev->space)
			d.life = LOOK_UNKNOWN;
		else
			d.life = LOOK_DEAD;
	}
	*ret_desk = d;
}

static const struct gantry_doormem_header *header_of(const struct look_desks *desks)
{
	return (const void *)desks->base;
}

uint32_t look_heartbeat(const struct look_desks *desks)
{
	return gantry_load_relaxed(&header_of(desks)->heartbeat);
}

uint32_t look_state(const struct look_desks *desks)
{
	return gantry_load_relaxed(&header_of(desks)->state);
}

/* ---- words ---- */

static const char *word(const char *const *words, uint32_t nwords, uint32_t number)
{
	return number < nwords ? words[number] : "of a kind this tool does not know";
}

const char *look_state_name(uint32_t state)
{
	static const char *const words[] = { "absent", "open", "draining", "closed" };

	return word(words, 4, state);
}

const char *look_wake_name(uint32_t wake)
{
	static const char *const words[] = { "polling", "interrupts", "a byte on a channel" };

	return word(words, 3, wake);
}

const char *look_mapping_name(uint32_t mapping)
{
	static const char *const words[] = { "not said", "uncached", "write-combining",
					     "write-back", "uncached, by vfio" };

	return word(words, 5, mapping);
}

/* ---- vsock ---- */

int look_vsock(uint32_t *ret_cid)
{
	_cleanup_close_ int fd = open("/dev/vsock", O_RDONLY | O_CLOEXEC);
	unsigned int cid;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) < 0)
		return -errno;
	/* Without a device of the hypervisor's the module has no number, or that of loopback. */
	if (cid == VMADDR_CID_ANY || cid <= VMADDR_CID_HOST)
		return -ENOENT;
	*ret_cid = cid;
	return 0;
}
