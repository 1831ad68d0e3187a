/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy in a shared object, as docs/policies.md shows one; and, by its option, what such an object can do wrong.
 * It puts every queue on the last device that the queue may be on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host-agent/policy/policy.h"

struct example {
	char fault[32]; /* "": none */
	unsigned int ndecisions;
};

static int example_create(const char *options, void **ret_state, char *text, size_t cap)
{
	struct example *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	if (sscanf(options, "fault=%31s", e->fault) != 1 && options[0]) {
		snprintf(text, cap, "the option is fault=KIND");
		free(e);
		return -EINVAL;
	}
	*ret_state = e;
	return 0;
}

static void misbehave(const struct example *e, const struct gantry_policy_view *view,
		      struct gantry_policy_choice *choices)
{
	if (strcmp(e->fault, "crash") == 0)
		abort();
	if (strcmp(e->fault, "hang") == 0)
		for (volatile int forever = 1; forever;)
			;
	if (strcmp(e->fault, "exit") == 0)
		_exit(0);
	if (strcmp(e->fault, "nowhere") == 0)
		choices[0].device = 77;
	if (strcmp(e->fault, "everywhere") == 0)
		for (uint32_t i = 0; i < view->nqueues; i++)
			choices[i].device = (view->queues[i].device + 1) % view->ndevices;
	if (strcmp(e->fault, "garbage") == 0)
		(void)!write(3, "garbage", 7); /* the agent's socket */
	if (strcmp(e->fault, "memory") == 0)
		while (malloc(1 << 20))
			;
	/* A file that anybody may read: where it can, it puts no queue anywhere. */
	if (strcmp(e->fault, "file") == 0 && open("/etc/passwd", O_RDONLY) >= 0)
		gantry_policy_entry.destroy(NULL);
}

static int example_place(void *state, const struct gantry_policy_view *view,
			 struct gantry_policy_choice *choices)
{
	struct example *e = state;

	for (uint32_t i = 0; i < view->nqueues; i++) {
		uint64_t allowed = view->queues[i].allowed;

		if (!allowed)
			continue;
		choices[i].device = 63 - (uint32_t)__builtin_clzll(allowed);
		snprintf(choices[i].why, sizeof(choices[i].why), "the last that it may be on");
	}
	misbehave(e, view, choices);
	if (strcmp(e->fault, "later") == 0 && ++e->ndecisions > 20)
		abort();
	return strcmp(e->fault, "refuse") == 0 ? -EIO : 0;
}

static void example_destroy(void *state)
{
	if (!state)
		_exit(9);
	free(state);
}

const struct gantry_policy gantry_policy_entry = {
#ifdef EXAMPLE_ABI
	.abi = EXAMPLE_ABI,
#else
	.abi = GANTRY_POLICY_ABI,
#endif
	.bytes = sizeof(struct gantry_policy),
	.name = "example",
	.summary = "every queue on the last device that it may be on",
	.create = example_create,
	.destroy = example_destroy,
	.place = example_place,
};
