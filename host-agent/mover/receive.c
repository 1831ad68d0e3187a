/* SPDX-License-Identifier: Apache-2.0 */
/* The destination: an image into memory that our agent gave us, then the two words of the hand-over. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/thread.h"
#include "host-agent/mover/mover.h"
#include "host-agent/mover/store.h"

#define ANSWER_NS (30 * GANTRY_NS_PER_S)
#define SILENCE_NS \
	(3600 *    \
	 GANTRY_NS_PER_S) /* a source waits for a task of the session to end, or for its machine */
#define LET_END_NS  (500 * GANTRY_NS_PER_MS)
#define DRAIN_BYTES (64u << 10)
/* A look at what the slab has, so often; what is on its way to it is more than is seen, and pages may come in large ones. */
#define COUNT_EVERY (1u << 20)
#define COUNT_SPARE (4u << 20)
#define LOOK_EVERY  (1u << 20) /* bytes between looks at the agent while there are always more */

struct receiver {
	struct gantry_mover *m;
	struct gantry_image_reader reader;
	struct gantry_store *store;  /* between the reader and the memory */
	struct gantry_ledger ledger; /* the agent's, to be filled in; it checks it afterwards */
	uint8_t *map[GANTRY_IMAGE_NREGIONS];
	uint64_t bytes[GANTRY_IMAGE_NREGIONS];
	int fds[GANTRY_IMAGE_NREGIONS];
	uint64_t pages_max; /* bytes of the slab that may be there */
	uint64_t since_count;
	bool only_asked; /* the other side wants no more than an answer */
	bool accepted;
	uint8_t dropped[DRAIN_BYTES]; /* what nobody wants any more */
};

/* ---- where it goes ---- */

static int map_regions(struct receiver *r, const struct gantry_image_session *s,
		       struct gantry_err *err)
{
	const int *fds = r->m->fds;
	const int of_region[] = { fds[0], fds[1], r->m->nfds > 3 ? fds[3] : -EBADF };
	const uint64_t bytes[] = { s->segment_bytes, s->slab_bytes, s->store_bytes };

	if (r->m->nfds < 3 || (s->store_bytes && r->m->nfds < 4))
		return gantry_err_set(err, -EBADF, "the agent gave no memory");
	for (uint32_t i = 0; i < GANTRY_IMAGE_NREGIONS; i++) {
		void *map;

		if (bytes[i] == 0)
			continue;
		if (gantry_memfd_check(of_region[i], bytes[i]) < 0)
			return gantry_err_set(err, -EINVAL, "the agent gave too little memory");
		map = mmap(NULL, bytes[i], PROT_READ | PROT_WRITE, MAP_SHARED, of_region[i], 0);
		if (map == MAP_FAILED)
			return gantry_err_set_errno(err, -errno, "mapping the session's memory");
		r->map[i] = map;
		r->bytes[i] = bytes[i];
		r->fds[i] = of_region[i];
	}
	return gantry_ledger_open(fds[2], &r->ledger, err);
}

/* The agent decides whether it takes the session, and the other side hears which. */
static int take_session(void *cookie, const struct gantry_image_session *s, struct gantry_err *err)
{
	static const uint32_t accept[] = { GANTRY_MOVER_ACCEPT, 0 };
	struct receiver *r = cookie;
	struct gantry_mover_session told;
	struct gantry_mover_msg msg;
	int status;

	gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_SESSION);
	gantry_mover_init(&told.msg, GANTRY_MOVER_SESSION);
	told.session = *s;
	gantry_mover_tell(r->m, &told.msg, sizeof(told));
	if (gantry_mover_hear(r->m, &msg, accept, ANSWER_NS) != 0)
		return gantry_err_set(err, -ECANCELED, "%s",
				      r->m->err.text[0] ? r->m->err.text : "no answer");
	r->pages_max = msg.value[0];
	status = map_regions(r, s, err);
	if (status < 0)
		return status;
	if (gantry_mover_say(r->m, GANTRY_MOVER_ACCEPTED, s->token, 0, NULL) < 0)
		return -ECONNRESET;
	r->accepted = true;
	return 0;
}

static int no_memory(struct gantry_err *err, int status)
{
	return gantry_err_set_errno(err, status, "memory for the session's pages");
}

/*
 * The slab is address space, of which a session uses a part: what has pages is memory of this host, and the ledger, by which that
 * is charged, comes last.
 */
static int count_pages(struct receiver *r, uint64_t bytes, struct gantry_err *err)
{
	struct stat st;

	r->since_count += bytes;
	if (r->since_count < COUNT_EVERY)
		return 0;
	r->since_count = 0;
	if (fstat(r->fds[GANTRY_IMAGE_SLAB], &st) < 0)
		return gantry_err_set_errno(err, -errno, "counting the session's pages");
	if ((uint64_t)st.st_blocks * 512 <= r->pages_max + COUNT_SPARE)
		return 0;
	return gantry_err_set(err, -EDQUOT,
			      "more pages come than the session may have there: its tenant's mem");
}

static int take_piece(void *cookie, uint32_t region, uint64_t off, const void *data, uint64_t bytes,
		      struct gantry_err *err)
{
	struct receiver *r = cookie;
	int status;

	if (region == GANTRY_IMAGE_SEGMENT && off < GANTRY_PAGE)
		return gantry_err_set(err, -EINVAL, "the segment's header is not the guest's");
	gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_PAGES);
	/* Inside: the reader checked. Written to the file, a page that is new is neither cleared first nor mapped here. */
	status = gantry_store_add(r->store, r->fds[region], off, data, bytes);
	if (status < 0)
		return no_memory(err, status);
	return region == GANTRY_IMAGE_SLAB ? count_pages(r, bytes, err) : 0;
}

static int take_zero(void *cookie, uint32_t region, uint64_t off, uint64_t bytes,
		     struct gantry_err *err)
{
	struct receiver *r = cookie;
	int status;

	if (region == GANTRY_IMAGE_SEGMENT && off == 0)
		return gantry_err_set(err, -EINVAL, "the segment's header is not the guest's");
	status = gantry_store_drain(
		r->store); /* older contents of these pages may still be on their way */
	if (status < 0)
		return no_memory(err, status);
	/* What was never written is zero; back to the kernel with the rest. */
	if (madvise(r->map[region] + off, bytes, MADV_REMOVE) < 0)
		memset(r->map[region] + off, 0, bytes);
	return 0;
}

static int take_queue(void *cookie, uint32_t slot, const struct gantry_ledger_queue *queue,
		      struct gantry_err *err)
{
	struct receiver *r = cookie;

	(void)err;
	memcpy(&r->ledger.queues[slot], queue, sizeof(*queue));
	return 0;
}

static int take_object(void *cookie, uint32_t slot, const struct gantry_ledger_object *object,
		       struct gantry_err *err)
{
	struct receiver *r = cookie;

	(void)err;
	memcpy(&r->ledger.objects[slot], object, sizeof(*object));
	return 0;
}

static int take_task(void *cookie, uint32_t queue, uint64_t pos,
		     const struct gantry_ledger_task *task, struct gantry_err *err)
{
	struct receiver *r = cookie;

	(void)err;
	memcpy(gantry_ledger_task(&r->ledger, queue, pos), task, sizeof(*task));
	return 0;
}

static int take_round(void *cookie, uint32_t number, struct gantry_err *err)
{
	(void)cookie;
	(void)number;
	(void)err;
	return 0;
}

static const struct gantry_image_sink sink = {
	.session = take_session,
	.queue = take_queue,
	.object = take_object,
	.task = take_task,
	.piece = take_piece,
	.zero = take_zero,
	.round = take_round,
};

/* ---- the image ---- */

/* What is on its way is taken and dropped, or the end of our socket would overtake our word. */
static void let_end(struct receiver *r)
{
	uint64_t deadline_ns = gantry_now_ns() + LET_END_NS;

	gantry_tls_watch(r->m->tls, -1); /* the agent has said what it wants */
	while (gantry_tls_recv(r->m->tls, r->dropped, sizeof(r->dropped),
			       gantry_deadline_left_ns(deadline_ns)) > 0 &&
	       !gantry_deadline_passed(deadline_ns))
		;
}

static int refuse(struct receiver *r, int code, const char *text)
{
	char copy[GANTRY_MOVER_TEXT];

	(void)gantry_str_copy(copy, sizeof(copy), text);
	if (gantry_mover_say(r->m, GANTRY_MOVER_REFUSED, NULL, code, copy) == 0)
		let_end(r);
	return gantry_mover_fail(r->m, code, "%s", copy); /* also where nobody heard it */
}

static int refuse_image(struct receiver *r, int64_t status, const struct gantry_err *err)
{
	int code = status == -ECANCELED && r->m->code ? r->m->code
		   : status == -ENOTSUP		      ? 8
		   : status == -EDQUOT		      ? 6
						      : 1;

	return refuse(r, code, err->text);
}

/* All of it is where it belongs. */
static int settle(struct receiver *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int status = gantry_store_drain(r->store);

	return status < 0 ? refuse_image(r, no_memory(&err, status), &err) : 0;
}

/* Whether the agent wants an end. */
static int look_at_agent(struct receiver *r)
{
	return gantry_mover_pause(r->m, 0) < 0 ? refuse(r, r->m->code, r->m->err.text) : 0;
}

/* What came at once: 0, or -1 with the failure set. */
static int take_bytes(struct receiver *r, const void *data, size_t len)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int64_t n = gantry_image_read(&r->reader, data, len, &err);

	if (n >= 0 && (size_t)n < len)
		n = gantry_err_set(&err, -EINVAL, "more came than an image");
	return n < 0 ? refuse_image(r, n, &err) : 0;
}

/* 1: no more is to come. */
static int read_image(struct receiver *r)
{
	uint64_t since_look = 0;
	int status = 0;

	while (!r->reader.ended && status == 0) {
		struct gantry_tls_packet *packet;
		const void *data;
		int64_t n = gantry_tls_recv_packet(r->m->tls, &packet, &data, SILENCE_NS);

		if (n == -ECONNRESET && r->only_asked && r->accepted) {
			gantry_mover_tell_kind(r->m, GANTRY_MOVER_ACCEPTED);
			return 1;
		}
		if (n < 0 && n != -EINTR)
			return gantry_mover_fail_err(r->m, (int)n);
		if (n > 0) {
			status = take_bytes(r, data, (size_t)n);
			gantry_store_hold(r->store, packet);
			since_look += (uint64_t)n;
		}
		if (status == 0 && (n < 0 || since_look >= LOOK_EVERY)) {
			status = look_at_agent(r);
			since_look = 0;
		}
	}
	return status;
}

/* ---- the two words ---- */

/* 1: the other host knows that we have it. */
static int answer_commits(struct receiver *r)
{
	static const uint32_t words[] = { GANTRY_MOVER_COMMIT, GANTRY_MOVER_ASK,
					  GANTRY_MOVER_FORGET, 0 };
	static const uint32_t answers[] = { GANTRY_MOVER_OWNED, GANTRY_MOVER_UNKNOWN, 0 };
	struct gantry_mover_msg msg;

	for (;;) {
		if (gantry_mover_listen(r->m, &msg, words, SILENCE_NS) < 0)
			return -1;
		gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_COMMIT);
		gantry_mover_tell(r->m, &msg, sizeof(msg));
		if (msg.kind == GANTRY_MOVER_FORGET)
			return 1;
		if (gantry_mover_hear(r->m, &msg, answers, ANSWER_NS) != 0)
			return r->m->err.text[0] ? -1
						 : gantry_mover_fail(r->m, 1, "no decision came");
		gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_OWNED);
		if (gantry_mover_say(r->m, msg.kind, msg.token, 0, NULL) < 0)
			return -1;
		if (msg.kind == GANTRY_MOVER_UNKNOWN)
			return 0;
	}
}

static void release_packet(void *holder)
{
	gantry_tls_packet_free(holder);
}

static int take_image(struct receiver *r)
{
	static const uint32_t prepared[] = { GANTRY_MOVER_PREPARED, 0 };
	struct gantry_mover_msg msg;
	int status;

	if (gantry_image_reader_init(&r->reader, &sink, r) < 0 ||
	    gantry_store_new(release_packet, gantry_cpus_allowed() > GANTRY_MOVER_CPUS, &r->store) <
		    0)
		return gantry_mover_fail(r->m, 1, "no memory to read an image");
	status = read_image(r);
	if (status == 1)
		return 0;
	if (status < 0 || settle(r) < 0)
		return -1;
	memcpy(r->m->start.session.token, r->reader.session.token,
	       sizeof(r->m->start.session.token));
	/* Nothing of ours is written any more: the agent copies, checks, decides. */
	gantry_ledger_close(&r->ledger);
	for (uint32_t i = 0; i < GANTRY_IMAGE_NREGIONS; i++)
		if (r->map[i])
			(void)munmap(r->map[i], r->bytes[i]); /* a mapping of ours */
	gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_ARRIVED);
	gantry_mover_tell_kind(r->m, GANTRY_MOVER_ARRIVED);
	if (gantry_mover_hear(r->m, &msg, prepared, ANSWER_NS) != 0)
		return refuse(r, r->m->err.text[0] ? r->m->code : 1,
			      r->m->err.text[0] ? r->m->err.text : "the agent did not answer");
	gantry_failpoint(GANTRY_FAILPOINT_RECEIVE_PREPARED);
	if (gantry_mover_say(r->m, GANTRY_MOVER_PREPARED, msg.token, 0, NULL) < 0)
		return -1;
	status = answer_commits(r);
	if (status == 1)
		status = r->reader.session.flags & GANTRY_IMAGE_LAZY
				 ? gantry_mover_pull(r->m, r->reader.session.slab_bytes)
				 : 0;
	return status;
}

/* An image, or a question after one of before. */
int gantry_mover_receive(struct gantry_mover *m)
{
	static const uint32_t first[] = { GANTRY_MOVER_IMAGE, GANTRY_MOVER_ASK, 0 };
	static const uint32_t answers[] = { GANTRY_MOVER_OWNED, GANTRY_MOVER_UNKNOWN, 0 };
	static struct receiver r;
	struct gantry_mover_msg msg;
	int status;

	r.m = m;
	if (gantry_mover_listen(m, &msg, first, ANSWER_NS) < 0)
		return -1;
	if (msg.kind == GANTRY_MOVER_IMAGE) {
		r.only_asked = msg.code == 1;
		status = take_image(&r);
		gantry_store_free(r.store);
		gantry_image_reader_fini(&r.reader);
		return status;
	}
	gantry_mover_tell(m, &msg, sizeof(msg));
	if (gantry_mover_hear(m, &msg, answers, ANSWER_NS) != 0 ||
	    gantry_mover_say(m, msg.kind, msg.token, 0, NULL) < 0)
		return -1;
	return msg.kind == GANTRY_MOVER_OWNED && answer_commits(&r) < 0 ? -1 : 0;
}
