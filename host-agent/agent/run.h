/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's life, and the small things that every file uses: timers, paths, numbers of slots.
 *
 * Threads: the agent's one; gantry_unix_now_ns() any.
 * Blocking: gantry_agent_run() serves until the agent ends; the others never wait.
 * Order: gantry_agent_run() first and last; all others inside it.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_RUN_H
#define GANTRY_HOST_AGENT_AGENT_RUN_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gantry_agent;
struct gantry_config;

#define GANTRY_AGENT_PATH 108 /* of sockets: the kernel's limit */

/* Paths and switches of the command line. */
struct gantry_agent_args {
	const char *config_path;
	bool config_optional;
	const char *run_dir;
	const char *state_dir;
	const char *worker_path;
	char *const *argv; /* for another monitor */
	int monitor_fd;	   /* negative: without a monitor */
	bool standby;	   /* a candidate: upgrade.h */
};

/* Serve until told to end. The exit status for main(). */
int gantry_agent_run(const struct gantry_agent_args *args);
/* Read the configuration again. The old one stays where the new one is bad. */
int gantry_agent_reload(struct gantry_agent *a, struct gantry_err *err);
/* Put @config in place of the current one; takes it over. */
void gantry_agent_apply(struct gantry_agent *a, struct gantry_config *config);
/* All sessions end, in order. */
void gantry_agent_stop(struct gantry_agent *a);
void gantry_agent_stop_if_idle(struct gantry_agent *a);
/* RUNDIR/what in @path. -ENAMETOOLONG with a sentence. */
int gantry_agent_run_path(const struct gantry_agent *a, char *path, size_t cap, const char *what,
			  struct gantry_err *err);
uint64_t gantry_unix_now_ns(void);
/* (Re)arm a timer; NULL makes one. 0 or -ENOMEM. */
int gantry_timer_set(struct gantry_agent *a, struct event **timer, uint64_t after_ns,
		     event_callback_fn fn, void *arg);
void gantry_event_free(struct event **event);
/* The lowest clear bit, set now; -ENOSPC. */
int gantry_slot_take(uint64_t *bits, uint32_t n);
void gantry_slot_put(uint64_t *bits, uint32_t slot);
bool gantry_slot_claim(uint64_t *bits, uint32_t n, uint32_t slot);

#endif
