/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's own network: a namespace with a loopback interface and nothing else, in which the workers of a tenant with
 * communicators run, so that they can speak with each other and with nobody. Abstract Unix sockets belong to it too.
 *
 * It is made when the tenant is first configured so, the monitor keeps it for an agent after this one, and it ends with the
 * tenant and the last of its workers. It is a descriptor, not a process and not a name in the file system.
 *
 * An ordinary user's agent makes it inside a user namespace, which its workers enter as well.
 *
 * Threads: the agent's one. Blocking: gantry_net_apply() for as long as the kernel takes to make a namespace, once a tenant.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_NET_H
#define GANTRY_HOST_AGENT_AGENT_NET_H

#include <stdbool.h>

struct gantry_tenant;
struct gantry_worker;

struct gantry_net {
	int fd;		   /* negative: there is none */
	int user_fd;	   /* of the user namespace that it is in; negative: the agent's own */
	char missing[120]; /* why there is none, where the tenant should have one; "" */
};

/* What of an agent before us is @t's is taken up. Before gantry_net_apply(). */
void gantry_net_restore(struct gantry_tenant *t);
/* One is made where the tenant's configuration wants it and there is none. */
void gantry_net_apply(struct gantry_tenant *t);
void gantry_net_free(struct gantry_tenant *t);
/* @t is removed: workers in its network get no session of a tenant that has its name later, and one that waits for any ends. */
void gantry_net_retire(struct gantry_tenant *t);
/* Whether workers of @t are started in it. */
bool gantry_net_serves(const struct gantry_tenant *t);
/* Of a worker's class: whether it says such a worker. */
bool gantry_net_is_wanted(const struct gantry_worker *w);
/* The tenant's network that @w is to be started in; NULL: none, or it has gone. */
const struct gantry_net *gantry_net_of(const struct gantry_worker *w);
/* In the process that is to become a worker: 0, or -errno, and it must not become one. */
int gantry_net_enter(const struct gantry_net *net);

/* What the class of such a worker has before its tenant's name, in place of a trust group. */
#define GANTRY_NET_MARK "+"

#endif
