/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory of the cuda backend: the device's own, and host memory that it reaches. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

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
 * Host memory that is pinned, for all devices of the process: a session's heap comes once for each of them, and
 * the driver pins a range once only.
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

/*
 * Pins the memory, so that copies run at link speed and kernels reach it. Where that is not to be had (a limit on
 * locked memory, mostly) copies go through the driver's staging, and the sentence in @err says why.
 */
static void register_host(struct gantry_mem *mem, struct gantry_err *err)
{
	const struct gantry_cuda_driver *driver = mem->dev->driver;
	CUresult result = pin_take(driver, mem->base, mem->len);

	if (result == CUDA_SUCCESS) {
		mem->registered = true;
		result = driver->MemHostGetDevicePointer(&mem->address, mem->base, 0);
		mem->reachable = result == CUDA_SUCCESS;
	} else if (mem->dev->pageable) {
		mem->address = (CUdeviceptr)(uintptr_t)mem->base;
		mem->reachable = true;
	}
	if (result != CUDA_SUCCESS)
		(void)gantry_cuda_check(
			mem->dev, result,
			"host memory is not pinned, copies are slow: cuMemHostRegister", err);
}

int gantry_cuda_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_HOST, len);

	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->base = base;
	register_host(mem, err);
	*ret_mem = mem;
	return 0;
}

/* After a fault the driver refuses all of this, and the end of the process does it. */
void gantry_cuda_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	if (mem->registered)
		pin_give(mem->dev->driver, mem->base, mem->len);
	if (mem->kind == GANTRY_CUDA_MEM_ALLOC) {
		(void)mem->dev->driver->MemFree(mem->address);
		mem->dev->mem_used -= mem->len;
	}
	if (mem->kind == GANTRY_CUDA_MEM_WINDOW)
		gantry_cuda_window_close(mem);
	gantry_list_remove(&mem->link);
	free(mem);
}
