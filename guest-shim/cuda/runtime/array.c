/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays. */
#include "guest-shim/cuda/runtime/array.h"

#include <string.h>

/* ---- elements ---- */

struct cudaChannelFormatDesc CUDARTAPI cudaCreateChannelDesc(int x, int y, int z, int w,
							     enum cudaChannelFormatKind kind)
{
	return (struct cudaChannelFormatDesc){ x, y, z, w, kind };
}

static const struct {
	enum cudaChannelFormatKind kind;
	int bits;
	CUarray_format format;
} formats[] = {
	{ cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8 },
	{ cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16 },
	{ cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32 },
	{ cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8 },
	{ cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16 },
	{ cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32 },
	{ cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF },
	{ cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT },
};
#define NFORMATS (sizeof(formats) / sizeof(formats[0]))

bool rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
	       unsigned int *ret_channels)
{
	const int bits[] = { desc->x, desc->y, desc->z, desc->w };
	unsigned int n = 0;

	/* Channels are the first ones, and of one size. */
	while (n < 4 && bits[n] == desc->x && bits[n] != 0)
		n++;
	for (unsigned int i = n; i < 4; i++)
		if (bits[i] != 0)
			return false;
	if (n != 1 && n != 2 && n != 4)
		return false;
	for (size_t i = 0; i < NFORMATS; i++)
		if (formats[i].kind == desc->f && formats[i].bits == desc->x) {
			*ret_format = formats[i].format;
			*ret_channels = n;
			return true;
		}
	return false;
}

struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned int channels)
{
	for (size_t i = 0; i < NFORMATS; i++)
		if (formats[i].format == format)
			return (struct cudaChannelFormatDesc){ formats[i].bits,
							       channels > 1 ? formats[i].bits : 0,
							       channels > 2 ? formats[i].bits : 0,
							       channels > 3 ? formats[i].bits : 0,
							       formats[i].kind };
	return (struct cudaChannelFormatDesc){ 0, 0, 0, 0, cudaChannelFormatKindNone };
}

size_t rt_element_bytes(CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	struct cudaChannelFormatDesc channel;

	if (cuArray3DGetDescriptor(&desc, array) != CUDA_SUCCESS)
		return 0;
	channel = rt_channels(desc.Format, 1);
	return (size_t)channel.x / 8 * desc.NumChannels;
}

/* ---- arrays ---- */

static CUresult describe(const struct cudaChannelFormatDesc *channel, struct cudaExtent extent,
			 unsigned int flags, CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
	memset(ret_desc, 0, sizeof(*ret_desc));
	if (!channel)
		return CUDA_ERROR_INVALID_VALUE;
	if (!rt_format(channel, &ret_desc->Format, &ret_desc->NumChannels))
		return (CUresult)cudaErrorInvalidChannelDescriptor;
	ret_desc->Width = extent.width;
	ret_desc->Height = extent.height;
	ret_desc->Depth = extent.depth;
	ret_desc->Flags = flags; /* the same numbers */
	return CUDA_SUCCESS;
}

static CUresult make(cudaArray_t *array, const struct cudaChannelFormatDesc *channel,
		     struct cudaExtent extent, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUarray made;
	CUresult result = array ? describe(channel, extent, flags, &desc)
				: CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cuArray3DCreate(&made, &desc);
	if (result == CUDA_SUCCESS)
		*array = (cudaArray_t)made;
	return result;
}

cudaError_t CUDARTAPI cudaMallocArray(cudaArray_t *array,
				      const struct cudaChannelFormatDesc *channel, size_t width,
				      size_t height, unsigned int flags)
{
	return RT(make(array, channel, (struct cudaExtent){ width, height, 0 }, flags));
}

cudaError_t CUDARTAPI cudaMalloc3DArray(cudaArray_t *array,
					const struct cudaChannelFormatDesc *channel,
					struct cudaExtent extent, unsigned int flags)
{
	return RT(make(array, channel, extent, flags));
}

cudaError_t CUDARTAPI cudaFreeArray(cudaArray_t array)
{
	cudaError_t error = rt_enter();

	/* NULL is none, and no error. */
	return error == cudaSuccess && array ? rt_leave(cuArrayDestroy(rt_array(array))) : error;
}

static CUresult info(struct cudaChannelFormatDesc *channel, struct cudaExtent *extent,
		     unsigned int *flags, cudaArray_const_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUresult result = cuArray3DGetDescriptor(&desc, rt_array(array));

	if (result != CUDA_SUCCESS)
		return result;
	if (channel)
		*channel = rt_channels(desc.Format, desc.NumChannels);
	if (extent)
		*extent = (struct cudaExtent){ desc.Width, desc.Height, desc.Depth };
	if (flags)
		*flags = desc.Flags;
	return CUDA_SUCCESS;
}

cudaError_t CUDARTAPI cudaArrayGetInfo(struct cudaChannelFormatDesc *channel,
				       struct cudaExtent *extent, unsigned int *flags,
				       cudaArray_t array)
{
	return RT(info(channel, extent, flags, array));
}

cudaError_t CUDARTAPI cudaGetChannelDesc(struct cudaChannelFormatDesc *channel,
					 cudaArray_const_t array)
{
	return RT(channel ? info(channel, NULL, NULL, array) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult make_levels(cudaMipmappedArray_t *mipmap,
			    const struct cudaChannelFormatDesc *channel, struct cudaExtent extent,
			    unsigned int nlevels, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUmipmappedArray made;
	CUresult result = mipmap ? describe(channel, extent, flags, &desc)
				 : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cuMipmappedArrayCreate(&made, &desc, nlevels);
	if (result == CUDA_SUCCESS)
		*mipmap = (cudaMipmappedArray_t)made;
	return result;
}

cudaError_t CUDARTAPI cudaMallocMipmappedArray(cudaMipmappedArray_t *mipmap,
					       const struct cudaChannelFormatDesc *channel,
					       struct cudaExtent extent, unsigned int nlevels,
					       unsigned int flags)
{
	return RT(make_levels(mipmap, channel, extent, nlevels, flags));
}

cudaError_t CUDARTAPI cudaGetMipmappedArrayLevel(cudaArray_t *array,
						 cudaMipmappedArray_const_t mipmap,
						 unsigned int level)
{
	return RT(cuMipmappedArrayGetLevel((CUarray *)array, (CUmipmappedArray)(uintptr_t)mipmap,
					   level));
}

cudaError_t CUDARTAPI cudaFreeMipmappedArray(cudaMipmappedArray_t mipmap)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess && mipmap
		       ? rt_leave(cuMipmappedArrayDestroy((CUmipmappedArray)mipmap))
		       : error;
}
