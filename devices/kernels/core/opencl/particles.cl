/* Forces between particles of neighbouring boxes, and the filter that follows a bright spot; devices/kernels/core/particles.c. */

/* What box @theirs does to the one @here: x, y, z and the potential. */
static double4 box_attracts(__global const double *theirs, ulong per_box, double two_alpha2, double4 here)
{
	double4 sum = (double4)(0, 0, 0, 0);

	for (ulong j = 0; j < per_box; j++) {
		double dx = here.x - theirs[4 * j], dy = here.y - theirs[4 * j + 1];
		double dz = here.z - theirs[4 * j + 2], charge = theirs[4 * j + 3];
		double v = exp(-two_alpha2 * (dx * dx + dy * dy + dz * dz));
		double pull = 2 * v * charge;

		sum.w += charge * v;
		sum.x += pull * dx;
		sum.y += pull * dy;
		sum.z += pull * dz;
	}
	return sum;
}

/* At most 2^24 boxes. A work-item has a particle at a time. */
__kernel void core_lava(__global const double *particles, __global double *forces,
			__global volatile int *verdict, ulong side, ulong per_box, double alpha)
{
	FOR_ITEMS(i, side * side * side * per_box) {
		ulong box = i / per_box;
		long bx = (long)(box % side), by = (long)(box / side % side);
		long bz = (long)(box / side / side);
		double4 sum = (double4)(0, 0, 0, 0), here;

		if (verdict[1]) {
			verdict[0] = -ECANCELED;
			return;
		}
		here = (double4)(particles[4 * i], particles[4 * i + 1], particles[4 * i + 2], 0);
		for (int neighbour = 0; neighbour < 27; neighbour++) {
			long x = bx + neighbour % 3 - 1, y = by + neighbour / 3 % 3 - 1;
			long z = bz + neighbour / 9 - 1, n = (long)side;

			if (x >= 0 && x < n && y >= 0 && y < n && z >= 0 && z < n)
				sum += box_attracts(particles + 4 * (ulong)((z * n + y) * n + x) * per_box,
						    per_box, 2 * alpha * alpha, here);
		}
		forces[4 * i] = sum.x;
		forces[4 * i + 1] = sum.y;
		forces[4 * i + 2] = sum.z;
		forces[4 * i + 3] = sum.w;
	}
}

/* The spot, and how it moves. */
#define DISK_RADIUS 5
#define DISK_PIXELS 81
#define BACKGROUND  100
#define FOREGROUND  228
#define DRIFT_X	    1.0
#define DRIFT_Y	    (-2.0)
#define ERROR_X	    5.0
#define ERROR_Y	    2.0

static long pixel_near(double at, ulong size)
{
	/* Clamped as a number first: a conversion out of range is undefined. NaN becomes 0. */
	double clamped = at > 0 ? at : 0;

	return (long)(clamped < (double)(size - 1) ? clamped + 0.5 : (double)(size - 1));
}

static long clamp_index(long at, ulong size)
{
	return at < 0 ? 0 : at < (long)size ? at : (long)size - 1;
}

/* The logarithm of how well the pixels around (@x, @y) fit the spot rather than the background. */
static double likelihood(__global const uchar *frame, ulong width, ulong height, double x, double y)
{
	long cx = pixel_near(x, width), cy = pixel_near(y, height);
	int sum = 0;

	for (int dy = -DISK_RADIUS; dy <= DISK_RADIUS; dy++)
		for (int dx = -DISK_RADIUS; dx <= DISK_RADIUS; dx++) {
			int value;

			if (dx * dx + dy * dy > DISK_RADIUS * DISK_RADIUS)
				continue;
			value = frame[(ulong)clamp_index(cy + dy, height) * width +
				      (ulong)clamp_index(cx + dx, width)];
			sum += (value - BACKGROUND) * (value - BACKGROUND) -
			       (value - FOREGROUND) * (value - FOREGROUND);
		}
	return (double)sum / 50.0 / (double)DISK_PIXELS;
}

/* The first of [0, @n) whose running sum reaches @level; the last if none does. */
static ulong first_reaching(__global const double *running, ulong n, double level)
{
	ulong low = 0, high = n - 1;

	while (low < high) {
		ulong middle = low + (high - low) / 2;

		if (running[middle] < level)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Work-items of a group: the same as body.h's OCL_LOCAL. */
#define FILTER_LOCALS 64

/* The particles of a work-item. All make as many rounds: PoCL 3.1 takes loops that differ in that, between barriers, for one. */
#define FOR_PART(i)                                                  \
	for (ulong at_ = 0, i = id * part; at_ < part; at_++, i++)   \
		if (i < n)

/*
 * One group, frame by frame; @memory has room for six numbers of each particle. A work-item adds up particles side by
 * side, and the first one joins these sums, in order: what comes out does not depend on the device.
 */
__kernel void core_filter(__global const uchar *frames, __global float *estimates, __global double *memory,
			  __global volatile int *verdict, ulong width, ulong height, ulong nframes,
			  ulong n, ulong seed, float start_x, float start_y)
{
	__global double *x = memory, *y = memory + n, *next_x = memory + 2 * n, *next_y = memory + 3 * n;
	__global double *weight = memory + 4 * n, *running = memory + 5 * n;
	ulong id = get_local_id(0), part = (n + FILTER_LOCALS - 1) / FILTER_LOCALS;
	__local double best[FILTER_LOCALS], sums[FILTER_LOCALS];
	__local double sums_x[FILTER_LOCALS], sums_y[FILTER_LOCALS];
	__local int said;

	FOR_PART(i) {
		x[i] = (double)start_x;
		y[i] = (double)start_y;
	}
	for (ulong f = 0; f < nframes; f++) {
		__global const uchar *frame = frames + f * width * height;
		double most = -INFINITY, sum = 0, sum_x = 0, sum_y = 0, start;
		__global double *swap;

		if (group_stops(verdict, &said))
			return;
		FOR_PART(i) {
			uint4 words = philox(seed, f + 1, i);
			float2 normal = words_to_normal(words.x, words.y);

			x[i] += DRIFT_X + ERROR_X * (double)normal.x;
			y[i] += DRIFT_Y + ERROR_Y * (double)normal.y;
			weight[i] = likelihood(frame, width, height, x[i], y[i]);
			most = weight[i] > most ? weight[i] : most;
		}
		best[id] = most;
		barrier(CLK_LOCAL_MEM_FENCE);
		for (uint i = 0; i < FILTER_LOCALS; i++)
			most = best[i] > most ? best[i] : most;
		FOR_PART(i) {
			double w = exp(weight[i] - most);

			sum += w;
			sum_x += w * x[i];
			sum_y += w * y[i];
			running[i] = sum;
		}
		sums[id] = sum;
		sums_x[id] = sum_x;
		sums_y[id] = sum_y;
		barrier(CLK_LOCAL_MEM_FENCE);
		if (id == 0) {
			double total = 0, total_x = 0, total_y = 0;

			for (uint i = 0; i < FILTER_LOCALS; i++) {
				double before = total;

				total += sums[i];
				total_x += sums_x[i];
				total_y += sums_y[i];
				sums[i] = before;
			}
			/* At least one weight is exp(0), so the total is no less than 1. */
			best[0] = total;
			estimates[2 * f] = (float)(total_x / total);
			estimates[2 * f + 1] = (float)(total_y / total);
		}
		barrier(CLK_LOCAL_MEM_FENCE);
		FOR_PART(i)
			running[i] += sums[id];
		/* Systematic: one random number, then steps of 1/n. */
		start = (double)word_to_uniform(philox(seed, f + 1, ULONG_MAX).x);
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
		FOR_PART(i) {
			ulong at = first_reaching(running, n,
						  (start + (double)i) / (double)n * best[0]);

			next_x[i] = x[at];
			next_y[i] = y[at];
		}
		swap = x;
		x = next_x;
		next_x = swap;
		swap = y;
		y = next_y;
		next_y = swap;
	}
}
