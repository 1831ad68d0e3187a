/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte with bits: 1: a good session comes first, so that the rest is records; 2: their sums are set right.
 * Then a byte that says in what pieces, then the image, or its records.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "migration/image.h"
#include "proto/segment.h"
#include "tests/fuzz/fuzz.h"

#define CAPACITY (1u << 16)

static uint8_t stream[CAPACITY];
static size_t nstream;
static struct gantry_image_session session;
static bool has_session;

static int to_stream(void *cookie, const void *data, size_t len)
{
	(void)cookie;
	len = GANTRY_MIN(len, CAPACITY - nstream);
	memcpy(stream + nstream, data, len);
	nstream += len;
	return 0;
}

static void add_session(void)
{
	struct gantry_image_writer w = { .write = to_stream };
	struct gantry_segment_layout layout;
	const struct gantry_image_session s = {
		.ledger_version = GANTRY_LEDGER_VERSION,
		.wire_version = 1,
		.nqueues = 4,
		.nslots = 16,
		.segment_bytes = 4 << 20,
		.slab_bytes = 1 << 20,
		.tenant = "fuzz",
	};

	if (gantry_segment_layout_of(4, 16, 4 << 20, &layout) < 0)
		abort();
	(void)gantry_image_write_session(&w, &s);
}

/* Of each whole record from @at on. */
static void sum_again(size_t at)
{
	struct gantry_image_record rec;

	while (at + sizeof(rec) <= nstream) {
		memcpy(&rec, stream + at, sizeof(rec));
		if (rec.payload_bytes > nstream - at - sizeof(rec))
			return;
		rec.sum = gantry_image_sum(&rec, stream + at + sizeof(rec));
		memcpy(stream + at, &rec, sizeof(rec));
		at += sizeof(rec) + rec.payload_bytes;
	}
}

/* ---- what a sink may count on ---- */

static int on_session(void *cookie, const struct gantry_image_session *s, struct gantry_err *err)
{
	(void)cookie;
	assert(!has_session);
	assert(gantry_image_session_check(s, err) == 0);
	session = *s;
	has_session = true;
	return 0;
}

static int on_queue(void *cookie, uint32_t slot, const struct gantry_ledger_queue *queue,
		    struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	assert(has_session && queue && slot < session.nqueues);
	return 0;
}

static int on_object(void *cookie, uint32_t slot, const struct gantry_ledger_object *object,
		     struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	assert(has_session && object && slot < GANTRY_LEDGER_NOBJECTS);
	return 0;
}

static int on_task(void *cookie, uint32_t queue, uint64_t pos,
		   const struct gantry_ledger_task *task, struct gantry_err *err)
{
	(void)cookie;
	(void)pos;
	(void)err;
	assert(has_session && task && queue < session.nqueues);
	return 0;
}

static void check_range(uint32_t region, uint64_t off, uint64_t bytes)
{
	const uint64_t sizes[] = { session.segment_bytes, session.slab_bytes, session.store_bytes };

	assert(has_session && region < GANTRY_IMAGE_NREGIONS && bytes > 0);
	assert(off % GANTRY_PAGE == 0 && bytes % GANTRY_PAGE == 0);
	assert(off <= sizes[region] && bytes <= sizes[region] - off);
}

static int on_pages(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		    struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	check_range(region, off, bytes);
	assert(data && bytes <= GANTRY_IMAGE_CHUNK);
	return 0;
}

static int on_zero(void *cookie, uint32_t region, uint64_t off, uint64_t bytes,
		   struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	check_range(region, off, bytes);
	return 0;
}

static int on_round(void *cookie, uint32_t number, struct gantry_err *err)
{
	(void)cookie;
	(void)number;
	(void)err;
	assert(has_session);
	return 0;
}

/* Pages that go on as they come: they lie in what was read, and one behind the other in their place. */
static int on_piece(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		    struct gantry_err *err)
{
	const uint64_t sizes[] = { session.segment_bytes, session.slab_bytes, session.store_bytes };
	const uint8_t *p = data;

	(void)cookie;
	(void)err;
	assert(has_session && region < GANTRY_IMAGE_NREGIONS && bytes > 0);
	assert(off <= sizes[region] && bytes <= sizes[region] - off);
	assert(p >= stream && p + bytes <= stream + nstream);
	return 0;
}

static void read_all(size_t step, bool in_pieces)
{
	const struct gantry_image_sink sink = {
		.session = on_session,
		.queue = on_queue,
		.object = on_object,
		.task = on_task,
		.pages = in_pieces ? NULL : on_pages,
		.piece = in_pieces ? on_piece : NULL,
		.zero = on_zero,
		.round = on_round,
	};
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_image_reader r;
	int64_t n = 0;

	has_session = false;
	if (gantry_image_reader_init(&r, &sink, NULL) < 0)
		abort();
	for (size_t at = 0; at < nstream && !r.ended; at += (size_t)n) {
		size_t len = GANTRY_MIN(step, nstream - at);

		n = gantry_image_read(&r, stream + at, len, &err);
		if (n < 0) {
			assert(err.text[0]);
			break;
		}
		assert((size_t)n == len || r.ended);
	}
	gantry_image_reader_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	uint8_t how = fuzz_u8(&in);
	size_t step = (size_t)fuzz_u8(&in) * 16 + 1;
	size_t first = sizeof(struct gantry_image_header);

	nstream = 0;
	if (how & 1) {
		add_session();
		first = nstream;
	}
	(void)to_stream(NULL, in.data, in.len);
	if (how & 2)
		sum_again(first);
	read_all(step, how & 4);
	return 0;
}
