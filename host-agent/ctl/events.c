/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

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

int gantry_ctl_events(struct gantry_ctl *ctl)
{
	Gantry__Admin__EventFilter filter = GANTRY__ADMIN__EVENT_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	bool follow = gantry_ctl_option(ctl, "follow") != NULL;
	const char *tenant = gantry_ctl_option(ctl, "tenant");
	struct gantry_err err = GANTRY_ERR_NONE;
	/* Following waits for what may never happen: only a time-out that was asked for ends it. */
	uint64_t deadline_ns = follow && !ctl->timeout_given ? GANTRY_DEADLINE_NEVER
							     : gantry_ctl_deadline(ctl);
	int r = gantry_ctl_connect(ctl);

	if (r)
		return r;
	if (tenant)
		filter.tenant = (char *)tenant;
	filter.history = true;
	filter.once = !follow;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_EVENTS;
	request.events = &filter;
	r = gantry_client_send(ctl->client, &request, gantry_ctl_deadline(ctl), &err);
	if (r < 0)
		return gantry_ctl_fail_client(ctl, r, &err);
	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;

		r = gantry_client_recv(ctl->client, deadline_ns, &reply, &err);
		if (r < 0)
			return gantry_ctl_fail_client(ctl, r, &err);
		if (reply->code != 0)
			return gantry_ctl_fail(ctl, gantry_ctl_code(reply->code), "%s",
					       reply->text);
		if (reply->body_case == GANTRY__ADMIN__ADMIN_REPLY__BODY_EVENT)
			print_event(ctl, reply->event);
		else if (!follow)
			return 0;
	}
}
