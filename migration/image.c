/* SPDX-License-Identifier: Apache-2.0 */
#include "migration/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/str.h"
#include "migration/sum.h"
#include "proto/segment.h"

#define HEAD_BYTES sizeof(struct gantry_image_record)
#define ROUNDS_MAX 1000u

/* ---- both ---- */

/* The head's words and the pages' sums, folded in order. */
static uint64_t fold(const struct gantry_image_record *record, const uint64_t *sums, size_t nsums)
{
	struct gantry_image_record head = *record;
	uint64_t words[2];

	head.sum = 0;
	words[0] = gantry_sum64(&head, sizeof(head));
	for (size_t i = 0; i < nsums; i++) {
		words[1] = sums[i];
		words[0] = gantry_sum64(words, sizeof(words));
	}
	return words[0];
}

static size_t page_sums(const void *payload, size_t bytes, uint64_t *sums)
{
	const uint8_t *p = payload;
	size_t n = 0;

	for (size_t at = 0; at < bytes; at += GANTRY_PAGE)
		sums[n++] = gantry_sum64(p + at, GANTRY_MIN(bytes - at, (size_t)GANTRY_PAGE));
	return n;
}

uint64_t gantry_image_sum(const struct gantry_image_record *record, const void *payload)
{
	uint64_t sums[GANTRY_IMAGE_CHUNK / GANTRY_PAGE];
	size_t n = page_sums(payload, record->payload_bytes, sums);

	return fold(record, sums, n);
}

static bool is_terminated(const char *text, size_t cap)
{
	return memchr(text, '\0', cap) != NULL;
}

static int check_devices(const struct gantry_image_session *s, struct gantry_err *err)
{
	if (s->ndevices > GANTRY_IMAGE_NDEVICES)
		return gantry_err_set(err, -EINVAL, "a session with %u devices", s->ndevices);
	for (uint32_t i = 0; i < s->ndevices; i++) {
		const struct gantry_image_device *d = &s->devices[i];

		if (!gantry_name_valid_bounded(d->name, sizeof(d->name)) ||
		    d->kind >= GANTRY_NKINDS || d->reserved)
			return gantry_err_set(err, -EINVAL, "device %u of the session is none", i);
	}
	return 0;
}

int gantry_image_session_check(const struct gantry_image_session *s, struct gantry_err *err)
{
	struct gantry_segment_layout layout;
	uint32_t way = s->flags & ~GANTRY_IMAGE_LAZY;

	if (s->ledger_version < GANTRY_LEDGER_VERSION_OLDEST ||
	    s->ledger_version > GANTRY_LEDGER_VERSION)
		return gantry_err_set(err, -ENOTSUP,
				      "its ledger has version %u, this host reads %u to %u",
				      s->ledger_version, GANTRY_LEDGER_VERSION_OLDEST,
				      GANTRY_LEDGER_VERSION);
	if (s->wire_version < GANTRY_WIRE_VERSION_MIN || s->wire_version > GANTRY_WIRE_VERSION_MAX)
		return gantry_err_set(err, -ENOTSUP,
				      "its guest speaks protocol version %u, this host %u to %u",
				      s->wire_version, GANTRY_WIRE_VERSION_MIN,
				      GANTRY_WIRE_VERSION_MAX);
	if (gantry_ledger_bytes(s->nqueues, s->nslots) == 0 ||
	    s->segment_bytes > GANTRY_SEGMENT_MAX_BYTES || s->segment_bytes % GANTRY_PAGE ||
	    gantry_segment_layout_of(s->nqueues, s->nslots, s->segment_bytes, &layout) < 0)
		return gantry_err_set(err, -EINVAL, "a session of a shape that none has");
	if (s->slab_bytes > GANTRY_MAX_BUFFER_BYTES || s->slab_bytes % GANTRY_PAGE ||
	    (s->store_bytes != 0 && s->store_bytes != GANTRY_LEDGER_STORE_BYTES))
		return gantry_err_set(err, -EINVAL,
				      "a session with memory of a size that none has");
	if (!gantry_name_valid_bounded(s->tenant, sizeof(s->tenant)) ||
	    !is_terminated(s->program, sizeof(s->program)) ||
	    !is_terminated(s->host, sizeof(s->host)))
		return gantry_err_set(err, -EINVAL, "a session whose names are none");
	/* No guest comes in two ways, and a machine waits for all that its guest has. */
	if (way > (GANTRY_IMAGE_KEYED | GANTRY_IMAGE_SEATED) || s->reserved ||
	    ((way & GANTRY_IMAGE_RELAYED) && way != GANTRY_IMAGE_RELAYED) ||
	    ((way & GANTRY_IMAGE_SEATED) && way != s->flags))
		return gantry_err_set(err, -EINVAL, "a session with an unknown flag");
	return check_devices(s, err);
}

/* ---- writing ---- */

static int put(struct gantry_image_writer *w, const void *data, size_t len)
{
	int r = len ? w->write(w->cookie, data, len) : 0;

	if (r == 0)
		w->nbytes += len;
	return r;
}

static int put_record(struct gantry_image_writer *w, uint32_t type, uint64_t at,
		      const void *payload, size_t bytes, const uint64_t *known)
{
	struct gantry_image_record record = { .type = type, .at = at, .payload_bytes = bytes };
	int r;

	record.sum = known ? fold(&record, known, bytes / GANTRY_PAGE)
			   : gantry_image_sum(&record, payload);
	r = put(w, &record, sizeof(record));
	if (r == 0)
		r = put(w, payload, bytes);
	if (r == 0)
		w->nrecords++;
	return r;
}

int gantry_image_write_session(struct gantry_image_writer *w, const struct gantry_image_session *s)
{
	const struct gantry_image_header header = {
		.magic = GANTRY_IMAGE_MAGIC,
		.version = GANTRY_IMAGE_VERSION,
		.version_min = GANTRY_IMAGE_VERSION_MIN,
		.record_bytes = HEAD_BYTES,
		.page_bytes = GANTRY_PAGE,
	};
	int r = put(w, &header, sizeof(header));

	return r < 0 ? r : put_record(w, GANTRY_IMAGE_SESSION, 0, s, sizeof(*s), NULL);
}

int gantry_image_write_pages(struct gantry_image_writer *w, uint32_t region, uint64_t off,
			     const void *data, uint32_t bytes, const uint64_t *sums)
{
	return put_record(w, GANTRY_IMAGE_PAGES, GANTRY_IMAGE_PLACE(region, off), data, bytes,
			  sums);
}

int gantry_image_write_zero(struct gantry_image_writer *w, uint32_t region, uint64_t off,
			    uint64_t bytes)
{
	const struct gantry_image_zero zero = { .bytes = bytes };

	return put_record(w, GANTRY_IMAGE_ZERO, GANTRY_IMAGE_PLACE(region, off), &zero,
			  sizeof(zero), NULL);
}

int gantry_image_write_round(struct gantry_image_writer *w, uint32_t number)
{
	return put_record(w, GANTRY_IMAGE_ROUND, number, NULL, 0, NULL);
}

int gantry_image_write_end(struct gantry_image_writer *w)
{
	return put_record(w, GANTRY_IMAGE_END, w->nrecords, NULL, 0, NULL);
}

/* Things of one size, as many as go into a record. */
struct batch {
	struct gantry_image_writer *w;
	uint32_t type;
	uint64_t at;
	size_t used;
	uint8_t *buf; /* GANTRY_IMAGE_CHUNK */
};

static int batch_flush(struct batch *b)
{
	int r = b->used ? put_record(b->w, b->type, b->at, b->buf, b->used, NULL) : 0;

	b->used = 0;
	return r;
}

static int batch_add(struct batch *b, const void *item, size_t bytes)
{
	int r = b->used + bytes > GANTRY_IMAGE_CHUNK ? batch_flush(b) : 0;

	if (r < 0)
		return r;
	memcpy(b->buf + b->used, item, bytes);
	b->used += bytes;
	return 0;
}

static int write_queues(struct batch *b, const struct gantry_ledger *ledger)
{
	int r = 0;

	b->type = GANTRY_IMAGE_QUEUES;
	for (uint32_t i = 0; i < ledger->nqueues && r == 0; i++) {
		struct gantry_image_queue q = { .slot = i };

		memcpy(&q.queue, &ledger->queues[i], sizeof(q.queue));
		r = batch_add(b, &q, sizeof(q));
	}
	return r < 0 ? r : batch_flush(b);
}

static int write_objects(struct batch *b, const struct gantry_ledger *ledger)
{
	int r = 0;

	b->type = GANTRY_IMAGE_OBJECTS;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS && r == 0; i++) {
		struct gantry_image_object o = { .slot = i };

		/* A slot's generation lives on when it is free. */
		if (ledger->objects[i].state == GANTRY_OBJECT_FREE && ledger->objects[i].gen == 0)
			continue;
		memcpy(&o.object, &ledger->objects[i], sizeof(o.object));
		r = batch_add(b, &o, sizeof(o));
	}
	return r < 0 ? r : batch_flush(b);
}

static int write_tasks(struct batch *b, const struct gantry_ledger *ledger)
{
	int r = 0;

	b->type = GANTRY_IMAGE_TASKS;
	for (uint32_t i = 0; i < ledger->nqueues && r == 0; i++) {
		uint64_t done = ledger->queues[i].done;
		uint64_t n = ledger->queues[i].taken - done;

		b->at = i;
		for (uint64_t k = 0; k < n && k < ledger->nslots && r == 0; k++) {
			struct gantry_image_task t = { .pos = done + k };

			memcpy(&t.task, gantry_ledger_task(ledger, i, done + k), sizeof(t.task));
			r = batch_add(b, &t, sizeof(t));
		}
		r = r < 0 ? r : batch_flush(b);
	}
	return r;
}

int gantry_image_write_ledger(struct gantry_image_writer *w, const struct gantry_ledger *ledger)
{
	struct batch b = { .w = w, .buf = malloc(GANTRY_IMAGE_CHUNK) };
	int r = b.buf ? write_queues(&b, ledger) : -ENOMEM;

	b.at = 0;
	r = r < 0 ? r : write_objects(&b, ledger);
	r = r < 0 ? r : write_tasks(&b, ledger);
	free(b.buf);
	return r;
}

/* ---- reading ---- */

int gantry_image_reader_init(struct gantry_image_reader *r, const struct gantry_image_sink *sink,
			     void *cookie)
{
	*r = (struct gantry_image_reader){ .sink = sink, .cookie = cookie };
	r->buf = malloc(HEAD_BYTES + GANTRY_IMAGE_CHUNK);
	return r->buf ? 0 : -ENOMEM;
}

void gantry_image_reader_fini(struct gantry_image_reader *r)
{
	free(r->buf);
	r->buf = NULL;
}

static int take_header(const uint8_t *data, struct gantry_err *err)
{
	struct gantry_image_header h;

	memcpy(&h, data, sizeof(h));
	if (h.magic != GANTRY_IMAGE_MAGIC)
		return gantry_err_set(err, -EINVAL, "this is no image of a session");
	if (h.version_min > GANTRY_IMAGE_VERSION || h.version < h.version_min)
		return gantry_err_set(
			err, -ENOTSUP,
			"an image of version %u for readers from %u on; this one is %u", h.version,
			h.version_min, GANTRY_IMAGE_VERSION);
	if (h.record_bytes != HEAD_BYTES || h.page_bytes != GANTRY_PAGE || h.reserved)
		return gantry_err_set(err, -EINVAL, "the image's header makes no sense");
	return 0;
}

static uint64_t region_bytes(const struct gantry_image_session *s, uint32_t region)
{
	switch (region) {
	case GANTRY_IMAGE_SEGMENT:
		return s->segment_bytes;
	case GANTRY_IMAGE_SLAB:
		return s->slab_bytes;
	case GANTRY_IMAGE_STORE:
		return s->store_bytes;
	default:
		return 0;
	}
}

static int check_place(const struct gantry_image_reader *r, uint64_t at, uint64_t bytes,
		       struct gantry_err *err)
{
	uint64_t off = GANTRY_IMAGE_PLACE_OFF(at);

	if (bytes == 0 || off % GANTRY_PAGE || bytes % GANTRY_PAGE ||
	    !gantry_range_inside(off, bytes,
				 region_bytes(&r->session, GANTRY_IMAGE_PLACE_REGION(at))))
		return gantry_err_set(err, -EINVAL,
				      "%" PRIu64 " bytes at %" PRIu64 " of region %u are nowhere",
				      bytes, off, GANTRY_IMAGE_PLACE_REGION(at));
	return 0;
}

static int take_session(struct gantry_image_reader *r, const struct gantry_image_record *rec,
			const uint8_t *payload, struct gantry_err *err)
{
	int status;

	if (r->has_session)
		return gantry_err_set(err, -EINVAL, "a second session in one image");
	if (rec->payload_bytes != sizeof(r->session))
		return gantry_err_set(err, -EINVAL, "a session record of %" PRIu64 " bytes",
				      rec->payload_bytes);
	memcpy(&r->session, payload, sizeof(r->session));
	status = gantry_image_session_check(&r->session, err);
	if (status < 0)
		return status;
	r->has_session = true;
	return r->sink->session(r->cookie, &r->session, err);
}

static int bad_slot(struct gantry_err *err, const char *what, uint64_t slot)
{
	return gantry_err_set(err, -EINVAL, "%s %" PRIu64 ": the session has none such", what,
			      slot);
}

static int take_queue(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		      const uint8_t *item, struct gantry_err *err)
{
	struct gantry_image_queue q;

	(void)rec;
	memcpy(&q, item, sizeof(q));
	if (q.slot >= r->session.nqueues || q.reserved)
		return bad_slot(err, "queue", q.slot);
	return r->sink->queue(r->cookie, q.slot, &q.queue, err);
}

static int take_object(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		       const uint8_t *item, struct gantry_err *err)
{
	struct gantry_image_object o;

	(void)rec;
	memcpy(&o, item, sizeof(o));
	if (o.slot >= GANTRY_LEDGER_NOBJECTS || o.reserved)
		return bad_slot(err, "object", o.slot);
	return r->sink->object(r->cookie, o.slot, &o.object, err);
}

static int take_task(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		     const uint8_t *item, struct gantry_err *err)
{
	struct gantry_image_task t;

	memcpy(&t, item, sizeof(t));
	if (rec->at >= r->session.nqueues)
		return bad_slot(err, "tasks of queue", rec->at);
	return r->sink->task(r->cookie, (uint32_t)rec->at, t.pos, &t.task, err);
}

static int take_pages(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		      const uint8_t *payload, struct gantry_err *err)
{
	int status = check_place(r, rec->at, rec->payload_bytes, err);

	return status < 0 ? status
			  : r->sink->pages(r->cookie, GANTRY_IMAGE_PLACE_REGION(rec->at),
					   GANTRY_IMAGE_PLACE_OFF(rec->at), payload,
					   rec->payload_bytes, err);
}

static int take_zero(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		     const uint8_t *payload, struct gantry_err *err)
{
	struct gantry_image_zero zero;
	int status;

	if (rec->payload_bytes != sizeof(zero))
		return gantry_err_set(err, -EINVAL, "a record of zero pages that is none");
	memcpy(&zero, payload, sizeof(zero));
	status = check_place(r, rec->at, zero.bytes, err);
	if (status < 0 || zero.reserved)
		return status < 0 ? status : gantry_err_set(err, -EINVAL, "an unknown field");
	return r->sink->zero(r->cookie, GANTRY_IMAGE_PLACE_REGION(rec->at),
			     GANTRY_IMAGE_PLACE_OFF(rec->at), zero.bytes, err);
}

static int take_round(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		      const uint8_t *payload, struct gantry_err *err)
{
	(void)payload;
	if (rec->payload_bytes || rec->at > ROUNDS_MAX)
		return gantry_err_set(err, -EINVAL, "a round that is none");
	return r->sink->round(r->cookie, (uint32_t)rec->at, err);
}

static int take_end(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		    const uint8_t *payload, struct gantry_err *err)
{
	(void)payload;
	if (rec->payload_bytes || rec->at != r->nrecords)
		return gantry_err_set(err, -EINVAL,
				      "the image's end counts %" PRIu64 " records, %" PRIu64
				      " came",
				      rec->at, r->nrecords);
	r->ended = true;
	return 0;
}

/* What a type takes: the whole payload, or items of one size. */
static const struct {
	size_t item_bytes; /* 0: the whole */
	int (*take)(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		    const uint8_t *payload, struct gantry_err *err);
} types[] = {
	[GANTRY_IMAGE_SESSION] = { 0, take_session },
	[GANTRY_IMAGE_QUEUES] = { sizeof(struct gantry_image_queue), take_queue },
	[GANTRY_IMAGE_OBJECTS] = { sizeof(struct gantry_image_object), take_object },
	[GANTRY_IMAGE_TASKS] = { sizeof(struct gantry_image_task), take_task },
	[GANTRY_IMAGE_PAGES] = { 0, take_pages },
	[GANTRY_IMAGE_ZERO] = { 0, take_zero },
	[GANTRY_IMAGE_ROUND] = { 0, take_round },
	[GANTRY_IMAGE_END] = { 0, take_end },
};

static bool is_known(uint32_t type)
{
	return type < GANTRY_ARRAY_SIZE(types) && types[type].take;
}

static int take_items(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		      const uint8_t *payload, struct gantry_err *err)
{
	size_t bytes = types[rec->type].item_bytes;
	int status = 0;

	if (rec->payload_bytes == 0 || rec->payload_bytes % bytes)
		return gantry_err_set(err, -EINVAL, "a record of type %u with %" PRIu64 " bytes",
				      rec->type, rec->payload_bytes);
	for (uint64_t at = 0; at < rec->payload_bytes && status == 0; at += bytes)
		status = types[rec->type].take(r, rec, payload + at, err);
	return status;
}

static int check_head(const struct gantry_image_reader *r, const struct gantry_image_record *rec,
		      struct gantry_err *err)
{
	if (rec->payload_bytes > GANTRY_IMAGE_CHUNK)
		return gantry_err_set(err, -EINVAL, "a record of %" PRIu64 " bytes",
				      rec->payload_bytes);
	if (rec->flags & ~GANTRY_IMAGE_OPTIONAL)
		return gantry_err_set(err, -EINVAL, "a record with unknown flags");
	if (!is_known(rec->type) && !(rec->flags & GANTRY_IMAGE_OPTIONAL))
		return gantry_err_set(err, -ENOTSUP,
				      "a record of type %u, which this reader does not know",
				      rec->type);
	if (!r->has_session && rec->type != GANTRY_IMAGE_SESSION)
		return gantry_err_set(err, -EINVAL, "a record before the session");
	return 0;
}

static int take_record(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		       struct gantry_err *err)
{
	const uint8_t *payload = r->buf + HEAD_BYTES;
	int status;

	if (gantry_image_sum(rec, payload) != rec->sum)
		return gantry_err_set(err, -EINVAL,
				      "record %" PRIu64 " is damaged: its sum is wrong",
				      r->nrecords);
	if (!is_known(rec->type))
		status = 0;
	else if (types[rec->type].item_bytes)
		status = take_items(r, rec, payload, err);
	else
		status = types[rec->type].take(r, rec, payload, err);
	r->nrecords++;
	return status;
}

/* How many bytes have to be in buf before there is something to do. */
static int64_t wanted(const struct gantry_image_reader *r, struct gantry_image_record *ret_rec,
		      struct gantry_err *err)
{
	int status;

	if (!r->has_header)
		return sizeof(struct gantry_image_header);
	if (r->have < HEAD_BYTES)
		return HEAD_BYTES;
	memcpy(ret_rec, r->buf, HEAD_BYTES);
	status = check_head(r, ret_rec, err);
	return status < 0 ? status : (int64_t)(HEAD_BYTES + ret_rec->payload_bytes);
}

/* Of a record of pages whose head is in buf: what of it is at @data. */
static int pass_on(struct gantry_image_reader *r, const struct gantry_image_record *rec,
		   const uint8_t *data, size_t len, size_t *ret_n, struct gantry_err *err)
{
	size_t n = GANTRY_MIN((size_t)(rec->payload_bytes - r->passed), len);
	int status = r->passed ? 0 : check_place(r, rec->at, rec->payload_bytes, err);

	if (status == 0)
		status = r->sink->piece(r->cookie, GANTRY_IMAGE_PLACE_REGION(rec->at),
					GANTRY_IMAGE_PLACE_OFF(rec->at) + r->passed, data, n, err);
	r->passed += n;
	*ret_n = n;
	if (r->passed < rec->payload_bytes)
		return status;
	r->passed = 0;
	r->have = 0;
	r->nrecords++;
	return status;
}

static int read_some(struct gantry_image_reader *r, const uint8_t *data, size_t len, size_t *ret_n,
		     struct gantry_err *err)
{
	struct gantry_image_record rec = { 0 };
	int64_t want = wanted(r, &rec, err);
	size_t n;
	int status = 0;

	if (want < 0)
		return (int)want;
	if (r->sink->piece && rec.type == GANTRY_IMAGE_PAGES && rec.payload_bytes > 0)
		return pass_on(r, &rec, data, len, ret_n, err);
	n = GANTRY_MIN((size_t)want - r->have, len);
	memcpy(r->buf + r->have, data, n);
	r->have += (uint32_t)n;
	*ret_n = n;
	if (r->have < (size_t)want)
		return 0;
	if (!r->has_header) {
		status = take_header(r->buf, err);
		r->has_header = true;
		r->have = 0;
		return status;
	}
	if (n > 0 && r->have == HEAD_BYTES) { /* the head is whole; the payload is asked for next */
		memcpy(&rec, r->buf, HEAD_BYTES);
		status = check_head(r, &rec, err);
		if (status < 0 || rec.payload_bytes > 0)
			return status;
	}
	r->have = 0;
	return take_record(r, &rec, err);
}

int64_t gantry_image_read(struct gantry_image_reader *r, const void *data, size_t len,
			  struct gantry_err *err)
{
	const uint8_t *bytes = data;
	size_t used = 0;

	if (r->failed)
		return gantry_err_set(err, -EINVAL, "the image was refused before");
	while (used < len && !r->ended) {
		size_t n = 0;
		int status = read_some(r, bytes + used, len - used, &n, err);

		if (status < 0) {
			r->failed = true;
			return status;
		}
		used += n;
	}
	return (int64_t)used;
}
