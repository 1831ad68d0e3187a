/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays, textures and surfaces. An array is a buffer of the session's that only copies reach, its elements row after row
 * (GANTRY_TEXTURE_ARRAY); a texture is the number that kernels are given, and is the device's own.
 *
 *   array.c    arrays and their levels; texture.c textures and surfaces
 *   api_array.c, streams_array.c  exported
 *
 * Threads and errors: as core.h.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_ARRAY_H
#define GANTRY_GUEST_SHIM_CUDA_ARRAY_H

#include "guest-shim/cuda/core.h"

#define CU_MAX_LEVELS 32u

struct CUarray_st {
	struct CUctx_st *ctx;
	gantry_buffer buffer;
	CUDA_ARRAY3D_DESCRIPTOR desc; /* as it was asked for; of a level, with what is left of it */
	uint32_t element_bytes;
	uint64_t row_bytes;
	uint64_t rows; /* of a plane, 1 or more */
	uint64_t planes;
	struct CUmipmappedArray_st *mipmap; /* of a level; it ends with that */
};

struct CUmipmappedArray_st {
	struct CUctx_st *ctx;
	gantry_buffer buffer;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	uint32_t nlevels;
	struct CUarray_st *levels[CU_MAX_LEVELS]; /* NULL: nobody has asked */
};

struct cu_texture {
	struct cu_texture *next;
	struct CUctx_st *ctx;
	uint64_t number; /* as kernels and the program have it; one of its device's */
	gantry_buffer buffer;
	bool is_surface;
	bool has_view;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC sampling;
	CUDA_RESOURCE_VIEW_DESC view;
};

/* ---- array.c ---- */
/* 0: no such elements. */
uint32_t cu_element_bytes(CUarray_format format, unsigned int channels);
uint64_t cu_array_bytes(const struct CUarray_st *array);
CUresult cu_array_new_locked(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
			     struct CUarray_st **ret_array);
CUresult cu_array_end_locked(struct CUarray_st *array);
CUresult cu_mipmap_new_locked(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
			      unsigned int nlevels, struct CUmipmappedArray_st **ret_mipmap);
CUresult cu_mipmap_level_locked(struct CUmipmappedArray_st *mipmap, unsigned int level,
				struct CUarray_st **ret_array);
void cu_mipmap_end_locked(struct CUmipmappedArray_st *mipmap);
/* What a context had, textures too. */
void cu_array_end_all_locked(const struct CUctx_st *ctx);
/* What the host says of a request for an array or texture. */
CUresult cu_texture_result(int status);

/* ---- texture.c ---- */
/* Takes @asked but for its number and buffer. */
CUresult cu_texture_new_locked(const struct cu_texture *asked, uint64_t *ret_number);
/* Of this context's device; NULL: none. */
struct cu_texture *cu_texture_find_locked(const struct CUctx_st *ctx, uint64_t number,
					  bool is_surface);
void cu_texture_end_locked(struct cu_texture *texture);
void cu_texture_end_all_locked(const struct CUctx_st *ctx);

#endif
