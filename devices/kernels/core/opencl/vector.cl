/* Bytes and vectors. */

__kernel void core_vadd(__global const float *x, __global const float *y, __global float *out, ulong n)
{
	FOR_ITEMS(i, n)
		out[i] = x[i] + y[i];
}

__kernel void core_vscale(float alpha, __global const float *x, __global float *out, ulong n)
{
	FOR_ITEMS(i, n)
		out[i] = alpha * x[i];
}

__kernel void core_saxpy(float alpha, __global const float *x, __global float *out, ulong n)
{
	FOR_ITEMS(i, n)
		out[i] += alpha * x[i];
}

__kernel void core_vsquare(__global const float *x, __global float *out, ulong n)
{
	FOR_ITEMS(i, n)
		out[i] = x[i] * x[i];
}

/* The terms of host's enum term. */
static double term_of(uint term, __global const float *x, __global const float *y, ulong i)
{
	if (term == 0)
		return (double)x[i];
	return term == 1 ? (double)x[i] * (double)y[i] : (double)x[i] - (double)y[i];
}

__kernel void core_reduce(__global const float *x, __global const float *y, __global double *partial,
			  ulong n, ulong block, ulong nblocks, uint term)
{
	FOR_ITEMS(b, nblocks) {
		ulong i = b * block, last = min(n, (b + 1) * block);
		double sums[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

		for (; i + 8 <= last; i += 8)
			for (uint j = 0; j < 8; j++)
				sums[j] += term_of(term, x, y, i + j);
		for (uint j = 0; i < last; i++, j++)
			sums[j] += term_of(term, x, y, i);
		partial[b] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
			     ((sums[1] + sums[5]) + (sums[3] + sums[7]));
	}
}

__kernel void core_reduce_join(__global const double *partial, __global float *out, ulong nblocks,
			       uint adds)
{
	double total = 0;

	if (get_global_id(0) != 0)
		return;
	for (ulong b = 0; b < nblocks; b++)
		total += partial[b];
	*out = adds ? (float)((double)*out + total) : (float)total;
}

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static ulong mix64(ulong z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ul;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebul;
	return z ^ (z >> 31);
}

/* Distance of the positions' keys: 2^64 over the golden ratio. */
#define POSITION_STEP 0x9e3779b97f4a7c15ul

/* Bytes need not begin where a word may. */
static ulong word_at(__global const uchar *bytes, ulong n)
{
	ulong word = 0;

	for (uint i = 0; i < n; i++)
		word |= (ulong)bytes[i] << (8 * i);
	return word;
}

__kernel void core_checksum(__global const uchar *bytes, __global ulong *partial, ulong n, ulong block,
			    ulong nblocks)
{
	FOR_ITEMS(b, nblocks) {
		ulong last = min(n, (b + 1) * block), sum = 0;

		for (ulong i = b * block; i < last; i++)
			sum += mix64(word_at(bytes + 8 * i, 8) + (i + 1) * POSITION_STEP);
		partial[b] = sum;
	}
}

__kernel void core_checksum_join(__global const uchar *bytes, __global const ulong *partial,
				 __global ulong *out, ulong n, ulong nblocks)
{
	ulong sum = n;

	if (get_global_id(0) != 0)
		return;
	for (ulong b = 0; b < nblocks; b++)
		sum += partial[b];
	if (n % 8 != 0)
		sum += mix64(word_at(bytes + n / 8 * 8, n % 8) + (n / 8 + 1) * POSITION_STEP);
	*out = sum;
}
