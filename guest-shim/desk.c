/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/desk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "proto/region.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_TEXT 36 /* 32 digits and 4 dashes */

struct claimant {
	uint8_t boot_id[16];
	uint64_t space;
};

/* ---- the claim ---- */

static int lock_desk(const struct gantry_pcidev *dev, uint32_t index, short type)
{
	struct flock lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = index,
		.l_len = 1,
	};

	return fcntl(dev->memory, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

/* Zeroes where it cannot be read: claims of such a machine look as if they were of one boot. */
static void read_boot_id(uint8_t ret_boot_id[16])
{
	_cleanup_free_ char *text = NULL;
	char hex[33];
	size_t n = 0;

	memset(ret_boot_id, 0, 16);
	if (gantry_file_read(BOOT_ID_FILE, 4096, &text, NULL) < 0)
		return;
	for (const char *c = text; *c && c < text + BOOT_ID_TEXT && n < 32; c++)
		if (*c != '-')
			hex[n++] = *c;
	hex[n] = '\0';
	if (n != 32 || gantry_hex_decode(hex, ret_boot_id, 16) < 0)
		memset(ret_boot_id, 0, 16);
}

static struct gantry_doormem_desk *desk_at(const struct gantry_desk *d, uint32_t index)
{
	return (struct gantry_doormem_desk *)(d->base + d->dev->header.desks_off +
					      (uint64_t)index * GANTRY_DOORMEM_DESK_BYTES);
}

/* Whether this process's lock says that the odd claim in @desk is dead. */
static bool is_ours_to_judge(const struct gantry_doormem_desk *desk, const struct claimant *us)
{
	uint8_t boot_id[16];

	gantry_region_copy_out(boot_id, desk->boot_id, sizeof(boot_id));
	return memcmp(boot_id, us->boot_id, sizeof(boot_id)) != 0 ||
	       gantry_load_relaxed(&desk->lock_space) == us->space;
}

static void set_generation(struct gantry_desk *d, struct gantry_doormem_desk *desk,
			   uint64_t generation)
{
	/* Release: pairs with the host's acquire; the rest of the claim is written. */
	gantry_store_release(&desk->generation, generation);
	gantry_pcidev_ring(d->dev, GANTRY_DOORMEM_BELL_VECTOR);
}

static uint64_t next_odd(uint64_t generation)
{
	return (generation | 1) + (generation & 1 ? 2 : 0);
}

static void take_desk(struct gantry_desk *d, uint32_t index, const struct claimant *us,
		      uint32_t wake, uint32_t vector)
{
	struct gantry_doormem_desk *desk = desk_at(d, index);

	d->desk = desk;
	d->index = index;
	d->generation = next_odd(gantry_load_relaxed(&desk->generation));
	d->posted = gantry_load_relaxed(&desk->posted);
	gantry_desk_begin(d);
	d->notice_taken = gantry_load_relaxed(&desk->notice_taken);
	gantry_region_copy_in(desk->boot_id, us->boot_id, sizeof(desk->boot_id));
	gantry_store_relaxed(&desk->pid, (uint32_t)getpid());
	gantry_store_relaxed(&desk->uid, (uint32_t)getuid());
	gantry_store_relaxed(&desk->wake, wake);
	gantry_store_relaxed(&desk->wake_vector, vector);
	gantry_store_relaxed(&desk->mapping, GANTRY_MAPPING_UNKNOWN);
	gantry_store_relaxed(&desk->read_mib_per_s, 0);
	gantry_store_relaxed(&desk->write_mib_per_s, 0);
	gantry_store_relaxed(&desk->lock_space, us->space);
	gantry_store_relaxed(&desk->progress, 0);
	set_generation(d, desk, d->generation);
}

/* Looks at one desk: takes it if it is free and we have none, clears it if it was a dead process's. */
static void look_at(struct gantry_desk *d, uint32_t index, const struct claimant *us, uint32_t wake,
		    uint32_t vector)
{
	struct gantry_doormem_desk *desk = desk_at(d, index);
	bool is_odd = gantry_load_relaxed(&desk->generation) & 1;

	if (d->desk && !is_odd)
		return;
	if (lock_desk(d->dev, index, F_WRLCK) < 0)
		return; /* somebody lives there */
	is_odd = gantry_load_relaxed(&desk->generation) & 1;
	if (!is_odd || is_ours_to_judge(desk, us)) {
		if (!d->desk) {
			take_desk(d, index, us, wake, vector);
			return; /* and the lock stays */
		}
		if (is_odd)
			set_generation(d, desk, gantry_load_relaxed(&desk->generation) + 1);
	}
	(void)lock_desk(d->dev, index, F_UNLCK); /* cannot fail for a lock of ours */
}

static int claim(struct gantry_desk *d, uint32_t wake, uint32_t vector)
{
	struct claimant us = { .space = d->dev->space };
	uint32_t ndesks = d->dev->header.ndesks;
	uint32_t first;

	read_boot_id(us.boot_id);
	/* Those who cannot see each other's locks had better begin at different places. */
	first = (uint32_t)(us.space * 2654435761u) % ndesks;
	for (uint32_t i = 0; i < ndesks; i++)
		look_at(d, (first + i) % ndesks, &us, wake, vector);
	if (!d->desk)
		return gantry_fail(
			GANTRY_E_FULL,
			"%u programs of this machine use the device, and it has no more desks",
			ndesks);
	return 0;
}

int gantry_desk_open(const struct gantry_pcidev *dev, uint32_t wake, uint32_t vector,
		     struct gantry_desk *ret_desk)
{
	const struct gantry_doormem_header *h = &dev->header;
	struct gantry_desk d = {
		.dev = dev,
		.mapped_bytes = h->desks_off + (uint64_t)h->ndesks * GANTRY_DOORMEM_DESK_BYTES,
	};
	const char *gone;
	int r;

	d.base = mmap(NULL, d.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev->memory, 0);
	if (d.base == MAP_FAILED)
		return gantry_fail_errno(GANTRY_E_NO_AGENT, errno, "mapping the device's desks");
	/* In a child it would be a second, silent user of the desk. */
	r = madvise(d.base, d.mapped_bytes, MADV_DONTFORK) < 0
		    ? gantry_fail_errno(GANTRY_E_UNSUPPORTED, errno, "MADV_DONTFORK")
		    : 0;
	gone = r == 0 ? gantry_desk_gone(&d) : NULL;
	if (gone)
		r = gantry_fail(GANTRY_E_NO_AGENT, "%s", gone);
	if (r == 0)
		r = claim(&d, wake, vector);
	if (r < 0) {
		(void)munmap(d.base, d.mapped_bytes); /* cannot fail for a mapping of ours */
		return r;
	}
	*ret_desk = d;
	return 0;
}

void gantry_desk_reclaim(struct gantry_desk *d)
{
	d->generation = next_odd(d->generation);
	set_generation(d, d->desk, d->generation);
}

/*
 * A device that was unplugged reads as zeroes or ones; and where another was plugged in since, at the same addresses of the machine,
 * this is that one's memory. One that whoever had its interrupt lets go of may have been away for a moment.
 */
static bool is_there(const struct gantry_desk *d)
{
	const struct gantry_doormem_header *live = (const struct gantry_doormem_header *)d->base;

	return gantry_load_relaxed(&live->magic) == GANTRY_DOORMEM_MAGIC &&
	       gantry_load_relaxed(&live->epoch) == d->dev->header.epoch &&
	       gantry_load_relaxed(&live->departures) == d->dev->header.departures;
}

void gantry_desk_depart(struct gantry_desk *d)
{
	struct gantry_doormem_header *live = (struct gantry_doormem_header *)d->base;

	/* Once: from here on it is not there. Release: before what lets the device go. */
	if (is_there(d))
		gantry_store_release(&live->departures, d->dev->header.departures + 1);
}

void gantry_desk_close(struct gantry_desk *d, bool is_child)
{
	if (!d->base || is_child)
		return;
	if (is_there(d)) /* else the desk may be somebody else's */
		set_generation(d, d->desk, d->generation + 1);
	(void)lock_desk(d->dev, d->index, F_UNLCK); /* cannot fail for a lock of ours */
	(void)munmap(d->base, d->mapped_bytes);	    /* likewise */
	d->base = NULL;
}

/* ---- the host's side ---- */

const char *gantry_desk_gone(const struct gantry_desk *d)
{
	const struct gantry_doormem_header *live = (const struct gantry_doormem_header *)d->base;

	if (!is_there(d))
		return "the ivshmem device is gone: it was unplugged";
	switch (gantry_load_relaxed(&live->state)) {
	case GANTRY_DOORMEM_OPEN:
		return NULL;
	case GANTRY_DOORMEM_DRAIN:
		return d->desk ? NULL : "the ivshmem device is about to be unplugged";
	default:
		return "the agent has closed this machine's ivshmem door";
	}
}

bool gantry_desk_is_served(const struct gantry_desk *d)
{
	/* Acquire: pairs with the host's release; the boxes' counts are taken, or its last words are there. */
	return gantry_load_acquire(&d->desk->served) == d->generation;
}

/* ---- messages ---- */

void gantry_desk_begin(struct gantry_desk *d)
{
	d->host_taken = gantry_load_relaxed(&d->desk->host_posted);
	gantry_store_relaxed(&d->desk->host_taken, d->host_taken);
}

int gantry_desk_post(struct gantry_desk *d, const struct gantry_door_header *msg)
{
	/* Acquire: pairs with the host's release; it has copied what was in the box. */
	if (gantry_load_acquire(&d->desk->taken) != d->posted)
		return -EBUSY;
	gantry_region_copy_in(d->desk->guest_box, msg, msg->len_bytes);
	/* Release: pairs with the host's acquire; the message is there. */
	gantry_store_release(&d->desk->posted, ++d->posted);
	gantry_pcidev_ring(d->dev, GANTRY_DOORMEM_BELL_VECTOR);
	return 0;
}

static int take(const uint32_t *posted, uint32_t *taken, uint32_t *shown, const uint8_t *box,
		union gantry_message *msg, uint16_t *ret_kind)
{
	/* Acquire: pairs with the host's release; the message is there. */
	uint32_t now = gantry_load_acquire(posted);
	int r;

	if (now == *taken)
		return -EAGAIN;
	gantry_region_copy_out(msg->bytes, box, GANTRY_DOORMEM_MESSAGE);
	r = msg->h.len_bytes > sizeof(*msg) ? -EPROTO
					    : gantry_door_check(msg, msg->h.len_bytes, ret_kind);
	*taken = now;
	/* Release: pairs with the host's acquire; the message has been copied. */
	gantry_store_release(shown, now);
	return r < 0 ? -EPROTO : 0;
}

int gantry_desk_take(struct gantry_desk *d, union gantry_message *msg, uint16_t *ret_kind)
{
	return take(&d->desk->host_posted, &d->host_taken, &d->desk->host_taken, d->desk->host_box,
		    msg, ret_kind);
}

int gantry_desk_take_notice(struct gantry_desk *d, union gantry_message *msg, uint16_t *ret_kind)
{
	return take(&d->desk->notice_posted, &d->notice_taken, &d->desk->notice_taken,
		    d->desk->notice_box, msg, ret_kind);
}
