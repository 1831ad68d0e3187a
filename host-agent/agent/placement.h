/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow loop: every 10 ms, while work is queued, what queues and devices do is looked at and each group's policy
 * is asked where queues should be; those that should be elsewhere are sent (migrate.h). An idle host has no timer: workers
 * tell when work comes (gantry_share_watch()). Where every policy is "static" nothing of this happens.
 *
 *   placement.c         the loop, domains, what is done with a decision
 *   placement_sample.c  what queues do: from ledgers, between two looks
 *   placement_view.c    a domain as its policy sees it
 *   policy_child.c      policies of shared objects, each in a process of its own
 *
 * A domain is a group with its policy, or all devices with [agent]'s for tenants without a group.
 *
 * Trust: ledgers are written by workers, which may be taken over: numbers are bounded, indices checked. Placements of policies are checked
 * (gantry_policy_check()).
 * Threads: the agent's one. Blocking: never.
 * Order: start once, then apply after every change of the configuration; stop once.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_PLACEMENT_H
#define GANTRY_HOST_AGENT_AGENT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "host-agent/agent/config.h"
#include "host-agent/policy/builtin.h"

struct gantry_agent;
struct gantry_policy_child;
struct gantry_session;
struct gantry_tenant;

#define GANTRY_PLACEMENT_PERIOD_NS 10000000u
#define GANTRY_PLACEMENT_NDOMAINS  (1u + GANTRY_CONFIG_MAX_GROUPS)

/* A queue, as it was seen last. */
struct gantry_queue_sample {
	uint32_t gen;	 /* of the ledger's slot */
	uint32_t device; /* 1 + index; 0: not seen yet */
	uint32_t asked;	 /* 1 + the device that it was sent to and has not come to; 0: none */
	uint32_t demand; /* thousandths of time in which it has work */
	uint64_t done;
	uint64_t device_ns;
	uint64_t began_ns;  /* it has had work since; 0: it has none */
	uint64_t worked_ns; /* when it was last seen with work */
	uint64_t came_ns;   /* to its device; 0: it was opened there */
	uint64_t asked_ns;
	uint64_t run_ns[GANTRY_POLICY_MAX_DEVICES]; /* of one task, on average; 0: not known */
};

/* Kinds of devices that a kernel of a session has forms for. */
struct gantry_kernel_kinds {
	uint64_t handle; /* 0: unused */
	uint64_t kinds;
	uint64_t until_ns;
};

#define GANTRY_SAMPLE_KERNELS 8u

struct gantry_session_sample {
	struct gantry_kernel_kinds kernels[GANTRY_SAMPLE_KERNELS];
	uint32_t next_kernel;
	uint32_t nqueues;
	struct gantry_queue_sample queues[];
};

struct gantry_domain {
	char name[GANTRY_CONFIG_NAME]; /* of the group; "": tenants without one */
	char policy[GANTRY_CONFIG_NAME];
	char options[GANTRY_CONFIG_TEXT];
	const struct gantry_policy *used;    /* built in: the policy, or the one in its place */
	void *state;			     /* of that */
	struct gantry_policy_child *child;   /* owned; NULL: the policy is built in */
	struct gantry_policy_section loaded; /* as it was when the child was made */
	uint64_t ndecisions;
	uint64_t nmoves;
	uint64_t nfailures; /* of a policy that is not built in */
	uint64_t decide_ns; /* all decisions together */
	char why[96];	    /* the latest move */
};

/* Which queue of which session an entry of a view is. */
struct gantry_view_ref {
	uint64_t session;
	uint32_t slot;
	uint32_t gen;
};

struct gantry_view_store {
	struct gantry_policy_view view;
	struct gantry_policy_device devices[GANTRY_POLICY_MAX_DEVICES];
	struct gantry_policy_tenant tenants[GANTRY_POLICY_MAX_TENANTS];
	struct gantry_policy_queue queues[GANTRY_POLICY_MAX_QUEUES];
	struct gantry_view_ref refs[GANTRY_POLICY_MAX_QUEUES];
	struct gantry_policy_choice choices[GANTRY_POLICY_MAX_QUEUES];
};

struct gantry_placement {
	struct gantry_agent *agent;
	struct event *timer;
	bool running; /* the timer is set */
	uint64_t looked_ns;
	uint64_t nlooks;
	uint64_t ndecisions;
	uint64_t nmoves;
	uint64_t nfailures;
	uint64_t decide_ns;
	uint64_t idle_since_ns[GANTRY_POLICY_MAX_DEVICES]; /* 0: a lane is held or wanted */
	struct gantry_list processes; /* policy_child.c's, until they are reaped */
	uint32_t ndomains;
	struct gantry_domain domains[GANTRY_PLACEMENT_NDOMAINS];
	struct gantry_view_store store;
};

/* ---- placement.c ---- */
int gantry_placement_start(struct gantry_agent *a);
void gantry_placement_stop(struct gantry_agent *a);
/* After the configuration has changed. */
void gantry_placement_apply(struct gantry_agent *a);
/* Work has come: the loop runs again. Harmless to repeat. */
void gantry_placement_wake(struct gantry_agent *a);
/* Devices have changed: a decision is made at once. */
void gantry_placement_look(struct gantry_agent *a);
/* The domain of the tenant's queues. */
struct gantry_domain *gantry_placement_domain(struct gantry_placement *p,
					      const struct gantry_tenant *t);
/*
 * A decision of domain @d about the view in @store: checked, then carried out. @who made it, for the event where it
 * cannot be used. -EINVAL: it cannot.
 */
int gantry_placement_carry_out(struct gantry_placement *p, struct gantry_domain *d,
			       struct gantry_view_store *store, struct gantry_err *err);

/* ---- placement_sample.c ---- */
/* Looks at all queues of sessions. Returns how many have work, or had some lately. */
uint32_t gantry_placement_sample(struct gantry_placement *p, uint64_t now_ns);
void gantry_session_sample_free(struct gantry_session *s);
/* Devices that have the queue's next kernel, as far as that is known. */
uint64_t gantry_placement_capable(struct gantry_placement *p, struct gantry_session *s,
				  uint32_t slot, uint64_t now_ns);

/* ---- placement_view.c ---- */
void gantry_placement_view(struct gantry_placement *p, const struct gantry_domain *d,
			   uint64_t now_ns, struct gantry_view_store *ret_store);

#endif
