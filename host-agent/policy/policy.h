/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement policies: which device serves which queue. docs/policies.md shows how to write one.
 *
 * A policy is a pure function of a view: the same view gives the same placement, always. It reads no clock, opens no
 * file, keeps no thread, and holds no state but what create() made of its options. The agent asks it some hundred times a second while
 * work is queued, and never while nothing is.
 *
 * This header is all that a policy in a shared object needs: C11, nothing else of Gantry. Such a policy runs in a
 * process of its own, gantry-policy, which is confined and may die; the agent loads none. Structures grow at the end
 * only and by GANTRY_POLICY_ABI; reserved members are 0.
 *
 * Trust: a view is the agent's; a placement is checked by the agent before it is used (gantry_policy_check()).
 * Threads: one call at a time. Blocking: never; a policy of a shared object that is late is ended.
 */
#ifndef GANTRY_HOST_AGENT_POLICY_POLICY_H
#define GANTRY_HOST_AGENT_POLICY_POLICY_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define GANTRY_POLICY_ABI	  1u
#define GANTRY_POLICY_MAX_DEVICES 8u
#define GANTRY_POLICY_MAX_TENANTS 256u
#define GANTRY_POLICY_MAX_QUEUES  512u
#define GANTRY_POLICY_NAME	  32u
#define GANTRY_POLICY_WHY	  44u	/* with its end */
#define GANTRY_POLICY_WHOLE	  1000u /* demand of a queue that always has work */

struct gantry_policy_device {
	char name[GANTRY_POLICY_NAME];
	uint32_t kind;	   /* 1 cpu, 2 cuda, ...: enum gantry_kind */
	uint32_t lanes;	   /* tasks that run at once */
	uint32_t usable;   /* 0: drained, disabled or failed; nothing may be placed here */
	uint32_t nbusy;	   /* lanes that are held just now, by anybody */
	uint32_t nwaiting; /* sessions that wait for one */
	uint32_t foreign;  /* demand of others than the view's queues, in thousandths of a queue */
	uint64_t idle_ns;  /* for so long nothing has run here and nobody has waited */
	uint64_t mem_bytes;
	uint64_t mem_free_bytes;
};
static_assert(sizeof(struct gantry_policy_device) == 80, "policy ABI");

struct gantry_policy_tenant {
	char name[GANTRY_POLICY_NAME];
	uint32_t weight; /* 1 to 10000 */
	uint32_t
		min_devices; /* that it keeps, even beside more urgent ones, while it has queues for them; 0: one */
	uint32_t max_devices; /* that its queues may be on at once; 0: any number */
	uint32_t reserved;
};
static_assert(sizeof(struct gantry_policy_tenant) == 48, "policy ABI");

/* A queue that has work, or had some lately. */
struct gantry_policy_queue {
	uint64_t session;
	uint32_t slot;
	uint32_t tenant;  /* index */
	int32_t priority; /* the greater, the more urgent */
	uint32_t device;  /* index: where it is */
	uint64_t
		allowed; /* bit i: it may be on device i, which is usable and has its next kernel */
	uint64_t backlog;    /* tasks accepted and not finished */
	uint64_t age_ns;     /* for so long it has had work, short pauses left out */
	uint64_t stayed_ns;  /* for so long it has been on its device; UINT64_MAX: always */
	uint64_t move_bytes; /* about what would have to be copied to another device */
	uint32_t demand;     /* thousandths of time in which it has work */
	uint32_t reserved;
	uint64_t run_ns
		[GANTRY_POLICY_MAX_DEVICES]; /* device time of one of its tasks there; 0: not known */
};
static_assert(sizeof(struct gantry_policy_queue) == 136, "policy ABI");

struct gantry_policy_view {
	uint32_t abi;
	uint32_t ndevices;
	uint32_t ntenants;
	uint32_t nqueues;
	uint64_t now_ns; /* for what a policy tells; not for decisions */
	/* [from][to], bytes a second; 0: nothing has to be copied between the two */
	uint64_t bytes_per_s[GANTRY_POLICY_MAX_DEVICES][GANTRY_POLICY_MAX_DEVICES];
	const struct gantry_policy_device *devices;
	const struct gantry_policy_tenant *tenants;
	const struct gantry_policy_queue *queues; /* in the order of sessions and slots */
};

/* What becomes of one queue. */
struct gantry_policy_choice {
	uint32_t device;	     /* index; where the queue is: it stays */
	char why[GANTRY_POLICY_WHY]; /* of a move: a few words, for people */
};
static_assert(sizeof(struct gantry_policy_choice) == 48, "policy ABI");

struct gantry_policy {
	uint32_t abi;	     /* GANTRY_POLICY_ABI */
	uint32_t bytes;	     /* sizeof(struct gantry_policy) */
	const char *name;    /* a-z, 0-9, _ . - */
	const char *summary; /* one sentence */
	/*
	 * Reads @options ("key=value key=value", "" for none). 0, or -errno with a sentence of at most @cap bytes in @text.
	 * *ret_state is the policy's own, and freed by destroy(). NULL: the policy has no options.
	 */
	int (*create)(const char *options, void **ret_state, char *text, size_t cap);
	void (*destroy)(void *state); /* NULL: nothing to do */
	/*
	 * Fills @ret_choices, one for each queue of @view, all of which were filled with "it stays" before. 0, or -errno: nothing is moved
	 * then.
	 */
	int (*place)(void *state, const struct gantry_policy_view *view,
		     struct gantry_policy_choice *ret_choices);
};

/* The one symbol that a shared object defines: its policy. */
#define GANTRY_POLICY_SYMBOL "gantry_policy_entry"
extern const struct gantry_policy gantry_policy_entry;

#endif
