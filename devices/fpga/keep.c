/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board's memory, in pieces: one for each buffer of a launch, and after it for as long as nothing else needs the room. A piece
 * that is kept holds what the same range of host memory holds, and which contents that are (gantry_range.contents): a
 * launch with the same range and the same contents finds it there. Host memory has everything all the time, so a piece may go whenever
 * it likes: a loading that loses memory, a launch that needs the room, a session that ends cost nothing but a copy.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/fpga/fpga.h"

static bool is_unused(const struct gantry_fpga_piece *piece)
{
	return piece->nusers == 0;
}

static void drop(struct gantry_dev *dev, struct gantry_fpga_piece *piece)
{
	gantry_list_remove(&piece->link);
	dev->npieces--;
	free(piece);
}

/* ---- room ---- */

/*
 * Where @bytes are free, the lowest; @ret_before: what comes next in the list. @only_used: as if nothing were kept. Pieces are in the order of
 * their addresses, and begin and end at multiples of the alignment, as all lengths are.
 */
static int find_room(struct gantry_dev *dev, uint64_t bytes, bool only_used, uint64_t *ret_at,
		     struct gantry_list **ret_before)
{
	uint64_t at = 0;

	gantry_list_for_each(&dev->pieces, struct gantry_fpga_piece, link, piece) {
		if (only_used && is_unused(piece))
			continue;
		if (piece->at - at >= bytes) {
			*ret_before = &piece->link;
			*ret_at = at;
			return 0;
		}
		at = piece->at + piece->bytes;
	}
	if (at > dev->info.mem_bytes || dev->info.mem_bytes - at < bytes)
		return -EAGAIN;
	*ret_before = &dev->pieces;
	*ret_at = at;
	return 0;
}

bool gantry_fpga_has_room(struct gantry_dev *dev, uint64_t bytes)
{
	struct gantry_list *before;
	uint64_t at;

	return find_room(dev, bytes, true, &at, &before) == 0;
}

static bool drop_oldest(struct gantry_dev *dev)
{
	struct gantry_fpga_piece *oldest = NULL;

	gantry_list_for_each(&dev->pieces, struct gantry_fpga_piece, link, piece)
		if (is_unused(piece) && (!oldest || piece->used < oldest->used))
			oldest = piece;
	if (oldest)
		drop(dev, oldest);
	return oldest != NULL;
}

/* -EAGAIN: what others use is in the way, or lies so that none is left; -ENOMEM: of the host's. */
static int add_piece(struct gantry_dev *dev, uint64_t bytes, struct gantry_fpga_piece **ret_piece)
{
	struct gantry_fpga_piece *piece;
	struct gantry_list *before;
	uint64_t at;

	while (dev->npieces >= GANTRY_FPGA_MAX_PIECES && drop_oldest(dev))
		;
	while (find_room(dev, bytes, false, &at, &before) < 0)
		if (!drop_oldest(dev))
			return -EAGAIN;
	piece = calloc(1, sizeof(*piece));
	if (!piece)
		return -ENOMEM;
	piece->at = at;
	piece->bytes = bytes;
	gantry_list_insert_before(before, &piece->link);
	dev->npieces++;
	*ret_piece = piece;
	return 0;
}

/* ---- pieces of launches ---- */

bool gantry_fpga_piece_is_for(const struct gantry_fpga_piece *piece,
			      const struct gantry_range *range)
{
	return piece->mem == range->mem->id && piece->off == range->off && piece->len == range->len;
}

static bool has_contents(const struct gantry_fpga_piece *piece, const struct gantry_range *range)
{
	return range->contents && piece->contents == range->contents;
}

/* The range's piece, if the launch may have it: one that others read is for readers only, and has to hold what is asked for. */
static struct gantry_fpga_piece *find_piece(struct gantry_dev *dev,
					    const struct gantry_range *range, bool writes)
{
	struct gantry_fpga_piece *found = NULL;

	gantry_list_for_each(&dev->pieces, struct gantry_fpga_piece, link, piece) {
		bool same = has_contents(piece, range);

		if (!gantry_fpga_piece_is_for(piece, range))
			continue;
		if (is_unused(piece) ? same || !found : same && !writes && !piece->written)
			found = piece;
		if (found == piece && same)
			break;
	}
	return found;
}

struct gantry_fpga_piece *gantry_fpga_piece_there(struct gantry_dev *dev,
						  const struct gantry_range *range, bool writes)
{
	struct gantry_fpga_piece *piece = dev->keeps ? find_piece(dev, range, writes) : NULL;

	return piece && has_contents(piece, range) ? piece : NULL;
}

void gantry_fpga_piece_use(struct gantry_dev *dev, struct gantry_fpga_piece *piece)
{
	piece->nusers++;
	piece->used = ++dev->turn;
}

/* Until the launch has ended nobody else finds in it what is being written. */
void gantry_fpga_piece_write(struct gantry_fpga_piece *piece)
{
	piece->written = true;
	piece->contents = 0;
}

int gantry_fpga_piece_take(struct gantry_dev *dev, const struct gantry_range *range, bool writes,
			   struct gantry_fpga_piece **ret_piece, bool *ret_there)
{
	struct gantry_fpga_piece *piece = dev->keeps ? find_piece(dev, range, writes) : NULL;
	uint64_t bytes = 0;
	int r;

	(void)gantry_align_up(range->len, dev->info.mem_align, &bytes); /* it was counted */
	*ret_there = piece && has_contents(piece, range);
	if (!piece) {
		r = add_piece(dev, bytes, &piece);
		if (r < 0)
			return r;
		piece->mem = range->mem->id;
		piece->off = range->off;
		piece->len = range->len;
	}
	piece->nusers++;
	piece->used = ++dev->turn;
	piece->written = writes;
	/* Until the launch has ended nobody else finds in it what is being written, or not there yet. */
	piece->contents = writes || !*ret_there ? 0 : range->contents;
	*ret_piece = piece;
	return 0;
}

void gantry_fpga_piece_put(struct gantry_dev *dev, struct gantry_fpga_piece *piece)
{
	assert(piece->nusers > 0);
	if (--piece->nusers > 0)
		return;
	piece->written = false;
	if (!piece->contents || !dev->keeps)
		drop(dev, piece);
}

void gantry_fpga_pieces_stale(struct gantry_dev *dev, const struct gantry_range *range)
{
	uint64_t end = range->off + range->len; /* it lies in a buffer */

	gantry_list_for_each_safe(&dev->pieces, struct gantry_fpga_piece, link, piece) {
		if (piece->mem != range->mem->id || piece->off >= end ||
		    range->off >= piece->off + piece->len)
			continue;
		piece->contents = 0;
		if (is_unused(piece))
			drop(dev, piece);
	}
}

void gantry_fpga_pieces_forget(struct gantry_dev *dev)
{
	gantry_list_for_each_safe(&dev->pieces, struct gantry_fpga_piece, link, piece) {
		piece->contents = 0;
		if (is_unused(piece))
			drop(dev, piece);
	}
}

void gantry_fpga_pieces_free(struct gantry_dev *dev)
{
	gantry_list_for_each_safe(&dev->pieces, struct gantry_fpga_piece, link, piece)
		drop(dev, piece);
}

/* ---- whether a loading leaves the memory as it is ---- */

#define MAX_PROBE_BYTES 65536u

void gantry_fpga_probe_begin(struct gantry_dev *dev, struct gantry_fpga_probe *probe)
{
	*probe = (struct gantry_fpga_probe){ .piece = NULL };
	gantry_list_for_each(&dev->pieces, struct gantry_fpga_piece, link, piece) {
		if (!is_unused(piece) || !piece->contents || piece->len > MAX_PROBE_BYTES)
			continue;
		probe->piece = piece;
		break;
	}
	if (!probe->piece || !(probe->bytes = malloc(probe->piece->len)))
		return;
	if (dev->driver->mem_read(dev->handle, probe->piece->at, probe->bytes, probe->piece->len) <
	    0) {
		free(probe->bytes);
		probe->bytes = NULL;
	}
}

int gantry_fpga_probe_end(struct gantry_dev *dev, struct gantry_fpga_probe *probe)
{
	uint8_t *now = probe->bytes ? malloc(probe->piece->len) : NULL;
	int r = 0;

	if (now)
		r = dev->driver->mem_read(dev->handle, probe->piece->at, now, probe->piece->len);
	if (now && r == 0 && memcmp(now, probe->bytes, probe->piece->len) != 0)
		r = -EBADMSG;
	free(now);
	free(probe->bytes);
	return r == -ENODEV || r == -EBADMSG ? r : 0; /* what cannot be read says nothing of it */
}
