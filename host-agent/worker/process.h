/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the worker's process tell each other, around the engine (engine.h): main.c (the loop over the control socket), configure.c
 * (how it begins), orders.c (what the agent has it do) and news.c (what it says).
 *
 * Threads: the control thread; news.c also takes what device threads report. Blocking: a message to the agent waits a while for room.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_PROCESS_H
#define GANTRY_HOST_AGENT_WORKER_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "host-agent/worker/compile.h"
#include "host-agent/worker/confine.h"
#include "host-agent/worker/engine.h"
#include "worker.pb-c.h"

#define WORKER_CONTROL_FD 3

typedef Gantry__Worker__ToWorker to_worker;
typedef Gantry__Worker__FromWorker from_worker;

/* A detach that the agent waits for. */
struct leaving {
	struct gantry_list link;
	uint64_t session_id;
	uint64_t tag;
};

struct worker {
	struct gantry_engine *engine;
	struct worker_compiler *compiler;
	uint64_t id;
	uint32_t ndevices;
	struct gantry_engine_device devices[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_confine_report report;
	struct gantry_list leaving;

	int news_fd;
	pthread_mutex_t news_lock;
	struct gantry_list news;
	uint32_t nslab_news; /* of slabs, on the list or being sent; under the lock */
	bool quit;
};

/* ---- news.c ---- */
void worker_say(const from_worker *msg, const int *fds, unsigned int nfds);
void worker_say_imported(uint64_t tag, int status, uint64_t buffer);
void worker_say_done(uint64_t tag, int status, const char *text);
void worker_say_migration(uint64_t tag, struct gantry_engine_migration *report);
/* For the engine's threads: what they report is sent, or put on @w's list. */
struct gantry_engine_events worker_news_events(struct worker *w);
/* Detaches of it are answered. */
void worker_session_gone(struct worker *w, uint64_t session_id);
/* All of the list, once news_fd says that there is some. */
void worker_send_news(struct worker *w);

/* ---- configure.c ---- */
void worker_configure(struct worker *w, uint64_t tag, const Gantry__Worker__Configure *c,
		      const int *fds, unsigned int nfds);

/* ---- orders.c: each is answered with its tag, now or when it has been done; descriptors stay the caller's ---- */
void worker_attach(struct worker *w, uint64_t tag, const Gantry__Worker__Attach *a, const int *fds,
		   unsigned int nfds);
void worker_give_slabs(struct worker *w, const Gantry__Worker__GiveSlabs *g, const int *fds,
		       unsigned int nfds);
void worker_detach(struct worker *w, uint64_t tag, const Gantry__Worker__Detach *d);
void worker_gather(struct worker *w, uint64_t tag, const Gantry__Worker__Gather *g);
void worker_export(struct worker *w, uint64_t tag, const Gantry__Worker__Export *x);
void worker_import(struct worker *w, uint64_t tag, const Gantry__Worker__Import *m, const int *fds,
		   unsigned int nfds);
void worker_migrate(struct worker *w, uint64_t tag, const Gantry__Worker__Migrate *m);

#endif
