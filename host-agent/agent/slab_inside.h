/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about slabs tell each other (slab.h is what the rest of the agent knows of them):
 *
 *   slab.c          one slab, its names, the pools      slab_limits.c   who may have how much
 *   slab_need.c     what workers ask for                slab_steward.c  making and scrubbing
 *   slab_lend.c     those that others have mapped too   slab_end.c      those that sessions let go of
 *   slab_restore.c  after an agent that died            slab_plan.c     which slabs a range takes
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_SLAB_INSIDE_H
#define GANTRY_HOST_AGENT_AGENT_SLAB_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/slab.h"
#include "host-agent/monitor/store.h"

struct gantry_agent_device;

#define GANTRY_SLABS_PER_SESSION 2048u

enum gantry_slab_state {
	GANTRY_SLAB_WANTED, /* a session's: to be made */
	GANTRY_SLAB_MAKING,
	GANTRY_SLAB_HELD, /* a session's */
	GANTRY_SLAB_CLEAN,
	GANTRY_SLAB_DIRTY,
	GANTRY_SLAB_SCRUBBING,
};

struct gantry_slab {
	struct gantry_list link;      /* of its session, or of the pool as its state says */
	struct gantry_list todo_link; /* pool->wanted */
	struct gantry_agent *agent;
	struct gantry_session *session;
	uint32_t device;
	enum gantry_slab_state state;
	uint32_t ntries;
	uint64_t off;
	uint64_t bytes;
	uint64_t serial;
	int fd;
	bool fresh; /* the session's, and no worker has had it */
	bool lent;  /* other sessions may have it mapped: it is never anybody else's */
};

/* ---- slab.c ---- */
struct gantry_slab_pool *gantry_slab_pool_of(const struct gantry_slab *slab);
/* In no list, and under no name. Takes @fd, which may come later; NULL: no memory, and @fd stays the caller's. */
struct gantry_slab *gantry_slab_new(struct gantry_agent *a, uint32_t device, uint64_t bytes,
				    int fd);
/* The memory goes with the last descriptor: the monitor's copy too, whose name was dropped. */
void gantry_slab_free(struct gantry_slab *slab);
/* It is the session's from now on, held or not: counted, and in the order of devices and offsets. */
void gantry_slab_give_to(struct gantry_slab *slab, struct gantry_session *s, uint64_t off);
/* The session's slab is there: the monitor keeps it under the session's name. */
void gantry_slab_hold(struct gantry_slab *slab);
/* To its pool, clean or to be scrubbed, with that name; or out of it, in no list and under no name. */
void gantry_slab_into_pool(struct gantry_slab *slab);
void gantry_slab_out_of_pool(struct gantry_slab *slab);
void gantry_slab_into_dirty(struct gantry_slab *slab);
void gantry_slab_out_of_dirty(struct gantry_slab *slab);
/* Of the pool, what lies in slabs of the smallest size. */
uint64_t gantry_slab_unit_bytes(const struct gantry_slab_pool *pool, uint64_t unit);
/* What is clean goes back to the driver. */
void gantry_slab_release_clean(struct gantry_slab_pool *pool);
/* How much may lie ready for the device. */
uint64_t gantry_slab_pool_limit(const struct gantry_agent_device *d);

/* ---- slab_limits.c ---- */
/* As many as leave room for guests: the monitor has each of them too, and a restarted agent gets all at once. */
uint32_t gantry_slab_host_max(void);
/* How many there are, of all devices, whoever has them. */
uint32_t gantry_slab_host_count(const struct gantry_agent *a);
/* How many bytes of the device may lie in slabs. */
uint64_t gantry_slab_device_limit(const struct gantry_agent_device *d);
/* May @s have @n more slabs of @bytes together on @device? 0, or a status with a sentence. */
int gantry_slab_check_limits(const struct gantry_session *s, uint32_t device, uint32_t n,
			     uint64_t bytes, struct gantry_err *err);

/* ---- slab_need.c ---- */
/* Requests of the session's worker of which every slab is there, or given up, are answered. */
void gantry_slab_answer_complete(struct gantry_session *s);
/* A slab that a session wants cannot be had: who waits for it is told once the rest is settled. Frees it. */
void gantry_slab_give_up(struct gantry_slab *slab, int status, const char *text);
/* Nobody waits for what the session's worker asked for. */
void gantry_slab_forget_needs(struct gantry_session *s);

/* ---- slab_steward.c ---- */
/* What can be done for the device with the steward there is. */
void gantry_slab_pump(struct gantry_agent *a, uint32_t device);

/* ---- slab_lend.c ---- */
/* One that was lent, without a session's name already: the driver has it back when the last who has it mapped lets go. Frees it. */
void gantry_slab_let_out(struct gantry_slab *slab);
/* Whether the slab of the name @kept was lent, and the @name that says so, which stays kept. */
bool gantry_slab_was_lent(struct gantry_agent *a, const char *kept,
			  char name[GANTRY_MONITOR_NAME_MAX]);
/* Those names of the session's slabs are taken from what was handed over; once nobody walks over the entries, which move. */
void gantry_slab_take_markers(struct gantry_session *s);
/* What was lent of sessions that are gone, and of slabs that were just let go of: the driver has that memory, or its users. */
void gantry_slab_forget_lent(struct gantry_agent *a);

#endif
