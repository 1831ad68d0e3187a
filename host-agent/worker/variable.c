/* SPDX-License-Identifier: Apache-2.0 */
/* What a device makes where it is asked, and lets go of: variables of images, arrays and textures. Device thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/question.h"

/* A variable or an array that nobody has any more. */
struct ending {
	struct wsession *session; /* held */
	uint32_t slot;
};

static void let_go(struct wdevice *d, void *arg)
{
	struct ending *ending = arg;
	struct wsession *s = ending->session;
	struct wobject *rt = &s->objects[ending->slot];
	bool ours;

	/* If the thread has left the session before, it did this; and another buffer may be in this place. */
	pthread_mutex_lock(&s->lock);
	ours = rt->ends && rt->variable &&
	       s->ledger.objects[ending->slot].buffer.device == d->index;
	pthread_mutex_unlock(&s->lock);
	if (ours) {
		d->device.backend->mem_free(rt->variable);
		pthread_mutex_lock(&s->lock);
		rt->variable = NULL;
		pthread_mutex_unlock(&s->lock);
		(void)worker_buffer_reap(s);
	}
	free(ending);
	worker_session_leave(s);
}

bool worker_variable_gone_locked(struct wsession *s, uint32_t slot)
{
	struct wobject *rt = &s->objects[slot];
	struct wdevice *d = s->engine->devices[s->ledger.objects[slot].buffer.device];
	struct ending *ending;

	/* On that thread at once: whoever asks then how much memory there is counts on it. */
	if (rt->variable && !rt->ends && pthread_equal(pthread_self(), d->thread)) {
		d->device.backend->mem_free(rt->variable);
		rt->variable = NULL;
	}
	ending = rt->variable && !rt->ends ? malloc(sizeof(*ending)) : NULL;
	if (ending) {
		*ending = (struct ending){ .session = s, .slot = slot };
		worker_session_hold(s);
		rt->ends = worker_device_post(d, let_go, ending) == 0;
	}
	if (ending && !rt->ends) {
		worker_session_leave(s); /* never the last: the caller holds it */
		free(ending);
	}
	return !rt->variable;
}

void worker_variables_leave_locked(struct wdevice *d, struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wobject *rt = &s->objects[i];

		if (!rt->variable || s->ledger.objects[i].buffer.device != d->index)
			continue;
		d->device.backend->mem_free(rt->variable);
		rt->variable = NULL;
	}
}

/* @image: of a variable; NULL of what is made for a texture, which has @charged bytes. */
static int make_variable_locked(struct wdevice *d, struct wquestion *q, struct wimage *image,
				struct gantry_mem *mem, uint64_t bytes, uint64_t charged,
				uint64_t *ret_handle)
{
	struct wsession *s = q->s;
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status;

	/* Unloaded meanwhile by the thread of the control queue. It is not gone before this thread has let go of it. */
	if (image && image->nusers == 0)
		return GANTRY_E_HANDLE;
	status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);
	if (status != GANTRY_OK)
		return status;
	b = &s->ledger.objects[slot].buffer;
	b->bytes = bytes;
	b->rights = GANTRY_RW;
	b->device = d->index;
	b->place = GANTRY_PLACE_IMAGE;
	gantry_store_relaxed(&b->charged_bytes, charged);
	s->objects[slot].variable = mem;
	s->objects[slot].image = image;
	if (image)
		image->nusers++;
	worker_object_publish(s, slot, WORKER_NOT_TOLD);
	*ret_handle = worker_object_handle(s, slot);
	return GANTRY_OK;
}

int worker_answer_variable(struct wdevice *d, struct wquestion *q)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_ADDRESS };
	struct gantry_reply_variable answer = { 0 };
	struct wsession *s = q->s;
	struct wimage *image;
	struct gantry_mem *mem;
	int status, r;

	if (!worker_object_get(s, q->variable.image, GANTRY_HANDLE_IMAGE, NULL, 0))
		return GANTRY_E_HANDLE;
	image = s->objects[GANTRY_HANDLE_SLOT(q->variable.image)].image;
	if (!image || image->kind != d->device.info.kind || !d->device.backend->image_variable)
		return GANTRY_E_UNSUPPORTED;
	status = worker_image_on(d, image, &q->err);
	if (status != GANTRY_OK)
		return status;
	r = d->device.backend->image_variable(image->on[d->index], q->name, &mem, &answer.bytes,
					      &q->err);
	if (r < 0)
		return worker_device_status(r);
	question.range = (struct gantry_range){ mem, 0, answer.bytes };
	r = d->device.backend->ask
		    ? d->device.backend->ask(d->device.dev, &question, q->answer, &q->err)
		    : -EOPNOTSUPP;
	if (r == sizeof(answer.address)) {
		memcpy(&answer.address, q->answer, sizeof(answer.address));
		pthread_mutex_lock(&s->lock);
		status = make_variable_locked(d, q, image, mem, answer.bytes, 0, &answer.handle);
		pthread_mutex_unlock(&s->lock);
	} else {
		status = worker_device_status(r);
	}
	if (status != GANTRY_OK) {
		d->device.backend->mem_free(mem);
		return status;
	}
	worker_answer_is(q, &answer, sizeof(answer));
	return GANTRY_OK;
}

/* ---- arrays and textures ---- */

/* The array that a texture is made of: only this thread lets go of it. */
static int find_array(const struct wdevice *d, const struct wquestion *q,
		      struct gantry_mem **ret_of)
{
	struct wsession *s = q->s;
	struct gantry_ledger_object *obj;
	int status = GANTRY_OK;

	*ret_of = NULL;
	if (q->texture.object == 0)
		return GANTRY_OK;
	pthread_mutex_lock(&s->lock);
	obj = worker_object_get(s, q->texture.object, GANTRY_HANDLE_BUFFER, NULL, 0);
	if (!obj)
		status = GANTRY_E_HANDLE;
	else if (obj->buffer.place != GANTRY_PLACE_IMAGE)
		status = GANTRY_E_ACCESS;
	else if (obj->buffer.device != d->index)
		status = GANTRY_E_NO_DEVICE;
	else
		*ret_of = s->objects[GANTRY_HANDLE_SLOT(q->texture.object)].variable;
	pthread_mutex_unlock(&s->lock);
	return status == GANTRY_OK && !*ret_of ? GANTRY_E_NOT_FOUND : status;
}

static int make_texture(struct wdevice *d, struct wquestion *q, uint64_t charged)
{
	struct gantry_reply_variable answer = { 0 };
	struct wsession *s = q->s;
	struct gantry_mem *of, *mem;
	int status = find_array(d, q, &of);
	uint64_t began_ns;
	int r;

	if (status != GANTRY_OK)
		return status;
	began_ns = gantry_now_ns();
	r = d->device.backend->texture_make(d->device.dev, q->texture.what, &q->spec, of, &mem,
					    &answer.bytes, &answer.address, &q->err);
	/* The device clears what has memory, with or without a turn of the session's. */
	if (charged)
		gantry_share_charge(d->page, s->share_slot, gantry_now_ns() - began_ns);
	if (r < 0)
		return worker_device_status(r);
	pthread_mutex_lock(&s->lock);
	status = make_variable_locked(d, q, NULL, mem, answer.bytes, charged, &answer.handle);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK) {
		d->device.backend->mem_free(mem);
		return status;
	}
	worker_answer_is(q, &answer, sizeof(answer));
	return GANTRY_OK;
}

bool worker_asks_of_tensor(const struct wquestion *q)
{
	return q->op == GANTRY_OP_texture && (q->texture.what == GANTRY_TEXTURE_TENSOR ||
					      q->texture.what == GANTRY_TEXTURE_TENSOR_REST);
}

/* Of numbers alone: nothing is made, and nothing is charged. */
static int answer_tensor(struct wdevice *d, struct wquestion *q)
{
	const struct gantry_question question = {
		.what = GANTRY_QUESTION_TENSOR,
		.number = { q->texture.what - GANTRY_TEXTURE_TENSOR },
		.tensor = &q->tensor,
	};
	int r;

	if (q->texture.object)
		return GANTRY_E_ARG;
	if (!d->device.backend->ask)
		return GANTRY_E_UNSUPPORTED;
	r = d->device.backend->ask(d->device.dev, &question, q->answer, &q->err);
	if (r < 0)
		return worker_device_status(r);
	q->nanswer = (uint32_t)r;
	return GANTRY_OK;
}

int worker_answer_texture(struct wdevice *d, struct wquestion *q)
{
	const struct gantry_backend *be = d->device.backend;
	uint64_t bytes = 0;
	int status, r;

	if (worker_asks_of_tensor(q))
		return answer_tensor(d, q);
	if (!be->texture_make)
		return GANTRY_E_UNSUPPORTED;
	r = be->texture_bytes(q->texture.what, &q->spec, &bytes);
	if (r < 0)
		return worker_device_status(r);
	status = worker_charge_resident(d, q->s, bytes);
	if (status != GANTRY_OK)
		return worker_memory_status(q->s, status);
	status = make_texture(d, q, bytes);
	if (status != GANTRY_OK)
		worker_refund_resident(q->s, d->index, bytes);
	return status;
}
