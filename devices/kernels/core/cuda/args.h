/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host functions of core-cuda.so hand to its device code: each device function takes one of
 * these structures by value. Pointers are device addresses.
 *
 * Trust: the host function has checked counts against spans; what buffers hold, the device code
 *   checks.
 */
#ifndef GANTRY_DEVICES_KERNELS_CORE_CUDA_ARGS_H
#define GANTRY_DEVICES_KERNELS_CORE_CUDA_ARGS_H

#include <stdint.h>

#include "devices/cuda/module.h"

/* Threads of a block, unless said otherwise at the function. */
#define GPU_THREADS 256u

/*
 * Device memory of one run by which the blocks agree to stop. Which of the two words is meant takes
 * turns with the barriers, so that no block reads one that a faster block writes already.
 */
struct gpu_stop {
	uint32_t now[2];
};

struct gpu_nothing {
	uint32_t unused;
};

struct gpu_spin {
	uint64_t ns;
	struct gantry_cuda_verdict *verdict;
};

struct gpu_move {
	const uint8_t *src;
	uint8_t *dst;
	uint64_t n;
};

struct gpu_checksum {
	const uint8_t *bytes;
	uint64_t *sum; /* zero */
	uint64_t n;
};

struct gpu_vectors {
	const float *x;
	const float *y;
	float *out;
	uint64_t n;
	float alpha;
};

/* Partial sums by n alone, joined in order: the same bits on a device of any size. */
#define GPU_REDUCE_BLOCKS_MAX 1024u
#define GPU_REDUCE_BLOCK_MIN  4096u

struct gpu_reduce {
	const float *x;
	const float *y;
	double *partial;
	uint64_t n;
	uint64_t block; /* elements of one partial sum; a multiple of 4 */
};

struct gpu_join {
	const double *partial;
	float *out;
	uint32_t npartial;
	uint32_t adds; /* to what is there */
};

/* A block makes this many rows and columns of the product. */
#define GPU_GEMM_TILE 128u

struct gpu_gemm {
	const float *a;
	const float *b;
	float *c;
	uint64_t m, n, k;
};

struct gpu_elimination {
	float *a;
	float *b;
	float *m; /* multiplier i is m[i * m_stride] */
	uint64_t n;
	uint64_t t;
	uint64_t m_stride;
	/* Of the whole elimination only. */
	float *x;
	float *rest; /* n elements of scratch */
	struct gpu_stop *stop;
	struct gantry_cuda_verdict *verdict;
};

struct gpu_numbers {
	void *out;
	uint64_t n;
	uint64_t seed;
	uint64_t offset;
	float shift;
	float scale;
};

struct gpu_option {
	const double *spot;
	double *price;
	uint64_t n;
	double rate, volatility, years, strike;
};

struct gpu_book {
	const float *spot, *strike, *years;
	float *call, *put;
	uint64_t n;
	float rate, volatility;
};

#define GPU_BLUR_RADIUS_MAX 256u
#define GPU_CHANNELS_MAX    4u
/* A block of blur_columns makes this many columns and rows of bytes. */
#define GPU_BLUR_COLS 64u
#define GPU_BLUR_ROWS 32u

struct gpu_blur {
	const uint8_t *src;
	float *between;
	uint8_t *dst;
	uint64_t width, height;
	uint32_t channels, radius;
	float weights[GPU_BLUR_RADIUS_MAX + 1];
};

struct gpu_image {
	const uint8_t *a;
	const uint8_t *b;
	const uint8_t *mask;
	uint8_t *dst;
	uint64_t n;
	uint64_t width, height;
	uint32_t channels;
	float amount;
};

/* Rows, or layers, that a thread goes down; in three dimensions the block is a plane ACROSS wide. */
#define GPU_DOWN    4u
#define GPU_ACROSS  32u
#define GPU_BESIDES (GPU_THREADS / GPU_ACROSS)

struct gpu_plate {
	const float *power;
	const float *in;
	float *out;
	float *spare; /* takes turns with out; unused for one step */
	uint64_t rows, cols;
	uint32_t nsteps;
	float dt, per_rx, per_ry, per_rz, ambient;
	struct gpu_stop *stop; /* more than one step: these two */
	struct gantry_cuda_verdict *verdict;
};

struct gpu_block {
	const float *power;
	const float *in;
	float *out;
	float *spare;
	uint64_t nx, ny, nz;
	uint32_t nsteps;
	float here, side_x, side_y, side_z, heat, ambient;
	struct gpu_stop *stop;
	struct gantry_cuda_verdict *verdict;
};

/* Rows that a tile goes down without asking its neighbours, and columns that it works on. */
#define GPU_PATH_HALO 32u
#define GPU_PATH_SPAN 1024u
#define GPU_PATH_COLS (GPU_PATH_SPAN - 2 * GPU_PATH_HALO)

struct gpu_path {
	const int32_t *wall;
	int32_t *result;
	int32_t *costs[2];
	uint64_t rows, cols;
	struct gpu_stop *stop;
	struct gantry_cuda_verdict *verdict;
};

/* A warp makes a tile of the score, a lane per row. */
#define GPU_ALIGN_ROWS	  32u
#define GPU_ALIGN_COLS	  64u
#define GPU_ALIGN_WARPS	  4u
#define GPU_ALIGN_THREADS (32u * GPU_ALIGN_WARPS)

struct gpu_align {
	const uint8_t *from_a;
	const uint8_t *from_b;
	uint8_t *a; /* scratch */
	uint8_t *b;
	int32_t *score;
	uint64_t na, nb;
	int32_t penalty;
	struct gpu_stop *stop;
	struct gantry_cuda_verdict *verdict;
};

#define GPU_NEAREST_MAX 1024u
#define GPU_DIGITS	8u   /* of a key, 8 bits each */
#define GPU_BINS	256u /* values of a digit */

/* All zero at the start, but for the keys: all ones. */
struct gpu_nearest_scratch {
	uint32_t bins[GPU_DIGITS][GPU_BINS];
	uint32_t nfound;
	uint32_t reserved;
	uint64_t keys[GPU_NEAREST_MAX];
};

struct gpu_nearest {
	const float *records;
	float *distance;
	uint32_t *idx;
	struct gpu_nearest_scratch *scratch;
	uint32_t n, k;
	float x, y;
};

struct gpu_bfs {
	const uint32_t *from; /* the guest's offsets */
	const uint32_t *targets;
	int32_t *level;
	uint32_t *offsets; /* our copy */
	uint32_t *queues[2];
	uint32_t *visited; /* a bit per node */
	uint32_t *nqueued; /* [3] */
	struct gpu_stop *stop;
	uint64_t nnodes, nedges;
	uint32_t source;
	struct gantry_cuda_verdict *verdict;
};

/* Particles of other boxes at a time in shared memory. */
#define GPU_LAVA_THREADS 128u

struct gpu_particle {
	double x, y, z, charge;
};

struct gpu_lava {
	const struct gpu_particle *particles;
	struct gpu_particle *forces;
	uint32_t boxes1d;
	uint64_t per_box;
	double alpha;
	struct gantry_cuda_verdict *verdict;
};

/* Particles whose weights are summed in one go, whatever the device's size. */
#define GPU_FILTER_CHUNK 1024u

struct gpu_filter {
	const uint8_t *frames;
	float *estimates;
	uint64_t width, height, nframes, n;
	uint64_t seed;
	float start_x, start_y;
	double *x[2], *y[2];
	double *weight, *cdf;
	/* Per chunk: the greatest likelihood, then the sums of weights and of weighted positions. */
	double *best, *sum, *sum_x, *sum_y;
	struct gpu_stop *stop;
	struct gantry_cuda_verdict *verdict;
};

#endif
