/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: what control operations on guests' images do that may take long. One at a time per session.
 *
 * An operation that starts a job, or finds it unfinished, is answered with AGAIN, and the guest puts the same operation
 * again: that one takes the result. So no control queue is ever held up by a compiler. A result that nobody comes for
 * is dropped when another operation wants the place.
 *
 * An image is loaded on a thread of its own: copied once out of the guest's memory into the store, hashed, compiled
 * where it is text, tried on a device by that device's thread. A kernel is asked for by posting to the device's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "host-agent/worker/compile.h"
#include "host-agent/worker/image.h"

#define KEEP_NS	    GANTRY_NS_PER_S /* a result for the guest that has not asked yet */
#define LOOK_NS	    (50 * GANTRY_NS_PER_MS)
#define STACK_BYTES (256u << 10)
#define LOG_BYTES \
	GANTRY_MAX_IMAGE_LOG /* what a backend says is longer than compilers' logs are here */

struct wload {
	struct wsession *s;
	uint64_t key;	   /* of the operation it is for */
	uint32_t finished; /* atomic; the rest is its own until then */
	uint64_t finished_ns;
	int status;
	struct gantry_err err;
	struct wdevice *d;

	/* an image */
	struct gantry_op_image_load op;
	uint64_t charged;
	struct wimage *image; /* with the job as a user */
	char *log;	      /* LOG_BYTES; NULL: there is nothing to say */
	uint32_t tried;	      /* futex */

	/* a kernel */
	struct wkernel *k;
};

/* ---- the job of a session ---- */

static uint64_t mix(uint64_t key, const void *bytes, size_t n)
{
	const uint8_t *from = bytes;

	for (size_t i = 0; i < n; i++)
		key = (key ^ from[i]) * 0x100000001b3ull;
	return key;
}

static void load_free(struct wload *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->s->lock);
	if (l->image)
		worker_image_unuse_locked(l->image);
	pthread_mutex_unlock(&l->s->lock);
	if (l->charged)
		worker_store_refund(l->s, l->charged);
	worker_image_kernel_free(l->k);
	free(l->log);
	free(l);
}

/* 0: there is no job, one may be started; 1: *@ret_load is finished and the caller's; AGAIN. */
static int load_look(struct wsession *s, uint64_t key, struct wload **ret_load)
{
	struct wload *l = s->load;

	if (!l)
		return 0;
	/* Acquire: pairs with the release in load_finish(). */
	if (!gantry_load_acquire(&l->finished))
		return GANTRY_E_AGAIN;
	if (l->key != key && gantry_now_ns() - l->finished_ns < KEEP_NS)
		return GANTRY_E_AGAIN;
	s->load = NULL;
	if (l->key == key) {
		*ret_load = l;
		return 1;
	}
	load_free(l);
	return 0;
}

static void load_finish(struct wload *l, int status)
{
	l->status = status;
	l->finished_ns = gantry_now_ns();
	gantry_store_release(&l->finished, 1u);
}

static struct wload *load_new(struct wsession *s, uint64_t key, struct wdevice *d)
{
	struct wload *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->s = s;
	l->key = key;
	l->d = d;
	return l;
}

static bool is_ending(const struct wsession *s)
{
	return gantry_load_acquire(&s->ending) != 0;
}

/* ---- threads ---- */

static void thread_ends(struct gantry_engine *e)
{
	pthread_mutex_lock(&e->load_lock);
	e->nloads--;
	pthread_cond_signal(&e->load_cond);
	pthread_mutex_unlock(&e->load_lock);
}

/* A session that is ending gets no thread: worker_load_drain() counts on it. */
static int thread_begins(struct wsession *s)
{
	struct gantry_engine *e = s->engine;
	int r = 0;

	pthread_mutex_lock(&e->load_lock);
	if (is_ending(s))
		r = -ECANCELED;
	else
		e->nloads++;
	pthread_mutex_unlock(&e->load_lock);
	return r;
}

void worker_load_drain(struct gantry_engine *e)
{
	pthread_mutex_lock(&e->load_lock);
	while (e->nloads > 0)
		pthread_cond_wait(&e->load_cond, &e->load_lock);
	pthread_mutex_unlock(&e->load_lock);
}

static int thread_start(struct wsession *s, void *(*fn)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r = thread_begins(s);

	if (r < 0)
		return r;
	worker_session_hold(s);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* or the default */
	r = -pthread_create(&thread, &attr, fn, arg);
	(void)pthread_attr_destroy(&attr);
	if (r < 0) {
		worker_session_leave(s); /* never the last: the caller holds it */
		thread_ends(s->engine);
	}
	return r;
}

/* ---- an image, on the job's thread ---- */

/* What the job has taken of the store. */
struct piece {
	uint64_t off;
	uint64_t bytes;
};

static int piece_take(struct wload *l, uint64_t bytes, struct piece *ret_piece)
{
	struct wsession *s = l->s;
	int status;

	if (worker_store_charge(s, bytes) != GANTRY_OK) {
		(void)gantry_err_set(&l->err, -EDQUOT, "no device memory is left to allocate");
		return GANTRY_E_LIMIT;
	}
	pthread_mutex_lock(&s->lock);
	status = worker_store_take_locked(s, bytes, &ret_piece->off);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK) {
		worker_store_refund(s, bytes);
		(void)gantry_err_set(&l->err, -ENOSPC, "the session's images have no room left");
		return status;
	}
	ret_piece->bytes = bytes;
	l->charged += bytes;
	return GANTRY_OK;
}

static void piece_put(struct wload *l, struct piece *piece)
{
	if (piece->bytes == 0)
		return;
	pthread_mutex_lock(&l->s->lock);
	worker_store_put_locked(l->s, piece->off);
	pthread_mutex_unlock(&l->s->lock);
	worker_store_refund(l->s, piece->bytes);
	l->charged -= piece->bytes;
	piece->bytes = 0;
}

static int open_store(struct wload *l)
{
	struct wsession *s = l->s;
	int status;

	pthread_mutex_lock(&s->lock);
	status = worker_store_ready_locked(s);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK)
		(void)gantry_err_set(&l->err, -ENOMEM, "no memory for the session's images");
	return status;
}

/* The one time that the guest's memory is read. */
static int copy_in(struct wload *l, struct piece *ret_piece)
{
	void *from;
	int status = open_store(l);

	if (status == GANTRY_OK)
		status = piece_take(l, l->op.bytes, ret_piece);
	if (status != GANTRY_OK)
		return status;
	if (gantry_region_span(&l->s->heap, l->op.heap_off, l->op.bytes, 1, &from) < 0)
		return GANTRY_E_SPAN;
	gantry_region_copy_out(worker_store_at(l->s, ret_piece->off), from, l->op.bytes);
	return GANTRY_OK;
}

static void hash_of(const struct wload *l, const struct piece *piece,
		    uint8_t ret_hash[GANTRY_SHA256_BYTES])
{
	struct gantry_sha256 sha;

	gantry_sha256_init(&sha);
	gantry_sha256_add(&sha, worker_store_at(l->s, piece->off), piece->bytes);
	gantry_sha256_end(&sha, ret_hash);
}

/* "sm_90", or "sm_80,sm_90" where the session's devices differ. */
static void archs_of(const struct wload *l, char *archs, size_t cap)
{
	const struct wsession *s = l->s;

	archs[0] = '\0';
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct wdevice *d = s->engine->devices[i];
		size_t len = strlen(archs);

		if (!(s->device_mask >> i & 1) || !d->usable || d->device.info.kind != l->op.kind ||
		    strstr(archs, d->device.info.arch))
			continue;
		(void)gantry_str_format(archs + len, cap - len, "%s%s", len ? "," : "",
					d->device.info.arch);
	}
}

/* The first device of the kind is the one that names the libraries. */
static int compile(struct wload *l, const struct piece *text, int *ret_fd, uint64_t *ret_bytes)
{
	struct wsession *s = l->s;
	char archs[16 * GANTRY_ENGINE_MAX_DEVICES + 1];
	const struct worker_compilation what = {
		.device = l->d->index,
		.arch = archs,
		.text = worker_store_at(s, text->off),
		.nbytes = text->bytes,
		.stop = worker_session_is_ending,
		.cookie = s,
	};

	l->log = calloc(1, LOG_BYTES);
	if (!l->log)
		return GANTRY_E_NO_MEMORY;
	archs_of(l, archs, sizeof(archs));
	return worker_compile_charged(s, &what, ret_fd, ret_bytes, l->log, &l->err);
}

/* Text becomes what was made of it. */
static int compile_piece(struct wload *l, struct piece *piece)
{
	const struct gantry_backend *be = l->d->device.backend;
	_cleanup_close_ int fd = -EBADF;
	struct piece made = { 0 };
	uint64_t bytes = 0;
	void *from;
	int status;

	if (!be->image_is_text ||
	    !be->image_is_text(worker_store_at(l->s, piece->off), piece->bytes))
		return GANTRY_OK;
	status = compile(l, piece, &fd, &bytes);
	piece_put(l, piece);
	if (status == GANTRY_OK)
		status = piece_take(l, bytes, &made);
	if (status != GANTRY_OK)
		return status;
	from = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (from == MAP_FAILED) {
		piece_put(l, &made);
		return GANTRY_E_NO_MEMORY;
	}
	memcpy(worker_store_at(l->s, made.off), from, bytes);
	(void)munmap(from, bytes);
	*piece = made;
	return GANTRY_OK;
}

static void try_image(struct wdevice *d, void *arg)
{
	struct wload *l = arg;

	l->status = worker_image_on(d, l->image, &l->err);
	/* A compiler that gave the text back as it was had nothing to say of it. */
	if (!l->log)
		l->log = calloc(1, LOG_BYTES);
	if (d->device.backend->image_say && l->log && l->log[0] == '\0')
		d->device.backend->image_say(d->device.dev, l->image->on[d->index], l->log,
					     LOG_BYTES);
	gantry_store_release(&l->tried, 1u);
	(void)gantry_futex_wake(&l->tried, 1);
}

/* Errors come back where they belong: one device has the image before the guest has its handle. */
static int try_on_device(struct wload *l)
{
	if (worker_device_post(l->d, try_image, l) < 0)
		return GANTRY_E_NO_MEMORY;
	/* Acquire: pairs with the release in try_image(). It comes: a thread drains its calls before it ends. */
	while (!gantry_load_acquire(&l->tried))
		(void)gantry_futex_wait(&l->tried, 0, gantry_now_ns() + LOOK_NS);
	return l->status;
}

/* Whether the session has these bytes already; then the job's own are not needed. */
static bool found_same(struct wload *l, const uint8_t hash[GANTRY_SHA256_BYTES],
		       struct piece *piece)
{
	struct wsession *s = l->s;
	uint64_t bytes;

	pthread_mutex_lock(&s->lock);
	l->image = worker_image_same_locked(s, l->op.kind, hash);
	pthread_mutex_unlock(&s->lock);
	if (!l->image)
		return false;
	bytes = l->image->bytes;
	piece_put(l, piece);
	if (worker_store_charge(s, bytes) == GANTRY_OK)
		l->charged = bytes;
	return true;
}

static int image_from(struct wload *l, struct piece *piece)
{
	uint8_t hash[GANTRY_SHA256_BYTES];
	int status;

	hash_of(l, piece, hash);
	/* Asked again even then: the device's thread knows what there is to say of it. */
	if (found_same(l, hash, piece))
		return l->charged ? try_on_device(l) : GANTRY_E_LIMIT;
	status = compile_piece(l, piece);
	if (status != GANTRY_OK)
		return status;
	pthread_mutex_lock(&l->s->lock);
	l->image = worker_image_new_locked(l->s, l->op.kind, piece->off, piece->bytes, hash);
	pthread_mutex_unlock(&l->s->lock);
	if (!l->image)
		return GANTRY_E_NO_MEMORY;
	piece->bytes = 0; /* the image's now; its charge stays the job's until there is a handle */
	return try_on_device(l);
}

static void *image_main(void *arg)
{
	struct wload *l = arg;
	struct wsession *s = l->s;
	struct gantry_engine *e = s->engine;
	struct piece piece = { 0 };
	int status = copy_in(l, &piece);

	if (status == GANTRY_OK)
		status = image_from(l, &piece);
	piece_put(l, &piece);
	load_finish(l, status);
	worker_session_leave(s);
	thread_ends(e);
	return NULL;
}

/* ---- an image, for the control queue ---- */

static int say(struct gantry_reply *reply, int status, const char *text)
{
	(void)gantry_str_copy(reply->text, sizeof(reply->text), text); /* may be cut short */
	return status;
}

/* A guest's code that runs as host code could harm whom it shares a process with. */
static bool is_kept_apart(const struct wsession *s, const struct wdevice *d)
{
	return !(d->device.info.caps & GANTRY_CAP_HOST_CODE) || s->engine->isolated;
}

bool worker_load_takes(const struct wsession *s, const struct wdevice *d)
{
	return (d->device.info.caps & GANTRY_CAP_GUEST_IMAGES) && is_kept_apart(s, d);
}

static int check_load(struct wsession *s, const struct gantry_op_image_load *op,
		      struct gantry_reply *reply, struct wdevice **ret_device)
{
	void *ptr;

	if (op->bytes == 0 || (op->log_bytes == 0 && op->log_off != 0))
		return GANTRY_E_ARG;
	if (gantry_region_span(&s->heap, op->heap_off, op->bytes, 1, &ptr) < 0 ||
	    (op->log_bytes &&
	     gantry_region_span(&s->heap, op->log_off, op->log_bytes, 1, &ptr) < 0))
		return GANTRY_E_SPAN;
	*ret_device = worker_image_device(s, op->kind);
	if (!*ret_device)
		return say(reply, GANTRY_E_NO_DEVICE, "the tenant may use no device of this kind");
	if (!((*ret_device)->device.info.caps & GANTRY_CAP_GUEST_IMAGES))
		return say(reply, GANTRY_E_UNSUPPORTED,
			   "devices of this kind take installed modules only");
	if (!is_kept_apart(s, *ret_device))
		return say(
			reply, GANTRY_E_UNSUPPORTED,
			"a session's own code would run as host code here: isolated tenants only");
	return GANTRY_OK;
}

/* The range was checked when the operation came; the heap does not move. */
static void give_log(const struct wload *l)
{
	size_t room = l->op.log_bytes;
	size_t len = l->log ? strnlen(l->log, LOG_BYTES - 1) : 0;
	void *to;

	if (room == 0 || gantry_region_span(&l->s->heap, l->op.log_off, room, 1, &to) < 0)
		return;
	len = len < room ? len : room - 1;
	if (len)
		gantry_region_copy_in(to, l->log, len);
	gantry_region_copy_in((uint8_t *)to + len, "", 1);
}

static int make_object(struct wload *l, uint64_t made_by, uint64_t *ret_handle)
{
	struct wsession *s = l->s;
	struct gantry_ledger_image *led;
	uint32_t slot;
	int status;

	pthread_mutex_lock(&s->lock);
	status = worker_object_new_locked(s, GANTRY_HANDLE_IMAGE, &slot);
	if (status == GANTRY_OK) {
		led = &s->ledger.objects[slot].image;
		led->own.off = l->image->off;
		led->own.bytes = l->image->bytes;
		led->own.kind = l->image->kind;
		memcpy(led->own.hash, l->image->hash, sizeof(led->own.hash));
		s->objects[slot].image = l->image;
		worker_object_publish(s, slot, made_by);
		*ret_handle = worker_object_handle(s, slot);
		l->image = NULL; /* use and charge are the handle's */
		l->charged = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

static int image_start(struct wsession *s, const struct gantry_op_image_load *op, uint64_t key,
		       struct wdevice *d)
{
	struct wload *l = load_new(s, key, d);

	if (!l)
		return GANTRY_E_NO_MEMORY;
	l->op = *op;
	if (thread_start(s, image_main, l) < 0) {
		load_free(l);
		return GANTRY_E_NO_MEMORY;
	}
	s->load = l;
	return GANTRY_E_AGAIN;
}

int worker_load_image(struct wsession *s, const struct gantry_op_image_load *op, uint64_t made_by,
		      struct gantry_reply *reply, uint64_t *ret_handle)
{
	uint64_t key = mix(GANTRY_OP_image_load, op, sizeof(*op));
	struct wdevice *d = NULL;
	struct wload *l = NULL;
	int status = check_load(s, op, reply, &d);

	if (status == GANTRY_OK)
		status = load_look(s, key, &l);
	if (status == 0)
		return image_start(s, op, key, d);
	if (status != 1)
		return status;
	status = l->status;
	if (status != GANTRY_OK)
		(void)say(reply, status, l->err.text);
	give_log(l);
	if (status == GANTRY_OK)
		status = make_object(l, made_by, ret_handle);
	load_free(l);
	return status;
}

/* ---- a kernel ---- */

static void ask_kernel(struct wdevice *d, void *arg)
{
	struct wload *l = arg;
	struct wsession *s = l->s;
	struct gantry_kernel *kernel;

	load_finish(l, worker_image_kernel_on(d, l->k, &kernel, &l->err));
	worker_session_leave(s);
}

/* @image is used for the job. */
static int kernel_start(struct wsession *s, struct wimage *image, uint64_t key, const char *symbol,
			const struct gantry_signature *sig, const char *sig_text)
{
	struct wload *l = load_new(s, key, worker_image_device(s, image->kind));

	if (!l)
		return GANTRY_E_NO_MEMORY;
	pthread_mutex_lock(&s->lock);
	image->nusers++;
	pthread_mutex_unlock(&s->lock);
	l->image = image;
	l->k = worker_image_kernel_new(image, symbol, sig, sig_text);
	worker_session_hold(s);
	if (!l->d || !l->k || worker_device_post(l->d, ask_kernel, l) < 0) {
		worker_session_leave(s); /* never the last: the caller holds it */
		load_free(l);
		return GANTRY_E_NO_MEMORY;
	}
	s->load = l;
	return GANTRY_E_AGAIN;
}

/* The answer: the image's kernel from now on. */
static int kernel_take(struct wload *l, struct gantry_reply *reply, struct wkernel **ret_kernel)
{
	struct wsession *s = l->s;
	int status = l->status;

	if (status != GANTRY_OK)
		return say(reply, status, l->err.text);
	pthread_mutex_lock(&s->lock);
	status = worker_image_kernel_add_locked(l->k);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK)
		return say(reply, status, "the image's kernels have no room left");
	*ret_kernel = l->k;
	l->k = NULL;
	return GANTRY_OK;
}

int worker_load_kernel(struct wsession *s, uint64_t handle, const char *symbol,
		       const struct gantry_signature *sig, const char *sig_text,
		       struct gantry_reply *reply, struct wkernel **ret_kernel)
{
	struct wimage *image = s->objects[GANTRY_HANDLE_SLOT(handle)].image;
	uint64_t key = mix(mix(mix(GANTRY_OP_kernel_get, &handle, sizeof(handle)), symbol,
			       strlen(symbol) + 1),
			   sig_text, strlen(sig_text));
	struct wload *l = NULL;
	struct wkernel *k;
	int status;

	pthread_mutex_lock(&s->lock);
	k = worker_image_kernel_find_locked(image, symbol, sig_text);
	pthread_mutex_unlock(&s->lock);
	if (k) {
		*ret_kernel = k;
		return GANTRY_OK;
	}
	status = load_look(s, key, &l);
	if (status == 0)
		return kernel_start(s, image, key, symbol, sig, sig_text);
	if (status != 1)
		return status;
	status = kernel_take(l, reply, ret_kernel);
	load_free(l);
	return status;
}

void worker_load_release(struct wsession *s)
{
	if (s->load)
		s->load->image = NULL; /* ends with the session's others */
	load_free(s->load);	       /* finished: an unfinished one holds the session */
	s->load = NULL;
}
