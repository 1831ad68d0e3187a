/* SPDX-License-Identifier: Apache-2.0 */
#include "migration/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

/* Bits of a device mask. */
#define NDEVICES 64u
/* A charge is a buffer's size rounded up by an allocator. */
#define CHARGE_MAX (2 * GANTRY_MAX_BUFFER_BYTES)
/* No status is below it. */
#define VERDICT_MIN (-1000)

/* Where the parts of a ledger of one shape lie. Nothing in it is negotiable: the header repeats it. */
struct layout {
	uint64_t queues_off;
	uint64_t objects_off;
	uint64_t tasks_off;
	uint64_t bytes;
	uint32_t nqueues;
	uint32_t nslots;
};

struct range {
	uint64_t off;
	uint64_t end;
	uint32_t slot;
};

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

/* No sum can wrap: both counts are bounded first, and the greatest ledger is some 66 MiB. */
static int layout_init(struct layout *layout, uint32_t nqueues, uint32_t nslots)
{
	if (nqueues < 1 || nqueues > GANTRY_MAX_QUEUES)
		return -EINVAL;
	if (nslots < GANTRY_MIN_SLOTS || nslots > GANTRY_MAX_SLOTS || !gantry_is_pow2(nslots))
		return -EINVAL;
	layout->nqueues = nqueues;
	layout->nslots = nslots;
	layout->queues_off = sizeof(struct gantry_ledger_header);
	layout->objects_off =
		page_up(layout->queues_off + nqueues * sizeof(struct gantry_ledger_queue));
	layout->tasks_off = layout->objects_off +
			    GANTRY_LEDGER_NOBJECTS * sizeof(struct gantry_ledger_object);
	layout->bytes = page_up(layout->tasks_off +
				(uint64_t)nqueues * nslots * sizeof(struct gantry_ledger_task));
	return 0;
}

uint64_t gantry_ledger_bytes(uint32_t nqueues, uint32_t nslots)
{
	struct layout layout;

	return layout_init(&layout, nqueues, nslots) < 0 ? 0 : layout.bytes;
}

static bool all_zero(const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

static bool is_terminated(const char *text, size_t cap)
{
	return memchr(text, '\0', cap) != NULL;
}

/* ---- numbers of devices ---- */

uint64_t gantry_ledger_exchange(uint64_t places, uint32_t a, uint32_t b)
{
	uint64_t then = 0;

	for (uint32_t number = 0; number < GANTRY_LEDGER_NUMBERS; number++) {
		uint32_t device = gantry_ledger_device(places, number);

		device = device == a ? b : device == b ? a : device;
		then |= (uint64_t)(number ^ device) << 4 * number;
	}
	return then;
}

/* Each number has one device and each device a number; who hands over, and to whom, are two of them. */
static bool numbering_is_possible(uint64_t places)
{
	uint32_t from = GANTRY_LEDGER_HANDS_FROM(places), to = GANTRY_LEDGER_HANDS_TO(places);
	uint32_t seen = 0;

	for (uint32_t number = 0; number < GANTRY_LEDGER_NUMBERS; number++)
		seen |= 1u << gantry_ledger_device(places, number);
	if (seen != (1u << GANTRY_LEDGER_NUMBERS) - 1)
		return false;
	return places >> 32 == 0 || (places >> 48 == 0 && from < GANTRY_LEDGER_NUMBERS &&
				     to < GANTRY_LEDGER_NUMBERS && from != to);
}

/* ---- the checks: each gets a private copy, so that what was checked is what was read ---- */

static int check_shape(const struct gantry_ledger_header *hdr, uint64_t bytes,
		       struct gantry_err *err)
{
	struct layout layout;

	if (hdr->magic != GANTRY_LEDGER_MAGIC)
		return gantry_err_set(err, -EINVAL, "this is no ledger");
	if (hdr->version < GANTRY_LEDGER_VERSION_OLDEST || hdr->version > GANTRY_LEDGER_VERSION)
		return gantry_err_set(err, -EINVAL, "a ledger of version %u, not %u to %u",
				      hdr->version, GANTRY_LEDGER_VERSION_OLDEST,
				      GANTRY_LEDGER_VERSION);
	if (layout_init(&layout, hdr->nqueues, hdr->nslots) < 0)
		return gantry_err_set(err, -EINVAL, "%u queues of %u slots are not allowed",
				      hdr->nqueues, hdr->nslots);
	if (hdr->nobjects != GANTRY_LEDGER_NOBJECTS)
		return gantry_err_set(err, -EINVAL, "%u objects are not allowed", hdr->nobjects);
	if (hdr->queues_off != layout.queues_off || hdr->objects_off != layout.objects_off ||
	    hdr->tasks_off != layout.tasks_off)
		return gantry_err_set(err, -EINVAL, "a table is not where it belongs");
	if (hdr->ledger_bytes != layout.bytes || bytes != layout.bytes)
		return gantry_err_set(err, -EINVAL,
				      "%" PRIu64 " bytes (%" PRIu64 " said), not %" PRIu64, bytes,
				      hdr->ledger_bytes, layout.bytes);
	return 0;
}

static int check_header(const struct gantry_ledger_header *hdr, uint64_t bytes,
			struct gantry_err *err)
{
	int r = check_shape(hdr, bytes, err);

	if (r < 0)
		return r;
	if (!gantry_name_valid_bounded(hdr->tenant, sizeof(hdr->tenant)))
		return gantry_err_set(err, -EINVAL, "the tenant's name is not one");
	if (hdr->segment_bytes > GANTRY_SEGMENT_MAX_BYTES)
		return gantry_err_set(err, -EINVAL, "a segment of %" PRIu64 " bytes",
				      hdr->segment_bytes);
	if (hdr->slab_bytes > GANTRY_MAX_BUFFER_BYTES)
		return gantry_err_set(err, -EINVAL, "a slab of %" PRIu64 " bytes", hdr->slab_bytes);
	if (hdr->detach > 1)
		return gantry_err_set(err, -EINVAL, "detach is %u", hdr->detach);
	if (hdr->condemned > INT32_MAX)
		return gantry_err_set(err, -EINVAL, "condemned for %" PRIu64, hdr->condemned);
	if (hdr->address % GANTRY_PAGE || hdr->translated > 1)
		return gantry_err_set(err, -EINVAL, "the segment's address makes no sense");
	if (!numbering_is_possible(hdr->places))
		return gantry_err_set(err, -EINVAL, "the numbers of devices make no sense");
	if (hdr->reserved0 || hdr->reserved1 || !all_zero(hdr->pad0, sizeof(hdr->pad0)) ||
	    !all_zero(hdr->pad1, sizeof(hdr->pad1)))
		return gantry_err_set(err, -EINVAL, "a reserved field of the header is in use");
	return 0;
}

static int check_cursors(const struct gantry_ledger_queue *q, uint32_t nslots)
{
	if (q->taken > GANTRY_LEDGER_POSITION_MAX)
		return -EINVAL;
	if (q->done > q->issued || q->issued > q->taken || q->taken - q->done > nslots)
		return -EINVAL;
	if (q->doubt_below > q->taken || q->opened_by > GANTRY_LEDGER_POSITION_MAX ||
	    q->untried_below > GANTRY_LEDGER_POSITION_MAX)
		return -EINVAL;
	/* A failure is counted before its task is: at most all that were taken. */
	return q->nfailed > q->taken ? -EINVAL : 0;
}

static int check_queue(const struct gantry_ledger_queue *q, uint32_t slot, uint32_t nslots,
		       struct gantry_err *err)
{
	if (check_cursors(q, nslots) < 0)
		return gantry_err_set(err, -EINVAL,
				      "queue %u: taken %" PRIu64 ", issued %" PRIu64
				      ", done %" PRIu64 ", failed %" PRIu64 " cannot be",
				      slot, q->taken, q->issued, q->done, q->nfailed);
	if (q->state > GANTRY_QUEUE_CLOSING)
		return gantry_err_set(err, -EINVAL, "queue %u: state %u", slot, q->state);
	if (q->kind >= GANTRY_NKINDS)
		return gantry_err_set(err, -EINVAL, "queue %u: device kind %u", slot, q->kind);
	if (q->device >= NDEVICES)
		return gantry_err_set(err, -EINVAL, "queue %u: device %u", slot, q->device);
	if (q->fail_stop > 1 || q->guest_paused > 1 || q->broken > 1 || q->paused > 7 ||
	    q->sorted > 1)
		return gantry_err_set(err, -EINVAL, "queue %u: a flag is neither 0 nor 1", slot);
	if (q->verdict > 0 || q->verdict < VERDICT_MIN)
		return gantry_err_set(err, -EINVAL, "queue %u: verdict %d", slot, q->verdict);
	if (q->lane && (q->lane >> 16 == 0 || q->lane >> 16 > NDEVICES || (q->lane & 0xffff) == 0 ||
			(q->lane & 0xffff) > GANTRY_LEDGER_LANES))
		return gantry_err_set(err, -EINVAL, "queue %u: lane %#x", slot, q->lane);
	if (!all_zero(q->pad1, sizeof(q->pad1)))
		return gantry_err_set(err, -EINVAL, "queue %u: a reserved field is in use", slot);
	return 0;
}

static bool place_is_inside(const struct gantry_ledger_buffer *b,
			    const struct gantry_ledger_header *hdr)
{
	switch (b->place) {
	case GANTRY_PLACE_NONE:
		return true;
	case GANTRY_PLACE_HEAP:
		return gantry_range_inside(b->off, b->bytes, hdr->segment_bytes);
	case GANTRY_PLACE_SLAB:
	case GANTRY_PLACE_WINDOW:
	case GANTRY_PLACE_AWAY:
	case GANTRY_PLACE_LOST:
		return gantry_range_inside(b->off, b->bytes, hdr->slab_bytes);
	case GANTRY_PLACE_IMAGE:
		return b->off == 0;
	case GANTRY_PLACE_RANGE:
		return b->off == 0 && b->address && b->address <= UINT64_MAX - b->bytes;
	case GANTRY_PLACE_OWN:
		return b->share_id != 0 &&
		       gantry_range_inside(b->off, b->bytes, GANTRY_MAX_BUFFER_BYTES);
	default:
		return false;
	}
}

/* Whether its range is one and has room for it is its worker's to see. */
static bool mapping_is_possible(const struct gantry_ledger_buffer *b)
{
	if (b->reserved)
		return false;
	/* Its handle is written last, and taken away first. */
	if (!b->range)
		return true;
	return (b->alloc_flags & GANTRY_ALLOC_WHOLE) && b->address &&
	       b->place == GANTRY_PLACE_WINDOW &&
	       GANTRY_HANDLE_TYPE(b->range) == GANTRY_HANDLE_BUFFER &&
	       GANTRY_HANDLE_SLOT(b->range) < GANTRY_LEDGER_NOBJECTS &&
	       b->range_off <= GANTRY_MAX_BUFFER_BYTES &&
	       (b->range_rights == 0 || b->range_rights == GANTRY_R ||
		b->range_rights == GANTRY_RW);
}

static int check_buffer(const struct gantry_ledger_buffer *b, uint32_t slot,
			const struct gantry_ledger_header *hdr, struct gantry_err *err)
{
	const uint32_t known_flags = GANTRY_ALLOC_HOST | GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_SHARED |
				     GANTRY_ALLOC_FIXED | GANTRY_ALLOC_OUTPUT | GANTRY_ALLOC_WHOLE;

	if (b->bytes == 0 || b->bytes > GANTRY_MAX_BUFFER_BYTES)
		return gantry_err_set(err, -EINVAL, "object %u: a buffer of %" PRIu64 " bytes",
				      slot, b->bytes);
	if (b->charged_bytes > CHARGE_MAX || b->host_bytes > CHARGE_MAX)
		return gantry_err_set(err, -EINVAL, "object %u: %" PRIu64 " bytes charged", slot,
				      b->charged_bytes);
	if (!place_is_inside(b, hdr))
		return gantry_err_set(err, -EINVAL,
				      "object %u: place %u, offset %" PRIu64 ", %" PRIu64
				      " bytes is nowhere",
				      slot, b->place, b->off, b->bytes);
	if (b->device >= NDEVICES || b->to > NDEVICES)
		return gantry_err_set(err, -EINVAL, "object %u: device %u", slot, b->device);
	if (b->rights != GANTRY_R && b->rights != GANTRY_RW)
		return gantry_err_set(err, -EINVAL, "object %u: rights %u", slot, b->rights);
	if ((b->alloc_flags & ~known_flags) || b->adopted > 1 ||
	    b->host_copy > GANTRY_HOST_COPY_CLEAN)
		return gantry_err_set(err, -EINVAL, "object %u: an unknown flag", slot);
	if ((b->alloc_flags & GANTRY_ALLOC_OUTPUT) &&
	    (b->place != GANTRY_PLACE_HEAP || b->bytes < GANTRY_OUTPUT_MIN_BYTES))
		return gantry_err_set(err, -EINVAL, "object %u: output of kernels outside the heap",
				      slot);
	if (b->replicas && b->place != GANTRY_PLACE_WINDOW)
		return gantry_err_set(err, -EINVAL, "object %u: copies of what is in no window",
				      slot);
	if (b->address && b->place != GANTRY_PLACE_RANGE &&
	    (!(b->alloc_flags & GANTRY_ALLOC_FIXED) || b->place != GANTRY_PLACE_WINDOW ||
	     b->address < b->off))
		return gantry_err_set(err, -EINVAL, "object %u: an address of what has none", slot);
	if (!mapping_is_possible(b))
		return gantry_err_set(err, -EINVAL, "object %u: it cannot be mapped so", slot);
	return 0;
}

static int check_name(const char *name, size_t cap, uint32_t slot, struct gantry_err *err)
{
	if (!is_terminated(name, cap) || name[0] == '\0')
		return gantry_err_set(err, -EINVAL, "object %u: the name is not one", slot);
	return 0;
}

static int check_kernel(const struct gantry_ledger_kernel *k, uint32_t slot, struct gantry_err *err)
{
	if (!GANTRY_LEDGER_IS_OWN(k))
		return check_name(k->name, sizeof(k->name), slot, err);
	if (GANTRY_HANDLE_TYPE(k->own.image) != GANTRY_HANDLE_IMAGE ||
	    GANTRY_HANDLE_SLOT(k->own.image) >= GANTRY_LEDGER_NOBJECTS)
		return gantry_err_set(err, -EINVAL,
				      "object %u: the name is not one, nor is there an image",
				      slot);
	if (k->own.symbol_bytes < 2 || k->own.symbol_bytes > GANTRY_MAX_SYMBOL ||
	    k->own.sig_bytes < 1 || k->own.sig_bytes > GANTRY_MAX_SIGNATURE ||
	    !gantry_range_inside(k->own.off, (uint64_t)k->own.symbol_bytes + k->own.sig_bytes,
				 GANTRY_LEDGER_STORE_BYTES))
		return gantry_err_set(err, -EINVAL, "object %u: its symbol is nowhere", slot);
	if (k->own.set.devices >> GANTRY_LEDGER_NUMBERS || k->own.set.which >> GANTRY_LEDGER_NSET)
		return gantry_err_set(err, -EINVAL, "object %u: settings that no kernel has", slot);
	return 0;
}

static int check_image(const struct gantry_ledger_image *i, uint32_t slot, struct gantry_err *err)
{
	if (!GANTRY_LEDGER_IS_OWN(i))
		return check_name(i->module, sizeof(i->module), slot, err);
	if (i->own.bytes == 0)
		return gantry_err_set(err, -EINVAL, "object %u: the name is not one", slot);
	if (i->own.kind == 0 || i->own.kind >= GANTRY_NKINDS || i->own.reserved ||
	    !gantry_range_inside(i->own.off, i->own.bytes, GANTRY_LEDGER_STORE_BYTES))
		return gantry_err_set(err, -EINVAL, "object %u: an image that cannot be", slot);
	return 0;
}

static bool variant_is_possible(const struct gantry_ledger_object *o)
{
	if (o->variant_of == 0)
		return o->variant_kind == 0;
	return o->type == GANTRY_HANDLE_KERNEL &&
	       GANTRY_HANDLE_TYPE(o->variant_of) == GANTRY_HANDLE_KERNEL &&
	       GANTRY_HANDLE_SLOT(o->variant_of) < GANTRY_LEDGER_NOBJECTS && o->variant_kind > 0 &&
	       o->variant_kind < GANTRY_NKINDS;
}

/* A free slot may hold anything: a creation that was cut short never set its state. */
static int check_object(const struct gantry_ledger_object *o, uint32_t slot,
			const struct gantry_ledger_header *hdr, struct gantry_err *err)
{
	if (o->state == GANTRY_OBJECT_FREE)
		return 0;
	if (o->state > GANTRY_OBJECT_DYING)
		return gantry_err_set(err, -EINVAL, "object %u: state %u", slot, o->state);
	if (!variant_is_possible(o))
		return gantry_err_set(err, -EINVAL, "object %u: it cannot be a variant", slot);
	if (o->made_by > GANTRY_LEDGER_POSITION_MAX)
		return gantry_err_set(err, -EINVAL, "object %u: made by task %" PRIu64, slot,
				      o->made_by);
	switch (o->type) {
	case GANTRY_HANDLE_BUFFER:
		return check_buffer(&o->buffer, slot, hdr, err);
	case GANTRY_HANDLE_KERNEL:
		return check_kernel(&o->kernel, slot, err);
	case GANTRY_HANDLE_IMAGE:
		return check_image(&o->image, slot, err);
	default:
		return gantry_err_set(err, -EINVAL, "object %u: type %u", slot, o->type);
	}
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a;
	const struct range *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int check_overlaps(struct range *ranges, uint32_t nranges, struct gantry_err *err)
{
	qsort(ranges, nranges, sizeof(*ranges), compare_ranges);
	for (uint32_t i = 1; i < nranges; i++)
		if (ranges[i].off < ranges[i - 1].end)
			return gantry_err_set(err, -EINVAL,
					      "objects %u and %u lie on each other in the slab",
					      ranges[i - 1].slot, ranges[i].slot);
	return 0;
}

static int check_queues(const void *base, const struct gantry_ledger_header *hdr,
			struct gantry_err *err)
{
	const struct gantry_ledger_queue *queues =
		(const void *)((const uint8_t *)base + hdr->queues_off);

	for (uint32_t i = 0; i < hdr->nqueues; i++) {
		struct gantry_ledger_queue q;
		int r;

		memcpy(&q, &queues[i], sizeof(q));
		r = check_queue(&q, i, hdr->nslots, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Memory that is not back yet counts as taken: dying buffers are in the list too. */
static bool is_in_slab(const struct gantry_ledger_object *o)
{
	return o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
	       (GANTRY_PLACE_HAS_RANGE(o->buffer.place) || o->buffer.place == GANTRY_PLACE_WINDOW);
}

static int check_objects(const void *base, const struct gantry_ledger_header *hdr,
			 struct gantry_err *err)
{
	const struct gantry_ledger_object *objects =
		(const void *)((const uint8_t *)base + hdr->objects_off);
	_cleanup_free_ struct range *ranges = calloc(hdr->nobjects, sizeof(*ranges));
	uint32_t nranges = 0;

	if (!ranges)
		return gantry_err_set(err, -ENOMEM, "no memory to check a ledger");
	for (uint32_t i = 0; i < hdr->nobjects; i++) {
		struct gantry_ledger_object o;
		int r;

		memcpy(&o, &objects[i], sizeof(o));
		r = check_object(&o, i, hdr, err);
		if (r < 0)
			return r;
		if (is_in_slab(&o))
			ranges[nranges++] = (struct range){
				.off = o.buffer.off,
				.end = o.buffer.off + o.buffer.bytes,
				.slot = i,
			};
	}
	return check_overlaps(ranges, nranges, err);
}

int gantry_ledger_check(const void *base, uint64_t bytes, struct gantry_err *err)
{
	struct gantry_ledger_header hdr;
	int r;

	if (bytes < sizeof(hdr))
		return gantry_err_set(err, -EINVAL, "%" PRIu64 " bytes are no ledger", bytes);
	memcpy(&hdr, base, sizeof(hdr));
	r = check_header(&hdr, bytes, err);
	if (r < 0)
		return r;
	r = check_queues(base, &hdr, err);
	if (r < 0)
		return r;
	return check_objects(base, &hdr, err);
}

/* ---- making and mapping ---- */

static void ledger_init(struct gantry_ledger *ledger, void *base, const struct layout *layout)
{
	uint8_t *bytes = base;

	ledger->hdr = base;
	ledger->queues = (struct gantry_ledger_queue *)(bytes + layout->queues_off);
	ledger->objects = (struct gantry_ledger_object *)(bytes + layout->objects_off);
	ledger->tasks = (struct gantry_ledger_task *)(bytes + layout->tasks_off);
	ledger->bytes = layout->bytes;
	ledger->nqueues = layout->nqueues;
	ledger->nslots = layout->nslots;
}

static int map_ledger(int fd, uint64_t bytes, void **ret_base, struct gantry_err *err)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a ledger of %" PRIu64 " bytes",
					    bytes);
	*ret_base = base;
	return 0;
}

int gantry_ledger_create(uint64_t session_id, const char *tenant, uint32_t nqueues, uint32_t nslots,
			 uint64_t segment_bytes, uint64_t slab_bytes,
			 struct gantry_ledger *ret_ledger, int *ret_fd, struct gantry_err *err)
{
	struct gantry_ledger_header hdr = {
		.magic = GANTRY_LEDGER_MAGIC,
		.version = GANTRY_LEDGER_VERSION,
		.nqueues = nqueues,
		.nslots = nslots,
		.nobjects = GANTRY_LEDGER_NOBJECTS,
		.session_id = session_id,
		.segment_bytes = segment_bytes,
		.slab_bytes = slab_bytes,
	};
	_cleanup_close_ int fd = -EBADF;
	struct layout layout;
	void *base = NULL;
	int r;

	if (layout_init(&layout, nqueues, nslots) < 0)
		return gantry_err_set(err, -EINVAL, "a ledger of %u queues of %u slots", nqueues,
				      nslots);
	hdr.queues_off = layout.queues_off;
	hdr.objects_off = layout.objects_off;
	hdr.tasks_off = layout.tasks_off;
	hdr.ledger_bytes = layout.bytes;
	(void)gantry_str_copy(hdr.tenant, sizeof(hdr.tenant), tenant ? tenant : "");
	/* What the next one to open it would refuse is not made. A name cut short is: then it differs. */
	r = check_header(&hdr, layout.bytes, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "making a ledger");
	if (strcmp(hdr.tenant, tenant) != 0)
		return gantry_err_set(err, -EINVAL, "making a ledger: tenant name is too long");

	r = gantry_memfd_create("gantry-ledger", layout.bytes, GANTRY_MEMFD_SEALED, &fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "making a ledger of %" PRIu64 " bytes",
					    layout.bytes);
	r = map_ledger(fd, layout.bytes, &base, err);
	if (r < 0)
		return r;
	memcpy(base, &hdr, sizeof(hdr));
	ledger_init(ret_ledger, base, &layout);
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

/* The size is known only from the file: bounded by the greatest shape before anything is mapped. */
static int ledger_fd_bytes(int fd, uint64_t *ret_bytes, struct gantry_err *err)
{
	struct stat st;
	uint64_t bytes;
	int r;

	r = gantry_memfd_check(fd, sizeof(struct gantry_ledger_header));
	if (r < 0)
		return gantry_err_set_errno(err, r, "looking at a ledger's descriptor");
	if (fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "asking for a ledger's size");
	bytes = (uint64_t)st.st_size;
	if (bytes > gantry_ledger_bytes(GANTRY_MAX_QUEUES, GANTRY_MAX_SLOTS))
		return gantry_err_set(err, -EINVAL, "%" PRIu64 " bytes are no ledger", bytes);
	*ret_bytes = bytes;
	return 0;
}

int gantry_ledger_open(int fd, struct gantry_ledger *ret_ledger, struct gantry_err *err)
{
	const struct gantry_ledger_header *hdr;
	struct layout layout;
	uint64_t bytes = 0;
	void *base = NULL;
	int r;

	r = ledger_fd_bytes(fd, &bytes, err);
	if (r < 0)
		return r;
	r = map_ledger(fd, bytes, &base, err);
	if (r < 0)
		return r;
	r = gantry_ledger_check(base, bytes, err);
	if (r < 0)
		goto unmap;
	hdr = base;
	/* Not yet fenced, the last owner may still write: the pointers depend on nothing unchecked. */
	r = layout_init(&layout, hdr->nqueues, hdr->nslots);
	if (r < 0 || layout.bytes != bytes) {
		r = gantry_err_set(err, -EINVAL, "the ledger changed while it was read");
		goto unmap;
	}
	ledger_init(ret_ledger, base, &layout);
	return 0;

unmap:
	(void)munmap(base, bytes); /* fails only for an address that is not ours */
	return r;
}

void gantry_ledger_close(struct gantry_ledger *ledger)
{
	if (!ledger || !ledger->hdr)
		return;
	(void)munmap(ledger->hdr, ledger->bytes); /* fails only for an address that is not ours */
	memset(ledger, 0, sizeof(*ledger));
}
