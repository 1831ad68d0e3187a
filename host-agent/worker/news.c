/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker's process tells the agent: news of device threads, at once or by the control thread, and answers. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "host-agent/control/packet.h"
#include "host-agent/worker/migrate_msg.h"
#include "host-agent/worker/process.h"

#define SEND_PATIENCE_MS 10000

/* News from a device thread, sent by the control thread. */
struct news {
	struct gantry_list link;
	enum news_kind {
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

/* ---- sending ---- */

/* The agent may be restarting: its end is kept by the monitor, so wait a while for room. */
void worker_say(const from_worker *msg, const int *fds, unsigned int nfds)
{
	struct pollfd p = { .fd = WORKER_CONTROL_FD, .events = POLLOUT };
	int r;

	while ((r = gantry_packet_send(WORKER_CONTROL_FD, &msg->base, fds, nfds)) == -EAGAIN)
		if (poll(&p, 1, SEND_PATIENCE_MS) <= 0)
			break;
	if (r < 0)
		gantry_log(GANTRY_LOG_WARN, "a message to the agent was lost: %s", strerror(-r));
}

void worker_say_imported(uint64_t tag, int status, uint64_t buffer)
{
	Gantry__Worker__Imported answer = GANTRY__WORKER__IMPORTED__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	answer.status = status;
	answer.buffer = buffer;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_IMPORTED;
	msg.imported = &answer;
	worker_say(&msg, NULL, 0);
}

void worker_say_done(uint64_t tag, int status, const char *text)
{
	Gantry__Worker__Done done = GANTRY__WORKER__DONE__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	done.status = status;
	done.text = (char *)(text ? text : "");
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DONE;
	msg.done = &done;
	worker_say(&msg, NULL, 0);
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

static void say_keep(const struct news *n)
{
	struct keep_packet p;

	fill_keep(&p, n);
	worker_say(&p.msg, &n->fd, n->fd >= 0 ? 1 : 0);
}

static void say_slab(struct worker *w, const struct news *n)
{
	struct slab_packet p;

	fill_slab(&p, n);
	worker_say(&p.msg, NULL, 0);
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
	worker_say(&msg, NULL, 0);
}

void worker_say_migration(uint64_t tag, struct gantry_engine_migration *report)
{
	struct gantry_migration_packet p;

	gantry_migration_fill(&p, tag, report);
	worker_say(&p.msg, NULL, 0);
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
	worker_say(&msg, NULL, 0);
}

static void say_gathered(const struct news *n)
{
	char text[160] = "";

	if (n->status != GANTRY_OK)
		(void)snprintf(text, sizeof(text), "its buffer %u cannot come to host memory: %s",
			       n->index, gantry_status_text(n->status));
	worker_say_done(n->tag, n->status, text);
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
	worker_say(&msg, NULL, 0);
}

/* ---- from device threads ---- */

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

/* From any thread: a packet is sent whole or not at all. */
static int send_keep(const struct news *n, int fd)
{
	struct keep_packet p;

	fill_keep(&p, n);
	return gantry_packet_send(WORKER_CONTROL_FD, &p.msg.base, &fd, 1);
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

/*
 * At once, for a task waits; by the control thread where the agent's socket is full. In order: a range that is dropped
 * and needed again must not be needed first.
 */
static void slab_news(struct worker *w, enum news_kind kind, uint64_t session_id, uint32_t device,
		      uint64_t off, uint64_t bytes)
{
	const struct news n = { .kind = kind,
				.session_id = session_id,
				.index = device,
				.off = off,
				.bytes = bytes,
				.fd = -EBADF };
	struct slab_packet p;
	bool sent = false;

	fill_slab(&p, &n);
	pthread_mutex_lock(&w->news_lock);
	if (w->nslab_news == 0)
		sent = gantry_packet_send(WORKER_CONTROL_FD, &p.msg.base, NULL, 0) == 0;
	if (!sent)
		w->nslab_news++;
	pthread_mutex_unlock(&w->news_lock);
	if (!sent)
		post_news(w, &n);
}

static void on_need_slabs(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			  uint64_t bytes)
{
	slab_news(cookie, NEWS_NEED, session_id, device, off, bytes);
}

static void on_drop_slab(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			 uint64_t bytes)
{
	slab_news(cookie, NEWS_DROP, session_id, device, off, bytes);
}

static void on_busy(void *cookie)
{
	post_news(cookie, &(struct news){ .kind = NEWS_BUSY, .fd = -EBADF });
}

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
	worker_say(&msg, NULL, 0);
	_exit(GANTRY_WORKER_EXIT_FAULT);
}

struct gantry_engine_events worker_news_events(struct worker *w)
{
	return (struct gantry_engine_events){
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
}

/* ---- by the control thread ---- */

void worker_session_gone(struct worker *w, uint64_t session_id)
{
	gantry_list_for_each_safe(&w->leaving, struct leaving, link, l) {
		if (l->session_id != session_id)
			continue;
		gantry_list_remove(&l->link);
		worker_say_done(l->tag, 0, NULL);
		free(l);
	}
}

void worker_send_news(struct worker *w)
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
			worker_session_gone(w, n->session_id);
			break;
		case NEWS_ENDED:
			say_ended(n);
			break;
		case NEWS_KEEP:
			say_keep(n);
			break;
		case NEWS_MIGRATION:
			worker_say_migration(0, n->migration);
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
			worker_say_imported(n->tag, n->status, n->buffer);
			break;
		}
		gantry_fd_close(n->fd);
		free(n);
	}
}
