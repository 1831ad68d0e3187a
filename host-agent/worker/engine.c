/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/worker/image.h"

static void describe(const struct wdevice *d, struct gantry_engine_device *ret)
{
	(void)gantry_str_copy(ret->name, sizeof(ret->name), d->name);
	(void)gantry_str_copy(ret->error, sizeof(ret->error), d->error);
	ret->info = d->device.info;
}

int gantry_engine_start(const struct gantry_engine_conf *conf, struct gantry_engine **ret_engine,
			struct gantry_engine_device *ret_devices, struct gantry_err *err)
{
	struct gantry_engine *e;
	int r;

	if (conf->ndevices == 0 || conf->ndevices > GANTRY_ENGINE_MAX_DEVICES)
		return gantry_err_set(err, -EINVAL, "a worker has 1 to %u devices",
				      GANTRY_ENGINE_MAX_DEVICES);
	e = calloc(1, sizeof(*e));
	if (!e)
		return gantry_err_set(err, -ENOMEM, "no memory for the engine");
	e->events = *conf->events;
	gantry_list_init(&e->sessions);
	gantry_list_init(&e->kernels);
	e->compiler = conf->compiler;
	e->isolated = conf->isolated;
	worker_standin_init(e);
	pthread_mutex_init(&e->load_lock, NULL);
	pthread_cond_init(&e->load_cond, NULL);
	pthread_mutex_init(&e->module_lock, NULL);
	pthread_mutex_init(&e->session_lock, NULL);
	r = worker_modules_open(e, conf, err);
	for (uint32_t i = 0; i < conf->ndevices && r == 0; i++) {
		r = worker_device_start(e, i, &conf->devices[i], conf->share_fds[i],
					conf->share_owner, conf->spin_ns, &e->devices[i], err);
		if (r == 0) {
			e->ndevices++;
			describe(e->devices[i], &ret_devices[i]);
		}
	}
	if (r == 0)
		r = worker_standin_start(e, err);
	if (r < 0) {
		gantry_engine_stop(e);
		return r;
	}
	*ret_engine = e;
	return 0;
}

void gantry_engine_stop(struct gantry_engine *e)
{
	uint64_t ids[GANTRY_ENGINE_MAX_SESSIONS];
	uint32_t n;

	if (!e)
		return;
	n = gantry_engine_sessions(e, ids, GANTRY_ENGINE_MAX_SESSIONS); /* attach lets no more in */
	for (uint32_t i = 0; i < n; i++)
		(void)gantry_engine_detach(e, ids[i], GANTRY_E_DETACHED);
	worker_standin_stop(e);
	worker_load_drain(e);
	/* Threads look at each other's devices until the last session is gone. */
	for (uint32_t i = 0; i < e->ndevices; i++)
		worker_device_stop(e->devices[i]);
	for (uint32_t i = 0; i < e->ndevices; i++)
		worker_device_free(e->devices[i]);
	worker_modules_free(e);
	pthread_cond_destroy(&e->load_cond);
	pthread_mutex_destroy(&e->load_lock);
	pthread_mutex_destroy(&e->module_lock);
	pthread_mutex_destroy(&e->session_lock);
	free(e);
}

int gantry_engine_export(struct gantry_engine *e, uint64_t session_id, uint64_t buffer,
			 uint32_t mode, int *ret_fd, uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	struct wsession *s = worker_session_get(e, session_id);
	int status;

	if (!s)
		return GANTRY_E_NOT_FOUND;
	status = worker_buffer_export(s, buffer, mode, ret_fd, ret_bytes, ret_share_id);
	worker_session_leave(s);
	return status;
}

int gantry_engine_import(struct gantry_engine *e, uint64_t session_id, uint64_t share_id,
			 uint64_t bytes, uint32_t mode, int fd, uint64_t *ret_buffer)
{
	struct wsession *s;
	int own, status;

	if (bytes == 0 || bytes > GANTRY_MAX_BUFFER_BYTES ||
	    (mode != GANTRY_R && mode != GANTRY_RW))
		return GANTRY_E_ARG;
	if (gantry_memfd_check(fd, bytes) < 0)
		return GANTRY_E_INTERNAL;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return GANTRY_E_INTERNAL;
	s = worker_session_get(e, session_id);
	status = s ? worker_buffer_adopt(s, share_id, bytes, mode, own, ret_buffer)
		   : GANTRY_E_NOT_FOUND;
	if (status != GANTRY_OK)
		gantry_fd_close(own);
	if (s)
		worker_session_leave(s);
	return status;
}

int gantry_engine_rescan(struct gantry_engine *e, struct gantry_err *err)
{
	return worker_modules_rescan(e, err);
}

/* Queues whose device the agent has taken away find another. */
static void look_again(struct wdevice *d, void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);

		for (; mask; mask &= mask - 1)
			(void)worker_queue_place(s, &s->queues[__builtin_ctzll(mask)]);
	}
}

void gantry_engine_nudge(struct gantry_engine *e)
{
	for (uint32_t i = 0; i < e->ndevices; i++)
		(void)worker_device_post(e->devices[i], look_again, NULL);
}

uint32_t gantry_engine_sessions(struct gantry_engine *e, uint64_t *ret_ids, uint32_t cap)
{
	uint32_t n = 0;

	pthread_mutex_lock(&e->session_lock);
	gantry_list_for_each(&e->sessions, struct wsession, link, s) {
		if (n < cap)
			ret_ids[n] = s->id;
		n++;
	}
	pthread_mutex_unlock(&e->session_lock);
	return n;
}
