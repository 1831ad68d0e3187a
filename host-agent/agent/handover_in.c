/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session arrives: its tenant's limits, memory made for it, its ledger copied from where a mover put it, checked as
 * one whose worker was broken into, charged; then it is taken over as after a worker's death (recover.c).
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover_in.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mover.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/wake.h"
#include "proto/segment.h"

#define INCOMING_MAX	8u		       /* at once */
#define DEVICES_NS	(10 * GANTRY_NS_PER_S) /* one that cannot be opened is not waited for longer */
#define DEVICES_LOOK_NS (20 * GANTRY_NS_PER_MS)

static struct gantry_session *session_of(const struct gantry_handover *h)
{
	return h->session_id ? gantry_session_find(h->agent, h->session_id) : NULL;
}

/* ---- a place for it ---- */

static int shape_of(const struct gantry_image_session *image, const struct gantry_tenant *t,
		    struct gantry_shape *ret_shape, struct gantry_err *err)
{
	const struct gantry_tenant_conf *conf = &t->conf;
	const char *lacks = NULL;

	*ret_shape = (struct gantry_shape){
		.virtual_bytes = image->virtual_bytes,
		.mem_bytes = gantry_min_u64(image->mem_bytes, conf->mem_bytes),
		.slab_bytes = image->slab_bytes,
	};
	/* The reader checked that there is such a layout. */
	(void)gantry_segment_layout_of(image->nqueues, image->nslots, image->segment_bytes,
				       &ret_shape->segment);
	if (t->nsessions >= conf->sessions)
		lacks = "sessions";
	else if (image->segment_bytes >
		 conf->host_mem_bytes - gantry_min_u64(t->host_mem_used, conf->host_mem_bytes))
		lacks = "host_mem";
	else if (image->resident_bytes > ret_shape->mem_bytes)
		lacks = "mem";
	else if (image->slab_bytes > gantry_max_u64(conf->virtual_bytes, conf->mem_bytes) * 2)
		lacks = "virtual";
	else if (image->nqueues > conf->queues + 2)
		lacks = "queues";
	if (!lacks)
		return 0;
	(void)gantry_err_set(err, -EDQUOT, "tenant %s has no room for it there: its %s", conf->name,
			     lacks);
	return GANTRY_ADMIN_QUOTA;
}

static int keep_nonce(struct gantry_session *s, const uint8_t *nonce)
{
	memcpy(s->nonce, nonce, sizeof(s->nonce));
	s->is_relayed = true;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		return -errno;
	s->wake = GANTRY_SESSION_WAKE_EVENTFD;
	gantry_keep(s->agent, s->wake_fd, GANTRY_KEPT_WAKE, (unsigned long long)s->id, s->wake);
	gantry_vsock_keep_nonce(s);
	return 0;
}

/*
 * The store of the guest's own images, under the name that a worker's report would give it. From here on it is of
 * those that are kept (exchange.c), and open for as long: its workers get it from there.
 */
static int make_store(struct gantry_session *s, int *ret_fd)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd = -EBADF;
	int r = gantry_memfd_create("gantry-images", GANTRY_LEDGER_STORE_BYTES, GANTRY_MEMFD_SEALED,
				    &fd);

	if (r < 0)
		return r;
	(void)gantry_str_format(name, sizeof(name), "s/%llx/x/%llx/%llx", /* it fits */
				(unsigned long long)s->id, (unsigned long long)s->id << 40,
				(unsigned long long)GANTRY_LEDGER_STORE_BYTES);
	gantry_keep(s->agent, fd, "%s", name);
	if (gantry_store_find(&s->agent->kept, name) != fd) {
		gantry_fd_close(fd); /* no room in the list */
		return -ENOMEM;
	}
	*ret_fd = fd;
	return 0;
}

/*
 * How much of its slab may have pages: what its tenant may have on devices, and where one of those has memory of its own what of
 * that may lie on the host. Twice the former: in a round what is new may come before it is told what is no more.
 */
static uint64_t pages_limit(const struct gantry_session *s)
{
	const struct gantry_agent *a = s->agent;
	const struct gantry_quota_page *q = s->tenant->quota;
	uint64_t host = 0;

	for (uint32_t i = 0; i < a->ndevices; i++)
		if ((s->tenant->device_mask >> i & 1) && a->devices[i].slab_align)
			host = gantry_load_relaxed(&q->host_bytes)
				       ? gantry_load_relaxed(&q->host_bytes)
				       : s->shape.slab_bytes;
	if (host >= s->shape.slab_bytes || s->shape.mem_bytes > (s->shape.slab_bytes - host) / 2)
		return s->shape.slab_bytes;
	return 2 * s->shape.mem_bytes + host;
}

static int place(struct gantry_handover *h, int fds[4], unsigned int *ret_nfds,
		 struct gantry_err *err)
{
	const struct gantry_image_session *image = &h->image;
	struct gantry_tenant *t = gantry_tenant_find(h->agent, image->tenant);
	struct gantry_session *s = NULL;
	struct gantry_ledger staging = { 0 };
	struct gantry_shape shape;
	int r;

	if (!t || t->removed) {
		(void)gantry_err_set(err, -ENOENT, "there is no tenant %s there", image->tenant);
		return GANTRY_ADMIN_NOT_FOUND;
	}
	r = shape_of(image, t, &shape, err);
	if (r != 0)
		return r;
	if (image->store_bytes && gantry_tenant_mode(t) == GANTRY_POOLED) {
		(void)gantry_err_set(err, -ENOTSUP,
				     "tenant %s is pooled there: a worker of several sessions "
				     "takes none with kernels of its guest's own",
				     t->conf.name);
		return GANTRY_ADMIN_UNSUPPORTED;
	}
	r = gantry_session_new(t, &shape, image->wire_version, NULL, &s, err);
	if (r < 0)
		return GANTRY_ADMIN_FAILED;
	s->phase = GANTRY_PHASE_HELD;
	s->is_arriving = true;
	gantry_keep(s->agent, s->bell_fd, GANTRY_KEPT_ARRIVING, (unsigned long long)s->id);
	s->is_adopted = true;
	s->guest_session = image->session_id;
	s->attached_unix_ns = image->attached_unix_ns;
	memcpy(s->program, image->program, sizeof(s->program));
	gantry_str_make_printable(s->program);
	h->session_id = s->id;
	h->guest_session = image->session_id;
	r = gantry_ledger_create(s->id, t->conf.name, image->nqueues, image->nslots,
				 image->segment_bytes, image->slab_bytes, &staging, &h->staging_fd,
				 err);
	gantry_ledger_close(&staging);
	if (r == 0 && (image->flags & GANTRY_IMAGE_RELAYED))
		r = keep_nonce(s, image->nonce);
	if (r == 0 && (image->flags & (GANTRY_IMAGE_KEYED | GANTRY_IMAGE_SEATED)))
		gantry_adopt_expect(s, image->nonce);
	if (r == 0 && (image->flags & GANTRY_IMAGE_SEATED))
		gantry_seat_expect(s, image->flags & GANTRY_IMAGE_KEYED);
	fds[0] = s->segment_fd;
	fds[1] = s->slab_fd;
	fds[2] = h->staging_fd;
	fds[3] = -EBADF;
	*ret_nfds = 3;
	if (r == 0 && image->store_bytes) {
		r = make_store(s, &fds[3]);
		*ret_nfds = 4;
	}
	if (r < 0 && !err->text[0])
		(void)gantry_err_set_errno(err, r, "making the session's memory");
	return r < 0 ? GANTRY_ADMIN_FAILED : 0;
}

static void refuse(struct gantry_handover *h, int code, const char *text)
{
	h->code = code;
	(void)gantry_str_copy(h->text, sizeof(h->text), text); /* cut is better than unsaid */
	gantry_mover_send_msg(h->mover, GANTRY_MOVER_CANCEL, code, h->token, text, NULL, 0);
}

static void drop(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);

	h->session_id = 0; /* its end is not this hand-over's any more */
	h->staging_fd = gantry_fd_close(h->staging_fd);
	if (s)
		gantry_session_free(s);
}

static void place_it(struct gantry_handover *h)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	unsigned int nfds = 0;
	int fds[4];
	int code = place(h, fds, &nfds, &err);

	if (code != 0) {
		drop(h);
		refuse(h, code, err.text);
		return;
	}
	gantry_failpoint(GANTRY_FAILPOINT_IN_PLACED);
	gantry_mover_send_place(h->mover, h->token, pages_limit(session_of(h)), fds, nfds);
}

/* An agent that has only just begun learns from its first worker of what kind its devices are. */
static bool devices_known(const struct gantry_handover *h)
{
	const struct gantry_tenant *t = gantry_tenant_find(h->agent, h->image.tenant);

	for (uint32_t i = 0; t && i < h->agent->ndevices; i++)
		if (h->agent->devices[i].used && (t->device_mask >> i & 1) &&
		    h->agent->devices[i].kind == 0)
			return false;
	return true;
}

static void place_again(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;

	(void)fd;
	(void)what;
	if (!devices_known(h) && gantry_now_ns() - h->began_ns < DEVICES_NS &&
	    gantry_timer_set(h->agent, &h->timer, DEVICES_LOOK_NS, place_again, h) == 0)
		return;
	gantry_event_free(&h->timer);
	place_it(h);
}

static void take_session(struct gantry_handover *h, const struct gantry_mover_session *told)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	gantry_failpoint(GANTRY_FAILPOINT_IN_SESSION);
	h->image = told->session;
	if (h->session_id || gantry_image_session_check(&h->image, &err) < 0) {
		refuse(h, GANTRY_ADMIN_FAILED, "a session that cannot be");
		return;
	}
	memcpy(h->token, h->image.token, sizeof(h->token));
	(void)gantry_str_copy(h->tenant, sizeof(h->tenant), h->image.tenant); /* the same size */
	gantry_handover_enter(h, GANTRY_HANDOVER_COPYING);
	h->owned_bytes = h->image.resident_bytes;
	place_again(-1, 0, h);
}

/* ---- arrived ---- */

static int copy_ledger(struct gantry_handover *h, struct gantry_session *s, struct gantry_err *err)
{
	struct gantry_ledger staging = { 0 };
	int r = gantry_ledger_open(h->staging_fd, &staging, err);

	if (r < 0)
		return r;
	if (staging.nqueues == s->ledger.nqueues && staging.nslots == s->ledger.nslots) {
		memcpy(s->ledger.queues, staging.queues, staging.nqueues * sizeof(*staging.queues));
		memcpy(s->ledger.objects, staging.objects,
		       GANTRY_LEDGER_NOBJECTS * sizeof(*staging.objects));
		memcpy(s->ledger.tasks, staging.tasks,
		       (size_t)staging.nqueues * staging.nslots * sizeof(*staging.tasks));
		/* The mover may have it mapped still: what counts is the copy. */
		r = gantry_ledger_check(s->ledger.hdr, s->ledger.bytes, err);
	} else {
		r = gantry_err_set(err, -EINVAL, "its ledger has another shape");
	}
	gantry_ledger_close(&staging);
	return r;
}

static void put(const struct gantry_session *s, uint64_t off, const void *value, size_t bytes)
{
	/* Inside the segment, which cannot shrink. */
	(void)!pwrite(s->segment_fd, value, bytes, (off_t)off);
}

static void put_u64(const struct gantry_session *s, uint64_t off, uint64_t value)
{
	put(s, off, &value, sizeof(value));
}

/*
 * What its guest put after the last look is the guest's to put again: it knows from these positions. The rest of the
 * header is ours from the start, but for the number that the guest knows.
 */
static void set_positions(struct gantry_session *s)
{
	const struct gantry_segment_layout *layout = &s->shape.segment;

	for (uint32_t i = 0; i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *q = &s->ledger.queues[i];
		uint64_t area = layout->queues_off + (uint64_t)i * layout->queue_stride_bytes;

		/* One that comes with its machine has not heard of any of this, and has put what it has put. */
		if (!s->is_seated)
			put_u64(s, area + offsetof(struct gantry_queue_area, tail), q->taken);
		put_u64(s, area + offsetof(struct gantry_queue_area, head), q->taken);
		put_u64(s, area + offsetof(struct gantry_queue_area, done), q->done);
		put_u64(s, area + offsetof(struct gantry_queue_area, nfailed), q->nfailed);
		if (s->unadopted && !s->is_seated) /* threads of another process on another host */
			put(s, area + offsetof(struct gantry_queue_area, waiters), &(uint32_t){ 0 },
			    sizeof(uint32_t));
	}
	s->segment->session_id = s->guest_session;
	s->segment->state = GANTRY_SESSION_RECOVERING;
}

static void arrived(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);
	struct gantry_handover_step step;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	if (!s || h->phase != GANTRY_HANDOVER_COPYING) {
		refuse(h, GANTRY_ADMIN_FAILED, "an image without a session");
		return;
	}
	gantry_failpoint(GANTRY_FAILPOINT_IN_ARRIVED);
	r = copy_ledger(h, s, &err);
	if (r < 0)
		memset(s->ledger.objects, 0, GANTRY_LEDGER_NOBJECTS * sizeof(*s->ledger.objects));
	else
		r = gantry_handover_settle_ledger(h, s, &err);
	if (r < 0) /* nothing is charged yet */
		memset(s->ledger.objects, 0, GANTRY_LEDGER_NOBJECTS * sizeof(*s->ledger.objects));
	else
		r = gantry_handover_charge_ledger(s, &err);
	if (r < 0 || !gantry_handover_destination_step(h->state, GANTRY_HANDOVER_ARRIVED, &step)) {
		drop(h);
		refuse(h,
		       r == -EDQUOT   ? GANTRY_ADMIN_QUOTA
		       : r == -ENOENT ? GANTRY_ADMIN_NOT_FOUND
				      : GANTRY_ADMIN_FAILED,
		       err.text);
		return;
	}
	h->state = step.to;
	gantry_handover_enter(h, GANTRY_HANDOVER_STILL);
	if (h->image.flags & GANTRY_IMAGE_LAZY)
		gantry_pull_mark(s);
	s->ledger.hdr->epoch = h->image.epoch;
	s->ledger.hdr->inflight = h->image.inflight;
	set_positions(s);
	gantry_failpoint(GANTRY_FAILPOINT_IN_CHARGED);
	gantry_mover_send_msg(h->mover, GANTRY_MOVER_PREPARED, 0, h->token, NULL, NULL, 0);
	gantry_failpoint(GANTRY_FAILPOINT_IN_PREPARED);
}

/* ---- the hand-over ---- */

static void adopt(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);

	if (!s)
		return;
	gantry_event(h->agent, "session-arrived", NULL, s, NULL, "%s from %.80s", s->program,
		     h->host);
	s->welcomed = true;
	s->is_arriving = false; /* the journal says so by now */
	gantry_keep_drop(s->agent, GANTRY_KEPT_ARRIVING, (unsigned long long)s->id);
	s->ledger.hdr->epoch++;
	gantry_store_relaxed(&s->segment->epoch, s->ledger.hdr->epoch);
	if (s->unadopted) {
		gantry_adopt_await(s);
		return;
	}
	s->died_ns = gantry_now_ns();
	s->phase = GANTRY_PHASE_RECOVERING;
	gantry_vsock_await(s);
	gantry_attach_want(s);
	gantry_failpoint(GANTRY_FAILPOINT_IN_ADOPTED);
}

/* @h is whom it concerns, @asker whose mover asked. */
static void act(struct gantry_handover *h, struct gantry_handover *asker,
		const struct gantry_handover_step *s)
{
	uint32_t before = h->state;

	h->state = s->to;
	if ((s->actions & GANTRY_HANDOVER_RECORD) && gantry_handover_record(h->agent) < 0 &&
	    before == GANTRY_DESTINATION_PREPARED) {
		h->state = GANTRY_DESTINATION_NONE; /* not written down: not ours */
		gantry_mover_send_msg(asker->mover, GANTRY_MOVER_UNKNOWN, 0, h->token, NULL, NULL,
				      0);
		drop(h);
		return;
	}
	if (s->actions & GANTRY_HANDOVER_SEND_OWNED) {
		gantry_failpoint(GANTRY_FAILPOINT_IN_OWNER);
		gantry_mover_send_msg(asker->mover, GANTRY_MOVER_OWNED, 0, h->token, NULL, NULL, 0);
		gantry_failpoint(GANTRY_FAILPOINT_IN_OWNED);
	}
	if (s->actions & GANTRY_HANDOVER_SEND_UNKNOWN)
		gantry_mover_send_msg(asker->mover, GANTRY_MOVER_UNKNOWN, 0, h->token, NULL, NULL,
				      0);
	if (s->actions & GANTRY_HANDOVER_RELEASE)
		drop(h);
	if (s->actions & GANTRY_HANDOVER_RUN)
		adopt(h);
}

static void take_word(struct gantry_handover *asker, const struct gantry_mover_msg *msg,
		      enum gantry_handover_event event)
{
	struct gantry_handover *h = gantry_handover_by_token(asker->agent, true, msg->token);
	struct gantry_handover_step step;

	if (h && gantry_handover_destination_step(h->state, event, &step)) {
		act(h, asker, &step);
		if (event == GANTRY_HANDOVER_COMMIT && h->state == GANTRY_DESTINATION_OWNER &&
		    !gantry_handover_is_over(h)) {
			struct gantry_mover_process *mover = h->mover;

			if (gantry_pull_begin(h))
				return;
			h->mover = NULL; /* FORGET may come yet */
			gantry_handover_finish(h, 0, "the session came from %.80s", h->host);
			h->mover = mover;
		}
		return;
	}
	if (event != GANTRY_HANDOVER_FORGET)
		gantry_mover_send_msg(asker->mover, GANTRY_MOVER_UNKNOWN, 0, msg->token, NULL, NULL,
				      0);
}

/* It was to be known whether it could come; nothing does. */
static void was_asked(struct gantry_handover *h)
{
	struct gantry_handover_step step;

	if (h->phase != GANTRY_HANDOVER_COPYING || !session_of(h))
		return;
	if (gantry_handover_destination_step(h->state, GANTRY_HANDOVER_DISCARD, &step))
		h->state = step.to;
	drop(h);
	h->is_dry = true;
	gantry_handover_finish(h, 0, "%.80s asked whether it could come", h->host);
}

static void mover_said(void *arg, const struct gantry_mover_msg *msg, size_t len)
{
	struct gantry_handover *h = arg;

	switch (msg->kind) {
	case GANTRY_MOVER_CONNECTED:
		(void)gantry_str_copy(h->host, sizeof(h->host), msg->text); /* shorter */
		break;
	case GANTRY_MOVER_SESSION:
		if (len == sizeof(struct gantry_mover_session))
			take_session(h, (const struct gantry_mover_session *)msg);
		break;
	case GANTRY_MOVER_ACCEPTED:
		was_asked(h);
		break;
	case GANTRY_MOVER_ARRIVED:
		arrived(h);
		break;
	case GANTRY_MOVER_READY:
		if (h->phase == GANTRY_HANDOVER_PULLING)
			gantry_pull_ready(h);
		break;
	case GANTRY_MOVER_PULLED:
		if (h->phase == GANTRY_HANDOVER_PULLING)
			gantry_pull_came(h, msg);
		break;
	case GANTRY_MOVER_COMMIT:
		gantry_failpoint(GANTRY_FAILPOINT_IN_COMMIT);
		take_word(h, msg, GANTRY_HANDOVER_COMMIT);
		break;
	case GANTRY_MOVER_ASK:
		take_word(h, msg, GANTRY_HANDOVER_ASK);
		break;
	case GANTRY_MOVER_FORGET:
		gantry_failpoint(GANTRY_FAILPOINT_IN_FORGET);
		take_word(h, msg, GANTRY_HANDOVER_FORGET);
		break;
	case GANTRY_MOVER_FAILED:
		if (!h->code) {
			h->code = msg->code && msg->code <= 124 ? (int)msg->code
								: GANTRY_ADMIN_FAILED;
			memcpy(h->text, msg->text, sizeof(h->text));
		}
		break;
	default:
		break; /* of another build */
	}
}

static void mover_gone(void *arg)
{
	struct gantry_handover *h = arg;
	struct gantry_handover_step step;
	char why[GANTRY_MOVER_TEXT];

	h->mover = NULL;
	if (gantry_handover_is_over(h))
		return;
	if (h->phase == GANTRY_HANDOVER_PULLING) {
		gantry_pull_broken(h);
		return;
	}
	(void)gantry_str_copy(why, sizeof(why),
			      h->text[0] ? h->text : "it was not sent"); /* fits */
	if (!h->host[0]) { /* anybody: no host whose certificate is good, and no migration */
		h->agent->counters.denied_peers++;
		gantry_event(h->agent, "host-denied", NULL, NULL, NULL, "%s", why);
		gantry_handover_discard(h);
		return;
	}
	if (gantry_handover_destination_step(h->state, GANTRY_HANDOVER_DISCARD, &step))
		h->state = step.to;
	drop(h);
	gantry_handover_finish(h, h->code ? h->code : GANTRY_ADMIN_FAILED, "%.150s", why);
}

static const struct gantry_mover_events in_events = { mover_said, mover_gone };

/* ---- the mover that brings it ---- */

static uint32_t count_incoming(const struct gantry_agent *a)
{
	uint32_t n = 0;

	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		n += h->is_incoming && h->mover != NULL && h->phase != GANTRY_HANDOVER_PULLING;
	return n;
}

void gantry_handover_take_host(struct gantry_agent *a, int fd)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mover_start start;
	struct gantry_handover *h;

	if (count_incoming(a) >= INCOMING_MAX)
		return;
	h = gantry_handover_new(a, true);
	if (!h)
		return;
	gantry_mover_start_init(a, &start, GANTRY_MOVER_RECEIVE);
	if (gantry_mover_spawn(a, &start, &fd, 1, &in_events, h, &h->mover, &err) == 0) {
		gantry_failpoint(GANTRY_FAILPOINT_IN_TAKEN);
		return;
	}
	gantry_event(a, "host-denied", NULL, NULL, NULL, "%s", err.text);
	gantry_handover_discard(h);
}
