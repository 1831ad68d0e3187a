/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPS servers, through which the packed workers of one trust group use a GPU at the same time.
 *
 * Each group has a control daemon of its own (nvidia-cuda-mps-control -f, a child of ours), with pipe and log
 * folders below RUNDIR/mps; one that the host runs beside is never spoken to, and no setting of a device is changed.
 * The daemon starts the server. Its death makes its workers stale, and the next worker of the group gets another.
 * An agent after this one finds daemons by what the monitor keeps.
 *
 * Under MPS the end of a client with a kernel in flight ends its neighbours' contexts too, unless the server was told
 * before: gantry_mps_terminate() is the way in which a packed worker is killed. Whom somebody else kills, mps_watch.h sees.
 *
 * Threads: the agent's one. Blocking: never: the control program is run as a child, with a time limit.
 * Order: gantry_mps_restore() before workers are restored; gantry_mps_fini() last.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MPS_H
#define GANTRY_HOST_AGENT_AGENT_MPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gantry_agent;
struct gantry_mps;
struct gantry_tenant;
struct gantry_worker;
struct gantry_worker_class;

/*
 * Whether a worker of @class may be started: 0, as a client of *ret_mps or, where that is NULL, outside MPS; -EAGAIN:
 * soon, and then the stock of workers is filled; -ENOSPC: the server has all the clients that it takes.
 */
int gantry_mps_admit(struct gantry_agent *a, const struct gantry_worker_class *class,
		     struct gantry_mps **ret_mps);
/* @w is, or is no longer, its client. */
void gantry_mps_join(struct gantry_mps *m, struct gantry_worker *w);
void gantry_mps_leave(struct gantry_worker *w);
/* In the worker's process, before it becomes one: what the driver finds in its environment. */
void gantry_mps_environment(const struct gantry_worker *w);
/* The worker has a context: its server is there, if it was not before. */
void gantry_mps_ready(struct gantry_worker *w);
/* Tells its server, then kills @w; soon, and in any case. -ENOENT: it is no client of a server that listens. */
int gantry_mps_terminate(struct gantry_worker *w);
/* No further session of @t has room at its group's server. */
bool gantry_mps_full(const struct gantry_tenant *t);
/* Of the server; 0: not known, or none. */
pid_t gantry_mps_server(const struct gantry_worker *w);
/* The server of @w's contexts is known to have ended: they have failed with it, whoever worked. */
bool gantry_mps_server_ended(const struct gantry_worker *w);
/*
 * A client was killed with work in flight: what others of @m have in flight will fail, and they say so. Until they do, for
 * some hundred milliseconds at most, the server takes nobody, and contexts that wait for a session are not to be used.
 */
void gantry_mps_expect_fault(struct gantry_mps *m);
/* It has come. */
void gantry_mps_fault_came(struct gantry_mps *m);
bool gantry_mps_expects_fault(const struct gantry_mps *m);
/* With whom it has a GPU at the same time (share.h): the clients of its server, or nobody. */
uint32_t gantry_mps_party(const struct gantry_worker *w);
unsigned int gantry_mps_count(const struct gantry_agent *a);

/* Servers that nobody needs any more end, connections that found no room are looked at again; soon. */
void gantry_mps_settle(struct gantry_agent *a);
/* Daemons of an agent before us. */
void gantry_mps_restore(struct gantry_agent *a);
/* The server that a restored worker has been a client of. */
void gantry_mps_rejoin(struct gantry_worker *w);
/* No worker is left: ends all of them. True: some still end, and gantry_agent_stop_if_idle() will be called. */
bool gantry_mps_stop(struct gantry_agent *a);
void gantry_mps_fini(struct gantry_agent *a);

#endif
