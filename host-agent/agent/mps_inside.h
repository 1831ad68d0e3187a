/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about MPS tell each other (mps.h is what the rest of the agent knows of it): mps.c (daemons), mps_client.c (workers as
 * their clients) and mps_restore.c (after an agent that died). mps_run.h and mps_watch.h stand for themselves.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MPS_INSIDE_H
#define GANTRY_HOST_AGENT_AGENT_MPS_INSIDE_H

#include <event2/event.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/list.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/mps.h"

#define GANTRY_MPS_RUN_NS (5 * GANTRY_NS_PER_S)
/* Servers get a second, then the daemon ends them. */
#define GANTRY_MPS_SAY_QUIT "quit -t 1\n"

enum gantry_mps_state {
	GANTRY_MPS_STARTING,
	GANTRY_MPS_READY,
	GANTRY_MPS_ENDING, /* told to */
	GANTRY_MPS_DEAD,   /* the daemon died; what it served may live on for a while */
};

struct gantry_mps {
	struct gantry_list link; /* agent->mps */
	struct gantry_agent *agent;
	uint64_t id;
	char group[GANTRY_CONFIG_NAME + 8];
	char dir[PATH_MAX];
	enum gantry_mps_state state;
	uid_t uid; /* of the clients it was started for */
	bool multiuser;
	bool is_child; /* else the monitor's */
	bool learning;
	bool expects_fault;
	pid_t pid;
	int pidfd;
	pid_t server;
	int server_fd;		    /* pidfd of the server, or -EBADF */
	struct event *server_event; /* its end */
	uint32_t nclients;
	uint64_t started_ns;
	struct event *event;
	struct event *timer;
};

/* In the agent's list, with no daemon yet. NULL: no memory, or its folder's name is too long. */
struct gantry_mps *gantry_mps_new(struct gantry_agent *a, uint64_t id, const char *group);
/* The group's, if it is there or about to be. */
struct gantry_mps *gantry_mps_find(struct gantry_agent *a, const char *group);
/* Some tenant of the group has packed sessions that want the server. */
bool gantry_mps_is_wanted(const struct gantry_agent *a, const char *group);
/* The group gets a daemon, which is asked for until it answers. */
void gantry_mps_start(struct gantry_agent *a, const char *group);
/* For the end of its daemon, which the monitor keeps from now on. -ENOMEM. */
int gantry_mps_watch_daemon(struct gantry_mps *m);
/* It is of no use: told, ended, and sessions do without for a while. May free it. */
void gantry_mps_fail(struct gantry_mps *m, const char *why);
/* Which process its server is; soon. */
void gantry_mps_ask_server(struct gantry_mps *m);
void gantry_mps_remove_folders(const char *dir);

#endif
