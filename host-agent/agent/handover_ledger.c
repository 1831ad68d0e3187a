/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a session that has come from another host: what its devices are here, and what it is charged. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/handover_in.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"

/* The device here that plays each of the other host's: of the same name and kind, else of the same kind. */
static int device_here(const struct gantry_tenant *t, const struct gantry_image_device *there)
{
	const struct gantry_agent *a = t->agent;
	int found = -ENODEV;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];

		if (!d->used || !(t->device_mask >> i & 1) || d->kind != there->kind)
			continue;
		if (strcmp(d->conf.name, there->name) == 0)
			return (int)i;
		if (found < 0)
			found = (int)i;
	}
	return found;
}

/* Where each of the other host's devices is here: index, or negative. */
static void map_devices(const struct gantry_handover *h, const struct gantry_tenant *t,
			int map[GANTRY_IMAGE_NDEVICES])
{
	for (uint32_t i = 0; i < GANTRY_IMAGE_NDEVICES; i++)
		map[i] = i < h->image.ndevices ? device_here(t, &h->image.devices[i]) : -ENODEV;
}

static int device_of(const int map[GANTRY_IMAGE_NDEVICES], uint32_t there)
{
	return there < GANTRY_IMAGE_NDEVICES ? map[there] : -ENODEV;
}

static int settle_queue(struct gantry_ledger_queue *q, const int map[GANTRY_IMAGE_NDEVICES],
			uint32_t slot, struct gantry_err *err)
{
	int device = device_of(map, q->device);
	uint64_t mask = 0;

	q->paused &= 1u;
	q->lane = 0; /* of a device there */
	q->verdict = 0;
	q->issued_at_ns = 0;
	if (q->state == GANTRY_QUEUE_CLOSED || slot == 0) {
		q->device = device < 0 ? 0 : (uint32_t)device;
		return 0;
	}
	for (uint32_t i = 0; i < GANTRY_IMAGE_NDEVICES; i++)
		if ((q->device_mask >> i & 1) && map[i] >= 0)
			mask |= 1ull << map[i];
	if (device < 0 || (q->device_mask && !mask))
		return gantry_err_set(err, -ENODEV, "no device there is of the kind of queue %u's",
				      slot);
	q->device = (uint32_t)device;
	q->device_mask = mask;
	return 0;
}

static int settle_object(struct gantry_agent *a, struct gantry_ledger_object *o,
			 const int map[GANTRY_IMAGE_NDEVICES], struct gantry_err *err)
{
	struct gantry_ledger_buffer *b = &o->buffer;
	int device;

	if (o->state == GANTRY_OBJECT_FREE)
		return 0;
	if (o->type == GANTRY_HANDLE_KERNEL && !GANTRY_LEDGER_IS_OWN(&o->kernel) &&
	    !gantry_kernels_have(a, o->kernel.name, o->kernel.sig_hash))
		return gantry_err_set(err, -ENOENT, "kernel %.80s is not installed there",
				      o->kernel.name);
	if (o->type != GANTRY_HANDLE_BUFFER)
		return 0;
	if ((b->place > GANTRY_PLACE_SLAB && b->place != GANTRY_PLACE_LOST) || b->adopted ||
	    b->to || b->replicas)
		return gantry_err_set(err, -EINVAL, "a buffer that cannot have come along");
	device = device_of(map, b->device);
	if (device < 0 && b->charged_bytes)
		return gantry_err_set(err, -ENODEV, "no device there is of a buffer's kind");
	b->device = device < 0 ? 0 : (uint32_t)device;
	b->host_copy = GANTRY_HOST_COPY_NONE;
	return 0;
}

int gantry_handover_settle_ledger(struct gantry_handover *h, struct gantry_session *s,
				  struct gantry_err *err)
{
	int map[GANTRY_IMAGE_NDEVICES];
	int r = 0;

	map_devices(h, s->tenant, map);
	/* What played which of its devices there means nothing here. */
	gantry_store_relaxed(&s->ledger.hdr->places, (uint64_t)0);
	for (uint32_t i = 0; i < s->ledger.nqueues && r == 0; i++)
		r = settle_queue(&s->ledger.queues[i], map, i, err);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS && r == 0; i++)
		r = settle_object(s->agent, &s->ledger.objects[i], map, err);
	return r;
}

static int charge_buffer(struct gantry_session *s, struct gantry_ledger_buffer *b)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_quota_page *q = s->tenant->quota;
	struct gantry_share_page *page = s->agent->devices[b->device].page;
	uint64_t bytes = b->charged_bytes;

	if (gantry_quota_charge(&hdr->resident_used, &hdr->mem_bytes, bytes) < 0)
		return -EDQUOT;
	if (gantry_quota_charge(&q->mem_used, &q->mem_bytes, bytes) < 0) {
		gantry_quota_refund(&hdr->resident_used, bytes);
		return -EDQUOT;
	}
	if (gantry_quota_charge(&page->hdr.mem_used, &page->hdr.mem_bytes, bytes) < 0) {
		gantry_quota_refund(&q->mem_used, bytes);
		gantry_quota_refund(&hdr->resident_used, bytes);
		return -ENOMEM;
	}
	gantry_quota_peak(&hdr->resident_peak, &hdr->resident_used);
	gantry_quota_peak(&q->mem_peak, &q->mem_used);
	gantry_quota_peak(&page->hdr.mem_peak, &page->hdr.mem_used);
	return 0;
}

/* As a worker charges it (charge.c): bounded where the tenant has a limit of its own for that. */
static int charge_host(struct gantry_session *s, uint64_t bytes)
{
	struct gantry_quota_page *q = s->tenant->quota;

	if (q->host_bytes && gantry_quota_charge(&q->host_used, &q->host_bytes, bytes) < 0)
		return -EDQUOT;
	if (!q->host_bytes)
		gantry_count_add(&q->host_used, bytes);
	s->ledger.hdr->host_used += bytes;
	return 0;
}

/* What was not charged is not shown as charged, so that whoever refunds refunds what was. */
int gantry_handover_charge_ledger(struct gantry_session *s, struct gantry_err *err)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_quota_page *q = s->tenant->quota;
	int r = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *o = &s->ledger.objects[i];
		struct gantry_ledger_buffer *b = &o->buffer;
		uint64_t virtual_bytes;

		if (o->state == GANTRY_OBJECT_FREE)
			continue;
		if (o->type == GANTRY_HANDLE_IMAGE && GANTRY_LEDGER_IS_OWN(&o->image))
			virtual_bytes = o->image.own.bytes;
		else if (o->type == GANTRY_HANDLE_BUFFER && b->place != GANTRY_PLACE_HEAP)
			virtual_bytes = b->bytes;
		else
			virtual_bytes = 0;
		if (r == 0 &&
		    gantry_quota_charge(&q->virtual_used, &q->virtual_bytes, virtual_bytes) < 0)
			r = -EDQUOT;
		else if (r == 0)
			hdr->virtual_used += virtual_bytes;
		if (o->type != GANTRY_HANDLE_BUFFER)
			continue;
		if (r == 0)
			r = charge_buffer(s, b);
		if (r < 0)
			b->charged_bytes = 0;
		if (r == 0)
			r = charge_host(s, b->host_bytes);
		if (r < 0)
			b->host_bytes = 0;
	}
	if (r == -ENOMEM)
		return gantry_err_set(err, r, "no device there has the memory for its buffers");
	return r < 0 ? gantry_err_set(err, r, "tenant %s has no room for its buffers there",
				      s->tenant->conf.name)
		     : 0;
}
