/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what installed modules keep of a session, so that the device to which it moves has it again (devices/keep.h). It belongs to the
 * number that the guest has for a device: when devices change places it is the other one's. Lost with the worker, as what it is of is.
 *
 * Pages are taken as they are written, so a session that uses no such module takes none; one that does at most KEEP_BYTES for each device.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/worker.h"
#include "proto/calls.h"

#define KEEP_BYTES (4ull << 20)

bool worker_keeps(const struct gantry_ledger_object *obj)
{
	const char *name = GANTRY_LEDGER_IS_OWN(&obj->kernel) ? NULL
							      : strchr(obj->kernel.name, '/');

	return name && strcmp(name + 1, GANTRY_CALLS_KERNEL) == 0;
}

/* Whether there are two devices of the session's that could change places: else nothing ever goes anywhere, and writing it down costs each call. */
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

void worker_keeps_open(struct wsession *s)
{
	if (!may_go(s))
		return;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NUMBERS; i++) {
		void *base;

		if (s->keeps[i].base || !(s->device_mask >> worker_device_numbered(s, i) & 1))
			continue;
		base = mmap(NULL, KEEP_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base == MAP_FAILED)
			continue; /* then it cannot move, and is told so */
		s->keeps[i].bytes = KEEP_BYTES;
		/* Release: the rest is there. */
		gantry_store_release(&s->keeps[i].base, base);
	}
}

void worker_keeps_close(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NUMBERS; i++) {
		if (s->keeps[i].base)
			(void)munmap(s->keeps[i].base, s->keeps[i].bytes);
		s->keeps[i] = (struct gantry_keep){ 0 };
	}
}

const struct gantry_keep *worker_keep_of(const struct wsession *s, uint32_t device)
{
	uint32_t number = worker_number_of(s, device);

	return number < GANTRY_LEDGER_NUMBERS ? &s->keeps[number] : NULL;
}

const char *worker_keep_barred(const struct wsession *s, uint32_t device)
{
	const struct gantry_keep *keep = worker_keep_of(s, device);
	const struct gantry_keep_head *head = keep ? gantry_load_acquire(&keep->base) : NULL;

	if (!head)
		return "more libraries than there is memory to write down";
	return gantry_load_acquire(&head->barred) ? head->why : NULL;
}
