/* SPDX-License-Identifier: Apache-2.0 */
/* European options, as devices/kernels/core/finance.c prices them. */
#include "devices/kernels/core/cuda/gpu.h"

/* Formula 26.2.17 of Abramowitz and Stegun. */
template <class T> DEVICE T phi(T d)
{
	T size = d < 0 ? -d : d;
	T t = 1 / (1 + (T)0.2316419 * size);
	T poly = t * ((T)0.31938153 +
		      t * ((T)-0.356563782 +
			   t * ((T)1.781477937 + t * ((T)-1.821255978 + t * (T)1.330274429))));
	T tail = (T)0.398942280401432678 * exp(size * size * (T)-0.5) * poly;

	return d < 0 ? tail : 1 - tail;
}

template <class T>
DEVICE T call_price(T spot, T strike, T rate, T volatility, T years, T *ret_discounted)
{
	T spread = volatility * sqrt(years);
	T drift = (rate + volatility * volatility / 2) * years;
	T d1 = (log(spot / strike) + drift) / spread;

	*ret_discounted = strike * exp(-rate * years);
	return spot * phi(d1) - *ret_discounted * phi(d1 - spread);
}

ENTRY(option, struct gpu_option, GPU_THREADS)
{
	double discounted;

	for (uint64_t i = first_item(); i < a.n; i += item_step())
		a.price[i] = call_price(a.spot[i], a.strike, a.rate, a.volatility, a.years,
					&discounted);
}

ENTRY(book, struct gpu_book, GPU_THREADS)
{
	for (uint64_t i = first_item(); i < a.n; i += item_step()) {
		float spot = a.spot[i], discounted;
		float price = call_price(spot, a.strike[i], a.rate, a.volatility, a.years[i],
					 &discounted);

		a.call[i] = price;
		/* Put-call parity. */
		a.put[i] = price + discounted - spot;
	}
}
