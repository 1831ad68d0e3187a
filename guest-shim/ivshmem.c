/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of virtual machines that have an ivshmem device: messages lie in a desk of its memory (desk.h), the segment
 * beside them, the bell is the device's doorbell register.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/str.h"
#include "guest-shim/channel.h"
#include "guest-shim/desk.h"
#include "guest-shim/error.h"
#include "guest-shim/forks.h"
#include "guest-shim/handshake.h"
#include "guest-shim/interrupt.h"
#include "guest-shim/pause.h"
#include "guest-shim/pcidev.h"
#include "guest-shim/transport.h"
#include "guest-shim/view.h"
#include "proto/segment.h"

struct door {
	struct gantry_fork_watch fork_watch;
	pid_t pid; /* who opened it */
	struct gantry_pcidev dev;
	struct gantry_desk desk;
	struct gantry_interrupt interrupt;
	struct gantry_channel channel;
	pthread_mutex_t notice_lock; /* whoever looks at the notice box */
	struct gantry_door_refuse notice;
	struct gantry_view view; /* as chosen; then as mapped */
	uint32_t bell_vector;
	uint32_t tag;
};

/* ---- connect ---- */

/* The claim is a lock on a descriptor: a child must not keep its parent's. */
static void close_copies(void *cookie)
{
	struct door *d = cookie;

	gantry_interrupt_close(&d->interrupt);
	gantry_channel_close(&d->channel);
	gantry_pcidev_close(&d->dev, true);
}

/* What is tried first wakes soonest. */
static int claim(struct door *d)
{
	gantry_channel_init(&d->channel);
	if (gantry_interrupt_open(&d->dev, &d->interrupt) == 0)
		return gantry_desk_open(&d->dev, GANTRY_WAKE_MSIX, GANTRY_INTERRUPT_VECTOR,
					&d->desk);
	if (gantry_channel_open(&d->dev, &d->channel) == 0)
		return gantry_desk_open(&d->dev, GANTRY_WAKE_BYTE, d->channel.number, &d->desk);
	return gantry_desk_open(&d->dev, GANTRY_WAKE_POLL, GANTRY_DOORMEM_NO_VECTOR, &d->desk);
}

static int open_locked(struct door *d, const char *where)
{
	int r = gantry_pcidev_open(GANTRY_PCI_DEVICES, where, &d->dev);

	if (r < 0)
		return r;
	r = claim(d);
	if (r < 0) {
		gantry_interrupt_close(&d->interrupt);
		gantry_channel_close(&d->channel);
		gantry_pcidev_close(&d->dev, false);
		return r;
	}
	gantry_forks_watch_locked(&d->fork_watch, close_copies, d);
	return 0;
}

static int ivshmem_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	struct door *d = calloc(1, sizeof(*d));
	int r;

	(void)deadline_ns; /* nothing here waits for long */
	if (!d)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	d->pid = getpid();
	pthread_mutex_init(&d->notice_lock, NULL);
	gantry_forks_lock();
	r = open_locked(d, where);
	gantry_forks_unlock();
	if (r < 0) {
		free(d);
		return r;
	}
	*ret_cookie = d;
	return 0;
}

/* ---- messages ---- */

/*
 * The next message. -ETIMEDOUT; -EPROTO; -ESTALE: the host serves the claim no more, and left no word.
 */
static int wait_message(struct door *d, union gantry_message *msg, uint16_t *ret_kind,
			uint64_t deadline_ns)
{
	struct gantry_pause pause = gantry_pause_until(deadline_ns);

	for (;;) {
		/* In this order: last words are put before the claim is given up. */
		bool is_over = gantry_desk_gone(&d->desk) || !gantry_desk_is_served(&d->desk);
		int r = gantry_desk_take(&d->desk, msg, ret_kind);

		if (r != -EAGAIN)
			return r;
		if (is_over)
			return -ESTALE;
		if (!gantry_pause(&pause))
			return -ETIMEDOUT;
	}
}

static int wait_served(struct door *d, uint64_t deadline_ns)
{
	struct gantry_pause pause = gantry_pause_until(deadline_ns);

	while (!gantry_desk_is_served(&d->desk)) {
		if (gantry_desk_gone(&d->desk))
			return -ESTALE;
		if (!gantry_pause(&pause))
			return -ETIMEDOUT;
	}
	gantry_desk_begin(&d->desk);
	return 0;
}

/* ---- handshake ---- */

static int bad(const char *what)
{
	return gantry_fail(GANTRY_E_PROTOCOL, "the agent's welcome makes no sense: %s", what);
}

static int take_welcome(struct door *d, const struct gantry_door_welcome *welcome, bool is_fresh,
			struct gantry_attachment *ret_attachment)
{
	const struct gantry_doormem_header *h = &d->dev.header;
	uint64_t segment_off = gantry_load_relaxed(&d->desk.desk->segment_off);
	uint32_t bell_vector = gantry_load_relaxed(&d->desk.desk->bell_vector);
	uint32_t host_wake = gantry_load_relaxed(&d->desk.desk->host_wake);
	struct gantry_attachment attachment = { .welcome = *welcome };
	int r;

	if (welcome->segment_bytes < GANTRY_SEGMENT_MIN_BYTES ||
	    welcome->segment_bytes % GANTRY_PAGE)
		return bad("the segment's size");
	if (segment_off < h->data_off || segment_off % GANTRY_SEGMENT_HEAP_ALIGN ||
	    !gantry_range_inside(segment_off, welcome->segment_bytes, h->bytes))
		return bad("where the segment lies");
	if (bell_vector >= h->nvectors)
		return bad("the session's doorbell");
	r = gantry_view_open(&d->dev, segment_off, welcome->segment_bytes, is_fresh, &attachment,
			     &d->view);
	if (r < 0)
		return r;
	if (host_wake != GANTRY_WAKE_MSIX)
		gantry_interrupt_close(&d->interrupt);
	if (host_wake != GANTRY_WAKE_BYTE)
		gantry_channel_close(&d->channel);
	d->bell_vector = bell_vector;
	*ret_attachment = attachment;
	return 0;
}

/* HELLO and the answer to it, once. -ESTALE: the host forgot the claim; it may be made anew. */
static int greet(struct door *d, const struct gantry_door_hello *hello, uint64_t deadline_ns,
		 union gantry_message *ret_answer, uint16_t *ret_kind)
{
	int r = wait_served(d, deadline_ns);

	if (r == 0)
		r = gantry_desk_post(&d->desk, &hello->h);
	return r < 0 ? r : wait_message(d, ret_answer, ret_kind, deadline_ns);
}

static int ivshmem_handshake(void *cookie, const struct gantry_door_hello *hello,
			     uint64_t deadline_ns, struct gantry_attachment *ret_attachment)
{
	struct door *d = cookie;
	struct gantry_pause pause = gantry_pause_until(deadline_ns);
	union gantry_message answer;
	uint16_t kind;
	int r;

	/* An agent that was started anew forgets the claims that it had not welcomed. */
	while ((r = greet(d, hello, deadline_ns, &answer, &kind)) == -ESTALE &&
	       !gantry_desk_gone(&d->desk) && gantry_pause(&pause))
		gantry_desk_reclaim(&d->desk);
	if (r < 0 && gantry_desk_gone(&d->desk))
		return gantry_fail(GANTRY_E_NO_AGENT, "%s", gantry_desk_gone(&d->desk));
	if (r < 0)
		return gantry_handshake_failed(r);
	r = gantry_handshake_answer(&answer, kind);
	if (r != 0)
		return r;
	return take_welcome(d, &answer.welcome, !(hello->flags & GANTRY_HELLO_ADOPT),
			    ret_attachment);
}

/* ---- beside the segment ---- */

/* For the administrator's eyes, who sees it in the session's list. */
static void tell_view(struct door *d, bool is_split)
{
	struct gantry_doormem_desk *desk = d->desk.desk;

	if (is_split != (d->view.kind == GANTRY_MAPPING_RESOURCE_WC)) /* not as was chosen */
		d->view = (struct gantry_view){ .kind = is_split ? GANTRY_MAPPING_RESOURCE_WC
								 : GANTRY_MAPPING_RESOURCE };
	gantry_store_relaxed(&desk->read_mib_per_s, d->view.read_mib_per_s);
	gantry_store_relaxed(&desk->write_mib_per_s, d->view.write_mib_per_s);
	gantry_store_relaxed(&desk->mapping, (uint32_t)d->view.kind);
}

static void ivshmem_mapped(void *cookie, struct gantry_segment_header *header, bool is_split)
{
	struct door *d = cookie;

	tell_view(d, is_split);
	gantry_channel_use(&d->channel, &header->listening);
}

static void ivshmem_kick(void *cookie)
{
	const struct door *d = cookie;

	gantry_pcidev_ring(&d->dev, d->bell_vector);
}

static void set_notice(struct door *d, const char *text)
{
	d->notice = (struct gantry_door_refuse){ .status = GANTRY_E_DETACHED };
	(void)gantry_str_copy(d->notice.text, sizeof(d->notice.text), text);
}

static int look_locked(struct door *d)
{
	bool wanted_back = gantry_interrupt_wanted_back(&d->interrupt);
	const char *gone = wanted_back ? "the ivshmem device is being unplugged"
				       : gantry_desk_gone(&d->desk);
	/* Before the box: last words are put before the claim is given up. */
	bool is_over = !gone && !gantry_desk_is_served(&d->desk);
	union gantry_message msg;
	uint16_t kind;

	if (gone && d->notice.status == 0)
		set_notice(d, gone);
	if (wanted_back)
		gantry_desk_depart(&d->desk);
	if (gone) {
		gantry_interrupt_release(&d->interrupt); /* the unplugging waits for it */
		return -ECONNRESET;
	}
	if (gantry_desk_take_notice(&d->desk, &msg, &kind) == 0 && kind == GANTRY_DOOR_NOTICE)
		d->notice = msg.refuse;
	return is_over ? -ECONNRESET : 0;
}

static int ivshmem_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	struct door *d = cookie;
	int r;

	*ret_notice = (struct gantry_door_refuse){ 0 };
	/* Whoever holds it is looking, and will notice what there is to notice; but that the device has gone all need to know. */
	if (pthread_mutex_trylock(&d->notice_lock) != 0) {
		if (!gantry_desk_gone(&d->desk))
			return 0;
		(void)pthread_mutex_lock(&d->notice_lock);
	}
	r = look_locked(d);
	*ret_notice = d->notice;
	pthread_mutex_unlock(&d->notice_lock);
	gantry_count_add(&d->desk.desk->progress, 1);
	return r;
}

static int ivshmem_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			   uint64_t deadline_ns)
{
	struct gantry_door_header *h = msg;
	struct door *d = cookie;
	union gantry_message answer;
	uint16_t answer_kind;
	int r;

	h->tag = ++d->tag;
	/* What lies in the box answers nothing any more: a WELCOME said twice, when the agent died between. */
	r = gantry_desk_take(&d->desk, &answer, &answer_kind);
	if (r == -EPROTO)
		return gantry_request_failed(r);
	r = gantry_desk_post(&d->desk, h);
	if (r == -EBUSY) /* a request that nobody waits for any more lies there */
		return gantry_request_failed(-ETIMEDOUT);
	do { /* an answer of another tag came too late for its question */
		r = gantry_deadline_passed(deadline_ns)
			    ? -ETIMEDOUT
			    : wait_message(d, &answer, &answer_kind, deadline_ns);
	} while (r == 0 && (answer_kind != kind || answer.h.tag != d->tag));
	if (r < 0)
		return gantry_request_failed(r);
	memcpy(ret_answer, &answer, gantry_door_len(kind));
	return 0;
}

/* The host says it anew where a machine has gone to another one: what had woken us may be that one's. */
static bool sleep_woken(struct door *d, const uint64_t *word, uint64_t seen, uint64_t deadline_ns)
{
	switch (gantry_load_relaxed(&d->desk.desk->host_wake)) {
	case GANTRY_WAKE_MSIX:
		return gantry_interrupt_sleep(&d->interrupt, word, seen, deadline_ns);
	case GANTRY_WAKE_BYTE:
		return gantry_channel_sleep(&d->channel, word, seen, deadline_ns);
	default:
		return false;
	}
}

static void ivshmem_sleep(void *cookie, const struct gantry_ring_map *map, uint64_t seq,
			  uint64_t deadline_ns)
{
	struct gantry_pause pause = gantry_pause_until(deadline_ns);
	struct door *d = cookie;
	uint64_t done = gantry_ring_done(map);

	if (done < seq && sleep_woken(d, &map->area->done, done, deadline_ns))
		return;
	while (gantry_ring_done(map) < seq && gantry_pause(&pause))
		;
}

static void ivshmem_close(void *cookie)
{
	struct door *d = cookie;
	bool is_child = d->pid != getpid();

	gantry_forks_forget(&d->fork_watch);
	gantry_desk_close(&d->desk, is_child);
	gantry_interrupt_close(&d->interrupt);
	gantry_channel_close(&d->channel);
	gantry_pcidev_close(&d->dev, is_child);
	free(d);
}

const struct gantry_transport_ops gantry_transport_ivshmem = {
	.prefix = "ivshmem:",
	.connect = ivshmem_connect,
	.handshake = ivshmem_handshake,
	.mapped = ivshmem_mapped,
	.kick = ivshmem_kick,
	.request = ivshmem_request,
	.peek = ivshmem_peek,
	.sleep = ivshmem_sleep,
	.is_apart = true,
	.close = ivshmem_close,
};
