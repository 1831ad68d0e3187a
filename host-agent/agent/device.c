/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as the agent sees them: a configured section, a share page, a state. It opens none. */
#include "host-agent/agent/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/registry.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/share.h"
#include "proto/wire.h"

/* A party of all sessions on a device; workers and MPS servers count from below. */
#define EVERYBODY UINT32_MAX

struct gantry_agent_device *gantry_agent_device_find(struct gantry_agent *a, const char *name)
{
	for (uint32_t i = 0; i < a->ndevices; i++)
		if (a->devices[i].used && strcmp(a->devices[i].conf.name, name) == 0)
			return &a->devices[i];
	return NULL;
}

uint64_t gantry_devices_mask(const struct gantry_agent *a, const char *names)
{
	_cleanup_free_ char *copy = strdup(names);
	uint64_t mask = 0;
	char *save = NULL;

	if (!copy)
		return 0;
	if (strcmp(copy, "all") == 0) {
		for (uint32_t i = 0; i < a->ndevices; i++)
			mask |= a->devices[i].used ? 1ull << i : 0;
		return mask;
	}
	for (char *name = strtok_r(copy, ", ", &save); name; name = strtok_r(NULL, ", ", &save))
		for (uint32_t i = 0; i < a->ndevices; i++)
			if (a->devices[i].used && strcmp(a->devices[i].conf.name, name) == 0)
				mask |= 1ull << i;
	return mask;
}

uint64_t gantry_devices_serving(const struct gantry_agent *a)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < a->ndevices; i++)
		if (a->devices[i].used && a->devices[i].state == GANTRY_DEVICE_ENABLED)
			mask |= 1ull << i;
	return mask;
}

/* Until a worker has opened the device and said better. */
static uint32_t guess_lanes(const struct gantry_device_section *conf)
{
	unsigned long cores = 0;

	if (conf->lanes)
		return conf->lanes;
	for (uint32_t i = 0; i < conf->nopts; i++)
		if (gantry_str_starts(conf->opts[i], "cores="))
			cores = strtoul(conf->opts[i] + strlen("cores="), NULL, 10);
	return cores >= 1 && cores <= GANTRY_SHARE_NLANES ? (uint32_t)cores : 1;
}

/* What may change while the device is in use. */
static void tell_page(struct gantry_agent_device *d)
{
	gantry_share_set_turn_pause(d->page, (uint32_t)(d->conf.turn_pause_ns / GANTRY_NS_PER_US));
}

/* Whether the device stays what it is; what may change it takes from @now. */
static bool stays(struct gantry_agent_device *d, const struct gantry_device_section *now)
{
	/* Restored from an earlier agent: only the name is known. */
	if (d->conf.backend[0] == '\0')
		d->conf = *now;
	d->conf.turn_pause_ns = now->turn_pause_ns;
	tell_page(d);
	return memcmp(now, &d->conf, sizeof(*now)) == 0;
}

static int add_device(struct gantry_agent *a, const struct gantry_device_section *conf,
		      struct gantry_err *err)
{
	struct gantry_agent_device *d;
	int r;

	if (a->ndevices == GANTRY_AGENT_MAX_DEVICES)
		return gantry_err_set(
			err, -ENOSPC,
			"device %s: the agent has had %u devices since it started; restart it",
			conf->name, GANTRY_AGENT_MAX_DEVICES);
	d = &a->devices[a->ndevices];
	*d = (struct gantry_agent_device){ .agent = a, .conf = *conf, .page_fd = -EBADF };
	r = gantry_share_create(conf->name, guess_lanes(conf), conf->mem_bytes, &d->page,
				&d->page_fd, err);
	if (r < 0)
		return r;
	d->used = true;
	d->state = GANTRY_DEVICE_ENABLED;
	d->lanes = guess_lanes(conf);
	d->mem_bytes = conf->mem_bytes;
	tell_page(d);
	gantry_keep(a, d->page_fd, "d/%u/%s", a->ndevices, conf->name);
	a->ndevices++;
	gantry_event_device(a, "device-added", conf->name, NULL, NULL, "%s (%s)", conf->name,
			    conf->backend);
	return 0;
}

static void remove_device(struct gantry_agent *a, struct gantry_agent_device *d)
{
	d->used = false;
	d->state = GANTRY_DEVICE_DISABLED;
	gantry_share_disable(d->page, true);
	gantry_slabs_device_removed(a, (uint32_t)(d - a->devices));
	gantry_event_device(a, "device-removed", d->conf.name, NULL, NULL, "%s", d->conf.name);
}

int gantry_devices_apply(struct gantry_agent *a, const struct gantry_config *config,
			 struct gantry_err *err, bool *ret_changed)
{
	bool changed = false;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		struct gantry_agent_device *d = &a->devices[i];
		const struct gantry_device_section *now = gantry_config_device(config,
									       d->conf.name);

		if (!d->used)
			continue;
		if (now && stays(d, now))
			continue;
		remove_device(a, d); /* a changed one comes back under another index */
		changed = true;
	}
	for (uint32_t i = 0; i < config->ndevices; i++) {
		int r;

		if (gantry_agent_device_find(a, config->devices[i].name))
			continue;
		r = add_device(a, &config->devices[i], err);
		if (r < 0)
			return r;
		changed = true;
	}
	*ret_changed = changed;
	return 0;
}

void gantry_devices_fini(struct gantry_agent *a)
{
	for (uint32_t i = 0; i < a->ndevices; i++) {
		gantry_share_close(a->devices[i].page);
		gantry_fd_close(a->devices[i].page_fd);
	}
	a->ndevices = 0;
}

void gantry_devices_allow(struct gantry_agent *a)
{
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		gantry_session_allow(s);
	/* Before workers look for themselves where queues could go: policies know better. */
	gantry_placement_look(a);
	gantry_workers_nudge(a);
}

void gantry_agent_device_set(struct gantry_agent *a, struct gantry_agent_device *d, uint32_t state)
{
	static const char *const names[] = {
		[GANTRY_DEVICE_ENABLED] = "enabled",
		[GANTRY_DEVICE_DISABLED] = "disabled",
		[GANTRY_DEVICE_DRAINING] = "draining",
	};

	d->state = state;
	d->admin_off = state != GANTRY_DEVICE_ENABLED;
	/* Queues that can leave go while they run; sessions may use the device until theirs have. */
	if (state == GANTRY_DEVICE_DRAINING)
		gantry_migrations_drain(a, (uint32_t)(d - a->devices));
	/*
	 * Either way queues that can leave do, and the others issue nothing; disabled: nobody takes
	 * a lane, whatever workers think.
	 */
	gantry_share_disable(d->page, state == GANTRY_DEVICE_DISABLED);
	gantry_devices_allow(a);
	gantry_event_device(a, "device-changed", d->conf.name, NULL, NULL, "%s is %s", d->conf.name,
			    names[state]);
	gantry_journal_touch(a);
}

/* For people, and for labels: no byte of it may end a quoted string. */
static void learn_text(char *dst, size_t cap, const char *src)
{
	(void)gantry_str_copy(dst, cap, src); /* cut is better than unsaid */
	gantry_str_make_printable(dst);
	for (; *dst; dst++)
		if (*dst == '"' || *dst == '\\')
			*dst = '?';
}

static void fail_device(struct gantry_agent *a, struct gantry_agent_device *d, const char *why)
{
	if (d->state != GANTRY_DEVICE_FAILED)
		gantry_event_device(a, "device-failed", d->conf.name, NULL, NULL, "%s: %s",
				    d->conf.name, why);
	d->state = GANTRY_DEVICE_FAILED;
	learn_text(d->reason, sizeof(d->reason), why);
	gantry_devices_allow(a);
}

void gantry_agent_device_lost(struct gantry_agent *a, struct gantry_agent_device *d,
			      const char *why)
{
	d->unhealthy = gantry_steward_serves(&d->conf); /* then its health says when it is back */
	fail_device(a, d, why);
}

/* The device's state follows what who opened it says. */
static void learn_state(struct gantry_agent *a, struct gantry_agent_device *d, const char *error)
{
	if (error[0] != '\0') {
		fail_device(a, d, error);
		return;
	}
	if (d->state == GANTRY_DEVICE_FAILED && !d->unhealthy) {
		d->state = GANTRY_DEVICE_ENABLED;
		d->reason[0] = '\0';
		gantry_devices_allow(a);
	}
}

/* Lengths that slabs can have; a worker that was taken over might say anything. */
static uint64_t sane_align(uint64_t align)
{
	return align >= GANTRY_PAGE && align <= 1ull << 30 && (align & (align - 1)) == 0 ? align
											 : 0;
}

/*
 * GPUs are shared by turns of processes (share.h): a driver that goes round among those that have work there does so between
 * commands, too, and to change from one to the next costs it more than short ones take. Nobody should be in the middle of what
 * the other kind of page keeps for him: workers of an agent of before turns take a lane for each queue, and those of some builds
 * count what they have in flight wrongly behind the change. So it is tried again, with each news of the device's health, until nobody is.
 */
static void learn_turns(struct gantry_agent_device *d)
{
	if (d->kind != GANTRY_KIND_CUDA && d->kind != GANTRY_KIND_HIP)
		return;
	if (gantry_load_relaxed(&d->page->hdr.gpu) || !gantry_share_is_busy(d->page))
		gantry_share_set_gpu(d->page, true, d->conf.lanes);
}

/* Only MPS has processes beside each other on an NVIDIA GPU. Of an AMD GPU its administrator says it. */
uint32_t gantry_device_party(const struct gantry_agent_device *d, const struct gantry_worker *w)
{
	const struct gantry_backend *backend = gantry_backend_find(d->conf.backend);

	if (!backend || backend->kind != GANTRY_KIND_HIP)
		return gantry_mps_party(w);
	if (gantry_device_section_says(&d->conf, "processes=beside"))
		return EVERYBODY;
	return w->owner + 1;
}

/* false: the device serves, but not in this worker. */
static bool learn_one(struct gantry_agent *a, struct gantry_agent_device *d,
		      const Gantry__Worker__DeviceInfo *info, bool fresh, bool steward)
{
	bool stewarded = gantry_steward_serves(&d->conf) && !steward;
	bool failed = info->error[0] != '\0';

	if (failed && (stewarded || d->caps & GANTRY_CAP_EXCLUSIVE) &&
	    d->state == GANTRY_DEVICE_ENABLED) {
		/*
		 * Its steward has it open, or the one worker that may, so it is not the device: the next worker may find
		 * room.
		 */
		if (!d->no_room)
			gantry_event_device(a, "device-full", d->conf.name, NULL, NULL,
					    "%s: a worker cannot open it: %s", d->conf.name,
					    info->error);
		d->no_room = true;
		return false;
	}
	if ((stewarded && failed) || (!fresh && (d->kind != 0 || failed)))
		return true;
	if (!stewarded)
		learn_state(a, d, info->error);
	if (failed)
		return true;
	d->no_room = false;
	d->kind = info->kind;
	d->caps = info->caps;
	learn_turns(d);
	d->units = info->units;
	d->numa_node = info->numa_node;
	d->slab_align = info->caps & GANTRY_CAP_WINDOW ? sane_align(info->slab_align) : 0;
	learn_text(d->model, sizeof(d->model), info->model);
	learn_text(d->id, sizeof(d->id), info->id);
	learn_text(d->arch, sizeof(d->arch), info->arch);
	if (!fresh)
		return true;
	if (!d->conf.lanes && info->lanes >= 1 && info->lanes <= GANTRY_SHARE_NLANES) {
		d->lanes = info->lanes;
		if (!gantry_load_relaxed(&d->page->hdr.gpu))
			gantry_store_relaxed(&d->page->hdr.nlanes, info->lanes);
	}
	if (!d->conf.mem_bytes && info->mem_bytes) {
		d->mem_bytes = info->mem_bytes;
		gantry_store_relaxed(&d->page->hdr.mem_bytes, info->mem_bytes);
	}
	return true;
}

uint64_t gantry_devices_learn(struct gantry_agent *a, const Gantry__Worker__Ready *ready,
			      bool fresh, bool steward)
{
	uint64_t unusable = 0;

	for (size_t i = 0; i < ready->n_devices; i++) {
		const Gantry__Worker__DeviceInfo *info = ready->devices[i];
		struct gantry_agent_device *d = gantry_agent_device_find(a, info->name);

		if (d && !learn_one(a, d, info, fresh, steward))
			unusable |= 1ull << (d - a->devices);
	}
	return unusable;
}

void gantry_devices_room_again(struct gantry_agent *a)
{
	uint64_t full = 0;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		full |= a->devices[i].no_room ? 1ull << i : 0;
		a->devices[i].no_room = false;
	}
	if (!full)
		return;
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w)
		if (w->state == GANTRY_WORKER_WARM && w->nsessions == 0 && (w->unusable & full) &&
		    !gantry_steward_is_needed(w))
			gantry_worker_quit(w);
}

void gantry_device_health_learn(struct gantry_agent *a, uint32_t idx,
				const Gantry__Worker__DeviceHealth *said)
{
	struct gantry_agent_device *d = &a->devices[idx];
	bool bad = said->error[0] != '\0';

	d->health = (struct gantry_device_health){
		.known = said->known,
		.temperature_c = said->temperature_c,
		.clock_mhz = said->clock_mhz,
		.mem_clock_mhz = said->mem_clock_mhz,
		.mem_used = said->mem_used,
		.mem_total = said->mem_total,
		.ecc_uncorrected = said->ecc_uncorrected,
		.nfaults = said->nfaults,
		.last_fault = said->last_fault,
		.copied_in = said->copied_in,
		.kept = said->kept,
		.copied_out = said->copied_out,
		.followed = said->followed,
	};
	d->health_ns = gantry_now_ns();
	if (!gantry_load_relaxed(&d->page->hdr.gpu))
		learn_turns(d);
	if (bad == d->unhealthy)
		return;
	d->unhealthy = bad;
	if (!bad)
		gantry_event_device(a, "device-recovered", d->conf.name, NULL, NULL,
				    "%s is healthy again", d->conf.name);
	if (bad || d->state == GANTRY_DEVICE_FAILED)
		learn_state(a, d, said->error);
	if (bad)
		gantry_slabs_device_failed(a, idx);
	else
		gantry_slabs_pump(a);
}
