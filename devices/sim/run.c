/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation: commands wait in their streams, start when an engine of their kind is free, and
 * end when the clock gets there. Of commands that could start, the stream's priority decides, then
 * the order of submission.
 */
#include <assert.h>
#include <errno.h>

#include "base/checked.h"
#include "devices/sim/sim.h"

static struct gantry_sim_slot *head_of(struct gantry_stream *stream)
{
	return &stream->slots[stream->head % GANTRY_SIM_DEPTH];
}

/* Bytes of all buffers, elements of the largest. */
static uint64_t launch_ns(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	uint64_t bytes = 0, elements = 0;

	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;
		uint64_t count;

		if (!sig->args[i].mode || !range->mem)
			continue;
		count = range->len / gantry_arg_type_bytes(sig->args[i].type);
		bytes += range->len;
		elements = gantry_max_u64(elements, count);
	}
	return gantry_sim_kernel_ns(dev->machine, dev->idx, launch->kernel->name, bytes, elements);
}

/* Memory of a sister device lies, for us, at the place of its name in our machine. */
static uint32_t place_of(const struct gantry_dev *dev, const struct gantry_mem *mem)
{
	int idx;

	if (mem->dev == dev || mem->place == GANTRY_SIM_HOST)
		return mem->place;
	idx = gantry_sim_device_find(dev->machine, mem->dev->machine->devices[mem->place].name);
	return idx < 0 ? GANTRY_SIM_HOST : (uint32_t)idx;
}

static void estimate(const struct gantry_dev *dev, struct gantry_sim_slot *slot)
{
	const struct gantry_cmd *cmd = &slot->cmd;

	slot->engine = cmd->kind == GANTRY_CMD_COPY ? GANTRY_SIM_COPY : GANTRY_SIM_COMPUTE;
	if (cmd->kind == GANTRY_CMD_LAUNCH)
		slot->duration_ns = launch_ns(dev, &cmd->launch);
	else if (cmd->kind == GANTRY_CMD_COPY)
		slot->duration_ns =
			gantry_sim_copy_ns(dev->machine, place_of(dev, cmd->copy.src.mem),
					   place_of(dev, cmd->copy.dst.mem), cmd->copy.dst.len);
	else
		slot->duration_ns = gantry_sim_copy_ns(dev->machine, dev->idx,
						       place_of(dev, cmd->fill.dst.mem),
						       cmd->fill.dst.len);
}

static bool can_start(struct gantry_stream *stream)
{
	return !stream->running && stream->head != stream->tail &&
	       stream->dev->nfree[head_of(stream)->engine] > 0;
}

static struct gantry_stream *choose(struct gantry_dev *dev)
{
	struct gantry_stream *best = NULL;

	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		if (!can_start(stream))
			continue;
		if (!best || stream->priority > best->priority ||
		    (stream->priority == best->priority &&
		     head_of(stream)->seq < head_of(best)->seq))
			best = stream;
	}
	return best;
}

static int start_all(struct gantry_dev *dev)
{
	struct gantry_stream *stream;

	while ((stream = choose(dev))) {
		struct gantry_sim_slot *slot = head_of(stream);

		if (gantry_sim_clock_add(&dev->clock, slot->duration_ns, stream) < 0)
			return -ENOMEM;
		dev->nfree[slot->engine]--;
		stream->running = true;
	}
	return 0;
}

/*
 * Nothing starts here: commands submitted between two polls come at one moment of virtual time, and
 * all of them are there when poll() lets priorities decide.
 */
int gantry_sim_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_sim_slot *slot = &stream->slots[stream->tail % GANTRY_SIM_DEPTH];

	if (stream->tail - stream->head == GANTRY_SIM_DEPTH)
		return -EAGAIN;
	slot->cmd = *cmd;
	slot->seq = ++dev->last_seq;
	estimate(dev, slot);
	stream->tail++;
	return 0;
}

static void finish(struct gantry_dev *dev, struct gantry_stream *stream,
		   struct gantry_done *ret_done)
{
	struct gantry_sim_slot *slot = head_of(stream);
	struct gantry_done done = {
		.tag = slot->cmd.tag,
		.status = GANTRY_OK,
		.blast = GANTRY_BLAST_NONE,
		.device_ns = slot->duration_ns,
	};

	assert(stream->running);
	gantry_sim_worker_run(&dev->worker, &slot->cmd, &done);
	dev->nfree[slot->engine]++;
	stream->running = false;
	stream->head++;
	*ret_done = done;
}

unsigned gantry_sim_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_stream *stream;
	unsigned count = 0;

	if (n == 0)
		return 0;
	/* Without memory for an event what could not start now starts at a later poll(). */
	(void)start_all(dev);
	while (count < n && (stream = gantry_sim_clock_next(&dev->clock))) {
		finish(dev, stream, &ret_done[count++]);
		/* Real work takes real time: then one command a call, as CALLER_RUNS promises. */
		if (dev->worker.device.backend || !gantry_sim_clock_due(&dev->clock))
			break;
	}
	return count;
}
