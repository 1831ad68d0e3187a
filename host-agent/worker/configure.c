/* SPDX-License-Identifier: Apache-2.0 */
/* How a worker's process becomes one: its devices, its compiler, what it is kept from; and who it is, for an agent that asks again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host-agent/worker/build.h"
#include "host-agent/worker/communicators.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/process.h"
#include "host-agent/worker/steward_loop.h"

#define MODE_ISOLATED 0u
#define MODE_STEWARD  2u

static void say_ready(struct worker *w, uint64_t tag)
{
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	uint64_t ids[GANTRY_ENGINE_MAX_SESSIONS];
	struct worker_ready ready;

	worker_ready_init(&ready, w->id, &w->report);
	for (uint32_t i = 0; i < w->ndevices; i++)
		worker_ready_add(&ready, w->devices[i].name, &w->devices[i].info,
				 w->devices[i].error);
	ready.msg.n_sessions = gantry_engine_sessions(w->engine, ids, GANTRY_ENGINE_MAX_SESSIONS);
	ready.msg.sessions = ids;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_READY;
	msg.ready = &ready.msg;
	worker_say(&msg, NULL, 0);
}

static int start_compiler(struct worker *w, const struct gantry_engine_conf *conf, bool confine,
			  struct gantry_err *err)
{
	struct worker_compile_limits limits = worker_compile_defaults;

	if (confine)
		limits.confine = gantry_confine_compiler;
	return worker_compiler_start(conf->devices, conf->ndevices, &limits, &w->compiler, err);
}

struct seat_opt {
	char text[32];
	const char *list[1];
};

/* The steward has the device open: what the device's own options say is its affair. The backend takes a copy of @fd. */
static void take_seat(struct gantry_device_conf *conf, struct seat_opt *opt, int fd)
{
	(void)snprintf(opt->text, sizeof(opt->text), "seat=%d", fd);
	opt->list[0] = opt->text;
	conf->backend = "seat";
	conf->nopts = 1;
	conf->opts = opt->list;
}

static int start_engine(struct worker *w, const Gantry__Worker__Configure *c, const int *fds,
			const struct gantry_engine_events *events, struct gantry_err *err)
{
	struct gantry_device_conf devices[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_engine_conf conf = {
		.ndevices = (uint32_t)c->n_devices,
		.devices = devices,
		.share_fds = fds,
		.share_owner = c->share_owner,
		.nmodule_dirs = (uint32_t)c->n_module_dirs,
		.module_dirs = (const char *const *)c->module_dirs,
		.spin_ns = c->spin_ns ? c->spin_ns : UINT64_MAX,
		.events = events,
		.isolated = c->mode == MODE_ISOLATED,
	};
	struct seat_opt seats[GANTRY_ENGINE_MAX_DEVICES];
	const int *seat_fd = fds + c->n_devices;
	int r;

	for (size_t i = 0; i < c->n_devices; i++) {
		devices[i] = (struct gantry_device_conf){
			.name = c->devices[i]->name,
			.backend = c->devices[i]->backend,
			.mem_bytes = c->devices[i]->mem_bytes,
			.lanes = c->devices[i]->lanes,
			.nopts = (uint32_t)c->devices[i]->n_opts,
			.opts = (const char *const *)c->devices[i]->opts,
			.affinity = c->devices[i]->affinity,
		};
		if (c->devices[i]->seat)
			take_seat(&devices[i], &seats[i], *seat_fd++);
	}
	/* Now: this process has one thread, no device, and may still fork. */
	r = start_compiler(w, &conf, c->confine, err);
	if (r < 0)
		return r;
	conf.compiler = w->compiler;
	/* Behind the compiler, whose children have no part in it, and before a driver could keep what it finds. */
	r = worker_output_open(err);
	if (r == 0 && atexit(worker_output_rest) != 0)
		r = gantry_err_set(err, -ENOMEM, "no memory for what is done at the end");
	return r < 0 ? r : gantry_engine_start(&conf, &w->engine, w->devices, err);
}

static bool has_driver(const struct worker *w)
{
	for (uint32_t i = 0; i < w->ndevices; i++)
		if (w->devices[i].info.caps & GANTRY_CAP_DRIVER)
			return true;
	return false;
}

/* Of an agent before this one that was about to send sessions to another host. */
static void forget_gathered(struct worker *w)
{
	uint64_t ids[GANTRY_ENGINE_MAX_SESSIONS];
	uint32_t n = gantry_engine_sessions(w->engine, ids, GANTRY_ENGINE_MAX_SESSIONS);

	for (uint32_t i = 0; i < n && i < GANTRY_ENGINE_MAX_SESSIONS; i++)
		/* without memory for that they go with the session */
		(void)gantry_engine_gather(w->engine, ids[i], GANTRY_GATHER_NONE, 0);
}

static size_t count_seats(const Gantry__Worker__Configure *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n_devices; i++)
		n += c->devices[i]->seat;
	return n;
}

void worker_configure(struct worker *w, uint64_t tag, const Gantry__Worker__Configure *c,
		      const int *fds, unsigned int nfds)
{
	const struct gantry_engine_events events = worker_news_events(w);
	struct gantry_err err = { 0 };
	int r;

	if (w->engine) { /* a new agent asks who we are */
		say_ready(w, tag);
		gantry_engine_ask_again(w->engine);
		forget_gathered(w);
		return;
	}
	if (c->mode == MODE_STEWARD) {
		gantry_steward_loop(WORKER_CONTROL_FD, tag, c);
		w->quit = true;
		return;
	}
	if (c->protocol != 1 || c->n_devices + count_seats(c) != nfds || nfds == 0 ||
	    c->n_devices > GANTRY_ENGINE_MAX_DEVICES) {
		worker_say_done(tag, GANTRY_E_ARG,
				"Configure does not carry one share page per device and its seats");
		return;
	}
	w->id = c->worker_id;
	if (c->communicators)
		worker_communicators_prepare();
	if (c->confine)
		gantry_confine_early(c->uid, c->gid, c->communicators, &w->report);
	r = start_engine(w, c, fds, &events, &err);
	if (r < 0) {
		worker_say_done(tag, GANTRY_E_INTERNAL, err.text);
		return;
	}
	w->ndevices = (uint32_t)c->n_devices;
	if (c->confine)
		gantry_confine_late(has_driver(w), c->communicators, &w->report);
	say_ready(w, tag);
}
