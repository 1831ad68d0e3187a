/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what installed modules keep of a session, so that the device to which it moves, and the worker after this one, has it again
 * (devices/keep.h). It belongs to the number that the guest has for a device: when devices change places it is the other one's.
 *
 * It lies at the end of the session's image store, number by number from there downwards, which outlives the worker; where an image lies there, or there is
 * no store to be had, in memory of this worker's alone. Pages are taken as they are asked for, so a session that uses no such module takes
 * none; one that does takes one to KEEP_BYTES for each device.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/worker.h"
#include "proto/calls.h"

#define KEEP_BYTES (4ull << 20)

bool worker_keeps(const struct gantry_ledger_object *obj)
{
	const char *name = GANTRY_LEDGER_IS_OWN(&obj->kernel) ? NULL
							      : strchr(obj->kernel.name, '/');

	return name && (strcmp(name + 1, GANTRY_CALLS_KERNEL) == 0 ||
			strcmp(name + 1, GANTRY_CALLS_KERNEL_TOGETHER) == 0);
}

/* Whether there are two devices of the session's that could change places. */
static bool may_go(const struct wsession *s)
{
	const struct gantry_engine *engine = s->engine;

	for (uint32_t i = 0; i < engine->ndevices; i++) {
		const struct wdevice *a = engine->devices[i];

		if (!(s->device_mask >> i & 1) || !a->device.backend->window_swap)
			continue;
		for (uint32_t k = i + 1; k < engine->ndevices; k++)
			if ((s->device_mask >> k & 1) && worker_are_peers(a, engine->devices[k]))
				return true;
	}
	return false;
}

/* Writing it down costs each call: where a session can go nowhere, its tenant says whether a worker's death is worth it. */
static bool is_wanted(const struct wsession *s)
{
	uint32_t wishes = gantry_load_relaxed(&s->quota->wishes);

	if (wishes & GANTRY_QUOTA_RECIPES_NEVER)
		return false;
	return (wishes & GANTRY_QUOTA_RECIPES_ALWAYS) || may_go(s);
}

static uint64_t store_off(uint32_t number)
{
	return GANTRY_LEDGER_STORE_BYTES - (number + 1) * KEEP_BYTES;
}

/* Pages are taken before they are written, so that a full host is an answer here and not a SIGBUS in a copy. */
static int reserve(const struct gantry_keep *keep, uint64_t off, uint64_t bytes)
{
	int r;

	if (!gantry_range_inside(off, bytes, keep->bytes))
		return -EINVAL;
	if (keep->fd < 0 || bytes == 0)
		return 0;
	do
		r = fallocate(keep->fd, 0, (off_t)(keep->fd_off + off), (off_t)bytes);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -ENOMEM : 0;
}

/* In the store, with its head. Returns the place, or NULL: it is not there. */
static void *take_place_locked(struct wsession *s, uint32_t number, struct gantry_keep *keep)
{
	uint64_t off = store_off(number);

	if (worker_store_ready_locked(s) != GANTRY_OK ||
	    worker_store_retake_locked(s, off, KEEP_BYTES) != GANTRY_OK)
		return NULL;
	keep->fd = s->store.fd;
	keep->fd_off = off;
	if (reserve(keep, 0, sizeof(struct gantry_keep_head)) == 0)
		return worker_store_at(s, off);
	worker_store_put_locked(s, off);
	keep->fd = -EBADF;
	return NULL;
}

static void *take_memory(void)
{
	void *base = mmap(NULL, KEEP_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return base == MAP_FAILED ? NULL : base;
}

static void keep_open_locked(struct wsession *s, uint32_t number)
{
	struct gantry_keep *keep = &s->keeps[number];
	void *base;

	keep->fd = -EBADF;
	keep->bytes = KEEP_BYTES;
	keep->reserve = reserve;
	base = take_place_locked(s, number, keep);
	s->keeps_own |= base ? 0 : 1u << number;
	if (!base)
		base = take_memory();
	/* Without it cannot move, and is told so. Release: the rest is there. */
	gantry_store_release(&keep->base, base);
}

void worker_keeps_open_locked(struct wsession *s)
{
	if (!is_wanted(s))
		return;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NUMBERS; i++)
		if (!s->keeps[i].base && (s->device_mask >> worker_device_numbered(s, i) & 1))
			keep_open_locked(s, i);
}

void worker_keeps_close(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NUMBERS; i++) {
		if (s->keeps[i].base && (s->keeps_own >> i & 1))
			(void)munmap(s->keeps[i].base, s->keeps[i].bytes);
		s->keeps[i] = (struct gantry_keep){ 0 };
	}
}

const struct gantry_keep *worker_keep_of(const struct wsession *s, uint32_t device)
{
	uint32_t number = worker_number_of(s, device);

	return number < GANTRY_LEDGER_NUMBERS ? &s->keeps[number] : NULL;
}

/* A worker that may have been broken into wrote it: input, for people to read. */
static const char *copy_reason(const struct gantry_keep_head *head, char *buf, size_t cap)
{
	size_t n;

	memcpy(buf, head->why, GANTRY_MIN(cap, sizeof(head->why)));
	buf[GANTRY_MIN(cap, sizeof(head->why)) - 1] = '\0';
	for (n = 0; buf[n]; n++)
		if (buf[n] < ' ' || buf[n] > '~')
			buf[n] = '?';
	return buf;
}

const char *worker_keep_barred(const struct wsession *s, uint32_t device, char *buf, size_t cap)
{
	const struct gantry_keep *keep = worker_keep_of(s, device);
	const struct gantry_keep_head *head = keep ? gantry_load_acquire(&keep->base) : NULL;

	if (!head)
		return is_wanted(s) ? "more libraries than there is memory to write down"
				    : "libraries while its tenant has \"recipes = no\"";
	return gantry_load_acquire(&head->barred) ? copy_reason(head, buf, cap) : NULL;
}
