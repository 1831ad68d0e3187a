/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-worker: runs sessions' tasks. Started by the agent with its control socket as descriptor 3; it takes
 * orders there, and ends when nobody holds the other end any more.
 *
 * Threads: this one speaks with the agent; device threads (device.c) do the work and hand news over by a list.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "host-agent/control/packet.h"
#include "host-agent/worker/build.h"
#include "host-agent/worker/compile.h"
#include "host-agent/worker/confine.h"
#include "host-agent/worker/engine.h"
#include "host-agent/worker/migrate_msg.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/probe.h"
#include "host-agent/worker/steward_loop.h"
#include "worker.pb-c.h"

#define CONTROL_FD	 3
#define MODE_ISOLATED	 0u
#define MODE_STEWARD	 2u
#define ATTACH_FDS	 5u
#define SEND_PATIENCE_MS 10000
#define POLL_MS		 60000

typedef Gantry__Worker__ToWorker to_worker;
typedef Gantry__Worker__FromWorker from_worker;

/* News from a device thread, sent by the control thread. */
struct news {
	struct gantry_list link;
	enum {
		NEWS_DETACHED,
		NEWS_ENDED,
		NEWS_KEEP,
		NEWS_NEED,
		NEWS_DROP,
		NEWS_BUSY,
		NEWS_MIGRATION,
		NEWS_GATHERED,
		NEWS_NEED_BYTES,
		NEWS_BORROWED,
	} kind;
	uint64_t session_id;
	uint64_t tag; /* of the request that this answers */
	uint64_t share_id;
	uint64_t bytes;
	int fd;
	uint64_t off;
	uint32_t index; /* of a device, or of a buffer */
	int status;
	uint64_t buffer; /* a handle */
	char text[160];
	struct gantry_engine_migration *migration; /* owned */
};

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

/* ---- news ---- */

static void post_news(struct worker *w, const struct news *n)
{
	struct news *copy = malloc(sizeof(*copy));
	uint64_t one = 1;

	if (!copy) {
		gantry_fd_close(n->fd);
		free(n->migration);
		return; /* the agent finds out by itself: sessions have deadlines of their own */
	}
	*copy = *n;
	gantry_list_init(&copy->link);
	pthread_mutex_lock(&w->news_lock);
	gantry_list_push_back(&w->news, &copy->link);
	pthread_mutex_unlock(&w->news_lock);
	(void)!write(w->news_fd, &one, sizeof(one));
}

static void on_detached(void *cookie, uint64_t session_id)
{
	post_news(cookie,
		  &(struct news){ .kind = NEWS_DETACHED, .session_id = session_id, .fd = -EBADF });
}

static void on_ended(void *cookie, uint64_t session_id, int status, const char *text)
{
	struct news n = {
		.kind = NEWS_ENDED, .session_id = session_id, .status = status, .fd = -EBADF
	};

	(void)snprintf(n.text, sizeof(n.text), "%s", text);
	post_news(cookie, &n);
}

static void on_borrowed(void *cookie, uint64_t tag, int status, uint64_t buffer)
{
	post_news(cookie, &(struct news){ .kind = NEWS_BORROWED,
					  .tag = tag,
					  .status = status,
					  .buffer = buffer,
					  .fd = -EBADF });
}

struct keep_packet {
	Gantry__Worker__Keep keep;
	from_worker msg;
};

static void fill_keep(struct keep_packet *p, const struct news *n)
{
	gantry__worker__keep__init(&p->keep);
	gantry__worker__from_worker__init(&p->msg);
	p->keep.session_id = n->session_id;
	p->keep.share_id = n->share_id;
	p->keep.bytes = n->bytes;
	p->msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_KEEP;
	p->msg.keep = &p->keep;
}

/* From any thread: a packet is sent whole or not at all. */
static int send_keep(const struct news *n, int fd)
{
	struct keep_packet p;

	fill_keep(&p, n);
	return gantry_packet_send(CONTROL_FD, &p.msg.base, &fd, 1);
}

static void on_keep(void *cookie, uint64_t session_id, uint64_t share_id, uint64_t bytes, int fd)
{
	struct news n = {
		.kind = NEWS_KEEP, .session_id = session_id, .share_id = share_id, .bytes = bytes
	};

	/*
	 * At once, before the guest hears of its buffer: a descriptor that dies with the worker is lost. Where the agent's
	 * socket is full it may be a little later, for no device waits for the agent.
	 */
	if (fd >= 0 && send_keep(&n, fd) == 0)
		return;
	n.fd = fd >= 0 ? dup(fd) : -EBADF;
	post_news(cookie, &n);
}

/* ---- slabs ---- */

struct slab_packet {
	Gantry__Worker__NeedSlabs need;
	Gantry__Worker__DropSlab drop;
	from_worker msg;
};

static void fill_slab(struct slab_packet *p, const struct news *n)
{
	gantry__worker__from_worker__init(&p->msg);
	if (n->kind == NEWS_NEED) {
		gantry__worker__need_slabs__init(&p->need);
		p->need.session_id = n->session_id;
		p->need.device = n->index;
		p->need.off = n->off;
		p->need.bytes = n->bytes;
		p->msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_NEED_SLABS;
		p->msg.need_slabs = &p->need;
		return;
	}
	gantry__worker__drop_slab__init(&p->drop);
	p->drop.session_id = n->session_id;
	p->drop.device = n->index;
	p->drop.off = n->off;
	p->drop.bytes = n->bytes;
	p->msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DROP_SLAB;
	p->msg.drop_slab = &p->drop;
}

/*
 * At once, for a task waits; by the control thread where the agent's socket is full. In order: a range that is dropped
 * and needed again must not be needed first.
 */
static void slab_news(struct worker *w, const struct news *n)
{
	struct slab_packet p;
	bool sent = false;

	fill_slab(&p, n);
	pthread_mutex_lock(&w->news_lock);
	if (w->nslab_news == 0)
		sent = gantry_packet_send(CONTROL_FD, &p.msg.base, NULL, 0) == 0;
	if (!sent)
		w->nslab_news++;
	pthread_mutex_unlock(&w->news_lock);
	if (!sent)
		post_news(w, n);
}

static void on_need_slabs(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			  uint64_t bytes)
{
	slab_news(cookie, &(struct news){ .kind = NEWS_NEED,
					  .session_id = session_id,
					  .index = device,
					  .off = off,
					  .bytes = bytes,
					  .fd = -EBADF });
}

static void on_drop_slab(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			 uint64_t bytes)
{
	slab_news(cookie, &(struct news){ .kind = NEWS_DROP,
					  .session_id = session_id,
					  .index = device,
					  .off = off,
					  .bytes = bytes,
					  .fd = -EBADF });
}

static void on_busy(void *cookie)
{
	post_news(cookie, &(struct news){ .kind = NEWS_BUSY, .fd = -EBADF });
}

/* ---- migrations ---- */

static void on_migration(void *cookie, const struct gantry_engine_migration *report)
{
	struct news n = { .kind = NEWS_MIGRATION, .fd = -EBADF };

	n.migration = malloc(sizeof(*n.migration));
	if (!n.migration)
		return; /* a later one says it too, or the agent reads the ledger */
	*n.migration = *report;
	post_news(cookie, &n);
}

static void on_gathered(void *cookie, uint64_t tag, int status, uint32_t slot)
{
	if (tag == 0) /* nobody asked */
		return;
	post_news(cookie, &(struct news){ .kind = NEWS_GATHERED,
					  .tag = tag,
					  .status = status,
					  .index = slot,
					  .fd = -EBADF });
}

static void on_need_bytes(void *cookie, uint64_t session_id, uint32_t slot, uint64_t touched_bytes)
{
	post_news(cookie, &(struct news){ .kind = NEWS_NEED_BYTES,
					  .session_id = session_id,
					  .index = slot,
					  .bytes = touched_bytes,
					  .fd = -EBADF });
}

/* ---- sending ---- */

/* The agent may be restarting: its end is kept by the monitor, so wait a while for room. */
static void say(const from_worker *msg, const int *fds, unsigned int nfds)
{
	struct pollfd p = { .fd = CONTROL_FD, .events = POLLOUT };
	int r;

	while ((r = gantry_packet_send(CONTROL_FD, &msg->base, fds, nfds)) == -EAGAIN)
		if (poll(&p, 1, SEND_PATIENCE_MS) <= 0)
			break;
	if (r < 0)
		gantry_log(GANTRY_LOG_WARN, "a message to the agent was lost: %s", strerror(-r));
}

static void say_imported(uint64_t tag, int status, uint64_t buffer)
{
	Gantry__Worker__Imported answer = GANTRY__WORKER__IMPORTED__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	answer.status = status;
	answer.buffer = buffer;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_IMPORTED;
	msg.imported = &answer;
	say(&msg, NULL, 0);
}

static void say_done(uint64_t tag, int status, const char *text)
{
	Gantry__Worker__Done done = GANTRY__WORKER__DONE__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	done.status = status;
	done.text = (char *)(text ? text : "");
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DONE;
	msg.done = &done;
	say(&msg, NULL, 0);
}

static void say_keep(const struct news *n)
{
	struct keep_packet p;

	fill_keep(&p, n);
	say(&p.msg, &n->fd, n->fd >= 0 ? 1 : 0);
}

static void say_slab(struct worker *w, const struct news *n)
{
	struct slab_packet p;

	fill_slab(&p, n);
	say(&p.msg, NULL, 0);
	pthread_mutex_lock(&w->news_lock);
	w->nslab_news--;
	pthread_mutex_unlock(&w->news_lock);
}

static void say_busy(void)
{
	Gantry__Worker__Busy busy = GANTRY__WORKER__BUSY__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_BUSY;
	msg.busy = &busy;
	say(&msg, NULL, 0);
}

static void say_migration(uint64_t tag, struct gantry_engine_migration *report)
{
	struct gantry_migration_packet p;

	gantry_migration_fill(&p, tag, report);
	say(&p.msg, NULL, 0);
}

static void say_need_bytes(const struct news *n)
{
	Gantry__Worker__NeedBytes need = GANTRY__WORKER__NEED_BYTES__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	need.session_id = n->session_id;
	need.slot = n->index;
	need.touched_bytes = n->bytes;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_NEED_BYTES;
	msg.need_bytes = &need;
	say(&msg, NULL, 0);
}

static void say_gathered(const struct news *n)
{
	char text[160] = "";

	if (n->status != GANTRY_OK)
		(void)snprintf(text, sizeof(text), "its buffer %u cannot come to host memory: %s",
			       n->index, gantry_status_text(n->status));
	say_done(n->tag, n->status, text);
}

static void say_ended(const struct news *n)
{
	Gantry__Worker__SessionEnded ended = GANTRY__WORKER__SESSION_ENDED__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	ended.session_id = n->session_id;
	ended.status = n->status;
	ended.text = (char *)n->text;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_SESSION_ENDED;
	msg.session_ended = &ended;
	say(&msg, NULL, 0);
}

/*
 * The context is gone, so the process goes too, at once: to take the context down in order is what makes the
 * device's other users wait. The buffers whose descriptors only we have yet are handed over first.
 */
static void on_fault(void *cookie, const char *device, unsigned int blast, int status,
		     const char *text)
{
	Gantry__Worker__DeviceFault fault = GANTRY__WORKER__DEVICE_FAULT__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	struct worker *w = cookie;

	/* For good: whatever else this process would say is older than its end. */
	pthread_mutex_lock(&w->news_lock);
	gantry_list_for_each(&w->news, struct news, link, n)
		if (n->kind == NEWS_KEEP)
			say_keep(n);
	fault.device = (char *)device;
	fault.blast = blast;
	fault.status = status;
	fault.text = (char *)text;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DEVICE_FAULT;
	msg.device_fault = &fault;
	say(&msg, NULL, 0);
	_exit(GANTRY_WORKER_EXIT_FAULT);
}

static void session_gone(struct worker *w, uint64_t session_id)
{
	gantry_list_for_each_safe(&w->leaving, struct leaving, link, l) {
		if (l->session_id != session_id)
			continue;
		gantry_list_remove(&l->link);
		say_done(l->tag, 0, NULL);
		free(l);
	}
}

static void send_news(struct worker *w)
{
	struct gantry_list *link;
	uint64_t count;

	(void)!read(w->news_fd, &count, sizeof(count));
	for (;;) {
		struct news *n;

		pthread_mutex_lock(&w->news_lock);
		link = gantry_list_pop_front(&w->news);
		pthread_mutex_unlock(&w->news_lock);
		if (!link)
			return;
		n = gantry_list_entry(link, struct news, link);
		switch (n->kind) {
		case NEWS_DETACHED:
			session_gone(w, n->session_id);
			break;
		case NEWS_ENDED:
			say_ended(n);
			break;
		case NEWS_KEEP:
			say_keep(n);
			break;
		case NEWS_MIGRATION:
			say_migration(0, n->migration);
			free(n->migration);
			break;
		case NEWS_NEED:
		case NEWS_DROP:
			say_slab(w, n);
			break;
		case NEWS_BUSY:
			say_busy();
			break;
		case NEWS_GATHERED:
			say_gathered(n);
			break;
		case NEWS_NEED_BYTES:
			say_need_bytes(n);
			break;
		case NEWS_BORROWED:
			say_imported(n->tag, n->status, n->buffer);
			break;
		}
		gantry_fd_close(n->fd);
		free(n);
	}
}

/* ---- configure ---- */

static void say_ready(struct worker *w, uint64_t tag)
{
	Gantry__Worker__Ready ready = GANTRY__WORKER__READY__INIT;

	worker_build_fill(&ready);
	Gantry__Worker__DeviceInfo info[GANTRY_ENGINE_MAX_DEVICES];
	Gantry__Worker__DeviceInfo *infos[GANTRY_ENGINE_MAX_DEVICES];
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	uint64_t ids[GANTRY_ENGINE_MAX_SESSIONS];
	char *missing[GANTRY_CONFINE_MAX];

	for (uint32_t i = 0; i < w->ndevices; i++) {
		const struct gantry_engine_device *d = &w->devices[i];

		infos[i] = &info[i];
		gantry__worker__device_info__init(infos[i]);
		infos[i]->name = (char *)d->name;
		infos[i]->kind = d->info.kind;
		infos[i]->caps = d->info.caps;
		infos[i]->lanes = d->info.lanes;
		infos[i]->units = d->info.units;
		infos[i]->mem_bytes = d->info.mem_bytes;
		infos[i]->model = (char *)d->info.name;
		infos[i]->id = (char *)d->info.id;
		infos[i]->arch = (char *)d->info.arch;
		infos[i]->slab_align = d->info.slab_align;
		infos[i]->numa_node = d->info.numa_node;
		infos[i]->error = (char *)d->error;
	}
	for (unsigned int i = 0; i < w->report.nmissing; i++)
		missing[i] = w->report.missing[i];
	ready.protocol = 1;
	ready.worker_id = w->id;
	ready.pid = (uint32_t)getpid();
	ready.devices = infos;
	ready.n_devices = w->ndevices;
	ready.confined = (char **)w->report.held;
	ready.n_confined = w->report.nheld;
	ready.unconfined = missing;
	ready.n_unconfined = w->report.nmissing;
	ready.n_sessions = gantry_engine_sessions(w->engine, ids, GANTRY_ENGINE_MAX_SESSIONS);
	ready.sessions = ids;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_READY;
	msg.ready = &ready;
	say(&msg, NULL, 0);
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

static void configure(struct worker *w, uint64_t tag, const Gantry__Worker__Configure *c,
		      const int *fds, unsigned int nfds)
{
	const struct gantry_engine_events events = {
		.detached = on_detached,
		.ended = on_ended,
		.keep = on_keep,
		.need_slabs = on_need_slabs,
		.drop_slab = on_drop_slab,
		.busy = on_busy,
		.device_fault = on_fault,
		.migration = on_migration,
		.gathered = on_gathered,
		.need_bytes = on_need_bytes,
		.borrowed = on_borrowed,
		.cookie = w,
	};
	struct gantry_err err = { 0 };
	int r;

	if (w->engine) { /* a new agent asks who we are */
		say_ready(w, tag);
		gantry_engine_ask_again(w->engine);
		forget_gathered(w);
		return;
	}
	if (c->mode == MODE_STEWARD) {
		gantry_steward_loop(CONTROL_FD, tag, c);
		w->quit = true;
		return;
	}
	if (c->protocol != 1 || c->n_devices + count_seats(c) != nfds || nfds == 0 ||
	    c->n_devices > GANTRY_ENGINE_MAX_DEVICES) {
		say_done(tag, GANTRY_E_ARG,
			 "Configure does not carry one share page per device and its seats");
		return;
	}
	w->id = c->worker_id;
	if (c->confine)
		gantry_confine_early(c->uid, c->gid, &w->report);
	r = start_engine(w, c, fds, &events, &err);
	if (r < 0) {
		say_done(tag, GANTRY_E_INTERNAL, err.text);
		return;
	}
	w->ndevices = (uint32_t)c->n_devices;
	if (c->confine)
		gantry_confine_late(has_driver(w), &w->report);
	say_ready(w, tag);
}

/* ---- sessions ---- */

static void attach(struct worker *w, uint64_t tag, const Gantry__Worker__Attach *a, const int *fds,
		   unsigned int nfds)
{
	struct gantry_engine_shared shared[GANTRY_PACKET_MAX_FDS];
	struct gantry_engine_attach args = {
		.session_id = a->session_id,
		.epoch = a->epoch,
		.version = a->version,
		.tenant_slot = a->tenant_slot,
		.tenant = a->tenant,
		.share_slot = a->share_slot,
		.verdict = a->verdict,
		.recover = a->recover,
		.segment_bytes = a->segment_bytes,
		.segment_off = a->segment_off,
		.wake = a->wake,
		.wake_fd = -EBADF,
		.address = a->address,
		.device_mask = a->device_mask,
		.window_address = a->window_address,
		.shared = shared,
		.nshared = (uint32_t)a->n_shared,
	};
	unsigned int nfixed = ATTACH_FDS + (a->wake >= GANTRY_SESSION_WAKE_EVENTFD);
	struct gantry_err err = { 0 };
	int r;

	if (nfds != nfixed + a->n_shared || nfds > GANTRY_PACKET_MAX_FDS ||
	    a->wake > GANTRY_SESSION_WAKE_SOCKET) {
		say_done(tag, GANTRY_E_ARG, "Attach does not carry the descriptors it names");
		return;
	}
	args.segment_fd = fds[0];
	args.bell_fd = fds[1];
	args.ledger_fd = fds[2];
	args.slab_fd = fds[3];
	args.quota_fd = fds[4];
	if (nfixed > ATTACH_FDS)
		args.wake_fd = fds[ATTACH_FDS];
	for (size_t i = 0; i < a->n_shared; i++)
		shared[i] = (struct gantry_engine_shared){ .share_id = a->shared[i]->share_id,
							   .bytes = a->shared[i]->bytes,
							   .fd = fds[nfixed + i] };
	r = gantry_failpoint_io(GANTRY_FAILPOINT_WORKER_ATTACH);
	if (r == 0)
		r = gantry_engine_attach(w->engine, &args, &err);
	gantry_failpoint(GANTRY_FAILPOINT_WORKER_ATTACHED);
	say_done(tag,
		 r == 0		? GANTRY_OK
		 : r == -ENODEV ? GANTRY_E_NO_DEVICE
				: GANTRY_E_INTERNAL,
		 err.text);
}

static void give_slabs(struct worker *w, const Gantry__Worker__GiveSlabs *g, const int *fds,
		       unsigned int nfds)
{
	struct gantry_engine_slab slabs[GANTRY_ENGINE_MAX_SLABS];
	struct gantry_engine_slabs give = {
		.session_id = g->session_id,
		.device = g->device,
		.off = g->off,
		.bytes = g->bytes,
		.slabs = slabs,
		.nslabs = (uint32_t)g->n_slabs,
		.last = g->last,
		.status = g->status,
	};
	int r;

	if (g->n_slabs != nfds || nfds > GANTRY_ENGINE_MAX_SLABS) {
		gantry_log(GANTRY_LOG_WARN, "GiveSlabs does not carry the descriptors it names");
		return;
	}
	for (size_t i = 0; i < g->n_slabs; i++)
		slabs[i] = (struct gantry_engine_slab){ .off = g->slabs[i]->off,
							.bytes = g->slabs[i]->bytes,
							.fd = fds[i],
							.fresh = g->slabs[i]->fresh };
	r = gantry_engine_give_slabs(w->engine, &give);
	if (r < 0 && r != -ENOENT)
		gantry_log(GANTRY_LOG_WARN, "slabs for session %llu are of no use: %s",
			   (unsigned long long)g->session_id, strerror(-r));
}

static void detach(struct worker *w, uint64_t tag, const Gantry__Worker__Detach *d)
{
	struct leaving *l = malloc(sizeof(*l));

	if (!l) {
		say_done(tag, GANTRY_E_NO_MEMORY, "no memory to remember the detach");
		return;
	}
	gantry_list_init(&l->link);
	l->session_id = d->session_id;
	l->tag = tag;
	gantry_list_push_back(&w->leaving, &l->link);
	if (gantry_engine_detach(w->engine, d->session_id,
				 d->part ? GANTRY_ENGINE_PART : d->reason) == 0)
		return; /* answered by session_gone() */
	session_gone(w, d->session_id);
}

static void gather(struct worker *w, uint64_t tag, const Gantry__Worker__Gather *g)
{
	int r = g->what > GANTRY_GATHER_NONE
			? -EINVAL
			: gantry_engine_gather(w->engine, g->session_id,
					       (enum gantry_gather)g->what, tag);

	if (r < 0) /* else answered by say_gathered() */
		say_done(
			tag, r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_ARG,
			r == -ENOMEM ? "its worker cannot bring its buffers to host memory: out of "
				       "memory"
			: r == -ENOENT ? "its worker has not got the session (any more)"
				       : "its worker does not know what is to come to host memory: "
					 "it is of another build");
}

static void export(struct worker *w, uint64_t tag, const Gantry__Worker__Export *x)
{
	Gantry__Worker__Exported answer = GANTRY__WORKER__EXPORTED__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	_cleanup_close_ int fd = -EBADF;

	answer.status = gantry_engine_export(w->engine, x->session_id, x->buffer, x->mode, &fd,
					     &answer.bytes, &answer.share_id);
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_EXPORTED;
	msg.exported = &answer;
	say(&msg, &fd, fd >= 0 ? 1 : 0);
}

static int borrow(struct worker *w, uint64_t tag, const Gantry__Worker__Import *m, const int *fds,
		  unsigned int nfds)
{
	struct gantry_engine_slab slabs[GANTRY_ENGINE_MAX_SLABS];
	const struct gantry_engine_loan loan = { .tag = tag,
						 .session_id = m->session_id,
						 .share_id = m->share_id,
						 .bytes = m->bytes,
						 .skip = m->skip,
						 .device = m->device,
						 .nslabs = nfds };

	if (m->n_slabs != nfds || nfds > GANTRY_ENGINE_MAX_SLABS)
		return GANTRY_E_ARG;
	for (unsigned int i = 0; i < nfds; i++)
		slabs[i] = (struct gantry_engine_slab){ .bytes = m->slabs[i]->bytes, .fd = fds[i] };
	return gantry_engine_borrow(w->engine, &loan, slabs);
}

static void import(struct worker *w, uint64_t tag, const Gantry__Worker__Import *m, const int *fds,
		   unsigned int nfds)
{
	uint64_t buffer = 0;
	int status;

	if (m->n_slabs > 0) {
		status = borrow(w, tag, m, fds, nfds);
		if (status == GANTRY_OK)
			return; /* answered by on_borrowed() */
	} else {
		status = nfds == 1 ? gantry_engine_import(w->engine, m->session_id, m->share_id,
							  m->bytes, m->mode, fds[0], &buffer)
				   : GANTRY_E_ARG;
	}
	say_imported(tag, status, buffer);
}

static void migrate(struct worker *w, uint64_t tag, const Gantry__Worker__Migrate *m)
{
	const struct gantry_engine_migrate args = gantry_migrate_of_msg(m);
	struct gantry_engine_migration report = { .id = m->id, .session_id = m->session_id };
	struct gantry_err err = { 0 };

	report.error = gantry_engine_migrate(w->engine, &args, &report, &err);
	if (report.error < 0)
		(void)snprintf(report.text, sizeof(report.text), "%s", err.text);
	report.over = report.error < 0;
	say_migration(tag, &report);
}

/* ---- the loop ---- */

static void rescan(struct worker *w, uint64_t tag)
{
	struct gantry_err err = { 0 };
	int r = gantry_engine_rescan(w->engine, &err);

	say_done(tag, r < 0 ? GANTRY_E_INTERNAL : GANTRY_OK, err.text);
}

static void obey(struct worker *w, const to_worker *msg, const int *fds, unsigned int nfds)
{
	if (!w->engine && msg->body_case != GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE &&
	    msg->body_case != GANTRY__WORKER__TO_WORKER__BODY_QUIT) {
		say_done(msg->tag, GANTRY_E_AGAIN, "the worker is not configured");
		return;
	}
	switch (msg->body_case) {
	case GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE:
		configure(w, msg->tag, msg->configure, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_ATTACH:
		attach(w, msg->tag, msg->attach, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_DETACH:
		detach(w, msg->tag, msg->detach);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_EXPORT:
		export(w, msg->tag, msg->export);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_IMPORT:
		import(w, msg->tag, msg->import, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_NUDGE:
		gantry_engine_nudge(w->engine);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_RESCAN:
		rescan(w, msg->tag);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_GIVE_SLABS:
		give_slabs(w, msg->give_slabs, fds, nfds);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_MIGRATE:
		migrate(w, msg->tag, msg->migrate);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_MIGRATE_CANCEL:
		(void)gantry_engine_migrate_cancel(w->engine, msg->migrate_cancel->session_id,
						   msg->migrate_cancel->id);
		return; /* one that is over has said so */
	case GANTRY__WORKER__TO_WORKER__BODY_GIVE_BYTES:
		(void)gantry_engine_give_bytes(w->engine, msg->give_bytes->session_id,
					       msg->give_bytes->slot, msg->give_bytes->status);
		return; /* whoever does not wait for it any more has no use for it */
	case GANTRY__WORKER__TO_WORKER__BODY_GATHER:
		gather(w, msg->tag, msg->gather);
		return;
	case GANTRY__WORKER__TO_WORKER__BODY_QUIT:
		w->quit = true;
		return;
	default:
		say_done(msg->tag, GANTRY_E_UNSUPPORTED, "this worker does not know the message");
		return;
	}
}

static void hear(struct worker *w)
{
	int fds[GANTRY_PACKET_MAX_FDS];
	ProtobufCMessage *msg;
	unsigned int nfds;
	int r = gantry_packet_recv(CONTROL_FD, &gantry__worker__to_worker__descriptor, fds,
				   GANTRY_PACKET_MAX_FDS, &msg, &nfds);

	if (r == -ENODATA || r == -ECONNRESET || r == -EBADF || r == -ENOTSOCK)
		w->quit = true;
	else if (r < 0 && r != -EAGAIN)
		gantry_log(GANTRY_LOG_WARN, "a message of the agent was not understood: %s",
			   strerror(-r));
	if (r < 0)
		return;
	obey(w, (const to_worker *)msg, fds, nfds);
	for (unsigned int i = 0; i < nfds; i++)
		gantry_fd_close(fds[i]);
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* Kernels of guests may print (printf() of OpenCL C and of CUDA), and a driver does it for them: the agent's log is not theirs to write. Until there is a place. */
static bool print_nowhere(void)
{
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	bool done = null_fd >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0;

	if (null_fd != STDOUT_FILENO)
		gantry_fd_close(null_fd);
	return done;
}

int main(int argc, char **argv)
{
	struct worker w = { .news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	struct pollfd p[2] = { { .fd = CONTROL_FD, .events = POLLIN },
			       { .fd = w.news_fd, .events = POLLIN } };

	if (argc == 2 && strcmp(argv[1], "--probe") == 0)
		_exit(gantry_probe_print(stdout) <
		      0); /* a driver's own clean-up is nobody's business */
	gantry_failpoints_open();
	gantry_failpoint(GANTRY_FAILPOINT_WORKER_START);
	worker_build_note();
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN); /* a terminal's ^C is for the agent */
	gantry_list_init(&w.leaving);
	gantry_list_init(&w.news);
	pthread_mutex_init(&w.news_lock, NULL);
	if (w.news_fd < 0 || gantry_fd_nonblock(CONTROL_FD, true) < 0 || !print_nowhere()) {
		fprintf(stderr,
			"gantry-worker: started by gantryd, with a control socket as descriptor 3; "
			"--probe lists this machine's devices\n");
		return 2;
	}
	while (!w.quit) {
		if (poll(p, 2, POLL_MS) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			send_news(&w);
		if (p[0].revents)
			hear(&w);
		worker_output_look();
	}
	worker_output_rest();
	/* Device contexts go with the process; tearing them down in order gains nobody anything. */
	_exit(0);
}
