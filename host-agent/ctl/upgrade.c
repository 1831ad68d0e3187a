/* SPDX-License-Identifier: Apache-2.0 */
/* "agent upgrade": asks for it, then watches it through the change of agents. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define REQUEST(which) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##which
#define REPLY(which)   GANTRY__ADMIN__ADMIN_REPLY__BODY_##which

/* From question to question: an upgrade takes some tens of milliseconds, workers that are exchanged longer. */
#define LOOK_MS	 20
#define LIMIT_NS (120ll * 1000000000)
/* Longer than an agent that fails takes to make way for the one before. */
#define SILENCE_NS (20ull * 1000000000)

static bool is_over(const Gantry__Admin__Upgrade *u)
{
	static const char *const ends[] = { "done", "refused", "back", "idle" };

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (strcmp(u->state, ends[i]) == 0)
			return true;
	return false;
}

/* Nobody answers while one agent goes and another comes. */
static bool is_between(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE ||
	       r == -ENODATA;
}

/* Until the upgrade @id is over. 0 and the reply, or what gantry_ctl_fail() returned. */
static int follow(struct gantry_ctl *ctl, uint32_t id, uint64_t deadline_ns,
		  Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	uint64_t heard_ns = gantry_now_ns();

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
		struct gantry_err err = GANTRY_ERR_NONE;
		int r;

		request.body_case = REQUEST(AGENT_UPGRADE_STATUS);
		request.agent_upgrade_status = &empty;
		r = gantry_ctl_ask_quietly(ctl, &request, &reply, &err);
		if (r == 0)
			heard_ns = gantry_now_ns();
		if (r < 0 && (!is_between(r) || gantry_now_ns() - heard_ns > SILENCE_NS))
			return gantry_ctl_fail_client(ctl, r, &err);
		if (r == 0 && reply->code != 0)
			return gantry_ctl_fail(ctl, gantry_ctl_code(reply->code), "%s",
					       reply->text);
		if (r == 0 && reply->body_case == REPLY(UPGRADE) && reply->upgrade->id != id)
			return gantry_ctl_fail(
				ctl, GANTRY_CTL_FAILED,
				"the agent that serves knows nothing of this upgrade: the "
				"service was started anew; see gantryctl events");
		if (r == 0 && reply->body_case == REPLY(UPGRADE) && is_over(reply->upgrade)) {
			*ret_reply = GANTRY_TAKE_PTR(reply);
			return 0;
		}
		if (gantry_now_ns() >= deadline_ns)
			return gantry_ctl_fail(
				ctl, GANTRY_CTL_TIMEOUT,
				"the upgrade is not over in time; see gantryctl events, or give "
				"--timeout more");
		(void)poll(NULL, 0, LOOK_MS); /* the next question, not what it waits for */
	}
}

static void add_text(json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, json_object_new_string(text));
}

static int print_json(struct gantry_ctl *ctl, const Gantry__Admin__Upgrade *u)
{
	json_object *object = gantry_ctl_json_new();
	json_object *upgrade = json_object_new_object(), *formats = json_object_new_array();

	add_text(upgrade, "state", strcmp(u->state, "idle") == 0 ? "possible" : u->state);
	add_text(upgrade, "from", u->from);
	add_text(upgrade, "to", u->to);
	add_text(upgrade, "text", u->text);
	json_object_object_add(upgrade, "took_ns", json_object_new_uint64(u->took_ns));
	json_object_object_add(upgrade, "pause_ns", json_object_new_uint64(u->pause_ns));
	json_object_object_add(upgrade, "way_back", json_object_new_boolean(u->way_back));
	for (size_t i = 0; i < u->n_formats; i++) {
		json_object *format = json_object_new_object();

		add_text(format, "name", u->formats[i]->name);
		json_object_object_add(format, "written",
				       json_object_new_int64(u->formats[i]->written));
		json_object_object_add(format, "oldest",
				       json_object_new_int64(u->formats[i]->oldest));
		json_object_object_add(format, "newest",
				       json_object_new_int64(u->formats[i]->newest));
		json_object_array_add(formats, format);
	}
	json_object_object_add(upgrade, "formats", formats);
	json_object_object_add(object, "upgrade", upgrade);
	return gantry_ctl_json_print(ctl, object);
}

static int print_check(struct gantry_ctl *ctl, const Gantry__Admin__Upgrade *u)
{
	if (ctl->json)
		return print_json(ctl, u);
	fprintf(ctl->out, "version %s can take over from %s, and its configuration is good\n",
		u->to, u->from);
	for (size_t i = 0; i < u->n_formats; i++)
		fprintf(ctl->out, "  %-8s  written in version %u, %s reads %u to %u\n",
			u->formats[i]->name, u->formats[i]->written, u->to, u->formats[i]->oldest,
			u->formats[i]->newest);
	fprintf(ctl->out, "if it fails, %s\n",
		u->way_back
			? "the version that serves takes over again"
			: "it is started again: the version that serves does not read what it writes");
	return 0;
}

static int print_end(struct gantry_ctl *ctl, const Gantry__Admin__Upgrade *u)
{
	if (strcmp(u->state, "refused") == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s; version %s goes on", u->text,
				       u->from);
	if (strcmp(u->state, "back") == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s; sessions went on", u->text);
	if (strcmp(u->state, "idle") == 0)
		return print_check(ctl, u);
	if (ctl->json)
		return print_json(ctl, u);
	fprintf(ctl->out,
		"upgraded from version %s to %s in %.1f ms; no new guest was let in for %.1f ms\n",
		u->from, u->to, (double)u->took_ns / 1e6, (double)u->pause_ns / 1e6);
	if (*u->text)
		fprintf(ctl->out, "%s\n", u->text);
	return 0;
}

int gantry_ctl_agent_upgrade(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL, *end = NULL;
	Gantry__Admin__AgentUpgrade ask = GANTRY__ADMIN__AGENT_UPGRADE__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const char *binary = gantry_ctl_option(ctl, "binary");
	uint64_t deadline_ns = gantry_deadline_ns(ctl->timeout_given ? ctl->timeout_ns
								     : (int64_t)LIMIT_NS);
	char path[PATH_MAX] = "";
	int r;

	if (binary && !realpath(binary, path))
		return gantry_ctl_fail(ctl,
				       errno == ENOENT ? GANTRY_CTL_NOT_FOUND : GANTRY_CTL_FAILED,
				       "%s: %s", binary, strerror(errno));
	ask.path = path;
	ask.check = gantry_ctl_option(ctl, "check") != NULL;
	ask.downgrade = gantry_ctl_option(ctl, "downgrade") != NULL;
	ask.restart_workers = gantry_ctl_option(ctl, "restart-workers") != NULL;
	request.body_case = REQUEST(AGENT_UPGRADE);
	request.agent_upgrade = &ask;
	r = gantry_ctl_ask(ctl, &request, REPLY(UPGRADE), &reply);
	if (r == 0)
		r = follow(ctl, reply->upgrade->id, deadline_ns, &end);
	return r ? r : print_end(ctl, end->upgrade);
}
