/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent and gantry-policy say to each other, a packet each over a SOCK_SEQPACKET pair, in structures of this
 * machine: both are of one build.
 *
 *   gantry-policy: HELLO once its shared object is loaded, or why it is not
 *   agent:         VIEW    and waits a limited time for
 *   gantry-policy: CHOICES with the same number
 *
 * Trust: each side checks what the other sent: lengths and numbers here, what is chosen by gantry_policy_check().
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_POLICY_PACKET_H
#define GANTRY_HOST_AGENT_POLICY_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "host-agent/policy/policy.h"

#define GANTRY_POLICY_TEXT 128u

/* The longest packet, of all there can be in a view; a socket's buffer has to take it. */
#define GANTRY_POLICY_PACKET_MAX                                                   \
	(1024u + GANTRY_POLICY_MAX_DEVICES * sizeof(struct gantry_policy_device) + \
	 GANTRY_POLICY_MAX_TENANTS * sizeof(struct gantry_policy_tenant) +         \
	 GANTRY_POLICY_MAX_QUEUES * sizeof(struct gantry_policy_queue))

struct gantry_policy_hello {
	uint32_t abi;	/* GANTRY_POLICY_ABI */
	int32_t status; /* -errno: @text says why the policy cannot be used */
	char name[GANTRY_POLICY_NAME];
	char summary[GANTRY_POLICY_TEXT];
	char text[GANTRY_POLICY_TEXT];
};

/* A view with its arrays. */
struct gantry_policy_arrays {
	struct gantry_policy_view view; /* points into this object */
	struct gantry_policy_device devices[GANTRY_POLICY_MAX_DEVICES];
	struct gantry_policy_tenant tenants[GANTRY_POLICY_MAX_TENANTS];
	struct gantry_policy_queue queues[GANTRY_POLICY_MAX_QUEUES];
};

/* @buf has GANTRY_POLICY_PACKET_MAX bytes. Returns the packet's length. */
size_t gantry_policy_view_pack(const struct gantry_policy_view *view, uint64_t number, void *buf);
/* -EINVAL: it is no view. */
int gantry_policy_view_unpack(const void *buf, size_t len, uint64_t *ret_number,
			      struct gantry_policy_arrays *ret_arrays);
size_t gantry_policy_choices_pack(const struct gantry_policy_choice *choices, uint32_t n,
				  int status, uint64_t number, void *buf);
/* Of the answer to view @number, with @n choices. -EINVAL with a sentence; or the status of a policy that could not decide. */
int gantry_policy_choices_unpack(const void *buf, size_t len, uint64_t number, uint32_t n,
				 struct gantry_policy_choice *ret_choices, struct gantry_err *err);
/* -EINVAL with a sentence. Texts are made printable. */
int gantry_policy_hello_unpack(const void *buf, size_t len, struct gantry_policy_hello *ret_hello,
			       struct gantry_err *err);

#endif
