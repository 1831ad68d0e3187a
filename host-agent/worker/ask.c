/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions of a guest to a device of its session: addresses of its memory, parameters and limits of its kernels, variables
 * of its images, arrays and textures. They are answered on the device's thread (answer.c, variable.c, range.c). Where that is the one that
 * serves the control queue, at once; else the operation is answered with AGAIN, and the guest puts the same one again, which takes the answer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/str.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/question.h"

#define KEEP_NS GANTRY_NS_PER_S /* an answer for the guest that has not asked again yet */

/* ---- on the device's thread ---- */

static int answer_reserve(struct wdevice *d, struct wquestion *q)
{
	struct gantry_reply_variable made;
	int status = worker_range_make(d, q->s, &q->reserve, &made, &q->err);

	if (status == GANTRY_OK)
		worker_answer_is(q, &made, sizeof(made));
	return status;
}

static int answer_any(struct wdevice *d, struct wquestion *q)
{
	switch (q->op) {
	case GANTRY_OP_image_variable:
		return worker_answer_variable(d, q);
	case GANTRY_OP_texture:
		return worker_answer_texture(d, q);
	case GANTRY_OP_reserve:
		return answer_reserve(d, q);
	case GANTRY_OP_map:
		return worker_range_map(d, q->s, &q->map, &q->err);
	default:
		return worker_answer_ask(d, q);
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
	/* Release: pairs with the acquire in ask(). */
	gantry_store_release(&q->finished, 1u);
}

static void answer_posted(struct wdevice *d, void *arg)
{
	struct wquestion *q = arg;
	struct wsession *s = q->s;

	answer(d, q);
	worker_session_leave(s);
}

/* ---- from the control queue to the thread and back ---- */

static bool makes_buffer(const struct wquestion *q)
{
	return q->op == GANTRY_OP_image_variable || q->op == GANTRY_OP_reserve ||
	       (q->op == GANTRY_OP_texture && !worker_asks_of_tensor(q));
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
