/* Matrices, row-major. */

#define GEMM_COLS 16

/* A work-item makes up to GEMM_COLS elements of a row; each is added up from k = 0 on. */
__kernel void core_gemm(__global const float *a, __global const float *b, __global float *c, ulong m,
			ulong n, ulong k, ulong strips)
{
	FOR_ITEMS(item, m * strips) {
		ulong row = item / strips, col = item % strips * GEMM_COLS;
		ulong width = min((ulong)GEMM_COLS, n - col);
		float acc[GEMM_COLS];

		for (ulong j = 0; j < GEMM_COLS; j++)
			acc[j] = 0;
		for (ulong l = 0; l < k; l++) {
			float factor = a[row * k + l];

			for (ulong j = 0; j < width; j++)
				acc[j] += factor * b[l * n + col + j];
		}
		for (ulong j = 0; j < width; j++)
			c[row * n + col + j] = acc[j];
	}
}

__kernel void core_fan1(__global const float *a, __global float *m, ulong n, ulong t)
{
	float pivot = a[t * n + t];

	FOR_ITEMS(i, n - t - 1)
		m[(i + t + 1) * n + t] = a[(i + t + 1) * n + t] / pivot;
}

__kernel void core_fan2(__global const float *m, __global float *a, __global float *b, ulong n, ulong t)
{
	ulong width = n - t;

	FOR_ITEMS(item, (n - t - 1) * width) {
		ulong i = item / width + t + 1, j = item % width + t;
		float factor = m[i * n + t];

		a[i * n + j] -= factor * a[t * n + j];
		if (j == t)
			b[i] -= factor * b[t];
	}
}

/* One group: clears column after column, and substitutes back. */
__kernel void core_gaussian(__global float *a, __global float *b, __global float *x, __global float *m,
			    __global volatile int *verdict, ulong n)
{
	__local int said;

	for (ulong t = 0; t + 1 < n; t++) {
		ulong width = n - t;

		if (group_stops(verdict, &said))
			return;
		FOR_LOCALS(i, n - t - 1)
			m[i + t + 1] = a[(i + t + 1) * n + t] / a[t * n + t];
		barrier(CLK_GLOBAL_MEM_FENCE);
		FOR_LOCALS(item, (n - t - 1) * width) {
			ulong i = item / width + t + 1, j = item % width + t;

			a[i * n + j] -= m[i] * a[t * n + j];
			if (j == t)
				b[i] -= m[i] * b[t];
		}
		barrier(CLK_GLOBAL_MEM_FENCE);
	}
	if (get_local_id(0) != 0)
		return;
	for (ulong i = n; i-- > 0;) {
		float rest = b[i];

		for (ulong j = i + 1; j < n; j++)
			rest -= a[i * n + j] * x[j];
		x[i] = rest / a[i * n + i];
	}
}
