/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drop-in libraries need of a session beyond gantry.h: device addresses, kernels whose parameters nobody describes,
 * questions to a device, its clock, and tasks that wait for a word of the guest's. Not exported.
 *
 * Devices are numbered as the session's: GANTRY_ASK_DEVICE until it says NO_DEVICE. A kernel with the signature "raw"
 * (gantry_kernel_from()) takes its parameters' bytes as its image lays them out, which GANTRY_ASK_PARAMS tells.
 *
 * Threads: any. Returns: as gantry.h. Blocking: questions wait for the host, at most the session's call timeout.
 */
#ifndef GANTRY_GUEST_SHIM_DEVICE_H
#define GANTRY_GUEST_SHIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "guest-shim/gantry.h"
#include "proto/door.h"
#include "proto/wire.h"

#define GANTRY_RAW "raw"

/*
 * With GANTRY_ALLOC_HOST: it is host memory also where no memory is shared with the host; what is written and read there goes to it. Not on
 * the wire.
 */
#define GANTRY_ALLOC_KEPT (1u << 31)

struct gantry_ask_numbers {
	uint64_t number[3];
};

/*
 * @what of enum gantry_ask, of @object (0: none). At most @cap bytes of the reply go to @ret_answer; returns how many
 * there are. NO_DEVICE, HANDLE, ARG, UNSUPPORTED; LIMIT, NO_MEMORY of an address.
 */
int gantry_device_ask(struct gantry_session *s, enum gantry_ask what, uint32_t device,
		      uint64_t object, struct gantry_ask_numbers numbers, void *ret_answer,
		      size_t cap);

/*
 * A variable of an image on a device, as a buffer: the caller frees it. NOT_FOUND: the image has no such symbol.
 */
int gantry_image_variable(struct gantry_session *s, gantry_image image, uint32_t device,
			  const char *symbol, struct gantry_reply_variable *ret_variable);

/*
 * An array of a device, or what kernels see memory through, as @spec has it: a buffer, which the caller frees. @of: the array that it is
 * made of, or 0. UNSUPPORTED: the device, or an older host, has none such; LIMIT, NO_MEMORY; TIMEOUT: there may be room later.
 */
int gantry_device_texture(struct gantry_session *s, uint32_t device, enum gantry_texture_what what,
			  gantry_buffer of, const struct gantry_wire_texture *spec,
			  struct gantry_reply_variable *ret_made);

/*
 * What kernels of a device copy parts of a tensor with: GANTRY_TENSOR_PARTS of GANTRY_TENSOR_PART_BYTES each, as the device's driver has it. ARG: there
 * can be no such tensor; UNSUPPORTED: the device, or an older host, has none such.
 */
int gantry_device_tensor(struct gantry_session *s, uint32_t device,
			 const struct gantry_wire_tensor *tensor, void *ret_bytes);

/*
 * Addresses of a device with nothing behind them, as a buffer that the caller frees: whole granules (GANTRY_ASK_GRANULE), from a multiple of
 * @align on (a power of two), at @address if that is free. UNSUPPORTED: the device, or an older host, has none such; LIMIT, NO_MEMORY.
 */
int gantry_device_range(struct gantry_session *s, uint32_t device, uint64_t bytes, uint64_t align,
			uint64_t address, struct gantry_reply_variable *ret_range);
/*
 * What lies in a range, as @op has it: memory of GANTRY_ALLOC_WHOLE that has been asked for its address. Nothing that is unmapped is in use.
 * ACCESS: the buffer is mapped elsewhere, or something else is there.
 */
int gantry_device_map(struct gantry_session *s, const struct gantry_op_map *op);

/* When all before it has finished, the device's clock goes to the 8 aligned bytes at @heap_off of the heap: nanoseconds from some moment. */
int gantry_submit_stamp(struct gantry_session *session, gantry_queue queue, uint64_t heap_off,
			gantry_ticket *ret_ticket);

/*
 * Between a buffer and @heap_off of the heap, in the order of the queue: where no memory is shared, what goes from and to the program. The
 * range is left alone until the task has finished.
 */
int gantry_submit_transfer(struct gantry_session *session, gantry_queue queue, bool is_write,
			   gantry_buffer buffer, uint64_t off, uint64_t heap_off, uint64_t bytes,
			   gantry_ticket *ret_ticket);

/*
 * What follows in the queue waits until the 8 aligned bytes at @heap_off of the heap hold @value or more, which this process writes with
 * gantry_await_end().
 */
int gantry_submit_await(struct gantry_session *session, gantry_queue queue, uint64_t heap_off,
			uint64_t value, gantry_ticket *ret_ticket);
/* Writes @value and tells the host, by a task in @other: any queue whose tasks are not behind such a wait. */
int gantry_await_end(struct gantry_session *session, gantry_queue other, uint64_t heap_off,
		     uint64_t value);
/* After AGAIN of that, without writing the word once more: who waited for it may have seen it, and the word be another's by now. */
int gantry_await_again(struct gantry_session *session, gantry_queue other, uint64_t heap_off);

/*
 * A token for a buffer, device memory with an address (GANTRY_ALLOC_FIXED) too: the tenant's other sessions may show it to have that as a
 * buffer of theirs, freed as any. UNSUPPORTED: neither such memory nor shared. And: NOT_FOUND: no such token, or what it was for is gone.
 * Both wait for the agent.
 */
int gantry_device_share(struct gantry_session *session, gantry_buffer buffer, int mode,
			uint8_t ret_token[GANTRY_DOOR_TOKEN]);
int gantry_device_adopt(struct gantry_session *session, const uint8_t token[GANTRY_DOOR_TOKEN],
			gantry_buffer *ret_buffer, uint64_t *ret_bytes);

/*
 * Tells the agent that the program has called @name, which there is not, @calls times by now: for the administrator's eyes, and
 * nothing comes of it. Waits for the agent, at most the call timeout. UNSUPPORTED: an older agent, or a stream; LIMIT: it keeps no more names.
 */
int gantry_session_missing(struct gantry_session *session, const char *name, uint64_t calls);

#endif
