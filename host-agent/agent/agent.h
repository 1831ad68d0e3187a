/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: the object that all its files share, and which file does what with it. Each .c file
 * that offers something to others has a header of its name.
 *
 *   run.c      start, stop, reload            keep.c     what the monitor keeps for us
 *   tenant.c   tenants from the configuration conn.c     guests at a door: messages, waiting
 *   door.c     Unix sockets                   ivshmem.c  virtual machines that connect
 *   doormem.c  their memory: desks, segments  extents.c  who has which part of it
 *   parts.c    cleared before they are given  channel.c  how they are woken by bytes
 *   drain.c    their doors before they go
 *   ask.c      what a guest may have          session.c  a session's memory and its end
 *   attach.c   the road to a session          recover.c  after a worker's death
 *   worker.c   worker processes               call.c     requests to them
 *   warm.c     workers kept ready             deadline.c tasks that run too long
 *   device.c   devices and their share pages  exchange.c buffers between sessions
 *   journal.c  what is alive, in a file       restore.c  taking over from an agent that died
 *   upgrade.c  letting another build take over  standby.c  being that other build
 *   build.c    which build may follow which   renew.c    workers of this build for those before
 *   events.c   what happened                  metrics.c  /metrics
 *   fault.c    whose fault a failed context is
 *   admin*.c   the admin socket               peer.c     other agents
 *   stream.c   servers on stream sockets      guard.c    what the agent gives up itself
 *   kernels.c  installed kernels              liveness.c whether a guest lives
 *   slab*.c    device memory: who has which slab (slab_inside.h)  steward.c  who makes and scrubs it
 *   mps*.c     MPS servers of packed groups (mps_inside.h)   mps_run.c  their control program
 *   handover*.c sessions to and from other hosts  mover.c  the processes that carry them
 *   migrate.c  queues that change devices; all migrations
 *   worker_limits.c what a worker gets of the host, through cgroup.c
 *   placement*.c which device serves which queue  migrate.c  queues sent to other devices
 *
 * Threads: one; everything runs in its libevent loop.
 * Blocking: nothing waits there. Every answer that is waited for has a time-out; where there is
 * nothing to do no timer runs.
 * Order: run.h.
 * Trust: guests (door.c), administrators (admin.c), workers (call.c) and peers send input.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_AGENT_H
#define GANTRY_HOST_AGENT_AGENT_AGENT_H

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/array.h"
#include "base/list.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/guard.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/token.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/share.h"

struct gantry_cgroups;
struct gantry_config;
struct gantry_event_entry;
struct gantry_kernels;
struct gantry_placement;
struct gantry_stream;

struct gantry_counters {
	uint64_t attaches;
	uint64_t attach_refused;
	uint64_t protocol_errors;
	uint64_t denied_peers;
	uint64_t workers_spawned;
	uint64_t worker_restarts; /* sessions that got a successor worker */
	uint64_t journal_errors;
	uint64_t keep_errors;
	uint64_t fd_exhausted;
	uint64_t slow_readers;
	uint64_t device_faults;	  /* contexts that failed */
	uint64_t attach_ns_total; /* of attaches */
	uint64_t recover_ns_last;
	uint64_t mps_terminated; /* clients whose server was told before they were killed */
	uint64_t mps_deaths;
	uint64_t handovers; /* sessions that went to another host or came from one */
	uint64_t handovers_failed;
	uint64_t handover_bytes;
	uint64_t handover_downtime_ns; /* of the latest that went */
	uint64_t pulled_bytes;	       /* fetched for sessions that came lazily */
	uint64_t queue_pulled_bytes;   /* moved for tasks of queues that went lazily */
	uint64_t buffers_lost;	       /* that could not be fetched any more */
	uint64_t vm_migrations;	       /* of machines with their sessions, as gantryctl tells */
	uint64_t vm_migrations_back;
	uint64_t vm_migrations_half;
	uint64_t vm_pause_ns; /* of the latest that was done */
	uint64_t vm_downtime_ns;
	uint64_t adoptions;	    /* sessions that came and that a program took over */
	uint64_t adoptions_refused; /* programs whose key no session here has */
	uint64_t unadopted;	    /* sessions that came and ended because nobody did */
	uint64_t
		adoption_ns_last; /* from the arrival of one to its program's WELCOME, the latest */
};

/* Of migrations that are over. */
struct gantry_migration_totals {
	uint64_t ndone;
	uint64_t nfailed; /* or called back */
	uint64_t moved_bytes;
	uint64_t rounds;
	uint64_t pause_ns;
	uint64_t last_pause_ns;
	uint64_t last_task_ns;
};

struct gantry_agent {
	struct event_base *base;
	struct gantry_agent_args args;
	struct gantry_config *config;
	uint64_t started_unix_ns;
	uint64_t restarts;
	bool stopping;
	bool journal_failed;
	struct gantry_guard guard;
	int exit_status;
	int lock_fd;

	int worker_program; /* that workers are started from, whatever lies at its path by now */
	uint64_t worker_identity; /* of it; 0: it is missing */

	int monitor_fd;
	pid_t monitor_pid;
	int monitor_program; /* that another monitor is started from; negative: ours */
	struct event *monitor_event;
	struct event *monitor_room; /* it does not read: waited for */
	struct gantry_store kept;   /* borrowed descriptors: what the monitor has of ours */
	struct gantry_store handed; /* owned: what it gave us at the start, until taken up */

	struct gantry_agent_device devices[GANTRY_AGENT_MAX_DEVICES];
	uint32_t ndevices; /* one past the highest index ever used */
	struct gantry_slab_pool pools[GANTRY_AGENT_MAX_DEVICES];
	uint64_t next_slab;
	struct gantry_steward_tries stewards[GANTRY_AGENT_MAX_DEVICES];
	struct gantry_steward_arrivals arrivals;
	uint64_t health_asked_ns;
	struct gantry_list tenants;
	struct gantry_list sessions;
	struct gantry_list loans;      /* loan.c */
	struct gantry_list left_slabs; /* loan.c */
	struct gantry_list workers;
	struct gantry_list wanting;  /* sessions that wait for a worker */
	struct gantry_list held;     /* ivshmem.c: connections that are over */
	struct gantry_list orphans;  /* ivshmem.c, in restore: door memories without a machine */
	struct gantry_list clearing; /* parts.c: door memories */
	struct event *clear_timer;
	uint64_t next_session_id;
	uint64_t next_worker_id;
	uint64_t next_machine_id;
	uint64_t last_doormem_epoch;
	uint32_t last_channel;				   /* number given */
	uint64_t share_slots[GANTRY_SHARE_NSESSIONS / 64]; /* bit set: taken */
	uint64_t owners[GANTRY_SHARE_NWORKERS / 64];
	uint64_t tenant_slots[GANTRY_SHARE_NTENANTS / 64];
	uint32_t spawn_failures; /* in a row */
	uint64_t spawn_not_before_ns;

	struct gantry_list migrations; /* migrate.h */
	struct gantry_migration_totals migrated;

	struct gantry_list relays; /* relay.c's */
	struct gantry_list movers; /* mover.c's */
	struct gantry_list handovers;
	uint64_t last_handover;
	int handover_fd; /* listens for other hosts */
	struct event *handover_event;
	struct event *handover_pause; /* until it listens again */
	char handover_where[192];     /* of what is open */
	int vsock_fd;		      /* listens on a port of AF_VSOCK */
	uint32_t vsock_port;	      /* which; 0: none */
	bool vsock_told;	      /* that there is no AF_VSOCK here */
	struct event *vsock_event;

	struct gantry_list mps; /* struct gantry_mps */
	struct gantry_list mps_runs;
	uint64_t mps_died_ns; /* latest death of a daemon */
	uint32_t mps_deaths_in_row;
	uint64_t mps_not_before_ns; /* one failed: until then packed workers do without */

	struct event *warm_timer;
	struct event *mps_timer;
	struct event *mps_watch_timer;
	struct event *deadline_timer;
	struct event *journal_event;
	struct event *stop_timer;
	struct event *watchdog_timer;
	struct event *retry_timer;
	struct event *door_retry_timer;
	struct event *steward_timer;
	struct event *health_timer;

	struct gantry_upgrade upgrade;
	struct gantry_renew renew;
	struct gantry_tokens tokens;
	struct gantry_counters counters;

	struct gantry_event_entry *events; /* ring of GANTRY_EVENTS_KEPT */
	uint64_t nevents;		   /* ever */

	struct gantry_stream *admin;
	struct gantry_stream *metrics;
	struct gantry_stream *peers;
	struct gantry_kernels *kernels;
	struct gantry_upload *upload; /* images.h: an image on its way in; NULL: none */
	struct event *leaving; /* images.h: looks whether images that leave are in use still */
	uint64_t leaving_ns;   /* how long it waited for that */
	struct gantry_placement *placement;
	struct gantry_cgroups *cgroups; /* NULL: not started, or no memory */
};

/* Of an agent that is all zeroes: what is not zero where there is nothing, its lists and descriptors. */
static inline void gantry_agent_blank(struct gantry_agent *a)
{
	struct gantry_list *const lists[] = {
		&a->tenants, &a->sessions, &a->loans,	  &a->left_slabs, &a->workers,
		&a->wanting, &a->held,	   &a->orphans,	  &a->clearing,	  &a->migrations,
		&a->relays,  &a->movers,   &a->handovers, &a->mps,	  &a->mps_runs,
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(lists); i++)
		gantry_list_init(lists[i]);
	a->lock_fd = a->monitor_fd = a->handover_fd = a->vsock_fd = -EBADF;
	a->monitor_program = a->worker_program = -EBADF;
}

#endif
