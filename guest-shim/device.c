/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/str.h"
#include "guest-shim/control.h"
#include "guest-shim/error.h"
#include "guest-shim/memory.h"

int gantry_device_ask(struct gantry_session *s, enum gantry_ask what, uint32_t device,
		      uint64_t object, struct gantry_ask_numbers numbers, void *ret_answer,
		      size_t cap)
{
	const struct gantry_op_ask op = {
		what, device, object, numbers.number[0], numbers.number[1], numbers.number[2]
	};
	struct gantry_reply reply;
	struct gantry_desc desc;
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	gantry_desc_put_ask(&desc, &op);
	r = gantry_control_call(s, &desc, NULL, 0, gantry_session_deadline(s), &reply);
	if (r < 0)
		return r;
	cap = GANTRY_MIN(cap, (size_t)reply.len_bytes);
	if (cap > 0)
		memcpy(ret_answer, reply.data, cap);
	return (int)reply.len_bytes;
}

/* Calls for a buffer that is on a device only. */
static int call_for_buffer(struct gantry_session *s, const struct gantry_desc *desc,
			   const void *var, uint32_t var_bytes,
			   struct gantry_reply_variable *ret_made)
{
	struct gantry_buffer_info *info = calloc(1, sizeof(*info));
	struct gantry_reply_variable made;
	struct gantry_reply reply;
	int r;

	if (!info)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	r = gantry_control_call(s, desc, var, var_bytes, gantry_session_deadline(s), &reply);
	if (r == 0) {
		memcpy(&made, reply.data, sizeof(made));
		if (reply.len_bytes < sizeof(made) ||
		    GANTRY_HANDLE_TYPE(made.handle) != GANTRY_HANDLE_BUFFER || made.bytes == 0)
			r = gantry_control_bad_reply(s, "a buffer that is none");
	}
	if (r == 0) {
		info->handle = made.handle;
		info->bytes = made.bytes;
		info->flags = GANTRY_ALLOC_DEVICE;
		r = gantry_memory_add(s, info);
	}
	if (r < 0) {
		free(info);
		return r;
	}
	*ret_made = made;
	return 0;
}

int gantry_device_texture(struct gantry_session *s, uint32_t device, enum gantry_texture_what what,
			  gantry_buffer of, const struct gantry_wire_texture *spec,
			  struct gantry_reply_variable *ret_made)
{
	const struct gantry_op_texture op = { .device = device, .what = what, .object = of };
	struct gantry_desc desc;
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	gantry_desc_put_texture(&desc, &op);
	return call_for_buffer(s, &desc, spec, sizeof(*spec), ret_made);
}

int gantry_device_tensor(struct gantry_session *s, uint32_t device,
			 const struct gantry_wire_tensor *tensor, void *ret_bytes)
{
	uint8_t bytes[GANTRY_TENSOR_PARTS * GANTRY_TENSOR_PART_BYTES];
	int r = gantry_session_enter(s);

	for (uint32_t i = 0; i < GANTRY_TENSOR_PARTS && r == 0; i++) {
		const struct gantry_op_texture op = { .device = device,
						      .what = GANTRY_TEXTURE_TENSOR + i };
		struct gantry_reply reply;
		struct gantry_desc desc;

		gantry_desc_put_texture(&desc, &op);
		r = gantry_control_call(s, &desc, tensor, sizeof(*tensor),
					gantry_session_deadline(s), &reply);
		if (r == 0 && reply.len_bytes != GANTRY_TENSOR_PART_BYTES)
			r = gantry_control_bad_reply(s, "a descriptor of another length");
		if (r == 0)
			memcpy(bytes + i * GANTRY_TENSOR_PART_BYTES, reply.data,
			       GANTRY_TENSOR_PART_BYTES);
	}
	if (r == 0)
		memcpy(ret_bytes, bytes, sizeof(bytes));
	return r;
}

int gantry_device_range(struct gantry_session *s, uint32_t device, uint64_t bytes, uint64_t align,
			uint64_t address, struct gantry_reply_variable *ret_range)
{
	const struct gantry_op_reserve op = {
		.device = device, .bytes = bytes, .align = align, .address = address
	};
	struct gantry_desc desc;
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	gantry_desc_put_reserve(&desc, &op);
	return call_for_buffer(s, &desc, NULL, 0, ret_range);
}

int gantry_device_map(struct gantry_session *s, const struct gantry_op_map *op)
{
	struct gantry_reply reply;
	struct gantry_desc desc;
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	gantry_desc_put_map(&desc, op);
	return gantry_control_call(s, &desc, NULL, 0, gantry_session_deadline(s), &reply);
}

int gantry_image_variable(struct gantry_session *s, gantry_image image, uint32_t device,
			  const char *symbol, struct gantry_reply_variable *ret_variable)
{
	struct gantry_op_image_variable op = { .image = image, .device = device };
	struct gantry_desc desc;
	size_t len = strnlen(symbol, GANTRY_MAX_SYMBOL);
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	if (len == 0 || len == GANTRY_MAX_SYMBOL)
		return gantry_fail(GANTRY_E_ARG, "a symbol has 1 to %u characters",
				   GANTRY_MAX_SYMBOL - 1);
	op.name_bytes = (uint16_t)(len + 1);
	gantry_desc_put_image_variable(&desc, &op);
	return call_for_buffer(s, &desc, symbol, op.name_bytes, ret_variable);
}

int gantry_session_missing(struct gantry_session *session, const char *name, uint64_t calls)
{
	struct gantry_door_missing msg = { .calls = calls };
	struct gantry_door_noted answer;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!session->takes_notes)
		return gantry_fail_plain(GANTRY_E_UNSUPPORTED);
	(void)gantry_str_copy(msg.name, sizeof(msg.name), name); /* may be cut */
	gantry_door_header_init(&msg.h, GANTRY_DOOR_MISSING, 0);
	r = gantry_session_request(session, &msg, GANTRY_DOOR_NOTED, &answer);
	return r < 0 ? r : answer.status < 0 ? gantry_fail_plain(answer.status) : 0;
}
