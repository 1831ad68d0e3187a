/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that list, show or switch the agent's objects. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define REQUEST(which) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##which
#define REPLY(which)   GANTRY__ADMIN__ADMIN_REPLY__BODY_##which
#define LOOK_NS	       (10 * GANTRY_NS_PER_MS)

/* A request without arguments, and the reply with the body @want. */
static int ask_all(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest__BodyCase body,
		   Gantry__Admin__AdminReply__BodyCase want, Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	request.body_case = body;
	request.device_list = &empty; /* a union: so is each other body that is Empty */
	return gantry_ctl_ask(ctl, &request, (int)want, ret_reply);
}

/* The same for what belongs to sessions: of @tenant (NULL: any) and of session @id (0: any). */
static int ask_some(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest__BodyCase body,
		    Gantry__Admin__AdminReply__BodyCase want, const char *tenant, uint64_t id,
		    Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	if (tenant)
		filter.tenant = (char *)tenant;
	filter.session_id = id;
	request.body_case = body;
	request.session_list = &filter; /* a union: so is queue_list */
	return gantry_ctl_ask(ctl, &request, (int)want, ret_reply);
}

/* The one of @n objects whose text field at @off is @name; NULL: none. */
static const void *find_named(const void *const *objects, size_t n, size_t off, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		const char *seen;

		memcpy(&seen, (const char *)objects[i] + off, sizeof(seen));
		if (seen && strcmp(seen, name) == 0)
			return objects[i];
	}
	return NULL;
}

static int not_found(struct gantry_ctl *ctl, const char *what, const char *name)
{
	return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
			       "there is no %s %s; see gantryctl %s list", what, name, what);
}

/* --- devices --- */

int gantry_ctl_device_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(DEVICE_LIST), REPLY(DEVICES), &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_device_fields,
				 (const void *const *)reply->devices->devices,
				 reply->devices->n_devices);
}

int gantry_ctl_device_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const void *device;
	int r = ask_all(ctl, REQUEST(DEVICE_LIST), REPLY(DEVICES), &reply);

	if (r)
		return r;
	device = find_named((const void *const *)reply->devices->devices, reply->devices->n_devices,
			    offsetof(Gantry__Admin__Device, name), ctl->args[0]);
	return device ? gantry_print_one(ctl, &gantry_device_fields, device)
		      : not_found(ctl, "device", ctl->args[0]);
}

static int set_device(struct gantry_ctl *ctl, Gantry__Admin__DeviceState state)
{
	Gantry__Admin__DeviceSet set = GANTRY__ADMIN__DEVICE_SET__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	set.name = ctl->args[0];
	set.state = state;
	request.body_case = REQUEST(DEVICE_SET);
	request.device_set = &set;
	return gantry_ctl_change(ctl, &request, "device %s: %s", set.name,
				 gantry_device_state_name((int)state));
}

int gantry_ctl_device_enable(struct gantry_ctl *ctl)
{
	return set_device(ctl, GANTRY__ADMIN__DEVICE_STATE__ENABLED);
}

int gantry_ctl_device_disable(struct gantry_ctl *ctl)
{
	return set_device(ctl, GANTRY__ADMIN__DEVICE_STATE__DISABLED);
}

int gantry_ctl_device_drain(struct gantry_ctl *ctl)
{
	return set_device(ctl, GANTRY__ADMIN__DEVICE_STATE__DRAINING);
}

/* --- tenants --- */

int gantry_ctl_tenant_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(TENANT_LIST), REPLY(TENANTS), &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_tenant_fields,
				 (const void *const *)reply->tenants->tenants,
				 reply->tenants->n_tenants);
}

int gantry_ctl_tenant_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(TENANT_LIST), REPLY(TENANTS), &reply);

	if (r)
		return r;
	for (size_t i = 0; i < reply->tenants->n_tenants; i++) {
		const Gantry__Admin__Tenant *tenant = reply->tenants->tenants[i];

		if (tenant->config && strcmp(tenant->config->name, ctl->args[0]) == 0)
			return gantry_print_one(ctl, &gantry_tenant_fields, tenant);
	}
	return not_found(ctl, "tenant", ctl->args[0]);
}

int gantry_ctl_tenant_remove(struct gantry_ctl *ctl)
{
	Gantry__Admin__Name name = GANTRY__ADMIN__NAME__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	name.name = ctl->args[0];
	request.body_case = REQUEST(TENANT_REMOVE);
	request.tenant_remove = &name;
	return gantry_ctl_change(ctl, &request, "tenant %s: removed", name.name);
}

/* --- sessions --- */

int gantry_ctl_parse_session(struct gantry_ctl *ctl, const char *text, uint64_t *ret_id)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_u64_parse(text, 1, UINT64_MAX, ret_id, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "\"%s\" is no session: %s; see gantryctl session list", text,
				       err.text);
	return 0;
}

/* "SESSION:SLOT" */
int gantry_ctl_parse_queue(struct gantry_ctl *ctl, const char *text, uint64_t *ret_session,
			   uint32_t *ret_slot)
{
	const char *colon = strchr(text, ':');
	_cleanup_free_ char *session = colon ? strndup(text, (size_t)(colon - text)) : NULL;
	uint64_t slot;

	if (!session || gantry_u64_parse(session, 1, UINT64_MAX, ret_session, NULL) < 0 ||
	    gantry_u64_parse(colon + 1, 0, UINT32_MAX, &slot, NULL) < 0)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"\"%s\" is no queue; name it SESSION:SLOT, see gantryctl queue list", text);
	*ret_slot = (uint32_t)slot;
	return 0;
}

int gantry_ctl_session_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_some(ctl, REQUEST(SESSION_LIST), REPLY(SESSIONS),
			 gantry_ctl_option(ctl, "tenant"), 0, &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_session_fields,
				 (const void *const *)reply->sessions->sessions,
				 reply->sessions->n_sessions);
}

static int show_session(struct gantry_ctl *ctl, const Gantry__Admin__Session *session)
{
	if (gantry_ctl_option(ctl, "unsupported"))
		return gantry_print_list(ctl, &gantry_missing_fields,
					 (const void *const *)session->missing, session->n_missing);
	return gantry_print_one(ctl, &gantry_session_fields, session);
}

int gantry_ctl_session_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t id;
	int r = gantry_ctl_parse_session(ctl, ctl->args[0], &id);

	if (!r)
		r = ask_some(ctl, REQUEST(SESSION_LIST), REPLY(SESSIONS), NULL, id, &reply);
	if (r)
		return r;
	for (size_t i = 0; i < reply->sessions->n_sessions; i++)
		if (reply->sessions->sessions[i]->session_id == id)
			return show_session(ctl, reply->sessions->sessions[i]);
	return not_found(ctl, "session", ctl->args[0]);
}

int gantry_ctl_session_kick(struct gantry_ctl *ctl)
{
	Gantry__Admin__SessionId body = GANTRY__ADMIN__SESSION_ID__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const char *reason = gantry_ctl_option(ctl, "reason");
	int r = gantry_ctl_parse_session(ctl, ctl->args[0], &body.session_id);

	if (r)
		return r;
	if (reason)
		body.reason = (char *)reason;
	request.body_case = REQUEST(SESSION_KICK);
	request.session_kick = &body;
	return gantry_ctl_change(ctl, &request, "session %s: ended", ctl->args[0]);
}

/* --- queues --- */

int gantry_ctl_queue_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const char *session = gantry_ctl_option(ctl, "session");
	uint64_t id = 0;
	int r = session ? gantry_ctl_parse_session(ctl, session, &id) : 0;

	if (!r)
		r = ask_some(ctl, REQUEST(QUEUE_LIST), REPLY(QUEUES),
			     gantry_ctl_option(ctl, "tenant"), id, &reply);
	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_queue_fields,
				 (const void *const *)reply->queues->queues,
				 reply->queues->n_queues);
}

int gantry_ctl_queue_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t id;
	uint32_t slot;
	int r = gantry_ctl_parse_queue(ctl, ctl->args[0], &id, &slot);

	if (!r)
		r = ask_some(ctl, REQUEST(QUEUE_LIST), REPLY(QUEUES), NULL, id, &reply);
	if (r)
		return r;
	for (size_t i = 0; i < reply->queues->n_queues; i++) {
		const Gantry__Admin__Queue *queue = reply->queues->queues[i];

		if (queue->session_id == id && queue->slot == slot)
			return gantry_print_one(ctl, &gantry_queue_fields, queue);
	}
	return not_found(ctl, "queue", ctl->args[0]);
}

static int set_paused(struct gantry_ctl *ctl, bool paused)
{
	Gantry__Admin__UInt value = GANTRY__ADMIN__UINT__INIT;
	Gantry__Admin__QueueSet set = GANTRY__ADMIN__QUEUE_SET__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	int r = gantry_ctl_parse_queue(ctl, ctl->args[0], &set.session_id, &set.slot);

	if (r)
		return r;
	value.value = paused;
	set.paused = &value;
	request.body_case = REQUEST(QUEUE_SET);
	request.queue_set = &set;
	return gantry_ctl_change(ctl, &request, "queue %s: %s", ctl->args[0],
				 paused ? "paused" : "resumed");
}

int gantry_ctl_queue_pause(struct gantry_ctl *ctl)
{
	return set_paused(ctl, true);
}

int gantry_ctl_queue_resume(struct gantry_ctl *ctl)
{
	return set_paused(ctl, false);
}

/* --- workers, kernels, the agent --- */

int gantry_ctl_worker_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(WORKER_LIST), REPLY(WORKERS), &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_worker_fields,
				 (const void *const *)reply->workers->workers,
				 reply->workers->n_workers);
}

int gantry_ctl_policy_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(POLICY_LIST), REPLY(POLICIES), &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_policy_fields,
				 (const void *const *)reply->policies->policies,
				 reply->policies->n_policies);
}

int gantry_ctl_policy_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const void *policy;
	int r = ask_all(ctl, REQUEST(POLICY_LIST), REPLY(POLICIES), &reply);

	if (r)
		return r;
	policy = find_named((const void *const *)reply->policies->policies,
			    reply->policies->n_policies, offsetof(Gantry__Admin__Policy, name),
			    ctl->args[0]);
	return policy ? gantry_print_one(ctl, &gantry_policy_fields, policy)
		      : not_found(ctl, "policy", ctl->args[0]);
}

int gantry_ctl_group_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_all(ctl, REQUEST(GROUP_LIST), REPLY(GROUPS), &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_group_fields,
				 (const void *const *)reply->groups->groups,
				 reply->groups->n_groups);
}

int gantry_ctl_kernel_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const Gantry__Admin__KernelList *list;
	json_object *object, *problems;
	int r = ask_all(ctl, REQUEST(KERNEL_LIST), REPLY(KERNELS), &reply);

	if (r)
		return r;
	list = reply->kernels;
	if (!ctl->json) {
		r = gantry_print_table(ctl, ctl->out, &gantry_kernel_fields,
				       (const void *const *)list->kernels, list->n_kernels);
		for (size_t i = 0; i < list->n_problems; i++)
			fprintf(ctl->err, "gantryctl: %s\n", list->problems[i]);
		return r;
	}
	object = gantry_ctl_json_new();
	problems = json_object_new_array();
	for (size_t i = 0; i < list->n_problems; i++)
		json_object_array_add(problems, json_object_new_string(list->problems[i]));
	json_object_object_add(object, "kernels",
			       gantry_print_json_array(&gantry_kernel_fields,
						       (const void *const *)list->kernels,
						       list->n_kernels));
	json_object_object_add(object, "problems", problems);
	return gantry_ctl_json_print(ctl, object);
}

static const Gantry__Admin__Worker *find_looking(const Gantry__Admin__WorkerList *list)
{
	for (size_t i = 0; i < list->n_workers; i++)
		if (list->workers[i]->looking)
			return list->workers[i];
	return NULL;
}

int gantry_ctl_await_workers(struct gantry_ctl *ctl, const char *what)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t deadline_ns = gantry_ctl_deadline(ctl);

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		const Gantry__Admin__Worker *one;
		int r = ask_all(ctl, REQUEST(WORKER_LIST), REPLY(WORKERS), &reply);

		if (r)
			return r;
		one = find_looking(reply->workers);
		if (!one)
			return 0;
		if (gantry_now_ns() >= deadline_ns)
			return gantry_ctl_fail(ctl, GANTRY_CTL_TIMEOUT,
					       "%s, but worker %" PRIu64
					       " has not looked yet: its sessions find it later",
					       what, one->worker_id);
		(void)nanosleep(&pause, NULL); /* cut short: it is asked sooner */
	}
}

int gantry_ctl_kernel_rescan(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	static const char done[] = "module directories read again";
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	int r;

	request.body_case = REQUEST(RESCAN);
	request.rescan = &empty;
	r = gantry_ctl_ask(ctl, &request, -1, &reply);
	if (r == 0)
		r = gantry_ctl_await_workers(ctl, done);
	return r ? r : gantry_ctl_done(ctl, "%s", done);
}

int gantry_ctl_reload(struct gantry_ctl *ctl)
{
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	request.body_case = REQUEST(RELOAD);
	request.reload = &empty;
	return gantry_ctl_change(ctl, &request, "configuration read again");
}

static void print_version(struct gantry_ctl *ctl, const Gantry__Admin__Version *agent)
{
	char started[40];

	gantry_time_format(agent->started_unix_ns, started);
	fprintf(ctl->out, "agent      %s, wire protocol %u to %u\n", agent->agent, agent->wire_min,
		agent->wire_max);
	fprintf(ctl->out, "started    %s, restarted %" PRIu64 " times since; pid %u, monitor %u\n",
		started, agent->agent_restarts, agent->agent_pid, agent->monitor_pid);
}

int gantry_ctl_version(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	json_object *object;
	int r;

	if (!ctl->json)
		fprintf(ctl->out, "gantryctl  %s\n", GANTRY_VERSION);
	r = ask_all(ctl, REQUEST(VERSION), REPLY(VERSION), &reply);
	if (r)
		return r;
	if (!ctl->json) {
		print_version(ctl, reply->version);
		return 0;
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object, "client", json_object_new_string(GANTRY_VERSION));
	json_object_object_add(object, "agent",
			       gantry_fields_json(&gantry_version_fields, reply->version));
	return gantry_ctl_json_print(ctl, object);
}
