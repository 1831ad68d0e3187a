/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker processes: started, configured, watched, ended. Their death is recover.h's.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: spawn; or, for one that an earlier agent left, new and watch. Quit or kill ends it; its
 * exit leads to gantry_recover(), which frees it.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_WORKER_H
#define GANTRY_HOST_AGENT_AGENT_WORKER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/config.h"

struct gantry_agent;
struct gantry_mps;
struct gantry_session;

enum gantry_worker_state {
	GANTRY_WORKER_STARTING,
	GANTRY_WORKER_WARM,
	GANTRY_WORKER_BUSY,
	GANTRY_WORKER_ENDING,
};

/* What is decided before a worker's driver starts, and for good: a session is served by one of its tenant's class. */
struct gantry_worker_class {
	uint32_t mode;	       /* enum gantry_isolation, or GANTRY_WORKER_STEWARD */
	uint32_t percent;      /* packed: of a GPU's multiprocessors; 0: all */
	uint32_t mps_priority; /* packed: the client's, as MPS counts: 1 is below 0 */
	char group
		[GANTRY_CONFIG_NAME +
		 8]; /* packed and pooled: the trust group; a steward: what for; isolated: GANTRY_NET_MARK and the tenant in whose network it is; else "" */
	uint64_t
		seats; /* devices that a steward holds and its tenants may use, as bits of their indices */
};

struct gantry_worker {
	struct gantry_list link;
	struct gantry_agent *agent;
	uint64_t id;
	pid_t pid;
	bool dead;     /* buried: no call reaches it any more */
	bool is_child; /* else the monitor's, and its exit status comes from there */
	bool status_known;
	bool killed_for_deadline;
	uint64_t mate_died_ns; /* when another worker of its packed group died, latest */
	bool faulted;	       /* it said so; what was to be judged is (fault.c) */
	uint64_t faulted_ns;   /* then */
	bool seen_killed;      /* though its process may not be over (mps_watch.c) */
	bool took_mates; /* it was killed, and its packed group's contexts are lost for that */
	bool querying;	 /* lived through an agent's restart and has not yet said what it serves */
	bool renewing;	 /* its sessions get one of another build */
	bool renew_kept; /* that was tried */
	uint64_t
		program; /* which file it was started from (gantry_file_identity()); 0: not known */
	char version[32];
	bool rescan_due;   /* modules changed while it started */
	uint32_t nrescans; /* that it was told of, and has not answered */
	bool stale;	   /* of an older configuration: serves what it has, gets nothing new */
	int status;	   /* as of waitpid() */
	uint32_t owner;	   /* entry in the share pages */
	struct gantry_worker_class class;
	uint64_t served;   /* a steward's devices, as bits of their indices */
	uint64_t unusable; /* devices in service that it could not open, likewise */
	uint64_t seats;	   /* of its class's, those at which it has one, or soon will; likewise */
	struct gantry_mps *mps; /* the server that it is a client of */
	bool killing;		/* it will be, once its server was told */
	bool let_go;		/* its server has ended its work: its end hurts nobody */
	enum gantry_worker_state state;
	int ctl_fd;
	int pidfd;
	struct event *ctl_event;
	struct event *out_event;
	struct event *pid_event;
	struct event *timer; /* start-up, end, or the wait for an exit status */
	struct gantry_list calls;
	struct gantry_list out; /* packets that did not fit */
	struct gantry_list sessions;
	uint32_t nsessions;
	uint64_t next_tag;
	uint64_t started_ns;
	uint64_t ready_ns; /* 0: not yet */
	/* a line each; what it reported itself comes first, and is so long */
	char confined[256];
	char unconfined[1024];
	size_t confined_len;
	size_t unconfined_len;
};

bool gantry_worker_class_equal(const struct gantry_worker_class *a,
			       const struct gantry_worker_class *b);
int gantry_worker_spawn(struct gantry_agent *a, const struct gantry_worker_class *class,
			struct gantry_worker **ret_worker, struct gantry_err *err);
struct gantry_worker *gantry_worker_new(struct gantry_agent *a, uint64_t id, uint32_t owner,
					const struct gantry_worker_class *class);
int gantry_worker_watch(struct gantry_worker *w);
void gantry_worker_configure(struct gantry_worker *w);
void gantry_worker_quit(struct gantry_worker *w);
/* Soon: the server of a packed one is told first. */
void gantry_worker_kill(struct gantry_worker *w);
/* The same, unless it ends by itself before. It has a timer, which ends what that was set for. */
void gantry_worker_kill_after(struct gantry_worker *w, uint64_t ns);
/* At once: it never ran, or nobody is there to be hurt. */
void gantry_worker_kill_now(struct gantry_worker *w);
void gantry_worker_free(struct gantry_worker *w);
struct gantry_worker *gantry_worker_find(struct gantry_agent *a, uint64_t id);
/* Reads what it has said, which may be its last; false: it is gone with that. */
bool gantry_worker_hear(struct gantry_worker *w);
void gantry_worker_exited(struct gantry_agent *a, pid_t pid, int status);
void gantry_worker_release(struct gantry_worker *w, struct gantry_session *s);
void gantry_worker_enlist(struct gantry_worker *w, struct gantry_session *s);
void gantry_workers_nudge(struct gantry_agent *a);
void gantry_workers_rescan(struct gantry_agent *a);
/* Have all workers that live seen the modules as they were at the latest rescan? */
bool gantry_workers_have_rescanned(const struct gantry_agent *a);

#endif
