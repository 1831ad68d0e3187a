/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of the Runtime API are the Driver API's, by another name. */
#ifndef GANTRY_GUEST_SHIM_CUDA_RUNTIME_ARRAY_H
#define GANTRY_GUEST_SHIM_CUDA_RUNTIME_ARRAY_H

#include "guest-shim/cuda/runtime/rt.h"

static inline CUarray rt_array(cudaArray_const_t array)
{
	return (CUarray)(uintptr_t)array;
}

/* false: no element of a texture is so. */
bool rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
	       unsigned int *ret_channels);
struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned int channels);
/* Bytes of an element; 0: it is no array. */
size_t rt_element_bytes(CUarray array);

#endif
