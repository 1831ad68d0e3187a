/* Random numbers by position, as core/random.c has them, and options. */

/* Philox4x32-10, as core/philox.h has it. */
static uint4 philox(ulong seed, ulong stream, ulong counter)
{
	uint c0 = (uint)counter, c1 = (uint)(counter >> 32);
	uint c2 = (uint)stream, c3 = (uint)(stream >> 32);
	uint k0 = (uint)seed, k1 = (uint)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		ulong p0 = 0xd2511f53ul * c0, p1 = 0xcd9e8d57ul * c2;

		c0 = (uint)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint)p1;
		c2 = (uint)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint)p0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return (uint4)(c0, c1, c2, c3);
}

static float word_to_uniform(uint word)
{
	return (float)(word >> 8) * 0x1p-24f;
}

/* Box and Muller, of two words. */
static float2 words_to_normal(uint a, uint b)
{
	float radius = sqrt(-2.0f * log((float)((a >> 8) + 1) * 0x1p-24f));
	float angle = 6.283185307f * word_to_uniform(b);

	return (float2)(radius * cos(angle), radius * sin(angle));
}

/*
 * Numbers of counter @c of those that [offset, offset + n) touches: STORE(i, j) puts the j-th word's number to out[i].
 * Positions wrap as counters do.
 */
#define NUMBERS(STORE)                                             \
	FOR_ITEMS(c, ncounters) {                                  \
		ulong first = 4 * c - offset % 4;                  \
		uint words[4];                                     \
                                                                   \
		vstore4(philox(seed, 0, (offset + first) >> 2), 0, words); \
		for (uint j = 0; j < 4; j++) {                     \
			ulong i = first + j;                       \
                                                                   \
			if (i < n)                                 \
				STORE;                             \
		}                                                  \
	}

__kernel void core_random_u32(__global uint *out, ulong n, ulong seed, ulong offset, ulong ncounters)
{
	NUMBERS(out[i] = words[j])
}

__kernel void core_random_uniform(__global float *out, ulong n, ulong seed, ulong offset,
				  ulong ncounters, float shift, float scale)
{
	NUMBERS(out[i] = shift + scale * word_to_uniform(words[j]))
}

static float normal_of(const uint *words, uint j)
{
	float2 pair = words_to_normal(words[j & 2], words[(j & 2) + 1]);

	return j & 1 ? pair.y : pair.x;
}

__kernel void core_random_normal(__global float *out, ulong n, ulong seed, ulong offset,
				 ulong ncounters, float shift, float scale)
{
	NUMBERS(out[i] = shift + scale * normal_of(words, j))
}

/* Phi and the price functions, once per floating type. */
#define PRICING(type, suffix)                                                                       \
	static type phi_##suffix(type d)                                                            \
	{                                                                                           \
		type size = d < 0 ? -d : d;                                                         \
		type t = 1 / (1 + (type)0.2316419 * size);                                          \
		type poly = t * ((type)0.31938153 +                                                 \
				 t * ((type)-0.356563782 +                                          \
				      t * ((type)1.781477937 +                                      \
					   t * ((type)-1.821255978 + t * (type)1.330274429))));     \
		type tail = (type)0.398942280401432678 * exp(size * size * (type)-0.5) * poly;      \
                                                                                                    \
		return d < 0 ? tail : 1 - tail;                                                     \
	}                                                                                           \
                                                                                                    \
	static type call_##suffix(type spot, type strike, type rate, type volatility, type years,   \
				  type *ret_discounted)                                             \
	{                                                                                           \
		type spread = volatility * sqrt(years);                                             \
		type drift = (rate + volatility * volatility / 2) * years;                          \
		type d1 = (log(spot / strike) + drift) / spread;                                    \
                                                                                                    \
		*ret_discounted = strike * exp(-rate * years);                                      \
		return spot * phi_##suffix(d1) - *ret_discounted * phi_##suffix(d1 - spread);       \
	}

PRICING(double, f64)
PRICING(float, f32)

__kernel void core_option(__global const double *spot, __global double *price, ulong n, double rate,
			  double volatility, double years, double strike)
{
	double discounted;

	FOR_ITEMS(i, n)
		price[i] = call_f64(spot[i], strike, rate, volatility, years, &discounted);
}

__kernel void core_book(__global const float *spot, __global const float *strike,
			__global const float *years, __global float *calls, __global float *puts, ulong n,
			float rate, float volatility)
{
	FOR_ITEMS(i, n) {
		float discounted, here = spot[i];
		float price = call_f32(here, strike[i], rate, volatility, years[i], &discounted);

		calls[i] = price;
		/* Put-call parity. */
		puts[i] = price + discounted - here;
	}
}
