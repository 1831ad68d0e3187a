/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/move_in.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/list.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/session.h"
#include "proto/wire.h"

/* A few milliseconds of copying. */
#define PIECE_BYTES (16ull << 20)

struct gantry_moving {
	struct gantry_session *session;
	struct gantry_session_place place;
	gantry_moved_in_fn *done;
	struct event *turn;
	uint64_t at; /* bytes of the segment before it are there */
};

static void moving_free(struct gantry_moving *m)
{
	if (!m)
		return;
	gantry_event_free(&m->turn);
	free(m);
}

static void finish(struct gantry_moving *m, int r, struct gantry_err *err)
{
	struct gantry_session *s = m->session;
	const struct gantry_session_place place = m->place;
	gantry_moved_in_fn *done = m->done;

	s->moving = NULL;
	moving_free(m);
	if (r < 0)
		gantry_doormem_put(place.doormem, place.off);
	else
		r = gantry_session_move_in(s, &place, err);
	done(s, r, err);
}

static void *map(int fd, uint64_t off, uint64_t bytes, int prot)
{
	void *at = mmap(NULL, bytes, prot, MAP_SHARED, fd, (off_t)off);

	return at == MAP_FAILED ? NULL : at;
}

/* Both files are sealed against shrinking. */
static int copy(const struct gantry_moving *m, uint64_t at, uint64_t bytes)
{
	const struct gantry_session *s = m->session;
	void *from = map(s->segment_fd, s->segment_off + at, bytes, PROT_READ);
	void *to = map(m->place.fd, m->place.off + at, bytes, PROT_READ | PROT_WRITE);
	int r = from && to ? 0 : -ENOMEM;

	if (r == 0)
		memcpy(to, from, bytes);
	if (from)
		(void)munmap(from, bytes); /* it is mapped */
	if (to)
		(void)munmap(to, bytes); /* likewise */
	return r;
}

/* Something else lies there, and what never had bytes of ours is to be zero. At most a piece of it, to *@to. */
static int clear(const struct gantry_moving *m, uint64_t from, uint64_t *to)
{
	uint64_t bytes = GANTRY_MIN(*to - from, PIECE_BYTES);

	*to = from + bytes;
	return bytes == 0 || fallocate(m->place.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       (off_t)(m->place.off + from), (off_t)bytes) == 0
		       ? 0
		       : -errno;
}

/*
 * From *@at to what is the next to have bytes; what never had any is zero at both ends. -ENXIO: there is no more.
 */
static int skip_hole(const struct gantry_moving *m, uint64_t *at)
{
	const struct gantry_session *s = m->session;
	off_t data = lseek(s->segment_fd, (off_t)(s->segment_off + *at), SEEK_DATA);

	if (data < 0)
		return -errno;
	*at = GANTRY_MAX((uint64_t)data - s->segment_off, *at);
	*at -= *at % GANTRY_PAGE;
	return *at < s->shape.segment.segment_bytes ? 0 : -ENXIO;
}

static int copy_piece(struct gantry_moving *m)
{
	const uint64_t end = m->session->shape.segment.segment_bytes;
	uint64_t left, at = m->at;
	int r = skip_hole(m, &at);

	if (r == -ENXIO && m->place.is_used)
		at = end;
	else if (r < 0)
		return r;
	if (m->place.is_used && at > m->at) {
		const uint64_t from = m->at;

		m->at = at;
		return clear(m, from, &m->at);
	}
	m->at = at;
	left = end - m->at;
	r = copy(m, m->at, GANTRY_MIN(left, PIECE_BYTES));
	m->at += GANTRY_MIN(left, PIECE_BYTES);
	return r;
}

static void next_piece(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval now = { 0 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_moving *m = arg;
	int r = m->at < m->session->shape.segment.segment_bytes ? copy_piece(m) : -ENXIO;

	(void)fd;
	(void)what;
	if (r == 0 && event_add(m->turn, &now) == 0)
		return;
	if (r == 0)
		r = -ENOMEM;
	if (r != -ENXIO)
		(void)gantry_err_set_errno(&err, r,
					   "copying the session into its machine's memory");
	finish(m, r == -ENXIO ? 0 : r, &err);
}

void gantry_move_in(struct gantry_session *s, const struct gantry_session_place *place,
		    gantry_moved_in_fn *done)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_moving *m = calloc(1, sizeof(*m));

	if (m) {
		*m = (struct gantry_moving){ .session = s, .place = *place, .done = done };
		m->turn = event_new(s->agent->base, -1, 0, next_piece, m);
	}
	if (!m || !m->turn) {
		moving_free(m);
		gantry_doormem_put(place->doormem, place->off);
		done(s, gantry_err_set(&err, -ENOMEM, "no memory to move a session in"), &err);
		return;
	}
	s->moving = m;
	next_piece(-1, 0, m);
}

void gantry_move_in_forget(struct gantry_session *s)
{
	struct gantry_moving *m = s->moving;

	if (!m)
		return;
	s->moving = NULL;
	gantry_doormem_put(m->place.doormem, m->place.off);
	moving_free(m);
}
