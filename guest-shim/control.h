/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the control queue: each waits for its reply.
 *
 * Threads: any; one operation at a time holds the control queue. Blocking: until the deadline.
 */
#ifndef GANTRY_GUEST_SHIM_CONTROL_H
#define GANTRY_GUEST_SHIM_CONTROL_H

#include <stdint.h>

#include "guest-shim/buffers.h"
#include "guest-shim/session.h"
#include "proto/codec.h"

/*
 * Puts @desc, with @var_bytes of variable part (NULL, 0: none), and waits for the reply. 0 and
 * *@ret_reply, or the reply's status with its sentence; TIMEOUT; or why the session ended. AGAIN is
 * tried again here. After a TIMEOUT the host may still carry the operation out.
 */
int gantry_control_call(struct gantry_session *s, const struct gantry_desc *desc, const void *var,
			uint32_t var_bytes, uint64_t deadline_ns, struct gantry_reply *ret_reply);

/* The same for replies that are a handle of @type. PROTOCOL: it is none, which ends the session. */
int gantry_control_call_handle(struct gantry_session *s, const struct gantry_desc *desc,
			       const void *var, uint32_t var_bytes, enum gantry_handle_type type,
			       uint64_t deadline_ns, uint64_t *ret_handle);

/*
 * Tells the host that a buffer has ended; takes @info over. Never waits: if the control queue is
 * busy, whoever has it does the telling, always before the next control operation.
 */
void gantry_control_free_buffer(struct gantry_session *s, struct gantry_buffer_info *info);

/* For a host that sent what cannot be: ends the session. */
int gantry_control_bad_reply(struct gantry_session *s, const char *what);

#endif
