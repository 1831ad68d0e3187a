/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that leave: marked in their store, where everybody sees it who looks there, and gone when what was queued has ended.
 *
 *	mark ──► workers look again: no new handle, no new task ──► all have, and no task is left ──► removed
 *	  └── remove --cancel: the mark goes
 *
 * The store says all: an agent after this one, or one that takes over, goes on from there.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/image_store.h"
#include "host-agent/agent/images.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/worker.h"

/* Ever more seldom while none goes, and most where stores cannot be read, of which nobody knows whether anything is to go. */
#define LOOK_NS		   (100 * GANTRY_NS_PER_MS)
#define MAX_LOOK_NS	   (2 * GANTRY_NS_PER_S)
#define MAX_LOOK_UNREAD_NS (60 * GANTRY_NS_PER_S)
#define MODE		   0644

static void look(evutil_socket_t fd, short what, void *arg);

static void look_in(struct gantry_agent *a, uint64_t ns)
{
	a->leaving_ns = ns;
	/* Without memory for a timer they are looked at when the next is asked to leave. */
	(void)gantry_timer_set(a, &a->leaving, ns, look, a);
}

static int set_mark(const struct gantry_image_store *store, const struct gantry_image_entry *entry,
		    bool leave, struct gantry_err *err)
{
	_cleanup_close_ int fd = -EBADF;
	char path[PATH_MAX];

	if (gantry_str_format(path, sizeof(path), "%s/%s" GANTRY_BITSTREAM_LEAVING, store->dir,
			      entry->file) < 0)
		return gantry_err_set(err, -EINVAL, "%s: the path is too long", entry->file);
	if (!leave)
		return unlink(path) < 0 ? gantry_err_set_errno(err, -errno, "%s", path) : 0;
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, MODE);
	return fd < 0 ? gantry_err_set_errno(err, -errno, "%s", path) : 0;
}

/* Nobody waits for it any more, and no worker is left that would take a task for it. */
static bool is_free(const struct gantry_agent *a, const struct gantry_image_entry *entry)
{
	return entry->ntasks == 0 && gantry_workers_have_rescanned(a);
}

/* What a look at all stores has found. */
struct found {
	bool leaving; /* some still */
	bool unread;  /* there is a store of which it cannot be told now */
	bool removed;
};

static void look_at(struct gantry_agent *a, const struct gantry_image_store *store,
		    struct found *found)
{
	_cleanup_(gantry_image_entries_free) struct gantry_image_entries entries = { 0 };

	if (gantry_image_store_read(store, &entries, NULL) < 0 ||
	    gantry_image_users_count(a, store, &entries, NULL) < 0) {
		found->unread = true;
		return;
	}
	for (uint32_t i = 0; i < entries.n; i++) {
		struct gantry_image_entry *entry = &entries.list[i];
		struct gantry_err err = GANTRY_ERR_NONE;

		if (!entry->leaving || !entry->bitstream)
			continue;
		if (!is_free(a, entry)) {
			found->leaving = true;
		} else if (gantry_image_store_remove(store, &entries, entry, &err) < 0) {
			/* Its folder may be read-only by now: told once, and not tried for ever. */
			(void)set_mark(store, entry, false, NULL);
			gantry_event(a, "image-stays", NULL, NULL, NULL,
				     "image %s of device %s: %s", entry->bitstream->name,
				     store->device->conf.name, err.text);
		} else {
			found->removed = true;
			gantry_event(a, "image-removed", NULL, NULL, NULL, "image %s of device %s",
				     entry->bitstream->name, store->device->conf.name);
		}
	}
}

static void look(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct found found = { 0 };
	uint64_t most_ns;

	(void)fd;
	(void)what;
	for (uint32_t i = 0; i < a->ndevices; i++) {
		struct gantry_agent_device *d = &a->devices[i];
		struct gantry_image_store store = { d,
						    d->used ? gantry_images_dir(&d->conf) : NULL };

		if (store.dir)
			look_at(a, &store, &found);
	}
	if (found.removed)
		gantry_kernels_rescan(a);
	if (!found.leaving && !found.unread)
		return;
	most_ns = found.leaving ? MAX_LOOK_NS : MAX_LOOK_UNREAD_NS;
	look_in(a, found.removed ? LOOK_NS : gantry_min_u64(2 * a->leaving_ns, most_ns));
}

int gantry_image_leave(struct gantry_agent *a, const struct gantry_image_store *store,
		       const struct gantry_image_entry *entry, bool leave, struct gantry_err *err)
{
	int r;

	if (entry->leaving == leave)
		return 0;
	r = set_mark(store, entry, leave, err);
	if (r < 0)
		return r;
	gantry_event(a, leave ? "image-leaving" : "image-stays", NULL, NULL, NULL,
		     "image %s of device %s", entry->bitstream->name, store->device->conf.name);
	gantry_kernels_rescan(a);
	if (leave)
		look_in(a, LOOK_NS);
	return 0;
}

void gantry_images_start(struct gantry_agent *a)
{
	/* Workers may not have heard of what the agent before this one was at. */
	for (uint32_t i = 0; i < a->ndevices; i++)
		if (a->devices[i].used && gantry_images_dir(&a->devices[i].conf)) {
			gantry_workers_rescan(a);
			look_in(a, LOOK_NS);
			return;
		}
}

void gantry_images_stop(struct gantry_agent *a)
{
	gantry_event_free(&a->leaving);
}
