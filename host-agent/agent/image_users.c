/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sessions could not go on without an image: they have a kernel that they asked for by its name, or that no other image has.
 * Handles are guests', thousands in each session: each is looked up once, in a table of what the store has.
 */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/image_store.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "proto/codec.h"

/* A kernel of an image. */
struct offer {
	const char *kernel;
	struct gantry_image_entry *image;
	bool is_only; /* of those that the image's tenants find, no other has it */
};

/* By kernel. */
struct offers {
	struct offer *list;
	size_t n;
};

static int by_kernel(const void *a, const void *b)
{
	return strcmp(((const struct offer *)a)->kernel, ((const struct offer *)b)->kernel);
}

/* The first of those with that kernel. */
static size_t find(const struct offers *offers, const char *kernel)
{
	size_t lo = 0, hi = offers->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(offers->list[mid].kernel, kernel) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool has(const struct offers *offers, size_t at, const char *kernel)
{
	return at < offers->n && strcmp(offers->list[at].kernel, kernel) == 0;
}

/* Everybody who finds @image finds @other too. */
static bool stands_in(const struct gantry_image_entry *other,
		      const struct gantry_image_entry *image)
{
	return strcmp(other->bitstream->name, image->bitstream->name) != 0 &&
	       (!other->bitstream->tenant[0] ||
		strcmp(other->bitstream->tenant, image->bitstream->tenant) == 0);
}

static void compare(const struct offers *offers)
{
	for (size_t i = 0; i < offers->n; i++) {
		struct offer *offer = &offers->list[i];

		offer->is_only = true;
		for (size_t k = find(offers, offer->kernel); has(offers, k, offer->kernel); k++)
			offer->is_only = offer->is_only &&
					 !stands_in(offers->list[k].image, offer->image);
	}
}

static bool make(const struct gantry_image_entries *entries, struct offers *ret_offers)
{
	struct offers offers = { 0 };
	size_t n = 0;

	for (uint32_t i = 0; i < entries->n; i++)
		n += entries->list[i].bitstream ? entries->list[i].bitstream->nkernels : 0;
	offers.list = calloc(n ? n : 1, sizeof(*offers.list));
	if (!offers.list)
		return false;
	for (uint32_t i = 0; i < entries->n; i++) {
		const struct gantry_bitstream *b = entries->list[i].bitstream;

		for (uint32_t k = 0; b && k < b->nkernels; k++)
			offers.list[offers.n++] = (struct offer){ .kernel = b->kernels[k].name,
								  .image = &entries->list[i] };
	}
	qsort(offers.list, offers.n, sizeof(*offers.list), by_kernel);
	compare(&offers);
	*ret_offers = offers;
	return true;
}

static bool is_for(const struct gantry_bitstream *b, const struct gantry_session *s)
{
	return !b->tenant[0] || strcmp(b->tenant, s->tenant->conf.name) == 0;
}

static bool is_named(const struct gantry_bitstream *b, const char *module, size_t len)
{
	return strlen(b->name) == len && memcmp(b->name, module, len) == 0;
}

/* What a handle of the session's for "MODULE/KERNEL" or "/KERNEL" depends on. @is_used: by entry. */
static void note(const struct gantry_session *s, const struct offers *offers, const char *name,
		 const struct gantry_image_entries *entries, bool *is_used)
{
	const char *slash = strchr(name, '/');
	size_t len = slash ? (size_t)(slash - name) : 0;

	for (size_t i = slash ? find(offers, slash + 1) : offers->n;
	     i < offers->n && has(offers, i, slash + 1); i++) {
		const struct offer *offer = &offers->list[i];

		if (is_for(offer->image->bitstream, s) &&
		    (len ? is_named(offer->image->bitstream, name, len) : offer->is_only))
			is_used[offer->image - entries->list] = true;
	}
}

static void look_at(const struct gantry_session *s, const struct offers *offers,
		    const struct gantry_image_entries *entries, bool *is_used)
{
	struct gantry_ledger_kernel before = { .own.installed = 0 };

	for (uint32_t i = 0; s->ledger.hdr && i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object o;

		if (s->ledger.objects[i].type != GANTRY_HANDLE_KERNEL)
			continue;
		o = s->ledger.objects[i]; /* a worker writes there */
		if (o.type != GANTRY_HANDLE_KERNEL || o.state != GANTRY_OBJECT_LIVE ||
		    GANTRY_LEDGER_IS_OWN(&o.kernel))
			continue;
		o.kernel.name[sizeof(o.kernel.name) - 1] = '\0';
		/* Many handles of one kernel are mostly made one after the other. */
		if (strcmp(o.kernel.name, before.name) == 0)
			continue;
		before = o.kernel;
		note(s, offers, o.kernel.name, entries, is_used);
	}
}

/* ---- what is left of those that leave ---- */

static bool depends(const struct gantry_session *s, const struct offers *offers, const char *name,
		    const struct gantry_image_entry *image)
{
	const char *slash = strchr(name, '/');
	size_t len = slash ? (size_t)(slash - name) : 0;

	for (size_t i = slash ? find(offers, slash + 1) : offers->n;
	     i < offers->n && has(offers, i, slash + 1); i++) {
		const struct offer *offer = &offers->list[i];

		if (offer->image == image && is_for(image->bitstream, s) &&
		    (len ? is_named(image->bitstream, name, len) : offer->is_only))
			return true;
	}
	return false;
}

/* Slots of handles whose launches need @image: of its kernels, or of those that have a form in it. */
static void mark_handles(const struct gantry_session *s, const struct offers *offers,
			 const struct gantry_image_entry *image, bool *handles)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object o;

		if (s->ledger.objects[i].type != GANTRY_HANDLE_KERNEL)
			continue;
		o = s->ledger.objects[i]; /* a worker writes there */
		if (o.type != GANTRY_HANDLE_KERNEL || GANTRY_LEDGER_IS_OWN(&o.kernel))
			continue;
		o.kernel.name[sizeof(o.kernel.name) - 1] = '\0';
		if (!depends(s, offers, o.kernel.name, image))
			continue;
		handles[i] = true;
		if (o.variant_of)
			handles[GANTRY_HANDLE_SLOT(o.variant_of) % GANTRY_LEDGER_NOBJECTS] = true;
	}
}

static uint64_t tasks_of_queue(const struct gantry_session *s, uint32_t slot, const bool *handles)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	uint64_t done = gantry_load_relaxed(&led->done);
	/* Acquire: pairs with the release in worker_intake(). */
	uint64_t taken = gantry_load_acquire(&led->taken);
	uint64_t n = 0;

	for (uint64_t pos = done; pos < taken && pos - done < s->ledger.nslots; pos++) {
		struct gantry_desc desc = gantry_ledger_task(&s->ledger, slot, pos)->desc;
		union gantry_op_any args;

		n += desc.op == GANTRY_OP_launch &&
		     gantry_desc_decode(&desc, false, s->version, &args) == GANTRY_OK &&
		     args.launch.kernel &&
		     handles[GANTRY_HANDLE_SLOT(args.launch.kernel) % GANTRY_LEDGER_NOBJECTS];
	}
	return n;
}

static void count_tasks(const struct gantry_session *s, const struct offers *offers,
			struct gantry_image_entry *image)
{
	bool handles[GANTRY_LEDGER_NOBJECTS] = { false };
	uint64_t n = 0;

	mark_handles(s, offers, image, handles);
	for (uint32_t slot = 1; slot < s->ledger.nqueues; slot++)
		n += tasks_of_queue(s, slot, handles);
	if (n > 0 && image->nwaited++ == 0)
		image->first_waited = s;
	image->ntasks += n;
}

int gantry_image_users_count(struct gantry_agent *a, const struct gantry_image_store *store,
			     struct gantry_image_entries *entries, struct gantry_err *err)
{
	uint64_t bit = 1ull << (store->device - a->devices);
	_cleanup_free_ bool *is_used = calloc(entries->n ? entries->n : 1, sizeof(*is_used));
	struct offers offers;

	if (!is_used || !make(entries, &offers))
		return gantry_err_set(err, -ENOMEM, "no memory to see who uses images");
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		if (!(gantry_devices_mask(a, s->tenant->conf.devices) & bit))
			continue;
		memset(is_used, 0, entries->n * sizeof(*is_used));
		look_at(s, &offers, entries, is_used);
		for (uint32_t i = 0; i < entries->n; i++) {
			if (!is_used[i])
				continue;
			if (entries->list[i].nusers++ == 0)
				entries->list[i].first_user = s;
			if (entries->list[i].leaving)
				count_tasks(s, &offers, &entries->list[i]);
		}
	}
	free(offers.list);
	return 0;
}
