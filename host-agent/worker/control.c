/* SPDX-License-Identifier: Apache-2.0 */
/* Control operations: queue 0 of a session, served by the thread in its `control`, answered in the slot's inline block. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/str.h"
#include "host-agent/worker/image.h"

static void reply_data(struct gantry_reply *reply, const void *data, uint32_t len)
{
	reply->len_bytes = len;
	memcpy(reply->data, data, len);
}

static int refuse(struct gantry_reply *reply, int status, const char *why)
{
	(void)gantry_str_copy(reply->text, sizeof(reply->text), why);
	return status;
}

/* A name of @bytes bytes (its NUL included) at *@at; moves *@at past it. */
static const char *take_text(const uint8_t **at, const uint8_t *end, uint32_t bytes)
{
	const char *text = (const char *)*at;

	if (bytes == 0 || (uint64_t)(end - *at) < bytes || text[bytes - 1] != '\0' ||
	    strlen(text) != bytes - 1)
		return NULL;
	*at += bytes;
	return text;
}

/* ---- kernels and images ---- */

static const char *recipe_module(const struct wkernel *k)
{
	return k->any_module ? "" : k->module;
}

static bool recipe_fits(const struct wkernel *k)
{
	return strlen(recipe_module(k)) + strlen(k->name) + 2 <=
	       sizeof(((struct gantry_ledger_kernel *)0)->name);
}

/* A successor finds the kernel by this. */
static void write_recipe(struct gantry_ledger_object *obj, const struct wkernel *k, uint64_t image)
{
	if (k->image) {
		obj->kernel.own.installed = 0;
		obj->kernel.own.image = image;
		obj->kernel.own.off = k->recipe_off;
		obj->kernel.own.symbol_bytes = (uint32_t)strlen(k->name) + 1;
		obj->kernel.own.sig_bytes = (uint32_t)strlen(k->sig_text) + 1;
		obj->kernel.own.set = k->set;
		return;
	}
	(void)snprintf(obj->kernel.name, sizeof(obj->kernel.name), "%s/%s", recipe_module(k),
		       k->name);
	obj->kernel.sig_hash = worker_kernel_sig_hash(k);
}

/*
 * Objects are made, filled and published under one hold of the lock: until an object is live its slot is free to whoever
 * takes the lock next, and the control thread imports buffers.
 */
static int make_kernel(struct wsession *s, struct wkernel *k, uint64_t image, uint64_t variant_of,
		       uint32_t kind, uint64_t made_by, uint64_t *ret_handle)
{
	uint32_t slot;
	int status;

	if (!k->image && !recipe_fits(k))
		return GANTRY_E_LIMIT;
	pthread_mutex_lock(&s->lock);
	status = worker_object_new_locked(s, GANTRY_HANDLE_KERNEL, &slot);
	if (status == GANTRY_OK) {
		struct gantry_ledger_object *obj = &s->ledger.objects[slot];

		write_recipe(obj, k, image);
		/* It may leave something in its device's context, which is to be made anew where the session goes. */
		if (worker_keeps(obj))
			worker_keeps_open_locked(s);
		if (k->image) {
			s->objects[slot].image = k->image;
			k->image->nusers++;
		}
		obj->variant_of = variant_of;
		obj->variant_kind = (uint16_t)kind;
		gantry_store_release(&s->objects[slot].kernel[0], k);
		worker_object_publish(s, slot, made_by);
		*ret_handle = worker_object_handle(s, slot);
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

static int make_image(struct wsession *s, const char *module, uint64_t made_by,
		      uint64_t *ret_handle)
{
	uint32_t slot;
	int status;

	pthread_mutex_lock(&s->lock);
	status = worker_object_new_locked(s, GANTRY_HANDLE_IMAGE, &slot);
	if (status == GANTRY_OK) {
		struct gantry_ledger_image *image = &s->ledger.objects[slot].image;

		(void)gantry_str_copy(image->module, sizeof(image->module),
				      module); /* it fits: both are names */
		worker_object_publish(s, slot, made_by);
		*ret_handle = worker_object_handle(s, slot);
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

/* The image object @handle; *ret_is_own tells whether it is of bytes that the guest loaded. NULL: there is none. */
static const struct gantry_ledger_image *image_get(struct wsession *s, uint64_t handle,
						   bool *ret_is_own)
{
	struct gantry_ledger_object *obj = worker_object_get(s, handle, GANTRY_HANDLE_IMAGE, NULL,
							     0);

	*ret_is_own = obj && GANTRY_LEDGER_IS_OWN(&obj->image);
	return obj ? &obj->image : NULL;
}

static int find_installed(struct wsession *s, const char *module, const char *name, const char *sig,
			  struct gantry_reply *reply, struct wkernel **ret_kernel)
{
	struct wkernel *k = worker_kernel_find(s->engine, s->tenant, module, name);
	struct gantry_signature parsed;
	struct gantry_err err;

	if (!k)
		return refuse(
			reply, GANTRY_E_NO_KERNEL,
			worker_kernel_is_leaving(s->engine, s->tenant, module, name)
				? "the only image of a board with this kernel is being removed"
				: "no installed module has this kernel");
	if (sig[0]) {
		if (gantry_signature_parse(sig, &parsed, &err) < 0)
			return refuse(reply, GANTRY_E_SIGNATURE, err.text);
		if (memcmp(&parsed, &k->sig, sizeof(parsed)) != 0)
			return refuse(reply, GANTRY_E_SIGNATURE, k->sig_text);
	}
	*ret_kernel = k;
	return GANTRY_OK;
}

/* A guest's image says how many bytes its parameters have, and not which are buffers. */
static int find_own(struct wsession *s, uint64_t image, const char *name, const char *sig,
		    struct gantry_reply *reply, struct wkernel **ret_kernel)
{
	char sig_text[GANTRY_SIGNATURE_TEXT_MAX];
	struct gantry_signature parsed;
	struct gantry_err err;

	if (!sig[0])
		return refuse(reply, GANTRY_E_SIGNATURE,
			      "a kernel of an image that was loaded needs a signature");
	if (gantry_signature_parse_own(sig, &parsed, &err) < 0)
		return refuse(reply, GANTRY_E_SIGNATURE, err.text);
	if (gantry_signature_is_opencl(&parsed) &&
	    s->objects[GANTRY_HANDLE_SLOT(image)].image->kind != GANTRY_KIND_OPENCL)
		return refuse(reply, GANTRY_E_SIGNATURE,
			      "bN, local and range are for kernels of OpenCL images");
	/* Canonical: one kernel, one text. */
	if (gantry_signature_format(&parsed, sig_text, sizeof(sig_text)) < 0 ||
	    strlen(sig_text) >= GANTRY_MAX_SIGNATURE)
		return GANTRY_E_SIGNATURE;
	return worker_load_kernel(s, image, name, &parsed, sig_text, reply, ret_kernel);
}

static uint32_t kinds_of(const struct wkernel *k)
{
	uint32_t kinds = 0;

	if (k->image)
		return 1u << k->image->kind;
	for (uint32_t kind = 0; kind < GANTRY_NKINDS; kind++)
		if (gantry_load_relaxed(&k->image_paths[kind]))
			kinds |= 1u << kind;
	return kinds;
}

static int op_kernel_get(struct wsession *s, const struct gantry_op_kernel_get *op,
			 const uint8_t *var, uint32_t var_bytes, uint64_t made_by,
			 struct gantry_reply *reply)
{
	const uint8_t *end = var + var_bytes;
	const char *name = take_text(&var, end, op->name_bytes);
	const char *sig = op->sig_bytes ? take_text(&var, end, op->sig_bytes) : "";
	const struct gantry_ledger_image *image = NULL;
	struct gantry_reply_kernel answer;
	struct wkernel *k = NULL;
	bool is_own = false;
	uint64_t handle;
	int status;

	if (!name || !sig || var != end)
		return GANTRY_E_ARG;
	if (op->image)
		image = image_get(s, op->image, &is_own);
	if (op->image && !image)
		return GANTRY_E_HANDLE;
	status = is_own ? find_own(s, op->image, name, sig, reply, &k)
			: find_installed(s, image ? image->module : NULL, name, sig, reply, &k);
	if (status == GANTRY_OK)
		status = make_kernel(s, k, op->image, 0, 0, made_by, &handle);
	if (status != GANTRY_OK)
		return status;
	answer = (struct gantry_reply_kernel){
		.handle = handle,
		.nargs = k->sig.nargs,
		.args_bytes = k->sig.args_bytes,
		.flags = k->flags,
		.kinds = kinds_of(k),
	};
	reply_data(reply, &answer, sizeof(answer));
	return GANTRY_OK;
}

static int find_variant(struct wsession *s, const char *module, const char *symbol, uint32_t kind,
			const struct gantry_signature *sig, struct gantry_reply *reply,
			struct wkernel **ret_kernel)
{
	struct wkernel *k = worker_kernel_find(s->engine, s->tenant, module, symbol);

	if (!k || !gantry_load_relaxed(&k->image_paths[kind]))
		return refuse(reply, GANTRY_E_NO_KERNEL,
			      "the image has no such symbol for this kind of device");
	if (memcmp(sig, &k->sig, sizeof(*sig)) != 0)
		return refuse(reply, GANTRY_E_SIGNATURE, "variants of a kernel have one signature");
	*ret_kernel = k;
	return GANTRY_OK;
}

/* A variant is an object of its own in the ledger, so that a recovery finds it; its handle is told to nobody. */
static int op_kernel_variant(struct wsession *s, const struct gantry_op_kernel_variant *op,
			     const uint8_t *var, uint32_t var_bytes, uint64_t made_by,
			     struct gantry_reply *reply)
{
	const uint8_t *end = var + var_bytes;
	const char *symbol = take_text(&var, end, op->symbol_bytes);
	const struct gantry_ledger_image *image;
	struct wkernel *base, *k = NULL;
	uint64_t handle;
	bool is_own;
	int status;

	if (!symbol || var != end)
		return GANTRY_E_ARG;
	image = image_get(s, op->image, &is_own);
	if (!image || !worker_object_get(s, op->kernel, GANTRY_HANDLE_KERNEL, NULL, 0))
		return GANTRY_E_HANDLE;
	base = gantry_load_relaxed(&s->objects[GANTRY_HANDLE_SLOT(op->kernel)].kernel[0]);
	if (!base)
		return GANTRY_E_NO_KERNEL; /* it was installed once */
	if (is_own && image->own.kind != op->kind)
		return refuse(reply, GANTRY_E_NO_KERNEL,
			      "the image is not for this kind of device");
	if (is_own)
		status = find_own(s, op->image, symbol, base->sig_text, reply, &k);
	else
		status = find_variant(s, image->module, symbol, op->kind, &base->sig, reply, &k);
	if (status == GANTRY_OK)
		status = make_kernel(s, k, op->image, op->kernel, op->kind, made_by, &handle);
	/* Release: pairs with the acquire in kernel_get() of bind.c. */
	if (status == GANTRY_OK)
		gantry_store_release(&s->objects[GANTRY_HANDLE_SLOT(op->kernel)].kernel[op->kind],
				     k);
	return status;
}

static int op_image_load(struct wsession *s, const struct gantry_op_image_load *op,
			 const uint8_t *var, uint32_t var_bytes, uint64_t made_by,
			 struct gantry_reply *reply)
{
	const uint8_t *end = var + var_bytes;
	const char *name = take_text(&var, end, var_bytes);
	struct gantry_reply_handle h;
	int status;

	if (!op->by_name) {
		status = worker_load_image(s, op, made_by, reply, &h.handle);
		if (status == GANTRY_OK)
			reply_data(reply, &h, sizeof(h));
		return status;
	}
	if (!name || op->bytes || op->heap_off || op->log_off || op->log_bytes)
		return GANTRY_E_ARG;
	if (!worker_module_exists(s->engine, s->tenant, name))
		return refuse(reply, GANTRY_E_NOT_FOUND, "no module of this name is installed");
	status = make_image(s, name, made_by, &h.handle);
	if (status == GANTRY_OK)
		reply_data(reply, &h, sizeof(h));
	return status;
}

static void end_object_locked(struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	if (obj->type == GANTRY_HANDLE_KERNEL ? GANTRY_LEDGER_IS_OWN(&obj->kernel)
					      : GANTRY_LEDGER_IS_OWN(&obj->image))
		worker_image_object_free_locked(s, slot);
	else
		worker_object_end_locked(s, slot);
}

static int op_object_free(struct wsession *s, const struct gantry_op_object_free *op)
{
	uint32_t type = GANTRY_HANDLE_TYPE(op->object);

	if (type != GANTRY_HANDLE_KERNEL && type != GANTRY_HANDLE_IMAGE)
		return GANTRY_E_HANDLE;
	if (!worker_object_get(s, op->object, type, NULL, 0))
		return GANTRY_E_HANDLE;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; type == GANTRY_HANDLE_KERNEL && i < GANTRY_LEDGER_NOBJECTS; i++)
		if (s->ledger.objects[i].state == GANTRY_OBJECT_LIVE &&
		    s->ledger.objects[i].type == GANTRY_HANDLE_KERNEL &&
		    s->ledger.objects[i].variant_of == op->object)
			end_object_locked(s, i);
	end_object_locked(s, GANTRY_HANDLE_SLOT(op->object));
	pthread_mutex_unlock(&s->lock);
	return GANTRY_OK;
}

/* ---- queues ---- */

static int32_t priority_capped(const struct wsession *s, int32_t priority)
{
	int32_t max = gantry_load_relaxed(&s->quota->priority_max);

	return priority > max ? max : priority;
}

/* What the slot's queue before used is not the new one's: neither its kernels nor its buffers. */
static void forget_uses(struct wsession *s, uint32_t slot)
{
	uint64_t bit = 1ull << slot;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (gantry_load_relaxed(&s->objects[i].queues) & bit)
			(void)gantry_fetch_and(&s->objects[i].queues, ~bit);
}

static int op_queue_open(struct wsession *s, const struct gantry_op_queue_open *op,
			 uint64_t made_by, struct gantry_reply *reply)
{
	struct gantry_reply_queue answer;
	struct gantry_ledger_queue *led;
	uint32_t slot;

	for (slot = 1; slot < s->ledger.nqueues; slot++)
		if (gantry_load_acquire(&s->ledger.queues[slot].state) == GANTRY_QUEUE_CLOSED)
			break;
	if (slot == s->ledger.nqueues)
		return refuse(reply, GANTRY_E_LIMIT, "every queue of the session is open");
	led = &s->ledger.queues[slot];
	forget_uses(s, slot);
	gantry_store_relaxed(&led->priority, priority_capped(s, op->priority));
	gantry_store_relaxed(&led->window_us, op->window_us);
	gantry_store_relaxed(&led->device_mask, worker_devices_numbered(s, op->device_mask));
	led->kind = op->kind;
	gantry_store_relaxed(&led->fail_stop, op->fail_stop);
	gantry_store_relaxed(&led->broken, 0u);
	gantry_store_relaxed(&led->guest_paused, 0u);
	gantry_store_relaxed(&led->lane, 0u);
	led->opened_by = made_by;
	led->gen++;
	if (worker_queue_place(s, &s->queues[slot]) < 0)
		return refuse(reply, GANTRY_E_NO_DEVICE,
			      "no device the tenant may use fits this queue");
	answer = (struct gantry_reply_queue){
		.handle = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, led->gen, slot),
		.slot = slot,
		.next_seq = led->taken + 1,
	};
	reply_data(reply, &answer, sizeof(answer));
	return GANTRY_OK;
}

static struct wqueue *queue_get(struct wsession *s, uint64_t handle)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);

	if (slot == 0 || slot >= s->ledger.nqueues)
		return NULL;
	if (s->ledger.queues[slot].gen != GANTRY_HANDLE_GEN(handle) ||
	    gantry_load_relaxed(&s->ledger.queues[slot].state) != GANTRY_QUEUE_OPEN)
		return NULL;
	return &s->queues[slot];
}

static int op_queue_set(struct wsession *s, const struct gantry_op_queue_set *op,
			struct gantry_reply *reply)
{
	struct wqueue *q = queue_get(s, op->queue);

	if (!q)
		return GANTRY_E_HANDLE;
	switch (op->key) {
	case GANTRY_QUEUE_PRIORITY:
		if ((int64_t)op->value < INT32_MIN || (int64_t)op->value > INT32_MAX)
			return GANTRY_E_ARG;
		gantry_store_relaxed(&q->led->priority, priority_capped(s, (int32_t)op->value));
		return GANTRY_OK;
	case GANTRY_QUEUE_DEVICE_MASK:
		gantry_store_relaxed(&q->led->device_mask, worker_devices_numbered(s, op->value));
		if (worker_queue_place(s, q) < 0)
			return refuse(reply, GANTRY_E_NO_DEVICE,
				      "no device the tenant may use fits this queue");
		return GANTRY_OK;
	case GANTRY_QUEUE_WINDOW_US:
		if (op->value > 1000000)
			return GANTRY_E_ARG;
		gantry_store_relaxed(&q->led->window_us, (uint32_t)op->value);
		return GANTRY_OK;
	case GANTRY_QUEUE_FAIL_STOP:
		if (op->value > 1)
			return GANTRY_E_ARG;
		gantry_store_relaxed(&q->led->fail_stop, (uint32_t)op->value);
		if (op->value == 0)
			gantry_store_relaxed(&q->led->broken, 0);
		return GANTRY_OK;
	case GANTRY_QUEUE_PAUSED:
		if (op->value > 1)
			return GANTRY_E_ARG;
		gantry_store_relaxed(&q->led->guest_paused, (uint32_t)op->value);
		worker_session_wake(s);
		return GANTRY_OK;
	default:
		return GANTRY_E_ARG;
	}
}

static int op_queue_close(struct wsession *s, const struct gantry_op_queue_close *op)
{
	struct wqueue *q = queue_get(s, op->queue);

	if (!q)
		return GANTRY_E_HANDLE;
	/* Its device thread closes it once what was put has finished. */
	gantry_store_release(&q->led->state, GANTRY_QUEUE_CLOSING);
	worker_session_wake(s);
	return GANTRY_OK;
}

static int op_queue_cancel(struct wsession *s, const struct gantry_op_queue_cancel *op)
{
	struct wqueue *q = queue_get(s, op->queue);

	if (!q)
		return GANTRY_E_HANDLE;
	gantry_store_release(&q->led->cancel_below, worker_queue_tail(q));
	worker_session_wake(s);
	return GANTRY_OK;
}

/* ---- what there is ---- */

/* As the guest named it: one that it put in the heap lies there for life. */
static uint32_t flags_of(const struct gantry_ledger_buffer *b)
{
	return b->alloc_flags ? b->alloc_flags : GANTRY_ALLOC_DEVICE;
}

static int op_buf_next(struct wsession *s, const struct gantry_op_buf_next *op,
		       struct gantry_reply *reply)
{
	struct gantry_reply_buffer answer = { 0 };

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = op->slot; i < GANTRY_LEDGER_NOBJECTS && answer.handle == 0; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state == GANTRY_OBJECT_FREE || obj->type != GANTRY_HANDLE_BUFFER)
			continue;
		answer = (struct gantry_reply_buffer){
			.handle = worker_object_handle(s, i),
			.bytes = obj->buffer.bytes,
			.heap_off = obj->buffer.place == GANTRY_PLACE_HEAP ? obj->buffer.off : 0,
			.alloc_flags = flags_of(&obj->buffer),
			.slot = i,
			.rights = obj->buffer.rights,
			.is_dying = obj->state == GANTRY_OBJECT_DYING,
		};
	}
	pthread_mutex_unlock(&s->lock);
	reply_data(reply, &answer, sizeof(answer));
	return GANTRY_OK;
}

static int op_queue_next(struct wsession *s, const struct gantry_op_queue_next *op,
			 struct gantry_reply *reply)
{
	struct gantry_reply_queue_state answer = { 0 };

	for (uint32_t i = GANTRY_MAX(op->slot, 1u); i < s->ledger.nqueues && answer.handle == 0;
	     i++) {
		const struct gantry_ledger_queue *led = &s->ledger.queues[i];

		if (gantry_load_acquire(&led->state) != GANTRY_QUEUE_OPEN)
			continue;
		answer = (struct gantry_reply_queue_state){
			.handle = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, led->gen, i),
			.slot = i,
			.kind = led->kind,
			.priority = gantry_load_relaxed(&led->priority),
		};
	}
	reply_data(reply, &answer, sizeof(answer));
	return GANTRY_OK;
}

/* ---- properties ---- */

static int op_props(struct wsession *s, const struct gantry_op_props *op,
		    struct gantry_reply *reply)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_reply_props p = {
		.lanes = UINT32_MAX,
		.flags = GANTRY_PROP_HOST_DIRECT | (s->translated ? GANTRY_PROP_TRANSLATED : 0),
		.mem_bytes = GANTRY_MIN(hdr->mem_bytes, gantry_load_relaxed(&s->quota->mem_bytes)),
		.virtual_bytes = GANTRY_MIN(hdr->virtual_bytes,
					    gantry_load_relaxed(&s->quota->virtual_bytes)),
		.heap_bytes = s->heap.bytes,
		.nqueues = s->ledger.nqueues - 1,
		.nslots = s->ledger.nslots,
		.window_us = WORKER_WINDOW_US,
		.priority_max = gantry_load_relaxed(&s->quota->priority_max),
	};

	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct gantry_device_info *info = &s->engine->devices[i]->device.info;

		if (!(s->device_mask >> i & 1) || (op->kind && info->kind != op->kind))
			continue;
		p.ndevices++;
		p.kinds |= 1u << info->kind;
		p.lanes = GANTRY_MIN(p.lanes, info->lanes);
		if (!(info->caps & GANTRY_CAP_HOST_DIRECT))
			p.flags &= ~GANTRY_PROP_HOST_DIRECT;
	}
	if (p.ndevices == 0)
		return refuse(reply, GANTRY_E_NO_DEVICE,
			      "the tenant may use no device of this kind");
	(void)snprintf(p.name, sizeof(p.name), "gantry %s", gantry_kind_name((int)op->kind));
	reply_data(reply, &p, sizeof(p));
	return GANTRY_OK;
}

/* ---- what may be known ---- */

/* Text on its way to the heap, cut short where the guest gave less room; @len counts all of it. */
struct telling {
	char *to;
	size_t room;
	size_t len;
};

static void tell(struct telling *t, const char *text)
{
	size_t n = strlen(text);

	if (t->len < t->room)
		gantry_region_copy_in(t->to + t->len, text, GANTRY_MIN(n, t->room - t->len));
	t->len += n;
}

static void tell_kernel(void *cookie, const char *name, const char *sig)
{
	struct telling *t = cookie;

	tell(t, "kernel ");
	tell(t, name);
	tell(t, " ");
	tell(t, sig);
	tell(t, "\n");
}

static int op_describe(struct wsession *s, const struct gantry_op_describe *op,
		       struct gantry_reply *reply)
{
	const struct wdevice *d = worker_image_device(s, op->kind);
	struct gantry_reply_text answer = { 0 };
	struct telling t = { .room = op->bytes };
	void *to = NULL;

	if (op->bytes && gantry_region_span(&s->heap, op->heap_off, op->bytes, 1, &to) < 0)
		return GANTRY_E_SPAN;
	if (!d)
		return refuse(reply, GANTRY_E_NO_DEVICE,
			      "the tenant may use no device of this kind");
	t.to = to;
	tell(&t, worker_load_takes(s, d) ? "code yes\n" : "code no\n");
	tell(&t, d->device.info.about ? d->device.info.about : "");
	worker_kernels_each(s->engine, s->tenant, op->kind, tell_kernel, &t);
	answer.bytes = t.len;
	reply_data(reply, &answer, sizeof(answer));
	return GANTRY_OK;
}

static int op_stats(struct wsession *s, struct gantry_reply *reply)
{
	const struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_reply_stats st = {
		.tasks_finished = gantry_load_relaxed(&hdr->tasks_finished),
		.tasks_failed = gantry_load_relaxed(&hdr->tasks_failed),
		.device_ns = gantry_load_relaxed(&hdr->device_ns),
		.bytes_in = gantry_load_relaxed(&hdr->bytes_in),
		.bytes_out = gantry_load_relaxed(&hdr->bytes_out),
		.virtual_bytes = gantry_load_relaxed(&hdr->virtual_used),
		.resident_bytes = gantry_load_relaxed(&hdr->resident_used),
		.resident_peak_bytes = gantry_load_relaxed(&hdr->resident_peak),
		.worker_restarts = gantry_load_relaxed(&hdr->worker_restarts),
	};

	reply_data(reply, &st, sizeof(st));
	return GANTRY_OK;
}

/* ---- one operation ---- */

static int op_buf_alloc(struct wsession *s, const struct gantry_op_buf_alloc *op, uint64_t made_by,
			struct gantry_reply *reply)
{
	struct gantry_reply_handle h;
	int status = worker_buffer_alloc(s, op, made_by, &h.handle);

	if (status == GANTRY_OK)
		reply_data(reply, &h, sizeof(h));
	return status;
}

static int fetch_var(struct wsession *s, const struct gantry_ledger_task *task, uint8_t *heap_copy,
		     const uint8_t **ret_var)
{
	void *ptr;

	*ret_var = task->inl.bytes;
	if (task->desc.len_bytes == 0 || (task->desc.flags & GANTRY_DESC_INLINE))
		return GANTRY_OK;
	if (gantry_region_span(&s->heap, task->desc.off_bytes, task->desc.len_bytes, 8, &ptr) < 0)
		return GANTRY_E_SPAN;
	gantry_region_copy_out(heap_copy, ptr, task->desc.len_bytes);
	*ret_var = heap_copy;
	return GANTRY_OK;
}

static int op_image_variable(struct wdevice *d, struct wsession *s,
			     const struct gantry_op_image_variable *op, const uint8_t *var,
			     uint32_t var_bytes, uint64_t made_by, struct gantry_reply *reply)
{
	const uint8_t *end = var + var_bytes;
	const char *name = take_text(&var, end, op->name_bytes);

	return name ? worker_ask_variable(d, s, op, name, made_by, reply) : GANTRY_E_ARG;
}

static int run(struct wdevice *d, struct wsession *s, const struct gantry_ledger_task *task,
	       uint64_t made_by, struct gantry_reply *reply)
{
	uint8_t heap_copy[GANTRY_MAX_VAR_BYTES];
	union gantry_op_any args;
	const uint8_t *var;
	uint32_t len = task->desc.len_bytes;
	int status = gantry_desc_decode(&task->desc, true, s->version, &args);

	if (status == GANTRY_OK)
		status = fetch_var(s, task, heap_copy, &var);
	if (status != GANTRY_OK)
		return status;
	switch (task->desc.op) {
	case GANTRY_OP_buf_alloc:
		return op_buf_alloc(s, &args.buf_alloc, made_by, reply);
	case GANTRY_OP_buf_free:
		return worker_buffer_free(s, args.buf_free.buffer);
	case GANTRY_OP_kernel_get:
		return op_kernel_get(s, &args.kernel_get, var, len, made_by, reply);
	case GANTRY_OP_kernel_variant:
		return op_kernel_variant(s, &args.kernel_variant, var, len, made_by, reply);
	case GANTRY_OP_image_load:
		return op_image_load(s, &args.image_load, var, len, made_by, reply);
	case GANTRY_OP_object_free:
		return op_object_free(s, &args.object_free);
	case GANTRY_OP_queue_open:
		return op_queue_open(s, &args.queue_open, made_by, reply);
	case GANTRY_OP_queue_close:
		return op_queue_close(s, &args.queue_close);
	case GANTRY_OP_queue_set:
		return op_queue_set(s, &args.queue_set, reply);
	case GANTRY_OP_queue_cancel:
		return op_queue_cancel(s, &args.queue_cancel);
	case GANTRY_OP_props:
		return op_props(s, &args.props, reply);
	case GANTRY_OP_describe:
		return op_describe(s, &args.describe, reply);
	case GANTRY_OP_stats:
		return op_stats(s, reply);
	case GANTRY_OP_buf_next:
		return op_buf_next(s, &args.buf_next, reply);
	case GANTRY_OP_ask:
		return worker_ask(d, s, &args.ask, reply);
	case GANTRY_OP_image_variable:
		return op_image_variable(d, s, &args.image_variable, var, len, made_by, reply);
	case GANTRY_OP_texture:
		return worker_ask_texture(d, s, &args.texture, var, made_by, reply);
	case GANTRY_OP_reserve:
		return worker_ask_reserve(d, s, &args.reserve, made_by, reply);
	case GANTRY_OP_map:
		return worker_ask_map(d, s, &args.map, reply);
	case GANTRY_OP_queue_next:
		return op_queue_next(s, &args.queue_next, reply);
	default:
		return GANTRY_E_UNSUPPORTED;
	}
}

/* What an earlier worker may have done before it died with the operation unanswered. */
static bool may_be_done(const struct wqueue *q, const struct gantry_ledger_task *task, uint64_t pos)
{
	return pos < q->doubt_below &&
	       (task->desc.op == GANTRY_OP_buf_free || task->desc.op == GANTRY_OP_object_free ||
		task->desc.op == GANTRY_OP_queue_close);
}

int worker_control(struct wdevice *d, struct wsession *s)
{
	struct wqueue *q = &s->queues[0];
	int n = 0;
	int r;

	/* Acquire: what it holds still is as it was, or all moved. */
	if (gantry_load_acquire(&s->still))
		return 0;
	r = worker_intake(q);
	if (r < 0)
		return r;
	while (q->led->issued < q->led->taken && n < (int)WORKER_TURN_CONTROL) {
		uint64_t pos = q->led->issued;
		const struct gantry_ledger_task *task = gantry_ledger_task(&s->ledger, 0, pos);
		struct gantry_reply reply = { 0 };

		/* Release: counted before it has effects, see ledger.h. */
		gantry_store_release(&q->led->issued, pos + 1);
		reply.status = run(d, s, task, pos + 1, &reply);
		if (reply.status == GANTRY_E_HANDLE && may_be_done(q, task, pos))
			reply.status = GANTRY_OK;
		gantry_ring_reply(&q->ring, pos, &reply);
		worker_finish(q, reply.status, 0);
		n++;
	}
	if (n > 0)
		worker_publish(q);
	return n;
}
