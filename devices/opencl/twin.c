/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twins: what a device whose memory is apart has of ranges of host memory, for as long as nothing else needs the room. A launch finds there
 * what an earlier one brought or made, if the contents are known to be the same (gantry_range.contents).
 *
 * Host memory has everything whenever the end of a command has been told: what a batch of commands wrote is read back behind its last one,
 * before the callback that tells its end. Between the two a twin is *newer*: it alone has the bytes. At most one that is newer has any byte,
 * so a command whose range cuts through one waits (-EAGAIN) until that has been read back; one with the very same range works on it.
 *
 * So a twin that is not newer may go whenever it likes, and a worker that dies takes nothing along that anybody was told of.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "devices/opencl/backend.h"

/* ---- who is at work on it ---- */

/* Command @at of @stream has been submitted, and its batch has not been seen to end. */
static bool in_flight(const struct gantry_stream *stream, uint32_t at)
{
	return at - stream->ended < stream->submitted - stream->ended;
}

static bool is_newer(const struct gantry_opencl_twin *twin)
{
	for (uint32_t i = 0; i < twin->nusers; i++)
		if (twin->users[i].wrote &&
		    in_flight(twin->users[i].stream, twin->users[i].wrote_at))
			return true;
	return false;
}

static bool is_used_by_others(const struct gantry_opencl_twin *twin,
			      const struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < twin->nusers; i++)
		if (twin->users[i].stream != stream &&
		    in_flight(twin->users[i].stream, twin->users[i].used_at))
			return true;
	return false;
}

static void user_remove(struct gantry_opencl_twin *twin, uint32_t i)
{
	twin->users[i] = twin->users[--twin->nusers];
}

/* The stream's entry; a new one in place of one that has ended. NULL: as many streams as are remembered are at work on it. */
static struct gantry_opencl_twin_user *user_of(struct gantry_opencl_twin *twin,
					       struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < twin->nusers; i++)
		if (twin->users[i].stream == stream)
			return &twin->users[i];
	for (uint32_t i = twin->nusers; i-- > 0;)
		if (!in_flight(twin->users[i].stream, twin->users[i].used_at))
			user_remove(twin, i);
	if (twin->nusers == GANTRY_OPENCL_TWIN_USERS)
		return NULL;
	twin->users[twin->nusers] = (struct gantry_opencl_twin_user){ .stream = stream };
	return &twin->users[twin->nusers++];
}

/* ---- what one queue does before another ---- */

/* What the stream enqueues next comes behind the command at @mark, another stream's perhaps. */
static int follow(struct gantry_stream *stream, const struct gantry_opencl_mark *mark)
{
	const struct gantry_opencl_driver *cl = stream->dev->cl;
	const struct gantry_opencl_slot *slot;
	cl_int result;

	if (!mark->stream || mark->stream == stream || !in_flight(mark->stream, mark->at))
		return 0;
	slot = &mark->stream->slots[mark->at % GANTRY_OPENCL_DEPTH];
	if (slot->nevents == 0)
		return 0;
	result = cl->Flush(mark->stream->queue);
	if (result == CL_SUCCESS)
		result = cl->EnqueueBarrierWithWaitList(stream->queue, 1,
							&slot->events[slot->nevents - 1], NULL);
	return gantry_opencl_outcome(stream, result);
}

/* ---- life ---- */

static void count(uint64_t *counter, uint64_t bytes)
{
	gantry_store_relaxed(counter, *counter + bytes); /* one thread writes it */
}

static void drop(struct gantry_dev *dev, struct gantry_opencl_twin *twin)
{
	gantry_list_remove(&twin->link);
	dev->ntwins--;
	dev->twin_bytes -= twin->len;
	/* OpenCL keeps it for as long as a command uses it. */
	(void)dev->cl->ReleaseMemObject(twin->mem);
	free(twin);
}

static bool is_taken(const struct gantry_dev *dev, const struct gantry_opencl_twin *twin)
{
	return twin->taken == dev->nattempts;
}

static bool may_go(const struct gantry_dev *dev, const struct gantry_opencl_twin *twin)
{
	return !is_taken(dev, twin) && !is_newer(twin);
}

/* Those that were not used for longest go until no more than @bytes and @n are left, or only such as cannot. */
static void shrink(struct gantry_dev *dev, uint64_t bytes, uint32_t n)
{
	gantry_list_for_each_safe(&dev->twins, struct gantry_opencl_twin, link, twin) {
		if (dev->twin_bytes <= bytes && dev->ntwins <= n)
			return;
		if (may_go(dev, twin))
			drop(dev, twin);
	}
}

void gantry_opencl_twins_trim(struct gantry_dev *dev)
{
	dev->nattempts++; /* what took some is over */
	shrink(dev, dev->keep_bytes, GANTRY_OPENCL_TWINS);
}

bool gantry_opencl_twins_make_way(struct gantry_dev *dev)
{
	uint32_t n = dev->ntwins;

	dev->nattempts++; /* what took some is over */
	shrink(dev, 0, 0);
	return dev->ntwins < n;
}

/* What was enqueued for a command that was then refused may yet read host memory. */
static void finish_stray(struct gantry_stream *stream)
{
	const struct gantry_opencl_driver *cl = stream->dev->cl;

	if (!stream->stray)
		return;
	(void)cl->Finish(stream->whole);
	for (uint32_t i = 0; i < GANTRY_OPENCL_PARTS; i++)
		if (stream->parts[i] && stream->parts[i]->queue)
			(void)cl->Finish(stream->parts[i]->queue);
	stream->stray = false;
}

void gantry_opencl_twins_leave_mem(struct gantry_mem *mem)
{
	struct gantry_dev *dev = mem->dev;

	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		finish_stray(stream);
	gantry_list_for_each_safe(&dev->twins, struct gantry_opencl_twin, link, twin)
		if (twin->of == mem)
			drop(dev, twin);
}

void gantry_opencl_twins_leave_stream(struct gantry_stream *stream)
{
	finish_stray(stream); /* its memory may go next, and nobody would know whom to wait for */
	gantry_list_for_each(&stream->dev->twins, struct gantry_opencl_twin, link, twin) {
		for (uint32_t i = twin->nusers; i-- > 0;)
			if (twin->users[i].stream == stream)
				user_remove(twin, i);
		if (twin->filled.stream == stream)
			twin->filled.stream = NULL;
		if (twin->back.stream == stream)
			twin->back.stream = NULL;
		if (twin->stray == stream)
			twin->stray = NULL;
	}
}

/* ---- finding one ---- */

static bool is_of(const struct gantry_opencl_twin *twin, const struct gantry_range *range,
		  const struct gantry_launch_image *image)
{
	return twin->of == range->mem && twin->off == range->off && twin->len == range->len &&
	       memcmp(&twin->image, image, sizeof(*image)) == 0;
}

static bool overlaps(const struct gantry_opencl_twin *twin, const struct gantry_range *range)
{
	return twin->of == range->mem && twin->off < range->off + range->len &&
	       range->off < twin->off + twin->len;
}

/* Its batches are on their way to their ends. */
static void push(const struct gantry_opencl_twin *twin)
{
	for (uint32_t i = 0; i < twin->nusers; i++)
		gantry_opencl_close_batch(twin->users[i].stream);
}

/* The range's own, or NULL. -EAGAIN: some of its bytes another one alone has. */
static int find(struct gantry_stream *stream, const struct gantry_range *range,
		const struct gantry_launch_image *image, struct gantry_opencl_twin **ret_twin)
{
	struct gantry_opencl_twin *found = NULL;
	bool waits = false;

	gantry_list_for_each(&stream->dev->twins, struct gantry_opencl_twin, link, twin) {
		bool own = is_of(twin, range, image);

		if (own)
			found = twin;
		if ((own && !twin->spoilt) || !overlaps(twin, range) || !is_newer(twin))
			continue;
		push(twin);
		waits = true;
	}
	*ret_twin = found;
	return waits ? -EAGAIN : 0;
}

/* ---- taking one ---- */

static int add(struct gantry_stream *stream, const struct gantry_range *range,
	       const struct gantry_launch_image *image, struct gantry_opencl_twin **ret_twin)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_opencl_twin *twin;
	int r;

	stream->wanted_bytes += range->len;
	stream->hopeless = range->len > dev->most_bytes || stream->wanted_bytes > dev->device_bytes;
	if (stream->hopeless)
		return -ENOMEM;
	shrink(dev, range->len < dev->keep_bytes ? dev->keep_bytes - range->len : 0,
	       GANTRY_OPENCL_TWINS - 1);
	if (dev->ntwins >= 2 * GANTRY_OPENCL_TWINS) {
		gantry_opencl_close_batches(dev); /* results of all are on their way */
		return -EAGAIN;
	}
	twin = calloc(1, sizeof(*twin));
	if (!twin)
		return -ENOMEM;
	r = gantry_opencl_object_make(stream, image, range->len, &twin->mem);
	if (r < 0) {
		free(twin);
		return r;
	}
	twin->of = range->mem;
	twin->off = range->off;
	twin->len = range->len;
	twin->image = *image;
	gantry_list_push_back(&dev->twins, &twin->link);
	dev->ntwins++;
	dev->twin_bytes += twin->len;
	*ret_twin = twin;
	return 0;
}

static struct gantry_opencl_place place_of(const struct gantry_opencl_twin *twin)
{
	return (struct gantry_opencl_place){
		.buffer = { .len_bytes = twin->len },
		.mem = twin->mem,
		.host = twin->of->host.base + twin->off,
		.image = twin->image,
	};
}

/* The newest event is a twin's: it says nothing of how long the kernel takes. */
static void note_copy(struct gantry_opencl_slot *slot)
{
	if (slot->nevents)
		slot->copies |= 1u << (slot->nevents - 1);
}

static int fill(struct gantry_stream *stream, struct gantry_opencl_twin *twin, uint64_t contents)
{
	const struct gantry_opencl_place place = place_of(twin);
	int r = gantry_opencl_place_write(stream, &place);

	twin->contents = 0;
	if (r < 0)
		return r;
	note_copy(stream->slot);
	twin->contents = contents;
	twin->stray = NULL; /* the stream's own, which comes before */
	twin->filled_in = stream->dev->nattempts;
	twin->filled = (struct gantry_opencl_mark){ stream, stream->submitted };
	count(&stream->dev->copied_in, twin->len);
	return 0;
}

static bool is_current(const struct gantry_opencl_twin *twin, const struct gantry_range *range)
{
	return is_newer(twin) || (range->contents && twin->contents == range->contents);
}

/* Another stream's commands look at it, or one that was refused there may yet write it. */
static bool is_others(const struct gantry_opencl_twin *twin, const struct gantry_stream *stream)
{
	return is_used_by_others(twin, stream) || (twin->stray && twin->stray != stream);
}

/* @twin may be NULL. What is another stream's is left to it. */
static int choose(struct gantry_stream *stream, struct gantry_opencl_twin *twin,
		  const struct gantry_range *range, const struct gantry_launch_image *image,
		  bool fresh, struct gantry_opencl_twin **ret_twin)
{
	struct gantry_dev *dev = stream->dev;
	int r = 0;

	if (twin && is_current(twin, range)) {
		if (!fresh)
			count(&dev->kept, twin->len);
		*ret_twin = twin;
		return follow(stream, &twin->filled);
	}
	if (twin && is_others(twin, stream)) {
		drop(dev, twin);
		twin = NULL;
	}
	if (!twin)
		r = add(stream, range, image, &twin);
	if (r < 0)
		return r;
	twin->contents = 0;
	twin->spoilt = false;
	r = fresh ? 0 : fill(stream, twin, range->contents);
	if (r < 0)
		drop(dev, twin);
	else
		*ret_twin = twin;
	return r;
}

int gantry_opencl_twin_take(struct gantry_stream *stream, const struct gantry_range *range,
			    const struct gantry_launch_image *image, bool fresh,
			    struct gantry_opencl_twin **ret_twin)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_opencl_twin *twin;
	int r = find(stream, range, image, &twin);

	if (r < 0)
		return r;
	/* The command has it already: what it finds there is what it was given. */
	if (!twin || !is_taken(dev, twin))
		r = choose(stream, twin, range, image, fresh, &twin);
	if (r < 0)
		return r;
	if (!user_of(twin, stream)) {
		push(twin);
		return -EAGAIN;
	}
	twin->taken = dev->nattempts;
	gantry_list_remove(&twin->link);
	gantry_list_push_back(&dev->twins, &twin->link);
	*ret_twin = twin;
	return 0;
}

int gantry_opencl_twin_look(struct gantry_stream *stream, const struct gantry_range *range,
			    bool *ret_newer)
{
	static const struct gantry_launch_image none;
	struct gantry_opencl_twin *twin;
	int r = find(stream, range, &none, &twin);

	if (r == 0)
		*ret_newer = twin && is_newer(twin);
	return r;
}

/* ---- what has been done with them ---- */

/* The command has other parts of it, in other twins: which of them is right, host memory will show. */
static bool is_shared_out(const struct gantry_stream *stream,
			  const struct gantry_opencl_place *place)
{
	const struct gantry_opencl_twin *mine = place->twin;
	const struct gantry_range range = { mine->of, mine->off, mine->len, 0 };

	for (uint32_t i = 0; i < stream->nplaces; i++)
		if (stream->places[i].twin && stream->places[i].twin != mine &&
		    stream->places[i].read_back && overlaps(stream->places[i].twin, &range))
			return true;
	return false;
}

static void note_dirty(struct gantry_stream *stream, struct gantry_opencl_twin *twin)
{
	for (uint32_t i = 0; i < stream->ndirty; i++)
		if (stream->dirty[i] == twin)
			return;
	assert(stream->ndirty < GANTRY_OPENCL_DIRTY); /* submit() has seen to it */
	stream->dirty[stream->ndirty++] = twin;
}

static void note_written(struct gantry_stream *stream, const struct gantry_opencl_place *place,
			 uint64_t makes)
{
	struct gantry_opencl_twin *twin = place->twin;
	const struct gantry_range range = { twin->of, twin->off, twin->len, 0 };
	struct gantry_opencl_twin_user *user = user_of(twin, stream);

	user->wrote = true;
	user->wrote_at = stream->submitted;
	twin->spoilt = is_shared_out(stream, place);
	twin->contents = place->contents && !twin->spoilt ? makes : 0;
	note_dirty(stream, twin);
	gantry_list_for_each(&stream->dev->twins, struct gantry_opencl_twin, link, other)
		if (other != twin && overlaps(other, &range))
			other->contents = 0;
}

void gantry_opencl_twins_used(struct gantry_stream *stream, bool ok, uint64_t makes)
{
	stream->stray = stream->stray || (!ok && stream->slot->nevents > 0);
	for (uint32_t i = 0; i < stream->nplaces; i++) {
		const struct gantry_opencl_place *place = &stream->places[i];

		if (!place->twin)
			continue;
		if (ok)
			user_of(place->twin, stream)->used_at = stream->submitted;
		else if (place->read_back || place->twin->filled_in == stream->dev->nattempts)
			place->twin->contents = 0; /* nobody can tell when it is filled */
		if (!ok && place->twin->filled_in == stream->dev->nattempts)
			place->twin->stray = stream;
	}
	for (uint32_t i = 0; i < stream->nplaces && ok; i++)
		if (stream->places[i].twin && stream->places[i].read_back)
			note_written(stream, &stream->places[i], makes);
}

static int read_back(struct gantry_stream *stream, struct gantry_opencl_twin *twin)
{
	const struct gantry_opencl_place place = place_of(twin);
	/* Two streams may have written it: the later copy has what the earlier one has. */
	int r = follow(stream, &twin->back);

	if (r == 0)
		r = gantry_opencl_place_read(stream, &place);
	if (r < 0)
		return r;
	note_copy(stream->slot);
	twin->back = (struct gantry_opencl_mark){ stream, stream->submitted - 1 };
	count(&stream->dev->copied_out, twin->len);
	return 0;
}

int gantry_opencl_twins_read_back(struct gantry_stream *stream, struct gantry_opencl_slot *last)
{
	struct gantry_opencl_slot *present = stream->slot;
	int r = 0;

	stream->slot = last;
	for (uint32_t i = 0; i < stream->ndirty && r == 0; i++)
		r = read_back(stream, stream->dirty[i]);
	stream->ndirty = 0;
	stream->slot = present;
	return r;
}
