/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gantry in one process: guest library, intake and device threads as threads of the test, no agent.
 *
 * For ThreadSanitizer (which sees no races between processes), for unit tests of the worker's engine, and for the
 * part of the benchmarks that wants no process border. A host has one engine; sessions are opened on it through the
 * guest library's own code over a transport that hands segment and bell over directly.
 */
#ifndef GANTRY_TESTS_INPROC_INPROC_H
#define GANTRY_TESTS_INPROC_INPROC_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "guest-shim/gantry.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "host-agent/worker/engine.h"
#include "migration/ledger.h"

#define INPROC_MAX_SESSIONS 16u
#define INPROC_MAX_KEPT	    32u
#define INPROC_MAX_GATHERS  8u

/*
 * The segment, mapped once for both ends: ThreadSanitizer knows memory by its address, so it sees their races only
 * where they use the same one.
 */
struct inproc_segment {
	void *base;
	uint64_t bytes;
	uint32_t nrefs; /* atomic */
};

struct inproc_session {
	bool used;
	uint64_t id;
	struct inproc_segment *segment;
	struct gantry_segment_header *hdr;
	uint32_t tenant; /* of the share pages */
	int segment_fd;
	int bell_fd;
	int wake_fd;
	int ledger_fd;
	int slab_fd;
	uint64_t segment_bytes;
	uint64_t epoch;
	struct gantry_ledger ledger;
	uint32_t detached; /* atomic */
	int32_t ended;	   /* status the engine ended it with; atomic */
};

/* A shared buffer's descriptor, as the agent keeps it. */
struct inproc_kept {
	bool used;
	uint64_t session_id;
	uint64_t share_id;
	uint64_t bytes;
	int fd;
};

/* A slab of a session, as agent and monitor keep it. */
struct inproc_slab {
	struct gantry_list link;
	uint64_t session_id;
	uint32_t device;
	uint64_t off;
	uint64_t bytes;
	int fd;
};

/* What a session asked for and is not answered. */
struct inproc_ask {
	struct gantry_list link;
	uint64_t session_id;
	uint32_t device;
	uint64_t off;
	uint64_t bytes;
};

/* The agent's side of windows: a thread of its own answers, as the engine must not be called from its own. */
struct inproc_slabs {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct gantry_list asks;
	struct gantry_list slabs;
	uint64_t limit_bytes; /* of all slabs together */
	uint64_t used_bytes;
	uint64_t slab_bytes; /* none is larger; 0: as asked for */
	uint32_t nasked;
	uint32_t ndropped;
	uint64_t busy_with; /* the session that is being answered; 0: none */
	bool paused;	    /* nobody answers */
	bool late_refusals; /* each comes when slabs were given back since */
	bool stop;
};

struct inproc_host {
	struct inproc_slabs slabs;
	struct gantry_engine *engine;
	struct worker_compiler *compiler;
	uint32_t ndevices;
	struct gantry_share_page *pages[GANTRY_ENGINE_MAX_DEVICES];
	int share_fds[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_quota_page *quota;
	int quota_fd;
	uint32_t wake;	      /* enum gantry_session_wake of sessions opened from now on */
	uint32_t nwoken;      /* atomic: sleeps of their threads that a wake-up ended */
	uint32_t next_tenant; /* of the share pages, for sessions opened from now on */
	pthread_mutex_t kept_lock;
	struct gantry_engine_migration migration; /* what was said last; under kept_lock */
	uint32_t nmigration_news;
	uint32_t nmigration_parts; /* of them, in the middle of the first round */
	uint32_t nmigrations_over;
	struct inproc_kept kept[INPROC_MAX_KEPT];
	uint32_t gathered
		[INPROC_MAX_GATHERS]; /* atomic; by tag: 1, or minus the status that it ended with */
	struct inproc_session sessions[INPROC_MAX_SESSIONS];
};

/* Devices "backend=cpu" and the like; each entry is a backend name with options, "cpu cores=1". Aborts on failure. */
struct inproc_host *inproc_start(const char *const *devices, uint32_t ndevices);
/* Detaches what is left, ends the engine, and aborts unless every charge went back. */
void inproc_stop(struct inproc_host *h);

/* Nobody answers what windows need; or somebody does again. */
void inproc_pause_slabs(struct inproc_host *h, bool paused);
/* Bytes of slabs that the session, or with UINT32_MAX all of them, have now. */
uint64_t inproc_slab_bytes(struct inproc_host *h, uint32_t index);

/* A session as a guest opens it. *ret_index names it to the functions below. */
int inproc_open(struct inproc_host *h, const struct gantry_limits *ask,
		struct gantry_session **ret_session, uint32_t *ret_index);

/* The same session in another library, whose own does not use it any more. gantry_session_adopt()'s return value. */
int inproc_adopt(struct inproc_host *h, uint32_t index, struct gantry_session **ret_session);

/* Detaches the worker's end and waits until it let go. */
void inproc_detach(struct inproc_host *h, uint32_t index);
/*
 * What a worker's death leaves: the ledger as it is at this moment, nobody who serves it. Queues should be idle or
 * paused, so that what the segment says is still true. The test may then change the ledger.
 */
void inproc_crash(struct inproc_host *h, uint32_t index);
/* Hands the session to a successor: gantry_engine_attach()'s return value. */
int inproc_recover(struct inproc_host *h, uint32_t index, int verdict);

#endif
