/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's question to a device, between the control queue (ask.c) and those who answer: answer.c, variable.c and range.c.
 *
 * Threads: the device's own has it from when it is put until it is finished; else who serves the control queue.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_QUESTION_H
#define GANTRY_HOST_AGENT_WORKER_QUESTION_H

#include "host-agent/worker/worker.h"

static_assert(GANTRY_ANSWER_BYTES == sizeof(((struct gantry_reply *)0)->data),
	      "answers fit replies");
static_assert(GANTRY_MAX_RAW_BYTES == GANTRY_MAX_ARGS_BYTES, "backends take what the wire has");

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

/* ---- answer.c ---- */
void worker_answer_is(struct wquestion *q, const void *data, uint32_t len);
/* Where there is no room, and memory is on its way back, that is worth to be waited for: AGAIN. */
int worker_memory_status(struct wsession *s, int status);
int worker_answer_ask(struct wdevice *d, struct wquestion *q);

/* ---- variable.c ---- */
int worker_answer_variable(struct wdevice *d, struct wquestion *q);
int worker_answer_texture(struct wdevice *d, struct wquestion *q);
/* It is of numbers alone: nothing is made for it. */
bool worker_asks_of_tensor(const struct wquestion *q);

#endif
