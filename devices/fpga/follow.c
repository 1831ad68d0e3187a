/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next launch of a stream is put behind the one at work, on the same unit, where the driver can do that (driver.h, follow()): the board
 * begins it by itself, and our turn, which takes a part of a millisecond, is taken while it computes. What the first wrote is copied aside in
 * between, for the next may write there again.
 *
 * Only what needs nothing of us first: the same kernel with the same sizes, whose buffers are all on the board, or will be when the one before has ended well.
 * When that one does not, the next has worked on what is nobody's: its results are given up, and it begins anew when it has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "devices/fpga/fpga.h"

/*
 * A grid is the guest's, and a driver that does not take it says so when copies wait behind the launch at work already, which the
 * board's thread would have to see out. Of that one's sizes it has taken.
 */
static bool is_of_size(const struct gantry_cmd_launch *cmd, const struct gantry_cmd_launch *now)
{
	return memcmp(cmd->grid, now->grid, sizeof(cmd->grid)) == 0 &&
	       memcmp(cmd->block, now->block, sizeof(cmd->block)) == 0 &&
	       cmd->shared_bytes == now->shared_bytes;
}

/* The command behind the one at work, if it may be a launch of @launch's kernel that somebody wants. */
static const struct gantry_cmd_launch *next_of(struct gantry_dev *dev,
					       const struct gantry_fpga_launch *launch,
					       const struct gantry_cmd_launch *now)
{
	struct gantry_stream *stream = launch->stream;
	const struct gantry_cmd *cmd = NULL;

	(void)pthread_mutex_lock(&dev->lock);
	if (stream->submitted - stream->finished > 1)
		cmd = &stream->slots[(stream->finished + 1) % GANTRY_FPGA_DEPTH].cmd;
	(void)pthread_mutex_unlock(&dev->lock);
	/* What was submitted stays as it is until it has finished. */
	if (!cmd || cmd->kind != GANTRY_CMD_LAUNCH ||
	    cmd->launch.kernel->number != now->kernel->number || !is_of_size(&cmd->launch, now) ||
	    dev->host->cancelled(dev->host->cookie, cmd->tag))
		return NULL;
	return &cmd->launch;
}

/* Which contents argument @arg of @now leaves where it is; 0: nobody knows. */
static uint64_t leaves(const struct gantry_cmd_launch *now, uint32_t arg)
{
	if (!gantry_fpga_is_written(now, arg))
		return now->args[arg].range.contents;
	return now->args[arg].range.contents && gantry_fpga_wrote_alone(now, arg) ? now->makes : 0;
}

/* Where @launch has what @range wants, or leaves it; nobody else may be reading what is to be written. */
static struct gantry_fpga_piece *left_by(const struct gantry_fpga_launch *launch,
					 const struct gantry_cmd_launch *now,
					 const struct gantry_range *range, bool writes)
{
	for (uint32_t i = 0; i < now->nargs; i++) {
		struct gantry_fpga_piece *piece = launch->pieces[i];

		if (piece && gantry_fpga_piece_is_for(piece, range) && leaves(now, i) &&
		    leaves(now, i) == range->contents)
			return writes && piece->nusers > 1 ? NULL : piece;
	}
	return NULL;
}

/* Takes what is there for all of @cmd's buffers; false: something is not, and nothing is taken. */
static bool take_pieces(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
			const struct gantry_cmd_launch *now, struct gantry_fpga_launch *next,
			const struct gantry_cmd_launch *cmd)
{
	for (uint32_t i = 0; i < cmd->nargs; i++) {
		const struct gantry_range *range = &cmd->args[i].range;
		bool writes = gantry_fpga_is_written(cmd, i);

		if (!gantry_fpga_is_buffer(cmd, i))
			continue;
		next->pieces[i] = left_by(launch, now, range, writes);
		if (!next->pieces[i])
			next->pieces[i] = gantry_fpga_piece_there(dev, range, writes);
		/* Of two arguments that are one range each has its own, if one of them is written. */
		for (uint32_t j = 0; j < i && next->pieces[i]; j++)
			if (next->pieces[j] == next->pieces[i] &&
			    (writes || gantry_fpga_is_written(cmd, j)))
				next->pieces[i] = NULL;
		if (!next->pieces[i]) {
			gantry_fpga_put_pieces(dev, next);
			return false;
		}
		gantry_fpga_piece_use(dev, next->pieces[i]);
	}
	return true;
}

/* Where to copy what @launch writes; -ENOSPC: too much of it. */
static int plan_copies(struct gantry_fpga_launch *launch, const struct gantry_cmd_launch *now,
		       struct gantry_board_copy *copies, uint32_t *ret_ncopies)
{
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < now->nargs; i++) {
		if (!gantry_fpga_is_written(now, i))
			continue;
		copies[n].at = launch->pieces[i]->at;
		copies[n].len = now->args[i].range.len;
		if (copies[n].len > GANTRY_FPGA_MAX_RESULTS - bytes)
			return -ENOSPC;
		bytes += copies[n++].len;
	}
	if (bytes && !(launch->results = malloc(bytes)))
		return -ENOMEM;
	bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		copies[i].to = launch->results + bytes;
		bytes += copies[i].len;
	}
	*ret_ncopies = n;
	return 0;
}

static int hand_over(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
		     const struct gantry_cmd_launch *now, const struct gantry_fpga_launch *next,
		     const struct gantry_cmd_launch *cmd)
{
	struct gantry_board_copy copies[GANTRY_MAX_CMD_ARGS];
	uint64_t args[GANTRY_BOARD_MAX_ARGS];
	uint32_t ncopies, nargs = gantry_fpga_args_of(next, cmd, args);
	int r = plan_copies(launch, now, copies, &ncopies);

	if (r == 0)
		r = dev->driver->follow(dev->handle, gantry_fpga_region_of(launch->unit.place),
					gantry_fpga_window_of(dev, &launch->unit), args, nargs,
					copies, ncopies);
	/* Where it is 1 the driver may write there still: it stays until the launch has ended. */
	if (r < 0) {
		free(launch->results);
		launch->results = NULL;
	}
	return r;
}

/* What does not come about is begun when this one has ended; true: it does. */
static bool follow(struct gantry_dev *dev, struct gantry_fpga_launch *launch)
{
	struct gantry_stream *stream = launch->stream;
	const struct gantry_cmd_launch *now =
		&stream->slots[stream->finished % GANTRY_FPGA_DEPTH].cmd.launch;
	const struct gantry_cmd_launch *cmd = next_of(dev, launch, now);
	struct gantry_fpga_launch *entry = cmd ? gantry_fpga_unused_launch(dev) : NULL;
	struct gantry_fpga_launch next = { .stream = stream, .unit = launch->unit, .waits = true };

	if (!entry || !take_pieces(dev, launch, now, &next, cmd))
		return false;
	if (hand_over(dev, launch, now, &next, cmd) != 0) {
		gantry_fpga_put_pieces(dev, &next);
		return false;
	}
	*entry = next;
	launch->next = entry;
	stream->running++;
	stream->served = ++dev->turn;
	dev->nrunning++;
	/* One thread writes the counters. */
	gantry_store_relaxed(&dev->followed, dev->followed + 1);
	for (uint32_t i = 0; i < cmd->nargs; i++) {
		if (!next.pieces[i])
			continue;
		gantry_store_relaxed(&dev->kept, dev->kept + next.pieces[i]->len);
		if (gantry_fpga_is_written(cmd, i))
			gantry_fpga_piece_write(next.pieces[i]);
	}
	return true;
}

/* Not where something is behind it, or it is behind something, or what was to be has been refused. */
static bool may_lead(const struct gantry_dev *dev, const struct gantry_fpga_launch *launch)
{
	const struct gantry_stream *stream = launch->stream;

	return stream && !launch->next && !launch->results && !launch->waits && !launch->spoilt &&
	       gantry_board_may_follow(dev->board,
				       stream->slots[stream->finished % GANTRY_FPGA_DEPTH]
					       .cmd.launch.kernel->number);
}

void gantry_fpga_follow(struct gantry_dev *dev)
{
	uint32_t nbehind = 0;

	if (!dev->driver->follow || !dev->keeps)
		return;
	for (uint32_t i = 0; i < GANTRY_FPGA_MAX_RUNNING; i++)
		nbehind += dev->launches[i].stream && dev->launches[i].waits;
	for (uint32_t i = 0; i < GANTRY_FPGA_MAX_RUNNING && nbehind < GANTRY_FPGA_MAX_BEHIND; i++)
		if (may_lead(dev, &dev->launches[i]))
			nbehind += follow(dev, &dev->launches[i]);
}
