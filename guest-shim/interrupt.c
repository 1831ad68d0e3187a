/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/interrupt.h"

#include <errno.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/sockets.h"

#define PCI_COMMAND	   4
#define PCI_COMMAND_MEMORY 2u
#define PCI_COMMAND_MASTER 4u

/* The last part of the link @name of the device's folder. */
static int link_name(const struct gantry_pcidev *dev, const char *name, char *ret_name, size_t cap)
{
	char path[320], target[256];
	const char *last;
	ssize_t n;

	if (gantry_str_format(path, sizeof(path), "%s/%s", dev->folder, name) < 0)
		return -ENAMETOOLONG;
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	last = strrchr(target, '/');
	return gantry_str_copy(ret_name, cap, last ? last + 1 : target);
}

static int open_group(struct gantry_interrupt *i, const struct gantry_pcidev *dev)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	char name[32], path[64];
	int r = link_name(dev, "driver", name, sizeof(name));

	if (r < 0 || !gantry_str_equal(name, "vfio-pci"))
		return -ENODEV;
	r = link_name(dev, "iommu_group", name, sizeof(name));
	if (r < 0)
		return r;
	(void)gantry_str_format(path, sizeof(path), "/dev/vfio/%s", name); /* it fits */
	i->group = gantry_open_above_stdio(path);
	if (i->group < 0)
		return i->group; /* EBUSY: another process has it */
	i->container = gantry_open_above_stdio("/dev/vfio/vfio");
	if (i->container < 0)
		return i->container;
	if (ioctl(i->group, VFIO_GROUP_GET_STATUS, &status) < 0)
		return -errno;
	if (!(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		return -EBUSY;
	if (ioctl(i->group, VFIO_GROUP_SET_CONTAINER, &i->container) < 0 ||
	    ioctl(i->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) < 0)
		return -errno;
	return 0;
}

static int open_device(struct gantry_interrupt *i, const struct gantry_pcidev *dev)
{
	const char *address = strrchr(dev->folder, '/');

	i->device = ioctl(i->group, VFIO_GROUP_GET_DEVICE_FD, address ? address + 1 : dev->folder);
	return i->device < 0 ? -errno : gantry_fd_above_stdio(&i->device);
}

static int bind_event(const struct gantry_interrupt *i, uint32_t index, int *ret_event)
{
	union {
		struct vfio_irq_set set;
		uint8_t bytes[sizeof(struct vfio_irq_set) + sizeof(int32_t)];
	} irqs = { .set = {
			   .argsz = sizeof(irqs),
			   .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			   .index = index,
			   .count = 1,
		   } };
	int32_t event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (event < 0)
		return -errno;
	if (gantry_fd_above_stdio(&event) < 0) {
		gantry_fd_close(event);
		return -EMFILE;
	}
	memcpy(irqs.bytes + sizeof(irqs.set), &event, sizeof(event));
	if (ioctl(i->device, VFIO_DEVICE_SET_IRQS, &irqs) < 0) {
		int r = -errno;

		gantry_fd_close(event);
		return r;
	}
	*ret_event = event;
	return 0;
}

/* Interrupts are writes of the device to memory: without this bit they are dropped, and nobody is told. */
static int allow_master(const struct gantry_interrupt *i)
{
	struct vfio_region_info region = {
		.argsz = sizeof(region),
		.index = VFIO_PCI_CONFIG_REGION_INDEX,
	};
	uint16_t command;

	if (ioctl(i->device, VFIO_DEVICE_GET_REGION_INFO, &region) < 0)
		return -errno;
	if (pread(i->device, &command, sizeof(command), (off_t)(region.offset + PCI_COMMAND)) !=
	    sizeof(command))
		return -EIO;
	command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
	if (pwrite(i->device, &command, sizeof(command), (off_t)(region.offset + PCI_COMMAND)) !=
	    sizeof(command))
		return -EIO;
	return 0;
}

static void init(struct gantry_interrupt *i)
{
	*i = (struct gantry_interrupt){
		.container = -EBADF,
		.group = -EBADF,
		.device = -EBADF,
		.event = -EBADF,
		.request = -EBADF,
	};
	gantry_listener_init(&i->listener);
}

int gantry_interrupt_open(const struct gantry_pcidev *dev, struct gantry_interrupt *ret_interrupt)
{
	struct gantry_interrupt *i = ret_interrupt;
	int r;

	init(i);
	if (!dev->is_sysfs)
		return -ENODEV;
	r = open_group(i, dev);
	if (r == 0)
		r = open_device(i, dev);
	if (r == 0)
		r = bind_event(i, VFIO_PCI_MSIX_IRQ_INDEX, &i->event);
	if (r == 0)
		r = bind_event(i, VFIO_PCI_REQ_IRQ_INDEX, &i->request);
	if (r == 0)
		r = allow_master(i);
	if (r < 0)
		gantry_interrupt_close(i);
	i->is_armed = r == 0;
	return r;
}

void gantry_interrupt_release(struct gantry_interrupt *i)
{
	gantry_store_relaxed(&i->is_armed, 0);
	i->device = gantry_fd_close(i->device);
	i->group = gantry_fd_close(i->group);
	i->container = gantry_fd_close(i->container);
}

void gantry_interrupt_close(struct gantry_interrupt *i)
{
	gantry_interrupt_release(i);
	i->request = gantry_fd_close(i->request);
	i->event = gantry_fd_close(i->event);
}

bool gantry_interrupt_wanted_back(const struct gantry_interrupt *i)
{
	struct pollfd pfd = { .fd = i->request, .events = POLLIN };

	return i->request >= 0 && poll(&pfd, 1, 0) > 0;
}

/* ---- sleeping ---- */

static void listen_once(void *arg, const struct gantry_listening *what)
{
	struct gantry_interrupt *i = arg;
	struct pollfd pfds[2] = { { .fd = i->event, .events = POLLIN },
				  { .fd = i->request, .events = POLLIN } };
	uint64_t count;

	if (poll(pfds, 2, gantry_deadline_poll_ms(what->deadline_ns)) > 0 && pfds[0].revents)
		(void)!read(i->event, &count,
			    sizeof(count)); /* somebody else cannot have read it */
}

bool gantry_interrupt_sleep(struct gantry_interrupt *i, const uint64_t *word, uint64_t seen,
			    uint64_t deadline_ns)
{
	const struct gantry_listening what = { word, seen, deadline_ns };

	if (!gantry_load_relaxed(&i->is_armed))
		return false;
	gantry_listener_sleep(&i->listener, what, listen_once, i);
	return true;
}
