/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of a session: the handle table in the ledger.
 *
 * A freed buffer is DYING, its handle stale for tasks put after the free, until every queue has finished what it had
 * been given by then. Dying buffers carry that snapshot (wobject.tails).
 */
#include <string.h>

#include "base/atomic.h"
#include "host-agent/worker/memory.h"

/*
 * The lock: the snapshot goes away with the buffer, on whichever thread gives it back. Not inlined: rare, and
 * its registers would be saved for every live handle.
 */
static __attribute__((noinline)) bool used_before_free(struct wsession *s, uint64_t handle,
						       const struct wqueue *q, uint64_t pos)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	const uint64_t *tails;
	bool used;

	if (!q)
		return false;
	pthread_mutex_lock(&s->lock);
	tails = s->objects[slot].tails;
	used = tails && s->ledger.objects[slot].gen == GANTRY_HANDLE_GEN(handle) &&
	       pos < tails[q->slot];
	pthread_mutex_unlock(&s->lock);
	return used;
}

struct gantry_ledger_object *worker_object_get(struct wsession *s, uint64_t handle, uint32_t type,
					       const struct wqueue *q, uint64_t pos)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	struct gantry_ledger_object *obj;
	uint8_t state;

	if (slot >= GANTRY_LEDGER_NOBJECTS || GANTRY_HANDLE_TYPE(handle) != type)
		return NULL;
	obj = &s->ledger.objects[slot];
	/* Acquire: pairs with the release in worker_object_publish(); gen, type and body are in place. */
	state = gantry_load_acquire(&obj->state);
	if (state == GANTRY_OBJECT_FREE ||
	    gantry_load_relaxed(&obj->gen) != GANTRY_HANDLE_GEN(handle) ||
	    gantry_load_relaxed(&obj->type) != type)
		return NULL;
	if (state == GANTRY_OBJECT_DYING && !used_before_free(s, handle, q, pos))
		return NULL;
	return obj;
}

int worker_object_new_locked(struct wsession *s, uint32_t type, uint32_t *ret_slot)
{
	uint32_t n = GANTRY_LEDGER_NOBJECTS;
	uint32_t limit = gantry_load_relaxed(&s->quota->nobjects);

	if (limit && limit < n)
		n = limit;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = (s->next_object + i) % n;
		struct gantry_ledger_object *obj = &s->ledger.objects[slot];

		if (obj->state != GANTRY_OBJECT_FREE)
			continue;
		s->next_object = slot + 1;
		gantry_store_relaxed(&obj->gen, obj->gen + 1);
		gantry_store_relaxed(&obj->type, (uint8_t)type);
		obj->variant_kind = 0;
		obj->variant_of = 0;
		memset(&obj->buffer, 0,
		       sizeof(*obj) - offsetof(struct gantry_ledger_object, buffer));
		gantry_store_relaxed(&s->objects[slot].ready, 0u);
		*ret_slot = slot;
		return GANTRY_OK;
	}
	return GANTRY_E_LIMIT;
}

uint64_t worker_object_handle(const struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	return GANTRY_HANDLE(obj->type, obj->gen, slot);
}

void worker_object_publish(struct wsession *s, uint32_t slot, uint64_t made_by)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	obj->made_by = made_by;
	/* Release: pairs with the acquire in worker_object_get(). */
	gantry_store_release(&obj->state, (uint8_t)GANTRY_OBJECT_LIVE);
}

void worker_object_end_locked(struct wsession *s, uint32_t slot)
{
	for (uint32_t i = 0; i < GANTRY_NKINDS; i++)
		gantry_store_relaxed(&s->objects[slot].kernel[i], NULL);
	gantry_store_release(&s->ledger.objects[slot].state, (uint8_t)GANTRY_OBJECT_FREE);
}
