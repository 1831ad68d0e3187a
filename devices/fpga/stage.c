/* SPDX-License-Identifier: Apache-2.0 */
/* The board's memory: a part of it for each launch, with its buffers one after the other. */
#include <assert.h>
#include <errno.h>

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

static bool is_taken(const struct gantry_dev *dev, uint64_t at, uint64_t bytes, uint64_t *ret_end)
{
	for (uint32_t i = 0; i < GANTRY_FPGA_MAX_RUNNING; i++) {
		const struct gantry_fpga_launch *other = &dev->launches[i];

		if (!other->stream || at >= other->at + other->bytes || other->at >= at + bytes)
			continue;
		*ret_end = other->at + other->bytes;
		return true;
	}
	return false;
}

int gantry_fpga_place(const struct gantry_dev *dev, uint64_t bytes, uint64_t *ret_at)
{
	uint64_t at = 0;

	if (bytes > dev->info.mem_bytes)
		return -ENOMEM;
	while (at <= dev->info.mem_bytes - bytes) {
		/* Ends are multiples of the alignment, as all lengths are. */
		if (!is_taken(dev, at, bytes, &at)) {
			*ret_at = at;
			return 0;
		}
	}
	return -EAGAIN;
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

/* Nobody's size is none. */
static void write_shape(struct gantry_dev *dev, uint32_t region, uint32_t off,
			const struct gantry_cmd_launch *cmd)
{
	for (unsigned int i = 0; i < 3; i++) {
		dev->driver->write(dev->handle, region, off + 8 * i,
				   cmd->grid[i] ? cmd->grid[i] : 1);
		dev->driver->write(dev->handle, region, off + 8 * (3 + i),
				   cmd->block[i] ? cmd->block[i] : 1);
	}
}

int gantry_fpga_stage_in(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
			 const struct gantry_cmd_launch *cmd)
{
	uint32_t region = gantry_fpga_region_of(launch->unit.place);
	uint32_t off = gantry_fpga_window_of(dev, &launch->unit) + GANTRY_BOARD_ARGS;
	const struct gantry_signature *sig = cmd->kernel->sig;
	uint64_t at = launch->at;

	for (uint32_t i = 0; i < cmd->nargs; i++) {
		const struct gantry_range *range = &cmd->args[i].range;
		uint64_t len = 0, aligned = 0;
		int r;

		if (!sig->args[i].mode) {
			dev->driver->write(dev->handle, region, off,
					   value_of(&cmd->args[i].value, sig->args[i].type));
			off += 8;
			continue;
		}
		if (range->mem) {
			len = range->len;
			/* Also what is only written: nothing of another's may show where the kernel writes nothing. */
			r = dev->driver->mem_write(dev->handle, at,
						   range->mem->host.base + range->off, len);
			if (r < 0)
				return r;
		}
		dev->driver->write(dev->handle, region, off, at);
		dev->driver->write(dev->handle, region, off + 8, len);
		off += 16;
		(void)gantry_align_up(len, dev->info.mem_align, &aligned); /* it was counted */
		at += aligned;
	}
	assert(at == launch->at + launch->bytes);
	if (cmd->kernel->ndrange)
		write_shape(dev, region, off, cmd);
	return 0;
}

int gantry_fpga_stage_out(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
			  const struct gantry_cmd_launch *cmd)
{
	const struct gantry_signature *sig = cmd->kernel->sig;
	uint64_t at = launch->at;

	for (uint32_t i = 0; i < cmd->nargs; i++) {
		const struct gantry_range *range = &cmd->args[i].range;
		uint64_t aligned = 0;
		int r;

		if (!sig->args[i].mode || !range->mem)
			continue;
		if (sig->args[i].mode != GANTRY_R) {
			r = dev->driver->mem_read(dev->handle, at,
						  range->mem->host.base + range->off, range->len);
			if (r < 0)
				return r;
		}
		(void)gantry_align_up(range->len, dev->info.mem_align, &aligned);
		at += aligned;
	}
	return 0;
}
