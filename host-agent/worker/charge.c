/* SPDX-License-Identifier: Apache-2.0 */
/* Charges for memory: the session's, the tenant's, the device's. Charge before use, refund after release. */
#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/memory.h"

/* ---- after a recovery ---- */

/* A counter that another writer left, set right, and the tenant's by as much. */
static void reconcile(uint64_t *session, uint64_t *tenant, uint64_t limit, uint64_t really)
{
	uint64_t said = GANTRY_MIN(gantry_load_relaxed(session), GANTRY_MAX(limit, really));

	if (said > really)
		gantry_quota_refund(tenant, said - really);
	else
		gantry_count_add(tenant, really - said);
	gantry_store_relaxed(session, really);
}

void worker_charges_recover(struct wsession *s)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	uint64_t resident = 0;
	uint64_t virtual = 0;
	uint64_t host = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_IMAGE &&
		    GANTRY_LEDGER_IS_OWN(&obj->image))
			virtual += obj->image.own.bytes;
		if (worker_is_buffer(obj) && obj->buffer.place == GANTRY_PLACE_RANGE)
			s->range_bytes += obj->buffer.bytes;
		if (!worker_is_buffer(obj) || obj->buffer.adopted)
			continue;
		resident += obj->buffer.charged_bytes;
		if (worker_is_virtual(&obj->buffer))
			virtual += obj->buffer.bytes;
		host += obj->buffer.host_bytes;
	}
	reconcile(&hdr->host_used, &s->quota->host_used, UINT64_MAX, host);
	reconcile(&hdr->resident_used, &s->quota->mem_used, gantry_load_relaxed(&hdr->mem_bytes),
		  resident);
	reconcile(&hdr->virtual_used, &s->quota->virtual_used,
		  gantry_load_relaxed(&hdr->virtual_bytes), virtual);
}

/* ---- charges ---- */

void worker_deny(struct wsession *s)
{
	gantry_count_add(&s->quota->denied, 1);
}

/* Resident memory: the session's own limit, the tenant's, then the device's pool. */
int worker_charge_resident(struct wdevice *d, struct wsession *s, uint64_t bytes)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	if (gantry_quota_charge(&hdr->resident_used, &hdr->mem_bytes, bytes) < 0) {
		worker_deny(s);
		return GANTRY_E_LIMIT;
	}
	if (gantry_quota_charge(&s->quota->mem_used, &s->quota->mem_bytes, bytes) < 0) {
		gantry_quota_refund(&hdr->resident_used, bytes);
		worker_deny(s);
		return GANTRY_E_LIMIT;
	}
	if (gantry_quota_charge(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, bytes) < 0) {
		gantry_quota_refund(&s->quota->mem_used, bytes);
		gantry_quota_refund(&hdr->resident_used, bytes);
		return GANTRY_E_NO_MEMORY;
	}
	gantry_quota_peak(&hdr->resident_peak, &hdr->resident_used);
	gantry_quota_peak(&s->quota->mem_peak, &s->quota->mem_used);
	gantry_quota_peak(&d->page->hdr.mem_peak, &d->page->hdr.mem_used);
	return GANTRY_OK;
}

void worker_refund_resident(struct wsession *s, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	gantry_quota_refund(&s->engine->devices[device]->page->hdr.mem_used, bytes);
	gantry_quota_refund(&s->quota->mem_used, bytes);
	gantry_quota_refund(&s->ledger.hdr->resident_used, bytes);
}

/* A buffer that moves to another device takes its charge along; the memory itself stays where it is. */
int worker_charge_move(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b)
{
	if (b->device == d->index || b->charged_bytes == 0)
		return GANTRY_OK;
	if (gantry_quota_charge(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, b->charged_bytes) <
	    0)
		return GANTRY_E_NO_MEMORY;
	gantry_quota_refund(&s->engine->devices[b->device]->page->hdr.mem_used, b->charged_bytes);
	gantry_store_relaxed(&b->device, d->index);
	gantry_quota_peak(&d->page->hdr.mem_peak, &d->page->hdr.mem_used);
	return GANTRY_OK;
}

/* Host memory: bounded by what may be allocated, and where the agent says so by a limit of its own. */
int worker_charge_host(struct wsession *s, struct gantry_ledger_buffer *b)
{
	uint64_t len = worker_page_up(b->bytes);
	uint64_t limit = gantry_load_relaxed(&s->quota->host_bytes);

	if (limit && gantry_quota_charge(&s->quota->host_used, &s->quota->host_bytes, len) < 0) {
		worker_deny(s);
		return GANTRY_E_LIMIT;
	}
	if (!limit)
		gantry_count_add(&s->quota->host_used, len);
	gantry_count_add(&s->ledger.hdr->host_used, len);
	gantry_store_release(&b->host_bytes, len);
	return GANTRY_OK;
}

void worker_refund_host(struct wsession *s, struct gantry_ledger_buffer *b)
{
	uint64_t len = b->host_bytes;

	if (len == 0)
		return;
	gantry_store_relaxed(&b->host_bytes, (uint64_t)0);
	gantry_quota_refund(&s->quota->host_used, len);
	gantry_quota_refund(&s->ledger.hdr->host_used, len);
}

int worker_charge_pool(struct wdevice *d, uint64_t bytes)
{
	if (gantry_quota_charge(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, bytes) < 0)
		return GANTRY_E_NO_MEMORY;
	gantry_quota_peak(&d->page->hdr.mem_peak, &d->page->hdr.mem_used);
	return GANTRY_OK;
}

void worker_refund_pool(struct wsession *s, uint32_t device, uint64_t bytes)
{
	gantry_quota_refund(&s->engine->devices[device]->page->hdr.mem_used, bytes);
}
