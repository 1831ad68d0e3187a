/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image store of a session: a sealed memfd that the agent keeps, with the bytes of its guest's images and the
 * names and signatures of kernels made from them. The ledger's objects say what lies where; all else of it is empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"

#define GRAIN 64u

uint64_t worker_store_share_id(const struct wsession *s)
{
	/* No buffer's: those have a generation, which begins at 1 (new_share_id()). */
	return s->id << 40;
}

int worker_store_open(struct wsession *s, int fd)
{
	_cleanup_close_ int own = -EBADF;
	void *base;

	if (fd >= 0)
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	else
		(void)gantry_memfd_create("gantry-images", GANTRY_LEDGER_STORE_BYTES,
					  GANTRY_MEMFD_SEALED, &own);
	if (own < 0)
		return GANTRY_E_NO_MEMORY;
	base = mmap(NULL, GANTRY_LEDGER_STORE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
	if (base == MAP_FAILED)
		return GANTRY_E_NO_MEMORY;
	s->store.base = base;
	s->store.fd = GANTRY_TAKE_FD(own);
	return GANTRY_OK;
}

void worker_store_close(struct wsession *s)
{
	if (s->store.base)
		(void)munmap(s->store.base, GANTRY_LEDGER_STORE_BYTES);
	gantry_fd_close(s->store.fd);
	free(s->store.used);
	s->store = (struct wstore){ .fd = -EBADF };
}

int worker_store_ready_locked(struct wsession *s)
{
	int status;

	if (s->store.base)
		return GANTRY_OK;
	status = worker_store_open(s, -1);
	if (status == GANTRY_OK)
		s->engine->events.keep(s->engine->events.cookie, s->id, worker_store_share_id(s),
				       GANTRY_LEDGER_STORE_BYTES, s->store.fd);
	return status;
}

uint8_t *worker_store_at(const struct wsession *s, uint64_t off)
{
	return s->store.base + off;
}

/* ---- ranges ---- */

static uint64_t grains(uint64_t bytes)
{
	return (bytes + GRAIN - 1) & ~(uint64_t)(GRAIN - 1);
}

static int grow(struct wstore *st)
{
	uint32_t cap = st->cap ? st->cap * 2 : 64;
	struct wextent *used;

	if (st->nused < st->cap)
		return GANTRY_OK;
	used = realloc(st->used, cap * sizeof(*used));
	if (!used)
		return GANTRY_E_NO_MEMORY;
	st->used = used;
	st->cap = cap;
	return GANTRY_OK;
}

static void insert(struct wstore *st, uint32_t at, uint64_t off, uint64_t len)
{
	memmove(&st->used[at + 1], &st->used[at], (st->nused++ - at) * sizeof(*st->used));
	st->used[at] = (struct wextent){ off, len };
}

static void empty(struct wstore *st, uint64_t off, uint64_t len)
{
	/* Whole pages go back, parts of pages become zero. */
	(void)fallocate(st->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
}

void worker_store_clear(struct wsession *s, uint64_t off, uint64_t bytes)
{
	if (bytes)
		empty(&s->store, off, bytes);
}

int worker_store_take_locked(struct wsession *s, uint64_t bytes, uint64_t *ret_off)
{
	struct wstore *st = &s->store;
	uint64_t len = grains(bytes);
	uint64_t off = 0;
	uint32_t at;

	if (grow(st) != GANTRY_OK)
		return GANTRY_E_NO_MEMORY;
	for (at = 0; at < st->nused && st->used[at].off - off < len; at++)
		off = st->used[at].off + st->used[at].len;
	if (len > GANTRY_LEDGER_STORE_BYTES - off)
		return GANTRY_E_LIMIT;
	/* Pages are taken now, so that a full host is an answer here and not a SIGBUS in a copy. */
	if (fallocate(st->fd, 0, (off_t)off, (off_t)len) < 0) {
		empty(st, off, len);
		return GANTRY_E_NO_MEMORY;
	}
	insert(st, at, off, len);
	*ret_off = off;
	return GANTRY_OK;
}

int worker_store_retake_locked(struct wsession *s, uint64_t off, uint64_t bytes)
{
	struct wstore *st = &s->store;
	uint64_t len = grains(bytes);
	uint32_t at;

	if (off % GRAIN || !gantry_range_inside(off, len, GANTRY_LEDGER_STORE_BYTES) ||
	    grow(st) != GANTRY_OK)
		return GANTRY_E_ARG;
	for (at = 0; at < st->nused && st->used[at].off < off; at++)
		;
	if (at < st->nused && st->used[at].off == off && st->used[at].len == len)
		return GANTRY_E_EXISTS; /* two objects of one image */
	if ((at < st->nused && st->used[at].off < off + len) ||
	    (at > 0 && st->used[at - 1].off + st->used[at - 1].len > off))
		return GANTRY_E_ARG;
	insert(st, at, off, len);
	return GANTRY_OK;
}

void worker_store_put_locked(struct wsession *s, uint64_t off)
{
	struct wstore *st = &s->store;

	for (uint32_t i = 0; i < st->nused; i++) {
		if (st->used[i].off != off)
			continue;
		empty(st, off, st->used[i].len);
		memmove(&st->used[i], &st->used[i + 1], (--st->nused - i) * sizeof(*st->used));
		return;
	}
}

/* ---- charges ---- */

int worker_store_charge(struct wsession *s, uint64_t bytes)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	if (gantry_quota_charge(&hdr->virtual_used, &hdr->virtual_bytes, bytes) < 0) {
		worker_deny(s);
		return GANTRY_E_LIMIT;
	}
	if (gantry_quota_charge(&s->quota->virtual_used, &s->quota->virtual_bytes, bytes) < 0) {
		gantry_quota_refund(&hdr->virtual_used, bytes);
		worker_deny(s);
		return GANTRY_E_LIMIT;
	}
	return GANTRY_OK;
}

void worker_store_refund(struct wsession *s, uint64_t bytes)
{
	gantry_quota_refund(&s->quota->virtual_used, bytes);
	gantry_quota_refund(&s->ledger.hdr->virtual_used, bytes);
}
