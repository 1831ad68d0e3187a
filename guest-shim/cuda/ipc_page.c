/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of 64 bytes in pages of device memory, which other processes of the tenant open as they open any. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "guest-shim/cuda/aside.h"
#include "guest-shim/cuda/ipc.h"

static_assert(CU_PAGE_BYTES <= CU_ASIDE_BYTES, "a page is cleared at once");

static struct cu_page *pages;

uint64_t cu_slot_off(uint32_t index)
{
	return (uint64_t)index * sizeof(struct cu_slot);
}

/* There, where no piece of memory is the device's too. */
static int move_far(gantry_buffer buffer, uint64_t off, void *words, size_t bytes, bool to_device)
{
	return to_device ? gantry_write(cu.session, buffer, off, words, bytes)
			 : gantry_read(cu.session, buffer, off, words, bytes);
}

int cu_slot_move(uint32_t device, gantry_buffer buffer, uint64_t off, void *words, size_t bytes,
		 bool to_device)
{
	int r;

	if (cu_is_far())
		return move_far(buffer, off, words, bytes, to_device);
	cu_aside_enter();
	r = cu_aside_open(device);
	if (r == 0 && to_device)
		memcpy(cu_aside_piece(), words, bytes);
	if (r == 0)
		r = cu_aside_copy(device, buffer, off, bytes, to_device);
	if (r == 0 && !to_device)
		memcpy(words, cu_aside_piece(), bytes);
	cu_aside_leave();
	return r;
}

static CUresult new_page(const struct cu_device *dev)
{
	struct cu_page *page = calloc(1, sizeof(*page));
	_cleanup_free_ void *zero = calloc(1, CU_PAGE_BYTES);
	CUdeviceptr address;
	CUresult result;

	if (!page || !zero) {
		free(page);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	page->device = dev->index;
	result = cu_buffer_new_locked(dev, CU_PAGE_BYTES, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED,
				      &page->buffer, &address);
	if (result == CUDA_SUCCESS)
		result = cu_result(
			cu_slot_move(page->device, page->buffer, 0, zero, CU_PAGE_BYTES, true));
	if (result != CUDA_SUCCESS) {
		if (page->buffer)
			(void)gantry_free(cu.session, page->buffer);
		free(page);
		return result;
	}
	page->next = pages;
	pages = page;
	return CUDA_SUCCESS;
}

static bool take_slot(const struct cu_device *dev, struct cu_page **ret_page, uint32_t *ret_index)
{
	for (struct cu_page *page = pages; page; page = page->next)
		for (uint32_t i = 0; i < CU_PAGE_SLOTS && page->device == dev->index; i++)
			if (!page->is_taken[i]) {
				page->is_taken[i] = true;
				*ret_page = page;
				*ret_index = i;
				return true;
			}
	return false;
}

CUresult cu_slot_take_locked(const struct cu_device *dev, struct cu_page **ret_page,
			     uint32_t *ret_index)
{
	CUresult result;

	if (take_slot(dev, ret_page, ret_index))
		return CUDA_SUCCESS;
	result = new_page(dev);
	if (result != CUDA_SUCCESS)
		return result;
	return take_slot(dev, ret_page, ret_index) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void cu_slot_put_locked(struct cu_page *page, uint32_t index)
{
	page->is_taken[index] = false;
}
