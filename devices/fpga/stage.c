/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch needs of the board: its buffers there, its arguments' registers, and what it wrote back with the host. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "devices/fpga/fpga.h"

uint32_t gantry_fpga_region_of(uint32_t place)
{
	return place == GANTRY_BOARD_WHOLE ? 0 : place;
}

uint32_t gantry_fpga_window_of(const struct gantry_dev *dev, const struct gantry_board_unit *unit)
{
	const struct gantry_bitstream *image = dev->bitstreams[unit->image].manifest;

	return (image->kernels[unit->kernel].window + unit->unit) * GANTRY_BOARD_WINDOW_BYTES;
}

/* A unit reads whole beats, so each buffer ends at one. */
int gantry_fpga_bytes_of(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
			 uint64_t *ret_bytes)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < launch->nargs; i++) {
		uint64_t len;

		if (!sig->args[i].mode || !launch->args[i].range.mem)
			continue;
		if (gantry_align_up(launch->args[i].range.len, dev->info.mem_align, &len) < 0 ||
		    gantry_add_u64(sum, len, &sum) < 0)
			return -EOVERFLOW;
	}
	*ret_bytes = sum;
	return 0;
}

static uint64_t value_of(const union gantry_value *value, unsigned int type)
{
	switch (type) {
	case GANTRY_ARG_I8:
	case GANTRY_ARG_I16:
	case GANTRY_ARG_I32:
		return (uint64_t)(int64_t)value->i32;
	case GANTRY_ARG_U8:
	case GANTRY_ARG_U16:
	case GANTRY_ARG_U32:
	case GANTRY_ARG_F32:
		return value->u32;
	default:
		return value->u64;
	}
}

bool gantry_fpga_is_buffer(const struct gantry_cmd_launch *cmd, uint32_t arg)
{
	return cmd->kernel->sig->args[arg].mode && cmd->args[arg].range.mem &&
	       cmd->args[arg].range.len > 0;
}

bool gantry_fpga_is_written(const struct gantry_cmd_launch *cmd, uint32_t arg)
{
	return gantry_fpga_is_buffer(cmd, arg) && cmd->kernel->sig->args[arg].mode != GANTRY_R;
}

void gantry_fpga_put_pieces(struct gantry_dev *dev, struct gantry_fpga_launch *launch)
{
	for (uint32_t i = 0; i < GANTRY_MAX_CMD_ARGS; i++) {
		if (launch->pieces[i])
			gantry_fpga_piece_put(dev, launch->pieces[i]);
		launch->pieces[i] = NULL;
	}
}

static void count(uint64_t *counter, uint64_t bytes)
{
	gantry_store_relaxed(counter, *counter + bytes); /* one thread writes it */
}

static int copy_in(struct gantry_dev *dev, struct gantry_fpga_piece *piece,
		   const struct gantry_range *range, bool writes, bool there)
{
	int r;

	if (there) {
		count(&dev->kept, range->len);
		return 0;
	}
	/* Also what is only written: nothing of another's may show where the kernel writes nothing. */
	r = dev->driver->mem_write(dev->handle, piece->at, range->mem->host.base + range->off,
				   range->len);
	if (r < 0)
		return r;
	count(&dev->copied_in, range->len);
	if (!writes)
		piece->contents = range->contents;
	return 0;
}

/* All its buffers are on the board; -EAGAIN: not beside what is kept. */
static int place(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
		 const struct gantry_cmd_launch *cmd)
{
	for (uint32_t i = 0; i < cmd->nargs; i++) {
		bool there, writes = gantry_fpga_is_written(cmd, i);
		int r;

		if (!gantry_fpga_is_buffer(cmd, i))
			continue;
		r = gantry_fpga_piece_take(dev, &cmd->args[i].range, writes, &launch->pieces[i],
					   &there);
		if (r == 0)
			r = copy_in(dev, launch->pieces[i], &cmd->args[i].range, writes, there);
		if (r < 0) {
			gantry_fpga_put_pieces(dev, launch);
			return r;
		}
	}
	return 0;
}

/* Nobody's size is none. */
static uint32_t put_shape(const struct gantry_cmd_launch *cmd, uint64_t *to)
{
	for (unsigned int i = 0; i < 3; i++) {
		to[i] = cmd->grid[i] ? cmd->grid[i] : 1;
		to[3 + i] = cmd->block[i] ? cmd->block[i] : 1;
	}
	return GANTRY_BOARD_SHAPE_REGISTERS;
}

/* They fit: a manifest's registers were counted. */
uint32_t gantry_fpga_args_of(const struct gantry_fpga_launch *launch,
			     const struct gantry_cmd_launch *cmd,
			     uint64_t ret_args[GANTRY_BOARD_MAX_ARGS])
{
	const struct gantry_signature *sig = cmd->kernel->sig;
	uint32_t n = 0;

	for (uint32_t i = 0; i < cmd->nargs; i++) {
		const struct gantry_fpga_piece *piece = launch->pieces[i];

		if (!sig->args[i].mode) {
			ret_args[n++] = value_of(&cmd->args[i].value, sig->args[i].type);
			continue;
		}
		ret_args[n++] = piece ? piece->at : 0;
		ret_args[n++] = piece ? piece->len : 0;
	}
	return cmd->kernel->ndrange ? n + put_shape(cmd, &ret_args[n]) : n;
}

static void write_args(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
		       const struct gantry_cmd_launch *cmd)
{
	uint32_t region = gantry_fpga_region_of(launch->unit.place);
	uint32_t off = gantry_fpga_window_of(dev, &launch->unit) + GANTRY_BOARD_ARGS;
	uint64_t args[GANTRY_BOARD_MAX_ARGS];
	uint32_t n = gantry_fpga_args_of(launch, cmd, args);

	for (uint32_t i = 0; i < n; i++)
		dev->driver->write(dev->handle, region, off + 8 * i, args[i]);
}

int gantry_fpga_stage_in(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
			 const struct gantry_cmd_launch *cmd)
{
	int r = place(dev, launch, cmd);

	/* What is kept lies in the way: with room for all of it in one place, one after the other finds some. */
	if (r == -EAGAIN) {
		gantry_fpga_pieces_forget(dev);
		r = place(dev, launch, cmd);
		assert(r != -EAGAIN);
	}
	if (r == 0)
		write_args(dev, launch, cmd);
	return r;
}

int gantry_fpga_stage_out(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
			  const struct gantry_cmd_launch *cmd)
{
	const uint8_t *result = launch->next ? launch->results : NULL;

	for (uint32_t i = 0; i < cmd->nargs; i++) {
		const struct gantry_range *range = &cmd->args[i].range;
		uint8_t *to;
		int r = 0;

		if (!gantry_fpga_is_written(cmd, i))
			continue;
		to = range->mem->host.base + range->off;
		if (result) {
			memcpy(to, result, range->len);
			result += range->len;
		} else {
			r = dev->driver->mem_read(dev->handle, launch->pieces[i]->at, to,
						  range->len);
		}
		if (r < 0)
			return r;
		count(&dev->copied_out, range->len);
	}
	return 0;
}

static bool do_overlap(const struct gantry_range *a, const struct gantry_range *b)
{
	return a->mem == b->mem && a->off < b->off + b->len && b->off < a->off + a->len;
}

bool gantry_fpga_wrote_alone(const struct gantry_cmd_launch *cmd, uint32_t arg)
{
	for (uint32_t i = 0; i < cmd->nargs; i++)
		if (i != arg && gantry_fpga_is_written(cmd, i) &&
		    do_overlap(&cmd->args[i].range, &cmd->args[arg].range))
			return false;
	return true;
}

void gantry_fpga_stage_end(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
			   const struct gantry_cmd_launch *cmd, bool good)
{
	for (uint32_t i = 0; i < cmd->nargs; i++) {
		if (gantry_fpga_is_written(cmd, i))
			gantry_fpga_pieces_stale(dev, &cmd->args[i].range);
		else if (!good && launch->pieces[i])
			launch->pieces[i]->contents = 0;
	}
	for (uint32_t i = 0; i < cmd->nargs && good; i++)
		if (gantry_fpga_is_written(cmd, i) && cmd->args[i].range.contents &&
		    gantry_fpga_wrote_alone(cmd, i))
			launch->pieces[i]->contents = cmd->makes;
	gantry_fpga_put_pieces(dev, launch);
}
