/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/view.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/error.h"
#include "guest-shim/sockets.h"

#define SAMPLE_BYTES (256u << 10)
#define SAMPLE_NS    (150 * GANTRY_NS_PER_US) /* longest look at one direction, about */
#define STEP_BYTES   GANTRY_PAGE
#define FOUR_GIB     (4ull << 30)

/* A choice that costs something has to be this much better, in quarters. */
#define WORTH_IT 6

struct file {
	int fd;
	uint64_t base; /* where the door memory starts in it */
};

static int open_file(const struct gantry_pcidev *dev, enum gantry_doormem_mapping kind,
		     struct file *ret_file)
{
	struct file file = { .fd = -ENOENT };

	if (kind == GANTRY_MAPPING_RESOURCE) {
		file.fd = gantry_pcidev_file(dev, "resource2");
	} else if (dev->is_sysfs && kind == GANTRY_MAPPING_RESOURCE_WC) {
		file.fd = gantry_pcidev_file(dev, "resource2_wc");
	} else if (dev->is_sysfs && kind == GANTRY_MAPPING_DEVMEM && dev->address >= FOUR_GIB) {
		file.fd = gantry_open_above_stdio("/dev/mem");
		file.base = dev->address;
	}
	if (file.fd < 0)
		return -ENOENT;
	*ret_file = file;
	return 0;
}

/* /dev/mem is all of the machine: whether the door memory really is where it is said to be. */
static bool is_door_memory(const struct gantry_pcidev *dev, const struct file *file)
{
	const struct gantry_doormem_header *h = mmap(NULL, GANTRY_PAGE, PROT_READ, MAP_SHARED,
						     file->fd, (off_t)file->base);
	bool is_it;

	if (h == MAP_FAILED)
		return false;
	is_it = gantry_load_relaxed(&h->magic) == GANTRY_DOORMEM_MAGIC &&
		gantry_load_relaxed(&h->epoch) == dev->header.epoch;
	(void)munmap((void *)(uintptr_t)h, GANTRY_PAGE); /* cannot fail for a mapping of ours */
	return is_it;
}

/* ---- measuring ---- */

static void write_step(volatile uint64_t *words)
{
	for (size_t i = 0; i < STEP_BYTES / 8; i++)
		words[i] = 0; /* as fresh memory is */
}

static void read_step(volatile uint64_t *words)
{
	for (size_t i = 0; i < STEP_BYTES / 8; i++)
		(void)words[i];
}

static uint32_t measure(void (*step)(volatile uint64_t *words), uint8_t *sample, uint64_t bytes)
{
	uint64_t start = gantry_now_ns(), ns = 0, done = 0;

	while (done < bytes && ns < SAMPLE_NS) {
		step((volatile uint64_t *)(void *)(sample + done));
		done += STEP_BYTES;
		if (done % (4 * STEP_BYTES) == 0 || done == STEP_BYTES)
			ns = gantry_now_ns() - start;
	}
	gantry_fence_full(); /* what is still in buffers counts as not written */
	ns = GANTRY_MAX(gantry_now_ns() - start, 1);
	return (uint32_t)(done * GANTRY_NS_PER_S / ns >> 20) + 1;
}

/* The end of the segment, where a heap's last bytes are; twice, because the first look brings pages. */
static int measure_file(const struct file *file, uint64_t segment_off, uint64_t bytes,
			bool is_fresh, struct gantry_view_speed *ret_speed)
{
	uint64_t n = GANTRY_MIN(bytes, SAMPLE_BYTES) / STEP_BYTES * STEP_BYTES;
	uint8_t *sample = mmap(NULL, n, is_fresh ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
			       file->fd, (off_t)(file->base + segment_off + bytes - n));

	if (sample == MAP_FAILED)
		return -errno;
	for (int i = 0; i < 2; i++) {
		if (is_fresh)
			ret_speed->write_mib_per_s = measure(write_step, sample, n);
		ret_speed->read_mib_per_s = measure(read_step, sample, n);
	}
	(void)munmap(sample, n); /* cannot fail for a mapping of ours */
	return 0;
}

/* ---- choosing ---- */

static bool beats(uint32_t a, uint32_t b)
{
	return a > 0 && (uint64_t)a * 4 >= (uint64_t)b * WORTH_IT;
}

enum gantry_doormem_mapping gantry_view_choose(
	const struct gantry_view_speed speeds[GANTRY_MAPPING_VFIO])
{
	const struct gantry_view_speed *plain = &speeds[GANTRY_MAPPING_RESOURCE];
	const struct gantry_view_speed *wc = &speeds[GANTRY_MAPPING_RESOURCE_WC];
	const struct gantry_view_speed *mem = &speeds[GANTRY_MAPPING_DEVMEM];

	if (mem->read_mib_per_s && (beats(mem->read_mib_per_s, plain->read_mib_per_s) ||
				    beats(mem->write_mib_per_s, plain->write_mib_per_s)))
		return GANTRY_MAPPING_DEVMEM;
	if (wc->read_mib_per_s && beats(wc->write_mib_per_s, plain->write_mib_per_s) &&
	    beats(wc->read_mib_per_s * 2, plain->read_mib_per_s))
		return GANTRY_MAPPING_RESOURCE_WC;
	return GANTRY_MAPPING_RESOURCE;
}

static void open_files(const struct gantry_pcidev *dev, struct file files[GANTRY_MAPPING_VFIO])
{
	for (int i = 0; i < GANTRY_MAPPING_VFIO; i++)
		if (open_file(dev, i, &files[i]) < 0)
			files[i].fd = -EBADF;
	if (files[GANTRY_MAPPING_DEVMEM].fd >= 0 &&
	    !is_door_memory(dev, &files[GANTRY_MAPPING_DEVMEM]))
		files[GANTRY_MAPPING_DEVMEM].fd = gantry_fd_close(files[GANTRY_MAPPING_DEVMEM].fd);
}

/* Plain memory or resource2 for the whole; where there is a write-combining file, resource2 and it for two parts. */
static void give_files(const struct gantry_pcidev *dev, struct file files[GANTRY_MAPPING_VFIO],
		       enum gantry_doormem_mapping kind, uint64_t segment_off,
		       struct gantry_attachment *attachment)
{
	struct file *plain = &files[kind == GANTRY_MAPPING_DEVMEM ? GANTRY_MAPPING_DEVMEM
								  : GANTRY_MAPPING_RESOURCE];

	attachment->segment_off = plain->base + segment_off;
	attachment->segment_fd = GANTRY_TAKE_FD(plain->fd);
	if (files[GANTRY_MAPPING_RESOURCE_WC].fd < 0 || attachment->segment_fd < 0)
		return;
	attachment->rings_fd = gantry_pcidev_file(dev, "resource2");
	if (attachment->rings_fd < 0)
		return;
	attachment->split_off = segment_off;
	attachment->heap_fd = GANTRY_TAKE_FD(files[GANTRY_MAPPING_RESOURCE_WC].fd);
	attachment->can_split = true;
	attachment->is_split = kind == GANTRY_MAPPING_RESOURCE_WC;
}

int gantry_view_open(const struct gantry_pcidev *dev, uint64_t segment_off, uint64_t bytes,
		     bool is_fresh, struct gantry_attachment *attachment,
		     struct gantry_view *ret_view)
{
	struct gantry_view_speed speeds[GANTRY_MAPPING_VFIO] = { 0 };
	struct file files[GANTRY_MAPPING_VFIO] = { 0 };
	enum gantry_doormem_mapping kind;

	open_files(dev, files);
	for (int i = 0; i < GANTRY_MAPPING_VFIO; i++)
		if (files[i].fd >= 0) /* where it fails its speed stays 0 */
			(void)measure_file(&files[i], segment_off, bytes, is_fresh, &speeds[i]);
	kind = gantry_view_choose(speeds);
	give_files(dev, files, kind, segment_off, attachment);
	for (int i = 0; i < GANTRY_MAPPING_VFIO; i++)
		gantry_fd_close(files[i].fd);
	if (attachment->segment_fd < 0)
		return gantry_fail(GANTRY_E_NO_AGENT, "the device's resource2 cannot be opened");
	*ret_view = (struct gantry_view){
		.kind = kind,
		.read_mib_per_s = speeds[kind].read_mib_per_s,
		.write_mib_per_s = speeds[kind].write_mib_per_s,
	};
	return 0;
}
