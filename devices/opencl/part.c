/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a device: OpenCL's sub-devices, of which a stream has a queue each. A launch says which it is to run on, and
 * commands of a stream go on one after the other whichever they are put to.
 *
 * What a device's part is was made of the whole each time: units by BY_COUNTS, of which those before the part are another's,
 * and domains by BY_AFFINITY_DOMAIN. A driver that gives a part no queue in its parent's context is one without parts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "devices/opencl/backend.h"

/* ---- making one ---- */

static void release_all(const struct gantry_dev *dev, cl_device_id *devices, cl_uint n,
			cl_device_id but)
{
	for (cl_uint i = 0; i < n; i++)
		if (devices[i] != but)
			(void)dev->cl->ReleaseDevice(devices[i]);
}

/* The units of @from from @first on; NULL: it cannot be. */
static cl_device_id make_counted(const struct gantry_dev *dev, cl_device_id from, uint32_t first,
				 uint32_t count)
{
	const cl_device_partition_property with_first[] = { CL_DEVICE_PARTITION_BY_COUNTS, first,
							    count,
							    CL_DEVICE_PARTITION_BY_COUNTS_LIST_END,
							    0 };
	const cl_device_partition_property alone[] = { CL_DEVICE_PARTITION_BY_COUNTS, count,
						       CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0 };
	cl_device_id made[2] = { NULL };
	cl_uint n = first ? 2 : 1, ret_n = 0;

	if (dev->cl->CreateSubDevices(from, first ? with_first : alone, n, made, &ret_n) !=
		    CL_SUCCESS ||
	    ret_n != n)
		return NULL;
	release_all(dev, made, n, made[n - 1]);
	return made[n - 1];
}

static cl_uint make_domain(const struct gantry_dev *dev, uint32_t domain,
			   cl_device_id made[GANTRY_OPENCL_DOMAIN_PARTS])
{
	const cl_device_partition_property list[] = { CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
						      domain, 0 };
	cl_uint n = 0;

	if (dev->cl->CreateSubDevices(dev->target.device, list, GANTRY_OPENCL_DOMAIN_PARTS, made,
				      &n) != CL_SUCCESS)
		return 0;
	return (cl_uint)gantry_min_u64(n, GANTRY_OPENCL_DOMAIN_PARTS);
}

static cl_device_id take_domain(const struct gantry_dev *dev, const struct gantry_launch_part *what)
{
	cl_device_id made[GANTRY_OPENCL_DOMAIN_PARTS], found = NULL;
	cl_uint n = make_domain(dev, what->domain, made);

	if (what->index < n)
		found = made[what->index];
	release_all(dev, made, n, found);
	return found;
}

/* A domain's device stays for as long as a part of it: PoCL does not see to that. false: it cannot be. */
static bool make_device(const struct gantry_dev *dev, struct gantry_opencl_part *part)
{
	const struct gantry_launch_part *what = &part->what;
	cl_device_id from = dev->target.device;

	if (what->domain) {
		from = take_domain(dev, what);
		if (!what->count) {
			part->device = from;
			return from;
		}
		part->domain = from;
	}
	part->device = from ? make_counted(dev, from, what->first, what->count) : NULL;
	return part->device;
}

/* ---- how a device can be divided ---- */

static bool takes_queues(const struct gantry_dev *dev, cl_device_id part)
{
	cl_int result = CL_SUCCESS;
	cl_command_queue queue = dev->cl->CreateCommandQueue(dev->context, part,
							     CL_QUEUE_PROFILING_ENABLE, &result);

	if (result == CL_SUCCESS)
		(void)dev->cl->ReleaseCommandQueue(queue);
	return result == CL_SUCCESS;
}

static void find_domain(struct gantry_dev *dev, uint32_t d)
{
	cl_device_id made[GANTRY_OPENCL_DOMAIN_PARTS];
	cl_uint n = make_domain(dev, 1u << d, made);
	bool usable = n > 1;

	for (cl_uint i = 0; i < n; i++) {
		uint64_t units = gantry_opencl_number(dev->cl, made[i], CL_DEVICE_MAX_COMPUTE_UNITS,
						      0);

		usable = usable && units > 0 && units <= GANTRY_PART_MAX_UNITS &&
			 takes_queues(dev, made[i]);
		dev->domains[d].units[i] = (uint32_t)units;
	}
	dev->domains[d].nparts = usable ? n : 0;
	release_all(dev, made, n, NULL);
}

/* Both ways are made of counts here. */
static uint32_t find_counts(const struct gantry_dev *dev, uint32_t ways)
{
	cl_device_id last;
	bool usable;

	if (!(ways & GANTRY_PART_COUNTS) || dev->units < 2 || dev->units > GANTRY_PART_MAX_UNITS)
		return 0;
	last = make_counted(dev, dev->target.device, dev->units - 1, 1);
	usable = last && takes_queues(dev, last);
	if (last)
		(void)dev->cl->ReleaseDevice(last);
	return usable ? ways : 0;
}

void gantry_opencl_parts_find(struct gantry_dev *dev)
{
	cl_device_partition_property ways[8] = { 0 };
	uint64_t domains = gantry_opencl_number(dev->cl, dev->target.device,
						CL_DEVICE_PARTITION_AFFINITY_DOMAIN, 0);
	uint32_t found = 0;
	bool by_domain = false;

	if (dev->cl->GetDeviceInfo(dev->target.device, CL_DEVICE_PARTITION_PROPERTIES, sizeof(ways),
				   ways, NULL) != CL_SUCCESS)
		return;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(ways) && ways[i]; i++) {
		found |= ways[i] == CL_DEVICE_PARTITION_EQUALLY	    ? GANTRY_PART_EQUALLY
			 : ways[i] == CL_DEVICE_PARTITION_BY_COUNTS ? GANTRY_PART_COUNTS
								    : 0;
		by_domain = by_domain || ways[i] == CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
	}
	dev->partition = find_counts(dev, found);
	for (uint32_t d = 0; by_domain && d < GANTRY_PART_NDOMAINS; d++)
		if (domains >> d & 1)
			find_domain(dev, d);
}

/* ---- letting go of one ---- */

/*
 * To OpenCL a queue keeps its device. PoCL's do not keep a sub-device, and a thread of PoCL's looks at it once more when our
 * callback has been called and clFinish() has returned: to free what an event had. Until then the event has its queue; so the
 * sub-device of a queue that is ours alone, to which nothing more is put, is looked at no more. What is let go of sooner
 * waits here, until another part of the process's is let go of. It is never more than PoCL has threads.
 */
static struct {
	pthread_mutex_t lock;
	struct gantry_list parts;
} leaving = { .lock = PTHREAD_MUTEX_INITIALIZER, .parts = GANTRY_LIST_INIT(leaving.parts) };

static bool is_ours_alone(const struct gantry_opencl_part *part)
{
	cl_uint n = 0;

	return part->cl->GetCommandQueueInfo(part->queue, CL_QUEUE_REFERENCE_COUNT, sizeof(n), &n,
					     NULL) == CL_SUCCESS &&
	       n == 1;
}

static void part_free(struct gantry_opencl_part *part)
{
	if (part->queue)
		(void)part->cl->ReleaseCommandQueue(part->queue);
	if (part->device)
		(void)part->cl->ReleaseDevice(part->device);
	if (part->domain)
		(void)part->cl->ReleaseDevice(part->domain);
	free(part);
}

/* Nothing of the guest's is in flight there. */
static void part_leave(struct gantry_opencl_part *part)
{
	pthread_mutex_lock(&leaving.lock);
	gantry_list_push_back(&leaving.parts, &part->leaving);
	gantry_list_for_each_safe(&leaving.parts, struct gantry_opencl_part, leaving, one) {
		if (one->looks_late && !is_ours_alone(one))
			continue;
		gantry_list_remove(&one->leaving);
		part_free(one);
	}
	pthread_mutex_unlock(&leaving.lock);
}

/* ---- using one ---- */

static uint32_t domain_number(uint32_t domain)
{
	return (uint32_t)__builtin_ctz(domain);
}

/* The part of this device that is nearest to @part: as many units, and those that it says, as far as they go. */
static struct gantry_launch_part nearest(const struct gantry_dev *dev,
					 const struct gantry_launch_part *part)
{
	struct gantry_launch_part found = *part;
	uint32_t units = dev->units;

	if (part->domain) {
		uint32_t d = domain_number(part->domain);

		if (dev->domains[d].nparts == 0)
			return (struct gantry_launch_part){ 0 };
		found.index = (uint16_t)(part->index % dev->domains[d].nparts);
		units = dev->domains[d].units[found.index];
	}
	if (!(dev->partition & GANTRY_PART_COUNTS) || part->count >= units) {
		found.first = found.count = 0;
		return found;
	}
	if (found.first > units - found.count)
		found.first = (uint16_t)(units - found.count);
	return found;
}

/* The present one is the one that the next waits for. */
static bool is_in_use(const struct gantry_stream *stream, const struct gantry_opencl_part *part)
{
	uint32_t since = stream->submitted - part->used_below;

	return part->queue == stream->queue || since < stream->submitted - stream->ended;
}

/* The place of none, or of the oldest that is not in use; NULL: all are. */
static struct gantry_opencl_part **find_room(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_OPENCL_PARTS; i++) {
		uint32_t at = (stream->next_part + i) % GANTRY_OPENCL_PARTS;

		if (stream->parts[at] && is_in_use(stream, stream->parts[at]))
			continue;
		stream->next_part = at + 1;
		return &stream->parts[at];
	}
	return NULL;
}

static int part_make(struct gantry_stream *stream, const struct gantry_launch_part *what,
		     struct gantry_opencl_part **ret_part)
{
	const struct gantry_dev *dev = stream->dev;
	struct gantry_opencl_part *part = calloc(1, sizeof(*part));
	cl_int result = CL_OUT_OF_HOST_MEMORY;

	if (!part)
		return -ENOMEM;
	part->what = *what;
	part->cl = dev->cl;
	part->looks_late = dev->is_pocl;
	part->used_below = stream->submitted;
	if (make_device(dev, part))
		part->queue = dev->cl->CreateCommandQueue(dev->context, part->device,
							  CL_QUEUE_PROFILING_ENABLE, &result);
	if (result != CL_SUCCESS) {
		part->queue = NULL;
		part_free(part);
		return gantry_opencl_outcome(stream, result);
	}
	*ret_part = part;
	return 0;
}

/* In the place of another. Its commands are not waited for: how long they take is their guest's affair, and this thread all guests'. */
static int part_add(struct gantry_stream *stream, const struct gantry_launch_part *what,
		    cl_command_queue *ret_queue)
{
	struct gantry_opencl_part **room = find_room(stream), *fresh = NULL;
	int r;

	if (!room) {
		gantry_opencl_flush(stream);
		return -EAGAIN;
	}
	r = part_make(stream, what, &fresh);
	if (r < 0)
		return r;
	if (*room)
		part_leave(*room);
	*room = fresh;
	*ret_queue = fresh->queue;
	return 0;
}

static int find_queue(struct gantry_stream *stream, const struct gantry_launch_part *what,
		      cl_command_queue *ret_queue)
{
	*ret_queue = stream->whole;
	if (!what->domain && !what->count)
		return 0;
	for (uint32_t i = 0; i < GANTRY_OPENCL_PARTS; i++)
		if (stream->parts[i] && memcmp(&stream->parts[i]->what, what, sizeof(*what)) == 0) {
			*ret_queue = stream->parts[i]->queue;
			return 0;
		}
	return part_add(stream, what, ret_queue);
}

/* All that was submitted so far may be on the present queue, none of what comes. */
static void leave(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_OPENCL_PARTS; i++)
		if (stream->parts[i] && stream->parts[i]->queue == stream->queue)
			stream->parts[i]->used_below = stream->submitted;
}

/* What @queue gets waits for all that the stream has in flight. */
static int follow(struct gantry_stream *stream, cl_command_queue queue)
{
	const struct gantry_opencl_driver *cl = stream->dev->cl;
	cl_event last = gantry_opencl_last_event(stream);
	cl_int result;

	if (!last)
		return 0;
	result = cl->Flush(stream->queue);
	if (result == CL_SUCCESS)
		result = cl->EnqueueBarrierWithWaitList(queue, 1, &last, NULL);
	return gantry_opencl_outcome(stream, result);
}

/* 0: all of the device. */
static uint32_t units_of(const struct gantry_dev *dev, const struct gantry_launch_part *what)
{
	if (what->count || !what->domain)
		return what->count;
	return dev->domains[domain_number(what->domain)].units[what->index];
}

int gantry_opencl_part_use(struct gantry_stream *stream, const struct gantry_launch_part *part)
{
	struct gantry_launch_part what = *part;
	cl_command_queue queue;
	int r;

	if (part->domain || part->count)
		what = nearest(stream->dev, part);
	stream->slot->done.units = units_of(stream->dev, &what);
	r = find_queue(stream, &what, &queue);
	if (r < 0 || queue == stream->queue)
		return r;
	r = follow(stream, queue);
	if (r < 0)
		return r;
	leave(stream);
	stream->queue = queue;
	return 0;
}

void gantry_opencl_parts_end(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_OPENCL_PARTS; i++)
		if (stream->parts[i])
			part_leave(stream->parts[i]);
}
