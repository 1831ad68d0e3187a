/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over from an agent that died: its descriptors come from the monitor, their names say what
 * they are,
 * ledgers say what sessions are, running workers say what they serve.
 *
 * A session waits (phase RESTORED) until every worker that lived on has said whether it serves it,
 * or is dead:
 * only then may another worker have it.
 */
#include "host-agent/agent/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/deadline.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/recover.h"
#include "host-agent/agent/relay.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/token.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "host-agent/shared/wake.h"
#include "migration/ledger.h"
#include "proto/segment.h"
#include "proto/wire.h"

/* ---- pages ---- */

/*
 * A page that a worker has broken is nobody's any more. Its index stays taken, by a page that nobody
 * uses: everyone counts on a page behind each index. The device comes back under another.
 */
static int replace_device(struct gantry_agent *a, uint32_t idx, const char *name,
			  struct gantry_err *why)
{
	struct gantry_agent_device *d = &a->devices[idx];
	struct gantry_err err = GANTRY_ERR_NONE;

	gantry_event_device(a, "device-lost", name, NULL, NULL, "%s is not taken over: %s", name,
			    why->text);
	gantry_fd_close(d->page_fd);
	*d = (struct gantry_agent_device){ .agent = a,
					   .page_fd = -EBADF,
					   .state = GANTRY_DEVICE_DISABLED };
	if (gantry_share_create(name, 1, 0, &d->page, &d->page_fd, &err) < 0) {
		gantry_log(GANTRY_LOG_ERR, "%s", err.text);
		return -ENOMEM;
	}
	gantry_store_relaxed(&d->page->hdr.disabled, 1u);
	a->ndevices = idx + 1;
	gantry_keep(a, d->page_fd, "d/%u/%s", idx, name);
	return 0;
}

/* Negative: indices from here on mean nothing. */
static int restore_device(struct gantry_agent *a, uint32_t idx, const char *name, int fd)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_agent_device *d = &a->devices[idx];

	*d = (struct gantry_agent_device){ .agent = a,
					   .page_fd = fd,
					   .state = GANTRY_DEVICE_ENABLED };
	if (gantry_share_open(fd, &d->page, &err) < 0)
		return replace_device(a, idx, name, &err);
	(void)gantry_str_copy(d->conf.name, sizeof(d->conf.name), name); /* it was such a name */
	/* A device that changed has two pages; the later one is in use. */
	for (uint32_t i = 0; i < idx; i++)
		if (strcmp(a->devices[i].conf.name, name) == 0)
			a->devices[i].used = false;
	d->used = true;
	d->lanes = d->page->hdr.nlanes;
	d->mem_bytes = d->page->hdr.mem_bytes;
	a->ndevices = idx + 1;
	gantry_keep(a, fd, "d/%u/%s", idx, name);
	return 0;
}

/* In the order of their numbers, whatever order the monitor keeps them in. */
static void restore_devices(struct gantry_agent *a)
{
	for (uint32_t idx = 0; idx < GANTRY_AGENT_MAX_DEVICES; idx++) {
		char prefix[16], name[GANTRY_MONITOR_NAME_MAX] = "";

		(void)gantry_str_format(prefix, sizeof(prefix), "d/%u/", idx); /* it fits */
		for (size_t i = 0; i < a->handed.nentries; i++)
			if (gantry_str_starts(a->handed.entries[i].name, prefix))
				/* the same size */
				(void)gantry_str_copy(name, sizeof(name),
						      a->handed.entries[i].name);
		if (!name[0])
			return; /* pages are never dropped: the first hole is the end */
		if (restore_device(a, idx, name + strlen(prefix),
				   gantry_store_take(&a->handed, name)) < 0)
			return;
	}
}

static void restore_tenant(struct gantry_agent *a, uint32_t slot, const char *name, int fd)
{
	struct gantry_tenant *t = calloc(1, sizeof(*t));
	struct gantry_err err = GANTRY_ERR_NONE;

	if (!t || !gantry_slot_claim(a->tenant_slots, GANTRY_SHARE_NTENANTS, slot)) {
		gantry_fd_close(fd);
		free(t);
		return;
	}
	if (gantry_quota_open(fd, &t->quota, &err) < 0) {
		gantry_log(GANTRY_LOG_ERR, "tenant %s is not taken over: %s", name, err.text);
		gantry_slot_put(a->tenant_slots, slot);
		gantry_fd_close(fd);
		free(t);
		return;
	}
	gantry_tenant_init(t, a);
	t->slot = slot;
	t->quota_fd = fd;
	gantry_tenant_conf_init(&t->conf, name, ""); /* the configuration follows */
	gantry_list_push_back(&a->tenants, &t->link);
	gantry_keep(a, fd, "q/%u/%s", slot, name);
	gantry_net_restore(t);
}

static void restore_tenants(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned int slot;
		char tenant[GANTRY_CONFIG_NAME + 1];

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, "q/%u/%32s", &slot, tenant) != 2 || !gantry_name_valid(tenant)) {
			i++;
			continue;
		}
		restore_tenant(a, slot, tenant, gantry_store_take(&a->handed, name));
	}
}

void gantry_restore_pages(struct gantry_agent *a)
{
	restore_devices(a);
	restore_tenants(a);
}

/* ---- sessions ---- */

static int take(struct gantry_agent *a, uint64_t id, const char *what)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	/* it fits */
	(void)gantry_str_format(name, sizeof(name), "s/%llx/%s", (unsigned long long)id, what);
	fd = gantry_store_take(&a->handed, name);
	if (fd >= 0)
		gantry_keep(a, fd, "%s", name);
	return fd;
}

/* "s/SESSION/wake/KIND" */
static void take_wake(struct gantry_session *s)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	for (uint32_t kind = GANTRY_SESSION_WAKE_EVENTFD; kind <= GANTRY_SESSION_WAKE_SOCKET;
	     kind++) {
		(void)gantry_str_format(name, sizeof(name), GANTRY_KEPT_WAKE, /* it fits */
					(unsigned long long)s->id, kind);
		s->wake_fd = gantry_store_take(&s->agent->handed, name);
		if (s->wake_fd < 0)
			continue;
		s->wake = kind;
		gantry_keep(s->agent, s->wake_fd, "%s", name);
		return;
	}
}

static void take_shared(struct gantry_session *s)
{
	struct gantry_store *handed = &s->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX];
	size_t i = 0;

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/x/", (unsigned long long)s->id);
	while (i < handed->nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), handed->entries[i].name);
		if (gantry_str_starts(name, prefix))
			gantry_keep(s->agent, gantry_store_take(handed, name), "%s", name);
		else
			i++;
	}
}

/* "s/SESSION/vsock": the guest behind its relay comes by AF_VSOCK. */
static void take_vsock(struct gantry_session *s)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	/* it fits */
	(void)gantry_str_format(name, sizeof(name), "s/%llx/vsock", (unsigned long long)s->id);
	fd = gantry_store_take(&s->agent->handed, name);
	if (fd < 0)
		return;
	gantry_fd_close(fd);
	s->is_vsock = true;
	gantry_keep(s->agent, s->bell_fd, "%s", name);
}

/* "s/SESSION/nonce/HEX": its guest is a relay. */
static void take_nonce(struct gantry_session *s)
{
	struct gantry_store *handed = &s->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX];

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/nonce/", (unsigned long long)s->id);
	for (size_t i = 0; i < handed->nentries; i++) {
		char name[GANTRY_MONITOR_NAME_MAX];
		const char *hex = name + strlen(prefix);

		if (!gantry_str_starts(handed->entries[i].name, prefix))
			continue;
		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), handed->entries[i].name);
		for (size_t k = 0; k < sizeof(s->nonce) && hex[0] && hex[1]; k++, hex += 2)
			(void)sscanf(hex, "%2hhx", &s->nonce[k]); /* as we wrote it */
		s->is_relayed = true;
		gantry_fd_close(gantry_store_take(handed, name));
		gantry_keep(s->agent, s->bell_fd, "%s", name);
		return;
	}
}

/* "s/SESSION/arriving": from another host; ours only if the journal says so. */
static void take_arriving(struct gantry_session *s)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	(void)gantry_str_format(name, sizeof(name), GANTRY_KEPT_ARRIVING, /* it fits */
				(unsigned long long)s->id);
	fd = gantry_store_take(&s->agent->handed, name);
	s->is_arriving = fd >= 0;
	gantry_fd_close(fd);
	if (s->is_arriving)
		gantry_keep(s->agent, s->bell_fd, "%s", name);
}

/* "s/SESSION/by/WORKER": who alone may say that it serves the session. */
static void take_served_by(struct gantry_session *s)
{
	struct gantry_store *handed = &s->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX];

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/by/", (unsigned long long)s->id);
	for (size_t i = 0; i < handed->nentries; i++) {
		char name[GANTRY_MONITOR_NAME_MAX];

		if (!gantry_str_starts(handed->entries[i].name, prefix))
			continue;
		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), handed->entries[i].name);
		s->served_by = strtoull(name + strlen(prefix), NULL, 16);
		gantry_fd_close(gantry_store_take(handed, name));
		gantry_keep(s->agent, s->bell_fd, "%s", name);
		return;
	}
}

/* What the shape was, from the ledger: the guest may have written over the segment's header. */
static int restore_shape(struct gantry_session *s, struct gantry_err *err)
{
	const struct gantry_ledger_header *hdr = s->ledger.hdr;

	if (gantry_segment_layout_of(s->ledger.nqueues, s->ledger.nslots, hdr->segment_bytes,
				     &s->shape.segment) < 0)
		return gantry_err_set(err, -EINVAL,
				      "its ledger's shape is none that a segment has");
	s->shape.virtual_bytes = hdr->virtual_bytes;
	s->shape.mem_bytes = hdr->mem_bytes;
	s->shape.slab_bytes = hdr->slab_bytes;
	s->shape.address = hdr->address;
	return 0;
}

/* What the name of a desk's session says: see keep.h. */
struct kept_desk {
	unsigned long long session;
	unsigned long long machine;
	unsigned int desk;
	unsigned long long off;
	unsigned long long bytes;
	unsigned long long generation;
};

static bool find_desk(struct gantry_agent *a, uint64_t session_id, struct kept_desk *ret_desk,
		      char name[GANTRY_MONITOR_NAME_MAX])
{
	for (size_t i = 0; i < a->handed.nentries; i++) {
		struct kept_desk k;

		if (sscanf(a->handed.entries[i].name, GANTRY_KEPT_DESK, &k.session, &k.machine,
			   &k.desk, &k.off, &k.bytes, &k.generation) != 6 ||
		    k.session != session_id)
			continue;
		(void)gantry_str_copy(name, GANTRY_MONITOR_NAME_MAX, /* the same size */
				      a->handed.entries[i].name);
		k.off <<= GANTRY_KEPT_DESK_SHIFT;
		k.bytes <<= GANTRY_KEPT_DESK_SHIFT;
		*ret_desk = k;
		return true;
	}
	return false;
}

/* @s is NULL for a session that is lost: a worker may still have its part. */
static int adopt_desk(struct gantry_agent *a, uint64_t session_id, struct gantry_session *s,
		      struct gantry_err *err)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	struct gantry_doormem *m;
	struct kept_desk k;

	if (!find_desk(a, session_id, &k, name))
		return 0; /* its memory is its own */
	gantry_fd_close(gantry_store_take(&a->handed, name));
	m = gantry_ivshmem_find(a, k.machine);
	if (!m)
		return gantry_err_set(err, -ENOENT, "its machine's door is lost");
	if (s)
		gantry_keep(a, s->segment_fd, "%s", name);
	return gantry_doormem_adopt(m, s, k.desk, k.off, k.bytes, k.generation, err);
}

static int take_desk(struct gantry_session *s, struct gantry_err *err)
{
	int r = adopt_desk(s->agent, s->id, s, err);

	if (r == 0 && s->doormem && s->wake_fd < 0)
		s->wake = GANTRY_SESSION_WAKE_NONE;
	return r;
}

static int fill_session(struct gantry_session *s, uint32_t slot, int *door_fd,
			struct gantry_err *err)
{
	struct gantry_agent *a = s->agent;
	int r;

	s->segment_fd = take(a, s->id, "segment");
	s->bell_fd = take(a, s->id, "bell");
	s->slab_fd = take(a, s->id, "slab");
	take_wake(s);
	*door_fd = take(a, s->id, "door");
	take_shared(s);
	gantry_slabs_restore_session(s);
	if (s->segment_fd < 0 || s->bell_fd < 0 || s->slab_fd < 0)
		return gantry_err_set(err, -ENOENT, "a descriptor of it is missing");
	take_served_by(s);
	take_nonce(s);
	gantry_adopt_restore(s);
	take_vsock(s);
	take_arriving(s);
	/* Held still to be moved, or come from another host: whoever has the nonce is its guest. */
	s->awaits_guest = s->is_relayed && *door_fd < 0;
	r = take_desk(s, err);
	if (r < 0)
		return r;
	r = gantry_memfd_check(s->segment_fd, s->segment_off + s->ledger.hdr->segment_bytes);
	if (r < 0)
		return gantry_err_set_errno(err, r, "its segment is not what the ledger says");
	/* Its worker can write the ledger, but made the slab no larger: a bound for what is refunded. */
	r = gantry_memfd_check(s->slab_fd, s->ledger.hdr->virtual_bytes);
	if (r < 0)
		return gantry_err_set_errno(err, r, "its memory is not what the ledger says");
	if (!gantry_slot_claim(a->share_slots, GANTRY_SHARE_NSESSIONS, slot))
		return gantry_err_set(err, -EEXIST, "its entry in the share pages is taken");
	s->share_slot = slot;
	s->slots_held = true;
	r = restore_shape(s, err);
	if (r < 0)
		return r;
	s->charged_bytes = s->doormem ? 0 : s->shape.segment.segment_bytes;
	s->tenant->host_mem_used += s->charged_bytes;
	return gantry_session_map(s, err);
}

/* What the name of a kept ledger says. */
struct kept_ledger {
	unsigned long long id;
	unsigned int slot;
	unsigned int version;
	unsigned int tenant; /* slot */
};

static struct gantry_tenant *tenant_of(struct gantry_agent *a, const struct kept_ledger *kept,
				       const struct gantry_ledger *ledger, struct gantry_err *err)
{
	struct gantry_tenant *t = gantry_tenant_by_slot(a, kept->tenant);

	if (!t || t->removed) {
		(void)gantry_err_set(err, -ENOENT, "its tenant is not configured any more");
		return NULL;
	}
	/* checked: terminated */
	if (strcmp(ledger->hdr->tenant, t->conf.name) == 0 && ledger->hdr->session_id == kept->id)
		return t;
	(void)gantry_err_set(err, -EPERM, "its ledger says that it is another's");
	return NULL;
}

static void restore_session(struct gantry_agent *a, const struct kept_ledger *kept, int ledger_fd)
{
	struct gantry_ledger ledger = { 0 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_tenant *t = NULL;
	struct gantry_session *s = NULL;
	int door_fd = -EBADF;
	int r = gantry_ledger_open(ledger_fd, &ledger, &err);

	if (r == 0)
		t = tenant_of(a, kept, &ledger, &err);
	if (t)
		s = gantry_session_blank(a, t, kept->id);
	if (!s) {
		gantry_event(a, "session-lost", NULL, NULL, NULL, "session %llu: %s", kept->id,
			     err.text);
		(void)adopt_desk(a, kept->id, NULL, &err); /* or there is no more to keep apart */
		gantry_keep_drop_tree(a, "s/%llx/", kept->id); /* and the guest sees the end */
		gantry_ledger_close(&ledger);
		gantry_fd_close(ledger_fd);
		return;
	}
	s->ledger = ledger;
	s->ledger_fd = ledger_fd;
	s->version = kept->version;
	s->phase = GANTRY_PHASE_RESTORED;
	s->welcomed = true;
	s->began_ns = gantry_now_ns();
	gantry_keep(a, ledger_fd, GANTRY_KEPT_LEDGER, kept->id, kept->slot, kept->version,
		    kept->tenant);
	r = fill_session(s, kept->slot, &door_fd, &err);
	s->door_fd = door_fd;
	if (kept->id >= a->next_session_id)
		a->next_session_id = kept->id + 1;
	if (r < 0) {
		gantry_event(a, "session-lost", NULL, s, NULL, "%s", err.text);
		s->broken = true;
	}
}

static void restore_all_sessions(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		struct kept_ledger kept;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_LEDGER, &kept.id, &kept.slot, &kept.version,
			   &kept.tenant) != 4) {
			i++;
			continue;
		}
		restore_session(a, &kept, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
}

/* ---- workers ---- */

static int take_pidfd(struct gantry_agent *a, uint64_t id, pid_t *ret_pid)
{
	char prefix[GANTRY_MONITOR_NAME_MAX];

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "w/%llx/pid/", (unsigned long long)id);
	for (size_t i = 0; i < a->handed.nentries; i++) {
		const char *name = a->handed.entries[i].name;

		if (!gantry_str_starts(name, prefix))
			continue;
		*ret_pid = atoi(name + strlen(prefix));
		return gantry_store_take(&a->handed, name);
	}
	return -EBADF;
}

static void restore_worker(struct gantry_agent *a, uint64_t id, uint32_t owner,
			   const struct gantry_worker_class *class, int ctl_fd)
{
	pid_t pid = 0;
	int pidfd = take_pidfd(a, id, &pid);
	struct gantry_worker *w = NULL;

	if (id >= a->next_worker_id)
		a->next_worker_id = id + 1;
	if (pidfd >= 0 && gantry_slot_claim(a->owners, GANTRY_SHARE_NWORKERS, owner))
		w = gantry_worker_new(a, id, owner, class);
	if (!w) {
		/* It ends when the last copy of its socket closes. */
		gantry_keep_drop_tree(a, "w/%llx/", (unsigned long long)id);
		gantry_fd_close(ctl_fd);
		gantry_fd_close(pidfd);
		return;
	}
	w->pid = pid;
	w->pidfd = pidfd;
	w->ctl_fd = ctl_fd;
	w->querying = true;
	gantry_mps_rejoin(w);
	/* Tags of the agent before must not be answered to us. */
	w->next_tag = gantry_now_ns();
	if (gantry_worker_watch(w) < 0) {
		/* Without memory for its end: wait for nobody, its sessions get another. */
		gantry_worker_kill_now(w);
		gantry_worker_free(w);
		return;
	}
	gantry_worker_configure(w);
}

static void restore_workers(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		struct gantry_worker_class class = { 0 };
		unsigned long long id;
		unsigned int owner;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		static_assert(sizeof(class.group) > 39, "a group's name fits");
		if (sscanf(name, "w/%llx/ctl/%u/%u/%u.%u/%39s", &id, &owner, &class.mode,
			   &class.percent, &class.mps_priority, class.group) < 5) {
			i++;
			continue;
		}
		restore_worker(a, id, owner, &class, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
}

/* ---- the journal ---- */

static void restore_line(void *arg, const struct gantry_journal_line *line)
{
	struct gantry_agent *a = arg;
	struct gantry_session *s;
	struct gantry_agent_device *d;

	switch (line->kind) {
	case GANTRY_JOURNAL_NEXT:
		if (line->id > a->next_session_id)
			a->next_session_id = line->id;
		if (line->worker > a->next_worker_id)
			a->next_worker_id = line->worker;
		/* Numbers of before mean what they meant: somebody may be watching one. */
		a->last_handover = gantry_max_u64(a->last_handover, line->migration);
		break;
	case GANTRY_JOURNAL_SESSION:
		s = gantry_session_find(a, line->id);
		if (s) {
			s->attached_unix_ns = line->unix_ns;
			memcpy(s->program, line->program, sizeof(s->program));
		}
		break;
	case GANTRY_JOURNAL_TOKEN:
		if (gantry_session_find(a, line->token.session_id))
			/* without it the guest shares anew */
			(void)gantry_tokens_restore(&a->tokens, &line->token);
		break;
	case GANTRY_JOURNAL_HANDOVER:
		gantry_handover_restore(a, line);
		break;
	case GANTRY_JOURNAL_DEVICE:
		d = gantry_agent_device_find(a, line->device);
		if (d && line->state >= GANTRY_DEVICE_ENABLED &&
		    line->state <= GANTRY_DEVICE_DRAINING)
			gantry_agent_device_set(a, d, line->state);
		break;
	case GANTRY_JOURNAL_UPGRADE:
		gantry_upgrade_restored(a, &line->upgrade);
		break;
	}
}

static void read_journal(struct gantry_agent *a)
{
	char path[PATH_MAX];
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (gantry_str_format(path, sizeof(path), "%s/journal", a->args.run_dir) < 0 ||
	    gantry_file_read(path, GANTRY_JOURNAL_MAX_BYTES, &text, &len) < 0)
		return;
	if (gantry_journal_parse(text, len, restore_line, a) < 0)
		gantry_log(GANTRY_LOG_WARN, "%s was cut: some names are lost", path);
}

/* ---- workers answer ---- */

static void open_conn(struct gantry_session *s)
{
	int fd = s->door_fd;

	s->door_fd = -EBADF;
	if (fd >= 0 && s->doormem)
		gantry_doormem_rejoin(s);
	if (fd >= 0 && (s->doormem || !(s->is_relayed ? gantry_vsock_restore(s, fd)
						      : gantry_door_restore(s, fd))))
		gantry_fd_close(fd);
}

/* It is known who serves the session: go on, or end what ended meanwhile. */
static void go_on(struct gantry_session *s)
{
	s->phase = GANTRY_PHASE_ATTACHED;
	open_conn(s);
	/* The agent before us may have asked its worker for all of its memory. */
	gantry_handover_go_on(s, gantry_session_is_held(s) ? s->worker->id : 0);
	if (s->broken)
		gantry_detach(s, GANTRY_E_INTERNAL, "the host lost a part of the session");
	else if (s->unadopted &&
		 !s->conn) /* its program was lost with the agent before: it may come again */
		gantry_worker_kill_now(s->worker);
	else if (s->is_following && !s->conn)
		gantry_seat_drift(s);
	else if ((!s->conn && !s->awaits_guest) || gantry_load_relaxed(&s->ledger.hdr->detach))
		gantry_detach(s, GANTRY_E_CLOSED, "the guest is gone");
	else
		gantry_store_release(&s->segment->state, (uint32_t)GANTRY_SESSION_ATTACHED);
	/* Its program may not have heard WELCOME yet, and passes over a second one. */
	if (s->unadopted && s->conn && s->phase == GANTRY_PHASE_ATTACHED)
		gantry_adopt_attached(s);
	if (s->awaits_guest && s->phase == GANTRY_PHASE_ATTACHED)
		gantry_vsock_await(s);
	gantry_deadline_arm(s->agent);
}

static bool may_serve(const struct gantry_worker *w, const struct gantry_session *s)
{
	return s && s->phase == GANTRY_PHASE_RESTORED && !s->worker &&
	       (s->served_by == w->id || s->served_by == 0);
}

static void end_stranger(struct gantry_worker *w, uint64_t session_id)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Detach detach = GANTRY__WORKER__DETACH__INIT;

	detach.session_id = session_id;
	detach.reason = GANTRY_E_DETACHED;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_DETACH;
	msg.detach = &detach;
	/* one that cannot be told is killed there */
	(void)gantry_call(w, &msg, NULL, 0, 0, NULL, NULL);
}

void gantry_restore_answered(struct gantry_worker *w, const Gantry__Worker__Ready *ready)
{
	for (size_t i = 0; i < ready->n_sessions; i++) {
		struct gantry_session *s = gantry_session_find(w->agent, ready->sessions[i]);

		if (may_serve(w, s))
			gantry_worker_enlist(w, s);
		else
			end_stranger(w, ready->sessions[i]);
	}
	/* For one session and without its guest: it served one that ended while nobody looked. */
	if (w->nsessions == 0 && w->class.mode != GANTRY_POOLED && ready->n_sessions > 0)
		gantry_worker_quit(w);
	gantry_list_for_each_safe(&w->sessions, struct gantry_session, worker_link, s)
		go_on(s);
}

/* Nobody serves it: its worker died, and everyone who could have been it is accounted for. */
static void go_on_without(struct gantry_session *s)
{
	struct gantry_handover *h = gantry_handover_of(s);

	if (h && h->state == GANTRY_SOURCE_OFFERED && !h->is_incoming && !s->broken) {
		s->phase = GANTRY_PHASE_HELD;
		if (!s->is_relayed) /* it is told how that ends; a relay's guest finds out by itself */
			open_conn(s);
		return;
	}
	if (s->has_moved) {
		s->door_fd = gantry_fd_close(
			s->door_fd); /* its guest's stream ends, and it finds the other host */
		s->phase = GANTRY_PHASE_ATTACHED;
		gantry_detach(s, GANTRY_E_DETACHED, "the session has moved to another host");
		return;
	}
	open_conn(s);
	gantry_session_let_go(s);
	if (s->broken || s->is_arriving ||
	    (!s->conn && !s->awaits_guest && !s->unadopted && !s->is_following) ||
	    s->ledger.hdr->detach) {
		s->phase = GANTRY_PHASE_ATTACHED;
		gantry_detach(s, s->broken ? GANTRY_E_INTERNAL : GANTRY_E_CLOSED,
			      s->broken ? "the host lost a part of the session"
					: "the guest is gone");
		return;
	}
	for (uint32_t i = 0; i < s->agent->ndevices; i++)
		/* lanes of the dead worker */
		gantry_share_dismiss(s->agent->devices[i].page, s->share_slot);
	if (s->unadopted && !s->conn) {
		gantry_adopt_await(s);
		return;
	}
	if (s->is_following && !s->conn) {
		gantry_seat_drift(s);
		return;
	}
	if (s->awaits_guest)
		gantry_vsock_await(s);
	gantry_recover_session(s);
}

void gantry_restore_settle(struct gantry_agent *a)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->querying)
			return;
	gantry_list_for_each_safe(&a->sessions, struct gantry_session, link, s) {
		if (s->phase != GANTRY_PHASE_RESTORED || s->worker)
			continue;
		go_on_without(s);
	}
}

void gantry_restore_sessions(struct gantry_agent *a)
{
	gantry_ivshmem_restore(a);
	restore_all_sessions(a);
	gantry_ivshmem_resume(a);
	gantry_relays_restore(a);
	gantry_slabs_restore(a);
	read_journal(a);
	gantry_mps_restore(a);
	restore_workers(a);
	if (!gantry_list_is_empty(&a->sessions) || !gantry_list_is_empty(&a->workers))
		gantry_event(a, "agent-restarted", NULL, NULL, NULL,
			     "took over %zu sessions and %zu workers",
			     gantry_list_count(&a->sessions), gantry_list_count(&a->workers));
	gantry_restore_settle(a);
}
