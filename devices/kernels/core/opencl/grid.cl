/* Stencils and dynamic programs. */

static float plate_cell(__global const float *from, ulong i, ulong rows, ulong cols, float power, float dt,
			float per_rx, float per_ry, float per_rz, float ambient)
{
	ulong y = i / cols, x = i % cols;
	float here = from[i];
	float north = y == 0 ? here : from[i - cols], south = y + 1 == rows ? here : from[i + cols];
	float west = x == 0 ? here : from[i - 1], east = x + 1 == cols ? here : from[i + 1];
	float flow = power + (north + south - 2.0f * here) * per_ry +
		     (east + west - 2.0f * here) * per_rx + (ambient - here) * per_rz;

	return here + dt * flow;
}

__kernel void core_plate(__global const float *from, __global float *to, __global const float *power,
			 ulong rows, ulong cols, float dt, float per_rx, float per_ry, float per_rz,
			 float ambient)
{
	FOR_ITEMS(i, rows * cols)
		to[i] = plate_cell(from, i, rows, cols, power[i], dt, per_rx, per_ry, per_rz,
				   ambient);
}

/* One group; the last step ends in @out. */
__kernel void core_plate_steps(__global const float *in, __global float *out, __global float *spare,
			       __global volatile int *verdict, uint nsteps, __global const float *power,
			       ulong rows, ulong cols, float dt, float per_rx, float per_ry, float per_rz,
			       float ambient)
{
	__global const float *from = in;
	__local int said;

	for (uint left = nsteps; left > 0; left--) {
		__global float *to = left % 2 == 1 ? out : spare;

		if (group_stops(verdict, &said))
			return;
		FOR_LOCALS(i, rows * cols)
			to[i] = plate_cell(from, i, rows, cols, power[i], dt, per_rx, per_ry, per_rz,
					   ambient);
		from = to;
	}
}

static float block_cell(__global const float *from, ulong i, ulong nx, ulong ny, ulong nz, float power,
			float keep, float side_x, float side_y, float side_z, float heat, float ambient)
{
	ulong layer = nx * ny, x = i % nx, y = i / nx % ny, z = i / layer;
	float here = from[i];
	float west = x == 0 ? here : from[i - 1], east = x + 1 == nx ? here : from[i + 1];
	float north = y == 0 ? here : from[i - nx], south = y + 1 == ny ? here : from[i + nx];
	float below = z == 0 ? here : from[i - layer], above = z + 1 == nz ? here : from[i + layer];

	return keep * here + side_x * (west + east) + side_y * (north + south) +
	       side_z * (below + above) + heat * power + side_z * ambient;
}

__kernel void core_block(__global const float *from, __global float *to, __global const float *power,
			 ulong nx, ulong ny, ulong nz, float keep, float side_x, float side_y,
			 float side_z, float heat, float ambient)
{
	FOR_ITEMS(i, nx * ny * nz)
		to[i] = block_cell(from, i, nx, ny, nz, power[i], keep, side_x, side_y, side_z, heat,
				   ambient);
}

__kernel void core_block_steps(__global const float *in, __global float *out, __global float *spare,
			       __global volatile int *verdict, uint nsteps, __global const float *power,
			       ulong nx, ulong ny, ulong nz, float keep, float side_x, float side_y,
			       float side_z, float heat, float ambient)
{
	__global const float *from = in;
	__local int said;

	for (uint left = nsteps; left > 0; left--) {
		__global float *to = left % 2 == 1 ? out : spare;

		if (group_stops(verdict, &said))
			return;
		FOR_LOCALS(i, nx * ny * nz)
			to[i] = block_cell(from, i, nx, ny, nz, power[i], keep, side_x, side_y, side_z,
					   heat, ambient);
		from = to;
	}
}

/* Sums wrap in 32 bits: a guest's numbers may not make ours undefined. */
static int add_wrapping(int a, int b)
{
	return (int)((uint)a + (uint)b);
}

/* One group, row by row; @costs has room for two rows. */
__kernel void core_pathfinder(__global const int *wall, __global int *result, __global int *costs,
			      __global volatile int *verdict, ulong nrows, ulong cols)
{
	__global int *from = costs, *to = costs + cols;
	__local int said;

	FOR_LOCALS(i, cols)
		from[i] = wall[i];
	for (ulong y = 1; y < nrows; y++) {
		__global int *next = from;

		if (group_stops(verdict, &said))
			return;
		FOR_LOCALS(i, cols) {
			int best = from[i];

			if (i > 0)
				best = min(best, from[i - 1]);
			if (i + 1 < cols)
				best = min(best, from[i + 1]);
			to[i] = add_wrapping(wall[y * cols + i], best);
		}
		from = to;
		to = next;
	}
	barrier(CLK_GLOBAL_MEM_FENCE);
	FOR_LOCALS(i, cols)
		result[i] = from[i];
}

/* Copies @n symbols while checking them; *bad says whether one is none of the table's. */
static void symbols_copy(__global const uchar *from, __global uchar *to, ulong n, __local int *bad)
{
	FOR_LOCALS(i, n) {
		uchar symbol = ((__global const volatile uchar *)from)[i];

		if (symbol >= BLOSUM62_SYMBOLS)
			*bad = 1;
		to[i] = symbol < BLOSUM62_SYMBOLS ? symbol : 0;
	}
}

/* One group, diagonal by diagonal. */
__kernel void core_needleman(__global const uchar *from_a, __global const uchar *from_b,
			     __global int *score, __global uchar *symbols,
			     __global volatile int *verdict, ulong na, ulong nb, int penalty)
{
	__global uchar *a = symbols, *b = symbols + na;
	ulong stride = nb + 1;
	__local int said, wrong;

	if (get_local_id(0) == 0)
		wrong = 0;
	barrier(CLK_LOCAL_MEM_FENCE);
	symbols_copy(from_a, a, na, &wrong);
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	symbols_copy(from_b, b, nb, &wrong);
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (wrong) {
		if (get_local_id(0) == 0)
			verdict[0] = -ERANGE;
		return;
	}
	FOR_LOCALS(i, nb + 1)
		score[i] = (int)(0u - (uint)i * (uint)penalty);
	barrier(CLK_GLOBAL_MEM_FENCE);
	FOR_LOCALS(i, na)
		score[(i + 1) * stride] = (int)(0u - (uint)(i + 1) * (uint)penalty);
	if (na == 0 || nb == 0)
		return;
	for (ulong diagonal = 0; diagonal < na + nb - 1; diagonal++) {
		ulong first = diagonal < nb ? 0 : diagonal - nb + 1, last = min(diagonal, na - 1);

		if (group_stops(verdict, &said))
			return;
		FOR_LOCALS(i, last - first + 1) {
			ulong y = first + i, x = diagonal - first - i;
			__global int *cell = score + (y + 1) * stride + x + 1;
			int best = add_wrapping(cell[-1 - (long)stride], blosum62[a[y]][b[x]]);

			best = max(best, (int)((uint)cell[-(long)stride] - (uint)penalty));
			*cell = max(best, (int)((uint)cell[-1] - (uint)penalty));
		}
	}
}
