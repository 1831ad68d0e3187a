/* SPDX-License-Identifier: Apache-2.0 */
/* The session's table of buffers, with its lock. Threads: any. Blocking: never. */
#ifndef GANTRY_GUEST_SHIM_MEMORY_H
#define GANTRY_GUEST_SHIM_MEMORY_H

#include "guest-shim/buffers.h"
#include "guest-shim/session.h"

/* Takes @info over on success. PROTOCOL: the host gave a handle that is in use; NO_MEMORY. */
int gantry_memory_add(struct gantry_session *s, struct gantry_buffer_info *info);

/* A copy of what is known of it, good as long as nobody frees the buffer. HANDLE. */
int gantry_memory_find(struct gantry_session *s, gantry_buffer buffer,
		       struct gantry_buffer_info *ret_info);

#endif
