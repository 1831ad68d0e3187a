/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of commands: what is submitted, how it ends, and what the backend asks its host about it meanwhile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/contract_inside.h"

#define MAX_USES (GANTRY_MAX_CMD_ARGS + 2u)

/* A command in the device. */
struct flight {
	struct gantry_list link; /* gantry_dev.flights: in order of submission */
	uint64_t tag;
	struct gantry_object *stream;
	uint32_t nuses;
	struct gantry_object *uses[MAX_USES];
};

static void use(struct flight *flight, struct gantry_object *object)
{
	flight->uses[flight->nuses++] = object;
	object->nuses++;
}

static void check_range(struct gantry_dev *dev, struct flight *flight,
			const struct gantry_range *range)
{
	struct gantry_object *mem = gantry_object_of(range->mem);

	/*
	 * Memory of a sister device is allowed with GANTRY_CAP_PEER; its own checker owns its
	 * count.
	 */
	if (mem && mem->dev != dev && mem->type == GANTRY_OBJECT_MEM && mem->next) {
		if (!(dev->filter.next.info.caps & GANTRY_CAP_PEER))
			gantry_contract_violation(
				dev,
				"a range in memory of another device, without GANTRY_CAP_PEER");
	} else {
		use(flight,
		    gantry_contract_check_object(dev, mem, GANTRY_OBJECT_MEM, "memory of a range"));
	}
	if (mem && !gantry_range_inside(range->off, range->len, mem->len))
		gantry_contract_violation(dev, "a range reaches past memory %u", mem->id);
	if (mem && mem->is_window && mem->dev == dev)
		gantry_contract_check_mapped(dev, mem, range->off, range->len);
}

static void check_launch(struct gantry_dev *dev, struct flight *flight,
			 const struct gantry_cmd_launch *launch)
{
	struct gantry_object *kernel =
		gantry_contract_check_object(dev, launch->kernel, GANTRY_OBJECT_KERNEL, "a kernel");

	use(flight, gantry_contract_check_object(dev, kernel->parent, GANTRY_OBJECT_IMAGE,
						 "the image of a kernel"));
	if (launch->nargs != kernel->sig->nargs)
		gantry_contract_violation(dev,
					  "a launch with %u arguments where the signature has %u",
					  launch->nargs, kernel->sig->nargs);
	if (!kernel->sig->is_raw != !launch->raw)
		gantry_contract_violation(
			dev,
			"a launch with parameters as they are, or without, of another signature");
	for (uint32_t i = 0; i < launch->nargs; i++)
		if (kernel->sig->args[i].mode && launch->args[i].range.mem)
			check_range(dev, flight, &launch->args[i].range);
}

static void check_fill(struct gantry_dev *dev, struct flight *flight,
		       const struct gantry_cmd_fill *fill)
{
	check_range(dev, flight, &fill->dst);
	if (!gantry_is_pow2(fill->pattern_bytes) || fill->pattern_bytes > 8)
		gantry_contract_violation(dev, "a fill with a pattern of %u bytes",
					  fill->pattern_bytes);
	if (fill->dst.len % fill->pattern_bytes != 0)
		gantry_contract_violation(dev,
					  "a fill of a length that is no multiple of its pattern");
}

static void check_stamp(const struct gantry_dev *dev)
{
	if (!(dev->filter.next.info.caps & GANTRY_CAP_STAMP))
		gantry_contract_violation(dev, "a stamp without GANTRY_CAP_STAMP");
}

static void check_cmd(struct gantry_dev *dev, struct flight *flight, const struct gantry_cmd *cmd)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		check_launch(dev, flight, &cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		check_range(dev, flight, &cmd->copy.dst);
		check_range(dev, flight, &cmd->copy.src);
		if (cmd->copy.dst.len != cmd->copy.src.len)
			gantry_contract_violation(dev, "a copy between ranges of different length");
		break;
	case GANTRY_CMD_FILL:
		check_fill(dev, flight, &cmd->fill);
		break;
	case GANTRY_CMD_STAMP:
		check_stamp(dev);
		break;
	default:
		gantry_contract_violation(dev, "a command of unknown kind %u", cmd->kind);
	}
}

static struct flight *find_flight_locked(struct gantry_dev *dev, uint64_t tag)
{
	gantry_list_for_each(&dev->flights, struct flight, link, flight)
		if (flight->tag == tag)
			return flight;
	return NULL;
}

static void add_flight(struct gantry_dev *dev, struct flight *flight)
{
	(void)pthread_mutex_lock(&dev->lock);
	if (find_flight_locked(dev, flight->tag))
		gantry_contract_violation(dev, "tag %llu is in the device already",
					  (unsigned long long)flight->tag);
	gantry_list_push_back(&dev->flights, &flight->link);
	(void)pthread_mutex_unlock(&dev->lock);
}

static void end_flight(struct gantry_dev *dev, struct flight *flight)
{
	(void)pthread_mutex_lock(&dev->lock);
	gantry_list_remove(&flight->link);
	(void)pthread_mutex_unlock(&dev->lock);
	for (uint32_t i = 0; i < flight->nuses; i++)
		flight->uses[i]->nuses--;
	free(flight);
}

static int contract_submit(struct gantry_stream *opaque, const struct gantry_cmd *cmd)
{
	struct gantry_object *stream = gantry_object_of(opaque);
	struct gantry_dev *dev = stream->dev;
	struct flight *flight;
	struct gantry_cmd inner;
	int r;

	gantry_contract_check_thread(dev, "submit");
	gantry_contract_check_object(dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	if (!dev->entered)
		gantry_contract_violation(dev, "submit() before thread_enter()");
	if (dev->broken || stream->broken)
		gantry_contract_violation(
			dev, "submit() after an error that ended the stream or the device");
	flight = calloc(1, sizeof(*flight));
	if (!flight)
		return -EAGAIN; /* a refusal that every caller knows */
	gantry_list_init(&flight->link);
	flight->tag = cmd->tag;
	flight->stream = stream;
	use(flight, stream);
	check_cmd(dev, flight, cmd);
	add_flight(dev, flight); /* before: it may be running when submit() returns */
	gantry_object_unwrap_cmd(cmd, &inner);
	r = dev->filter.next.backend->submit(stream->next, &inner);
	/* What it was given is the caller's again: a backend that kept a pointer reads this. */
	memset(&inner, 0xdb, sizeof(inner));
	if (r > 0)
		gantry_contract_violation(dev, "submit() returned %d", r);
	if (r < 0)
		end_flight(dev, flight);
	return r;
}

/* The backend's side. */

static bool status_exists(int32_t status)
{
	return status == GANTRY_OK || strcmp(gantry_status_name(status), "unknown") != 0;
}

static void note_blast(struct gantry_dev *dev, struct gantry_object *stream, uint32_t blast)
{
	if (blast == GANTRY_BLAST_STREAM)
		stream->broken = true;
	if (blast == GANTRY_BLAST_CONTEXT || blast == GANTRY_BLAST_DEVICE)
		dev->broken = true;
}

static void check_done(struct gantry_dev *dev, const struct gantry_done *done)
{
	unsigned long long tag = done->tag;
	struct flight *flight;

	(void)pthread_mutex_lock(&dev->lock);
	flight = find_flight_locked(dev, done->tag);
	if (!flight)
		gantry_contract_violation(
			dev, "poll() told of tag %llu, which is not in the device", tag);
	gantry_list_for_each(&dev->flights, struct flight, link, earlier) {
		if (earlier == flight)
			break;
		if (earlier->stream == flight->stream)
			gantry_contract_violation(
				dev, "tag %llu finished before tag %llu of the same stream", tag,
				(unsigned long long)earlier->tag);
	}
	(void)pthread_mutex_unlock(&dev->lock);
	if (!status_exists(done->status))
		gantry_contract_violation(dev, "tag %llu has status %d, which does not exist", tag,
					  done->status);
	if (done->blast > GANTRY_BLAST_DEVICE)
		gantry_contract_violation(dev, "tag %llu has blast %u, which does not exist", tag,
					  done->blast);
	if ((done->status == GANTRY_OK) != (done->blast == GANTRY_BLAST_NONE))
		gantry_contract_violation(dev, "tag %llu: status %d does not fit blast %u", tag,
					  done->status, done->blast);
	if (done->units > dev->filter.next.info.units)
		gantry_contract_violation(dev, "tag %llu was kept to %u units of %u", tag,
					  done->units, dev->filter.next.info.units);
	note_blast(dev, flight->stream, done->blast);
	end_flight(dev, flight);
}

static unsigned contract_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_device *next = &dev->filter.next;
	unsigned count;

	gantry_contract_check_thread(dev, "poll");
	count = next->backend->poll(next->dev, ret_done, n);
	if (count > n)
		gantry_contract_violation(dev, "poll() returned %u of at most %u", count, n);
	for (unsigned int i = 0; i < count; i++)
		check_done(dev, &ret_done[i]);
	return count;
}

static void contract_flush(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	gantry_contract_check_thread(stream->dev, "flush");
	gantry_contract_check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	stream->dev->filter.next.backend->flush(stream->next);
}

static void contract_boundary(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	gantry_contract_check_thread(stream->dev, "boundary");
	gantry_contract_check_object(stream->dev, stream, GANTRY_OBJECT_STREAM, "a stream");
	stream->dev->filter.next.backend->boundary(stream->next);
}

/* ---- the host, as the backend sees it ---- */

static void checked_wake(void *cookie)
{
	struct gantry_dev *dev = cookie;

	dev->host->wake(dev->host->cookie);
}

/* The command that it asks about is in the device. */
static void check_flight(struct gantry_dev *dev, const char *call, uint64_t tag)
{
	bool known;

	(void)pthread_mutex_lock(&dev->lock);
	known = find_flight_locked(dev, tag) != NULL;
	(void)pthread_mutex_unlock(&dev->lock);
	if (!known)
		gantry_contract_violation(dev, "%s() about tag %llu, which is not in the device",
					  call, (unsigned long long)tag);
}

static int checked_cancelled(void *cookie, uint64_t tag)
{
	struct gantry_dev *dev = cookie;

	check_flight(dev, "cancelled", tag);
	return dev->host->cancelled(dev->host->cookie, tag);
}

static void checked_off_device(void *cookie, uint64_t tag, bool off)
{
	struct gantry_dev *dev = cookie;

	gantry_contract_check_thread(dev, "off_device");
	check_flight(dev, "off_device", tag);
	if (dev->host->off_device)
		dev->host->off_device(dev->host->cookie, tag, off);
}

static bool checked_print_begin(void *cookie, uint64_t tag)
{
	struct gantry_dev *dev = cookie;

	gantry_contract_check_thread(dev, "print_begin");
	check_flight(dev, "print_begin", tag);
	return dev->host->print_begin && dev->host->print_begin(dev->host->cookie, tag);
}

static void checked_print_end(void *cookie, uint64_t tag, uint32_t fault)
{
	struct gantry_dev *dev = cookie;

	gantry_contract_check_thread(dev, "print_end");
	dev->host->print_end(dev->host->cookie, tag, fault);
}

/* ---- all of them ---- */

void gantry_contract_commands_init(struct gantry_dev *dev)
{
	dev->checked_host = (struct gantry_device_host){
		checked_wake,	    checked_cancelled,	 dev,
		checked_off_device, checked_print_begin, checked_print_end
	};
	gantry_list_init(&dev->flights);
	(void)pthread_mutex_init(&dev->lock, NULL); /* default attributes cannot fail */
}

void gantry_contract_commands_fini(struct gantry_dev *dev)
{
	gantry_list_for_each_safe(&dev->flights, struct flight, link, flight) {
		gantry_list_remove(&flight->link);
		free(flight);
	}
	(void)pthread_mutex_destroy(&dev->lock);
}

void gantry_contract_commands_cover(struct gantry_backend *ops)
{
	ops->submit = contract_submit;
	ops->poll = contract_poll;
	ops->flush = ops->flush ? contract_flush : NULL;
	ops->boundary = ops->boundary ? contract_boundary : NULL;
}
