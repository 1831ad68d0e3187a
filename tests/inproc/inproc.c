/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/inproc/inproc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "guest-shim/transport.h"
#include "host-agent/worker/compile.h"
#include "proto/segment.h"

#define SLAB_BYTES     (16ull << 30)
#define DEFAULT_HEAP   (64ull << 20)
#define MODULE_DIR_ENV "GANTRY_MODULE_DIR"
#ifndef INPROC_MODULE_DIR
#define INPROC_MODULE_DIR "devices/kernels"
#endif

/* Bombs of tests end soon. */
static const struct worker_compile_limits compile_limits = {
	.wall_ms = 3000,
	.cpu_s = 1,
	.mem_bytes = 1ull << 30,
	.out_bytes = 1ull << 20,
};

/* From any thread, while the test's own makes and ends other sessions: the id alone says which one is in use. */
static struct inproc_session *session_of(struct inproc_host *h, uint64_t id)
{
	for (uint32_t i = 0; i < INPROC_MAX_SESSIONS; i++)
		if (gantry_load_acquire(&h->sessions[i].id) == id)
			return &h->sessions[i];
	return NULL;
}

static void on_detached(void *cookie, uint64_t session_id)
{
	struct inproc_session *s = session_of(cookie, session_id);

	if (!s)
		return;
	gantry_store_release(&s->detached, 1u);
	(void)gantry_futex_wake(&s->detached, 1);
}

static void on_ended(void *cookie, uint64_t session_id, int status, const char *text)
{
	struct inproc_session *s = session_of(cookie, session_id);

	(void)text;
	if (s)
		gantry_store_release(&s->ended, status);
}

static void on_gathered(void *cookie, uint64_t tag, int status, uint32_t slot)
{
	struct inproc_host *h = cookie;

	(void)slot;
	assert(tag < INPROC_MAX_GATHERS && status <= 0);
	gantry_store_release(&h->gathered[tag], status == 0 ? 1 : (uint32_t)-status);
}

static void on_migration(void *cookie, const struct gantry_engine_migration *report)
{
	struct inproc_host *h = cookie;

	pthread_mutex_lock(&h->kept_lock);
	h->migration = *report;
	h->nmigration_news++;
	h->nmigration_parts += report->state == GANTRY_MIGRATION_PRECOPY &&
			       report->counts.nrounds == 0 && report->counts.moved_bytes > 0;
	h->nmigrations_over += report->over;
	pthread_mutex_unlock(&h->kept_lock);
}

/* As the agent does: the descriptor of each shared buffer, once for every session that uses it. */
static void drop_kept(struct inproc_host *h, uint64_t session_id, uint64_t share_id)
{
	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++) {
		struct inproc_kept *k = &h->kept[i];

		if (!k->used || k->session_id != session_id ||
		    (share_id && k->share_id != share_id))
			continue;
		gantry_fd_close(k->fd);
		k->used = false;
	}
}

static void keep(struct inproc_host *h, uint64_t session_id, uint64_t share_id, uint64_t bytes,
		 int fd)
{
	pthread_mutex_lock(&h->kept_lock);
	drop_kept(h, session_id, share_id);
	for (uint32_t i = 0; i < INPROC_MAX_KEPT && fd >= 0; i++) {
		if (h->kept[i].used)
			continue;
		h->kept[i] = (struct inproc_kept){ true, session_id, share_id, bytes,
						   fcntl(fd, F_DUPFD_CLOEXEC, 0) };
		break;
	}
	pthread_mutex_unlock(&h->kept_lock);
}

static void on_keep(void *cookie, uint64_t session_id, uint64_t share_id, uint64_t bytes, int fd)
{
	keep(cookie, session_id, share_id, bytes, fd);
}

#define DEVICE_BYTES (8ull << 30)

/* ---- slabs ---- */

static void on_need_slabs(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			  uint64_t bytes)
{
	struct inproc_slabs *p = &((struct inproc_host *)cookie)->slabs;
	struct inproc_ask *ask = calloc(1, sizeof(*ask));

	assert(ask && bytes > 0);
	gantry_list_init(&ask->link);
	ask->session_id = session_id;
	ask->device = device;
	ask->off = off;
	ask->bytes = bytes;
	pthread_mutex_lock(&p->lock);
	gantry_list_push_back(&p->asks, &ask->link);
	p->nasked++;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
}

static void slab_free_locked(struct inproc_slabs *p, struct inproc_slab *slab)
{
	p->used_bytes -= slab->bytes;
	gantry_list_remove(&slab->link);
	gantry_fd_close(slab->fd);
	free(slab);
}

static void on_drop_slab(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			 uint64_t bytes)
{
	struct inproc_slabs *p = &((struct inproc_host *)cookie)->slabs;
	bool found = false;

	pthread_mutex_lock(&p->lock);
	gantry_list_for_each_safe(&p->slabs, struct inproc_slab, link, slab)
		if (slab->session_id == session_id && slab->device == device && slab->off == off) {
			assert(slab->bytes == bytes);
			slab_free_locked(p, slab);
			found = true;
		}
	p->ndropped++;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
	assert(found);
}

static void drop_slabs_of(struct inproc_host *h, uint64_t session_id)
{
	struct inproc_slabs *p = &h->slabs;

	pthread_mutex_lock(&p->lock);
	gantry_list_for_each_safe(&p->slabs, struct inproc_slab, link, slab)
		if (slab->session_id == session_id)
			slab_free_locked(p, slab);
	pthread_mutex_unlock(&p->lock);
}

static struct inproc_slab *slab_at(struct inproc_slabs *p, const struct inproc_ask *ask,
				   uint64_t at)
{
	gantry_list_for_each(&p->slabs, struct inproc_slab, link, slab)
		if (slab->session_id == ask->session_id && slab->device == ask->device &&
		    at - slab->off < slab->bytes)
			return slab;
	return NULL;
}

static struct inproc_slab *slab_make(struct inproc_slabs *p, const struct inproc_ask *ask,
				     uint64_t at)
{
	uint64_t end = ask->off + ask->bytes;
	struct inproc_slab *slab;

	gantry_list_for_each(&p->slabs, struct inproc_slab, link, other)
		if (other->session_id == ask->session_id && other->device == ask->device &&
		    other->off > at && other->off < end)
			end = other->off;
	if (p->slab_bytes && end - at > p->slab_bytes)
		end = at + p->slab_bytes;
	if (end - at > p->limit_bytes - p->used_bytes)
		return NULL;
	slab = calloc(1, sizeof(*slab));
	assert(slab);
	gantry_list_init(&slab->link);
	slab->session_id = ask->session_id;
	slab->device = ask->device;
	slab->off = at;
	slab->bytes = end - at;
	assert(gantry_memfd_create("slab", slab->bytes, GANTRY_MEMFD_SEALED, &slab->fd) == 0);
	p->used_bytes += slab->bytes;
	gantry_list_push_back(&p->slabs, &slab->link);
	return slab;
}

static void wait_for_drop_locked(struct inproc_slabs *p)
{
	uint32_t before = p->ndropped;

	while (!p->stop && p->ndropped == before)
		pthread_cond_wait(&p->cond, &p->lock);
}

/* One slab a message, so that answers in parts are the rule. */
static void answer(struct inproc_host *h, const struct inproc_ask *ask)
{
	struct gantry_engine_slab one;
	struct gantry_engine_slabs give = {
		.session_id = ask->session_id,
		.device = ask->device,
		.off = ask->off,
		.bytes = ask->bytes,
		.slabs = &one,
	};

	for (uint64_t at = ask->off; !give.last; at = one.off + one.bytes) {
		struct inproc_slab *slab;

		pthread_mutex_lock(&h->slabs.lock);
		slab = slab_at(&h->slabs, ask, at);
		if (!slab)
			slab = slab_make(&h->slabs, ask, at);
		give.nslabs = slab ? 1 : 0;
		give.status = slab ? GANTRY_OK : GANTRY_E_NO_MEMORY;
		if (!slab && h->slabs.late_refusals)
			wait_for_drop_locked(&h->slabs);
		if (slab)
			one = (struct gantry_engine_slab){ slab->off, slab->bytes,
							   fcntl(slab->fd, F_DUPFD_CLOEXEC, 0) };
		pthread_mutex_unlock(&h->slabs.lock);
		give.last = !slab || one.off + one.bytes >= ask->off + ask->bytes;
		(void)gantry_engine_give_slabs(h->engine,
					       &give); /* a session that ended wants none */
		if (slab)
			gantry_fd_close(one.fd);
	}
}

static void *slabs_main(void *arg)
{
	struct inproc_host *h = arg;
	struct inproc_slabs *p = &h->slabs;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct gantry_list *link = p->paused ? NULL : gantry_list_pop_front(&p->asks);
		struct inproc_ask *ask;

		if (!link) {
			pthread_cond_wait(&p->cond, &p->lock);
			continue;
		}
		ask = gantry_list_entry(link, struct inproc_ask, link);
		p->busy_with = ask->session_id;
		pthread_mutex_unlock(&p->lock);
		answer(h, ask);
		free(ask);
		pthread_mutex_lock(&p->lock);
		p->busy_with = 0;
		pthread_cond_broadcast(&p->cond);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* A worker is dead: what it asked for is answered to nobody. */
static void forget_asks(struct inproc_host *h, uint64_t session_id)
{
	struct inproc_slabs *p = &h->slabs;

	pthread_mutex_lock(&p->lock);
	gantry_list_for_each_safe(&p->asks, struct inproc_ask, link, ask)
		if (ask->session_id == session_id) {
			gantry_list_remove(&ask->link);
			free(ask);
		}
	while (p->busy_with == session_id)
		pthread_cond_wait(&p->cond, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static void slabs_start(struct inproc_host *h)
{
	struct inproc_slabs *p = &h->slabs;

	assert(pthread_create(&p->thread, NULL, slabs_main, h) == 0);
}

static void slabs_init(struct inproc_host *h)
{
	struct inproc_slabs *p = &h->slabs;

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->cond, NULL);
	gantry_list_init(&p->asks);
	gantry_list_init(&p->slabs);
	p->limit_bytes = 8ull << 30;
}

/* Before the engine stops: nobody calls it from here any more. */
static void slabs_stop(struct inproc_host *h)
{
	struct inproc_slabs *p = &h->slabs;

	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
}

static void slabs_fini(struct inproc_host *h)
{
	struct inproc_slabs *p = &h->slabs;

	gantry_list_for_each_safe(&p->asks, struct inproc_ask, link, ask) {
		gantry_list_remove(&ask->link);
		free(ask);
	}
	gantry_list_for_each_safe(&p->slabs, struct inproc_slab, link, slab)
		slab_free_locked(p, slab);
	assert(p->used_bytes == 0);
	pthread_cond_destroy(&p->cond);
	pthread_mutex_destroy(&p->lock);
}

void inproc_pause_slabs(struct inproc_host *h, bool paused)
{
	pthread_mutex_lock(&h->slabs.lock);
	h->slabs.paused = paused;
	pthread_cond_broadcast(&h->slabs.cond);
	pthread_mutex_unlock(&h->slabs.lock);
}

uint64_t inproc_slab_bytes(struct inproc_host *h, uint32_t index)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&h->slabs.lock);
	gantry_list_for_each(&h->slabs.slabs, struct inproc_slab, link, slab)
		if (index == UINT32_MAX || slab->session_id == h->sessions[index].id)
			bytes += slab->bytes;
	pthread_mutex_unlock(&h->slabs.lock);
	return bytes;
}

static void on_fault(void *cookie, const char *device, unsigned blast, int status, const char *text)
{
	(void)cookie;
	(void)device;
	(void)blast;
	(void)status;
	(void)text;
}

struct inproc_host *inproc_start(const char *const *devices, uint32_t ndevices)
{
	struct inproc_host *h = calloc(1, sizeof(*h));
	struct gantry_device_conf conf[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_engine_device info[GANTRY_ENGINE_MAX_DEVICES];
	char names[GANTRY_ENGINE_MAX_DEVICES][16];
	char backends[GANTRY_ENGINE_MAX_DEVICES][512];
	const char *opts[GANTRY_ENGINE_MAX_DEVICES][4];
	const char *dir = getenv(MODULE_DIR_ENV);
	const struct gantry_engine_events events = {
		.detached = on_detached,
		.ended = on_ended,
		.keep = on_keep,
		.need_slabs = on_need_slabs,
		.drop_slab = on_drop_slab,
		.device_fault = on_fault,
		.migration = on_migration,
		.gathered = on_gathered,
		.cookie = h,
	};
	struct gantry_engine_conf ec = {
		.ndevices = ndevices,
		.devices = conf,
		.share_fds = h->share_fds,
		.spin_ns = UINT64_MAX,
		.events = &events,
		.nmodule_dirs = 1,
	};
	struct gantry_err err = { 0 };
	char bytes[24], *save;
	int r;

	if (!dir)
		dir = INPROC_MODULE_DIR;
	ec.module_dirs = &dir;
	h->ndevices = ndevices;
	pthread_mutex_init(&h->kept_lock, NULL);
	slabs_init(h);
	/* No device gives out more than it has. */
	(void)snprintf(bytes, sizeof(bytes), "%llu", DEVICE_BYTES);
	(void)setenv("FAKECUDA_MEM", bytes, 0);
	for (uint32_t i = 0; i < ndevices; i++) {
		uint32_t lanes = 1;

		(void)snprintf(names[i], sizeof(names[i]), "dev%u", i);
		(void)snprintf(backends[i], sizeof(backends[i]), "%s", devices[i]);
		conf[i] = (struct gantry_device_conf){ .name = names[i],
						       .mem_bytes = DEVICE_BYTES,
						       .opts = opts[i] };
		conf[i].backend = strtok_r(backends[i], " ", &save);
		for (const char *o; conf[i].nopts < 4 && (o = strtok_r(NULL, " ", &save));) {
			opts[i][conf[i].nopts++] = o;
			if (strncmp(o, "cores=", 6) == 0)
				lanes = (uint32_t)atoi(o + 6);
		}
		r = gantry_share_create(names[i], lanes, DEVICE_BYTES, &h->pages[i],
					&h->share_fds[i], &err);
		assert(r == 0);
		gantry_share_set_tenant(h->pages[i], 0, GANTRY_SHARE_WEIGHT_DEFAULT);
	}
	r = gantry_quota_create("test", &h->quota, &h->quota_fd, &err);
	assert(r == 0);
	h->quota->mem_bytes = 8ull << 30;
	h->quota->virtual_bytes = SLAB_BYTES;
	h->quota->priority_max = 100;
	r = worker_compiler_start(conf, ndevices, &compile_limits, &h->compiler, &err);
	assert(r == 0);
	ec.compiler = h->compiler;
	r = gantry_engine_start(&ec, &h->engine, info, &err);
	if (r < 0)
		fprintf(stderr, "engine: %s\n", err.text);
	assert(r == 0);
	for (uint32_t i = 0; i < ndevices; i++) {
		if (info[i].error[0])
			fprintf(stderr, "%s: %s\n", info[i].name, info[i].error);
		assert(!info[i].error[0]);
	}
	slabs_start(h);
	return h;
}

static void wait_detached(struct inproc_session *s)
{
	uint64_t deadline = gantry_deadline_ns(10000000000);

	while (!gantry_load_acquire(&s->detached)) {
		(void)gantry_futex_wait(&s->detached, 0, deadline);
		assert(!gantry_deadline_passed(deadline));
	}
}

static void segment_unref(struct inproc_segment *seg)
{
	if (gantry_fetch_sub(&seg->nrefs, 1) != 1)
		return;
	(void)munmap(seg->base, seg->bytes);
	free(seg);
}

static void release(struct inproc_host *h, struct inproc_session *s)
{
	for (uint32_t i = 0; i < h->ndevices; i++)
		gantry_share_dismiss(h->pages[i], (uint32_t)(s - h->sessions));
	gantry_quota_settle(h->quota, h->pages, h->ndevices, &s->ledger, s->ledger.hdr->mem_bytes,
			    s->ledger.hdr->virtual_bytes);
	pthread_mutex_lock(&h->kept_lock);
	drop_kept(h, s->id, 0);
	pthread_mutex_unlock(&h->kept_lock);
	drop_slabs_of(h, s->id);
	gantry_ledger_close(&s->ledger);
	segment_unref(s->segment);
	gantry_fd_close(s->segment_fd);
	gantry_fd_close(s->bell_fd);
	gantry_fd_close(s->wake_fd);
	gantry_fd_close(s->ledger_fd);
	gantry_fd_close(s->slab_fd);
	gantry_store_relaxed(&s->id, (uint64_t)0); /* callbacks of other sessions may look */
	memset(&s->id + 1, 0, sizeof(*s) - offsetof(struct inproc_session, id) - sizeof(s->id));
	s->used = false;
}

static void detach(struct inproc_host *h, struct inproc_session *s)
{
	if (h->engine && gantry_engine_detach(h->engine, s->id, GANTRY_E_DETACHED) == 0)
		wait_detached(s);
}

void inproc_detach(struct inproc_host *h, uint32_t index)
{
	struct inproc_session *s = &h->sessions[index];

	if (!s->used)
		return;
	detach(h, s);
	release(h, s);
}

void inproc_stop(struct inproc_host *h)
{
	for (uint32_t i = 0; i < INPROC_MAX_SESSIONS; i++)
		inproc_detach(h, i);
	slabs_stop(h);
	gantry_engine_stop(h->engine);
	worker_compiler_stop(h->compiler);
	slabs_fini(h);
	assert(h->quota->host_used == 0);
	assert(h->quota->mem_used == 0);
	assert(h->quota->virtual_used == 0);
	for (uint32_t i = 0; i < h->ndevices; i++) {
		assert(h->pages[i]->hdr.mem_used == 0);
		for (uint32_t lane = 0; lane < GANTRY_SHARE_NLANES; lane++)
			assert(h->pages[i]->lanes[lane] == 0);
		gantry_share_close(h->pages[i]);
		gantry_fd_close(h->share_fds[i]);
	}
	gantry_quota_close(h->quota);
	gantry_fd_close(h->quota_fd);
	pthread_mutex_destroy(&h->kept_lock);
	free(h);
}

static int attach(struct inproc_host *h, struct inproc_session *s, bool recover, int verdict)
{
	uint32_t slot = (uint32_t)(s - h->sessions);
	struct gantry_engine_shared shared[INPROC_MAX_KEPT];
	struct gantry_engine_attach a = {
		.session_id = s->id,
		.epoch = ++s->epoch,
		.version = GANTRY_WIRE_VERSION_MAX,
		.share_slot = slot,
		.tenant = s->tenant ? "another" : "",
		.recover = recover,
		.verdict = verdict,
		.segment_bytes = s->segment_bytes,
		.device_mask = (1ull << h->ndevices) - 1,
		.segment_fd = s->segment_fd,
		.bell_fd = s->bell_fd,
		.wake = h->wake,
		.wake_fd = s->wake_fd,
		.ledger_fd = s->ledger_fd,
		.slab_fd = s->slab_fd,
		.quota_fd = h->quota_fd,
		.shared = shared,
		.mapped = s->segment->base,
	};
	struct gantry_err err = { 0 };
	int r;

	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++)
		if (h->kept[i].used && h->kept[i].session_id == s->id)
			shared[a.nshared++] = (struct gantry_engine_shared){ h->kept[i].share_id,
									     h->kept[i].bytes,
									     h->kept[i].fd };
	gantry_store_relaxed(&s->detached, 0u);
	for (uint32_t i = 0; i < h->ndevices; i++)
		gantry_share_admit(h->pages[i], slot, s->tenant, 0);
	r = gantry_engine_attach(h->engine, &a, &err);
	if (r < 0)
		fprintf(stderr, "attach: %s\n", err.text);
	return r;
}

void inproc_crash(struct inproc_host *h, uint32_t index)
{
	struct inproc_session *s = &h->sessions[index];
	void *copy = malloc(s->ledger.bytes);

	assert(copy);
	memcpy(copy, s->ledger.hdr, s->ledger.bytes);
	detach(h, s);
	forget_asks(h, s->id);
	memcpy(s->ledger.hdr, copy, s->ledger.bytes);
	free(copy);
	gantry_store_relaxed(&s->hdr->state, (uint32_t)GANTRY_SESSION_RECOVERING);
}

int inproc_recover(struct inproc_host *h, uint32_t index, int verdict)
{
	return attach(h, &h->sessions[index], true, verdict);
}

static void map_segment(struct inproc_session *s, const struct gantry_segment_layout *layout)
{
	struct inproc_segment *seg = calloc(1, sizeof(*seg));

	assert(seg);
	seg->nrefs = 2; /* the session's, and the guest's link */
	seg->bytes = s->segment_bytes;
	seg->base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->segment_fd, 0);
	assert(seg->base != MAP_FAILED);
	s->segment = seg;
	s->hdr = seg->base;
	gantry_segment_header_init(s->hdr, layout, GANTRY_WIRE_VERSION_MAX, s->id);
}

static void session_make(struct inproc_session *s, uint64_t id,
			 const struct gantry_door_hello *hello)
{
	static const uint32_t nqueues = 16;
	uint32_t nslots = hello->nslots ? hello->nslots : GANTRY_DEFAULT_SLOTS;
	uint64_t heap = hello->heap_bytes ? hello->heap_bytes : DEFAULT_HEAP;
	struct gantry_segment_layout layout;
	struct gantry_err err = { 0 };

	s->used = true;
	assert(gantry_segment_layout_make(nqueues, nslots, heap, &layout) == 0);
	s->segment_bytes = layout.segment_bytes;
	s->ended = 0;
	/* Release: session_of() on another thread finds the rest in place. */
	gantry_store_release(&s->id, id);
	assert(gantry_memfd_create("segment", s->segment_bytes, GANTRY_MEMFD_SEALED,
				   &s->segment_fd) == 0);
	assert(gantry_memfd_create("slab", SLAB_BYTES, GANTRY_MEMFD_SEALED, &s->slab_fd) == 0);
	s->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->wake_fd = eventfd(0, EFD_CLOEXEC); /* blocking, as a hypervisor leaves it */
	assert(gantry_ledger_create(id, "test", nqueues, nslots, s->segment_bytes, SLAB_BYTES,
				    &s->ledger, &s->ledger_fd, &err) == 0);
	s->ledger.hdr->mem_bytes = 8ull << 30;
	s->ledger.hdr->virtual_bytes = SLAB_BYTES;
	s->ledger.hdr->device_allowed = UINT64_MAX;
	map_segment(s, &layout);
}

/* ---- the guest's side ---- */

struct link {
	struct inproc_host *host;
	struct inproc_session *session;
	struct inproc_segment *segment;
	int bell_fd; /* the guest's own, both: they outlive the host's end */
	int wake_fd;
};

static int link_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	(void)where;
	(void)deadline_ns;
	(void)ret_cookie;
	return GANTRY_E_NO_AGENT;
}

/* What a guest of @l's session gets. */
static void welcome(struct link *l, uint32_t nslots, struct gantry_attachment *ret)
{
	l->segment = l->session->segment;
	l->bell_fd = fcntl(l->session->bell_fd, F_DUPFD_CLOEXEC, 0);
	l->wake_fd = fcntl(l->session->wake_fd, F_DUPFD_CLOEXEC, 0);
	memset(ret, 0, sizeof(*ret));
	gantry_door_header_init(&ret->welcome.h, GANTRY_DOOR_WELCOME, 0);
	ret->welcome.version = GANTRY_WIRE_VERSION_MAX;
	ret->welcome.props = GANTRY_PROP_HOST_DIRECT;
	ret->welcome.session_id = l->session->id;
	ret->welcome.segment_bytes = l->session->segment_bytes;
	ret->welcome.nqueues = 16;
	ret->welcome.nslots = nslots;
	ret->segment_fd = -EBADF;
	ret->mapped = l->segment->base;
}

static int link_handshake(void *cookie, const struct gantry_door_hello *hello, uint64_t deadline_ns,
			  struct gantry_attachment *ret)
{
	static uint64_t next_id = 1;
	struct link *l = cookie;

	(void)deadline_ns;
	if (l->session) { /* it is adopted */
		(void)gantry_fetch_add(&l->session->segment->nrefs, 1);
		welcome(l, l->session->ledger.nslots, ret);
		return GANTRY_OK;
	}
	for (uint32_t i = 0; i < INPROC_MAX_SESSIONS && !l->session; i++)
		if (!l->host->sessions[i].used)
			l->session = &l->host->sessions[i];
	if (!l->session)
		return GANTRY_E_FULL;
	session_make(l->session, next_id++, hello);
	l->session->tenant = l->host->next_tenant;
	welcome(l, hello->nslots ? hello->nslots : GANTRY_DEFAULT_SLOTS, ret);
	return attach(l->host, l->session, false, 0) < 0 ? GANTRY_E_INTERNAL : GANTRY_OK;
}

static void link_kick(void *cookie)
{
	struct link *l = cookie;
	uint64_t one = 1;

	(void)!write(l->bell_fd, &one, sizeof(one)); /* full: it rings already */
}

/* A token names session, buffer's share id and rights in the clear: tests are honest. */
struct token {
	uint64_t share_id;
	uint32_t session;
	uint32_t mode;
};
static_assert(sizeof(struct token) == GANTRY_DOOR_TOKEN, "a token fits a token");

static void share(struct link *l, const struct gantry_door_share *msg,
		  struct gantry_door_shared *answer)
{
	struct token token = { .session = (uint32_t)(l->session - l->host->sessions),
			       .mode = msg->mode };
	uint64_t bytes;
	int fd;

	answer->status = gantry_engine_export(l->host->engine, l->session->id, msg->buffer,
					      msg->mode, &fd, &bytes, &token.share_id);
	if (answer->status != GANTRY_OK)
		return;
	keep(l->host, l->session->id, token.share_id, bytes, fd);
	gantry_fd_close(fd);
	memcpy(answer->token, &token, sizeof(token));
}

static void adopt(struct link *l, const struct gantry_door_adopt *msg,
		  struct gantry_door_adopted *answer)
{
	struct inproc_host *h = l->host;
	struct inproc_kept kept = { 0 };
	struct token token;

	memcpy(&token, msg->token, sizeof(token));
	pthread_mutex_lock(&h->kept_lock);
	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++)
		if (h->kept[i].used && h->kept[i].session_id == h->sessions[token.session].id &&
		    h->kept[i].share_id == token.share_id)
			kept = h->kept[i];
	pthread_mutex_unlock(&h->kept_lock);
	answer->status = GANTRY_E_NOT_FOUND;
	if (!kept.used)
		return;
	answer->mode = token.mode;
	answer->bytes = kept.bytes;
	answer->status = gantry_engine_import(h->engine, l->session->id, token.share_id, kept.bytes,
					      token.mode, kept.fd, &answer->buffer);
	if (answer->status == GANTRY_OK)
		keep(h, l->session->id, token.share_id, kept.bytes, kept.fd);
}

static int link_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			uint64_t deadline_ns)
{
	(void)deadline_ns;
	memset(ret_answer, 0, gantry_door_len(kind));
	gantry_door_header_init(ret_answer, kind, 0);
	if (kind == GANTRY_DOOR_SHARED)
		share(cookie, msg, ret_answer);
	else
		adopt(cookie, msg, ret_answer);
	return GANTRY_OK;
}

static int link_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	(void)cookie;
	memset(ret_notice, 0, sizeof(*ret_notice));
	return 0;
}

static void link_close(void *cookie)
{
	struct link *l = cookie;

	if (l->segment)
		segment_unref(l->segment);
	gantry_fd_close(l->bell_fd);
	gantry_fd_close(l->wake_fd);
	free(l);
}

static const struct gantry_transport_ops link_ops = {
	.prefix = "inproc:",
	.connect = link_connect,
	.handshake = link_handshake,
	.kick = link_kick,
	.request = link_request,
	.peek = link_peek,
	.close = link_close,
};

/* One thread at a time: the first to look takes the others' wake-up. */
static void link_sleep(void *cookie, const struct gantry_ring_map *map, uint64_t seq,
		       uint64_t deadline_ns)
{
	struct link *l = cookie;
	struct pollfd p = { .fd = l->wake_fd, .events = POLLIN };
	uint64_t count;

	if (gantry_ring_done(map) >= seq || poll(&p, 1, gantry_deadline_poll_ms(deadline_ns)) != 1)
		return;
	(void)!read(l->wake_fd, &count, sizeof(count));
	(void)gantry_fetch_add(&l->host->nwoken, 1);
}

static const struct gantry_transport_ops woken_ops = {
	.prefix = "inproc:",
	.connect = link_connect,
	.handshake = link_handshake,
	.kick = link_kick,
	.request = link_request,
	.peek = link_peek,
	.sleep = link_sleep,
	.close = link_close,
};

int inproc_open(struct inproc_host *h, const struct gantry_limits *ask,
		struct gantry_session **ret_session, uint32_t *ret_index)
{
	struct link *l = calloc(1, sizeof(*l));
	int r;

	assert(l);
	l->host = h;
	l->bell_fd = -EBADF;
	l->wake_fd = -EBADF;
	r = gantry_session_open_transport(h->wake ? &woken_ops : &link_ops, l, ask, ret_session);
	if (r == GANTRY_OK) /* on failure it is gone */
		*ret_index = (uint32_t)(l->session - h->sessions);
	return r;
}

int inproc_adopt(struct inproc_host *h, uint32_t index, struct gantry_session **ret_session)
{
	struct gantry_door_hello hello = { .flags = GANTRY_HELLO_ADOPT };
	struct link *l = calloc(1, sizeof(*l));

	assert(l);
	*l = (struct link){
		.host = h, .session = &h->sessions[index], .bell_fd = -EBADF, .wake_fd = -EBADF
	};
	return gantry_session_adopt_transport(&link_ops, l, &hello,
					      gantry_deadline_ns(GANTRY_FOREVER), ret_session);
}
