/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a device to questions of a guest that make nothing: of itself, of memory and of kernels. Device thread. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/str.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/question.h"

void worker_answer_is(struct wquestion *q, const void *data, uint32_t len)
{
	q->nanswer = len;
	memcpy(q->answer, data, len);
}

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
	worker_answer_is(q, &answer, sizeof(answer));
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

int worker_memory_status(struct wsession *s, int status)
{
	if (status != GANTRY_E_LIMIT && status != GANTRY_E_NO_MEMORY)
		return status;
	return worker_buffer_reap(s) || gantry_load_relaxed(&s->nwashing) ? GANTRY_E_AGAIN : status;
}

/* Whoever serves the control queue frees buffers and gives their places to others: not while this looks. */
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
		return worker_memory_status(q->s, status);
	memcpy(&answer.address, q->answer, sizeof(answer.address));
	status = keep_address(q, answer.address);
	if (status == GANTRY_OK)
		worker_answer_is(q, &answer, sizeof(answer));
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
	if (status == GANTRY_OK)
		status = ask_backend(d, q, &question);
	if (status == GANTRY_OK && what == GANTRY_QUESTION_SET)
		worker_setting_note(d, k, q->ask.number0, q->ask.number1);
	return status;
}

static int ask_granule(const struct wdevice *d, struct wquestion *q)
{
	uint64_t bytes = d->device.info.slab_align;

	if (!worker_has_ranges(d, q->s))
		return GANTRY_E_UNSUPPORTED;
	worker_answer_is(q, &bytes, sizeof(bytes));
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

int worker_answer_ask(struct wdevice *d, struct wquestion *q)
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
