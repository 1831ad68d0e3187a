/* SPDX-License-Identifier: Apache-2.0 */
/* An image of a guest's in use: its form on each device, its kernels, its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"

/* ---- life ---- */

struct wimage *worker_image_new_locked(struct wsession *s, uint32_t kind, uint64_t off,
				       uint64_t bytes, const uint8_t hash[GANTRY_SHA256_BYTES])
{
	struct wimage *image = calloc(1, sizeof(*image));

	if (!image)
		return NULL;
	image->session = s;
	image->kind = kind;
	image->off = off;
	image->bytes = bytes;
	image->nusers = 1;
	memcpy(image->hash, hash, sizeof(image->hash));
	gantry_list_init(&image->kernels);
	for (uint32_t i = 0; i < GANTRY_ENGINE_MAX_DEVICES; i++)
		gantry_list_init(&image->dying[i]);
	gantry_list_push_back(&s->images, &image->link);
	return image;
}

struct wimage *worker_image_same_locked(struct wsession *s, uint32_t kind,
					const uint8_t hash[GANTRY_SHA256_BYTES])
{
	gantry_list_for_each(&s->images, struct wimage, link, image) {
		if (image->nusers == 0 || image->kind != kind ||
		    memcmp(image->hash, hash, sizeof(image->hash)) != 0)
			continue;
		image->nusers++;
		return image;
	}
	return NULL;
}

static void image_free_locked(struct wimage *image)
{
	struct wsession *s = image->session;

	gantry_list_for_each_safe(&image->kernels, struct wkernel, link, k) {
		worker_store_put_locked(s, k->recipe_off);
		worker_image_kernel_free(k);
	}
	worker_store_put_locked(s, image->off);
	gantry_list_remove(&image->link);
	free(image);
}

/* This thread uses the image no more. */
static void let_go(struct wdevice *d, struct wimage *image)
{
	struct wsession *s = image->session;

	if (image->on[d->index])
		d->device.backend->image_unload(image->on[d->index]);
	image->on[d->index] = NULL;
	gantry_list_remove(&image->dying[d->index]);
	pthread_mutex_lock(&s->lock);
	if (gantry_fetch_sub(&image->nholders, 1) == 1)
		image_free_locked(image);
	pthread_mutex_unlock(&s->lock);
	worker_session_leave(s);
}

static bool queue_uses(const struct wqueue *q, const struct wimage *image)
{
	if (!q->open)
		return false;
	for (uint64_t pos = q->led->done; pos < q->led->issued; pos++) {
		const struct wkernel *k = q->inflight_kernel[pos % WORKER_WINDOW_TASKS];

		if (k && k->image == image)
			return true;
	}
	return false;
}

/* No queue comes to this thread with commands in flight. */
static bool in_use(const struct wdevice *d, const struct wimage *image)
{
	const struct wsession *s = image->session;
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);

	for (; mask; mask &= mask - 1)
		if (queue_uses(&s->queues[__builtin_ctzll(mask)], image))
			return true;
	return false;
}

/* On the device thread: no handle leads to the image any more, so no task that is bound from here on uses it. */
static void image_ends(struct wdevice *d, void *arg)
{
	struct wimage *image = arg;

	if (in_use(d, image))
		gantry_list_push_back(&d->dying_images, &image->dying[d->index]);
	else
		let_go(d, image);
}

unsigned worker_images_reap(struct wdevice *d)
{
	unsigned n = 0;

	for (struct gantry_list *at = d->dying_images.next, *next; at != &d->dying_images;
	     at = next) {
		struct wimage *image = gantry_list_entry(at - d->index, struct wimage, dying[0]);

		next = at->next;
		if (in_use(d, image))
			continue;
		let_go(d, image);
		n++;
	}
	return n;
}

static bool serves(const struct wsession *s, uint32_t device)
{
	return (s->device_mask >> device & 1) && s->engine->devices[device]->usable;
}

/* A thread that cannot be told keeps its form, and the image, until the session leaves it. */
static void end_locked(struct wimage *image)
{
	struct wsession *s = image->session;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		image->nholders += serves(s, i);
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		if (!serves(s, i))
			continue;
		worker_session_hold(s);
		if (worker_device_post(s->engine->devices[i], image_ends, image) < 0)
			worker_session_leave(s); /* never the last: this thread holds it too */
	}
}

void worker_image_unuse_locked(struct wimage *image)
{
	if (--image->nusers == 0)
		end_locked(image);
}

void worker_images_leave(struct wdevice *d, struct wsession *s)
{
	const struct gantry_backend *be = d->device.backend;

	(void)worker_images_reap(d);
	pthread_mutex_lock(&s->lock);
	worker_variables_leave_locked(d, s);
	gantry_list_for_each(&s->images, struct wimage, link, image) {
		if (image->on[d->index])
			be->image_unload(image->on[d->index]);
		image->on[d->index] = NULL;
	}
	pthread_mutex_unlock(&s->lock);
}

void worker_images_release(struct wsession *s)
{
	gantry_list_for_each_safe(&s->images, struct wimage, link, image) {
		gantry_list_for_each_safe(&image->kernels, struct wkernel, link, k)
			worker_image_kernel_free(k);
		free(image);
	}
	worker_store_close(s);
}

/* ---- on a device ---- */

struct wdevice *worker_image_device(const struct wsession *s, uint32_t kind)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (serves(s, i) && s->engine->devices[i]->device.info.kind == kind)
			return s->engine->devices[i];
	return NULL;
}

int worker_image_on(struct wdevice *d, struct wimage *image, struct gantry_err *err)
{
	const uint8_t *bytes = worker_store_at(image->session, image->off);
	int r;

	if (image->on[d->index])
		return GANTRY_OK;
	*err = (struct gantry_err)GANTRY_ERR_NONE;
	r = d->device.backend->image_load(d->device.dev, NULL, bytes, image->bytes,
					  &image->on[d->index], err);
	return r == 0 ? GANTRY_OK : r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_IMAGE;
}

static int kernel_status(int r)
{
	switch (r) {
	case 0:
		return GANTRY_OK;
	case -ENOENT:
		return GANTRY_E_NO_KERNEL;
	case -EINVAL:
		return GANTRY_E_SIGNATURE;
	case -EOPNOTSUPP:
		return GANTRY_E_UNSUPPORTED;
	case -ENOMEM:
		return GANTRY_E_NO_MEMORY;
	default:
		return GANTRY_E_IMAGE;
	}
}

int worker_image_kernel_on(struct wdevice *d, struct wkernel *k, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	struct gantry_kernel **on = &k->on[d->index];
	int status;

	if (!*on) {
		if (k->image->kind != d->device.info.kind)
			return GANTRY_E_NO_DEVICE;
		if (k->sig.is_raw && !d->device.backend->ask) {
			(void)gantry_err_set(err, -EOPNOTSUPP,
					     "devices of this kind need a kernel's signature");
			return GANTRY_E_UNSUPPORTED;
		}
		status = worker_image_on(d, k->image, err);
		if (status == GANTRY_OK)
			status = kernel_status(d->device.backend->kernel_get(
				k->image->on[d->index], k->name, &k->sig, on, err));
		if (status != GANTRY_OK)
			return status;
	}
	status = worker_settings_apply(d, k, err);
	if (status != GANTRY_OK)
		return status;
	*ret_kernel = *on;
	return GANTRY_OK;
}

/* ---- kernels ---- */

struct wkernel *worker_image_kernel_find_locked(struct wimage *image, const char *symbol,
						const char *sig_text)
{
	gantry_list_for_each(&image->kernels, struct wkernel, link, k)
		if (strcmp(k->name, symbol) == 0 && strcmp(k->sig_text, sig_text) == 0)
			return k;
	return NULL;
}

struct wkernel *worker_image_kernel_new(struct wimage *image, const char *symbol,
					const struct gantry_signature *sig, const char *sig_text)
{
	struct wkernel *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	gantry_list_init(&k->link);
	k->image = image;
	k->sig = *sig;
	k->name = strdup(symbol);
	k->sig_text = strdup(sig_text);
	if (k->name && k->sig_text)
		return k;
	worker_image_kernel_free(k);
	return NULL;
}

void worker_image_kernel_free(struct wkernel *k)
{
	if (!k)
		return;
	free(k->name);
	free(k->sig_text);
	free(k);
}

int worker_image_kernel_add_locked(struct wkernel *k)
{
	uint64_t symbol_bytes = strlen(k->name) + 1;
	uint64_t sig_bytes = strlen(k->sig_text) + 1;
	uint8_t *recipe;
	int status;

	if (k->image->nkernels >= WORKER_IMAGE_KERNELS)
		return GANTRY_E_LIMIT;
	status = worker_store_take_locked(k->image->session, symbol_bytes + sig_bytes,
					  &k->recipe_off);
	if (status != GANTRY_OK)
		return status;
	recipe = worker_store_at(k->image->session, k->recipe_off);
	memcpy(recipe, k->name, symbol_bytes);
	memcpy(recipe + symbol_bytes, k->sig_text, sig_bytes);
	k->image->nkernels++;
	gantry_list_push_back(&k->image->kernels, &k->link);
	return GANTRY_OK;
}

/* ---- objects ---- */

static bool has_kernels(const struct wsession *s, uint64_t image)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_KERNEL &&
		    GANTRY_LEDGER_IS_OWN(&o->kernel) && o->kernel.own.image == image)
			return true;
	}
	return false;
}

/* An image's handle that nobody has any more ends with the last kernel made from it: its recipe names the handle. */
static void end_image_object_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];
	struct wimage *image = s->objects[slot].image;

	worker_store_refund(s, obj->image.own.bytes);
	s->objects[slot].image = NULL;
	worker_object_end_locked(s, slot);
	if (image)
		worker_image_unuse_locked(image);
}

static void end_kernel_object_locked(struct wsession *s, uint32_t slot)
{
	uint64_t handle = s->ledger.objects[slot].kernel.own.image;
	uint32_t of = GANTRY_HANDLE_SLOT(handle);
	struct wimage *image = s->objects[slot].image;

	s->objects[slot].image = NULL;
	worker_object_end_locked(s, slot);
	if (s->ledger.objects[of].state == GANTRY_OBJECT_DYING &&
	    s->ledger.objects[of].gen == GANTRY_HANDLE_GEN(handle) && !has_kernels(s, handle))
		end_image_object_locked(s, of);
	if (image)
		worker_image_unuse_locked(image);
}

void worker_image_object_free_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	if (obj->type == GANTRY_HANDLE_KERNEL)
		end_kernel_object_locked(s, slot);
	else if (has_kernels(s, worker_object_handle(s, slot)))
		gantry_store_release(&obj->state, (uint8_t)GANTRY_OBJECT_DYING);
	else
		end_image_object_locked(s, slot);
}

/* ---- recovery ---- */

bool worker_image_recover(struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_image *led = &s->ledger.objects[slot].image;
	struct wimage *image = NULL;
	int status;

	if (!s->store.base)
		return false;
	status = worker_store_retake_locked(s, led->own.off, led->own.bytes);
	if (status == GANTRY_OK)
		image = worker_image_new_locked(s, led->own.kind, led->own.off, led->own.bytes,
						led->own.hash);
	else if (status == GANTRY_E_EXISTS)
		image = worker_image_same_locked(s, led->own.kind, led->own.hash);
	if (!image || image->off != led->own.off)
		return false;
	s->objects[slot].image = image;
	return true;
}

/* What lies in the store was written by a worker that may have been broken into: it is input. */
static struct wkernel *kernel_remade(struct wimage *image, const struct gantry_ledger_kernel *led)
{
	char symbol[GANTRY_MAX_SYMBOL], sig_text[GANTRY_MAX_SIGNATURE];
	const uint8_t *recipe = worker_store_at(image->session, led->own.off);
	struct gantry_signature sig;
	struct gantry_err err;
	struct wkernel *k;

	memcpy(symbol, recipe, led->own.symbol_bytes);
	memcpy(sig_text, recipe + led->own.symbol_bytes, led->own.sig_bytes);
	if (strnlen(symbol, led->own.symbol_bytes) + 1 != led->own.symbol_bytes ||
	    strnlen(sig_text, led->own.sig_bytes) + 1 != led->own.sig_bytes ||
	    gantry_signature_parse_own(sig_text, &sig, &err) < 0)
		return NULL;
	k = worker_image_kernel_new(image, symbol, &sig, sig_text);
	if (!k)
		return NULL;
	k->recipe_off = led->own.off;
	k->set = led->own.set;
	k->set_turn = k->set.which != 0;
	image->nkernels++;
	gantry_list_push_back(&image->kernels, &k->link);
	return k;
}

static struct wkernel *kernel_at(struct wimage *image, uint64_t off)
{
	gantry_list_for_each(&image->kernels, struct wkernel, link, k)
		if (k->recipe_off == off)
			return k;
	return NULL;
}

bool worker_image_kernel_recover(struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_kernel *led = &s->ledger.objects[slot].kernel;
	uint32_t of = GANTRY_HANDLE_SLOT(led->own.image);
	struct wimage *image = s->objects[of].image;
	struct wkernel *k = NULL;
	int status;

	if (!image || s->ledger.objects[of].gen != GANTRY_HANDLE_GEN(led->own.image))
		return false;
	status = worker_store_retake_locked(s, led->own.off,
					    (uint64_t)led->own.symbol_bytes + led->own.sig_bytes);
	if (status == GANTRY_OK)
		k = kernel_remade(image, led);
	else if (status == GANTRY_E_EXISTS)
		k = kernel_at(image, led->own.off);
	if (!k)
		return false;
	image->nusers++;
	s->objects[slot].image = image;
	s->objects[slot].kernel[0] = k;
	return true;
}

void worker_images_recovered(struct wsession *s)
{
	uint64_t end = 0;

	/* Their last kernel went, and then their worker, before they did. No device has them yet. */
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];
		struct wimage *image = s->objects[i].image;

		if (!image || obj->type != GANTRY_HANDLE_IMAGE ||
		    obj->state != GANTRY_OBJECT_DYING || has_kernels(s, worker_object_handle(s, i)))
			continue;
		worker_store_refund(s, obj->image.own.bytes);
		s->objects[i].image = NULL;
		worker_object_end_locked(s, i);
		if (--image->nusers == 0)
			image_free_locked(image);
	}
	if (!s->store.base)
		return;
	for (uint32_t i = 0; i < s->store.nused; i++) {
		worker_store_clear(s, end, s->store.used[i].off - end);
		end = s->store.used[i].off + s->store.used[i].len;
	}
	worker_store_clear(s, end, GANTRY_LEDGER_STORE_BYTES - end);
}
