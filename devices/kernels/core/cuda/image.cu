/* SPDX-License-Identifier: Apache-2.0 */
/* Photographs of 8 bits per channel. Past an edge the edge's pixel repeats. */
#include "devices/kernels/core/cuda/gpu.h"

/* NaN becomes 0. */
DEVICE uint8_t to_byte(float value)
{
	value += 0.5f;
	value = value > 0.0f ? value : 0.0f;
	return (uint8_t)(value < 255.0f ? value : 255.0f);
}

DEVICE uint64_t clamp(int64_t at, uint64_t size)
{
	return at < 0 ? 0 : at < (int64_t)size ? (uint64_t)at : size - 1;
}

/* The rows that a tile's sums reach. */
#define BLUR_REACH (GPU_BLUR_ROWS + 2 * GPU_BLUR_RADIUS_MAX)

/* The vertical sums of a tile of 64 columns (bytes, not pixels) and 32 rows. */
DEVICE void columns_make(const struct gpu_blur &a, uint64_t left, uint64_t top, uint8_t *rows)
{
	uint64_t stride = a.width * a.channels;
	uint32_t reach = GPU_BLUR_ROWS + 2 * a.radius;
	uint32_t col = thread_idx() % GPU_BLUR_COLS, first = thread_idx() / GPU_BLUR_COLS;
	uint32_t step = GPU_THREADS / GPU_BLUR_COLS;
	bool inside = left + col < stride;

	/* The tile before may still be in use. */
	block_sync();
	for (uint32_t y = first; inside && y < reach; y += step)
		rows[y * GPU_BLUR_COLS + col] =
			a.src[clamp((int64_t)(top + y) - a.radius, a.height) * stride + left + col];
	block_sync();
	for (uint32_t y = first; inside && y < GPU_BLUR_ROWS && top + y < a.height; y += step) {
		float sum = 0;

		for (uint32_t tap = 0; tap <= 2 * a.radius; tap++)
			sum += a.weights[tap < a.radius ? a.radius - tap : tap - a.radius] *
			       (float)rows[(y + tap) * GPU_BLUR_COLS + col];
		a.between[(top + y) * stride + left + col] = sum;
	}
}

ENTRY(blur_columns, struct gpu_blur, GPU_THREADS)
{
	uint64_t across = (a.width * a.channels + GPU_BLUR_COLS - 1) / GPU_BLUR_COLS;
	uint64_t ntiles = across * ((a.height + GPU_BLUR_ROWS - 1) / GPU_BLUR_ROWS);
	SHARED(uint8_t, rows, BLUR_REACH * GPU_BLUR_COLS);

	for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks())
		columns_make(a, tile % across * GPU_BLUR_COLS, tile / across * GPU_BLUR_ROWS, rows);
}

/* The horizontal sums of GPU_THREADS bytes of a row. */
DEVICE void row_make(const struct gpu_blur &a, uint64_t y, uint64_t left, float *around)
{
	uint64_t stride = a.width * a.channels, x = left + thread_idx();
	uint32_t reach = GPU_THREADS + 2 * a.radius * a.channels;
	const float *row = a.between + y * stride;
	float sum = 0;

	block_sync();
	for (uint32_t i = thread_idx(); i < reach; i += GPU_THREADS) {
		/* The pixel may lie past the row's ends. */
		int64_t pixel = (int64_t)((left + i) / a.channels) - a.radius;

		around[i] = row[clamp(pixel, a.width) * a.channels + (left + i) % a.channels];
	}
	block_sync();
	if (x >= stride)
		return;
	for (uint32_t tap = 0; tap <= 2 * a.radius; tap++)
		sum += a.weights[tap < a.radius ? a.radius - tap : tap - a.radius] *
		       around[thread_idx() + tap * a.channels];
	a.dst[y * stride + x] = to_byte(sum);
}

ENTRY(blur_rows, struct gpu_blur, GPU_THREADS)
{
	uint64_t across = (a.width * a.channels + GPU_THREADS - 1) / GPU_THREADS;
	uint64_t ntiles = across * a.height;
	SHARED(float, around, GPU_THREADS + 2 * GPU_BLUR_RADIUS_MAX *GPU_CHANNELS_MAX);

	for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks())
		row_make(a, tile / across, tile % across * GPU_THREADS, around);
}

/* The luma of BT.601 in 1/256. */
DEVICE uint32_t luma(uint32_t red, uint32_t green, uint32_t blue)
{
	return (77u * red + 150u * green + 29u * blue + 128u) >> 8;
}

DEVICE uint32_t byte_of(uint32_t word, uint32_t idx)
{
	return word >> (8 * idx) & 0xff;
}

DEVICE bool is_word(const void *ptr)
{
	return (uintptr_t)ptr % 4 == 0;
}

ENTRY(grayscale, struct gpu_image, GPU_THREADS)
{
	/* Four pixels are three words. */
	uint64_t nwide = is_word(a.a) && is_word(a.dst) ? a.n / 4 : 0;

	for (uint64_t i = first_item(); i < nwide; i += item_step()) {
		const uint32_t *rgb = (const uint32_t *)a.a + 3 * i;
		uint32_t p = rgb[0], q = rgb[1], r = rgb[2];

		((uint32_t *)a.dst)[i] =
			luma(byte_of(p, 0), byte_of(p, 1), byte_of(p, 2)) |
			luma(byte_of(p, 3), byte_of(q, 0), byte_of(q, 1)) << 8 |
			luma(byte_of(q, 2), byte_of(q, 3), byte_of(r, 0)) << 16 |
			luma(byte_of(r, 1), byte_of(r, 2), byte_of(r, 3)) << 24;
	}
	for (uint64_t i = 4 * nwide + first_item(); i < a.n; i += item_step())
		a.dst[i] = (uint8_t)luma(a.a[3 * i], a.a[3 * i + 1], a.a[3 * i + 2]);
}

DEVICE uint8_t gradient(const uint8_t *up, const uint8_t *mid, const uint8_t *down, uint64_t left,
			uint64_t x, uint64_t right)
{
	int32_t across = up[right] + 2 * mid[right] + down[right] - up[left] - 2 * mid[left] -
			 down[left];
	int32_t along = down[left] + 2 * down[x] + down[right] - up[left] - 2 * up[x] - up[right];

	return to_byte(sqrtf((float)(across * across + along * along)));
}

/* A block takes stretches of rows: one division per stretch. */
ENTRY(sobel, struct gpu_image, GPU_THREADS)
{
	uint64_t last = a.width - 1, nparts = (a.width + GPU_THREADS - 1) / GPU_THREADS;

	for (uint64_t part = block_idx(); part < nparts * a.height; part += grid_blocks()) {
		uint64_t y = part / nparts, x = part % nparts * GPU_THREADS + thread_idx();
		const uint8_t *mid = a.a + y * a.width;
		const uint8_t *up = y == 0 ? mid : mid - a.width;
		const uint8_t *down = y + 1 == a.height ? mid : mid + a.width;

		if (x < a.width)
			a.dst[y * a.width + x] = gradient(up, mid, down, x == 0 ? 0 : x - 1, x,
							  x == last ? last : x + 1);
	}
}

DEVICE uint8_t sharper(uint32_t byte, uint32_t blurred, float amount)
{
	float value = (float)byte;

	return to_byte(value + amount * (value - (float)blurred));
}

ENTRY(unsharp, struct gpu_image, GPU_THREADS)
{
	uint64_t nwide = is_word(a.a) && is_word(a.b) && is_word(a.dst) ? a.n / 4 : 0;

	for (uint64_t i = first_item(); i < nwide; i += item_step()) {
		uint32_t p = ((const uint32_t *)a.a)[i], q = ((const uint32_t *)a.b)[i], made = 0;

#pragma unroll
		for (uint32_t e = 0; e < 4; e++)
			made |= (uint32_t)sharper(byte_of(p, e), byte_of(q, e), a.amount)
				<< (8 * e);
		((uint32_t *)a.dst)[i] = made;
	}
	for (uint64_t i = 4 * nwide + first_item(); i < a.n; i += item_step())
		a.dst[i] = sharper(a.a[i], a.b[i], a.amount);
}

/* @CHANNELS is known to the compiler: it divides by multiplying. */
template <uint32_t CHANNELS> DEVICE void mix(const struct gpu_image &a)
{
	uint64_t nbytes = a.n * CHANNELS;

	for (uint64_t i = first_item(); i < nbytes; i += item_step()) {
		uint32_t share = a.mask[i / CHANNELS];

		a.dst[i] = (uint8_t)((a.a[i] * share + a.b[i] * (255u - share) + 127u) / 255u);
	}
}

ENTRY(combine, struct gpu_image, GPU_THREADS)
{
	if (a.channels == 1)
		mix<1>(a);
	else if (a.channels == 2)
		mix<2>(a);
	else if (a.channels == 3)
		mix<3>(a);
	else
		mix<4>(a);
}
