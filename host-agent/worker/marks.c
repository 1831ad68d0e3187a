/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/marks.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"

static uint64_t count_of(const struct wmarks *m)
{
	return (m->len_bytes + m->chunk_bytes - 1) / m->chunk_bytes;
}

static bool is_marked(const struct wmarks *m, uint64_t i)
{
	return m->bits[i / 64] >> (i % 64) & 1;
}

void worker_marks_init(struct wmarks *m, uint64_t len_bytes, bool all)
{
	assert(len_bytes > 0);
	memset(m, 0, sizeof(*m));
	m->len_bytes = len_bytes;
	m->chunk_bytes = WMARKS_CHUNK_BYTES;
	while ((len_bytes - 1) / m->chunk_bytes >= WMARKS_MAX)
		m->chunk_bytes *= 2;
	if (all)
		worker_marks_add(m, 0, len_bytes);
}

void worker_marks_add(struct wmarks *m, uint64_t off, uint64_t len)
{
	uint64_t last;

	if (len == 0 || off >= m->len_bytes)
		return;
	last = (off + GANTRY_MIN(len, m->len_bytes - off) - 1) / m->chunk_bytes;
	for (uint64_t i = off / m->chunk_bytes; i <= last; i++)
		m->bits[i / 64] |= 1ull << (i % 64);
}

void worker_marks_take(struct wmarks *m, struct wmarks *from)
{
	assert(m->len_bytes == from->len_bytes);
	for (unsigned i = 0; i < WMARKS_MAX / 64; i++) {
		m->bits[i] |= from->bits[i];
		from->bits[i] = 0;
	}
}

bool worker_marks_next(const struct wmarks *m, uint64_t at, uint64_t most, uint64_t *ret_off,
		       uint64_t *ret_len)
{
	uint64_t n = count_of(m);
	uint64_t first = at / m->chunk_bytes;
	uint64_t off, end, i;

	while (first < n && !is_marked(m, first))
		first++;
	/* The last chunk may be a part of one: what lies behind it is nothing. */
	if (first >= n || at >= m->len_bytes)
		return false;
	off = GANTRY_MAX(first * m->chunk_bytes, at);
	for (i = first; i < n && is_marked(m, i) && i * m->chunk_bytes < off + most; i++)
		;
	end = GANTRY_MIN(i * m->chunk_bytes, m->len_bytes);
	*ret_off = off;
	*ret_len = GANTRY_MIN(end - off, most);
	return true;
}

bool worker_marks_last(const struct wmarks *m, uint64_t before, uint64_t most, uint64_t *ret_off,
		       uint64_t *ret_len)
{
	uint64_t i = (GANTRY_MIN(before, m->len_bytes) + m->chunk_bytes - 1) / m->chunk_bytes;
	uint64_t off, end;

	while (i > 0 && !is_marked(m, i - 1))
		i--;
	if (i == 0)
		return false;
	end = GANTRY_MIN(GANTRY_MIN(before, m->len_bytes), i * m->chunk_bytes);
	while (i > 0 && is_marked(m, i - 1) && end - (i - 1) * m->chunk_bytes <= most)
		i--;
	off = i * m->chunk_bytes;
	if (off >= end) /* one chunk is more than @most */
		off = end - most;
	*ret_off = off;
	*ret_len = end - off;
	return true;
}

void worker_marks_forget(struct wmarks *m, const struct wmarks *of, uint64_t before)
{
	uint64_t n = before >= m->len_bytes ? count_of(m) : before / m->chunk_bytes;

	assert(m->len_bytes == of->len_bytes);
	for (uint64_t i = 0; i < n; i++)
		if (is_marked(of, i))
			m->bits[i / 64] &= ~(1ull << (i % 64));
}

uint64_t worker_marks_bytes(const struct wmarks *m)
{
	uint64_t n = count_of(m);
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n; i++)
		if (is_marked(m, i))
			bytes += GANTRY_MIN(m->chunk_bytes, m->len_bytes - i * m->chunk_bytes);
	return bytes;
}
