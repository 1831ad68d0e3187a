/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of the hip backend, and the device memory that commands use. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/checked.h"
#include "devices/hip/backend.h"

#define ARENA_FIRST (1ull << 20)
#define ARENA_ALIGN 256u
#define MOST_ALIGN  128u

/* ---- pinned host memory ---- */

/*
 * For all devices of the process: a session's heap comes once for each of them, and the runtime pins a range once only.
 */
struct pin {
	struct gantry_list link; /* pins */
	void *base;
	uint64_t len;
	unsigned nusers;
};

static struct gantry_list pins = GANTRY_LIST_INIT(pins);
static pthread_mutex_t pins_lock = PTHREAD_MUTEX_INITIALIZER;

static struct pin *pin_find_locked(const void *base, uint64_t len)
{
	gantry_list_for_each(&pins, struct pin, link, pin)
		if (pin->base == base && pin->len == len)
			return pin;
	return NULL;
}

static bool pin_new_locked(const struct gantry_hip_driver *hip, void *base, uint64_t len)
{
	struct pin *pin = calloc(1, sizeof(*pin));

	if (!pin)
		return false;
	if (hip->HostRegister(base, len, GANTRY_HIP_HOST_PORTABLE | GANTRY_HIP_HOST_MAPPED) !=
	    GANTRY_HIP_SUCCESS) {
		free(pin);
		return false;
	}
	*pin = (struct pin){ .base = base, .len = len, .nusers = 1 };
	gantry_list_push_back(&pins, &pin->link);
	return true;
}

static bool pin_take(const struct gantry_hip_driver *hip, void *base, uint64_t len)
{
	struct pin *pin;
	bool pinned = true;

	(void)pthread_mutex_lock(&pins_lock);
	pin = pin_find_locked(base, len);
	if (pin)
		pin->nusers++;
	else
		pinned = pin_new_locked(hip, base, len);
	(void)pthread_mutex_unlock(&pins_lock);
	return pinned;
}

static void pin_put(const struct gantry_hip_driver *hip, const void *base, uint64_t len)
{
	struct pin *pin;

	(void)pthread_mutex_lock(&pins_lock);
	pin = pin_find_locked(base, len);
	if (pin && --pin->nusers == 0) {
		(void)hip->HostUnregister(pin->base); /* after a fault the process ends */
		gantry_list_remove(&pin->link);
		free(pin);
	}
	(void)pthread_mutex_unlock(&pins_lock);
}

/* ---- memory objects ---- */

static struct gantry_mem *mem_of(struct gantry_dev *dev, struct gantry_hostmem *host)
{
	struct gantry_mem *mem = gantry_container_of(host, struct gantry_mem, host);

	mem->dev = dev;
	gantry_list_init(&mem->maps);
	return mem;
}

int gantry_hip_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r;

	if (dev->windows)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "the device has windows and imports nothing");
	/* Not pinned: that would back all of it, and the caller decides which parts are. */
	r = gantry_hostmem_import(sizeof(struct gantry_mem), &dev->mems, fd, off, len, &host, err);
	if (r == 0)
		*ret_mem = mem_of(dev, host);
	return r;
}

int gantry_hip_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	struct gantry_mem *mem;
	void *address = NULL;
	int r = gantry_hostmem_new(sizeof(*mem), &dev->mems, base, len, &host, err);

	if (r < 0)
		return r;
	mem = mem_of(dev, host);
	/* Without it everything works, through staged memory. */
	mem->pinned = pin_take(dev->hip, base, len);
	if (mem->pinned && dev->hip->HostGetDevicePointer(&address, base, 0) == GANTRY_HIP_SUCCESS)
		mem->address = address;
	*ret_mem = mem;
	return 0;
}

void gantry_hip_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	if (mem->is_window)
		gantry_hip_window_close(mem);
	if (mem->pinned)
		pin_put(mem->dev->hip, mem->host.base, mem->host.len);
	gantry_hostmem_free(&mem->host);
}

char *gantry_hip_address(const struct gantry_range *range)
{
	return range->mem->address ? range->mem->address + range->off : NULL;
}

/* ---- device memory of a stream ---- */

void gantry_hip_arena_trim(struct gantry_stream *stream)
{
	while (stream->nretired > 0) /* after a fault the process ends */
		(void)stream->dev->hip->Free(stream->retired[--stream->nretired]);
}

void gantry_hip_arena_end(struct gantry_stream *stream)
{
	gantry_hip_arena_trim(stream);
	if (stream->arena)
		(void)stream->dev->hip->Free(stream->arena);
	stream->arena = NULL;
}

static int arena_grow(struct gantry_stream *stream, uint64_t bytes)
{
	uint64_t len = gantry_max_u64(ARENA_FIRST, 2 * stream->arena_len);
	void *address = NULL;
	int r;

	len = gantry_max_u64(gantry_min_u64(len, stream->dev->scratch_bytes), bytes);
	if (stream->arena && stream->nretired == GANTRY_HIP_RETIRED)
		return -ENOMEM;
	r = gantry_hip_outcome(stream->dev->hip->Malloc(&address, len));
	if (r < 0)
		return r;
	if (stream->arena)
		stream->retired[stream->nretired++] = stream->arena;
	stream->arena = address;
	stream->arena_len = len;
	stream->arena_used = 0;
	return 0;
}

/* ---- places ---- */

static uint32_t align_of(const void *address)
{
	uintptr_t bits = (uintptr_t)address | MOST_ALIGN;

	return (uint32_t)(bits & -bits);
}

static struct gantry_hip_place *place_next(struct gantry_stream *stream, uint64_t len)
{
	struct gantry_hip_place *place;

	if (stream->nplaces == GANTRY_HIP_PLACES)
		return NULL;
	place = &stream->places[stream->nplaces++];
	*place = (struct gantry_hip_place){ .buffer = { .len_bytes = len, .align = MOST_ALIGN } };
	return place;
}

int gantry_hip_place_scratch(struct gantry_stream *stream, uint64_t bytes,
			     struct gantry_hip_place **ret_place)
{
	struct gantry_hip_place *place;
	uint64_t rounded;
	int r = 0;

	if (gantry_align_up(bytes ? bytes : 1, ARENA_ALIGN, &rounded) < 0 ||
	    !gantry_range_inside(stream->scratch_used, rounded, stream->dev->scratch_bytes))
		return -ENOMEM;
	if (!gantry_range_inside(stream->arena_used, rounded, stream->arena_len))
		r = arena_grow(stream, rounded);
	place = r == 0 ? place_next(stream, bytes) : NULL;
	if (!place)
		return r < 0 ? r : -ENOMEM;
	place->address = stream->arena + stream->arena_used;
	stream->arena_used += rounded;
	stream->scratch_used += rounded;
	*ret_place = place;
	return 0;
}

/* Also what is written only is copied in: the command may leave some of it as it is. */
static int place_stage(struct gantry_stream *stream, const struct gantry_range *range,
		       uint32_t mode, struct gantry_hip_place **ret_place)
{
	unsigned char *host = range->mem->host.base + range->off;
	const struct gantry_hip_driver *hip = stream->dev->hip;
	struct gantry_hip_place *place;
	int r = gantry_hip_place_scratch(stream, range->len, &place);

	if (r < 0)
		return r;
	/* A guest may have put its data where the type must not lie; it is refused alike everywhere. */
	place->buffer.align = align_of(host);
	place->host = mode == GANTRY_R ? NULL : host;
	r = gantry_hip_outcome(hip->MemcpyAsync(place->address, host, range->len,
						GANTRY_HIP_HOST_TO_DEVICE, stream->native));
	if (r == 0)
		*ret_place = place;
	return r;
}

int gantry_hip_place_take(struct gantry_stream *stream, const struct gantry_range *range,
			  uint32_t mode, struct gantry_hip_place **ret_place)
{
	char *address = gantry_hip_address(range);
	struct gantry_hip_place *place;

	if (!address)
		return place_stage(stream, range, mode, ret_place);
	place = place_next(stream, range->len);
	if (!place)
		return -EINVAL;
	place->address = address;
	place->buffer.align = align_of(address);
	*ret_place = place;
	return 0;
}

int gantry_hip_places_end(struct gantry_stream *stream, bool ok)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	int r = 0;

	for (uint32_t i = 0; i < stream->nplaces && ok && r == 0; i++) {
		const struct gantry_hip_place *place = &stream->places[i];

		if (place->host)
			r = gantry_hip_outcome(hip->MemcpyAsync(
				place->host, place->address, place->buffer.len_bytes,
				GANTRY_HIP_DEVICE_TO_HOST, stream->native));
	}
	stream->nplaces = 0;
	stream->arena_used = 0;
	stream->scratch_used = 0;
	return r;
}
