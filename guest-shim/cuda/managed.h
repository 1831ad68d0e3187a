/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program has said of ranges of its managed memory, and reads back. The memory is pinned on the host and stays there, so nothing else
 * comes of it. Under the lock.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_MANAGED_H
#define GANTRY_GUEST_SHIM_CUDA_MANAGED_H

#include "guest-shim/cuda/core.h"

/* INVALID_VALUE: not all of it is managed memory; INVALID_DEVICE: there is no such place. */
CUresult cu_managed_advise_locked(CUdeviceptr address, size_t bytes, CUmem_advise advice,
				  const CUmemLocation *location);
CUresult cu_managed_prefetch_locked(CUdeviceptr address, size_t bytes,
				    const CUmemLocation *location);
CUresult cu_managed_get_locked(void *data, size_t data_bytes, CUmem_range_attribute attribute,
			       CUdeviceptr address, size_t bytes);
/* It is freed. */
void cu_managed_forget_locked(CUdeviceptr address, size_t bytes);

#endif
