/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling on a session's account: what it may have compiled within a minute, for its images and for what installed modules have compiled for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "host-agent/worker/compile.h"
#include "host-agent/worker/image.h"

#define TEXT_MAX_BYTES (64ull << 20)
#define PERIOD_NS      (60 * GANTRY_NS_PER_S)
#define BUDGET_NS      (40 * GANTRY_NS_PER_S)

bool worker_session_is_ending(void *session)
{
	const struct wsession *s = session;

	return gantry_load_acquire(&s->ending) != 0;
}

/* 0, or what was used up. */
static uint64_t look(struct wsession *s, uint64_t now_ns)
{
	uint64_t used;

	pthread_mutex_lock(&s->lock);
	if (now_ns - s->compile_since_ns > PERIOD_NS) {
		s->compile_since_ns = now_ns;
		s->compiled_ns = 0;
	}
	used = s->compiled_ns >= BUDGET_NS ? s->compiled_ns : 0;
	pthread_mutex_unlock(&s->lock);
	return used;
}

static void charge(struct wsession *s, uint64_t ns)
{
	pthread_mutex_lock(&s->lock);
	s->compiled_ns += ns;
	pthread_mutex_unlock(&s->lock);
}

int worker_compile_charged(struct wsession *s, const struct worker_compilation *what, int *ret_fd,
			   uint64_t *ret_bytes, char *log, struct gantry_err *err)
{
	uint64_t began_ns = gantry_now_ns(), used_ns;
	int status;

	if (what->nbytes > TEXT_MAX_BYTES)
		return gantry_err_set(err, GANTRY_E_LIMIT, "a text to compile has up to %llu MiB",
				      TEXT_MAX_BYTES >> 20);
	used_ns = look(s, began_ns);
	if (used_ns)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "the session compiled for %llu s within a minute",
				      (unsigned long long)(used_ns / GANTRY_NS_PER_S));
	status = worker_compile(s->engine->compiler, what, ret_fd, ret_bytes, log, err);
	charge(s, gantry_now_ns() - began_ns);
	return status;
}

static int module_error(int status)
{
	switch (status) {
	case GANTRY_OK:
		return 0;
	case GANTRY_E_UNSUPPORTED:
		return -EOPNOTSUPP;
	case GANTRY_E_LIMIT:
		return -EDQUOT;
	case GANTRY_E_NO_MEMORY:
		return -ENOMEM;
	case GANTRY_E_CANCELLED:
		return -ECANCELED;
	default:
		return -ENOEXEC;
	}
}

/* The forge's memory may change under a reader: it is copied once. */
static int copy_out(int fd, uint64_t nbytes, void **ret_made)
{
	void *from = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);
	void *made = from == MAP_FAILED ? NULL : malloc(nbytes);

	if (made)
		memcpy(made, from, nbytes);
	if (from != MAP_FAILED)
		(void)munmap(from, nbytes);
	*ret_made = made;
	return made ? 0 : -ENOMEM;
}

int worker_compile_for_module(void *queue, const void *text, size_t nbytes, void **ret_made,
			      size_t *ret_nbytes)
{
	const struct wqueue *q = queue;
	struct wsession *s = q->session;
	const struct wdevice *d = s->engine->devices[q->led->device];
	const struct worker_compilation what = {
		.device = d->index,
		.arch = d->device.info.arch,
		.text = text,
		.nbytes = nbytes,
		.stop = worker_session_is_ending,
		.cookie = s,
	};
	_cleanup_free_ char *log = malloc(WORKER_COMPILE_LOG);
	_cleanup_close_ int fd = -EBADF;
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t bytes = 0;
	void *made;
	int r;

	if (!log)
		return -ENOMEM;
	r = module_error(worker_compile_charged(s, &what, &fd, &bytes, log, &err));
	if (r == 0)
		r = copy_out(fd, bytes, &made);
	if (r < 0)
		return r;
	*ret_made = made;
	*ret_nbytes = bytes;
	return 0;
}
