/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a worker in steward mode. */
#include "host-agent/worker/steward_loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/control/packet.h"
#include "host-agent/worker/build.h"
#include "host-agent/worker/confine.h"
#include "host-agent/worker/steward.h"
#include "proto/vocab.h"

#define SEND_PATIENCE_MS 10000

typedef Gantry__Worker__FromWorker from_worker;

struct loop {
	int sock;
	uint64_t id;
	uint32_t ndevices;
	struct gantry_steward *steward;
	struct gantry_steward_device devices[GANTRY_STEWARD_MAX_DEVICES];
	char names[GANTRY_STEWARD_MAX_DEVICES][32];
	struct gantry_confine_report report;
};

/* From any thread: a packet goes whole or not at all. The agent may be restarting: wait a while for room. */
static void say(const struct loop *l, const from_worker *msg, int fd)
{
	struct pollfd p = { .fd = l->sock, .events = POLLOUT };
	int r;

	while ((r = gantry_packet_send(l->sock, &msg->base, &fd, fd >= 0 ? 1 : 0)) == -EAGAIN)
		if (poll(&p, 1, SEND_PATIENCE_MS) <= 0)
			break;
	if (r < 0)
		gantry_log(GANTRY_LOG_WARN, "a message to the agent was lost: %s", strerror(-r));
}

static void say_done(const struct loop *l, uint64_t tag, int status, const char *text)
{
	Gantry__Worker__Done done = GANTRY__WORKER__DONE__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	done.status = status;
	done.text = (char *)(uintptr_t)text;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DONE;
	msg.done = &done;
	say(l, &msg, -EBADF);
}

static void on_made(void *cookie, uint64_t tag, int status, const char *text, int fd)
{
	Gantry__Worker__SlabMade made = GANTRY__WORKER__SLAB_MADE__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	made.status = status;
	made.text = (char *)(uintptr_t)text;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_SLAB_MADE;
	msg.slab_made = &made;
	say(cookie, &msg, fd);
	gantry_fd_close(fd);
}

static void on_scrubbed(void *cookie, uint64_t tag, int status, const char *text)
{
	say_done(cookie, tag, status, text);
}

/* Workers have heard it, and end, or will with this process. The board may be there again for another one. */
static void on_lost(void *cookie, const char *device, uint64_t worker, const char *why)
{
	Gantry__Worker__DeviceFault fault = GANTRY__WORKER__DEVICE_FAULT__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	fault.device = (char *)(uintptr_t)device;
	fault.blast = GANTRY_BLAST_CONTEXT;
	fault.status = GANTRY_E_DEADLINE;
	fault.text = (char *)(uintptr_t)why;
	fault.worker_id = worker;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_DEVICE_FAULT;
	msg.device_fault = &fault;
	if (worker)
		say(cookie, &msg, -EBADF);
	gantry_log(GANTRY_LOG_WARN, "the steward ends: device %s is lost: %s", device, why);
	_exit(1);
}

static void say_ready(struct loop *l, uint64_t tag)
{
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	struct worker_ready ready;

	worker_ready_init(&ready, l->id, &l->report);
	for (uint32_t i = 0; i < l->ndevices; i++)
		worker_ready_add(&ready, l->names[i], &l->devices[i].info, l->devices[i].error);
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_READY;
	msg.ready = &ready.msg;
	say(l, &msg, -EBADF);
}

static void fill_health(Gantry__Worker__DeviceHealth *msg, struct gantry_steward_health *h)
{
	gantry__worker__device_health__init(msg);
	msg->known = h->health.known;
	msg->temperature_c = h->health.temperature_c;
	msg->clock_mhz = h->health.clock_mhz;
	msg->mem_clock_mhz = h->health.mem_clock_mhz;
	msg->mem_used = h->health.mem_used;
	msg->mem_total = h->health.mem_total;
	msg->ecc_uncorrected = h->health.ecc_uncorrected;
	msg->nfaults = h->health.nfaults;
	msg->last_fault = h->health.last_fault;
	msg->copied_in = h->health.copied_in;
	msg->kept = h->health.kept;
	msg->copied_out = h->health.copied_out;
	msg->followed = h->health.followed;
	msg->error = h->error;
}

static void say_health(struct loop *l, uint64_t tag)
{
	Gantry__Worker__HealthReport report = GANTRY__WORKER__HEALTH_REPORT__INIT;
	Gantry__Worker__DeviceHealth health[GANTRY_STEWARD_MAX_DEVICES];
	Gantry__Worker__DeviceHealth *list[GANTRY_STEWARD_MAX_DEVICES];
	struct gantry_steward_health now[GANTRY_STEWARD_MAX_DEVICES];
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;

	for (uint32_t i = 0; i < l->ndevices; i++) {
		gantry_steward_health(l->steward, i, &now[i]);
		list[i] = &health[i];
		fill_health(list[i], &now[i]);
	}
	report.devices = list;
	report.n_devices = l->ndevices;
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_HEALTH;
	msg.health = &report;
	say(l, &msg, -EBADF);
}

static int start(struct loop *l, const Gantry__Worker__Configure *c, struct gantry_err *err)
{
	struct gantry_device_conf confs[GANTRY_STEWARD_MAX_DEVICES];
	const struct gantry_steward_events events = {
		.made = on_made,
		.scrubbed = on_scrubbed,
		.lost = on_lost,
		.cookie = l,
	};

	if (c->protocol != 1 || c->n_devices == 0 || c->n_devices > GANTRY_STEWARD_MAX_DEVICES)
		return gantry_err_set(err, -EINVAL, "Configure names no devices for a steward");
	l->id = c->worker_id;
	l->ndevices = (uint32_t)c->n_devices;
	for (uint32_t i = 0; i < l->ndevices; i++) {
		const Gantry__Worker__Device *d = c->devices[i];

		confs[i] = (struct gantry_device_conf){
			.name = d->name,
			.backend = d->backend,
			.mem_bytes = d->mem_bytes,
			.lanes = d->lanes,
			.nopts = (uint32_t)d->n_opts,
			.opts = (const char *const *)d->opts,
		};
		(void)gantry_str_copy(l->names[i], sizeof(l->names[i]), d->name);
	}
	if (c->confine)
		gantry_confine_early(c->uid, c->gid, false, &l->report);
	return gantry_steward_start(confs, l->ndevices, &events, &l->steward, l->devices, err);
}

static const char *sentence(int r)
{
	return r == -ENODEV  ? "the steward does not serve that device"
	       : r == -EBUSY ? "too many requests wait at the steward"
			     : "the steward is out of memory";
}

static int status_of(int r)
{
	return r == -ENODEV  ? GANTRY_E_NO_DEVICE
	       : r == -EBUSY ? GANTRY_E_AGAIN
			     : GANTRY_E_NO_MEMORY;
}

/* Takes @fd over. */
static void scrub(struct loop *l, uint64_t tag, const Gantry__Worker__ScrubSlab *q, int fd)
{
	int r = gantry_steward_scrub(l->steward, q->device, q->bytes, fd, tag);

	if (r < 0) {
		gantry_fd_close(fd);
		say_done(l, tag, status_of(r), sentence(r));
	}
}

/* Takes @fd over. true: go on. */
static bool obey(struct loop *l, const Gantry__Worker__ToWorker *msg, int fd)
{
	int r;

	switch (msg->body_case) {
	case GANTRY__WORKER__TO_WORKER__BODY_MAKE_SLAB:
		r = gantry_steward_make(l->steward, msg->make_slab->device, msg->make_slab->bytes,
					msg->tag);
		if (r < 0)
			on_made(l, msg->tag, status_of(r), sentence(r), -EBADF);
		break;
	case GANTRY__WORKER__TO_WORKER__BODY_SCRUB_SLAB:
		scrub(l, msg->tag, msg->scrub_slab, fd);
		return true;
	case GANTRY__WORKER__TO_WORKER__BODY_GIVE_SEAT:
		/* One that cannot have it sees its socket close. */
		if (fd >= 0)
			(void)gantry_steward_seat(l->steward, msg->give_seat->device, fd,
						  msg->give_seat->worker_id);
		return true;
	case GANTRY__WORKER__TO_WORKER__BODY_ASK_HEALTH:
		say_health(l, msg->tag);
		break;
	case GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE: /* a new agent asks who we are */
		say_ready(l, msg->tag);
		break;
	case GANTRY__WORKER__TO_WORKER__BODY_NUDGE:
		break;
	case GANTRY__WORKER__TO_WORKER__BODY_QUIT:
		gantry_fd_close(fd);
		return false;
	default:
		say_done(l, msg->tag, GANTRY_E_UNSUPPORTED, "a steward does not know the message");
	}
	gantry_fd_close(fd);
	return true;
}

/* false: nobody will ever ask again. */
static bool hear(struct loop *l)
{
	ProtobufCMessage *msg;
	unsigned int nfds = 0;
	int fd = -EBADF;
	bool go_on;
	int r = gantry_packet_recv(l->sock, &gantry__worker__to_worker__descriptor, &fd, 1, &msg,
				   &nfds);

	if (r == -EAGAIN)
		return true;
	if (r < 0) {
		gantry_log(GANTRY_LOG_WARN, "the steward ends: %s", strerror(-r));
		return false;
	}
	go_on = obey(l, (const Gantry__Worker__ToWorker *)msg, nfds ? fd : -EBADF);
	protobuf_c_message_free_unpacked(msg, NULL);
	return go_on;
}

static bool has_driver(const struct loop *l)
{
	for (uint32_t i = 0; i < l->ndevices; i++)
		if (l->devices[i].info.caps & GANTRY_CAP_DRIVER)
			return true;
	return false;
}

void gantry_steward_loop(int sock, uint64_t tag, const Gantry__Worker__Configure *configure)
{
	struct loop l = { .sock = sock };
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct gantry_err err = GANTRY_ERR_NONE;

	if (start(&l, configure, &err) < 0) {
		say_done(&l, tag, GANTRY_E_INTERNAL, err.text);
		return;
	}
	if (configure->confine)
		gantry_confine_late(has_driver(&l), false, &l.report);
	say_ready(&l, tag);
	do {
		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			break;
	} while (!p.revents || hear(&l));
	/* Device contexts go with the process; tearing them down in order gains nobody anything. */
	_exit(0);
}
