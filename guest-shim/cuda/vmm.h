/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and addresses apart from each other: vmm.c has them, api_vmm.c what is exported. Under the lock; errors as the Driver API
 * documents them.
 *
 * What is mapped is an allocation of kind CU_MEMORY_MAPPED at that address (memory.c), and belongs to no context.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_VMM_H
#define GANTRY_GUEST_SHIM_CUDA_VMM_H

#include "guest-shim/cuda/core.h"

/* What cuMemCreate() makes: lives while it has handles, or is mapped. */
struct cu_physical {
	struct cu_device *dev;
	size_t bytes;
	gantry_buffer buffer;
	CUmemAllocationProp prop;
	uint32_t nrefs; /* of its handle */
	bool is_mapped;
};

/* Of reservations and memory of @dev, in bytes; 0: there are none. Asks the host. */
uint64_t cu_granule(const struct cu_device *dev);

/* Addresses of @dev alone: whole granules, of which the program's own memory keeps clear. */
CUresult cu_range_new_locked(const struct cu_device *dev, uint64_t bytes, uint64_t align,
			     CUdeviceptr wish, struct gantry_reply_variable *ret_range);
/* Nothing lies there any more. */
CUresult cu_range_end_locked(gantry_buffer range, CUdeviceptr address, uint64_t bytes);
/* The worker is told where a buffer of whole granules lies too; a status of Gantry's. */
int cu_map_tell(const struct cu_device *dev, gantry_buffer buffer, enum gantry_map_what what,
		gantry_buffer range, uint64_t off, uint32_t rights);
/*
 * The program's own memory must never be where a device's is: a pointer says which of both it means. false: it has some there. And: it may
 * be there again.
 */
bool cu_keep_clear(CUdeviceptr address, size_t bytes);
void cu_give_up_clear(CUdeviceptr address, size_t bytes);

/* @align: a power of two, or 0. @wish: where, if that is free; 0: anywhere. */
CUresult cu_reserve_locked(struct cu_device *dev, size_t bytes, size_t align, CUdeviceptr wish,
			   CUdeviceptr *ret_address);
CUresult cu_unreserve_locked(CUdeviceptr address, size_t bytes);

CUresult cu_physical_new_locked(struct cu_device *dev, size_t bytes,
				const CUmemAllocationProp *prop, struct cu_physical **ret_physical);
/* NULL: it is no handle, or was released. */
struct cu_physical *cu_physical_of_locked(CUmemGenericAllocationHandle handle);
/* What is mapped around @address; NULL: nothing. */
struct cu_physical *cu_physical_at_locked(CUdeviceptr address);
void cu_physical_release_locked(struct cu_physical *physical);

CUresult cu_map_locked(CUdeviceptr address, size_t bytes, struct cu_physical *physical);
/* Waits for all that was put into streams; gives the lock up meanwhile. */
CUresult cu_unmap_locked(CUdeviceptr address, size_t bytes);
CUresult cu_set_access_locked(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
			      size_t count);
CUresult cu_get_access_locked(CUdeviceptr address, uint32_t ordinal, unsigned long long *ret_flags);

/* How much from @address on is of one mapping; all of @bytes where there is none. */
size_t cu_mapped_part_locked(CUdeviceptr address, size_t bytes);
/* Whether copies and fills of that device may use all of it: false also where something mapped is followed by something else. */
bool cu_mapped_allows_locked(CUdeviceptr address, size_t bytes, uint32_t ordinal, bool write);
/* How much of @bytes from @address on is mapped, in however many pieces. */
size_t cu_mapped_bytes_locked(CUdeviceptr address, size_t bytes);

#endif
