/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes of a tenant have of each other: ipc.c memory, ipc_event.c events. Below both are buffers of device memory under tokens
 * of the agent's, which nobody can guess. Under the lock; errors as the Driver API documents them.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_IPC_H
#define GANTRY_GUEST_SHIM_CUDA_IPC_H

#include "guest-shim/cuda/core.h"

/* A buffer of another process, here. */
struct cu_opened {
	struct cu_opened *next;
	uint8_t token[GANTRY_DOOR_TOKEN];
	gantry_buffer buffer;
	struct cu_device *dev;
	CUdeviceptr address;
	uint64_t bytes;
	uint32_t nusers;
};

/* The token of a buffer of this process; the same each time. */
CUresult cu_ipc_export_locked(gantry_buffer buffer, uint8_t ret_token[GANTRY_DOOR_TOKEN]);
/*
 * The buffer of that token, for one more user. INVALID_HANDLE: there is none, or not for this tenant; INVALID_CONTEXT: it is this process's
 * own; MAP_FAILED: the program has other memory there.
 */
CUresult cu_ipc_take_locked(uint32_t device, const uint8_t token[GANTRY_DOOR_TOKEN],
			    struct cu_opened **ret_opened);
void cu_ipc_put_locked(struct cu_opened *opened);
/* Whether its maker is still there. Asks the agent. */
bool cu_ipc_is_alive(const uint8_t token[GANTRY_DOOR_TOKEN]);

/* ---- ipc_event.c: events of CU_EVENT_INTERPROCESS ---- */
CUresult cu_shared_event_new_locked(struct CUctx_st *ctx, struct CUevent_st *event);
void cu_shared_event_end_locked(struct CUevent_st *event);
/* In place of cu_event_record_locked(), for one that this process has made; another's is not recorded here. */
CUresult cu_shared_event_record_locked(struct CUevent_st *event, struct CUstream_st *stream);
/* Of another process's: gives the lock up and waits until what it was recorded behind by now has finished; or asks: NOT_READY. */
CUresult cu_shared_event_wait_locked(struct CUevent_st *event);
CUresult cu_shared_event_query_locked(const struct CUevent_st *event);

#endif
