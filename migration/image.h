/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image of a session: all that another host needs to go on with it, as a stream of records. IMAGE.md is the
 * format's text.
 *
 * Trust: the reader's input may be anyone's. Each record is bounded, whole and summed before a sink sees it (but for pages in pieces); its
 * ranges lie inside what the session record announced. What a sink gets of the ledger is checked as a ledger is
 * (gantry_ledger_check()), by whoever puts the ledger together, once all of it is there.
 * Threads: an object belongs to one. Blocking: the writer as its write() does; the reader never.
 * Order: the writer's calls as in the format; gantry_image_read() until ->ended.
 */
#ifndef GANTRY_MIGRATION_IMAGE_H
#define GANTRY_MIGRATION_IMAGE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "migration/ledger.h"

#define GANTRY_IMAGE_MAGIC	 0x31454741494e5447ull
#define GANTRY_IMAGE_VERSION	 1u
#define GANTRY_IMAGE_VERSION_MIN 1u	      /* the oldest reader that understands what we write */
#define GANTRY_IMAGE_CHUNK	 (256u << 10) /* most payload of one record */
#define GANTRY_IMAGE_NDEVICES	 8u

struct gantry_image_header {
	uint64_t magic;
	uint32_t version;
	uint32_t version_min;
	uint32_t record_bytes; /* of each record's head */
	uint32_t page_bytes;
	uint64_t reserved;
};
static_assert(sizeof(struct gantry_image_header) == 32, "image format");

enum gantry_image_type {
	GANTRY_IMAGE_SESSION = 1, /* struct gantry_image_session; first, once */
	GANTRY_IMAGE_QUEUES = 2,  /* struct gantry_image_queue each */
	GANTRY_IMAGE_OBJECTS = 3, /* struct gantry_image_object each */
	GANTRY_IMAGE_TASKS = 4,	  /* at: queue; struct gantry_image_task each */
	GANTRY_IMAGE_PAGES = 5,	  /* at: place; whole pages */
	GANTRY_IMAGE_ZERO = 6,	  /* at: place; struct gantry_image_zero: pages that are all zero */
	GANTRY_IMAGE_ROUND = 7,	  /* at: number; what follows is newer than what came before */
	GANTRY_IMAGE_END = 8,	  /* at: records before it; last, once */
};

/* A reader that does not know the type passes over the record. All types above lack it. */
#define GANTRY_IMAGE_OPTIONAL 1u

struct gantry_image_record {
	uint32_t type;
	uint32_t flags;
	uint64_t at;
	uint64_t payload_bytes;
	uint64_t sum; /* of the head with 0 here, and of the payload: gantry_image_sum() */
};
static_assert(sizeof(struct gantry_image_record) == 32, "image format");

enum gantry_image_region {
	GANTRY_IMAGE_SEGMENT = 0,
	GANTRY_IMAGE_SLAB = 1,
	GANTRY_IMAGE_STORE = 2, /* of the guest's own kernel images */
	GANTRY_IMAGE_NREGIONS,
};

/* Where pages lie: region and byte offset in it. */
#define GANTRY_IMAGE_PLACE(region, off) ((uint64_t)(region) << 56 | (off))
#define GANTRY_IMAGE_PLACE_REGION(at)	((uint32_t)((at) >> 56))
#define GANTRY_IMAGE_PLACE_OFF(at)	((at) & ((1ull << 56) - 1))

/* A device that the session may use; its index is the one that queues and buffers name. */
struct gantry_image_device {
	char name[32];
	uint32_t kind; /* GANTRY_KIND_*; 0: not known */
	uint32_t reserved;
};

#define GANTRY_IMAGE_RELAYED 1u /* its guest is behind a stream and comes back with the nonce */
#define GANTRY_IMAGE_KEYED \
	2u /* its guest shares memory: a program adopts it that has its key, the nonce */
#define GANTRY_IMAGE_SEATED \
	4u /* its guest comes along with its machine, and its rings go on where they are; the nonce is its key with KEYED too, else nobody's */

/* Without SEATED: pages of the slab are fetched later (mover/pull.c), but for those of buffers that go ahead. */
#define GANTRY_IMAGE_LAZY 8u

struct gantry_image_session {
	uint32_t ledger_version; /* of queue, object and task records */
	uint32_t wire_version;
	uint32_t nqueues;
	uint32_t nslots;
	uint64_t segment_bytes;
	uint64_t slab_bytes;
	uint64_t store_bytes; /* 0: no images of its own */
	uint64_t virtual_bytes;
	uint64_t mem_bytes;
	uint64_t session_id; /* as its guest knows it */
	uint64_t epoch;
	uint64_t resident_bytes; /* charged for buffers now: what the destination has to have */
	uint64_t attached_unix_ns;
	uint32_t
		flags; /* GANTRY_IMAGE_RELAYED, or GANTRY_IMAGE_KEYED and GANTRY_IMAGE_SEATED; GANTRY_IMAGE_LAZY */
	uint32_t inflight;
	uint8_t nonce[16];
	uint8_t token[16]; /* names this hand-over */
	char tenant[32];
	char program[32];
	char host[64]; /* where it comes from, for people */
	uint32_t ndevices;
	uint32_t reserved;
	struct gantry_image_device devices[GANTRY_IMAGE_NDEVICES];
};
static_assert(sizeof(struct gantry_image_session) == 584, "image format");

struct gantry_image_queue {
	uint32_t slot;
	uint32_t reserved;
	struct gantry_ledger_queue queue;
};
static_assert(sizeof(struct gantry_image_queue) == 200, "image format");

struct gantry_image_object {
	uint32_t slot;
	uint32_t reserved;
	struct gantry_ledger_object object;
};
static_assert(sizeof(struct gantry_image_object) == 136, "image format");

struct gantry_image_task {
	uint64_t pos;
	struct gantry_ledger_task task;
};
static_assert(sizeof(struct gantry_image_task) == 264, "image format");

struct gantry_image_zero {
	uint64_t bytes;
	uint64_t reserved;
};
static_assert(sizeof(struct gantry_image_zero) == 16, "image format");

/* The sum of a record: of its head and of the sums of its payload's pages, in order. */
uint64_t gantry_image_sum(const struct gantry_image_record *record, const void *payload);

/* Of a lazy image: whether the buffer's pages come with it, for it gets memory of its own when it is taken over. */
static inline bool gantry_image_goes_ahead(const struct gantry_ledger_object *o)
{
	return o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
	       o->buffer.place == GANTRY_PLACE_SLAB &&
	       (o->buffer.alloc_flags & GANTRY_ALLOC_SHARED);
}

/* Whether an image with this session can be: shapes, flags, terminated names. 0, -EINVAL, -ENOTSUP: another ledger. */
int gantry_image_session_check(const struct gantry_image_session *s, struct gantry_err *err);

/* ---- writing ---- */

struct gantry_image_writer {
	/* All of it, or -errno, which the call that wrote returns. */
	int (*write)(void *cookie, const void *data, size_t len);
	void *cookie;
	uint64_t nrecords;
	uint64_t nbytes;
};

/* The header, then the session. */
int gantry_image_write_session(struct gantry_image_writer *w, const struct gantry_image_session *s);
/* @bytes: whole pages, at most GANTRY_IMAGE_CHUNK. @sums: of each page, where they are known; else NULL. */
int gantry_image_write_pages(struct gantry_image_writer *w, uint32_t region, uint64_t off,
			     const void *data, uint32_t bytes, const uint64_t *sums);
int gantry_image_write_zero(struct gantry_image_writer *w, uint32_t region, uint64_t off,
			    uint64_t bytes);
int gantry_image_write_round(struct gantry_image_writer *w, uint32_t number);
/* Queues, objects that are not free, and tasks that are not finished. Nobody else writes @ledger meanwhile. */
int gantry_image_write_ledger(struct gantry_image_writer *w, const struct gantry_ledger *ledger);
int gantry_image_write_end(struct gantry_image_writer *w);

/* ---- reading ---- */

/* Each returns 0, or -errno with a sentence, which ends the reading. What they point to is the reader's. */
struct gantry_image_sink {
	int (*session)(void *cookie, const struct gantry_image_session *s, struct gantry_err *err);
	int (*queue)(void *cookie, uint32_t slot, const struct gantry_ledger_queue *queue,
		     struct gantry_err *err);
	int (*object)(void *cookie, uint32_t slot, const struct gantry_ledger_object *object,
		      struct gantry_err *err);
	int (*task)(void *cookie, uint32_t queue, uint64_t pos,
		    const struct gantry_ledger_task *task, struct gantry_err *err);
	int (*pages)(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		     struct gantry_err *err);
	int (*zero)(void *cookie, uint32_t region, uint64_t off, uint64_t bytes,
		    struct gantry_err *err);
	int (*round)(void *cookie, uint32_t number, struct gantry_err *err);
	/*
	 * Or NULL. Instead of pages(), where nobody can have altered the stream (it came through TLS) and time matters: pages go on
	 * as they come, in order, in pieces of any size, and are not summed; all of a record's place was checked. @data is where
	 * gantry_image_read() was given it. A stream that ends inside a record has left a part of it.
	 */
	int (*piece)(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		     struct gantry_err *err);
};

struct gantry_image_reader {
	const struct gantry_image_sink *sink;
	void *cookie;
	struct gantry_image_session session; /* once has_session */
	bool has_header;
	bool has_session;
	bool ended;
	bool failed; /* for good */
	uint64_t nrecords;
	uint32_t have;	 /* bytes in buf */
	uint64_t passed; /* of the record in buf, in pieces */
	uint8_t *buf;	 /* owned: a head and its payload */
};

/* -ENOMEM. @sink stays where it is. */
int gantry_image_reader_init(struct gantry_image_reader *r, const struct gantry_image_sink *sink,
			     void *cookie);
void gantry_image_reader_fini(struct gantry_image_reader *r);

/*
 * Takes of @data what belongs to the image; returns how many bytes that were: fewer than @len only once it has
 * ended. -EINVAL, -ENOTSUP (a version that is not ours) or what a sink returned, with a sentence.
 */
int64_t gantry_image_read(struct gantry_image_reader *r, const void *data, size_t len,
			  struct gantry_err *err);

#endif
