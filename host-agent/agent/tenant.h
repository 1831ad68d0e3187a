/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: made, changed and ended as the configuration says.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: gantry_tenants_apply() after gantry_devices_apply(). A tenant that is no longer configured
 * lives until gantry_tenant_reap() finds nothing of it left: after each session's and each waiting
 * connection's end.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_TENANT_H
#define GANTRY_HOST_AGENT_AGENT_TENANT_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/drain.h"
#include "host-agent/agent/net.h"
#include "host-agent/agent/run.h"
#include "host-agent/shared/relay_page.h"

struct gantry_agent;
struct gantry_quota_page;
struct gantry_worker_class;

#define GANTRY_FAULTS_KEPT 3u

/* A machine that is to come with its sessions: seat.h. */
struct gantry_seat_expected {
	uint64_t until_ns; /* 0: none is */
	uint64_t bytes;
	char uuid[40];
};

struct gantry_tenant {
	struct gantry_list link;
	struct gantry_agent *agent;
	struct gantry_tenant_conf conf;
	uint32_t slot;	      /* in share pages */
	bool removed;	      /* no longer configured; lives until its last session ends */
	bool forced_isolated; /* faulted too often to go on with others */
	struct gantry_net net;
	struct gantry_quota_page *quota;
	int quota_fd;
	int door_fd;
	struct event *door_event;
	char door_path[GANTRY_AGENT_PATH];
	char state[160]; /* "open", or why its door is not */
	int ivshmem_fd;
	struct event *ivshmem_event;
	char ivshmem_path[GANTRY_AGENT_PATH];
	char ivshmem_state[160];   /* why that door is not open, if it should be */
	uint64_t ivshmem_bytes;	   /* of the next machine's memory; 0: as configured */
	struct gantry_drain drain; /* no machine comes in, no new session of those that are there */
	struct gantry_list machines;	      /* struct gantry_machine */
	struct gantry_seat_expected expected; /* a machine that brings its sessions along */
	int wake_fd;			      /* channel.c's */
	struct event *wake_event;
	char wake_path[GANTRY_AGENT_PATH];
	struct gantry_list channels;
	uint64_t nclaims;	/* of programs in machines, ever */
	uint64_t nlooks;	/* at desks of machines, ever */
	uint64_t nclearings;	/* steps in which parts of machines' memories were cleared, ever */
	uint64_t cleared_bytes; /* by those */
	uint32_t ndoormems;	/* of machines that are here, or whose sessions still end */
	int vsock_fd;		/* listens at conf.vsock_path */
	struct event *vsock_event;
	char vsock_path[GANTRY_CONFIG_TEXT]; /* of what is open */
	struct gantry_relay_page relayed;    /* by relays that have ended */
	uint64_t host_mem_used;
	uint32_t nsessions;
	uint32_t nhalf_open;
	/* connections that wait for a session to end (on_full = queue) */
	struct gantry_list waiting;
	struct gantry_list
		standbys; /* programs that wait for a session from another host: adopt.c */
	uint64_t device_mask;
	/* totals of ended sessions; living ones are added when somebody asks */
	uint64_t tasks_finished;
	uint64_t tasks_failed;
	uint64_t calls_missing; /* of functions that guests' libraries do not have, as they say */
	uint64_t device_ns;
	uint64_t scrubbed_bytes;
	uint64_t protocol_errors;
	uint64_t worker_restarts;
	uint64_t device_faults; /* that its tasks caused, or may have caused */
	uint64_t attaches;
	uint64_t denied; /* by the agent; workers count theirs in the quota page */
	uint64_t faults_ns[GANTRY_FAULTS_KEPT]; /* when its workers faulted, latest last */
};

void gantry_tenants_apply(struct gantry_agent *a, const struct gantry_config *config);
struct gantry_tenant *gantry_tenant_find(struct gantry_agent *a, const char *name);
struct gantry_tenant *gantry_tenant_by_slot(struct gantry_agent *a, uint32_t slot);
/* Free it when it is removed and nothing of it is left. */
void gantry_tenant_reap(struct gantry_tenant *t);
void gantry_tenant_free(struct gantry_tenant *t);
/* One with nothing in it. */
void gantry_tenant_init(struct gantry_tenant *t, struct gantry_agent *a);
uint32_t gantry_tenant_mode(const struct gantry_tenant *t); /* enum gantry_isolation in force */
/* Devices that it may use and a steward holds, as bits of their indices: whose worker has no seat there loses nothing with the steward. */
uint64_t gantry_tenant_seats(const struct gantry_tenant *t);
/* Of the workers that serve its sessions. */
void gantry_tenant_class(const struct gantry_tenant *t, struct gantry_worker_class *ret_class);
/* Notes a fault of one of its workers; true: that was one too many for one that is not isolated. */
bool gantry_tenant_faulted(struct gantry_tenant *t);

#endif
