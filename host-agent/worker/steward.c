/* SPDX-License-Identifier: Apache-2.0 */
/* A worker in steward mode: slabs and health of the devices of one backend. */
#include "host-agent/worker/steward.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/registry.h"
#include "devices/seat/holder.h"
#include "proto/vocab.h"

struct request {
	struct gantry_list link;
	uint64_t tag;
	uint64_t bytes;
	int fd; /* to be scrubbed; -1: one is to be made */
};

/* A device and its thread. */
struct sdevice {
	struct gantry_steward *steward;
	struct gantry_device_conf conf;
	struct gantry_device device;
	struct gantry_steward_device *ret; /* while it opens */
	struct gantry_seat_holder *holder; /* NULL: it makes slabs */
	bool usable;
	bool runs; /* its thread is to be joined */
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool opened;
	bool stop;
	uint32_t nwaiting;
	struct gantry_list waiting;
};

struct gantry_steward {
	struct gantry_steward_events events;
	uint32_t ndevices;
	struct sdevice devices[GANTRY_STEWARD_MAX_DEVICES];
};

/* A steward submits nothing: nobody waits for it to poll, and nothing of it is to be cancelled. */
static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };

static int status_of(int r)
{
	return r == 0	      ? GANTRY_OK
	       : r == -ENOMEM ? GANTRY_E_NO_MEMORY
	       : r == -ENODEV ? GANTRY_E_NO_DEVICE
	       : r == -EINVAL ? GANTRY_E_ARG
			      : GANTRY_E_INTERNAL;
}

static void serve(struct sdevice *d, const struct request *q)
{
	const struct gantry_steward_events *events = &d->steward->events;
	const struct gantry_backend *backend = d->device.backend;
	struct gantry_err err = GANTRY_ERR_NONE;
	int fd = -EBADF;
	int r;

	if (q->fd >= 0) {
		r = gantry_failpoint_io(GANTRY_FAILPOINT_STEWARD_SCRUB);
		if (r == 0)
			r = backend->slab_scrub(d->device.dev, q->fd, q->bytes, &err);
		events->scrubbed(events->cookie, q->tag, status_of(r), r < 0 ? err.text : "");
		return;
	}
	r = gantry_failpoint_io(GANTRY_FAILPOINT_STEWARD_MAKE);
	if (r == 0)
		r = backend->slab_create(d->device.dev, q->bytes, &fd, &err);
	gantry_failpoint(GANTRY_FAILPOINT_STEWARD_MADE);
	events->made(events->cookie, q->tag, status_of(r), r < 0 ? err.text : "",
		     r == 0 ? fd : -EBADF);
}

static void free_request(struct request *q)
{
	gantry_fd_close(q->fd);
	free(q);
}

/* NULL: the thread is to end. */
static struct request *next_request(struct sdevice *d)
{
	struct gantry_list *link = NULL;

	pthread_mutex_lock(&d->lock);
	while (!d->stop && gantry_list_is_empty(&d->waiting))
		pthread_cond_wait(&d->cond, &d->lock);
	if (!d->stop) {
		link = gantry_list_pop_front(&d->waiting);
		d->nwaiting--;
	}
	pthread_mutex_unlock(&d->lock);
	return link ? gantry_list_entry(link, struct request, link) : NULL;
}

static bool is_held(const struct gantry_device_conf *conf)
{
	const char *holder = gantry_device_opt(conf, "holder");

	return holder && strcmp(holder, "steward") == 0;
}

static int open_device(struct sdevice *d, struct gantry_err *err)
{
	const struct gantry_device_host *with = d->holder ? gantry_seat_holder_host(d->holder)
							  : &host;
	int r = gantry_device_open(&d->conf, with, &d->device, err);

	if (r < 0)
		return r;
	if (d->device.backend->thread_enter)
		r = d->device.backend->thread_enter(d->device.dev, err);
	if (r == 0 && !d->holder && !(d->device.info.caps & GANTRY_CAP_WINDOW))
		r = gantry_err_set(err, -ENOTSUP, "%s has no memory apart from the host's",
				   d->conf.name);
	if (r < 0)
		gantry_device_close(&d->device);
	return r;
}

static void tell_loss(const struct sdevice *d)
{
	const struct gantry_steward_events *events = &d->steward->events;
	uint64_t worker = 0;
	const char *kernel;
	char text[128];

	if (!gantry_seat_holder_blames(d->holder, &worker, &kernel))
		(void)gantry_str_copy(text, sizeof(text), "it takes no more");
	else /* it fits */
		(void)gantry_str_format(text, sizeof(text), "a launch of %s did not end", kernel);
	events->lost(events->cookie, d->conf.name, worker, text);
}

static void *run(void *arg)
{
	struct sdevice *d = arg;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct request *q;
	int r = open_device(d, &err);

	pthread_mutex_lock(&d->lock);
	d->usable = r == 0;
	if (r < 0)
		(void)gantry_str_copy(d->ret->error, sizeof(d->ret->error),
				      err.text[0] ? err.text : strerror(-r));
	else
		d->ret->info = d->device.info;
	d->ret = NULL;
	d->opened = true;
	pthread_cond_broadcast(&d->cond);
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		return NULL;
	if (d->holder && gantry_seat_holder_run(d->holder, &d->device) == -ENODEV)
		tell_loss(d);
	while ((q = next_request(d))) {
		serve(d, q);
		free_request(q);
	}
	gantry_device_close(&d->device);
	return NULL;
}

static int start_device(struct sdevice *d, struct gantry_steward_device *ret,
			struct gantry_err *err)
{
	int r;

	d->ret = ret;
	if (is_held(&d->conf)) {
		d->holder = gantry_seat_holder_new(gantry_device_opt(&d->conf, "images"));
		if (!d->holder)
			return gantry_err_set(err, -ENOMEM, "no memory to hold %s", d->conf.name);
	}
	r = pthread_create(&d->thread, NULL, run, d);
	if (r != 0)
		return gantry_err_set_errno(err, -r, "starting a steward's thread");
	d->runs = true;
	return 0;
}

static void await_opened(struct sdevice *d)
{
	pthread_mutex_lock(&d->lock);
	while (!d->opened)
		pthread_cond_wait(&d->cond, &d->lock);
	pthread_mutex_unlock(&d->lock);
}

/* ---- boards that are several devices ---- */

static bool is_one_board(const struct sdevice *a, const struct sdevice *b)
{
	const struct gantry_device_info *of_a = &a->device.info, *of_b = &b->device.info;

	return a->usable && b->usable && strcmp(a->conf.backend, b->conf.backend) == 0 &&
	       of_a->board_bytes && of_a->id[0] != '\0' && strcmp(of_a->id, of_b->id) == 0;
}

/* "" where what they all give out is there. */
static void check_board(const struct gantry_steward *s, const struct sdevice *d, char *text,
			size_t cap)
{
	uint64_t total = d->device.info.board_bytes, sum = 0;
	const char *other = NULL, *without = NULL;

	text[0] = '\0';
	for (uint32_t i = 0; i < s->ndevices; i++) {
		const struct sdevice *part = &s->devices[i];

		if (!is_one_board(d, part))
			continue;
		other = part == d || other ? other : part->conf.name;
		without = part->conf.mem_bytes || without ? without : part->conf.name;
		/* None is more than the board has. */
		sum += part->conf.mem_bytes;
	}
	if (!other)
		return;
	if (without) /* it fits */
		(void)gantry_str_format(text, cap,
					"it and %s are one board: each needs mem, and %s has none",
					other, without);
	else if (sum > total) /* it fits */
		(void)gantry_str_format(text, cap,
					"it and %s are one board of %zu MiB, and its devices' mem "
					"adds up to %zu MiB",
					other, (size_t)(total >> 20), (size_t)(sum >> 20));
}

/* All parts of a board that promise more than there is are refused: which of them is wrong nobody can say. */
static void check_boards(struct gantry_steward *s, struct gantry_steward_device *devices)
{
	for (uint32_t i = 0; i < s->ndevices; i++)
		if (s->devices[i].usable)
			check_board(s, &s->devices[i], devices[i].error, sizeof(devices[i].error));
	for (uint32_t i = 0; i < s->ndevices; i++)
		if (devices[i].error[0] != '\0')
			s->devices[i].usable = false;
}

int gantry_steward_start(const struct gantry_device_conf *confs, uint32_t n,
			 const struct gantry_steward_events *events,
			 struct gantry_steward **ret_steward,
			 struct gantry_steward_device *ret_devices, struct gantry_err *err)
{
	struct gantry_steward *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return gantry_err_set(err, -ENOMEM, "no memory for a steward");
	s->events = *events;
	for (uint32_t i = 0; i < n; i++) {
		struct sdevice *d = &s->devices[i];

		memset(&ret_devices[i], 0, sizeof(ret_devices[i]));
		d->steward = s;
		d->conf = confs[i];
		gantry_list_init(&d->waiting);
		pthread_mutex_init(&d->lock, NULL);
		pthread_cond_init(&d->cond, NULL);
		s->ndevices = i + 1;
		if (!confs[i].name[0])
			(void)gantry_str_copy(ret_devices[i].error, sizeof(ret_devices[i].error),
					      "another's");
		else if (r == 0)
			r = start_device(d, &ret_devices[i], err);
	}
	for (uint32_t i = 0; i < n; i++)
		if (s->devices[i].runs)
			await_opened(&s->devices[i]);
	check_boards(s, ret_devices);
	if (r < 0) {
		gantry_steward_stop(s);
		return r;
	}
	*ret_steward = s;
	return 0;
}

void gantry_steward_stop(struct gantry_steward *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->ndevices; i++) {
		struct sdevice *d = &s->devices[i];
		struct gantry_list *link;

		pthread_mutex_lock(&d->lock);
		d->stop = true;
		pthread_cond_broadcast(&d->cond);
		pthread_mutex_unlock(&d->lock);
		if (d->holder)
			gantry_seat_holder_stop(d->holder);
		if (d->runs)
			pthread_join(d->thread, NULL);
		while ((link = gantry_list_pop_front(&d->waiting)))
			free_request(gantry_list_entry(link, struct request, link));
		gantry_seat_holder_free(d->holder);
		pthread_cond_destroy(&d->cond);
		pthread_mutex_destroy(&d->lock);
	}
	free(s);
}

static int put(struct gantry_steward *s, uint32_t device, uint64_t bytes, int fd, uint64_t tag)
{
	struct request *q;
	struct sdevice *d;
	int r = 0;

	if (device >= s->ndevices || !s->devices[device].usable || s->devices[device].holder)
		return -ENODEV;
	d = &s->devices[device];
	q = malloc(sizeof(*q));
	if (!q)
		return -ENOMEM;
	*q = (struct request){ .tag = tag, .bytes = bytes, .fd = fd };
	gantry_list_init(&q->link);
	pthread_mutex_lock(&d->lock);
	if (d->nwaiting >= GANTRY_STEWARD_MAX_WAITING) {
		r = -EBUSY;
	} else {
		gantry_list_push_back(&d->waiting, &q->link);
		d->nwaiting++;
		pthread_cond_broadcast(&d->cond);
	}
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		free(q);
	return r;
}

int gantry_steward_make(struct gantry_steward *s, uint32_t device, uint64_t bytes, uint64_t tag)
{
	return put(s, device, bytes, -EBADF, tag);
}

int gantry_steward_scrub(struct gantry_steward *s, uint32_t device, uint64_t bytes, int fd,
			 uint64_t tag)
{
	return fd < 0 ? -EBADF : put(s, device, bytes, fd, tag);
}

int gantry_steward_seat(struct gantry_steward *s, uint32_t device, int sock, uint64_t worker)
{
	if (device < s->ndevices && s->devices[device].usable && s->devices[device].holder)
		return gantry_seat_holder_add(s->devices[device].holder, sock, worker);
	gantry_fd_close(sock);
	return -ENODEV;
}

void gantry_steward_health(struct gantry_steward *s, uint32_t device,
			   struct gantry_steward_health *ret)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	const struct sdevice *d;

	memset(ret, 0, sizeof(*ret));
	if (device >= s->ndevices)
		return;
	d = &s->devices[device];
	if (!d->usable || !d->device.backend->health)
		return;
	if (d->device.backend->health(d->device.dev, &ret->health, &err) < 0)
		(void)gantry_str_copy(ret->error, sizeof(ret->error),
				      err.text[0] ? err.text : "its health cannot be asked");
}
