/* SPDX-License-Identifier: Apache-2.0 */
/* The slabs of an agent that died, from the names that the monitor handed over. */
#include <stdio.h>

#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/monitor/store.h"

#define KEPT_POOL  "m/%u/%llx/%llx"
#define KEPT_DIRTY "z/%u/%llx/%llx"

void gantry_slabs_restore_session(struct gantry_session *s)
{
	struct gantry_agent *a = s->agent;
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX], marker[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, off, bytes;
		struct gantry_slab *slab;
		unsigned int device;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_SLAB, &id, &device, &off, &bytes) != 4 ||
		    id != s->id || device >= a->ndevices || bytes == 0) {
			i++;
			continue;
		}
		slab = gantry_slab_new(a, device, bytes, gantry_store_take(&a->handed, name));
		if (!slab) {
			s->broken = true;
			return;
		}
		gantry_slab_give_to(slab, s, off);
		slab->fresh = false; /* nobody knows who had it */
		gantry_slab_hold(slab);
		slab->lent = gantry_slab_was_lent(a, name, marker);
		if (slab->lent)
			gantry_keep(a, slab->fd, "%s", marker);
	}
	gantry_slab_take_markers(s);
}

static void restore_pooled(struct gantry_agent *a, const char *name, uint32_t device,
			   uint64_t bytes, bool clean)
{
	char marker[GANTRY_MONITOR_NAME_MAX];
	bool lent = gantry_slab_was_lent(a, name,
					 marker); /* gantry_slab_forget_lent() takes that name */
	int fd = gantry_store_take(&a->handed, name);
	struct gantry_slab *slab = NULL;

	gantry_keep_drop(a, "%s", name);
	if (device < a->ndevices && a->devices[device].used && bytes > 0 && !lent)
		slab = gantry_slab_new(a, device, bytes, fd);
	if (!slab) {
		gantry_fd_close(fd);
		return;
	}
	if (clean)
		gantry_slab_into_pool(slab);
	else
		gantry_slab_into_dirty(slab);
}

/* Under new serials: those of the agent before are not ours to count on. */
static void learn_serials(struct gantry_agent *a)
{
	for (size_t i = 0; i < a->handed.nentries; i++) {
		const char *name = a->handed.entries[i].name;
		unsigned long long bytes, serial;
		unsigned int device;

		if ((sscanf(name, KEPT_POOL, &device, &bytes, &serial) == 3 ||
		     sscanf(name, KEPT_DIRTY, &device, &bytes, &serial) == 3) &&
		    serial >= a->next_slab)
			a->next_slab = serial + 1;
	}
}

void gantry_slabs_restore(struct gantry_agent *a)
{
	size_t i = 0;

	learn_serials(a);
	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, bytes, other;
		unsigned int device;
		bool clean, dirty;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		clean = sscanf(name, KEPT_POOL, &device, &bytes, &other) == 3;
		dirty = sscanf(name, KEPT_DIRTY, &device, &bytes, &other) == 3 ||
			/* of a session that was not restored */
			sscanf(name, GANTRY_KEPT_SLAB, &id, &device, &other, &bytes) == 4;
		if (clean || dirty)
			restore_pooled(a, name, device, bytes, clean); /* entries have moved */
		else
			i++;
	}
	gantry_slab_forget_lent(a);
}
