/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a buffer from one of its places to another, at the same offset: command by command. */
#include <fcntl.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/memory.h"

/* Host memory is made known to the device piece by piece: each takes the thread for a millisecond, not for seconds. */
#define PIECE_BYTES (32ull << 20)
/* Between devices a copy of so much takes less than a millisecond, and to wait for its end some microseconds. */
#define PEER_PIECE_BYTES (256ull << 20)

void worker_carry_close(struct wdevice *d, struct wcarry *c)
{
	if (c->host)
		d->device.backend->mem_free(c->host);
	if (c->base)
		(void)munmap(c->base, c->base_bytes);
	c->host = NULL;
	c->base = NULL;
}

/* A piece of the slab's file, for the device to copy to or from. */
static int piece_open(struct wdevice *d, struct wcarry *c, uint64_t at, uint64_t bytes)
{
	struct wsession *s = c->session;
	off_t off = (off_t)(c->off + at);
	struct gantry_err err;

	/* Pages are taken first, so that a full host is an answer here. */
	if (c->way == CARRY_SPILL && fallocate(s->slab_fd, 0, off, (off_t)bytes) < 0)
		return GANTRY_E_NO_MEMORY;
	c->base_bytes = bytes;
	c->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->slab_fd, off);
	if (c->base == MAP_FAILED) {
		c->base = NULL;
		return GANTRY_E_NO_MEMORY;
	}
	if (d->device.backend->mem_host(d->device.dev, c->base, bytes, &c->host, &err) < 0) {
		c->host = NULL;
		return GANTRY_E_NO_MEMORY;
	}
	return GANTRY_OK;
}

/* What is next: the rest, or of what is marked the next run. false: nothing. */
static bool next_part(const struct wcarry *c, uint64_t *ret_at, uint64_t *ret_bytes)
{
	uint64_t most = c->way == CARRY_PEER ? PEER_PIECE_BYTES : PIECE_BYTES;

	if (c->most)
		most = GANTRY_MIN(most, c->most);
	if (c->only && c->downwards)
		return worker_marks_last(c->only, c->at, most, ret_at, ret_bytes);
	if (c->only)
		return worker_marks_next(c->only, c->at, most, ret_at, ret_bytes);
	*ret_at = c->at;
	*ret_bytes = GANTRY_MIN(c->len - c->at, most);
	return c->at < c->len;
}

bool worker_carry_peek(const struct wcarry *c, uint64_t *ret_off, uint64_t *ret_bytes)
{
	uint64_t at;

	if (!next_part(c, &at, ret_bytes))
		return false;
	*ret_off = c->off + at;
	return true;
}

int worker_carry_next(struct wdevice *d, struct wcarry *c, struct gantry_cmd *cmd, bool *ret_more)
{
	struct wsession *s = c->session;
	struct gantry_range here, there;
	uint64_t at, bytes;
	int status;

	worker_carry_close(d, c);
	*ret_more = next_part(c, &at, &bytes);
	if (!*ret_more)
		return GANTRY_OK;
	if (c->way != CARRY_PEER) {
		status = piece_open(d, c, at, bytes);
		if (status != GANTRY_OK)
			return status;
	}
	here = (struct gantry_range){ s->windows[d->index]->mem, c->off + at, bytes };
	there = c->way == CARRY_PEER
			? (struct gantry_range){ s->windows[c->from]->mem, c->off + at, bytes }
			: (struct gantry_range){ c->host, 0, bytes };
	cmd->kind = GANTRY_CMD_COPY;
	cmd->copy.dst = c->way == CARRY_SPILL ? there : here;
	cmd->copy.src = c->way == CARRY_SPILL ? here : there;
	c->at = c->downwards ? at : at + bytes;
	c->moved_bytes += bytes;
	gantry_count_add(&s->ledger.hdr->moved_bytes, bytes);
	return GANTRY_OK;
}
