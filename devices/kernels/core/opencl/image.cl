/* Photographs: rows of 8-bit pixels, channels side by side. Beyond an edge the edge's pixel repeats. */

/* NaN becomes 0. */
static uchar to_byte(float value)
{
	value += 0.5f;
	value = value > 0.0f ? value : 0.0f;
	return (uchar)(value < 255.0f ? value : 255.0f);
}

static ulong near(ulong at, long by, ulong count)
{
	long idx = (long)at + by;

	return idx < 0 ? 0 : idx < (long)count ? (ulong)idx : count - 1;
}

/* By distance; their sum over both sides is 1. */
__kernel void core_blur_weights(__global float *weights, uint radius, float sigma)
{
	double wide = (double)sigma, sum = 0;

	if (get_global_id(0) != 0)
		return;
	for (uint i = 0; i <= radius; i++) {
		double weight = exp(-((double)i * i) / (2 * wide * wide));

		sum += i == 0 ? weight : 2 * weight;
	}
	for (uint i = 0; i <= radius; i++)
		weights[i] = (float)(exp(-((double)i * i) / (2 * wide * wide)) / sum);
}

__kernel void core_blur_columns(__global const uchar *src, __global float *between,
				__global const float *weights, ulong width, ulong height, ulong channels,
				uint radius)
{
	ulong stride = width * channels;

	FOR_ITEMS(i, stride * height) {
		ulong y = i / stride, x = i % stride;
		float sum = 0;

		for (long tap = -(long)radius; tap <= (long)radius; tap++)
			sum += weights[tap < 0 ? -tap : tap] *
			       (float)src[near(y, tap, height) * stride + x];
		between[i] = sum;
	}
}

__kernel void core_blur_rows(__global const float *between, __global uchar *dst,
			     __global const float *weights, ulong width, ulong height, ulong channels,
			     uint radius)
{
	ulong stride = width * channels;

	FOR_ITEMS(i, stride * height) {
		ulong row = i / stride * stride, x = i % stride / channels, c = i % channels;
		float sum = 0;

		for (long tap = -(long)radius; tap <= (long)radius; tap++)
			sum += weights[tap < 0 ? -tap : tap] *
			       between[row + near(x, tap, width) * channels + c];
		dst[i] = to_byte(sum);
	}
}

/* The luma of BT.601 in 1/256. */
__kernel void core_grayscale(__global const uchar *rgb, __global uchar *gray, ulong n)
{
	FOR_ITEMS(i, n)
		gray[i] = (uchar)((77u * rgb[3 * i] + 150u * rgb[3 * i + 1] + 29u * rgb[3 * i + 2] +
				   128u) >>
				  8);
}

__kernel void core_sobel(__global const uchar *src, __global uchar *dst, ulong width, ulong height)
{
	FOR_ITEMS(i, width * height) {
		ulong y = i / width, x = i % width;
		__global const uchar *up = src + near(y, -1, height) * width;
		__global const uchar *mid = src + y * width;
		__global const uchar *down = src + near(y, 1, height) * width;
		ulong left = near(x, -1, width), right = near(x, 1, width);
		int across = up[right] + 2 * mid[right] + down[right] - up[left] - 2 * mid[left] -
			     down[left];
		int along = down[left] + 2 * down[x] + down[right] - up[left] - 2 * up[x] - up[right];

		dst[i] = to_byte(sqrt((float)(across * across + along * along)));
	}
}

__kernel void core_unsharp(__global const uchar *src, __global const uchar *blurred,
			   __global uchar *dst, ulong n, float amount)
{
	FOR_ITEMS(i, n) {
		float value = (float)src[i];

		dst[i] = to_byte(value + amount * (value - (float)blurred[i]));
	}
}

__kernel void core_combine(__global const uchar *a, __global const uchar *b, __global const uchar *mask,
			   __global uchar *dst, ulong n, ulong channels)
{
	FOR_ITEMS(i, n) {
		uint share = mask[i / channels];

		dst[i] = (uchar)((a[i] * share + b[i] * (255u - share) + 127u) / 255u);
	}
}
