/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/pcidev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "guest-shim/gantry.h"
#include "guest-shim/sockets.h"
#include "proto/region.h"
#include "proto/segment.h"

#define VENDOR	       0x1af4u
#define DEVICE	       0x1110u
#define DOORBELL_INDEX 3	   /* the register at byte 12 of BAR 0 */
#define BAR_UNSET      0x20000000u /* Linux's IORESOURCE_UNSET */
#define SMALL_FILE     4096u

static const char how_to_permit[] =
	"install the guest package's udev rule and join its group, or run as root";

/* ---- small files ---- */

static int path_of(const char *folder, const char *name, char *path, size_t cap)
{
	return gantry_str_format(path, cap, "%s/%s", folder, name) < 0 ? -ENAMETOOLONG : 0;
}

static int read_number(const char *folder, const char *name, uint64_t *ret_number)
{
	_cleanup_free_ char *text = NULL;
	char path[320], *end;
	uint64_t number;
	int r = path_of(folder, name, path, sizeof(path));

	if (r == 0)
		r = gantry_file_read(path, SMALL_FILE, &text, NULL);
	if (r < 0)
		return r;
	errno = 0;
	number = strtoull(text, &end, 0);
	if (errno || end == text)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

/* BAR 2 is the third line of resource: start, end, flags. 0: it was given no address. */
static int read_bar(const char *folder, uint64_t *ret_address)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long start, end, flags;
	char path[320], *line;
	int r = path_of(folder, "resource", path, sizeof(path));

	if (r == 0)
		r = gantry_file_read(path, SMALL_FILE, &text, NULL);
	if (r < 0)
		return r;
	line = text;
	for (int i = 0; i < 2 && line; i++) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (!line || sscanf(line, "%llx %llx %llx", &start, &end, &flags) != 3)
		return -EINVAL;
	*ret_address = flags & BAR_UNSET ? 0 : start;
	return 0;
}

int gantry_pcidev_file(const struct gantry_pcidev *dev, const char *name)
{
	char path[320];
	int r = path_of(dev->folder, name, path, sizeof(path));

	if (r < 0)
		return r;
	return gantry_open_above_stdio(path);
}

/* ---- one device ---- */

/* A device that nobody enabled does not answer. One that was attached while the machine ran is not enabled. */
static int enable(const char *folder)
{
	char path[320];
	uint64_t enabled;
	int r = read_number(folder, "enable", &enabled);
	int fd;

	if (r == -ENOENT || (r == 0 && enabled > 0))
		return 0;
	r = path_of(folder, "enable", path, sizeof(path));
	fd = r < 0 ? r : open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		r = r < 0 ? r : -errno;
	else
		r = write(fd, "1", 1) == 1 ? 0 : -errno;
	gantry_fd_close(fd);
	if (r == 0 || r == -EBUSY) /* a driver has it, vfio-pci for one, whose affair it is */
		return 0;
	return gantry_fail(GANTRY_E_DENIED, "%s is not enabled, which root does: echo 1 > %s",
			   folder, path);
}

/* What may be mapped without fear that it shrinks: a BAR, or a sealed file. */
static int check_kind(struct gantry_pcidev *dev)
{
	struct statfs fs;

	dev->is_sysfs = fstatfs(dev->memory, &fs) == 0 && fs.f_type == SYSFS_MAGIC;
	if (dev->is_sysfs || gantry_memfd_check(dev->memory, 1) == 0)
		return 0;
	return gantry_fail(GANTRY_E_PROTOCOL,
			   "%.100s/resource2 is neither a PCI device's memory nor a sealed file",
			   dev->folder);
}

static int open_memory(struct gantry_pcidev *dev)
{
	struct stat st;
	int fd = gantry_pcidev_file(dev, "resource2");

	if (fd == -EACCES || fd == -EPERM)
		return gantry_fail(GANTRY_E_DENIED, "no permission for %.80s/resource2: %s",
				   dev->folder, how_to_permit);
	if (fd == -ENOENT)
		return gantry_fail(GANTRY_E_NO_AGENT, "there is no device with memory at %.100s",
				   dev->folder);
	if (fd < 0)
		return gantry_fail_errno(GANTRY_E_NO_AGENT, -fd, "opening the device's resource2");
	dev->memory = fd;
	if (fstat(fd, &st) < 0)
		return gantry_fail_errno(GANTRY_E_NO_AGENT, errno, "the device's resource2");
	dev->space = st.st_dev;
	dev->bytes = (uint64_t)st.st_size;
	return check_kind(dev);
}

static int cannot_map(const struct gantry_pcidev *dev, int errnum)
{
	if (errnum == EPERM)
		return gantry_fail(
			GANTRY_E_DENIED,
			"the guest's kernel forbids to map %.80s (lockdown, as with Secure Boot): "
			"use the vsock door",
			dev->folder);
	if (errnum == EINVAL)
		return gantry_fail(
			GANTRY_E_NO_AGENT,
			"%.80s cannot be mapped: a driver has the device, or it has no room "
			"in the guest's address space",
			dev->folder);
	return gantry_fail_errno(GANTRY_E_NO_AGENT, errnum, "mapping the device's memory");
}

static int bad_header(const char *what)
{
	return gantry_fail(GANTRY_E_PROTOCOL, "the device's memory makes no sense: %s", what);
}

static int check_header(const struct gantry_pcidev *dev, const struct gantry_doormem_header *h)
{
	uint64_t desks_bytes = (uint64_t)h->ndesks * GANTRY_DOORMEM_DESK_BYTES;

	if (h->version != GANTRY_DOORMEM_VERSION)
		return gantry_fail(
			GANTRY_E_VERSION,
			"the agent's ivshmem door has version %u, this library speaks %u: "
			"update the older one",
			h->version, GANTRY_DOORMEM_VERSION);
	if (h->bytes != dev->bytes || h->bytes < GANTRY_DOORMEM_MIN_BYTES ||
	    h->bytes > GANTRY_DOORMEM_MAX_BYTES)
		return bad_header("its size");
	if (h->ndesks == 0 || h->ndesks > GANTRY_DOORMEM_DESKS)
		return bad_header("the number of desks");
	if (h->data_off % GANTRY_SEGMENT_HEAP_ALIGN || h->data_off == 0 || h->data_off >= h->bytes)
		return bad_header("where segments begin");
	if (h->desks_off < GANTRY_PAGE || h->desks_off % GANTRY_PAGE ||
	    !gantry_range_inside(h->desks_off, desks_bytes, h->data_off))
		return bad_header("where desks lie");
	if (h->nvectors == 0 || h->nvectors > GANTRY_DOORMEM_MAX_VECTORS)
		return bad_header("the number of doorbells");
	if (h->host_peer > UINT16_MAX)
		return bad_header("whose doorbells those are");
	return 0;
}

static int read_header(struct gantry_pcidev *dev)
{
	struct gantry_doormem_header h;
	void *page;

	if (dev->bytes < GANTRY_PAGE)
		return bad_header("its size");
	page = mmap(NULL, GANTRY_PAGE, PROT_READ, MAP_SHARED, dev->memory, 0);
	if (page == MAP_FAILED)
		return cannot_map(dev, errno);
	gantry_region_copy_out(&h, page, sizeof(h));
	(void)munmap(page, GANTRY_PAGE); /* cannot fail for a mapping of ours */
	if (h.magic != GANTRY_DOORMEM_MAGIC)
		return gantry_fail(GANTRY_E_NO_AGENT, "%.100s is an ivshmem device, but no agent's",
				   dev->folder);
	dev->header = h;
	return check_header(dev, &h);
}

/* ---- the doorbell ---- */

static int open_doorbell_socket(struct gantry_pcidev *dev)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int sock = -EBADF;

	if (path_of(dev->folder, "doorbell", addr.sun_path, sizeof(addr.sun_path)) < 0)
		return -ENAMETOOLONG;
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0 || connect(sock, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	dev->doorbell_socket = GANTRY_TAKE_FD(sock);
	return 0;
}

static int open_doorbell(struct gantry_pcidev *dev)
{
	_cleanup_close_ int fd = gantry_pcidev_file(dev, "resource0");
	void *page;

	if (fd < 0)
		return open_doorbell_socket(dev) == 0
			       ? 0
			       : gantry_fail(fd == -EACCES || fd == -EPERM ? GANTRY_E_DENIED
									   : GANTRY_E_NO_AGENT,
					     "no way to the doorbell in %.80s/resource0: %s",
					     dev->folder, how_to_permit);
	page = mmap(NULL, GANTRY_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return cannot_map(dev, errno);
	(void)madvise(page, GANTRY_PAGE, MADV_DONTFORK); /* a child would only ring in vain */
	dev->registers = page;
	dev->doorbell = (volatile uint32_t *)page + DOORBELL_INDEX;
	return 0;
}

void gantry_pcidev_ring_socket(const struct gantry_pcidev *dev, uint32_t value)
{
	ssize_t n = send(dev->doorbell_socket, &value, sizeof(value), MSG_NOSIGNAL);

	(void)n; /* full: it rings already; closed: the door says so */
}

/* ---- finding it ---- */

static int open_folder(const char *folder, struct gantry_pcidev *ret_dev)
{
	struct gantry_pcidev dev = { .memory = -EBADF, .doorbell_socket = -EBADF };
	int r;

	if (gantry_str_copy(dev.folder, sizeof(dev.folder), folder) < 0)
		return gantry_fail(GANTRY_E_ARG, "a device's path has less than %zu bytes",
				   sizeof(dev.folder));
	if (read_bar(folder, &dev.address) == 0 && dev.address == 0)
		return gantry_fail(
			GANTRY_E_NO_AGENT,
			"the guest's kernel found no room for the memory of %.60s: on q35 give "
			"the root port a pref64-reserve, or a smaller device",
			folder);
	r = enable(folder);
	if (r == 0)
		r = open_memory(&dev);
	if (r == 0)
		r = read_header(&dev);
	if (r == 0)
		r = open_doorbell(&dev);
	if (r < 0) {
		gantry_pcidev_close(&dev, false);
		return r;
	}
	*ret_dev = dev;
	return 0;
}

static bool is_ivshmem(const char *folder)
{
	uint64_t vendor, device;

	return read_number(folder, "vendor", &vendor) == 0 && vendor == VENDOR &&
	       read_number(folder, "device", &device) == 0 && device == DEVICE;
}

struct search {
	struct gantry_pcidev found;
	unsigned int nfound;
	unsigned int nrefused;
	int refusal;	/* of one that is there but could not be used */
	char why[256];	/* its sentence */
	char names[96]; /* of those found */
};

static void consider(struct search *s, const char *root, const char *name)
{
	struct gantry_pcidev dev;
	char folder[256];
	int r;

	if (gantry_str_format(folder, sizeof(folder), "%s/%s", root, name) < 0 ||
	    !is_ivshmem(folder))
		return;
	r = open_folder(folder, &dev);
	if (r < 0) {
		s->nrefused++;
		s->refusal = r;
		(void)gantry_str_copy(s->why, sizeof(s->why), gantry_last_error());
		return;
	}
	if (s->nfound > 0) {
		(void)strncat(s->names, " ", sizeof(s->names) - strlen(s->names) - 1);
		gantry_pcidev_close(&dev, false);
	} else {
		s->found = dev;
	}
	(void)strncat(s->names, name, sizeof(s->names) - strlen(s->names) - 1);
	s->nfound++;
}

static int search_root(const char *root, struct search *s)
{
	DIR *dir = opendir(root);
	const struct dirent *entry;

	if (!dir)
		return gantry_fail_errno(GANTRY_E_NO_AGENT, errno, root);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			consider(s, root, entry->d_name);
	(void)closedir(dir); /* nothing was written */
	return 0;
}

static int find(const char *root, struct gantry_pcidev *ret_dev)
{
	struct search s = { 0 };
	int r = search_root(root, &s);

	if (r < 0)
		return r;
	if (s.nfound == 1) {
		*ret_dev = s.found;
		return 0;
	}
	if (s.nfound > 1) {
		gantry_pcidev_close(&s.found, false);
		return gantry_fail(
			GANTRY_E_ARG,
			"this machine has %u devices of agents: name one of %s, as in ivshmem:%.12s",
			s.nfound, s.names, s.names);
	}
	if (s.nrefused > 0)
		return gantry_fail(s.refusal, "%s", s.why);
	return gantry_fail(
		GANTRY_E_NO_AGENT,
		"this machine has no ivshmem device: the host's administrator attaches one "
		"(gantryctl vm attach)");
}

int gantry_pcidev_open(const char *root, const char *where, struct gantry_pcidev *ret_dev)
{
	char folder[256];

	if (!*where)
		return find(root, ret_dev);
	if (*where == '/')
		return open_folder(where, ret_dev);
	if (strchr(where, '/') ||
	    gantry_str_format(folder, sizeof(folder), "%s/%s", root, where) < 0)
		return gantry_fail(GANTRY_E_ARG, "%.100s is no PCI address, as in 0000:00:05.0",
				   where);
	return open_folder(folder, ret_dev);
}

void gantry_pcidev_close(struct gantry_pcidev *dev, bool is_child)
{
	if (dev->registers && !is_child)
		(void)munmap(dev->registers, GANTRY_PAGE); /* cannot fail for a mapping of ours */
	dev->registers = NULL;
	dev->doorbell = NULL;
	dev->memory = gantry_fd_close(dev->memory);
	dev->doorbell_socket = gantry_fd_close(dev->doorbell_socket);
}
