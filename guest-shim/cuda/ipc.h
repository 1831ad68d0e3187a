/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes of a tenant have of each other: ipc.c memory, ipc_event.c events, ipc_page.c words. Below all are buffers of device memory under tokens
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

/* ---- ipc_page.c: words in device memory ---- */
#define CU_PAGE_BYTES  (64u << 10)
#define CU_SLOT_LATEST 8u
#define CU_PAGE_SLOTS  (CU_PAGE_BYTES / sizeof(struct cu_slot))

/* One is an event's, or an allocation's. */
struct cu_slot {
	uint32_t recorded;
	uint32_t reserved[5];
	uint64_t alloc;		       /* id of the allocation, while it is there; 0 */
	uint32_t done[CU_SLOT_LATEST]; /* [n % CU_SLOT_LATEST]: record n has been reached */
};
static_assert(sizeof(struct cu_slot) == 64, "slots fill a page");

/* Of this process. It stays. */
struct cu_page {
	struct cu_page *next;
	gantry_buffer buffer;
	uint32_t device;
	bool is_taken[CU_PAGE_SLOTS];
	uint32_t recorded[CU_PAGE_SLOTS]; /* goes on where a slot has another event */
	gantry_ticket
		tickets[CU_PAGE_SLOTS]
		       [CU_SLOT_LATEST]; /* and so does the order of those that share a word */
};

uint64_t cu_slot_off(uint32_t index);
CUresult cu_slot_take_locked(const struct cu_device *dev, struct cu_page **ret_page,
			     uint32_t *ret_index);
void cu_slot_put_locked(struct cu_page *page, uint32_t index);
/* The first @bytes of what lies at @off of a page, this process's or another's: there or back, when that has happened. A status. */
int cu_slot_move(uint32_t device, gantry_buffer buffer, uint64_t off, void *words, size_t bytes,
		 bool to_device);

/* ---- ipc_event.c: events of CU_EVENT_INTERPROCESS ---- */
CUresult cu_shared_event_new_locked(struct CUctx_st *ctx, struct CUevent_st *event);
void cu_shared_event_end_locked(struct CUevent_st *event);
/* In place of cu_event_record_locked(), for one that this process has made; another's is not recorded here. */
CUresult cu_shared_event_record_locked(struct CUevent_st *event, struct CUstream_st *stream);
/* Of another process's: gives the lock up and waits until what it was recorded behind by now has finished; or asks: NOT_READY. */
CUresult cu_shared_event_wait_locked(struct CUevent_st *event);
CUresult cu_shared_event_query_locked(const struct CUevent_st *event);

#endif
