/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about a session's memory tell each other: object.c (handles), slab.c (offsets and host memory),
 * charge.c, buffer.c, share.c. The rest of the worker needs worker.h only.
 *
 * Functions named _locked want session->lock held; the others take it themselves where they need it.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_MEMORY_H
#define GANTRY_HOST_AGENT_WORKER_MEMORY_H

#include "host-agent/worker/worker.h"

static inline uint64_t worker_page_up(uint64_t bytes)
{
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

static inline bool worker_is_buffer(const struct gantry_ledger_object *obj)
{
	return obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_BUFFER;
}

/* ---- slab.c ---- */
/* The pages of [off, off + len) go back to the kernel, which clears them before anyone sees them again. */
void worker_scrub_host(struct wsession *s, uint64_t off, uint64_t len);
/* Whole pages of the slab space. -ENOMEM: no such range is free. */
int worker_slab_take_locked(struct wsession *s, uint64_t len, uint64_t *ret_off);
void worker_slab_put_locked(struct wsession *s, uint64_t off, uint64_t len);

/* ---- charge.c ---- */
void worker_deny(struct wsession *s);
/* Resident memory: the session's own limit, the tenant's, then the device's pool. LIMIT or NO_MEMORY. */
int worker_charge_resident(struct wdevice *d, struct wsession *s, uint64_t bytes);
void worker_refund_resident(struct wsession *s, uint32_t device, uint64_t bytes);
/* A buffer that moves to another device takes its charge along; the memory itself stays where it is. */
int worker_charge_move(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b);

/* ---- buffer.c ---- */
/* First use: charge, then back. */
int worker_back_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj);

/* ---- share.c ---- */
uint64_t worker_share_id(const struct wsession *s, uint32_t slot);
/* Memory of its own for the buffer in @slot: @fd, which becomes its, or new where that is negative. A status. */
int worker_shared_make(struct wsession *s, uint32_t slot, uint64_t bytes, int fd);
int worker_shared_back(struct wsession *s, const struct gantry_ledger_object *obj, uint64_t len);
void worker_shared_close(struct wsession *s, struct wobject *rt);
/* Another handle to the same memory: it was adopted more than once. */
bool worker_shared_elsewhere(const struct wsession *s, uint32_t slot);
int worker_shared_mem(struct wdevice *d, struct wsession *s, const struct gantry_ledger_object *obj,
		      struct gantry_mem **ret_mem);

#endif
