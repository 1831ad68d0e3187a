/* Fourier transforms as devices/kernels/core/fft.c has them: Stockham's, and Bluestein's chirps around it. */

#define SHAPE_COMPLEX	      0u
#define SHAPE_REAL_TO_COMPLEX 1u
#define SHAPE_COMPLEX_TO_REAL 2u

static double2 point_times(double2 a, double2 b)
{
	return (double2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

static double2 conjugate(double2 a)
{
	return (double2)(a.x, -a.y);
}

/* e^(i pi part / whole) to the power of @sign. */
static double2 fft_root(ulong part, ulong whole, int sign)
{
	double angle = M_PI * (double)part / (double)whole;

	return (double2)(cos(angle), sign * sin(angle));
}

/* @roots has m / 2, for @roots_sign; @chirp @nchirp, for @sign. */
__kernel void core_fft_tables(__global double2 *roots, __global double2 *chirp, ulong nchirp, ulong m,
			      int sign, int roots_sign)
{
	FOR_ITEMS(i, max(m / 2, nchirp)) {
		if (i < m / 2)
			roots[i] = fft_root(2 * i, m, roots_sign);
		/* The square modulo a whole turn keeps the angle small, and thus exact. */
		if (i < nchirp)
			chirp[i] = fft_root(i * i % (2 * nchirp), nchirp, sign);
	}
}

/* The group's transform of x[m]; y[m] is used up. Returns which of the two holds the result; all work-items may read it. */
static __global double2 *stockham(__global const double2 *roots, ulong m, __global double2 *x,
				  __global double2 *y)
{
	barrier(CLK_GLOBAL_MEM_FENCE);
	for (ulong shift = 0; m >> shift > 1; shift++) {
		__global double2 *swap = x;

		FOR_LOCALS(i, m / 2) {
			ulong stride = 1ul << shift, p = i >> shift, q = i & (stride - 1);
			double2 a = x[i], b = x[i + m / 2];
			__global double2 *to = y + stride * 2 * p + q;

			to[0] = a + b;
			to[stride] = point_times(a - b, roots[p * stride]);
		}
		barrier(CLK_GLOBAL_MEM_FENCE);
		x = y;
		y = swap;
	}
	return x;
}

/*
 * j k = (j^2 + k^2 - (k - j)^2) / 2 makes the transform a convolution with a chirp; x[m] has the points times the chirp,
 * and zeros behind them. As stockham(), but conjugated, m times as large, and still without its chirp.
 */
static __global double2 *convolve(__global const double2 *roots, __global const double2 *filter, ulong m,
				  __global double2 *x, __global double2 *y)
{
	__global double2 *from = stockham(roots, m, x, y);

	/* Backwards is forwards of the conjugate, conjugated. */
	FOR_LOCALS(i, m)
		from[i] = conjugate(point_times(from[i], filter[i]));
	return stockham(roots, m, from, from == x ? y : x);
}

/* One group: the conjugate chirp for distances of both signs, round the m points, transformed. @slot has 2 m points. */
__kernel void core_fft_filter(__global const double2 *roots, __global const double2 *chirp,
			      __global double2 *filter, __global double2 *slot, ulong n, ulong m)
{
	__global double2 *made;

	FOR_LOCALS(i, m) {
		ulong at = i < n ? i : m - i;

		slot[i] = at < n ? conjugate(chirp[at]) : (double2)(0, 0);
	}
	made = stockham(roots, m, slot, slot + m);
	FOR_LOCALS(i, m)
		filter[i] = made[i];
}

static double2 point_load(__global const float *in, uint shape, ulong n, ulong idx, ulong i)
{
	ulong held = n / 2 + 1;
	/* Of real numbers' transform the second half mirrors the first. */
	bool mirrored = shape == SHAPE_COMPLEX_TO_REAL && i >= held;
	ulong at = mirrored ? n - i : i;
	double2 point;

	if (shape == SHAPE_REAL_TO_COMPLEX)
		return (double2)(in[idx * n + i], 0);
	in += 2 * (idx * (shape == SHAPE_COMPLEX ? n : held) + at);
	point = (double2)(in[0], in[1]);
	/* These are real, whatever stands there. */
	if (shape == SHAPE_COMPLEX_TO_REAL && (at == 0 || 2 * at == n))
		point.y = 0;
	return mirrored ? conjugate(point) : point;
}

static void point_store(__global float *out, uint shape, ulong count, ulong idx, ulong i, double2 point)
{
	if (shape == SHAPE_COMPLEX_TO_REAL) {
		out[idx * count + i] = (float)point.x;
		return;
	}
	out[2 * (idx * count + i)] = (float)point.x;
	out[2 * (idx * count + i) + 1] = (float)point.y;
}

/*
 * Each group has memory for one transform at a time, and takes every so many-th: NPOINTS times x[i] = POINT, MADE,
 * and the result at i is RESULT.
 */
#define TRANSFORMS(NPOINTS, POINT, MADE, RESULT)                                                  \
	ulong count = shape == SHAPE_REAL_TO_COMPLEX ? n / 2 + 1 : n;                             \
	__global double2 *x = slots + 2 * m * get_group_id(0), *y = x + m, *made;                 \
	__local int said;                                                                         \
                                                                                                  \
	for (ulong idx = get_group_id(0); idx < batch; idx += get_num_groups(0)) {                \
		/* All have read what was there before. */                                        \
		if (group_stops(verdict, &said))                                                  \
			return;                                                                   \
		FOR_LOCALS(i, NPOINTS)                                                            \
			x[i] = POINT;                                                             \
		made = MADE;                                                                      \
		FOR_LOCALS(i, count)                                                              \
			point_store(out, shape, count, idx, i, RESULT);                           \
	}

/* n is a power of two, and m the same. */
__kernel void core_fft(__global const float *in, __global float *out, __global const double2 *roots,
		       __global double2 *slots, __global volatile int *verdict, uint shape, ulong n,
		       ulong m, ulong batch)
{
	TRANSFORMS(n, point_load(in, shape, n, idx, i), stockham(roots, m, x, y), made[i])
}

__kernel void core_fft_chirps(__global const float *in, __global float *out,
			      __global const double2 *roots, __global double2 *slots,
			      __global volatile int *verdict, uint shape, ulong n, ulong m, ulong batch,
			      __global const double2 *chirp, __global const double2 *filter)
{
	TRANSFORMS(m,
		   i < n ? point_times(point_load(in, shape, n, idx, i), chirp[i]) : (double2)(0, 0),
		   convolve(roots, filter, m, x, y),
		   point_times(conjugate(made[i]) / (double)m, chirp[i]))
}
