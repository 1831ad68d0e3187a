/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory of the cuda backend: the device's own, and host memory that it reaches. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

/*
 * To pin memory takes half a millisecond a MiB, most of it to make pages that nobody has touched. From one piece to the
 * next a copy loses some 4 us (H200), a hundredth where pieces are of 16 MiB.
 */
#define PIECE_BYTES (32ull << 20)

struct gantry_mem *gantry_cuda_mem_new(struct gantry_dev *dev, uint32_t kind, uint64_t len)
{
	struct gantry_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return NULL;
	mem->dev = dev;
	mem->kind = kind;
	mem->len = len;
	gantry_list_init(&mem->maps);
	gantry_list_push_back(&dev->mems, &mem->link);
	gantry_cuda_reach_changed(dev);
	return mem;
}

/* Backed, and zero: what another tenant of this process has freed may be given out again. */
static int alloc_clean(struct gantry_dev *dev, uint64_t len, CUdeviceptr *ret_address,
		       struct gantry_err *err)
{
	CUdeviceptr address;
	int r;

	r = gantry_cuda_check(dev, dev->driver->MemAlloc(&address, len), "cuMemAlloc", err);
	if (r < 0)
		return r;
	r = gantry_cuda_check(dev, dev->driver->MemsetD8Async(address, 0, len, dev->own),
			      "clearing memory", err);
	if (r == 0)
		r = gantry_cuda_check(dev, dev->driver->StreamSynchronize(dev->own),
				      "clearing memory", err);
	if (r < 0) {
		(void)dev->driver->MemFree(address); /* the first failure is the one to tell */
		return r;
	}
	*ret_address = address;
	return 0;
}

int gantry_cuda_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			  struct gantry_err *err)
{
	struct gantry_mem *mem;
	int r;

	if (!gantry_range_inside(dev->mem_used, len, dev->mem_bytes))
		return gantry_err_set(err, -ENOMEM, "the device has %zu of %zu bytes left",
				      (size_t)(dev->mem_bytes - dev->mem_used),
				      (size_t)dev->mem_bytes);
	mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_ALLOC, len);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	r = alloc_clean(dev, len, &mem->address, err);
	if (r < 0) {
		gantry_list_remove(&mem->link);
		free(mem);
		return r;
	}
	mem->reachable = true;
	dev->mem_used += len;
	*ret_mem = mem;
	return 0;
}

/*
 * Host memory that is pinned, for all devices of the process: a session's heap comes once for each of them, in the
 * same pieces, and the driver pins a range once only.
 */
struct pin {
	struct gantry_list link; /* pins */
	void *base;
	uint64_t len;
	unsigned int nusers;
};

static struct gantry_list pins = GANTRY_LIST_INIT(pins);
static pthread_mutex_t pins_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult pin_new_locked(const struct gantry_cuda_driver *driver, void *base, uint64_t len)
{
	struct pin *pin = calloc(1, sizeof(*pin));
	CUresult result;

	if (!pin)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = driver->MemHostRegister(
		base, len, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result != CUDA_SUCCESS) {
		free(pin);
		return result;
	}
	*pin = (struct pin){ .base = base, .len = len, .nusers = 1 };
	gantry_list_push_back(&pins, &pin->link);
	return CUDA_SUCCESS;
}

static struct pin *pin_find_locked(const void *base, uint64_t len)
{
	gantry_list_for_each(&pins, struct pin, link, pin)
		if (pin->base == base && pin->len == len)
			return pin;
	return NULL;
}

static CUresult pin_take(const struct gantry_cuda_driver *driver, void *base, uint64_t len)
{
	CUresult result = CUDA_SUCCESS;
	struct pin *pin;

	(void)pthread_mutex_lock(&pins_lock);
	pin = pin_find_locked(base, len);
	if (pin)
		pin->nusers++;
	else
		result = pin_new_locked(driver, base, len);
	(void)pthread_mutex_unlock(&pins_lock);
	return result;
}

static void pin_give(const struct gantry_cuda_driver *driver, void *base, uint64_t len)
{
	struct pin *pin;

	(void)pthread_mutex_lock(&pins_lock);
	pin = pin_find_locked(base, len);
	if (--pin->nusers == 0) {
		(void)driver->MemHostUnregister(base); /* refused after a fault only */
		gantry_list_remove(&pin->link);
		free(pin);
	}
	(void)pthread_mutex_unlock(&pins_lock);
}

/* ---- pieces of host memory ---- */

static uint64_t piece_bytes(const struct gantry_mem *mem, uint64_t i)
{
	return gantry_min_u64(mem->len - i * mem->piece_bytes, mem->piece_bytes);
}

static uint64_t npieces(const struct gantry_mem *mem)
{
	return (mem->len + mem->piece_bytes - 1) / mem->piece_bytes;
}

/*
 * Pins a piece, so that copies run at link speed and kernels reach it. Where that is not to be had (a limit on locked
 * memory, mostly) copies go through the driver's staging.
 */
static void piece_pin(struct gantry_mem *mem, uint64_t i)
{
	CUresult result = pin_take(mem->dev->driver, mem->base + i * mem->piece_bytes,
				   piece_bytes(mem, i));

	mem->pieces[i] = result == CUDA_SUCCESS ? GANTRY_CUDA_PIECE_PINNED
						: GANTRY_CUDA_PIECE_PLAIN;
	mem->dev->pin_refused = result;
	if (result != CUDA_SUCCESS) /* a sticky one is a fault */
		(void)gantry_cuda_check(mem->dev, result, "", NULL);
}

uint64_t gantry_cuda_mem_use(struct gantry_mem *mem, uint64_t off, uint64_t len)
{
	uint64_t i = off / mem->piece_bytes;

	if (mem->pieces[i] == GANTRY_CUDA_PIECE_NEW)
		piece_pin(mem, i);
	return gantry_min_u64(len, (i + 1) * mem->piece_bytes - off);
}

static bool reach_host(struct gantry_mem *mem, uint64_t off, uint64_t len)
{
	uint64_t end = off + len;

	if (!mem->reachable)
		return false;
	while (off < end) {
		uint64_t i = off / mem->piece_bytes;

		off += gantry_cuda_mem_use(mem, off, end - off);
		if (mem->pieces[i] != GANTRY_CUDA_PIECE_PINNED && !mem->dev->pageable)
			return false;
	}
	return true;
}

bool gantry_cuda_mem_is(const struct gantry_dev *dev, uint64_t address, uint64_t bytes)
{
	gantry_list_for_each(&dev->mems, struct gantry_mem, link, mem)
		if (mem->kind != GANTRY_CUDA_MEM_TEXTURE && address >= mem->address &&
		    gantry_range_inside(address - mem->address, bytes, mem->len))
			return true;
	return false;
}

bool gantry_cuda_mem_reach(const struct gantry_dev *dev, const struct gantry_range *range)
{
	struct gantry_mem *mem = range->mem;

	if (mem->base)
		return reach_host(mem, range->off, range->len);
	return mem->reachable && (mem->dev == dev || mem->kind != GANTRY_CUDA_MEM_ALLOC);
}

struct gantry_mem *gantry_cuda_mem_host_at(struct gantry_dev *dev, CUdeviceptr address)
{
	gantry_list_for_each(&dev->mems, struct gantry_mem, link, mem)
		if (mem->base && address - mem->address < mem->len)
			return mem;
	return NULL;
}

/* The address that the device has for all of it. */
static CUresult find_address(struct gantry_mem *mem)
{
	CUresult result = CUDA_SUCCESS;

	mem->address = (CUdeviceptr)(uintptr_t)mem->base;
	mem->reachable = true;
	if (mem->pieces[0] == GANTRY_CUDA_PIECE_PINNED)
		result = mem->dev->driver->MemHostGetDevicePointer(&mem->address, mem->base, 0);
	if (result != CUDA_SUCCESS)
		mem->reachable = false;
	return result;
}

/* What is small is pinned at once; else the sentence in @err says why that was refused before. */
static int pieces_open(struct gantry_mem *mem, struct gantry_err *err)
{
	struct gantry_dev *dev = mem->dev;
	CUresult result;

	mem->piece_bytes = dev->pins_in_place ? PIECE_BYTES : gantry_max_u64(mem->len, 1);
	mem->pieces = calloc(gantry_max_u64(npieces(mem), 1), sizeof(*mem->pieces));
	if (!mem->pieces)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	if (npieces(mem) == 1)
		piece_pin(mem, 0);
	result = find_address(mem);
	if (result == CUDA_SUCCESS)
		result = dev->pin_refused;
	if (result != CUDA_SUCCESS)
		(void)gantry_cuda_check(
			dev, result,
			"host memory is not pinned, copies are slow: cuMemHostRegister", err);
	return 0;
}

static void pieces_close(struct gantry_mem *mem)
{
	for (uint64_t i = 0; mem->pieces && i < npieces(mem); i++)
		if (mem->pieces[i] == GANTRY_CUDA_PIECE_PINNED)
			pin_give(mem->dev->driver, mem->base + i * mem->piece_bytes,
				 piece_bytes(mem, i));
	free(mem->pieces);
}

int gantry_cuda_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_HOST, len);
	int r;

	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->base = base;
	r = pieces_open(mem, err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	*ret_mem = mem;
	return 0;
}

/* After a fault the driver refuses all of this, and the end of the process does it. */
void gantry_cuda_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	if (mem->kind == GANTRY_CUDA_MEM_HOST)
		pieces_close(mem);
	if (mem->kind == GANTRY_CUDA_MEM_ALLOC) {
		(void)mem->dev->driver->MemFree(mem->address);
		mem->dev->mem_used -= mem->len;
	}
	if (mem->kind == GANTRY_CUDA_MEM_WINDOW)
		gantry_cuda_window_close(mem);
	gantry_cuda_texture_end(mem);
	gantry_cuda_reach_changed(mem->dev);
	gantry_list_remove(&mem->link);
	free(mem);
}
