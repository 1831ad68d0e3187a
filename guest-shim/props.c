/* SPDX-License-Identifier: Apache-2.0 */
/* What a session may count on, and what it has used. */
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/str.h"
#include "guest-shim/control.h"
#include "guest-shim/error.h"
#include "guest-shim/ranges.h"

int gantry_props_get(struct gantry_session *session, int kind, struct gantry_props *ret_props)
{
	struct gantry_reply_props props;
	struct gantry_reply reply;
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_props || kind < 0 || kind >= GANTRY_NKINDS)
		return gantry_fail_plain(GANTRY_E_ARG);
	gantry_desc_put_props(&desc, &(struct gantry_op_props){ .kind = (uint32_t)kind });
	r = gantry_control_call(session, &desc, NULL, 0, gantry_session_deadline(session), &reply);
	if (r < 0)
		return r;
	if (reply.len_bytes < sizeof(props))
		return gantry_control_bad_reply(session, "properties cut short");
	memcpy(&props, reply.data, sizeof(props));
	props.name[sizeof(props.name) - 1] = '\0';

	*ret_props = (struct gantry_props){
		.ndevices = props.ndevices,
		.kinds = props.kinds,
		.lanes = props.lanes,
		.host_direct = (props.flags & GANTRY_PROP_HOST_DIRECT) != 0,
		.mem_bytes = props.mem_bytes,
		.virtual_bytes = props.virtual_bytes,
		.heap_bytes = props.heap_bytes,
		.nqueues = props.nqueues,
		.nslots = props.nslots,
		.window_us = props.window_us,
		.priority_max = props.priority_max,
		.session_id = session->session_id,
		.translated = ((props.flags | session->props) & GANTRY_PROP_TRANSLATED) != 0,
	};
	(void)gantry_str_copy(ret_props->name, sizeof(ret_props->name), props.name);
	return 0;
}

/* Into @text; *ret_bytes without a NUL. */
static int describe(struct gantry_session *s, int kind, char *text, uint64_t room,
		    uint64_t *ret_bytes)
{
	uint64_t deadline_ns = gantry_session_deadline(s);
	struct gantry_op_describe args = { .bytes = (uint32_t)room, .kind = (uint32_t)kind };
	struct gantry_reply_text answer;
	struct gantry_reply reply;
	struct gantry_range *range;
	struct gantry_desc desc;
	int r = gantry_range_take(s, room, GANTRY_LINE, deadline_ns, &range);

	if (r < 0)
		return r;
	args.heap_off = range->off;
	gantry_desc_put_describe(&desc, &args);
	r = gantry_control_call(s, &desc, NULL, 0, deadline_ns, &reply);
	if (r == 0 && reply.len_bytes < sizeof(answer))
		r = gantry_control_bad_reply(s, "a description cut short");
	if (r == 0) {
		memcpy(&answer, reply.data, sizeof(answer));
		*ret_bytes = answer.bytes;
		gantry_region_copy_out(text, gantry_range_ptr(s, range),
				       GANTRY_MIN(answer.bytes, room));
	}
	gantry_range_put(s, range);
	return r;
}

int gantry_describe(struct gantry_session *session, int kind, char *text, uint64_t text_bytes,
		    uint64_t *ret_bytes)
{
	char none[GANTRY_LINE];
	uint64_t bytes = 0;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (kind <= GANTRY_KIND_ANY || kind >= GANTRY_NKINDS || !ret_bytes || (text_bytes && !text))
		return gantry_fail(GANTRY_E_ARG, "one kind of device, and somewhere to put it");
	if (text_bytes > 1)
		r = describe(session, kind, text,
			     GANTRY_MIN(text_bytes - 1, (uint64_t)GANTRY_MAX_IMAGE_LOG), &bytes);
	else
		r = describe(session, kind, none, sizeof(none), &bytes);
	if (r < 0)
		return r;
	if (text_bytes)
		text[GANTRY_MIN(GANTRY_MIN(bytes, text_bytes - 1),
				(uint64_t)GANTRY_MAX_IMAGE_LOG)] = '\0';
	*ret_bytes = bytes + 1;
	return 0;
}

static uint64_t count_submitted(struct gantry_session *s)
{
	uint64_t n = 0;

	for (uint32_t i = 1; i < s->nqueues; i++)
		n += gantry_load_relaxed(&s->queues[i].nsubmitted);
	return n;
}

int gantry_stats_get(struct gantry_session *session, struct gantry_stats *ret_stats)
{
	struct gantry_reply_stats stats;
	struct gantry_reply reply;
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_stats)
		return gantry_fail_plain(GANTRY_E_ARG);
	gantry_desc_put_stats(&desc, &(struct gantry_op_stats){ 0 });
	r = gantry_control_call(session, &desc, NULL, 0, gantry_session_deadline(session), &reply);
	if (r < 0)
		return r;
	if (reply.len_bytes < sizeof(stats))
		return gantry_control_bad_reply(session, "statistics cut short");
	memcpy(&stats, reply.data, sizeof(stats));

	*ret_stats = (struct gantry_stats){
		.tasks_submitted = count_submitted(session),
		.tasks_finished = stats.tasks_finished,
		.tasks_failed = stats.tasks_failed,
		.device_ns = stats.device_ns,
		.bytes_in = stats.bytes_in,
		.bytes_out = stats.bytes_out,
		.virtual_bytes = stats.virtual_bytes,
		.resident_bytes = stats.resident_bytes,
		.resident_peak_bytes = stats.resident_peak_bytes,
		.worker_restarts = stats.worker_restarts,
		.wakeups_sent = gantry_load_relaxed(&session->nwakeups),
		.sleeps = gantry_load_relaxed(&session->nsleeps),
	};
	return 0;
}
