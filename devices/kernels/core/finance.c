/* SPDX-License-Identifier: Apache-2.0 */
/*
 * European options by Black and Scholes (1973). The normal distribution function is Abramowitz and
 * Stegun's 26.2.17 (five terms, error below 7.5e-8), as in the GrCUDA suite, so that prices can be
 * compared.
 */
#include <math.h>

#include "devices/kernels/kernel.h"

#define GRAIN 2048u

/* Phi and the price functions, once per floating type. */
#define PRICING(type, suffix, sqrt_of, exp_of, log_of)                                            \
	static inline type phi_##suffix(type d)                                                   \
	{                                                                                         \
		type size = d < 0 ? -d : d;                                                       \
		type t = 1 / (1 + (type)0.2316419 * size);                                        \
		type poly = t * ((type)0.31938153 +                                               \
				 t * ((type)-0.356563782 +                                        \
				      t * ((type)1.781477937 +                                    \
					   t * ((type)-1.821255978 + t * (type)1.330274429))));   \
		type tail = (type)0.398942280401432678 * exp_of(size * size * (type)-0.5) * poly; \
                                                                                                  \
		return d < 0 ? tail : 1 - tail;                                                   \
	}                                                                                         \
                                                                                                  \
	static inline type call_##suffix(type spot, type strike, type rate, type volatility,      \
					 type years, type *ret_discounted)                        \
	{                                                                                         \
		type spread = volatility * sqrt_of(years);                                        \
		type drift = (rate + volatility * volatility / 2) * years;                        \
		type d1 = (log_of(spot / strike) + drift) / spread;                               \
                                                                                                  \
		*ret_discounted = strike * exp_of(-rate * years);                                 \
		return spot * phi_##suffix(d1) - *ret_discounted * phi_##suffix(d1 - spread);     \
	}

PRICING(double, f64, sqrt, exp, log)
PRICING(float, f32, sqrtf, expf, logf)

struct option {
	const double *spot;
	double *price;
	double rate, volatility, years, strike;
};

static void option_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct option *o = arg;
	double discounted;

	for (uint64_t i = begin; i < end; i++)
		o->price[i] = call_f64(o->spot[i], o->strike, o->rate, o->volatility, o->years,
				       &discounted);
}

KERNEL(black_scholes)
{
	uint64_t n = call->args[2].u64;
	struct option o = {
		.spot = ARG(double, call, 0, n),
		.price = ARG(double, call, 1, n),
		.rate = call->args[3].f64,
		.volatility = call->args[4].f64,
		.years = call->args[5].f64,
		.strike = call->args[6].f64,
	};

	if (!o.spot || !o.price)
		return -EINVAL;
	env->parallel(env, n, GRAIN, option_range, &o);
	return 0;
}

struct book {
	const float *spot, *strike, *years;
	float *call, *put;
	float rate, volatility;
};

static void book_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct book *b = arg;

	for (uint64_t i = begin; i < end; i++) {
		float spot = b->spot[i], discounted;
		float price = call_f32(spot, b->strike[i], b->rate, b->volatility, b->years[i],
				       &discounted);

		b->call[i] = price;
		/* Put-call parity. */
		b->put[i] = price + discounted - spot;
	}
}

KERNEL(black_scholes_book)
{
	uint64_t n = call->args[5].u64;
	struct book b = {
		.spot = ARG(float, call, 0, n),
		.strike = ARG(float, call, 1, n),
		.years = ARG(float, call, 2, n),
		.call = ARG(float, call, 3, n),
		.put = ARG(float, call, 4, n),
		.rate = call->args[6].f32,
		.volatility = call->args[7].f32,
	};

	if (!b.spot || !b.strike || !b.years || !b.call || !b.put)
		return -EINVAL;
	env->parallel(env, n, GRAIN, book_range, &b);
	return 0;
}
