/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs about another build that takes over. */
#include <errno.h>

#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/upgrade.h"

static enum gantry_admin_code code_of(int r)
{
	switch (r) {
	case -EBUSY:
		return GANTRY_ADMIN_BUSY;
	case -ENOENT:
	case -ENOTDIR:
		return GANTRY_ADMIN_NOT_FOUND;
	case -ENOTSUP:
		return GANTRY_ADMIN_UNSUPPORTED;
	case -EINVAL:
	case -ENAMETOOLONG:
		return GANTRY_ADMIN_USAGE;
	default:
		return GANTRY_ADMIN_FAILED;
	}
}

static void add_formats(const struct gantry_upgrade *u, struct gantry_answer *r,
			Gantry__Admin__Upgrade *msg)
{
	struct gantry_build self;

	gantry_build_self(&self);
	msg->way_back = gantry_build_may_return(&self, &u->next, NULL) == 0;
	msg->formats = gantry_answer_take(r, GANTRY_NFORMATS * sizeof(*msg->formats));
	for (unsigned int i = 0; i < GANTRY_NFORMATS; i++) {
		Gantry__Admin__UpgradeFormat *f = gantry_answer_take(r, sizeof(*f));

		gantry__admin__upgrade_format__init(f);
		f->name = gantry_answer_text(r, gantry_build_format_name(i));
		f->written = self.formats[i].newest;
		f->oldest = u->next.formats[i].oldest;
		f->newest = u->next.formats[i].newest;
		f->fits = f->written >= f->oldest && f->written <= f->newest;
		msg->formats[msg->n_formats++] = f;
	}
}

static void answer(const struct gantry_agent *a, struct gantry_answer *r)
{
	const struct gantry_upgrade *u = &a->upgrade;
	Gantry__Admin__Upgrade *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__upgrade__init(msg);
	msg->id = u->record.id;
	msg->state = gantry_answer_text(r, gantry_upgrade_state_name(u->record.state));
	msg->from = gantry_answer_text(r, u->record.from);
	msg->to = gantry_answer_text(r, u->record.to);
	msg->text = gantry_answer_text(r, u->text);
	msg->took_ns = u->record.took_ns;
	msg->pause_ns = u->record.pause_ns;
	msg->done = u->record.ndone;
	msg->refused = u->record.nrefused;
	msg->back = u->record.nback;
	if (u->next.version[0])
		add_formats(u, r, msg);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_UPGRADE;
	r->msg.upgrade = msg;
}

void gantry_verb_agent_upgrade(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			       struct gantry_answer *r)
{
	const struct gantry_upgrade_ask ask = {
		.path = q->agent_upgrade->path,
		.check = q->agent_upgrade->check,
		.downgrade = q->agent_upgrade->downgrade,
		.restart_workers = q->agent_upgrade->restart_workers,
	};
	struct gantry_err err = GANTRY_ERR_NONE;
	int status = gantry_upgrade_begin(a, &ask, &err);

	if (status < 0)
		gantry_answer_fail(r, code_of(status), "%s; version %s goes on", err.text,
				   gantry_build_version);
	else
		answer(a, r);
}

void gantry_verb_agent_upgrade_status(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				      struct gantry_answer *r)
{
	(void)q;
	answer(a, r);
}
