/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

/* What an agent may take to be there again, after a crash or an upgrade. */
#define NEXT_AGENT_NS (30 * GANTRY_NS_PER_S)
#define NEXT_LOOK_NS  (20 * GANTRY_NS_PER_MS)

static void print_event(struct gantry_ctl *ctl, const Gantry__Admin__Event *event)
{
	json_object *object;
	char when[40];

	if (ctl->json) {
		object = gantry_fields_json(&gantry_event_fields, event);
		json_object_object_add(object, "schema", json_object_new_int(GANTRY_CTL_SCHEMA));
		gantry_ctl_json_line(ctl, object);
		return;
	}
	gantry_time_format(event->unix_ns, when);
	fprintf(ctl->out, "%.23s  %-18s", when, event->kind);
	if (*event->tenant)
		fprintf(ctl->out, " tenant %s", event->tenant);
	if (event->session_id)
		fprintf(ctl->out, " session %" PRIu64, event->session_id);
	if (event->worker_id)
		fprintf(ctl->out, " worker %" PRIu64, event->worker_id);
	if (*event->device)
		fprintf(ctl->out, " device %s", event->device);
	if (*event->text) {
		_cleanup_free_ char *text = gantry_field_text(
			&gantry_event_fields.list[gantry_event_fields.n - 1], event, false);

		fprintf(ctl->out, ": %s", text ? text : "");
	}
	fputc('\n', ctl->out);
	(void)fflush(ctl->out); /* a reader that is gone shows at the end */
}

/* From here on: what there is, and with @once no more. */
static int ask(struct gantry_ctl *ctl, bool once, struct gantry_err *err)
{
	Gantry__Admin__EventFilter filter = GANTRY__ADMIN__EVENT_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const char *tenant = gantry_ctl_option(ctl, "tenant");

	if (tenant)
		filter.tenant = (char *)tenant;
	filter.history = true;
	filter.once = once;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_EVENTS;
	request.events = &filter;
	return gantry_client_send(ctl->client, &request, gantry_ctl_deadline(ctl), err);
}

/* The agent has ended, or made way for another build: the next one is waited for. */
static int follow_next(struct gantry_ctl *ctl, uint64_t deadline_ns, struct gantry_err *err)
{
	const struct timespec pause = { .tv_nsec = NEXT_LOOK_NS };
	uint64_t until_ns = gantry_now_ns() + NEXT_AGENT_NS;
	int r;

	fprintf(ctl->err, "gantryctl: the agent has ended, or another build takes over; events go "
			  "on with the next one\n");
	until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
	for (;;) {
		ctl->client = gantry_client_close(ctl->client);
		r = gantry_client_open(ctl->socket_path, until_ns, &ctl->client, err);
		if (r == 0)
			return ask(ctl, false, err);
		if (gantry_deadline_passed(until_ns))
			return r;
		(void)nanosleep(&pause, NULL); /* cut short: it is tried sooner */
	}
}

int gantry_ctl_events(struct gantry_ctl *ctl)
{
	bool follow = gantry_ctl_option(ctl, "follow") != NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	/* Following waits for what may never happen: only a time-out that was asked for ends it. */
	uint64_t deadline_ns = follow && !ctl->timeout_given ? GANTRY_DEADLINE_NEVER
							     : gantry_ctl_deadline(ctl);
	/* The latest; and up to when they were shown before the connection ended: one who read too slowly gets them again. */
	uint64_t shown_ns = 0, before_ns = 0;
	int r = gantry_ctl_connect(ctl);

	if (r)
		return r;
	r = ask(ctl, !follow, &err);
	if (r < 0)
		return gantry_ctl_fail_client(ctl, r, &err);
	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;

		r = gantry_client_recv(ctl->client, deadline_ns, &reply, &err);
		if (r == -ECONNRESET && follow && shown_ns) {
			before_ns = shown_ns;
			r = follow_next(ctl, deadline_ns, &err);
			if (r == 0)
				continue;
		}
		if (r < 0)
			return gantry_ctl_fail_client(ctl, r, &err);
		if (reply->code != 0)
			return gantry_ctl_fail(ctl, gantry_ctl_code(reply->code), "%s",
					       reply->text);
		if (reply->body_case == GANTRY__ADMIN__ADMIN_REPLY__BODY_EVENT) {
			shown_ns = reply->event->unix_ns;
			if (shown_ns > before_ns)
				print_event(ctl, reply->event);
		} else if (!follow) {
			return 0;
		}
	}
}
