/* SPDX-License-Identifier: Apache-2.0 */
/* One slab: its names at the monitor, its session, and the pools of those that nobody has. */
#include "host-agent/agent/slab.h"

#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/monitor/store.h"

struct gantry_slab_pool *gantry_slab_pool_of(const struct gantry_slab *slab)
{
	return &slab->agent->pools[slab->device];
}

struct gantry_slab *gantry_slab_new(struct gantry_agent *a, uint32_t device, uint64_t bytes, int fd)
{
	struct gantry_slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->agent = a;
	slab->device = device;
	slab->bytes = bytes;
	slab->fd = fd;
	slab->serial = a->next_slab++;
	gantry_list_init(&slab->link);
	gantry_list_init(&slab->todo_link);
	a->pools[device].nslabs++;
	return slab;
}

void gantry_slab_free(struct gantry_slab *slab)
{
	gantry_slab_pool_of(slab)->nslabs--;
	gantry_list_remove(&slab->link);
	gantry_list_remove(&slab->todo_link);
	gantry_fd_close(slab->fd);
	free(slab);
}

static void keep(struct gantry_slab *slab, const char *fmt)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "%s%u/%llx/%llx", fmt, slab->device,
				(unsigned long long)slab->bytes, /* it fits */
				(unsigned long long)slab->serial);
	gantry_keep(slab->agent, slab->fd, "%s", name);
}

static void drop(struct gantry_slab *slab, const char *fmt)
{
	gantry_keep_drop(slab->agent, "%s%u/%llx/%llx", fmt, slab->device,
			 (unsigned long long)slab->bytes, (unsigned long long)slab->serial);
}

void gantry_slab_give_to(struct gantry_slab *slab, struct gantry_session *s, uint64_t off)
{
	struct gantry_list *at = &s->slabs;

	slab->session = s;
	slab->off = off;
	slab->fresh = true;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, other) {
		if (other->device > slab->device ||
		    (other->device == slab->device && other->off > off)) {
			at = &other->link;
			break;
		}
	}
	gantry_list_remove(&slab->link);
	gantry_list_insert_before(at, &slab->link);
	gantry_slab_pool_of(slab)->session_bytes += slab->bytes;
}

void gantry_slab_hold(struct gantry_slab *slab)
{
	slab->state = GANTRY_SLAB_HELD;
	gantry_keep(slab->agent, slab->fd, GANTRY_KEPT_SLAB, (unsigned long long)slab->session->id,
		    slab->device, (unsigned long long)slab->off, (unsigned long long)slab->bytes);
}

void gantry_slab_into_pool(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);

	slab->state = GANTRY_SLAB_CLEAN;
	gantry_list_remove(&slab->link);
	gantry_list_push_back(&pool->clean, &slab->link);
	pool->clean_bytes += slab->bytes;
	keep(slab, "m/");
}

void gantry_slab_out_of_pool(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);

	drop(slab, "m/");
	gantry_list_remove(&slab->link);
	pool->clean_bytes -= slab->bytes;
}

void gantry_slab_into_dirty(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);

	slab->session = NULL;
	slab->state = GANTRY_SLAB_DIRTY;
	gantry_list_remove(&slab->link);
	gantry_list_push_back(&pool->dirty, &slab->link);
	pool->dirty_bytes += slab->bytes;
	keep(slab, "z/");
	/* Whoever waits for memory tries again. */
	pool->is_short = pool->is_short && !gantry_list_is_empty(&pool->wanted);
	gantry_devices_room_again(slab->agent);
}

void gantry_slab_out_of_dirty(struct gantry_slab *slab)
{
	drop(slab, "z/");
	gantry_list_remove(&slab->link);
	gantry_slab_pool_of(slab)->dirty_bytes -= slab->bytes;
}

uint64_t gantry_slab_unit_bytes(const struct gantry_slab_pool *pool, uint64_t unit)
{
	uint64_t bytes = 0;

	gantry_list_for_each(&pool->clean, struct gantry_slab, link, slab)
		bytes += slab->bytes == unit ? unit : 0;
	return bytes;
}

void gantry_slab_release_clean(struct gantry_slab_pool *pool)
{
	gantry_list_for_each_safe(&pool->clean, struct gantry_slab, link, slab) {
		gantry_slab_out_of_pool(slab);
		gantry_slab_free(slab);
	}
}

uint64_t gantry_slab_pool_limit(const struct gantry_agent_device *d)
{
	if (!d->used || d->state == GANTRY_DEVICE_FAILED)
		return 0;
	return d->mem_bytes ? GANTRY_MIN(d->conf.slab_pool_bytes, d->mem_bytes / 4)
			    : d->conf.slab_pool_bytes;
}

bool gantry_slabs_any(const struct gantry_session *s, uint32_t device)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == device)
			return true;
	return false;
}

uint64_t gantry_slabs_of(const struct gantry_session *s, uint32_t *ret_n)
{
	uint64_t bytes = 0;
	uint32_t n = 0;

	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		bytes += slab->bytes;
		n++;
	}
	if (ret_n)
		*ret_n = n;
	return bytes;
}

void gantry_slabs_device_removed(struct gantry_agent *a, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];

	gantry_slabs_device_failed(a, device);
	gantry_slab_release_clean(pool);
	/* No steward will scrub them; the driver has the memory back, and nobody of ours. */
	gantry_list_for_each_safe(&pool->dirty, struct gantry_slab, link, slab) {
		gantry_slab_out_of_dirty(slab);
		gantry_slab_free(slab);
	}
}

void gantry_slabs_init(struct gantry_agent *a)
{
	a->next_slab = 1;
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		gantry_list_init(&a->pools[i].clean);
		gantry_list_init(&a->pools[i].dirty);
		gantry_list_init(&a->pools[i].asked);
		gantry_list_init(&a->pools[i].wanted);
	}
}

static void free_list(struct gantry_list *list)
{
	gantry_list_for_each_safe(list, struct gantry_slab, link, slab)
		gantry_slab_free(slab);
}

void gantry_slabs_fini(struct gantry_agent *a)
{
	gantry_loans_fini(a);
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		free_list(&a->pools[i].clean);
		free_list(&a->pools[i].dirty);
		free_list(&a->pools[i].asked);
	}
}
