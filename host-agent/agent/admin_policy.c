/* SPDX-License-Identifier: Apache-2.0 */
/* Policies and groups, as the admin socket shows them. */
#include <string.h>

#include "base/list.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/policy_child.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/policy/builtin.h"

#define NO_GROUP "-"

static const char *name_of(const struct gantry_domain *d)
{
	return d->name[0] ? d->name : NO_GROUP;
}

/* ---- policies ---- */

static Gantry__Admin__Policy *list_policy(struct gantry_placement *p, const char *name,
					  struct gantry_answer *r)
{
	Gantry__Admin__Policy *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__policy__init(msg);
	msg->name = gantry_answer_text(r, name);
	msg->groups = gantry_answer_take(r, GANTRY_PLACEMENT_NDOMAINS * sizeof(*msg->groups));
	for (uint32_t i = 0; p && i < p->ndomains; i++)
		if (strcmp(p->domains[i].policy, name) == 0)
			msg->groups[msg->n_groups++] = gantry_answer_text(r,
									  name_of(&p->domains[i]));
	return msg;
}

static Gantry__Admin__Policy *list_builtin(struct gantry_agent *a,
					   const struct gantry_policy *policy,
					   struct gantry_answer *r)
{
	Gantry__Admin__Policy *msg = list_policy(a->placement, policy->name, r);

	msg->summary = gantry_answer_text(r, policy->summary);
	msg->source = gantry_answer_text(r, "built in");
	msg->state = gantry_answer_text(r, "ready");
	return msg;
}

/* Of several groups the first that uses it: each has a process of its own. */
static const struct gantry_policy_child *child_of(const struct gantry_placement *p,
						  const char *name)
{
	for (uint32_t i = 0; p && i < p->ndomains; i++)
		if (p->domains[i].child && strcmp(p->domains[i].policy, name) == 0)
			return p->domains[i].child;
	return NULL;
}

static Gantry__Admin__Policy *list_loaded(struct gantry_agent *a,
					  const struct gantry_policy_section *conf,
					  struct gantry_answer *r)
{
	Gantry__Admin__Policy *msg = list_policy(a->placement, conf->name, r);
	const struct gantry_policy_child *c = child_of(a->placement, conf->name);

	msg->source = gantry_answer_text(r, conf->path);
	msg->fallback = gantry_answer_text(r, conf->fallback);
	msg->timeout_ns = gantry_answer_take(r, sizeof(*msg->timeout_ns));
	gantry__admin__uint__init(msg->timeout_ns);
	msg->timeout_ns->value = conf->timeout_ns;
	msg->state = gantry_answer_text(r, c ? gantry_policy_child_state(c) : "unused");
	if (!c)
		return msg;
	msg->summary = gantry_answer_text(r, gantry_policy_child_summary(c));
	msg->reason = gantry_answer_text(r, gantry_policy_child_reason(c));
	msg->pid = (uint32_t)gantry_policy_child_pid(c);
	return msg;
}

void gantry_verb_policy_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	Gantry__Admin__PolicyList *list = gantry_answer_take(r, sizeof(*list));
	const struct gantry_policy *policy;
	unsigned int n = 0;

	(void)q;
	gantry__admin__policy_list__init(list);
	while (gantry_policy_at(n))
		n++;
	n += a->config->npolicies;
	list->policies = gantry_answer_take(r, n * sizeof(*list->policies));
	for (unsigned int i = 0; (policy = gantry_policy_at(i)); i++)
		list->policies[list->n_policies++] = list_builtin(a, policy, r);
	for (uint32_t i = 0; i < a->config->npolicies; i++)
		list->policies[list->n_policies++] = list_loaded(a, &a->config->policies[i], r);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_POLICIES;
	r->msg.policies = list;
}

/* ---- groups ---- */

static Gantry__Admin__Group *list_group(struct gantry_agent *a, struct gantry_domain *d,
					struct gantry_answer *r)
{
	const struct gantry_group_section *conf = gantry_config_group(a->config, d->name);
	Gantry__Admin__Group *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__group__init(msg);
	msg->name = gantry_answer_text(r, name_of(d));
	msg->devices = gantry_answer_text(r, conf ? conf->devices : "all");
	msg->policy = gantry_answer_text(r, d->policy);
	msg->options = gantry_answer_text(r, d->options);
	msg->decides = gantry_answer_text(r, d->used->name);
	if (d->child && strcmp(gantry_policy_child_state(d->child), "ready") == 0)
		msg->decides = gantry_answer_text(r, d->policy);
	msg->decisions = d->ndecisions;
	msg->moves = d->nmoves;
	msg->failures = d->nfailures;
	msg->decide_ns = d->decide_ns;
	msg->last_move = gantry_answer_text(r, d->why);
	msg->tenants = gantry_answer_take(r,
					  gantry_list_count(&a->tenants) * sizeof(*msg->tenants));
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && gantry_placement_domain(a->placement, t) == d)
			msg->tenants[msg->n_tenants++] = gantry_answer_text(r, t->conf.name);
	return msg;
}

void gantry_verb_group_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	Gantry__Admin__GroupList *list = gantry_answer_take(r, sizeof(*list));
	struct gantry_placement *p = a->placement;

	(void)q;
	gantry__admin__group_list__init(list);
	list->groups = gantry_answer_take(r, GANTRY_PLACEMENT_NDOMAINS * sizeof(*list->groups));
	for (uint32_t i = 0; p && i < p->ndomains; i++)
		list->groups[list->n_groups++] = list_group(a, &p->domains[i], r);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_GROUPS;
	r->msg.groups = list;
}
