/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions of a guest to a device of its session: addresses of its memory, parameters and limits of its kernels, variables
 * of its images, arrays and textures. They are answered on the device's thread. Where that is the one that serves the control queue, at once;
 * else the operation is answered with AGAIN, and the guest puts the same one again, which takes the answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/str.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"

static_assert(GANTRY_ANSWER_BYTES == sizeof(((struct gantry_reply *)0)->data),
	      "answers fit replies");

static_assert(GANTRY_MAX_RAW_BYTES == GANTRY_MAX_ARGS_BYTES, "backends take what the wire has");

#define KEEP_NS GANTRY_NS_PER_S /* an answer for the guest that has not asked again yet */

struct wquestion {
	struct wsession *s;
	uint16_t op;
	union {
		struct gantry_op_ask ask;
		struct gantry_op_image_variable variable;
		struct gantry_op_texture texture;
		struct gantry_op_reserve reserve;
		struct gantry_op_map map;
	};
	union {
		char name[GANTRY_MAX_SYMBOL];	 /* of a variable */
		struct gantry_wire_texture spec; /* of a texture */
		struct gantry_wire_tensor tensor;
	};
	uint32_t finished; /* atomic; what follows is the device's thread's until then */
	uint64_t finished_ns;
	int status;
	struct gantry_err err;
	uint32_t nanswer;
	uint8_t answer[GANTRY_ANSWER_BYTES];
};

static void answer_is(struct wquestion *q, const void *data, uint32_t len)
{
	q->nanswer = len;
	memcpy(q->answer, data, len);
}

/* ---- on the device's thread: questions ---- */

static void uuid_of(const struct wdevice *d, const struct wsession *s, uint8_t ret_uuid[16])
{
	uint32_t number = worker_number_of(s, d->index);
	uint8_t hash[GANTRY_SHA256_BYTES];
	struct gantry_sha256 sha;

	/* Another tenant cannot tell that it has the same board, and the session's is the same as long as it lives. */
	gantry_sha256_init(&sha);
	gantry_sha256_add(&sha, "gantry", sizeof("gantry"));
	gantry_sha256_add(&sha, s->ledger.hdr->tenant, strnlen(s->ledger.hdr->tenant, 32));
	gantry_sha256_add(&sha, &number, sizeof(number));
	gantry_sha256_end(&sha, hash);
	memcpy(ret_uuid, hash, 16);
}

/* Memory of the device that the session may have. */
static uint64_t memory_of(const struct wdevice *d, const struct wsession *s)
{
	uint64_t mem = GANTRY_MIN(s->ledger.hdr->mem_bytes,
				  gantry_load_relaxed(&s->quota->mem_bytes));

	return GANTRY_MIN(mem, d->device.info.mem_bytes);
}

static int ask_device(const struct wdevice *d, struct wquestion *q)
{
	const struct gantry_device_info *info = &d->device.info;
	struct wsession *s = q->s;
	struct gantry_reply_device answer = {
		.kind = info->kind,
		.lanes = info->lanes,
		.mem_bytes = memory_of(d, s),
	};

	uuid_of(d, s, answer.uuid);
	(void)gantry_str_copy(answer.name, sizeof(answer.name), info->name); /* may be cut */
	(void)gantry_str_copy(answer.arch, sizeof(answer.arch), info->arch);
	answer_is(q, &answer, sizeof(answer));
	return GANTRY_OK;
}

int worker_device_status(int r)
{
	switch (r) {
	case -EINVAL:
		return GANTRY_E_ARG;
	case -EOPNOTSUPP:
		return GANTRY_E_UNSUPPORTED;
	case -ENOMEM:
		return GANTRY_E_NO_MEMORY;
	case -ENOENT:
		return GANTRY_E_NOT_FOUND;
	default:
		return GANTRY_E_INTERNAL;
	}
}

static int ask_backend(struct wdevice *d, struct wquestion *q, struct gantry_question *question)
{
	int r;

	if (!d->device.backend->ask)
		return GANTRY_E_UNSUPPORTED;
	/* As the guest has put them. */
	question->number[0] = q->ask.number0;
	question->number[1] = q->ask.number1;
	question->number[2] = q->ask.number2;
	r = d->device.backend->ask(d->device.dev, question, q->answer, &q->err);
	if (r < 0)
		return worker_device_status(r);
	q->nanswer = (uint32_t)r;
	return GANTRY_OK;
}

/* Memory that is on its way back is worth to be waited for. */
static int memory_status(struct wsession *s, int status)
{
	if (status != GANTRY_E_LIMIT && status != GANTRY_E_NO_MEMORY)
		return status;
	return worker_buffer_reap(s) || gantry_load_relaxed(&s->nwashing) ? GANTRY_E_AGAIN : status;
}

/* The home thread frees buffers and gives their places to others: not while this looks. */
static int find_address_locked(struct wdevice *d, struct wquestion *q,
			       struct gantry_question *question,
			       struct gantry_reply_address *answer)
{
	struct gantry_ledger_object *obj = worker_object_get(q->s, q->ask.object,
							     GANTRY_HANDLE_BUFFER, NULL, 0);

	if (!obj)
		return GANTRY_E_HANDLE;
	/* Others move. */
	if (obj->buffer.place != GANTRY_PLACE_HEAP && obj->buffer.place != GANTRY_PLACE_IMAGE &&
	    !(obj->buffer.alloc_flags & GANTRY_ALLOC_FIXED))
		return GANTRY_E_ACCESS;
	answer->bytes = obj->buffer.bytes;
	return worker_buffer_range_locked(d, q->s, obj, &question->range);
}

/* From now on its worker may be another, but not its address. Nothing is told that would not be kept. */
static int keep_address(struct wquestion *q, uint64_t address)
{
	struct gantry_ledger_object *obj;
	int status = GANTRY_OK;

	pthread_mutex_lock(&q->s->lock);
	obj = worker_object_get(q->s, q->ask.object, GANTRY_HANDLE_BUFFER, NULL, 0);
	if (!obj)
		status = GANTRY_E_HANDLE;
	else if (obj->buffer.place == GANTRY_PLACE_WINDOW)
		gantry_store_release(&obj->buffer.address, address);
	pthread_mutex_unlock(&q->s->lock);
	return status;
}

static int ask_address(struct wdevice *d, struct wquestion *q)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_ADDRESS };
	struct gantry_reply_address answer = { 0 };
	int status;

	pthread_mutex_lock(&q->s->lock);
	status = find_address_locked(d, q, &question, &answer);
	pthread_mutex_unlock(&q->s->lock);
	if (status == GANTRY_OK)
		status = ask_backend(d, q, &question);
	if (status != GANTRY_OK)
		return memory_status(q->s, status);
	memcpy(&answer.address, q->answer, sizeof(answer.address));
	status = keep_address(q, answer.address);
	if (status == GANTRY_OK)
		answer_is(q, &answer, sizeof(answer));
	return status;
}

static int ask_managed(struct wdevice *d, struct wquestion *q)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_MANAGED };
	struct gantry_ledger_object *obj;
	int status = GANTRY_OK;

	pthread_mutex_lock(&q->s->lock);
	obj = worker_object_get(q->s, q->ask.object, GANTRY_HANDLE_BUFFER, NULL, 0);
	if (!obj)
		status = GANTRY_E_HANDLE;
	else if (obj->buffer.place != GANTRY_PLACE_IMAGE)
		status = GANTRY_E_ACCESS;
	else
		status = worker_buffer_range_locked(d, q->s, obj, &question.range);
	pthread_mutex_unlock(&q->s->lock);
	return status == GANTRY_OK ? ask_backend(d, q, &question) : status;
}

static int ask_kernel(struct wdevice *d, struct wquestion *q, uint32_t what)
{
	struct gantry_question question = { .what = what };
	struct wsession *s = q->s;
	struct wkernel *k;
	int status;

	if (!worker_object_get(s, q->ask.object, GANTRY_HANDLE_KERNEL, NULL, 0))
		return GANTRY_E_HANDLE;
	k = gantry_load_acquire(&s->objects[GANTRY_HANDLE_SLOT(q->ask.object)].kernel[0]);
	if (!k || !k->image || !k->sig.is_raw)
		return GANTRY_E_NO_KERNEL;
	status = worker_image_kernel_on(d, k, &question.kernel, &q->err);
	return status == GANTRY_OK ? ask_backend(d, q, &question) : status;
}

static int ask_granule(const struct wdevice *d, struct wquestion *q)
{
	uint64_t bytes = d->device.info.slab_align;

	if (!worker_has_ranges(d, q->s))
		return GANTRY_E_UNSUPPORTED;
	answer_is(q, &bytes, sizeof(bytes));
	return GANTRY_OK;
}

/* The device's is the greatest that one of its sessions has asked for: what one wants does not take from another's. */
static int ask_limit(struct wdevice *d, struct wquestion *q)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_LIMIT,
					    .mem_bytes = memory_of(d, q->s) };
	uint64_t which = q->ask.number0;
	int status;

	if (which >= GANTRY_QUESTION_LIMITS)
		return GANTRY_E_UNSUPPORTED;
	for (uint32_t i = 0; i < d->nsessions; i++)
		if (d->sessions[i] != q->s)
			question.at_least = GANTRY_MAX(question.at_least,
						       d->sessions[i]->limits[d->index][which]);
	status = ask_backend(d, q, &question);
	if (status == GANTRY_OK)
		q->s->limits[d->index][which] = q->ask.number1;
	return status;
}

static int answer_ask(struct wdevice *d, struct wquestion *q)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_ATTRIBUTES };

	switch (q->ask.what) {
	case GANTRY_ASK_DEVICE:
		return ask_device(d, q);
	case GANTRY_ASK_ATTRIBUTES:
		return ask_backend(d, q, &question);
	case GANTRY_ASK_ADDRESS:
		return ask_address(d, q);
	case GANTRY_ASK_KERNEL:
		return ask_kernel(d, q, GANTRY_QUESTION_KERNEL);
	case GANTRY_ASK_PARAMS:
		return ask_kernel(d, q, GANTRY_QUESTION_PARAMS);
	case GANTRY_ASK_OCCUPANCY:
		return ask_kernel(d, q, GANTRY_QUESTION_OCCUPANCY);
	case GANTRY_ASK_CLUSTERS:
		return ask_kernel(d, q, GANTRY_QUESTION_CLUSTERS);
	case GANTRY_ASK_LIMIT:
		return ask_limit(d, q);
	case GANTRY_ASK_SET:
		return ask_kernel(d, q, GANTRY_QUESTION_SET);
	case GANTRY_ASK_MANAGED:
		return ask_managed(d, q);
	case GANTRY_ASK_GRANULE:
		return ask_granule(d, q);
	default:
		return GANTRY_E_ARG;
	}
}

/* ---- on the device's thread: variables ---- */

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

static int answer_variable(struct wdevice *d, struct wquestion *q)
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
	answer_is(q, &answer, sizeof(answer));
	return GANTRY_OK;
}

/* ---- on the device's thread: arrays and textures ---- */

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
	answer_is(q, &answer, sizeof(answer));
	return GANTRY_OK;
}

static bool is_tensor(const struct wquestion *q)
{
	return q->op == GANTRY_OP_texture && q->texture.what >= GANTRY_TEXTURE_TENSOR;
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

static int answer_texture(struct wdevice *d, struct wquestion *q)
{
	const struct gantry_backend *be = d->device.backend;
	uint64_t bytes = 0;
	int status, r;

	if (is_tensor(q))
		return answer_tensor(d, q);
	if (!be->texture_make)
		return GANTRY_E_UNSUPPORTED;
	r = be->texture_bytes(q->texture.what, &q->spec, &bytes);
	if (r < 0)
		return worker_device_status(r);
	status = worker_charge_resident(d, q->s, bytes);
	if (status != GANTRY_OK)
		return memory_status(q->s, status);
	status = make_texture(d, q, bytes);
	if (status != GANTRY_OK)
		worker_refund_resident(q->s, d->index, bytes);
	return status;
}

/* ---- from the control queue to the thread and back ---- */

static int answer_reserve(struct wdevice *d, struct wquestion *q)
{
	struct gantry_reply_variable made;
	int status = worker_range_make(d, q->s, &q->reserve, &made, &q->err);

	if (status == GANTRY_OK)
		answer_is(q, &made, sizeof(made));
	return status;
}

static int answer_any(struct wdevice *d, struct wquestion *q)
{
	switch (q->op) {
	case GANTRY_OP_image_variable:
		return answer_variable(d, q);
	case GANTRY_OP_texture:
		return answer_texture(d, q);
	case GANTRY_OP_reserve:
		return answer_reserve(d, q);
	case GANTRY_OP_map:
		return worker_range_map(d, q->s, &q->map, &q->err);
	default:
		return answer_ask(d, q);
	}
}

/* What the driver does there may take long, with or without a turn of the session's. */
static bool takes_device(const struct wquestion *q)
{
	return q->op == GANTRY_OP_reserve || q->op == GANTRY_OP_map ||
	       (q->op == GANTRY_OP_ask && q->ask.what == GANTRY_ASK_LIMIT);
}

static void answer(struct wdevice *d, struct wquestion *q)
{
	uint64_t began_ns = gantry_now_ns();

	q->status = q->s->joined[d->index] ? answer_any(d, q) : GANTRY_E_AGAIN;
	q->finished_ns = gantry_now_ns();
	if (takes_device(q))
		gantry_share_charge(d->page, q->s->share_slot, q->finished_ns - began_ns);
	/* Release: pairs with the acquire in look(). */
	gantry_store_release(&q->finished, 1u);
}

static void answer_posted(struct wdevice *d, void *arg)
{
	struct wquestion *q = arg;
	struct wsession *s = q->s;

	answer(d, q);
	worker_session_leave(s);
}

static bool makes_buffer(const struct wquestion *q)
{
	return q->op == GANTRY_OP_image_variable || q->op == GANTRY_OP_reserve ||
	       (q->op == GANTRY_OP_texture && !is_tensor(q));
}

/* Of the operation that is answered with it, which is not always the one that began it. */
static void tell_variable(const struct wquestion *q, uint64_t made_by)
{
	struct wsession *s = q->s;
	struct gantry_reply_variable made;
	struct gantry_ledger_object *obj;

	memcpy(&made, q->answer, sizeof(made));
	pthread_mutex_lock(&s->lock);
	obj = worker_object_get(s, made.handle, GANTRY_HANDLE_BUFFER, NULL, 0);
	if (obj)
		obj->made_by = made_by;
	pthread_mutex_unlock(&s->lock);
}

static int take(struct wquestion *q, uint64_t made_by, struct gantry_reply *reply)
{
	int status = q->status;

	if (status == GANTRY_OK && makes_buffer(q))
		tell_variable(q, made_by);
	if (status == GANTRY_OK) {
		reply->len_bytes = q->nanswer;
		memcpy(reply->data, q->answer, q->nanswer);
	} else if (q->err.text[0]) {
		(void)gantry_str_copy(reply->text, sizeof(reply->text),
				      q->err.text); /* may be cut */
	}
	return status;
}

static bool is_same(const struct wquestion *a, const struct wquestion *b)
{
	if (a->op != b->op)
		return false;
	if (a->op == GANTRY_OP_ask)
		return memcmp(&a->ask, &b->ask, sizeof(a->ask)) == 0;
	if (a->op == GANTRY_OP_reserve)
		return memcmp(&a->reserve, &b->reserve, sizeof(a->reserve)) == 0;
	if (a->op == GANTRY_OP_map)
		return memcmp(&a->map, &b->map, sizeof(a->map)) == 0;
	if (a->op == GANTRY_OP_texture)
		return memcmp(&a->texture, &b->texture, sizeof(a->texture)) == 0 &&
		       memcmp(&a->spec, &b->spec, sizeof(a->spec)) == 0;
	return strcmp(a->name, b->name) == 0 &&
	       memcmp(&a->variable, &b->variable, sizeof(a->variable)) == 0;
}

/* An answer that nobody came for; a variable in it ends. */
static void drop(struct wquestion *q)
{
	struct gantry_reply_variable made;

	if (q && makes_buffer(q) && q->finished && q->status == GANTRY_OK) {
		memcpy(&made, q->answer, sizeof(made));
		(void)worker_buffer_free(q->s, made.handle); /* or with the session */
	}
	free(q);
}

static int ask(struct wdevice *home, struct wsession *s, uint32_t device, struct wquestion *now,
	       uint64_t made_by, struct gantry_reply *reply)
{
	struct wquestion *before = s->question;
	struct wdevice *d;

	device = worker_device_numbered(s, device);
	if (device >= s->engine->ndevices || !(s->device_mask >> device & 1))
		return GANTRY_E_NO_DEVICE;
	d = s->engine->devices[device];
	if (!d->usable)
		return GANTRY_E_DEVICE_LOST;
	now->s = s;
	if (d == home && !d->runs_here) {
		answer(d, now);
		return take(now, made_by, reply);
	}
	if (before && !gantry_load_acquire(&before->finished))
		return GANTRY_E_AGAIN;
	if (before && is_same(before, now)) {
		int status = take(before, made_by, reply);

		s->question = NULL;
		free(before);
		return status;
	}
	if (before && gantry_now_ns() - before->finished_ns < KEEP_NS)
		return GANTRY_E_AGAIN;
	drop(before);
	s->question = malloc(sizeof(*now));
	if (!s->question)
		return GANTRY_E_NO_MEMORY;
	*s->question = *now;
	worker_session_hold(s);
	if (worker_device_post(d, answer_posted, s->question) < 0) {
		worker_session_leave(s); /* never the last: the caller holds it */
		free(s->question);
		s->question = NULL;
		return GANTRY_E_NO_MEMORY;
	}
	return GANTRY_E_AGAIN;
}

int worker_ask(struct wdevice *home, struct wsession *s, const struct gantry_op_ask *op,
	       struct gantry_reply *reply)
{
	struct wquestion q = { .op = GANTRY_OP_ask };

	q.ask = *op;
	return ask(home, s, op->device, &q, 0, reply);
}

int worker_ask_variable(struct wdevice *home, struct wsession *s,
			const struct gantry_op_image_variable *op, const char *name,
			uint64_t made_by, struct gantry_reply *reply)
{
	struct wquestion q = { .op = GANTRY_OP_image_variable };

	q.variable = *op;
	(void)gantry_str_copy(q.name, sizeof(q.name), name); /* it fits: the decoder saw to that */
	return ask(home, s, op->device, &q, made_by, reply);
}

int worker_ask_texture(struct wdevice *home, struct wsession *s, const struct gantry_op_texture *op,
		       const uint8_t *spec, uint64_t made_by, struct gantry_reply *reply)
{
	struct wquestion q = { .op = GANTRY_OP_texture };

	q.texture = *op;
	memcpy(&q.spec, spec, sizeof(q.spec));
	return ask(home, s, op->device, &q, made_by, reply);
}

int worker_ask_reserve(struct wdevice *home, struct wsession *s, const struct gantry_op_reserve *op,
		       uint64_t made_by, struct gantry_reply *reply)
{
	struct wquestion q = { .op = GANTRY_OP_reserve };

	q.reserve = *op;
	return ask(home, s, op->device, &q, made_by, reply);
}

int worker_ask_map(struct wdevice *home, struct wsession *s, const struct gantry_op_map *op,
		   struct gantry_reply *reply)
{
	struct wquestion q = { .op = GANTRY_OP_map };

	q.map = *op;
	return ask(home, s, op->device, &q, 0, reply);
}

void worker_ask_release(struct wsession *s)
{
	free(s->question); /* finished: an unfinished one holds the session */
	s->question = NULL;
}
