/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs that change something. Changes of tenants are kept in the state directory. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/worker.h"
#include "proto/door.h"
#include "proto/wire.h"

#define STATE_FILE_MAX 65536u

void gantry_verb_device_set(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	const Gantry__Admin__DeviceSet *set = q->device_set;
	struct gantry_agent_device *d = gantry_agent_device_find(a, set->name);

	if (!d)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no device %.40s",
				   set->name);
	else if (set->state < GANTRY_DEVICE_ENABLED || set->state > GANTRY_DEVICE_DRAINING)
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE,
				   "a device can be enabled, disabled or drained");
	else
		gantry_agent_device_set(a, d, set->state);
}

void gantry_verb_session_kick(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			      struct gantry_answer *r)
{
	struct gantry_session *s = gantry_session_find(a, q->session_kick->session_id);
	char text[GANTRY_DOOR_TEXT];

	if (!s) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no session %" PRIu64,
				   q->session_kick->session_id);
		return;
	}
	(void)gantry_str_format(text, sizeof(text), "ended by the administrator%s%s",
				q->session_kick->reason[0] ? ": " : "",
				q->session_kick->reason); /* cut is better than unsaid */
	gantry_detach(s, GANTRY_E_DETACHED, text);
}

void gantry_verb_queue_set(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	const Gantry__Admin__QueueSet *set = q->queue_set;
	struct gantry_session *s = gantry_session_find(a, set->session_id);

	if (set->slot == 0) {
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE,
				   "queue 0 carries the session's control calls");
		return;
	}
	if (!s || set->slot >= s->ledger.nqueues ||
	    s->ledger.queues[set->slot].state == GANTRY_QUEUE_CLOSED) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "session %" PRIu64 " has no queue %u",
				   set->session_id, set->slot);
		return;
	}
	if (set->paused) {
		uint32_t *paused = &s->ledger.queues[set->slot].paused;

		if (set->paused->value)
			(void)gantry_fetch_or(paused, 1u);
		else
			(void)gantry_fetch_and(paused, ~1u);
		gantry_workers_nudge(a);
		gantry_event(a, "queue-changed", NULL, s, NULL, "queue %u %s", set->slot,
			     set->paused->value ? "paused" : "resumed");
	}
}

void gantry_verb_reload(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	(void)q;
	if (gantry_agent_reload(a, &err) < 0)
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "%s; the old configuration stays",
				   err.text);
}

void gantry_verb_rescan(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			struct gantry_answer *r)
{
	(void)q;
	(void)r;
	gantry_kernels_rescan(a);
}

/* ---- tenants ---- */

static int set_text(struct gantry_tenant_conf *t, const char *key, const char *value,
		    struct gantry_err *err)
{
	return value[0] ? gantry_tenant_conf_set(t, key, value, err) : 0;
}

static int set_number(struct gantry_tenant_conf *t, const char *key,
		      const Gantry__Admin__UInt *value, const char *unit, struct gantry_err *err)
{
	char text[40];

	if (!value)
		return 0;
	/* it fits */
	(void)gantry_str_format(text, sizeof(text), "%" PRIu64 "%s", value->value, unit);
	return gantry_tenant_conf_set(t, key, text, err);
}

static int set_signed(struct gantry_tenant_conf *t, const char *key,
		      const Gantry__Admin__SInt *value, struct gantry_err *err)
{
	char text[40];

	if (!value)
		return 0;
	(void)gantry_str_format(text, sizeof(text), "%" PRId64, value->value); /* it fits */
	return gantry_tenant_conf_set(t, key, text, err);
}

static int set_machines(struct gantry_tenant_conf *t, const Gantry__Admin__TenantSet *set,
			struct gantry_err *err)
{
	int r = 0;

	if (set->ivshmem)
		r = gantry_tenant_conf_set(t, "ivshmem", set->ivshmem->value ? "yes" : "no", err);
	r = r < 0 ? r : set_number(t, "ivshmem_size", set->ivshmem_bytes, "", err);
	r = r < 0 ? r : set_number(t, "ivshmem_vectors", set->ivshmem_vectors, "", err);
	r = r < 0 ? r : set_number(t, "ivshmem_machines", set->ivshmem_machines, "", err);
	r = r < 0 ? r : set_number(t, "vsock_cid", set->vsock_cid, "", err);
	r = r < 0 ? r : set_text(t, "ivshmem_mode", set->ivshmem_mode, err);
	return r < 0 ? r : set_text(t, "ivshmem_owner", set->ivshmem_owner, err);
}

/* The same rules as in files, because the same code reads the values. */
static int set_fields(struct gantry_tenant_conf *t, const Gantry__Admin__TenantSet *set,
		      struct gantry_err *err)
{
	int r = set_number(t, "mem", set->mem_bytes, "", err);

	r = r < 0 ? r : set_number(t, "virtual", set->virtual_bytes, "", err);
	r = r < 0 ? r : set_number(t, "heap", set->heap_bytes, "", err);
	r = r < 0 ? r : set_number(t, "host_mem", set->host_mem_bytes, "", err);
	r = r < 0 ? r : set_number(t, "weight", set->weight, "", err);
	r = r < 0 ? r : set_signed(t, "priority", set->priority, err);
	r = r < 0 ? r : set_number(t, "sessions", set->sessions, "", err);
	r = r < 0 ? r : set_number(t, "queues", set->queues, "", err);
	r = r < 0 ? r : set_number(t, "inflight", set->inflight, "", err);
	r = r < 0 ? r : set_number(t, "deadline", set->deadline_ns, "ns", err);
	r = r < 0 ? r : set_text(t, "isolation", set->isolation, err);
	r = r < 0 ? r : set_text(t, "trust_group", set->trust_group, err);
	r = r < 0 ? r : set_text(t, "devices", set->devices, err);
	r = r < 0 ? r : set_text(t, "group", set->group, err);
	r = r < 0 ? r : set_number(t, "min_devices", set->min_devices, "", err);
	r = r < 0 ? r : set_number(t, "max_devices", set->max_devices, "", err);
	r = r < 0 ? r : set_text(t, "door", set->door, err);
	r = r < 0 ? r : set_text(t, "door_mode", set->door_mode, err);
	r = r < 0 ? r : set_text(t, "door_owner", set->door_owner, err);
	r = r < 0 ? r : set_text(t, "on_full", set->on_full, err);
	r = r < 0 ? r : set_text(t, "recipes", set->recipes, err);
	r = r < 0 ? r : set_number(t, "compute_percent", set->compute_percent, "", err);
	r = r < 0 ? r : set_number(t, "spin", set->spin_ns, "ns", err);
	return r < 0 ? r : set_machines(t, set, err);
}

static int state_path(const struct gantry_agent *a, const char *name, char *path, size_t cap,
		      struct gantry_err *err)
{
	if (gantry_str_format(path, cap, "%s/tenants.d", a->args.state_dir) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "the state directory's path is too long");
	if (mkdir(a->args.state_dir, 0755) < 0 && errno != EEXIST)
		return gantry_err_set_errno(err, -errno, "making %s", a->args.state_dir);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return gantry_err_set_errno(err, -errno, "making %s", path);
	if (gantry_str_format(path, cap, "%s/tenants.d/%s.conf", a->args.state_dir, name) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "the state directory's path is too long");
	return 0;
}

/* Which keys earlier changes have set: only those, and the new ones, are written. */
static uint64_t keys_in_state(const char *path, const char *name)
{
	struct gantry_config *scratch = gantry_config_new();
	_cleanup_free_ char *text = NULL;
	const struct gantry_tenant_conf *t = NULL;
	uint64_t set;
	size_t len;

	if (scratch && gantry_file_read(path, STATE_FILE_MAX, &text, &len) == 0 &&
	    gantry_config_parse(scratch, path, text, len, NULL) == 0)
		t = gantry_config_tenant(scratch, name);
	set = t ? t->set : 0;
	gantry_config_free(scratch);
	return set;
}

static int save_tenant(struct gantry_agent *a, const struct gantry_tenant_conf *t, uint64_t changed,
		       struct gantry_err *err)
{
	_cleanup_free_ char *text = NULL;
	char path[PATH_MAX];
	int r = state_path(a, t->name, path, sizeof(path), err);

	if (r < 0)
		return r;
	r = gantry_tenant_conf_write(t, keys_in_state(path, t->name) | changed, &text);
	if (r == 0)
		r = gantry_file_replace(path, text, strlen(text), 0644);
	return r < 0 ? gantry_err_set_errno(err, r, "writing %s; nothing was changed", path) : 0;
}

static struct gantry_config *copy_config(const struct gantry_config *from)
{
	struct gantry_config *config = gantry_config_new();

	if (!config)
		return NULL;
	config->agent = from->agent;
	config->ndevices = from->ndevices;
	config->ntenants = from->ntenants;
	memcpy(config->devices, from->devices, from->ndevices * sizeof(*from->devices));
	memcpy(config->tenants, from->tenants, from->ntenants * sizeof(*from->tenants));
	config->ngroups = from->ngroups;
	config->npolicies = from->npolicies;
	memcpy(config->groups, from->groups, sizeof(config->groups));
	memcpy(config->policies, from->policies, sizeof(config->policies));
	return config;
}

GANTRY_DEFINE_CLEANUP(struct gantry_config *, gantry_config_free);

static enum gantry_admin_code code_of(int r)
{
	return r == -EINVAL ? GANTRY_ADMIN_USAGE : GANTRY_ADMIN_FAILED;
}

/* All or nothing: checked as a whole, written to the state directory, then in force. */
static void change_tenant(struct gantry_agent *a, struct gantry_config **config,
			  struct gantry_tenant_conf *t, const Gantry__Admin__TenantSet *set,
			  struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t set_before = t->set;
	uint64_t changed;
	int result;

	t->set = 0;
	result = set_fields(t, set, &err);
	changed = t->set;
	t->set |= set_before;
	if (result == 0)
		result = gantry_config_check(*config, &err);
	if (result == 0)
		result = save_tenant(a, t, changed, &err);
	if (result < 0) {
		gantry_answer_fail(r, code_of(result), "%s", err.text);
		return;
	}
	gantry_agent_apply(a, GANTRY_TAKE_PTR(*config));
}

void gantry_verb_tenant_create(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			       struct gantry_answer *r)
{
	_cleanup_(gantry_config_freep) struct gantry_config *config = copy_config(a->config);
	const Gantry__Admin__TenantSet *set = q->tenant_create;
	struct gantry_tenant_conf *t;

	if (!config)
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "no memory");
	else if (!gantry_name_valid(set->name))
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE,
				   "a tenant's name has a-z, 0-9, _ . - and at most %d characters",
				   GANTRY_NAME_LEN_MAX);
	else if (gantry_config_tenant(config, set->name))
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED,
				   "tenant %s exists; change it with tenant set", set->name);
	else if (config->ntenants == GANTRY_CONFIG_MAX_TENANTS)
		gantry_answer_fail(r, GANTRY_ADMIN_QUOTA, "there are %u tenants already",
				   GANTRY_CONFIG_MAX_TENANTS);
	if (r->msg.code)
		return;
	t = &config->tenants[config->ntenants++];
	gantry_tenant_conf_init(t, set->name, "cli");
	change_tenant(a, &config, t, set, r);
}

void gantry_verb_tenant_set(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	_cleanup_(gantry_config_freep) struct gantry_config *config = copy_config(a->config);
	const Gantry__Admin__TenantSet *set = q->tenant_set;
	struct gantry_tenant_conf *t = config ? gantry_config_tenant(config, set->name) : NULL;

	if (!config)
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "no memory");
	else if (!t)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no tenant %.40s",
				   set->name);
	else
		change_tenant(a, &config, t, set, r);
}

static void remove_tenant(struct gantry_agent *a, struct gantry_config **config,
			  struct gantry_tenant_conf *t, struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char path[PATH_MAX];

	if (state_path(a, t->name, path, sizeof(path), &err) < 0) {
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "%s", err.text);
		return;
	}
	if (unlink(path) < 0 && errno != ENOENT) {
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "removing %s: %s", path,
				   strerror(errno));
		return;
	}
	*t = (*config)->tenants[--(*config)->ntenants];
	gantry_agent_apply(a, GANTRY_TAKE_PTR(*config));
}

void gantry_verb_tenant_remove(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			       struct gantry_answer *r)
{
	_cleanup_(gantry_config_freep) struct gantry_config *config = copy_config(a->config);
	const char *name = q->tenant_remove->name;
	struct gantry_tenant_conf *t = config ? gantry_config_tenant(config, name) : NULL;

	if (!config)
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "no memory");
	else if (!t)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no tenant %.40s", name);
	else if (strcmp(t->source, "cli") != 0)
		gantry_answer_fail(
			r, GANTRY_ADMIN_UNSUPPORTED,
			"tenant %s is defined in %s: take it out there, then gantryctl reload",
			name, t->source);
	else
		remove_tenant(a, &config, t, r);
}
